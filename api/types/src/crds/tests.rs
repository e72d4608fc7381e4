use std::{collections::BTreeMap, path::PathBuf};

use super::*;

/// Where the generated manifests lie.
fn folder() -> PathBuf {
    PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/base/crds"
    ))
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a golden test compares with files, and rewrites them when asked"
)]
fn manifests_in_deploy_are_fresh() {
    let wanted: BTreeMap<String, String> = crds()
        .iter()
        .map(|crd| {
            let name = crd.metadata.name.clone().unwrap();
            let text = serde_yaml_ng::to_string(crd).unwrap();
            (
                format!("{name}.yaml"),
                format!("# Generated from api/types; rewrite with UPDATE_GOLDEN=1 cargo test -p api-types.\n{text}"),
            )
        })
        .collect();
    if std::env::var("UPDATE_GOLDEN").is_ok() {
        std::fs::create_dir_all(folder()).unwrap();
        for (name, text) in &wanted {
            std::fs::write(folder().join(name), text).unwrap();
        }
    }
    let found: BTreeMap<String, String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "yaml"))
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                std::fs::read_to_string(entry.path()).unwrap(),
            )
        })
        .filter(|(name, _)| name != "kustomization.yaml")
        .collect();
    assert!(
        found == wanted,
        "deploy/base/crds differs from the types: UPDATE_GOLDEN=1 cargo test -p api-types"
    );
}

/// Walks every schema node of every CRD.
fn walk(path: &str, node: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, node);
    if let Some(properties) = node.get("properties").and_then(Value::as_object) {
        for (name, inner) in properties {
            walk(&format!("{path}.{name}"), inner, visit);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = node.get(key).filter(|inner| inner.is_object()) {
            walk(&format!("{path}[]"), inner, visit);
        }
    }
}

#[test]
fn schemas_are_structural() {
    let mut wrong = Vec::new();
    for crd in crds() {
        let name = crd.metadata.name.clone().unwrap();
        for version in crd.spec.versions {
            let schema =
                serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
            walk(
                &format!("{name}/{}", version.name),
                &schema,
                &mut |path, node| {
                    if node.get("type").and_then(Value::as_str).is_none()
                        && node.get("x-kubernetes-int-or-string").is_none()
                    {
                        wrong.push(format!("{path}: no type"));
                    }
                    for key in [
                        "$ref",
                        "oneOf",
                        "anyOf",
                        "allOf",
                        "not",
                        "definitions",
                        "nullable",
                    ] {
                        if node.get(key).is_some() {
                            wrong.push(format!("{path}: {key}"));
                        }
                    }
                    if let Some(format) = node.get("format").and_then(Value::as_str)
                        && !["int32", "int64", "date-time", "double"].contains(&format)
                    {
                        wrong.push(format!("{path}: format {format}"));
                    }
                    if node
                        .get("enum")
                        .and_then(Value::as_array)
                        .is_some_and(|all| all.contains(&Value::Null))
                    {
                        wrong.push(format!("{path}: null in enum"));
                    }
                },
            );
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// A rule costs by the largest value that the schema admits, so what a rule looks at must be bounded.
#[test]
fn strings_and_arrays_of_ours_are_bounded() {
    let mut wrong = Vec::new();
    for crd in crds() {
        let name = crd.metadata.name.clone().unwrap();
        for version in crd.spec.versions {
            let schema =
                serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
            walk(
                &format!("{name}/{}", version.name),
                &schema,
                &mut |path, node| {
                    // label selectors and conditions are Kubernetes' own types, and no rule looks into them
                    if path.contains("elector")
                        || path.contains(".preference")
                        || path.contains(".conditions[]")
                    {
                        return;
                    }
                    let bounded = match node.get("type").and_then(Value::as_str) {
                        Some("string") => {
                            node.get("maxLength").is_some() || node.get("enum").is_some()
                        }
                        Some("array") => node.get("maxItems").is_some(),
                        _ => true,
                    };
                    if !bounded && !path.ends_with("apiVersion") && !path.ends_with("kind") {
                        wrong.push(path.to_owned());
                    }
                },
            );
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn defaults_are_those_of_metallb_and_no_others() {
    let mut found = Vec::new();
    for crd in crds() {
        let kind = crd.spec.names.kind.clone();
        for version in crd.spec.versions {
            let schema =
                serde_json::to_value(version.schema.unwrap().open_api_v3_schema.unwrap()).unwrap();
            walk(
                &format!("{kind}/{}", version.name),
                &schema,
                &mut |path, node| {
                    if let Some(default) = node.get("default") {
                        found.push(format!("{path} = {default}"));
                    }
                },
            );
        }
    }
    assert_eq!(
        found,
        [
            "BGPAdvertisement/v1beta1.spec.aggregationLength = 32",
            "BGPAdvertisement/v1beta1.spec.aggregationLengthV6 = 128",
            "BGPPeer/v1beta2.spec.disableMP = false",
            "BGPPeer/v1beta2.spec.dualStackAddressFamily = false",
            "BGPPeer/v1beta2.spec.peerPort = 179",
            "IPAddressPool/v1beta1.spec.autoAssign = true",
            "IPAddressPool/v1beta1.spec.avoidBuggyIPs = false",
        ]
    );
}

#[test]
fn both_versions_of_bgppeer_are_served_and_one_is_stored() {
    let crd = crds()
        .into_iter()
        .find(|crd| crd.spec.names.kind == "BGPPeer")
        .unwrap();
    let versions: Vec<_> = crd
        .spec
        .versions
        .iter()
        .map(|v| (v.name.as_str(), v.served, v.storage, v.deprecated))
        .collect();
    assert_eq!(
        versions,
        [
            ("v1beta2", true, true, None),
            ("v1beta1", true, false, Some(true))
        ]
    );
    assert_eq!(
        crd.spec
            .conversion
            .map_or("None".to_owned(), |c| c.strategy),
        "None"
    );
}
