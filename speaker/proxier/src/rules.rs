//! What this node does with packets, said per Service port: frontends, policies, endpoint sets.
//!
//! Owns the policy table of KEP-2086, KEP-1669 and the direct look-up that the compiled table is held against.
//! Never knows nftables.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use api_model::{IpFamily, Port, Protocol, ServiceKey};
use ipnet::IpNet;

use crate::{
    endpoints::{Usable, usable},
    node_view::{NodeView, Policy, Service, ServicePort, ServiceView, ThisNode},
    reason::{Reason, Refusal},
};

/// Longest affinity timeout, seconds.
pub const MAX_AFFINITY_SECONDS: u32 = 86_400;

/// Address, protocol and port that packets come for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frontend {
    /// Destination address.
    pub address: IpAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// Destination port.
    pub port: Port,
}

/// What kind of address a frontend has. The order is the order of claims: a ClusterIP beats an external IP of another Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrontendKind {
    /// ClusterIP.
    Cluster,
    /// Node port on the node's primary address.
    NodePort,
    /// Load balancer address.
    LoadBalancer,
    /// External IP.
    External,
}

/// Where packets of a frontend go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendRule {
    /// Kind of address.
    pub kind: FrontendKind,
    /// The policy in force for it.
    pub policy: Policy,
    /// Sources let in, merged; `None` lets all in.
    pub guard: Option<Vec<IpNet>>,
}

/// Stable name of a Service port inside its Service; affinity memory belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortId {
    /// Family.
    pub family: IpFamily,
    /// Protocol.
    pub protocol: Protocol,
    /// Port number.
    pub port: Port,
    /// Port name.
    pub name: Arc<str>,
}

/// A Service port of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRules {
    /// Its frontends.
    pub frontends: BTreeMap<Frontend, FrontendRule>,
    /// Its endpoints.
    pub endpoints: Usable,
    /// Affinity timeout in seconds.
    pub affinity: Option<u32>,
}

/// Everything of one Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// ClusterIPs; other ports of them are refused.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// Ports.
    pub ports: BTreeMap<PortId, PortRules>,
}

/// Everything of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The node.
    pub node: Arc<ThisNode>,
    /// Its Services.
    pub services: BTreeMap<ServiceKey, ServiceRules>,
}

/// The rules that a snapshot asks for.
pub fn desired(view: &NodeView) -> Rules {
    let services = view.services.iter();
    Rules {
        node: Arc::clone(&view.node),
        services: services
            .map(|(key, service)| (key.clone(), service_rules(&view.node, key, service).0))
            .collect(),
    }
}

/// The rules of one Service, and what of it is not as asked.
pub fn service_rules(
    node: &ThisNode,
    key: &ServiceKey,
    view: &ServiceView,
) -> (ServiceRules, Vec<Refusal>) {
    let service = &*view.service;
    let mut refusals = Vec::new();
    let affinity = service
        .affinity
        .map(|seconds| clamp_affinity(key, seconds, &mut refusals));
    let mut rules = ServiceRules {
        cluster_ips: service.cluster_ips.iter().copied().collect(),
        ports: BTreeMap::new(),
    };
    // a family without a ClusterIP is none of the Service's: no node port there either
    let families = [IpFamily::V4, IpFamily::V6].into_iter().filter(|family| {
        let mut addresses = service.cluster_ips.iter();
        addresses.any(|address| IpFamily::of(*address) == *family)
    });
    for port in &service.ports {
        for family in families.clone() {
            let frontends = frontends(node, service, port, family);
            if frontends.is_empty() {
                continue;
            }
            let id = PortId {
                family,
                protocol: port.protocol,
                port: port.port,
                name: Arc::clone(&port.name),
            };
            let endpoints = usable(node, port, family, &view.slices);
            rules.ports.entry(id).or_insert(PortRules {
                frontends,
                endpoints,
                affinity,
            });
        }
    }
    (rules, refusals)
}

fn clamp_affinity(key: &ServiceKey, seconds: u32, refusals: &mut Vec<Refusal>) -> u32 {
    let clamped = seconds.clamp(1, MAX_AFFINITY_SECONDS);
    if clamped != seconds {
        let detail =
            format!("timeoutSeconds {seconds} is not 1-{MAX_AFFINITY_SECONDS}; {clamped} is used");
        refusals.push(Refusal::new(key, Reason::AffinityTimeoutClamped, detail));
    }
    clamped
}

/// The frontends of one port; where two kinds fall on one address, the first kind wins.
fn frontends(
    node: &ThisNode,
    service: &Service,
    port: &ServicePort,
    family: IpFamily,
) -> BTreeMap<Frontend, FrontendRule> {
    let mut found = BTreeMap::new();
    let mut add = |kind, address: IpAddr, number, policy, guard| {
        if IpFamily::of(address) == family {
            let frontend = Frontend {
                address,
                protocol: port.protocol,
                port: number,
            };
            found.entry(frontend).or_insert(FrontendRule {
                kind,
                policy,
                guard,
            });
        }
    };
    for address in &service.cluster_ips {
        add(
            FrontendKind::Cluster,
            *address,
            port.port,
            service.internal_policy,
            None,
        );
    }
    if let Some(number) = port.node_port {
        for address in &node.addresses {
            add(
                FrontendKind::NodePort,
                *address,
                number,
                service.external_policy,
                None,
            );
        }
    }
    for address in &service.load_balancer_ips {
        let guard = service
            .source_ranges
            .of(family)
            .map(|ranges| with_own_source(node, *address, ranges));
        add(
            FrontendKind::LoadBalancer,
            *address,
            port.port,
            service.external_policy,
            guard,
        );
    }
    for address in &service.external_ips {
        add(
            FrontendKind::External,
            *address,
            port.port,
            service.external_policy,
            None,
        );
    }
    found
}

/// A node inside the ranges may also use the address itself as its source (traffic to its own address).
fn with_own_source(node: &ThisNode, address: IpAddr, mut ranges: Vec<IpNet>) -> Vec<IpNet> {
    let own = node.address(IpFamily::of(address));
    if own.is_some_and(|own| ranges.iter().any(|net| net.contains(&own))) {
        ranges.push(IpNet::from(address));
        return IpNet::aggregate(&ranges);
    }
    ranges
}

/// The first packet of a connection, as it reaches this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Source address.
    pub source: IpAddr,
    /// Destination.
    pub to: Frontend,
}

/// What happens to the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not ours: goes on untouched.
    Pass,
    /// Vanishes.
    Drop,
    /// Answered with ICMP port unreachable.
    Refuse,
    /// Sent to one of these endpoints.
    Deliver {
        /// The candidates.
        to: BTreeSet<SocketAddr>,
        /// Whether its source becomes the node's address (hairpin apart).
        masquerade: bool,
        /// Seconds that the choice is remembered.
        affinity: Option<u32>,
    },
}

impl Rules {
    /// Who holds a frontend: the strongest kind, then the first Service by name.
    pub fn holder(&self, frontend: &Frontend) -> Option<(&ServiceKey, &PortRules, &FrontendRule)> {
        let claims = self.services.iter().flat_map(|(key, service)| {
            let ports = service.ports.values();
            ports.filter_map(move |port| Some((key, port, port.frontends.get(frontend)?)))
        });
        claims.min_by_key(|(key, _, rule)| (rule.kind, *key))
    }

    /// What this node does with a packet, by the policy table.
    pub fn verdict(&self, packet: &Packet) -> Verdict {
        let Some((_, port, rule)) = self.holder(&packet.to) else {
            return self.verdict_without_holder(packet);
        };
        if rule
            .guard
            .as_ref()
            .is_some_and(|nets| !nets.iter().any(|net| net.contains(&packet.source)))
        {
            return Verdict::Drop;
        }
        let Usable { whole, local, .. } = &port.endpoints;
        if whole.is_empty() {
            return Verdict::Refuse;
        }
        let pod = self
            .node
            .pod_networks
            .iter()
            .any(|net| net.contains(&packet.source));
        let own = self.node.addresses.contains(&packet.source);
        let (to, masquerade) = match (rule.kind, rule.policy) {
            (FrontendKind::Cluster, Policy::Cluster) => (whole, !pod),
            (FrontendKind::Cluster, Policy::Local) => (local, !pod),
            (_, Policy::Cluster) => (whole, true),
            (_, Policy::Local) if pod || own => (whole, !pod),
            (_, Policy::Local) => (local, false),
        };
        if to.is_empty() {
            return Verdict::Drop;
        }
        Verdict::Deliver {
            to: to.clone(),
            masquerade,
            affinity: port.affinity,
        }
    }

    fn verdict_without_holder(&self, packet: &Packet) -> Verdict {
        let address = packet.to.address;
        if self
            .services
            .values()
            .any(|service| service.cluster_ips.contains(&address))
        {
            Verdict::Refuse
        } else if self
            .node
            .service_networks
            .iter()
            .any(|net| net.contains(&address))
        {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_without_a_cluster_ip_has_no_frontend() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let node = ThisNode {
            name: "n1".into(),
            addresses: vec![ip("172.31.0.11"), ip("fd31::11")],
            zone: None,
            pod_networks: Vec::new(),
            service_networks: Vec::new(),
            leaving: false,
        };
        let service = Service {
            cluster_ips: vec![ip("10.96.1.99")],
            external_ips: vec![ip("198.51.100.99"), ip("2001:db8:51::99")],
            ports: vec![ServicePort {
                name: "".into(),
                protocol: Protocol::Tcp,
                port: Port::new(80).expect("a port"),
                node_port: Port::new(30_099),
            }],
            ..Service::default()
        };
        let view = ServiceView {
            service: Arc::new(service),
            slices: Arc::new([]),
        };
        let (rules, _) = service_rules(&node, &ServiceKey::new("default", "web"), &view);
        let frontends = rules.ports.values().flat_map(|port| port.frontends.keys());
        let addresses: Vec<IpAddr> = frontends.map(|frontend| frontend.address).collect();
        let expected = ["10.96.1.99", "172.31.0.11", "198.51.100.99"].map(ip);
        assert_eq!(addresses, expected);
    }
}
