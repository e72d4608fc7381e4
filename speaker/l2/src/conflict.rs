//! Another station claims a VIP that this node holds (RFC 5227 §2.4, RFC 4862 §5.4.4).
//!
//! Owns what counts as a conflict and how often it is reported and defended. Never gives a VIP up: frames are cheap to
//! forge, so the reaction is bounded (RFC 5227 §2.4 (c)).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use api_model::Time;

use crate::{InterfaceIndex, Mac};

#[cfg(test)]
mod tests;

/// At most one defence, and one report, per VIP and interface in this time (RFC 5227 §1.1, `DEFEND_INTERVAL`).
pub const DEFEND_INTERVAL: Duration = Duration::from_secs(10);

/// What to do about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The sender may say so: this node itself, or another speaker of the cluster.
    Fellow,
    /// A conflict, and time to report it and to announce the VIP once.
    Defend,
    /// A conflict within [`DEFEND_INTERVAL`] of the last: counted only.
    Quiet,
}

/// Judges claims and remembers when each VIP was defended last. Bounded by the VIPs held times the interfaces.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    own: BTreeSet<Mac>,
    fellows: BTreeSet<Mac>,
    defended: BTreeMap<(IpAddr, InterfaceIndex), Time>,
}

impl Guard {
    /// Stations of this node: their frames are reflections.
    pub fn set_own(&mut self, own: BTreeSet<Mac>) {
        self.own = own;
    }

    /// Stations of the other speakers: one of them may have taken over a moment ago.
    pub fn set_fellows(&mut self, fellows: BTreeSet<Mac>) {
        self.fellows = fellows;
    }

    /// True for a station of this node.
    pub fn is_own(&self, mac: Mac) -> bool {
        self.own.contains(&mac)
    }

    /// Judges that `mac` says it has the held `vip`.
    pub fn judge(
        &mut self,
        now: Time,
        vip: IpAddr,
        interface: InterfaceIndex,
        mac: Mac,
    ) -> Verdict {
        if self.own.contains(&mac) || self.fellows.contains(&mac) {
            return Verdict::Fellow;
        }
        let last = self.defended.get(&(vip, interface));
        if last.is_some_and(|last| now.since(*last) < DEFEND_INTERVAL) {
            return Verdict::Quiet;
        }
        self.defended.insert((vip, interface), now);
        Verdict::Defend
    }

    /// Forgets a VIP that is no longer held on the interface.
    pub fn forget(&mut self, vip: IpAddr, interface: InterfaceIndex) {
        self.defended.remove(&(vip, interface));
    }
}
