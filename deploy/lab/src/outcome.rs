//! What a step of the demo comes to: what was measured, or what was expected and seen instead.

use std::{
    fmt::Display,
    future::Future,
    time::{Duration, Instant},
};

use crate::error::Error;

/// A step that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}; seen: {seen}")]
pub struct Unmet {
    /// What should have been.
    pub expected: String,
    /// What was.
    pub seen: String,
}

impl From<Error> for Unmet {
    fn from(error: Error) -> Self {
        Self {
            expected: "no error".to_owned(),
            seen: error.to_string(),
        }
    }
}

impl From<kube::Error> for Unmet {
    fn from(error: kube::Error) -> Self {
        Self {
            expected: "an answer of the API server".to_owned(),
            seen: error.to_string(),
        }
    }
}

/// What was measured, in words, or what was not met.
pub type Outcome<T = String> = Result<T, Unmet>;

/// Fails with both sides unless `holds`.
pub fn expect(holds: bool, expected: impl Display, seen: impl Display) -> Outcome<()> {
    if holds {
        return Ok(());
    }
    Err(Unmet {
        expected: expected.to_string(),
        seen: seen.to_string(),
    })
}

/// How long an expectation may take to come true.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// Looks until it finds what is wanted, or until [`PATIENCE`] ends; returns it and how long it took. A look that doesn't
/// find it says what it saw.
pub async fn eventually<T, Look, Seen>(expected: &str, mut look: Look) -> Outcome<(T, Duration)>
where
    Look: FnMut() -> Seen,
    Seen: Future<Output = Result<T, String>>,
{
    let began = Instant::now();
    loop {
        match look().await {
            Ok(found) => return Ok((found, began.elapsed())),
            Err(seen) if began.elapsed() > PATIENCE => {
                let expected = format!("{expected} within {} s", PATIENCE.as_secs());
                return Err(Unmet { expected, seen });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// A duration as people read it: milliseconds, or seconds from ten of them.
pub fn time(duration: Duration) -> String {
    if duration < Duration::from_secs(10) {
        format!("{} ms", duration.as_millis())
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}
