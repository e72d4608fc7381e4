//! What the end-to-end tests share: the `roadstead` program, a demo running beside the test, the user's `kubectl`.
//!
//! Never looks into Roadstead: it sees what a user sees.
#![forbid(unsafe_code)]

pub mod demo;
pub mod shell;

use std::path::PathBuf;

/// The `roadstead` program that was built with the tests.
pub fn roadstead() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let folder = test
        .ancestors()
        .nth(2)
        .expect("tests lie in target/<profile>/deps");
    let program = folder.join("roadstead");
    assert!(
        program.is_file(),
        "{} is missing: cargo build --package roadstead",
        program.display()
    );
    program
}
