//! The tree against a `BTreeSet`.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn naive_next_free(len: u32, taken: &BTreeSet<u32>, from: u32) -> Option<u32> {
    (from..len).find(|slot| !taken.contains(slot))
}

#[test]
fn a_full_set_has_no_free_slot_and_one_release_shows() {
    for len in [1, 2, 63, 64, 65, 4095, 4096, 4097, 262_144, 262_145] {
        let mut bits = Bitmap::new(len).unwrap();
        for slot in 0..len {
            assert_eq!(bits.next_free(0), Some(slot), "len {len}");
            assert!(bits.take(slot));
        }
        assert_eq!((bits.next_free(0), bits.used()), (None, len));
        for slot in [0, len / 2, len - 1] {
            assert!(bits.free(slot));
            assert_eq!(bits.next_free(0), Some(slot), "len {len}");
            assert_eq!(bits.next_free(slot + 1), None, "len {len}");
            assert!(bits.take(slot));
        }
    }
}

#[test]
fn a_set_has_at_most_2_to_the_24_slots() {
    assert_eq!(Bitmap::new(Bitmap::MAX_LEN + 1), None);
    let mut largest = Bitmap::new(Bitmap::MAX_LEN).unwrap();
    assert!(largest.take(Bitmap::MAX_LEN - 1));
    assert_eq!(largest.next_free(Bitmap::MAX_LEN - 1), None);
    let empty = Bitmap::new(0).unwrap();
    assert_eq!((empty.next_free(0), empty.is_empty()), (None, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn agrees_with_an_ordered_set(
        len in 1_u32..9000,
        steps in prop::collection::vec((any::<bool>(), 0_u32..9000, 1_u32..400), 1..60),
    ) {
        let mut bits = Bitmap::new(len).unwrap();
        let mut model = BTreeSet::new();
        for (take, start, run) in steps {
            for slot in start..start + run {
                if take {
                    prop_assert_eq!(bits.take(slot), slot < len && model.insert(slot));
                } else {
                    prop_assert_eq!(bits.free(slot), model.remove(&slot));
                }
            }
            prop_assert_eq!(bits.used() as usize, model.len());
            for from in [0, start, start + run, len - 1] {
                prop_assert_eq!(bits.next_free(from), naive_next_free(len, &model, from));
            }
        }
    }

    #[test]
    fn take_then_free_is_as_before(len in 1_u32..5000, taken in prop::collection::btree_set(0_u32..5000, 0..200), slot in 0_u32..5000) {
        let mut bits = Bitmap::new(len).unwrap();
        for slot in taken {
            bits.take(slot);
        }
        let before = bits.clone();
        if bits.take(slot) {
            prop_assert!(bits.free(slot));
        }
        prop_assert_eq!(bits, before);
    }
}
