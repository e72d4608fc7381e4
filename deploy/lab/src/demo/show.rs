//! What the demo prints: each step with its number, its progress and what was measured.

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Instant,
};

use crate::outcome::{Outcome, time};

/// Counts steps and prints them.
#[derive(Debug)]
pub(super) struct Show {
    total: usize,
    done: usize,
    failed: usize,
    terminal: bool,
}

impl Show {
    /// For this many steps.
    pub(super) fn new(total: usize) -> Self {
        Self {
            total,
            done: 0,
            failed: 0,
            terminal: io::stdout().is_terminal(),
        }
    }

    /// Says that a step begins; on a terminal the line is replaced when it ends.
    pub(super) fn begin(&mut self, title: &str) -> Instant {
        self.done += 1;
        if self.terminal {
            print!("[{:>2}/{}] {title} …", self.done, self.total);
            flush();
        }
        Instant::now()
    }

    /// Says how it ended.
    pub(super) fn end(&mut self, title: &str, began: Instant, outcome: &Outcome) {
        let took = time(began.elapsed());
        let start = if self.terminal { "\r\x1b[K" } else { "" };
        let (good, bad) = if self.terminal {
            ("\x1b[32mok\x1b[0m", "\x1b[31mFAILED\x1b[0m")
        } else {
            ("ok", "FAILED")
        };
        let number = format!("[{:>2}/{}]", self.done, self.total);
        match outcome {
            Ok(measured) => {
                println!("{start}{number} {title}: {good} ({took})");
                measured.lines().for_each(|line| println!("        {line}"));
            }
            Err(unmet) => {
                self.failed += 1;
                println!("{start}{number} {title}: {bad} ({took})");
                println!("        expected  {}", unmet.expected);
                println!("        seen      {}", unmet.seen);
            }
        }
        flush();
    }

    /// Says that a step can't be taken here.
    pub(super) fn skip(&mut self, title: &str, why: &str) {
        self.done += 1;
        println!("[{:>2}/{}] {title}: SKIPPED, {why}", self.done, self.total);
        flush();
    }

    /// Steps that failed.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }
}

fn flush() {
    // a reader that has gone is noticed by the next line
    let _ = io::stdout().flush();
}
