//! Which addresses there are to announce, and what the layer 2 core must know to choose who speaks for each.
//!
//! Owns the reading of `status.loadBalancer`, of endpoint conditions for the announcer, and of `L2Advertisement`s. The
//! rules themselves are in `speaker_l2::candidate`. Source: KEP-1669 (serving and terminating), `MetalLB`'s selectors.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use api_model::{AddressRange, NodeName, PoolName, ServiceKey};
use api_types::{IPAddressPool, L2Advertisement, names::label, selector};
use k8s_openapi::{
    api::{
        core::v1::{Node, Service},
        discovery::v1::Endpoint,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::ResourceExt;
use speaker_l2::candidate::{self, Advertisement, Selection, User, View, Vip};

use super::{Facts, is_ours};

/// An address of a Service, and who serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announceable {
    /// Pool that contains the address.
    pub pool: PoolName,
    /// Services that have it.
    pub users: BTreeMap<ServiceKey, User>,
}

/// All announceable addresses: those in `status.loadBalancer.ingress` of our Services that lie in a pool. `ipMode: Proxy`
/// means that somebody else carries the address (KEP-1860).
pub fn vips(facts: &Facts, lb_class: Option<&str>) -> BTreeMap<IpAddr, Announceable> {
    let ranges = pool_ranges(facts);
    let mut found: BTreeMap<IpAddr, Announceable> = BTreeMap::new();
    for (key, service) in &facts.services {
        if !is_ours(service, lb_class) {
            continue;
        }
        for address in ingress_addresses(service) {
            let Some(pool) = pool_of(&ranges, address) else {
                continue;
            };
            found
                .entry(address)
                .or_insert_with(|| Announceable {
                    pool: pool.clone(),
                    users: BTreeMap::new(),
                })
                .users
                .insert(key.clone(), user(facts, key, service, address));
        }
    }
    found
}

/// The view that `speaker_l2::candidate::decide` takes. `alive` are the members that heartbeats prove, this node included.
pub fn l2_view(
    facts: &Facts,
    vips: &BTreeMap<IpAddr, Announceable>,
    me: &NodeName,
    alive: &BTreeSet<NodeName>,
    ignore_exclude_label: bool,
) -> View {
    let node = |name: &NodeName, node: &Node| candidate::Node {
        alive: name == me || alive.contains(name),
        excluded: !ignore_exclude_label && node.labels().contains_key(label::NODE_EXCLUDE),
        network_unavailable: condition_is_true(node, "NetworkUnavailable"),
    };
    View {
        me: me.clone(),
        nodes: facts
            .nodes
            .iter()
            .map(|(name, object)| (name.clone(), node(name, object)))
            .collect(),
        advertisements: facts
            .config
            .l2_advertisements
            .values()
            .map(|advertisement| resolve(facts, advertisement))
            .collect(),
        vips: vips
            .iter()
            .map(|(address, vip)| {
                (
                    *address,
                    Vip {
                        pool: vip.pool.clone(),
                        users: vip.users.clone(),
                    },
                )
            })
            .collect(),
    }
}

/// Addresses that a Service has been given and that this side carries.
pub fn ingress_addresses(service: &Service) -> impl Iterator<Item = IpAddr> {
    let ingress = service
        .status
        .iter()
        .filter_map(|status| status.load_balancer.as_ref())
        .flat_map(|balancer| balancer.ingress.iter().flatten());
    ingress
        .filter(|entry| entry.ip_mode.as_deref() != Some("Proxy"))
        .filter_map(|entry| entry.ip.as_deref()?.parse().ok())
}

/// The ranges of each pool that can be read; an unreadable one is the allocator's to report.
fn pool_ranges(facts: &Facts) -> Vec<(PoolName, Vec<AddressRange>)> {
    let readable = |pool: &IPAddressPool| {
        pool.spec
            .addresses
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect()
    };
    facts
        .config
        .pools
        .iter()
        .map(|(name, pool)| (name.clone(), readable(pool)))
        .collect()
}

fn pool_of(ranges: &[(PoolName, Vec<AddressRange>)], address: IpAddr) -> Option<&PoolName> {
    ranges
        .iter()
        .find(|(_, ranges)| ranges.iter().any(|range| range.contains(address)))
        .map(|(name, _)| name)
}

/// What the announcer must know of a Service. A node whose endpoints are all terminating should attract nothing new, so
/// for `Local` it counts only while no node has a ready one: then being reached beats being silent.
fn user(facts: &Facts, key: &ServiceKey, service: &Service, address: IpAddr) -> User {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let endpoints = facts
        .slices_of(key)
        .filter(|slice| slice.address_type == family)
        .filter(|slice| !slice.labels().contains_key(label::HEADLESS))
        .flat_map(|slice| slice.endpoints.iter().flatten());
    let (mut ready, mut draining) = (BTreeSet::new(), BTreeSet::new());
    let mut has_endpoints = false;
    for endpoint in endpoints {
        let (is_ready, is_draining) = readiness(endpoint);
        has_endpoints |= is_ready || is_draining;
        let Some(node) = endpoint.node_name.as_deref() else {
            continue;
        };
        if is_ready {
            ready.insert(NodeName::from(node));
        } else if is_draining {
            draining.insert(NodeName::from(node));
        }
    }
    User {
        local_only: service
            .spec
            .as_ref()
            .is_some_and(|spec| spec.external_traffic_policy.as_deref() == Some("Local")),
        has_endpoints,
        endpoints_on: if ready.is_empty() { draining } else { ready },
    }
}

/// Ready, and serving while terminating (KEP-1669). Missing conditions: ready and serving are true, terminating false.
fn readiness(endpoint: &Endpoint) -> (bool, bool) {
    let conditions = endpoint.conditions.as_ref();
    let ready = conditions.and_then(|it| it.ready).unwrap_or(true);
    let serving = conditions.and_then(|it| it.serving).unwrap_or(true);
    let terminating = conditions.and_then(|it| it.terminating).unwrap_or(false);
    (ready, serving && terminating)
}

fn resolve(facts: &Facts, advertisement: &L2Advertisement) -> Advertisement {
    let spec = &advertisement.spec;
    let interfaces = spec
        .interfaces
        .iter()
        .map(|name| name.as_str().into())
        .collect::<BTreeSet<_>>();
    let mut preferences: BTreeMap<NodeName, u32> = BTreeMap::new();
    for preferred in &spec.preferred_node_selectors {
        let weight = u32::try_from(preferred.weight).unwrap_or(0);
        for (name, node) in &facts.nodes {
            if selector::matches(&preferred.preference, node.labels()) {
                let sum = preferences.entry(name.clone()).or_default();
                *sum = sum.saturating_add(weight);
            }
        }
    }
    Advertisement {
        name: advertisement.name_any().into(),
        pools: select_pools(
            facts,
            &spec.ip_address_pools,
            &spec.ip_address_pool_selectors,
        ),
        services: select_services(facts, &spec.service_selectors),
        nodes: select_nodes(facts, &spec.node_selectors),
        interfaces: if interfaces.is_empty() {
            Selection::All
        } else {
            Selection::These(interfaces)
        },
        preferences,
    }
}

/// Pools by name or by label; with neither, every pool.
pub(super) fn select_pools(
    facts: &Facts,
    names: &[String],
    selectors: &[LabelSelector],
) -> Selection<PoolName> {
    if names.is_empty() && selectors.is_empty() {
        return Selection::All;
    }
    let mut chosen: BTreeSet<PoolName> = names.iter().map(|name| name.as_str().into()).collect();
    let labelled = facts.config.pools.iter().filter(|(_, pool)| {
        selectors
            .iter()
            .any(|selector| selector::matches(selector, pool.labels()))
    });
    chosen.extend(labelled.map(|(name, _)| name.clone()));
    Selection::These(chosen)
}

/// Nodes by label; without selectors, every node.
pub(super) fn select_nodes(facts: &Facts, selectors: &[LabelSelector]) -> Selection<NodeName> {
    select(&facts.nodes, selectors, |node| node.labels())
}

/// Services by label; without selectors, every Service.
pub(super) fn select_services(facts: &Facts, selectors: &[LabelSelector]) -> Selection<ServiceKey> {
    select(&facts.services, selectors, |service| service.labels())
}

fn select<T: Ord + Clone, K>(
    objects: &BTreeMap<T, std::sync::Arc<K>>,
    selectors: &[LabelSelector],
    labels: impl Fn(&K) -> &selector::Labels,
) -> Selection<T> {
    if selectors.is_empty() {
        return Selection::All;
    }
    let matching = |object: &K| {
        selectors
            .iter()
            .any(|selector| selector::matches(selector, labels(object)))
    };
    Selection::These(
        objects
            .iter()
            .filter(|(_, object)| matching(object))
            .map(|(key, _)| key.clone())
            .collect(),
    )
}

pub(super) fn condition_is_true(node: &Node, wanted: &str) -> bool {
    node.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == wanted && condition.status == "True")
}
