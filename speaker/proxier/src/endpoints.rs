//! Which endpoints of a Service port may be used, for each policy.
//!
//! Owns merging of slices, endpoint conditions (KEP-1672) and topology hints (KEP-2433, KEP-4444). Never looks at
//! addresses or policies of the Service.
//!
//! One address and port in several slices is one endpoint: Ready beats not ready, not terminating beats terminating,
//! serving beats not serving, with a node name beats without. The age of slices is not compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use api_model::IpFamily;

use crate::node_view::{Endpoint, ServicePort, Slice, ThisNode};

/// Endpoints of one Service port and family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usable {
    /// The set for policy Cluster, after the topology filter.
    pub whole: BTreeSet<SocketAddr>,
    /// The set for policy Local.
    pub local: BTreeSet<SocketAddr>,
    /// Those of `whole` and `local` that are on this node.
    pub here: BTreeSet<SocketAddr>,
    /// Every serving endpoint, used or not: its UDP flows are kept.
    pub serving: BTreeSet<SocketAddr>,
}

/// The usable sets of one Service port.
pub fn usable(
    node: &ThisNode,
    port: &ServicePort,
    family: IpFamily,
    slices: &[Arc<Slice>],
) -> Usable {
    let merged = merge(port, family, slices);
    let is_here = |endpoint: &Endpoint| endpoint.node.as_ref() == Some(&node.name);
    let ready: Found<'_> = filter(&merged, |e| e.ready);
    let whole = if ready.is_empty() {
        filter(&merged, |e| e.serving && e.terminating)
    } else {
        by_topology(node, ready)
    };
    let mut local = filter(&merged, |e| is_here(e) && e.ready);
    if local.is_empty() {
        local = filter(&merged, |e| is_here(e) && e.serving && e.terminating);
    }
    let here = whole.iter().filter(|(_, e)| is_here(e)).chain(&local);
    Usable {
        here: here.map(|(at, _)| *at).collect(),
        whole: whole.into_keys().collect(),
        local: local.into_keys().collect(),
        serving: merged
            .iter()
            .filter(|(_, e)| e.serving)
            .map(|(at, _)| *at)
            .collect(),
    }
}

type Found<'a> = BTreeMap<SocketAddr, &'a Endpoint>;

fn filter<'a>(all: &Found<'a>, keep: impl Fn(&Endpoint) -> bool) -> Found<'a> {
    let kept = all.iter().filter(|(_, endpoint)| keep(endpoint));
    kept.map(|(at, endpoint)| (*at, *endpoint)).collect()
}

/// One entry per address and port, the best one.
fn merge<'a>(port: &ServicePort, family: IpFamily, slices: &'a [Arc<Slice>]) -> Found<'a> {
    let mut merged = Found::new();
    for slice in slices {
        let serves =
            |p: &&crate::node_view::SlicePort| p.name == port.name && p.protocol == port.protocol;
        for target in slice.ports.iter().filter(serves) {
            for endpoint in slice
                .endpoints
                .iter()
                .filter(|e| IpFamily::of(e.address) == family)
            {
                let at = SocketAddr::new(endpoint.address, target.port.get());
                merged
                    .entry(at)
                    .and_modify(|held| {
                        if rank(endpoint) > rank(held) {
                            *held = endpoint;
                        }
                    })
                    .or_insert(endpoint);
            }
        }
    }
    merged
}

fn rank(endpoint: &Endpoint) -> (bool, bool, bool, bool, Option<&api_model::NodeName>) {
    (
        endpoint.ready,
        !endpoint.terminating,
        endpoint.serving,
        endpoint.node.is_some(),
        endpoint.node.as_ref(),
    )
}

/// Node hints if all have one and one names this node; else zone hints likewise; else all (KEP-4444).
fn by_topology<'a>(node: &ThisNode, ready: Found<'a>) -> Found<'a> {
    let for_node = |e: &Endpoint| e.node_hints.contains(&node.name);
    if ready.values().all(|e| !e.node_hints.is_empty()) && ready.values().any(|e| for_node(e)) {
        return filter(&ready, for_node);
    }
    let Some(zone) = &node.zone else { return ready };
    let for_zone = |e: &Endpoint| e.zone_hints.contains(zone);
    if ready.values().all(|e| !e.zone_hints.is_empty()) && ready.values().any(|e| for_zone(e)) {
        return filter(&ready, for_zone);
    }
    ready
}

/// Distinct Ready addresses of a family on this node, over all ports: what the health check node port counts.
pub fn local_ready_addresses(node: &ThisNode, family: IpFamily, slices: &[Arc<Slice>]) -> usize {
    let endpoints = slices
        .iter()
        .filter(|s| !s.ports.is_empty())
        .flat_map(|s| &s.endpoints);
    let local = endpoints.filter(|e| {
        e.ready && IpFamily::of(e.address) == family && e.node.as_ref() == Some(&node.name)
    });
    local.map(|e| e.address).collect::<BTreeSet<_>>().len()
}
