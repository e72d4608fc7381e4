//! Spreading of timers (RFC 4271 §10: a factor between 0.75 and 1.0).
//!
//! Owns a small sequence of numbers made of a seed, so that a run can be repeated. Never draws real randomness.

use std::time::Duration;

/// Numbers from a seed (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 75 % to 100 % of a duration.
    pub(crate) fn spread(&mut self, duration: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let step = u32::from(u8::try_from((mixed ^ (mixed >> 31)) >> 56).unwrap_or(0));
        duration * (768 + step) / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_duration_lies_between_three_quarters_and_all_of_it() {
        let mut jitter = Jitter::new(7);
        let all = Duration::from_secs(1024);
        let spread: Vec<u64> = (0..1000).map(|_| jitter.spread(all).as_secs()).collect();
        assert!(spread.iter().all(|seconds| (768..=1024).contains(seconds)));
        assert!(spread.iter().min() < Some(&790) && spread.iter().max() > Some(&1000));
    }
}
