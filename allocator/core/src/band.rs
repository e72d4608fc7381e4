//! The split of a range into a lower band for numbers people choose and an upper one for numbers we choose.
//!
//! Owns where the split lies and in which order slots are tried (KEP-3070 for `ClusterIP`s, KEP-3668 for `NodePort`s):
//! from a random start in the upper band to its end, then round from its beginning; when it is full, the same in the
//! lower band. Draws no randomness: the start is derived from a seed that the caller passes in.

use crate::slots::Slots;

/// Usable slots `first..=last` of a range, split at `split`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    first: u128,
    last: u128,
    split: u128,
}

impl Band {
    /// Band of a `ClusterIP` range of `size` addresses of which `first..=last` may be used (KEP-3070).
    pub fn cluster_ip(size: u128, first: u128, last: u128) -> Self {
        Self::new(offset(size, 16, 256), first, last)
    }

    /// Band of a `NodePort` range of `size` ports, all usable (KEP-3668).
    pub fn node_port(size: u128) -> Self {
        Self::new(offset(size, 32, 128), 0, size.saturating_sub(1))
    }

    fn new(offset: u128, first: u128, last: u128) -> Self {
        Self {
            first,
            last,
            split: offset.max(first),
        }
    }

    /// First slot of the upper, dynamic band.
    pub fn split(&self) -> u128 {
        self.split
    }

    /// Whether `slot` may be handed out at all.
    pub fn contains(&self, slot: u128) -> bool {
        (self.first..=self.last).contains(&slot)
    }

    /// Number of slots that may be handed out.
    pub fn len(&self) -> u128 {
        if self.first > self.last {
            0
        } else {
            self.last - self.first + 1
        }
    }

    /// Whether nothing may be handed out (an IPv4 /31 as a `ClusterIP` range).
    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// The free slot to hand out next, or `None` if both bands are full. Takes nothing.
    pub fn next(&self, slots: &Slots, seed: u64) -> Option<u128> {
        scan(slots, self.split, self.last, seed).or_else(|| {
            scan(
                slots,
                self.first,
                self.split.checked_sub(1)?.min(self.last),
                seed,
            )
        })
    }
}

/// `min(max(16, size / step), max)`, and 0 for ranges of at most 16: those have no lower band.
fn offset(size: u128, step: u128, max: u128) -> u128 {
    const SMALLEST: u128 = 16;
    if size <= SMALLEST {
        0
    } else {
        (size / step).clamp(SMALLEST, max)
    }
}

/// First free slot from a start in `low..=high` that the seed chooses, wrapping round once.
fn scan(slots: &Slots, low: u128, high: u128, seed: u64) -> Option<u128> {
    if low > high {
        return None;
    }
    let start = low + u128::from(seed) % (high - low + 1);
    let inside = |slot: &u128| *slot <= high;
    slots
        .next_free(start)
        .filter(inside)
        .or_else(|| slots.next_free(low).filter(inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_follow_the_enhancement_proposals() {
        let cluster_ip = |bits: u32| Band::cluster_ip(1 << bits, 1, (1 << bits) - 2).split();
        assert_eq!(
            [16, 10, 8, 6, 5, 4].map(cluster_ip),
            [256, 64, 16, 16, 16, 1]
        );
        let node_port = |size| Band::node_port(size).split();
        assert_eq!(
            [2768, 4096, 10_000, 17, 16, 1].map(node_port),
            [86, 128, 128, 16, 0, 0]
        );
    }

    #[test]
    fn the_upper_band_is_used_up_before_the_lower_from_any_start() {
        for seed in [0, 1, 7, 63, u64::MAX] {
            let band = Band::node_port(64);
            let mut slots = Slots::new(64);
            let order: Vec<u128> = std::iter::from_fn(|| {
                let slot = band.next(&slots, seed)?;
                assert!(slots.take(slot));
                Some(slot)
            })
            .collect();
            let (upper, lower) = order.split_at(48);
            assert!(
                upper.iter().all(|slot| *slot >= 16),
                "seed {seed}: {order:?}"
            );
            assert!(
                lower.iter().all(|slot| *slot < 16),
                "seed {seed}: {order:?}"
            );
            assert_eq!(order.len(), 64);
            assert_eq!(upper.first(), Some(&(16 + u128::from(seed) % 48)));
        }
    }

    #[test]
    fn an_empty_band_hands_out_nothing() {
        let band = Band::cluster_ip(2, 1, 0);
        assert_eq!(
            (band.next(&Slots::new(2), 5), band.len(), band.is_empty()),
            (None, 0, true)
        );
    }
}
