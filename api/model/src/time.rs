//! Time as cores see it: an input, never a clock.

use std::{fmt, ops::Add, time::Duration};

use serde::{Deserialize, Serialize};

/// A point in monotonic time: how long after the shell's start. Shells read the clock, cores get this.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(Duration);

impl Time {
    /// The shell's start.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// A point this long after the start.
    pub const fn from_start(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// How long after the start.
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// How long after `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    /// Saturates at the end of time.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.0.as_secs_f64())
    }
}
