//! From everything that is known to what each part of the speaker is to do. Pure.
//!
//! Owns the order of the road: candidates and routes come from facts, membership and the gate. Never sends anything. A whole
//! snapshot is derived anew on each change; the parts below find the difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use api_model::{NodeName, ServiceKey};
use speaker_bgp::{PeerConfig, Wanted};
use speaker_l2::{
    Decision,
    candidate::{self, Gate},
};

use crate::{
    Config,
    ingest::{self, Announceable, Facts, Finding},
};

/// What each part is to do.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    /// Addresses of our Services, and who uses them.
    pub(crate) vips: BTreeMap<IpAddr, Announceable>,
    /// Layer 2: who holds each address, and why this node does or does not.
    pub(crate) layer2: BTreeMap<IpAddr, Decision>,
    /// BGP: the sessions of this node.
    pub(crate) peers: Vec<PeerConfig>,
    /// BGP: the routes of each session.
    pub(crate) wanted: Wanted,
    /// Peers and advertisements that can't be used.
    pub(crate) findings: Vec<Finding>,
}

/// Derives the whole. Addresses that no Service has any more leave the gate.
pub(crate) fn derive(
    config: &Config,
    facts: &Facts,
    alive: &BTreeSet<NodeName>,
    gate: &mut Gate,
) -> Derived {
    let vips = ingest::vips(facts, config.lb_class.as_deref());
    let ignore = config.ignore_exclude_label;
    let view = ingest::l2_view(facts, &vips, &config.node, alive, ignore);
    gate.retain(&view.vips);
    let open = |address: IpAddr| gate.is_open(address);
    let mut bgp = ingest::bgp_view(facts, &vips, &config.node, &open, ignore);
    let wanted = speaker_bgp::wanted(&bgp.view);
    let refusals = wanted.refusals.iter().map(|refusal| {
        let message = format!("{}: {}", refusal.reason, refusal.message);
        Finding::partial("BGPAdvertisement", refusal.advertisement.as_str(), message)
    });
    bgp.findings.extend(refusals);
    Derived {
        layer2: candidate::decide(&view, gate),
        peers: bgp.view.peers,
        wanted,
        findings: bgp.findings,
        vips,
    }
}

impl Derived {
    /// Services of the addresses that are announced on layer 2, with their interfaces as the shell reports them.
    pub(crate) fn layer2_services(
        &self,
        announced: &BTreeMap<IpAddr, BTreeSet<String>>,
    ) -> BTreeMap<ServiceKey, BTreeSet<String>> {
        let mut services: BTreeMap<ServiceKey, BTreeSet<String>> = BTreeMap::new();
        for (address, interfaces) in announced {
            if !self.layer2.get(address).is_some_and(Decision::announce) {
                continue;
            }
            for key in self
                .vips
                .get(address)
                .into_iter()
                .flat_map(|vip| vip.users.keys())
            {
                services
                    .entry(key.clone())
                    .or_default()
                    .extend(interfaces.iter().cloned());
            }
        }
        services
    }

    /// Services that BGP announces, with the names of the peers.
    pub(crate) fn bgp_services(&self) -> BTreeMap<ServiceKey, BTreeSet<String>> {
        let named = self.wanted.peers_of.iter();
        named
            .map(|(key, peers)| {
                (
                    key.clone(),
                    peers.iter().map(|peer| peer.as_str().to_owned()).collect(),
                )
            })
            .collect()
    }
}
