//! What the planners must know of pods, Services and nodes.
//!
//! Owns the reading of Kubernetes objects: which pods count, their addresses, readiness and port numbers. Pure.
//! Source: KEP-752 (`EndpointSlice`), KEP-1672 (terminating), recorded answers of the 1.37 controllers.

use std::{collections::BTreeMap, net::IpAddr};

use api_model::IpFamily;
use k8s_openapi::{
    api::core::v1::{ObjectReference, Pod, Service, ServicePort},
    apimachinery::pkg::{
        apis::meta::v1::{ObjectMeta, OwnerReference},
        util::intstr::IntOrString,
    },
};

/// Nodes by name, with their zone.
pub type Nodes = BTreeMap<String, Option<String>>;

/// Labels that a Service's own labels never override.
pub(crate) const HEADLESS: &str = api_types::names::label::HEADLESS;

/// A port as an endpoint offers it. Ordered, so that groups of endpoints have an order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OfferedPort {
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) port: i32,
    pub(crate) app_protocol: Option<String>,
}

/// The selector, if the Service has endpoints that a controller finds.
pub(crate) fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    spec.selector
        .as_ref()
        .filter(|selector| !selector.is_empty())
}

/// Whether a Service selects a pod.
pub(crate) fn selects(service: &Service, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    service.metadata.namespace == pod.metadata.namespace
        && selector(service).is_some_and(|selector| {
            selector
                .iter()
                .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        })
}

/// Families of a Service, the first one first.
pub(crate) fn families(service: &Service) -> Vec<IpFamily> {
    let spec = service.spec.as_ref();
    let listed: Vec<IpFamily> = spec
        .and_then(|spec| spec.ip_families.as_ref())
        .into_iter()
        .flatten()
        .filter_map(|family| family.parse().ok())
        .collect();
    if !listed.is_empty() {
        return listed;
    }
    // a server older than dual stack: the address tells
    let address = spec
        .and_then(|spec| spec.cluster_ip.as_deref())
        .unwrap_or_default();
    vec![address.parse().map_or(IpFamily::V4, IpFamily::of)]
}

/// Whether a Service has no cluster address on purpose.
pub(crate) fn is_headless(service: &Service) -> bool {
    service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref())
        == Some("None")
}

/// Whether readiness does not matter to a Service.
pub(crate) fn publishes_not_ready(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

/// Labels of what a controller writes for a Service: its own, less those with a meaning here, and `ours`.
pub(crate) fn labels(service: &Service, ours: &[(&str, &str)]) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.extend(
        ours.iter()
            .map(|&(key, value)| (key.to_owned(), value.to_owned())),
    );
    labels
}

/// The owner reference to a Service.
pub(crate) fn owner(service: &Service) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: name(&service.metadata).to_owned(),
        uid: service.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Whether a pod is being deleted.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether a pod says that it is ready.
pub(crate) fn is_ready(pod: &Pod) -> bool {
    pod.status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether a pod has ended for good.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The pod's node, once it has one.
pub(crate) fn node(pod: &Pod) -> Option<&str> {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.node_name.as_deref())
        .filter(|node| !node.is_empty())
}

/// The pod's address of a family.
pub(crate) fn address(pod: &Pod, family: IpFamily) -> Option<IpAddr> {
    let status = pod.status.as_ref()?;
    let listed = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    listed
        .chain(status.pod_ip.as_deref())
        .filter_map(|text| text.parse::<IpAddr>().ok())
        .find(|address| IpFamily::of(*address) == family)
}

/// The pod's own name under the Service's, if it asks for one.
pub(crate) fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let under = spec.subdomain.as_deref()?;
    (under == name(&service.metadata))
        .then(|| spec.hostname.clone())
        .flatten()
}

/// The reference to a pod.
pub(crate) fn target(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// The ports of a Service that a pod offers; one whose name the pod does not know is left out.
pub(crate) fn offered_ports(service: &Service, pod: &Pod) -> Vec<OfferedPort> {
    let wanted = service
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten());
    wanted
        .filter_map(|port| {
            Some(OfferedPort {
                name: port.name.clone().unwrap_or_default(),
                protocol: protocol(port).to_owned(),
                port: number(port, pod)?,
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The number behind `targetPort`; a name is looked up among the pod's container ports of the same protocol.
fn number(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let name = match &port.target_port {
        None | Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    // sidecars are init containers that stay
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    spec.containers
        .iter()
        .chain(sidecars)
        .flat_map(|container| container.ports.iter().flatten())
        .find(|offered| {
            offered.name.as_ref() == Some(name)
                && offered.protocol.as_deref().unwrap_or("TCP") == protocol(port)
        })
        .map(|offered| offered.container_port)
}
