//! One line for each row, and the counts.
//!
//! Owns the words `PASS`, `FAIL`, `UNSUPPORTED`.

use std::fmt;

/// What a row came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every field was executed and is equal.
    Pass,
    /// It differs as wanted; why that is wanted.
    WantedDifference(String),
    /// It differs.
    Fail {
        /// What was recorded, or is wanted instead.
        expected: String,
        /// What was seen, by combination.
        got: String,
    },
    /// Not everything of it can be executed; why.
    Unsupported(String),
}

/// A row's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// `scenario#n from`.
    pub id: String,
    /// What it came to.
    pub verdict: Verdict,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = &self.id;
        match &self.verdict {
            Verdict::Pass => write!(f, "PASS {id}"),
            Verdict::WantedDifference(why) => write!(f, "PASS {id} (wanted difference: {why})"),
            Verdict::Fail { expected, got } => {
                write!(f, "FAIL {id} – expected {expected}; got {got}")
            }
            Verdict::Unsupported(why) => write!(f, "UNSUPPORTED {id} – {why}"),
        }
    }
}

/// Sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Equal rows, and those that differ as wanted.
    pub passed: usize,
    /// Those that differ as wanted.
    pub wanted: usize,
    /// Rows that differ.
    pub failed: usize,
    /// Rows that were not executed in full.
    pub unsupported: usize,
}

impl Counts {
    /// Counts a line.
    pub fn add(&mut self, line: &Line) {
        match line.verdict {
            Verdict::Pass => self.passed += 1,
            Verdict::WantedDifference(_) => {
                self.passed += 1;
                self.wanted += 1;
            }
            Verdict::Fail { .. } => self.failed += 1,
            Verdict::Unsupported(_) => self.unsupported += 1,
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            wanted,
            failed,
            unsupported,
        } = self;
        write!(
            f,
            "{passed} passed, {failed} failed, {unsupported} unsupported ({wanted} of the passed ones are wanted differences)"
        )
    }
}
