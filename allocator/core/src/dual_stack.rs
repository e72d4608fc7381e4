//! How many addresses of which family a Service is to have.
//!
//! Owns the reading of families, policy and requested addresses (KEP-563). An address never has a family that the
//! Service's cluster addresses lack: the node proxy couldn't carry it.

use std::net::IpAddr;

use api_model::{IpFamily, PoolName};

use crate::{
    claim::{FamilyPolicy, ServiceClaim},
    reason::{Reason, Refusal},
};

/// How many addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// One, of the first family.
    One,
    /// One of each family.
    Both,
    /// One of each if they can be had, else one of either.
    BothIfPossible,
}

/// What a Service is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Goal {
    /// Families that its addresses may have, the preferred one first.
    pub(crate) families: Vec<IpFamily>,
    /// How many.
    pub(crate) need: Need,
    /// Exactly these addresses; empty: any.
    pub(crate) wanted: Vec<IpAddr>,
    /// Only from this pool.
    pub(crate) pool: Option<PoolName>,
}

impl Goal {
    /// Whether addresses of these families satisfy it, with nothing left to wish for.
    pub(crate) fn is_met_by(&self, held: &[IpAddr]) -> bool {
        if !self.wanted.is_empty() {
            return self.wanted.iter().all(|address| held.contains(address));
        }
        match self.need {
            Need::One => !held.is_empty(),
            Need::Both | Need::BothIfPossible => held.len() >= self.families.len(),
        }
    }
}

/// Reads a claim. Errors: a request that can't be read or contradicts the families.
pub(crate) fn goal(claim: &ServiceClaim) -> Result<Goal, Refusal> {
    let wanted = claim.wanted.clone()?;
    let Some(&first) = claim.families.first() else {
        return Err(Refusal::new(
            Reason::NoClusterIps,
            "the Service has no cluster IP, so the family of its address is unknown",
        ));
    };
    let dual = claim.families.len() > 1;
    let (families, need) = match claim.policy {
        FamilyPolicy::RequireDualStack if !dual => {
            return Err(Refusal::new(
                Reason::NotEnoughClusterIps,
                format!("RequireDualStack needs two cluster IPs, the Service has only {first}"),
            ));
        }
        FamilyPolicy::RequireDualStack => (claim.families.clone(), Need::Both),
        FamilyPolicy::PreferDualStack if dual => (claim.families.clone(), Need::BothIfPossible),
        FamilyPolicy::PreferDualStack | FamilyPolicy::SingleStack => (vec![first], Need::One),
    };
    let goal = Goal {
        families,
        need,
        wanted: wanted.addresses,
        pool: wanted.pool,
    };
    check_wanted(&goal)?;
    Ok(goal)
}

fn check_wanted(goal: &Goal) -> Result<(), Refusal> {
    for (place, address) in goal.wanted.iter().enumerate() {
        let family = IpFamily::of(*address);
        if !goal.families.contains(&family) {
            let families: Vec<&str> = goal.families.iter().map(|family| family.as_str()).collect();
            let families = families.join(" and ");
            return Err(Refusal::new(
                Reason::FamilyMismatch,
                format!("{address} is {family}, but the Service is {families} only"),
            ));
        }
        if goal
            .wanted
            .iter()
            .take(place)
            .any(|other| IpFamily::of(*other) == family)
        {
            return Err(Refusal::new(
                Reason::ConflictingRequest,
                format!(
                    "two {family} addresses are requested; a Service has at most one of each family"
                ),
            ));
        }
    }
    if goal.need == Need::Both && goal.wanted.len() == 1 {
        return Err(Refusal::new(
            Reason::ConflictingRequest,
            "RequireDualStack with one requested address; request one of each family, or none",
        ));
    }
    Ok(())
}
