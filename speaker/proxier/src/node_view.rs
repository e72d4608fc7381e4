//! What one node knows: itself, the Services, their slices. The whole input of the proxier.
//!
//! Owns plain data, shared by `Arc` so that an unchanged Service is recognised by its pointer. Never knows Kubernetes types.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use api_model::{IpFamily, NodeName, Port, Protocol, ServiceKey};
use ipnet::IpNet;

/// A snapshot of everything that decides where this node sends a packet.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Grows with each snapshot; reports name it.
    pub generation: u64,
    /// The node itself.
    pub node: Arc<ThisNode>,
    /// Services to be programmed, with their slices.
    pub services: BTreeMap<ServiceKey, ServiceView>,
}

/// This node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThisNode {
    /// Its name; endpoints with this node name are local.
    pub name: NodeName,
    /// Its primary address of each family: where node ports and health check node ports answer.
    pub addresses: Vec<IpAddr>,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: Option<Arc<str>>,
    /// Networks of the pods that count as local: they keep their source address and take the short cut.
    pub pod_networks: Vec<IpNet>,
    /// Ranges that ClusterIPs come from; an address of them that nobody holds is dropped.
    pub service_networks: Vec<IpNet>,
    /// Being deleted or tainted `ToBeDeletedByClusterAutoscaler`: `/healthz` says so (KEP-3836).
    pub leaving: bool,
}

impl ThisNode {
    /// The primary address of a family.
    pub fn address(&self, family: IpFamily) -> Option<IpAddr> {
        let of_family = |address: &&IpAddr| IpFamily::of(**address) == family;
        self.addresses.iter().find(of_family).copied()
    }
}

/// A Service and its slices.
#[derive(Clone, Debug)]
pub struct ServiceView {
    /// The Service.
    pub service: Arc<Service>,
    /// Its slices, in the order of their names.
    pub slices: Arc<[Arc<Slice>]>,
}

impl ServiceView {
    /// Whether nothing can have changed: the same allocations.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.service, &other.service)
            && self.slices.len() == other.slices.len()
            && self
                .slices
                .iter()
                .zip(other.slices.iter())
                .all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

/// `Cluster` or `Local`, of `externalTrafficPolicy` and `internalTrafficPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// All endpoints.
    #[default]
    Cluster,
    /// Endpoints of this node only.
    Local,
}

/// What the proxier reads of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// ClusterIPs, one or two.
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// `status.loadBalancer.ingress[].ip` with ipMode VIP or none (KEP-1860).
    pub load_balancer_ips: Vec<IpAddr>,
    /// Ports.
    pub ports: Vec<ServicePort>,
    /// `externalTrafficPolicy`.
    pub external_policy: Policy,
    /// `internalTrafficPolicy`.
    pub internal_policy: Policy,
    /// ClientIP affinity with this timeout in seconds, 1–86,400.
    pub affinity: Option<u32>,
    /// `loadBalancerSourceRanges`.
    pub source_ranges: SourceRanges,
    /// `healthCheckNodePort` of a LoadBalancer with policy Local.
    pub health_check_node_port: Option<Port>,
}

/// Sources that may use the load balancer addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRanges {
    /// The readable ranges.
    pub allowed: Vec<IpNet>,
    /// A range could not be read: a family without any readable range is closed instead of open.
    pub fail_closed: bool,
}

impl SourceRanges {
    /// The ranges of a family, or `None` when all sources may come: no range of this family, or a `/0` among them.
    pub fn of(&self, family: IpFamily) -> Option<Vec<IpNet>> {
        let of_family = |net: &&IpNet| IpFamily::of(net.addr()) == family;
        let ranges: Vec<IpNet> = self.allowed.iter().filter(of_family).copied().collect();
        let open = ranges.iter().any(|net| net.prefix_len() == 0);
        let unguarded = ranges.is_empty() && !self.fail_closed;
        (!open && !unguarded).then(|| IpNet::aggregate(&ranges))
    }
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Name, empty when the only one; ties it to the slices' ports.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Port at ClusterIP, load balancer address and external IP.
    pub port: Port,
    /// Port at the node's own addresses.
    pub node_port: Option<Port>,
}

/// A slice: endpoints that share ports and family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Its ports; those without a number are not here.
    pub ports: Vec<SlicePort>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// A port of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Name of the Service port that it serves.
    pub name: Arc<str>,
    /// Protocol.
    pub protocol: Protocol,
    /// Port at the endpoint.
    pub port: Port,
}

/// An endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address (the first of the list; all of a list are the same endpoint).
    pub address: IpAddr,
    /// Condition `ready`, true when missing.
    pub ready: bool,
    /// Condition `serving`, true when missing.
    pub serving: bool,
    /// Condition `terminating`, false when missing.
    pub terminating: bool,
    /// Its node.
    pub node: Option<NodeName>,
    /// Zones that should use it; empty without hint.
    pub zone_hints: BTreeSet<Arc<str>>,
    /// Nodes that should use it; empty without hint.
    pub node_hints: BTreeSet<NodeName>,
}
