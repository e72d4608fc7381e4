//! Which addresses a Service that waits could have, or why none.

use std::net::IpAddr;

use api_model::{IpFamily, PoolName};

use super::{Allocator, Cause, settle::Fit};
use crate::{
    claim::ServiceClaim,
    dual_stack::{Goal, Need},
    pool::PoolState,
    reason::{Reason, Refusal},
    selection,
    sharing::{Clash, Sharer},
};

/// An address to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) address: IpAddr,
    pub(super) pool: PoolName,
    /// Found by going through the pool, not asked for and not shared.
    pub(super) by_itself: bool,
}

/// Pools named in an explanation, at most.
const EXPLAINED: usize = 8;

impl Allocator {
    /// Addresses that bring the Service nearer to its goal. Takes nothing. Errors: none, and why.
    pub(super) fn choose(
        &self,
        claim: &ServiceClaim,
        goal: &Goal,
        held: &[IpAddr],
    ) -> Result<Vec<Choice>, Refusal> {
        if !goal.wanted.is_empty() {
            let missing = goal.wanted.iter().filter(|address| !held.contains(address));
            return missing
                .map(|address| self.check_wanted(claim, goal, *address))
                .collect();
        }
        if let Some(&held) = held.first() {
            return self
                .choose_second(claim, goal, held)
                .map(|choice| vec![choice]);
        }
        if let Some(choices) = self.choose_again(claim, goal) {
            return Ok(choices);
        }
        let pools = self.candidates(claim, goal)?;
        if goal.need != Need::One {
            let both = pools.iter().find_map(|state| {
                goal.families
                    .iter()
                    .map(|family| self.pick(state, *family, claim))
                    .collect::<Option<Vec<_>>>()
            });
            match both {
                Some(both) => return Ok(both),
                None if goal.need == Need::Both => return Err(self.explain(claim, goal, &pools)),
                None => {}
            }
        }
        let one = goal.families.iter().find_map(|family| {
            pools
                .iter()
                .find_map(|state| self.pick(state, *family, claim))
        });
        one.map(|choice| vec![choice])
            .ok_or_else(|| self.explain(claim, goal, &pools))
    }

    /// Addresses that the Service left a moment ago and could take back.
    fn choose_again(&self, claim: &ServiceClaim, goal: &Goal) -> Option<Vec<Choice>> {
        let left = self
            .ledger
            .of_service(&claim.key)
            .filter(|(address, holder)| {
                holder.uid == claim.uid
                    && self.fit(claim, goal, *address, Cause::Change) == Fit::Good
                    && self.has_room(*address, claim).is_ok()
            });
        let choice = |address: IpAddr| {
            let pool = self.pools.of(address)?.pool.name.clone();
            Some(Choice {
                address,
                pool,
                by_itself: false,
            })
        };
        let left: Vec<Choice> = left.filter_map(|(address, _)| choice(address)).collect();
        let of = |family: &IpFamily| {
            left.iter()
                .find(|choice| IpFamily::of(choice.address) == *family)
        };
        let one_of_each: Vec<Choice> = goal.families.iter().filter_map(of).cloned().collect();
        if let [only] = one_of_each.as_slice()
            && goal.need != Need::One
        {
            let second = self.choose_second(claim, goal, only.address).ok();
            if goal.need == Need::Both && second.is_none() {
                return None;
            }
            return Some([only.clone()].into_iter().chain(second).collect());
        }
        (!one_of_each.is_empty()).then_some(one_of_each)
    }

    /// The second address of a Service that has one: from the same pool, and never in place of the first.
    fn choose_second(
        &self,
        claim: &ServiceClaim,
        goal: &Goal,
        held: IpAddr,
    ) -> Result<Choice, Refusal> {
        let family = goal
            .families
            .iter()
            .find(|family| **family != IpFamily::of(held));
        let state = self.pools.of(held);
        let choice = family
            .zip(state)
            .and_then(|(family, state)| self.pick(state, *family, claim));
        choice.ok_or_else(|| {
            let pool = state.map_or("its pool", |state| state.pool.name.as_str());
            let family = family.map_or("second", |family| family.as_str());
            let message = format!("has {held}, but {pool} has no {family} address left for it; both come from one pool");
            Refusal::new(Reason::NoDualStackPool, message)
        })
    }

    fn check_wanted(
        &self,
        claim: &ServiceClaim,
        goal: &Goal,
        address: IpAddr,
    ) -> Result<Choice, Refusal> {
        if let Some(name) = &goal.pool
            && self.pools.get(name).is_none()
        {
            return Err(self.unknown_pool(name));
        }
        let Some(state) = self.pools.of_even_bad(address) else {
            let message = format!("requested address {address} is in no pool");
            return Err(Refusal::new(Reason::AddressNotInAnyPool, message));
        };
        let name = &state.pool.name;
        if let Some(wanted) = goal.pool.as_ref().filter(|wanted| *wanted != name) {
            let message = format!(
                "requested address {address} is in pool {name}, not in the requested pool {wanted}"
            );
            return Err(Refusal::new(Reason::AddressInOtherPool, message));
        }
        self.check_pool(claim, state)?;
        self.pools.usable(state, address).map_err(|why| {
            Refusal::new(
                Reason::AddressReserved,
                format!("requested address {address} is left out: {why}"),
            )
        })?;
        // its last holder is gone, its record not yet: it goes to the oldest who waits, when it is free
        if self
            .ledger
            .get(address)
            .is_some_and(|entry| entry.holders.is_empty())
        {
            let message = format!("requested address {address} is being released");
            return Err(Refusal::new(Reason::AddressInUse, message));
        }
        self.has_room(address, claim)?;
        Ok(Choice {
            address,
            pool: name.clone(),
            by_itself: false,
        })
    }

    fn has_room(&self, address: IpAddr, claim: &ServiceClaim) -> Result<(), Refusal> {
        let Some(entry) = self.ledger.get(address) else {
            return Ok(());
        };
        entry
            .has_room_for(&claim.key, &Sharer::of(claim))
            .map_err(|(other, clash)| {
                let reason = match clash {
                    Clash::NoKey => Reason::AddressInUse,
                    Clash::Key | Clash::Backend | Clash::Port(_) => Reason::SharingRefused,
                };
                Refusal::new(
                    reason,
                    format!("{address} can't be shared: {}", clash.with(&other)),
                )
            })
    }

    fn check_pool(&self, claim: &ServiceClaim, state: &PoolState) -> Result<(), Refusal> {
        let name = &state.pool.name;
        if let Some(problem) = &state.problem {
            return Err(Refusal::new(
                Reason::PoolInvalid,
                format!("pool {name} hands nothing out: {problem}"),
            ));
        }
        let namespace = self.namespaces.get(&*claim.key.namespace);
        selection::allows(&state.pool, claim, namespace)
            .map_err(|why| Refusal::new(Reason::PoolNotAllowed, format!("pool {name} is {why}")))
    }

    fn unknown_pool(&self, name: &PoolName) -> Refusal {
        let known: Vec<&str> = self
            .pools
            .iter()
            .map(|(name, _)| name.as_str())
            .take(EXPLAINED)
            .collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        Refusal::new(
            Reason::UnknownPool,
            format!("there is no pool {name}; there are: {known}"),
        )
    }

    /// Pools that the Service may draw from, in order.
    fn candidates(&self, claim: &ServiceClaim, goal: &Goal) -> Result<Vec<&PoolState>, Refusal> {
        if let Some(name) = &goal.pool {
            let state = self
                .pools
                .get(name)
                .ok_or_else(|| self.unknown_pool(name))?;
            self.check_pool(claim, state)?;
            return Ok(vec![state]);
        }
        let namespace = self.namespaces.get(&*claim.key.namespace);
        let allowed = |state: &&PoolState| {
            state.pool.auto_assign && selection::allows(&state.pool, claim, namespace).is_ok()
        };
        Ok(self.pools.in_order().filter(allowed).collect())
    }

    /// An address of the family: one to share if the Service shares, else a free one.
    fn pick(&self, state: &PoolState, family: IpFamily, claim: &ServiceClaim) -> Option<Choice> {
        let pool = state.pool.name.clone();
        let shared = claim
            .sharing_key
            .iter()
            .flat_map(|key| self.ledger.shared_under(key))
            .find(|address| {
                IpFamily::of(*address) == family
                    && state.contains(*address)
                    && self.pools.usable(state, *address).is_ok()
                    && self.has_room(*address, claim).is_ok()
            });
        if let Some(address) = shared {
            return Some(Choice {
                address,
                pool,
                by_itself: false,
            });
        }
        self.pools.pick(state, family).map(|address| Choice {
            address,
            pool,
            by_itself: true,
        })
    }

    /// Why none of the pools could serve.
    fn explain(&self, claim: &ServiceClaim, goal: &Goal, candidates: &[&PoolState]) -> Refusal {
        let families: Vec<&str> = goal.families.iter().map(|family| family.as_str()).collect();
        let what = if goal.need == Need::Both {
            families.join("+")
        } else {
            families.join(" or ")
        };
        if self.pools.iter().next().is_none() {
            return Refusal::new(
                Reason::NoPool,
                format!("no {what} address: there is no IPAddressPool"),
            );
        }
        let has_family =
            |state: &&PoolState| goal.families.iter().any(|family| state.has_family(*family));
        let reason = if !candidates.iter().any(has_family) {
            Reason::NoPoolMatches
        } else if goal.need == Need::Both {
            Reason::NoDualStackPool
        } else {
            Reason::PoolsFull
        };
        let pools: Vec<&PoolState> = match &goal.pool {
            Some(_) => candidates.to_vec(),
            None => self.pools.iter().map(|(_, state)| state).collect(),
        };
        let mut parts: Vec<String> = pools
            .iter()
            .take(EXPLAINED)
            .map(|state| self.explain_pool(claim, goal, state))
            .collect();
        if pools.len() > EXPLAINED {
            parts.push(format!("and {} more pools", pools.len() - EXPLAINED));
        }
        Refusal::new(reason, format!("no {what} address: {}", parts.join("; ")))
    }

    fn explain_pool(&self, claim: &ServiceClaim, goal: &Goal, state: &PoolState) -> String {
        let name = &state.pool.name;
        if let Some(problem) = &state.problem {
            return format!("{name}: hands nothing out, {problem}");
        }
        if !state.pool.auto_assign && goal.pool.is_none() {
            return format!("{name}: autoAssign is off");
        }
        if let Err(why) = selection::allows(
            &state.pool,
            claim,
            self.namespaces.get(&*claim.key.namespace),
        ) {
            return format!("{name}: {why}");
        }
        let mut parts: Vec<String> = goal
            .families
            .iter()
            .filter_map(|family| {
                if !state.has_family(*family) {
                    return Some(format!("has no {family} addresses"));
                }
                self.pools
                    .pick(state, *family)
                    .is_none()
                    .then(|| format!("no {family} address is free"))
            })
            .collect();
        let shared = claim
            .sharing_key
            .iter()
            .flat_map(|key| self.ledger.shared_under(key));
        let clash = shared
            .filter(|address| state.contains(*address))
            .find_map(|address| self.has_room(address, claim).err());
        parts.extend(clash.map(|refusal| refusal.message));
        format!("{name}: {}", parts.join(", "))
    }
}
