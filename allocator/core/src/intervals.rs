//! Which slots of a very long range are taken: an ordered map of intervals.
//!
//! For ranges too long for a bitmap (IPv6 /64 has 2^64 addresses). Costs memory by the number of gaps, not by the
//! length; takes, frees and finds in O(log gaps). Neighbouring intervals are always joined.

use std::collections::BTreeMap;

/// Taken slots as intervals `first → last`, both included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intervals {
    taken: BTreeMap<u128, u128>,
    used: u128,
}

impl Intervals {
    /// Number of taken slots.
    pub fn used(&self) -> u128 {
        self.used
    }

    /// Number of intervals, which is what memory and time depend on.
    pub fn fragments(&self) -> usize {
        self.taken.len()
    }

    /// Whether `slot` is taken.
    pub fn has(&self, slot: u128) -> bool {
        self.around(slot).is_some()
    }

    /// Takes `slot`; false if it was taken.
    pub fn take(&mut self, slot: u128) -> bool {
        if self.has(slot) {
            return false;
        }
        let before = slot.checked_sub(1).and_then(|slot| self.around(slot));
        let after = slot.checked_add(1).and_then(|slot| self.around(slot));
        if let Some((first, _)) = after {
            self.taken.remove(&first);
        }
        let first = before.map_or(slot, |(first, _)| first);
        self.taken
            .insert(first, after.map_or(slot, |(_, last)| last));
        self.used += 1;
        true
    }

    /// Frees `slot`; false if it was free.
    pub fn free(&mut self, slot: u128) -> bool {
        let Some((first, last)) = self.around(slot) else {
            return false;
        };
        self.taken.remove(&first);
        if first < slot {
            self.taken.insert(first, slot - 1);
        }
        if slot < last {
            self.taken.insert(slot + 1, last);
        }
        self.used -= 1;
        true
    }

    /// The first free slot at or after `from`; it may lie behind the end of the caller's range.
    pub fn next_free(&self, from: u128) -> Option<u128> {
        match self.around(from) {
            None => Some(from),
            // joined intervals: the slot behind an interval is free
            Some((_, last)) => last.checked_add(1),
        }
    }

    /// The interval that holds `slot`.
    fn around(&self, slot: u128) -> Option<(u128, u128)> {
        let (&first, &last) = self.taken.range(..=slot).next_back()?;
        (slot <= last).then_some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sequential_slots_are_one_fragment() {
        let mut set = Intervals::default();
        for slot in 0..10_000 {
            assert!(set.take(slot));
        }
        assert_eq!(
            (set.fragments(), set.used(), set.next_free(0)),
            (1, 10_000, Some(10_000))
        );
    }

    #[test]
    fn the_last_slot_has_no_successor() {
        let mut set = Intervals::default();
        assert!(set.take(u128::MAX));
        assert_eq!(set.next_free(u128::MAX), None);
        assert!(set.free(u128::MAX));
        assert_eq!(set, Intervals::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn agrees_with_an_ordered_set(steps in prop::collection::vec((any::<bool>(), 0_u128..64), 1..200)) {
            let mut set = Intervals::default();
            let mut model = BTreeSet::new();
            for (take, slot) in steps {
                if take {
                    prop_assert_eq!(set.take(slot), model.insert(slot));
                } else {
                    prop_assert_eq!(set.free(slot), model.remove(&slot));
                }
                prop_assert_eq!(set.used(), model.len() as u128);
                let fragments = model.iter().filter(|slot| !model.contains(&(**slot + 1))).count();
                prop_assert_eq!(set.fragments(), fragments);
                for from in 0..70 {
                    prop_assert_eq!(set.next_free(from), (from..200).find(|slot| !model.contains(slot)));
                }
            }
        }
    }
}
