//! Places of endpoints in a slot set, and their stable ids: as few changes as possible between two states.
//!
//! Owns the order of slots and the numbering of remembered endpoints. Never knows elements.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// Ids of remembered endpoints of one Service port: 11 bits.
pub(crate) const ENDPOINT_IDS: u32 = 2_048;

/// The slots for `wanted`, keeping each endpoint of `before` in its place where possible: new ones fill holes, then the
/// last ones move into the holes that are left, so that the slots are 0..n without gap.
pub(crate) fn assign(before: &[SocketAddr], wanted: &BTreeSet<SocketAddr>) -> Vec<SocketAddr> {
    let kept: BTreeSet<SocketAddr> = before
        .iter()
        .filter(|at| wanted.contains(at))
        .copied()
        .collect();
    let mut fresh = wanted.difference(&kept);
    let mut placed = BTreeSet::new();
    let mut slots: Vec<Option<SocketAddr>> = before
        .iter()
        .map(|at| (wanted.contains(at) && placed.insert(*at)).then_some(*at))
        .map(|slot| slot.or_else(|| fresh.next().copied()))
        .collect();
    slots.extend(fresh.map(|at| Some(*at)));
    let mut result: Vec<SocketAddr> = Vec::with_capacity(wanted.len());
    let mut tail: Vec<SocketAddr> = slots.iter().skip(wanted.len()).flatten().copied().collect();
    for slot in slots.into_iter().take(wanted.len()) {
        result.extend(slot.or_else(|| tail.pop()));
    }
    result
}

/// Ids of the endpoints of one Service port. An endpoint that comes back gets a new id, so that nobody who left it is
/// sent back by an old memory; ids are used again as late as possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EndpointIds {
    ids: BTreeMap<SocketAddr, u32>,
    next: u32,
}

impl EndpointIds {
    /// What the kernel holds already.
    pub(crate) fn adopt(ids: BTreeMap<SocketAddr, u32>) -> Self {
        let next = ids
            .values()
            .max()
            .map_or(0, |last| (last + 1) % ENDPOINT_IDS);
        Self { ids, next }
    }

    /// Forgets who is gone and numbers who is new.
    pub(crate) fn update(&mut self, present: &BTreeSet<SocketAddr>) {
        self.ids.retain(|at, _| present.contains(at));
        let mut used: BTreeSet<u32> = self.ids.values().copied().collect();
        for at in present {
            if self.ids.contains_key(at) {
                continue;
            }
            let candidates = (self.next..ENDPOINT_IDS).chain(0..self.next);
            let Some(id) = candidates.into_iter().find(|id| !used.contains(id)) else {
                return;
            };
            used.insert(id);
            self.ids.insert(*at, id);
            self.next = (id + 1) % ENDPOINT_IDS;
        }
    }

    /// The id of a present endpoint.
    pub(crate) fn get(&self, at: &SocketAddr) -> Option<u32> {
        self.ids.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 80))
    }

    fn set(lasts: &[u8]) -> BTreeSet<SocketAddr> {
        lasts.iter().map(|last| at(*last)).collect()
    }

    #[test]
    fn one_endpoint_leaving_moves_only_the_last_one() {
        let before: Vec<_> = [1, 2, 3, 4, 5].map(at).to_vec();
        assert_eq!(
            assign(&before, &set(&[1, 3, 4, 5])),
            [1, 5, 3, 4].map(at).to_vec()
        );
    }

    #[test]
    fn a_replaced_endpoint_changes_one_slot() {
        let before: Vec<_> = [1, 2, 3].map(at).to_vec();
        assert_eq!(
            assign(&before, &set(&[1, 3, 9])),
            [1, 9, 3].map(at).to_vec()
        );
    }

    #[test]
    fn repeated_endpoints_in_an_adopted_set_are_placed_once() {
        let before: Vec<_> = [1, 1, 2].map(at).to_vec();
        assert_eq!(assign(&before, &set(&[1, 2])), [1, 2].map(at).to_vec());
    }

    #[test]
    fn an_endpoint_that_returns_has_a_new_id() {
        let mut ids = EndpointIds::default();
        ids.update(&set(&[1, 2]));
        let first = ids.get(&at(1));
        ids.update(&set(&[2]));
        ids.update(&set(&[1, 2]));
        assert_eq!(
            (first, ids.get(&at(1)), ids.get(&at(2))),
            (Some(0), Some(2), Some(1))
        );
    }
}
