//! What every tracked file keeps to: sizes, links that lead somewhere, no path of one machine, `unsafe` in one place.

use std::collections::BTreeSet;

use tidy::{source, workspace};

/// Hard limits; the aim is 400 and 40.
const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 70;

#[test]
fn files_and_functions_stay_short() {
    let mut long = Vec::new();
    for file in source::tracked() {
        if !file.is("rs") || file.is_test() {
            continue;
        }
        let lines = file.lines_without_tests();
        if lines > FILE_LINES {
            long.push(format!("{}: {lines} lines", file.path));
        }
        for (name, lines) in source::long_functions(&file.text, FUNCTION_LINES) {
            long.push(format!("{}: fn {name}: {lines} lines", file.path));
        }
    }
    assert_eq!(long, Vec::<String>::new());
}

#[test]
fn links_in_documents_lead_somewhere() {
    let mut dead = Vec::new();
    for file in source::tracked() {
        if !file.is("md") {
            continue;
        }
        let full = workspace::root().join(&file.path);
        let folder = full.parent().expect("a file lies in a folder");
        for target in file
            .text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let path = target.split(['#', ' ']).next().unwrap_or_default();
            let elsewhere = path.contains("://") || path.starts_with("mailto:") || path.is_empty();
            if !elsewhere && !folder.join(path).exists() {
                dead.push(format!("{}: {target}", file.path));
            }
        }
    }
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn commands_in_the_readme_exist() {
    let files = source::tracked();
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| file.text.clone()).unwrap_or_default()
    };
    let makefile = text("Makefile");
    let mut missing = Vec::new();
    for document in ["README.md", "CONTRIBUTING.md"] {
        for target in text(document).split("make ").skip(1) {
            let quoted = target
                .split(|c: char| !c.is_ascii_lowercase())
                .next()
                .unwrap_or_default();
            let follows = target.get(quoted.len()..).unwrap_or_default();
            let is_command = follows.starts_with(['`', '\n'])
                || follows.starts_with(" DIR")
                || follows.starts_with(" ARGS");
            if is_command && !quoted.is_empty() && !makefile.contains(&format!("\n{quoted}:")) {
                missing.push(format!("{document}: make {quoted}"));
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn the_readme_shows_the_followed_service_as_the_test_prints_it() {
    let files = source::tracked();
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| file.text.clone()).unwrap_or_default()
    };
    let table = text("tests/e2e/tests/followed.txt");
    assert!(table.lines().count() > 10, "the table is there");
    assert!(
        text("README.md").contains(&format!("```text\n{table}```")),
        "copy tests/e2e/tests/followed.txt into README.md"
    );
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    let machine = [
        concat!("/wo", "rk/"),
        concat!("/fa", "rm/"),
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/tmp/ba", "sh_jobs"),
    ];
    let mut found = Vec::new();
    for file in source::tracked() {
        for (number, line) in file.text.lines().enumerate() {
            let at_a_word = |path: &&str| {
                line.match_indices(*path).any(|(at, _)| {
                    let before = line.get(..at).and_then(|before| before.chars().next_back());
                    !before.is_some_and(|c| c.is_ascii_alphanumeric() || "_-.}".contains(c))
                })
            };
            if machine.iter().any(at_a_word) {
                found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn unsafe_stands_in_one_file() {
    const ROOM: &str = "speaker/src/sys.rs";
    let word = concat!("uns", "afe ");
    let mut wrong = Vec::new();
    for file in source::tracked() {
        if !file.is("rs") {
            continue;
        }
        let code = file
            .text
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("//"));
        let opens = |line: &str| {
            ["{", "fn", "impl", "extern"]
                .iter()
                .any(|next| line.contains(&format!("{word}{next}")))
        };
        if file.path != ROOM && code.clone().any(opens) {
            wrong.push(format!("{} has a block of it", file.path));
        }
        let is_root = file.path.ends_with("src/lib.rs") || file.path.ends_with("src/main.rs");
        let demanded = if file.path == "speaker/src/lib.rs" {
            "deny(unsafe_code)"
        } else {
            "forbid(unsafe_code)"
        };
        if is_root && !file.text.contains(&format!("#![{demanded}]")) {
            wrong.push(format!("{} lacks #![{demanded}]", file.path));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_listed_skip_is_made_and_every_skip_is_listed() {
    let mut made = BTreeSet::new();
    let mut listed = BTreeSet::new();
    for file in source::tracked() {
        if file.path == "tests/skips.toml" {
            let names = file
                .text
                .lines()
                .filter_map(|line| line.strip_prefix('[')?.strip_suffix(']'));
            listed.extend(names.map(str::to_owned));
        } else if file.is("rs") {
            let calls = file.text.split(concat!("skips::", "skip(")).skip(1);
            made.extend(calls.filter_map(|call| Some(call.split('"').nth(1)?.to_owned())));
        }
    }
    assert_eq!(made, listed);
}
