//! From Services, slices and the Node to the proxier's [`NodeView`].
//!
//! Owns what is read of an object and what is passed over (headless, ExternalName, another proxy's Services, `ipMode: Proxy`).
//! What cannot be read is left out of its own Service only, with a [`Refusal`]. Unchanged objects give the same allocation, so
//! that the planner sees at once that nothing changed. Source: KEP-2447 (service-proxy-name), KEP-1860 (ipMode), KEP-4444.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use api_model::{IpFamily, NodeName, Port, Protocol, ServiceKey};
use api_types::names::label;
use ipnet::IpNet;
use k8s_openapi::api::{
    core::v1::{Node, Service as ApiService, ServicePort as ApiPort, ServiceSpec},
    discovery::v1::{Endpoint as ApiEndpoint, EndpointPort, EndpointSlice},
};
use kube::ResourceExt;
use speaker_proxier::{
    Reason, Refusal,
    node_view::{
        Endpoint, NodeView, Policy, Service, ServicePort, ServiceView, Slice, SlicePort,
        SourceRanges, ThisNode,
    },
};

use super::{Facts, bgp::internal_addresses, ingress_addresses};

/// Services that another proxy takes care of (KEP-2447).
const SERVICE_PROXY_NAME: &str = "service.kubernetes.io/service-proxy-name";
/// The taint of a node that is about to go (KEP-3836).
const TO_BE_DELETED: &str = "ToBeDeletedByClusterAutoscaler";

/// What of a node does not come from its object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks {
    /// Sources that count as pods.
    pub pods: Vec<IpNet>,
    /// Ranges of ClusterIPs.
    pub services: Vec<IpNet>,
}

/// Builds views; remembers what it read, by allocation.
#[derive(Debug, Default)]
pub struct NodeViews {
    generation: u64,
    node: Option<Arc<ThisNode>>,
    services: BTreeMap<ServiceKey, Read<ApiService, Option<Service>>>,
    slices: BTreeMap<(ServiceKey, String), Read<EndpointSlice, Option<Slice>>>,
    views: BTreeMap<ServiceKey, ServiceView>,
}

/// An object as it was read.
#[derive(Debug)]
struct Read<K, T> {
    object: Arc<K>,
    content: T,
    refusals: Vec<Refusal>,
}

impl NodeViews {
    /// The next view; its generation grows only when something changed. `slices_of` gives the slices of a Service in the order of their names.
    pub fn build<'a, I>(
        &mut self,
        this: ThisNode,
        services: &BTreeMap<ServiceKey, Arc<ApiService>>,
        slices_of: impl Fn(&ServiceKey) -> I,
    ) -> (NodeView, Vec<Refusal>)
    where
        I: Iterator<Item = &'a Arc<EndpointSlice>>,
    {
        let mut changed = self.node.as_deref() != Some(&this);
        if changed {
            self.node = Some(Arc::new(this));
        }
        self.services.retain(|key, _| services.contains_key(key));
        let mut kept = BTreeSet::new();
        let (mut views, mut refusals) = (BTreeMap::new(), Vec::new());
        for (key, object) in services {
            let service = read_again(&mut self.services, key.clone(), object, |object, out| {
                read_service(key, object, out)
            });
            refusals.extend_from_slice(&service.refusals);
            let Some(view) = self.view(key, slices_of(key), &mut kept, &mut refusals) else {
                continue;
            };
            views.insert(key.clone(), view);
        }
        self.slices.retain(|place, _| kept.contains(place));
        let same = |(key, view): (&ServiceKey, &ServiceView)| {
            self.views
                .get(key)
                .is_some_and(|before| before.is_same(view))
        };
        changed |= views.len() != self.views.len() || !views.iter().all(same);
        self.generation += u64::from(changed);
        self.views = views;
        let node = self.node.clone().expect("set above");
        let view = NodeView {
            generation: self.generation,
            node,
            services: self.views.clone(),
        };
        (view, refusals)
    }

    fn view<'a>(
        &mut self,
        key: &ServiceKey,
        slices: impl Iterator<Item = &'a Arc<EndpointSlice>>,
        kept: &mut BTreeSet<(ServiceKey, String)>,
        refusals: &mut Vec<Refusal>,
    ) -> Option<ServiceView> {
        let service = self.services.get(key)?;
        let mut read = Vec::new();
        for object in slices {
            let place = (key.clone(), object.name_any());
            let slice = read_again(&mut self.slices, place.clone(), object, |object, out| {
                read_slice(key, object, out)
            });
            refusals.extend_from_slice(&slice.refusals);
            if let Some(slice) = &slice.content {
                read.push(Arc::new(slice.clone()));
            }
            kept.insert(place);
        }
        let service = service.content.as_ref()?;
        let next = ServiceView {
            service: Arc::new(service.clone()),
            slices: read.into(),
        };
        // The same content keeps its allocation.
        let same = self
            .views
            .get(key)
            .filter(|before| before.service == next.service && before.slices == next.slices);
        Some(same.cloned().unwrap_or(next))
    }
}

/// What was read of this very object before, or what is read now.
fn read_again<'a, P: Ord, K, T>(
    table: &'a mut BTreeMap<P, Read<K, T>>,
    place: P,
    object: &Arc<K>,
    read: impl FnOnce(&K, &mut Vec<Refusal>) -> T,
) -> &'a Read<K, T> {
    let fresh = || {
        let mut refusals = Vec::new();
        let content = read(object, &mut refusals);
        Read {
            object: object.clone(),
            content,
            refusals,
        }
    };
    match table.entry(place) {
        std::collections::btree_map::Entry::Vacant(entry) => entry.insert(fresh()),
        std::collections::btree_map::Entry::Occupied(entry) => {
            let held = entry.into_mut();
            if !Arc::ptr_eq(&held.object, object) {
                *held = fresh();
            }
            held
        }
    }
}

/// This node as the proxier sees it: the first `InternalIP` of each family, its zone, whether it is leaving. Without the
/// Node object it has no addresses, so no node ports.
pub fn this_node(name: &NodeName, node: Option<&Node>, networks: &Networks) -> ThisNode {
    let addresses = node.map(internal_addresses).unwrap_or_default();
    let first = |family| {
        addresses
            .iter()
            .find(|address| IpFamily::of(**address) == family)
            .copied()
    };
    let taints = node.and_then(|node| node.spec.as_ref()?.taints.as_ref());
    ThisNode {
        name: name.clone(),
        addresses: [IpFamily::V4, IpFamily::V6]
            .into_iter()
            .filter_map(first)
            .collect(),
        zone: node
            .and_then(|node| node.labels().get(label::ZONE))
            .map(|zone| zone.as_str().into()),
        pod_networks: networks.pods.clone(),
        service_networks: networks.services.clone(),
        leaving: node.is_some_and(|node| node.metadata.deletion_timestamp.is_some())
            || taints.is_some_and(|taints| taints.iter().any(|taint| taint.key == TO_BE_DELETED)),
    }
}

/// The networks whose sources count as pods: those given, else the podCIDRs of all nodes.
pub fn pod_networks(given: &[IpNet], facts: &Facts) -> Vec<IpNet> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let specs = facts.nodes.values().filter_map(|node| node.spec.as_ref());
    let texts = specs.flat_map(|spec| spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr));
    let networks: BTreeSet<IpNet> = texts.filter_map(|text| text.parse().ok()).collect();
    networks.into_iter().collect()
}

/// Reads a Service; `None` when it is not ours to program.
fn read_service(key: &ServiceKey, object: &ApiService, out: &mut Vec<Refusal>) -> Option<Service> {
    let spec = object.spec.as_ref()?;
    if object.labels().contains_key(SERVICE_PROXY_NAME)
        || spec.type_.as_deref() == Some("ExternalName")
        || matches!(spec.cluster_ip.as_deref(), None | Some("" | "None"))
    {
        return None;
    }
    let cluster_ips = match spec.cluster_ips.as_deref() {
        None | Some([]) => spec.cluster_ip.iter().map(String::as_str).collect(),
        Some(several) => several.iter().map(String::as_str).collect::<Vec<_>>(),
    };
    let external = spec.external_ips.iter().flatten().map(String::as_str);
    let ports = spec.ports.iter().flatten();
    Some(Service {
        cluster_ips: addresses(key, "spec.clusterIPs", cluster_ips.into_iter(), out),
        external_ips: addresses(key, "spec.externalIPs", external, out),
        load_balancer_ips: ingress_addresses(object).collect(),
        ports: ports.filter_map(|port| read_port(key, port, out)).collect(),
        external_policy: policy(spec.external_traffic_policy.as_deref()),
        internal_policy: policy(spec.internal_traffic_policy.as_deref()),
        affinity: affinity(key, spec, out),
        source_ranges: source_ranges(key, spec, out),
        health_check_node_port: health_port(spec),
    })
}

fn addresses<'a>(
    key: &ServiceKey,
    field: &str,
    texts: impl Iterator<Item = &'a str>,
    out: &mut Vec<Refusal>,
) -> Vec<IpAddr> {
    let mut read = Vec::new();
    for text in texts {
        if let Ok(address) = text.parse() {
            read.push(address);
        } else {
            let detail = format!("{field}: {text:?} is not an IP address");
            out.push(Refusal::new(key, Reason::BadAddress, detail));
        }
    }
    read
}

fn policy(text: Option<&str>) -> Policy {
    if text == Some("Local") {
        Policy::Local
    } else {
        Policy::Cluster
    }
}

fn read_port(key: &ServiceKey, port: &ApiPort, out: &mut Vec<Refusal>) -> Option<ServicePort> {
    let name = port.name.as_deref().unwrap_or_default();
    let protocol = protocol(port.protocol.as_deref());
    let (Some(protocol), Ok(number)) = (protocol, Port::try_from(i64::from(port.port))) else {
        let detail = format!(
            "spec.ports[{name:?}]: {:?} {} is no port",
            port.protocol, port.port
        );
        out.push(Refusal::new(key, Reason::BadPort, detail));
        return None;
    };
    Some(ServicePort {
        name: name.into(),
        protocol,
        port: number,
        node_port: port
            .node_port
            .and_then(|number| Port::try_from(i64::from(number)).ok()),
    })
}

fn protocol(text: Option<&str>) -> Option<Protocol> {
    text.map_or(Some(Protocol::Tcp), |text| text.parse().ok())
}

/// `ClientIP` with its timeout, 10,800 s unless given.
fn affinity(key: &ServiceKey, spec: &ServiceSpec, out: &mut Vec<Refusal>) -> Option<u32> {
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let config = spec
        .session_affinity_config
        .as_ref()
        .and_then(|config| config.client_ip.as_ref());
    let wanted = config
        .and_then(|config| config.timeout_seconds)
        .unwrap_or(10_800);
    let clamped = u32::try_from(wanted.clamp(1, 86_400)).unwrap_or(1);
    if i64::from(clamped) != i64::from(wanted) {
        let detail = format!(
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds: {wanted} is outside 1-86400; {clamped} is used"
        );
        out.push(Refusal::new(key, Reason::AffinityTimeoutClamped, detail));
    }
    Some(clamped)
}

/// Ranges count for type LoadBalancer only; blanks around them are allowed.
fn source_ranges(key: &ServiceKey, spec: &ServiceSpec, out: &mut Vec<Refusal>) -> SourceRanges {
    let mut ranges = SourceRanges::default();
    if spec.type_.as_deref() != Some("LoadBalancer") {
        return ranges;
    }
    for text in spec.load_balancer_source_ranges.iter().flatten() {
        if let Ok(range) = text.trim().parse::<IpNet>() {
            ranges.allowed.push(range.trunc());
            continue;
        }
        ranges.fail_closed = true;
        let detail = format!(
            "spec.loadBalancerSourceRanges: {text:?} is not a network; only readable ranges let anyone in"
        );
        out.push(Refusal::new(key, Reason::BadSourceRange, detail));
    }
    ranges
}

fn health_port(spec: &ServiceSpec) -> Option<Port> {
    let local = spec.type_.as_deref() == Some("LoadBalancer")
        && spec.external_traffic_policy.as_deref() == Some("Local");
    let number = spec.health_check_node_port.filter(|_| local)?;
    Port::try_from(i64::from(number)).ok()
}

/// Reads a slice; `None` for one that says it belongs to a headless Service, and for names instead of addresses.
fn read_slice(key: &ServiceKey, object: &EndpointSlice, out: &mut Vec<Refusal>) -> Option<Slice> {
    if object.labels().contains_key(label::HEADLESS) {
        return None;
    }
    let name = object.name_any();
    let mut refuse = |detail: String| {
        out.push(Refusal::new(
            key,
            Reason::BadSlice,
            format!("EndpointSlice {name}: {detail}"),
        ));
    };
    let Ok(family) = object.address_type.parse::<IpFamily>() else {
        if object.address_type != "FQDN" {
            refuse(format!(
                "addressType {:?} is not IPv4, IPv6 or FQDN",
                object.address_type
            ));
        }
        return None;
    };
    let ports = object.ports.iter().flatten();
    let ports = ports
        .filter_map(|port| read_slice_port(port, &mut refuse))
        .collect();
    let endpoints = object.endpoints.iter().flatten();
    let endpoints = endpoints
        .filter_map(|it| read_endpoint(it, family, &mut refuse))
        .collect();
    Some(Slice { ports, endpoints })
}

fn read_slice_port(port: &EndpointPort, refuse: &mut impl FnMut(String)) -> Option<SlicePort> {
    let number = port.port?;
    let (Some(protocol), Ok(number)) = (
        protocol(port.protocol.as_deref()),
        Port::try_from(i64::from(number)),
    ) else {
        refuse(format!("ports: {:?} {number} is no port", port.protocol));
        return None;
    };
    Some(SlicePort {
        name: port.name.as_deref().unwrap_or_default().into(),
        protocol,
        port: number,
    })
}

fn read_endpoint(
    endpoint: &ApiEndpoint,
    family: IpFamily,
    refuse: &mut impl FnMut(String),
) -> Option<Endpoint> {
    let text = endpoint
        .addresses
        .first()
        .map(String::as_str)
        .unwrap_or_default();
    let address = text
        .parse::<IpAddr>()
        .ok()
        .filter(|address| IpFamily::of(*address) == family);
    let Some(address) = address else {
        refuse(format!("endpoints: {text:?} is not an {family} address"));
        return None;
    };
    let conditions = endpoint.conditions.as_ref();
    let hints = endpoint.hints.as_ref();
    let zones = hints.and_then(|hints| hints.for_zones.as_ref());
    let nodes = hints.and_then(|hints| hints.for_nodes.as_ref());
    Some(Endpoint {
        address,
        ready: conditions.and_then(|it| it.ready).unwrap_or(true),
        serving: conditions.and_then(|it| it.serving).unwrap_or(true),
        terminating: conditions.and_then(|it| it.terminating).unwrap_or(false),
        node: endpoint.node_name.as_deref().map(NodeName::from),
        zone_hints: zones
            .into_iter()
            .flatten()
            .map(|zone| zone.name.as_str().into())
            .collect(),
        node_hints: nodes
            .into_iter()
            .flatten()
            .map(|node| node.name.as_str().into())
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(json: serde_json::Value) -> Arc<ApiService> {
        Arc::new(serde_json::from_value(json).expect("a Service"))
    }

    fn build(services: &[(&str, Arc<ApiService>)]) -> (NodeView, Vec<Refusal>) {
        let table = services
            .iter()
            .map(|(name, it)| (ServiceKey::new("demo", name), it.clone()))
            .collect();
        let this = this_node(&"n1".into(), None, &Networks::default());
        NodeViews::default().build(this, &table, |_| std::iter::empty())
    }

    #[test]
    fn a_broken_service_is_reported_and_leaves_the_others_alone() {
        let broken = service(serde_json::json!({"spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "externalIPs": ["nonsense"],
            "ports": [{"port": 0}, {"port": 80}], "loadBalancerSourceRanges": ["x"],
        }}));
        let good = service(serde_json::json!({"spec": {
            "clusterIP": "10.96.0.2", "ports": [{"port": 80}],
        }}));
        let (view, refusals) = build(&[("broken", broken), ("good", good)]);
        let reasons: Vec<_> = refusals.iter().map(|refusal| refusal.reason).collect();
        assert_eq!(
            reasons,
            [Reason::BadAddress, Reason::BadPort, Reason::BadSourceRange]
        );
        let ports: Vec<_> = view
            .services
            .values()
            .map(|it| it.service.ports.len())
            .collect();
        assert_eq!(ports, [1, 1]);
        let ranges = &view.services[&ServiceKey::new("demo", "broken")]
            .service
            .source_ranges;
        assert_eq!(ranges.of(IpFamily::V4), Some(vec![]), "closed, not open");
    }

    #[test]
    fn what_another_proxy_serves_or_has_no_address_is_passed_over() {
        let of = |json| build(&[("web", service(json))]).0.services.len();
        let labels = serde_json::json!({"service.kubernetes.io/service-proxy-name": "other"});
        let ports = serde_json::json!([{"port": 80}]);
        assert_eq!(
            of(serde_json::json!({"spec": {"clusterIP": "10.96.0.1", "ports": ports}})),
            1
        );
        assert_eq!(
            of(
                serde_json::json!({"metadata": {"labels": labels}, "spec": {"clusterIP": "10.96.0.1"}})
            ),
            0
        );
        assert_eq!(
            of(serde_json::json!({"spec": {"clusterIP": "None", "ports": ports}})),
            0
        );
        assert_eq!(of(serde_json::json!({"spec": {"type": "ExternalName"}})), 0);
    }

    #[test]
    fn an_unchanged_object_keeps_its_allocation() {
        let web = service(serde_json::json!({"spec": {"clusterIP": "10.96.0.1"}}));
        let table = BTreeMap::from([(ServiceKey::new("demo", "web"), web)]);
        let mut views = NodeViews::default();
        let mut next = || {
            let this = this_node(&"n1".into(), None, &Networks::default());
            views.build(this, &table, |_| std::iter::empty()).0
        };
        let (first, second) = (next(), next());
        let key = ServiceKey::new("demo", "web");
        assert!(first.services[&key].is_same(&second.services[&key]));
    }
}
