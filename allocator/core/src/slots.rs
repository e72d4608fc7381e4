//! Slots of a range of any length: a bitmap up to 2^24, intervals beyond.
//!
//! Owns the choice between the two; both have the same answers.

use crate::{bitmap::Bitmap, intervals::Intervals};

/// Slots 0‥len-1, each free or taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    len: u128,
    taken: Taken,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Taken {
    Bits(Bitmap),
    Intervals(Intervals),
}

impl Slots {
    /// `len` free slots.
    pub fn new(len: u128) -> Self {
        let bits = u32::try_from(len).ok().and_then(Bitmap::new);
        Self {
            len,
            taken: bits.map_or_else(|| Taken::Intervals(Intervals::default()), Taken::Bits),
        }
    }

    /// Number of slots, free and taken.
    pub fn len(&self) -> u128 {
        self.len
    }

    /// Whether there is no slot at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of taken slots.
    pub fn used(&self) -> u128 {
        match &self.taken {
            Taken::Bits(bits) => u128::from(bits.used()),
            Taken::Intervals(intervals) => intervals.used(),
        }
    }

    /// Whether `slot` is taken; false outside.
    pub fn has(&self, slot: u128) -> bool {
        match &self.taken {
            Taken::Bits(bits) => small(slot).is_some_and(|slot| bits.has(slot)),
            Taken::Intervals(intervals) => intervals.has(slot),
        }
    }

    /// Takes `slot`; false if it was taken or lies outside.
    pub fn take(&mut self, slot: u128) -> bool {
        match &mut self.taken {
            Taken::Bits(bits) => small(slot).is_some_and(|slot| bits.take(slot)),
            Taken::Intervals(intervals) => slot < self.len && intervals.take(slot),
        }
    }

    /// Frees `slot`; false if it was free or lies outside.
    pub fn free(&mut self, slot: u128) -> bool {
        match &mut self.taken {
            Taken::Bits(bits) => small(slot).is_some_and(|slot| bits.free(slot)),
            Taken::Intervals(intervals) => intervals.free(slot),
        }
    }

    /// The first free slot at or after `from`.
    pub fn next_free(&self, from: u128) -> Option<u128> {
        match &self.taken {
            Taken::Bits(bits) => small(from)
                .and_then(|from| bits.next_free(from))
                .map(u128::from),
            Taken::Intervals(intervals) => {
                intervals.next_free(from).filter(|slot| *slot < self.len)
            }
        }
    }
}

fn small(slot: u128) -> Option<u32> {
    u32::try_from(slot).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_stop_at_the_end() {
        for len in [1_u128 << 24, (1 << 24) + 1, 1 << 64] {
            let mut slots = Slots::new(len);
            assert!(!slots.take(len), "len {len}");
            assert_eq!(slots.next_free(len - 1), Some(len - 1));
            assert!(slots.take(len - 1));
            assert_eq!(
                (slots.next_free(len - 1), slots.next_free(len)),
                (None, None)
            );
            assert_eq!((slots.has(len - 1), slots.used()), (true, 1));
        }
    }
}
