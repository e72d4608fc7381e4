//! How a test says that this machine lacks what it needs.
//!
//! Owns the one way to skip: a line on standard error and, where `ROADSTEAD_SKIPS` names a file, the same line there, so
//! that `make test` can count it and hold it against `tests/skips.toml`. Never decides whether a skip is right.
#![forbid(unsafe_code)]

use std::{fs::OpenOptions, io::Write as _};

/// Says that the check `name` (a table of `tests/skips.toml`) can't run here, and why. The caller returns after it.
pub fn skip(name: &str, why: &str) {
    eprintln!("SKIP {name}: {why}");
    let Some(path) = std::env::var_os("ROADSTEAD_SKIPS") else {
        return;
    };
    let line = format!("{name}: {why}\n");
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!(
            "the skip of {name} could not be counted in {}: {error}",
            path.display()
        );
    }
}

/// Whether a program is on the PATH or in the system folders that a user's PATH often lacks.
pub fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}
