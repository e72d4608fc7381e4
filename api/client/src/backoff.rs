//! How long to wait after a failure.
//!
//! Owns the growing gap and its jitter. Reads no clock: the caller waits. The jitter comes from a number passed in.

use std::time::Duration;

/// A gap that doubles from `first` to `longest`, each lengthened by up to a half at random.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// The first gap, and the longest before jitter.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
        }
    }

    /// Something worked: the next gap is the first one again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The gap after one more failure. `random` is any number; its low 16 bits stretch the gap by 0 to 50 %.
    pub fn next_gap(&mut self, random: u64) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        let gap = doubled.min(self.longest);
        let part = u32::from((random & 0xffff) as u16);
        gap.saturating_add(gap.saturating_mul(part) / (2 * 0x1_0000))
    }
}

/// A number to stretch gaps with. Not for secrets.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_double_up_to_the_longest_and_begin_anew_after_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(20));
        let gaps: Vec<u64> = (0..7).map(|_| backoff.next_gap(0).as_secs()).collect();
        assert_eq!(gaps, [1, 2, 4, 8, 16, 20, 20]);
        backoff.reset();
        assert_eq!(backoff.next_gap(0), Duration::from_secs(1));
    }

    #[test]
    fn jitter_only_lengthens_a_gap_and_by_less_than_a_half() {
        let second = Duration::from_secs(1);
        for random in [0, 1, 0x7fff, 0xffff, u64::MAX] {
            let gap = Backoff::new(second, second * 20).next_gap(random);
            assert!(gap >= second && gap < second.mul_f32(1.5), "{gap:?}");
        }
    }

    #[test]
    fn a_thousand_failures_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(20));
        for _ in 0..1000 {
            backoff.next_gap(u64::MAX);
        }
        assert!(backoff.next_gap(u64::MAX) < Duration::from_secs(30));
    }
}
