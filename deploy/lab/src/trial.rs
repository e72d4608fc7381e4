//! Tests that need namespaces of the lab's own: a `main` for test programs with `harness = false`.
//!
//! Prints what cargo's own harness prints, takes a filter like it, and runs one test after the other. Never skips silently.

use std::{
    net::TcpListener,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

use crate::sandbox::{self, Inside};

/// A test: its name, a sentence, and its body, which panics when it fails.
pub type Trial<'a> = (&'static str, Box<dyn FnOnce() + 'a>);

/// Runs `body` inside the lab's namespaces, with the tests that the command line asks for picked by its argument.
pub fn main(body: impl FnOnce(&Runner, Inside)) -> ExitCode {
    if !sandbox::is_inside() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        return sandbox::enter(listener).unwrap_or_else(|error| {
            skips::skip("net-admin", &error.to_string());
            ExitCode::SUCCESS
        });
    }
    let inside = sandbox::settle().expect("the lab's namespaces can be settled in");
    let runner = Runner::from_command_line();
    body(&runner, inside);
    runner.finish()
}

/// Counts tests and prints their results.
#[derive(Debug, Default)]
pub struct Runner {
    filters: Vec<String>,
    passed: std::cell::Cell<usize>,
    failed: std::cell::RefCell<Vec<&'static str>>,
}

impl Runner {
    /// With the filters that the command line gives.
    pub fn from_command_line() -> Self {
        let arguments = std::env::args().skip(1);
        Self {
            filters: arguments
                .filter(|argument| !argument.starts_with('-'))
                .collect(),
            ..Self::default()
        }
    }

    /// Runs one test if it was asked for.
    pub fn run(&self, (name, body): Trial<'_>) {
        let wanted = self.filters.is_empty() || self.filters.iter().any(|word| name.contains(word));
        if !wanted {
            return;
        }
        let outcome = catch_unwind(AssertUnwindSafe(body));
        if outcome.is_ok() {
            self.passed.set(self.passed.get() + 1);
            println!("test {name} ... ok");
        } else {
            self.failed.borrow_mut().push(name);
            println!("test {name} ... FAILED");
        }
    }

    /// Prints the sum of it; fails if a test did.
    pub fn finish(&self) -> ExitCode {
        let (passed, failed) = (self.passed.get(), self.failed.borrow());
        let word = if failed.is_empty() { "ok" } else { "FAILED" };
        println!(
            "\ntest result: {word}. {passed} passed; {} failed; 0 ignored",
            failed.len()
        );
        for name in failed.iter() {
            println!("    {name}");
        }
        if failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}
