//! Which crate may depend on what: the arrows between our rooms, pure cores, licences, one version of each.

use std::collections::{BTreeMap, BTreeSet};

use tidy::{
    licence, source,
    workspace::{self, Package},
};

const WORDS: &[&str] = &["api-types", "api-model", "api-client"];
const CORES: &[&str] = &[
    "api-model",
    "allocator-core",
    "speaker-membership",
    "speaker-l2",
    "speaker-bgp",
    "speaker-proxier",
];

/// Our crates that each of our crates may depend on; the test crates and `roadstead` itself may take any.
fn arrows() -> BTreeMap<&'static str, Vec<&'static str>> {
    let speakers = [
        "speaker-membership",
        "speaker-l2",
        "speaker-bgp",
        "speaker-proxier",
    ];
    let with_words = |more: &[&'static str]| [WORDS, more].concat();
    BTreeMap::from([
        ("api-model", vec![]),
        ("api-types", vec!["api-model"]),
        ("api-client", vec!["api-types", "api-model"]),
        (
            "api-server",
            vec!["api-types", "api-model", "allocator-core"],
        ),
        ("api-controllers", WORDS.to_vec()),
        ("allocator-core", vec!["api-model"]),
        ("speaker-membership", vec!["api-model"]),
        ("speaker-l2", vec!["api-model"]),
        ("speaker-bgp", vec!["api-model"]),
        ("speaker-proxier", vec!["api-model"]),
        ("allocator", with_words(&["allocator-core"])),
        ("speaker", with_words(&speakers)),
        (
            "lab",
            with_words(&[
                "allocator",
                "speaker",
                "api-server",
                "api-controllers",
                "skips",
            ]),
        ),
        ("skips", vec![]),
    ])
}

#[test]
fn arrows_between_our_crates_point_one_way() {
    let packages = workspace::packages();
    let members = workspace::members(&packages);
    let arrows = arrows();
    let mut wrong = Vec::new();
    for (name, package) in &members {
        let folder = package.folder.strip_prefix(workspace::root());
        let is_test = folder.is_ok_and(|folder| folder.starts_with("tests"));
        let allowed = match arrows.get(name) {
            Some(allowed) => allowed,
            None if is_test || *name == "roadstead" => continue,
            None => {
                wrong.push(format!("{name} has no place in the list of arrows"));
                continue;
            }
        };
        for dependency in &package.normal {
            if members.contains_key(dependency.as_str()) && !allowed.contains(&dependency.as_str())
            {
                wrong.push(format!("{name} -> {dependency}"));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn cores_depend_on_nothing_that_does_io() {
    const IMPURE: &[&str] = &[
        "tokio",
        "tokio-util",
        "tokio-stream",
        "futures",
        "kube",
        "k8s-openapi",
        "hyper",
        "nix",
        "libc",
        "socket2",
        "mio",
        "rand",
        "getrandom",
        "fastrand",
        "rtnetlink",
        "netlink-sys",
        "tracing",
        "tracing-subscriber",
        "jiff",
    ];
    let packages = workspace::packages();
    let members = workspace::members(&packages);
    let mut wrong = Vec::new();
    for core in CORES {
        let package = members.get(core).expect("every core is a member");
        let impure = package
            .normal
            .iter()
            .filter(|name| IMPURE.contains(&name.as_str()));
        wrong.extend(impure.map(|name| format!("{core} -> {name}")));
        if !package.folder.join("clippy.toml").is_file() {
            wrong.push(format!(
                "{core} has no clippy.toml that bans clocks, files and threads"
            ));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_licence_is_on_the_list() {
    let packages = workspace::packages();
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !licence::is_allowed(&package.licence))
        .map(|package| {
            format!(
                "{} {}: {:?}",
                package.name, package.version, package.licence
            )
        })
        .collect();
    assert_eq!(refused, Vec::<String>::new());
}

#[test]
fn each_direct_dependency_has_one_version() {
    let packages = workspace::packages();
    let direct: BTreeSet<&str> = packages
        .iter()
        .filter(|package| package.member)
        .flat_map(|package| package.normal.iter().map(String::as_str))
        .collect();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Package { name, version, .. } in &packages {
        if direct.contains(name.as_str()) {
            versions.entry(name).or_default().insert(version);
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    let twice: Vec<&str> = versions.into_keys().collect();
    assert_eq!(twice, TWICE);
}

/// Direct dependencies of which another dependency still needs an older version; each with the one that needs it.
const TWICE: &[&str] = &[
    "base64",    // kube-client and pem take 0.23, k8s-openapi, kube-cel and tower-http 0.22
    "thiserror", // cel 0.13, below kube-cel, takes 1
];

/// The crates that Roadstead is asked to stand on: whose, who depends on it, and a module of ours that uses it.
const REQUIRED: &[(&str, &str, &str)] = &[
    ("kube", "api-client", "api/client/src/connect.rs"),
    (
        "k8s-openapi",
        "allocator",
        "allocator/src/ingest/service.rs",
    ),
    ("tokio", "speaker", "speaker/src/proxier_io.rs"),
    ("pnet", "speaker-l2", "speaker/l2/src/arp.rs"),
    ("ipnet", "speaker-proxier", "speaker/proxier/src/rules.rs"),
    ("zettabgp", "speaker-bgp", "speaker/bgp/src/wire/encode.rs"),
    ("serde", "api-types", "api/types/src/address_record.rs"),
    ("thiserror", "allocator-core", "allocator/core/src/range.rs"),
    ("tracing", "speaker", "speaker/src/proxier_io.rs"),
];

#[test]
fn each_required_crate_is_a_normal_dependency_with_a_user() {
    let packages = workspace::packages();
    let members = workspace::members(&packages);
    let files = source::tracked();
    let mut wrong = Vec::new();
    for (name, member, module) in REQUIRED {
        let package = members.get(member).expect("the user's crate is a member");
        if !package.normal.contains(*name) {
            wrong.push(format!("{member} does not depend on {name}"));
        }
        let word = format!("{}::", name.replace('-', "_"));
        let user = files.iter().find(|file| file.path == *module);
        if !user.is_some_and(|file| file.text.contains(&word)) {
            wrong.push(format!("{module} does not use {name}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}
