//! What a peer was told, and what it still has to hear.
//!
//! Owns the Adj-RIB-Out of one session (RFC 4271 §3.2) and the difference to the wanted routes. A changed attribute is sent
//! as a new announcement, never as a withdrawal first (implicit withdraw, RFC 4271 §3.1). Never chooses routes.
//! Law: applying everything it hands out, in order, to an empty table gives the wanted routes.

use std::collections::{BTreeMap, BTreeSet};

use api_model::IpFamily;
use ipnet::IpNet;

use crate::{
    Route, Routes,
    wire::encode::{UpdateContext, announce, withdraw},
};

/// Most prefixes that are put into one batch of UPDATEs; the next batch is made when this one is on its way. It bounds the
/// bytes that wait for a slow peer: at most one message per prefix, 4 MiB.
pub const MAX_BATCH_PREFIXES: usize = 1024;

/// Routes that a peer was told on the session that is up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdjRibOut {
    /// What the peer holds; `None`: it holds something of this prefix, and should hear it again.
    sent: BTreeMap<IpNet, Option<Route>>,
}

impl AdjRibOut {
    /// Number of prefixes that the peer holds from us.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether the peer holds nothing from us.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Forgets what was sent: a new session begins.
    pub(crate) fn clear(&mut self) {
        self.sent.clear();
    }

    /// All routes of a family are sent again (RFC 2918 §4). The prefixes stay known: one that is no longer wanted must still
    /// be withdrawn.
    pub(crate) fn repeat(&mut self, family: IpFamily) {
        for (prefix, route) in &mut self.sent {
            if IpFamily::of(prefix.addr()) == family {
                *route = None;
            }
        }
    }

    /// The next UPDATEs on the way to `wanted`, withdrawals first; none if the peer is up to date. Only routes of `families`
    /// that have a next hop are sent.
    pub(crate) fn next_batch(
        &mut self,
        wanted: &Routes,
        families: &BTreeSet<IpFamily>,
        context: &UpdateContext,
    ) -> Vec<Vec<u8>> {
        let carried = |prefix: &IpNet| {
            let family = IpFamily::of(prefix.addr());
            families.contains(&family) && has_next_hop(context, family)
        };
        let gone: Vec<IpNet> = self
            .sent
            .keys()
            .filter(|prefix| !wanted.contains_key(prefix))
            .take(MAX_BATCH_PREFIXES)
            .copied()
            .collect();
        for prefix in &gone {
            self.sent.remove(prefix);
        }
        let room = MAX_BATCH_PREFIXES - gone.len();
        let mut groups: BTreeMap<&Route, Vec<IpNet>> = BTreeMap::new();
        let sent = &self.sent;
        let changed = wanted.iter().filter(|(prefix, route)| {
            carried(prefix) && sent.get(*prefix).and_then(Option::as_ref) != Some(*route)
        });
        for (prefix, route) in changed.take(room) {
            groups.entry(route).or_default().push(*prefix);
        }
        let mut messages = withdraw(&gone);
        for (route, prefixes) in groups {
            messages.extend(announce(context, route, &prefixes));
            self.sent.extend(
                prefixes
                    .into_iter()
                    .map(|prefix| (prefix, Some(route.clone()))),
            );
        }
        messages
    }
}

/// Whether routes of a family can be sent at all.
pub(crate) fn has_next_hop(context: &UpdateContext, family: IpFamily) -> bool {
    match family {
        IpFamily::V4 => context.next_hop_v4.is_some(),
        IpFamily::V6 => context.next_hop_v6.is_some(),
    }
}

#[cfg(test)]
mod tests;
