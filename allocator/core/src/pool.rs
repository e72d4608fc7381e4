//! Pools of load balancer addresses: which exist, which are good, what is left in them.
//!
//! Owns the reading of `spec.addresses`, the rule for overlaps (the older pool keeps the addresses, the younger one
//! hands nothing out until the overlap is gone), the taken bits and the counters. A bad pool disturbs no other one.
//! Never knows who holds an address: that is the ledger's.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use api_model::{AddressRange, IpFamily, NodeName, ParseRangeError, PoolName};

use crate::{
    range::RangeAllocator,
    selection::{self, Selector},
};

/// An `IPAddressPool` as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: PoolName,
    /// `metadata.creationTimestamp` in seconds since 1970: the older of two overlapping pools keeps the addresses.
    pub created: i64,
    /// `spec.addresses`, as the user wrote them.
    pub addresses: Vec<String>,
    /// Whether Services that ask for nothing may be given its addresses.
    pub auto_assign: bool,
    /// Leaves out IPv4 addresses that end in .0 or .255.
    pub avoid_buggy: bool,
    /// Lower is tried first, 0 last.
    pub priority: u32,
    /// Namespaces it is for; joined (OR) with the selectors. Neither: all.
    pub namespaces: BTreeSet<String>,
    /// Labels of namespaces it is for.
    pub namespace_selectors: Vec<Selector>,
    /// Labels of Services it is for. None: all.
    pub service_selectors: Vec<Selector>,
    /// What else is wrong with it (a selector that can't be read).
    pub mistake: Option<String>,
    /// The counters that its status shows.
    pub shown: Option<PoolCounters>,
}

impl Pool {
    /// A pool for all Services with the defaults of the kind.
    pub fn new(name: &str, addresses: &[&str]) -> Self {
        Self {
            name: name.into(),
            created: 0,
            addresses: addresses.iter().map(|text| (*text).to_owned()).collect(),
            auto_assign: true,
            avoid_buggy: false,
            priority: 0,
            namespaces: BTreeSet::new(),
            namespace_selectors: Vec::new(),
            service_selectors: Vec::new(),
            mistake: None,
            shown: None,
        }
    }
}

/// `status` of an `IPAddressPool`; numbers beyond `i64` are shown as its largest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// IPv4 addresses that somebody holds, those being drained among them.
    pub assigned_v4: i64,
    /// IPv6 addresses that somebody holds.
    pub assigned_v6: i64,
    /// IPv4 addresses that are left.
    pub available_v4: i64,
    /// IPv6 addresses that are left.
    pub available_v6: i64,
}

/// Why a pool hands nothing out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolProblem {
    /// No entry in `spec.addresses`.
    #[error("spec.addresses is empty")]
    Empty,
    /// An entry that can't be read or can't hold Services.
    #[error("spec.addresses: {0}")]
    Address(#[from] ParseRangeError),
    /// An older pool has some of its addresses.
    #[error(
        "spec.addresses overlaps with pool {other}, both hold {address}; take the addresses out of one of them"
    )]
    Overlap {
        /// The older pool.
        other: PoolName,
        /// An address that both have.
        address: IpAddr,
    },
    /// Something else in the spec.
    #[error("{0}")]
    Mistake(String),
}

/// Why an address of a pool is never handed out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("node {0} has it")]
    Node(NodeName),
    #[error("the pool has avoidBuggyIPs and it ends in .0 or .255")]
    Buggy,
}

/// A pool with its state.
#[derive(Clone, Debug)]
pub(crate) struct PoolState {
    pub(crate) pool: Pool,
    pub(crate) problem: Option<PoolProblem>,
    /// Entries that could be read, sorted, overlaps joined.
    ranges: Vec<AddressRange>,
    /// The taken bits, one for each range; empty while there is a problem.
    taken: Vec<RangeAllocator>,
    /// The last address handed out by itself, per family: the search goes on behind it, so that a released address
    /// is used again last.
    last: BTreeMap<IpFamily, IpAddr>,
}

/// All pools.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    by_name: BTreeMap<PoolName, PoolState>,
    /// Ranges of the good pools by first address; they never overlap.
    index: BTreeMap<IpAddr, (AddressRange, PoolName)>,
    /// Good pools in the order in which they are tried.
    order: Vec<PoolName>,
    /// Pools that were set since the last refresh.
    set_anew: BTreeSet<PoolName>,
    /// Addresses that nodes have.
    pub(crate) reserved: BTreeMap<IpAddr, NodeName>,
}

impl PoolState {
    fn new(pool: Pool) -> Self {
        let mut problem = pool.mistake.clone().map(PoolProblem::Mistake);
        let mut ranges = Vec::new();
        for text in &pool.addresses {
            match AddressRange::parse_assignable(text) {
                Ok(range) => ranges.push(range),
                Err(error) => problem = problem.or(Some(PoolProblem::Address(error))),
            }
        }
        if pool.addresses.is_empty() {
            problem = problem.or(Some(PoolProblem::Empty));
        }
        Self {
            pool,
            problem,
            ranges: join(ranges),
            taken: Vec::new(),
            last: BTreeMap::new(),
        }
    }

    /// Entries that could be read.
    pub(crate) fn ranges(&self) -> &[AddressRange] {
        &self.ranges
    }

    /// Whether one of its entries holds the address, be the pool good or bad.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.ranges.iter().any(|range| range.contains(address))
    }

    /// Whether it has any address of the family.
    pub(crate) fn has_family(&self, family: IpFamily) -> bool {
        self.ranges.iter().any(|range| range.family() == family)
    }

    fn taken_at(&mut self, address: IpAddr) -> Option<&mut RangeAllocator> {
        let place = self
            .taken
            .partition_point(|taken| taken.range().end() < address);
        self.taken
            .get_mut(place)
            .filter(|taken| taken.range().contains(address))
    }
}

/// Sorts and joins overlapping ranges: `spec.addresses` is a set, however it is written.
fn join(mut ranges: Vec<AddressRange>) -> Vec<AddressRange> {
    ranges.sort_unstable();
    let mut joined: Vec<AddressRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.intersection(&range).is_some() => {
                let end = last.end().max(range.end());
                // the union of two assignable ranges can't be a whole family: that would hold loopback
                *last = AddressRange::new(last.start(), end).unwrap_or(*last);
            }
            Some(_) | None => joined.push(range),
        }
    }
    joined
}

fn is_buggy(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => matches!(v4.octets(), [_, _, _, 0 | 255]),
        IpAddr::V6(_) => false,
    }
}

/// How many addresses of a range end in .0 or .255.
fn count_buggy(range: &AddressRange) -> u128 {
    let (IpAddr::V4(start), IpAddr::V4(end)) = (range.start(), range.end()) else {
        return 0;
    };
    // numbers below n that end in 0, and those that end in 255
    let below = |n: u64| n.div_ceil(256) + n / 256;
    u128::from(below(u64::from(end.to_bits()) + 1) - below(u64::from(start.to_bits())))
}

fn saturated(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Pools {
    /// The pool, good or bad.
    pub(crate) fn get(&self, name: &PoolName) -> Option<&PoolState> {
        self.by_name.get(name)
    }

    /// All pools by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PoolName, &PoolState)> {
        self.by_name.iter()
    }

    /// The good pools in the order in which they are tried.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &PoolState> {
        self.order.iter().filter_map(|name| self.by_name.get(name))
    }

    /// Puts a pool in; call [`refresh`](Self::refresh) afterwards. True if anything but its status changed.
    pub(crate) fn set(&mut self, pool: Pool) -> bool {
        if let Some(state) = self.by_name.get_mut(&pool.name) {
            let shown = pool.shown;
            let same = Pool {
                shown: state.pool.shown,
                ..pool.clone()
            } == state.pool;
            if same {
                state.pool.shown = shown;
                return false;
            }
        }
        let mut state = PoolState::new(pool);
        if let Some(before) = self.by_name.get(&state.pool.name) {
            state.last.clone_from(&before.last);
        }
        self.set_anew.insert(state.pool.name.clone());
        self.by_name.insert(state.pool.name.clone(), state);
        true
    }

    /// Takes a pool out; call [`refresh`](Self::refresh) afterwards.
    pub(crate) fn remove(&mut self, name: &PoolName) -> Option<PoolState> {
        self.set_anew.remove(name);
        self.by_name.remove(name)
    }

    /// Decides anew which pools are good, and sets their bits from the addresses that are held. Returns the pools that
    /// were set since the last time, or that turned good or bad.
    pub(crate) fn refresh(
        &mut self,
        held: impl Fn(&AddressRange) -> Vec<IpAddr>,
    ) -> BTreeSet<PoolName> {
        let mut changed = std::mem::take(&mut self.set_anew);
        let mut by_age: Vec<(i64, PoolName)> = self
            .by_name
            .iter()
            .map(|(name, state)| (state.pool.created, name.clone()))
            .collect();
        by_age.sort_unstable();
        self.index.clear();
        self.order.clear();
        for (_, name) in by_age {
            let Some(state) = self.by_name.get_mut(&name) else {
                continue;
            };
            if matches!(state.problem, None | Some(PoolProblem::Overlap { .. })) {
                let problem = overlap(&self.index, &state.ranges);
                if problem.is_some() != state.problem.is_some() {
                    changed.insert(name.clone());
                }
                state.problem = problem;
            }
            if state.problem.is_some() {
                state.taken.clear();
                continue;
            }
            self.index.extend(
                state
                    .ranges
                    .iter()
                    .map(|range| (range.start(), (*range, name.clone()))),
            );
            self.order.push(name);
            if state.taken.len() == state.ranges.len() {
                continue; // it was good before: its bits have been kept up to date
            }
            state.taken = state
                .ranges
                .iter()
                .map(|range| RangeAllocator::new(*range))
                .collect();
            for taken in &mut state.taken {
                let held = held(taken.range());
                for address in held {
                    taken
                        .allocate(address)
                        .expect("the ledger was asked for this range, each address once");
                }
            }
        }
        let pools = &self.by_name;
        self.order
            .sort_by_cached_key(|name| pools.get(name).map(|state| selection::rank(&state.pool)));
        changed
    }

    /// Remembers what the status of a pool shows; false if it showed that already.
    pub(crate) fn show(&mut self, name: &PoolName, counters: PoolCounters) -> bool {
        self.by_name
            .get_mut(name)
            .is_some_and(|state| state.pool.shown.replace(counters) != Some(counters))
    }

    /// The good pool that has the address.
    pub(crate) fn of(&self, address: IpAddr) -> Option<&PoolState> {
        let (_, (range, name)) = self.index.range(..=address).next_back()?;
        range.contains(address).then(|| self.by_name.get(name))?
    }

    /// A pool that has the address, a good one if there is one.
    pub(crate) fn of_even_bad(&self, address: IpAddr) -> Option<&PoolState> {
        self.of(address).or_else(|| {
            self.by_name
                .values()
                .find(|state| state.problem.is_some() && state.contains(address))
        })
    }

    /// Whether the address may be handed out by this pool at all.
    pub(crate) fn usable(&self, state: &PoolState, address: IpAddr) -> Result<(), Unusable> {
        if let Some(node) = self.reserved.get(&address) {
            return Err(Unusable::Node(node.clone()));
        }
        if state.pool.avoid_buggy && is_buggy(address) {
            return Err(Unusable::Buggy);
        }
        Ok(())
    }

    /// Sets the bit of an address, if a good pool has it.
    pub(crate) fn take(&mut self, address: IpAddr) {
        if let Some(taken) = self.taken_at(address) {
            taken
                .allocate(address)
                .expect("the ledger adds each address once");
        }
    }

    /// Clears the bit of an address, if a good pool has it.
    pub(crate) fn release(&mut self, address: IpAddr) {
        if let Some(taken) = self.taken_at(address) {
            assert!(
                taken.release(address),
                "the ledger drops only addresses that it added"
            );
        }
    }

    fn taken_at(&mut self, address: IpAddr) -> Option<&mut RangeAllocator> {
        let name = self.of(address)?.pool.name.clone();
        self.by_name.get_mut(&name)?.taken_at(address)
    }

    /// Remembers that the address was handed out by itself, so that the next search goes on behind it.
    pub(crate) fn handed_out(&mut self, pool: &PoolName, address: IpAddr) {
        if let Some(state) = self.by_name.get_mut(pool) {
            state.last.insert(IpFamily::of(address), address);
        }
    }

    /// A free address of the family: the first one behind the last handed out, else the first of all.
    pub(crate) fn pick(&self, state: &PoolState, family: IpFamily) -> Option<IpAddr> {
        let behind = state
            .last
            .get(&family)
            .and_then(|last| self.first_free(state, family, Some(*last)));
        behind.or_else(|| self.first_free(state, family, None))
    }

    fn first_free(
        &self,
        state: &PoolState,
        family: IpFamily,
        behind: Option<IpAddr>,
    ) -> Option<IpAddr> {
        let ranges = state
            .taken
            .iter()
            .filter(|taken| taken.range().family() == family && taken.free() > 0);
        for taken in ranges {
            let mut from = match behind {
                Some(last) if taken.range().contains(last) => next_in(taken.range(), last),
                Some(last) if taken.range().end() < last => None,
                Some(_) | None => Some(taken.range().start()),
            };
            while let Some(address) = from.and_then(|from| taken.next_free(from)) {
                if self.usable(state, address).is_ok() {
                    return Some(address);
                }
                from = next_in(taken.range(), address);
            }
        }
        None
    }

    /// What the status of the pool should show.
    pub(crate) fn counters(&self, state: &PoolState) -> PoolCounters {
        let (assigned_v4, available_v4) = self.count(state, IpFamily::V4);
        let (assigned_v6, available_v6) = self.count(state, IpFamily::V6);
        PoolCounters {
            assigned_v4,
            assigned_v6,
            available_v4,
            available_v6,
        }
    }

    fn count(&self, state: &PoolState, family: IpFamily) -> (i64, i64) {
        let (mut assigned, mut available) = (0_u128, 0_u128);
        for taken in state
            .taken
            .iter()
            .filter(|taken| taken.range().family() == family)
        {
            let range = taken.range();
            let buggy = if state.pool.avoid_buggy {
                count_buggy(range)
            } else {
                0
            };
            let of_nodes = self.reserved.range(range.start()..=range.end());
            let of_nodes =
                of_nodes.filter(|(address, _)| !(state.pool.avoid_buggy && is_buggy(**address)));
            let left_out = buggy + of_nodes.count() as u128;
            assigned = assigned.saturating_add(taken.used());
            available = available.saturating_add(taken.free().saturating_sub(left_out));
        }
        (saturated(assigned), saturated(available))
    }
}

fn next_in(range: &AddressRange, address: IpAddr) -> Option<IpAddr> {
    range.get(range.offset_of(address)?.checked_add(1)?)
}

/// The first overlap of the ranges with those in the index.
fn overlap(
    index: &BTreeMap<IpAddr, (AddressRange, PoolName)>,
    ranges: &[AddressRange],
) -> Option<PoolProblem> {
    ranges.iter().find_map(|range| {
        let (_, (other_range, other)) = index.range(..=range.end()).next_back()?;
        let common = range.intersection(other_range)?;
        Some(PoolProblem::Overlap {
            other: other.clone(),
            address: common.start(),
        })
    })
}

#[cfg(test)]
mod tests;
