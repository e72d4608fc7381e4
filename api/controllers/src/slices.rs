//! Which `EndpointSlice`s a Service should have, and the fewest writes that get there.
//!
//! Owns the planner; pure: objects in, writes out, at most [`MAX_ENDPOINTS`] endpoints a slice. Laws: applying the writes
//! and planning again yields none · one pod's change writes one slice · a slice that stays keeps its name and its order.
//! `service.kubernetes.io/topology-mode: Auto` is not built; `trafficDistribution` is.
//!
//! Source: KEP-752, KEP-1672, KEP-3015 (trafficDistribution), and what the 1.37 controller was seen to write.

use std::collections::{BTreeMap, BTreeSet};

use api_model::IpFamily;
use api_types::names::label;
use k8s_openapi::{
    api::{
        core::v1::{Pod, Service},
        discovery::v1::{
            Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice, ForNode,
            ForZone,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::facts::{self, Nodes, OfferedPort};

/// Endpoints in one slice, as in Kubernetes.
pub const MAX_ENDPOINTS: usize = 100;
/// Value of `endpointslice.kubernetes.io/managed-by` on slices of ours.
pub const MANAGED_BY: &str = "endpointslice-controller.k8s.io";

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A slice that is not there yet; the server finishes its name.
    Create(EndpointSlice),
    /// A slice that changes.
    Update(EndpointSlice),
    /// A slice that goes.
    Delete(EndpointSlice),
}

/// Endpoints by what they have in common.
type Groups = BTreeMap<Vec<OfferedPort>, Vec<Endpoint>>;

/// The writes that give a Service its slices. `pods` may hold others than the selected ones, `existing` are the Service's
/// slices that carry our label.
pub fn plan(
    service: &Service,
    pods: &[&Pod],
    nodes: &Nodes,
    existing: &[&EndpointSlice],
) -> Vec<Write> {
    if facts::selector(service).is_none() || service.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let families = facts::families(service);
    let mut writes = Vec::new();
    for family in &families {
        let of_family: Vec<_> = existing
            .iter()
            .filter(|slice| slice.address_type == family.as_str())
            .copied()
            .collect();
        let groups = groups(service, pods, nodes, *family);
        writes.extend(plan_family(service, *family, groups, &of_family));
    }
    let foreign = existing.iter().filter(|slice| {
        !families
            .iter()
            .any(|family| slice.address_type == family.as_str())
    });
    writes.extend(foreign.map(|slice| Write::Delete((*slice).clone())));
    writes
}

/// The endpoints of a family, grouped by their ports.
fn groups(service: &Service, pods: &[&Pod], nodes: &Nodes, family: IpFamily) -> Groups {
    let mut groups = Groups::new();
    let mut pods: Vec<_> = pods
        .iter()
        .filter(|pod| facts::selects(service, pod))
        .collect();
    pods.sort_by_key(|pod| facts::name(&pod.metadata));
    for pod in pods {
        if let Some(endpoint) = endpoint(service, pod, nodes, family) {
            let ports = facts::offered_ports(service, pod);
            groups.entry(ports).or_default().push(endpoint);
        }
    }
    groups
}

/// A pod as an endpoint; `None` while it has no address of the family, or no node that we know, and once it has ended.
fn endpoint(service: &Service, pod: &Pod, nodes: &Nodes, family: IpFamily) -> Option<Endpoint> {
    if facts::has_ended(pod) {
        return None;
    }
    let node = facts::node(pod)?;
    let zone = nodes.get(node)?.clone();
    let address = facts::address(pod, family)?;
    let terminating = facts::is_terminating(pod);
    let serving = facts::is_ready(pod);
    let ready = facts::publishes_not_ready(service) || (serving && !terminating);
    Some(Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hints: hints(service, ready, node, zone.as_deref()),
        hostname: facts::hostname(pod, service),
        node_name: Some(node.to_owned()),
        target_ref: Some(facts::target(pod)),
        zone,
        ..Endpoint::default()
    })
}

/// What `trafficDistribution` says of a ready endpoint (KEP-3015).
fn hints(service: &Service, ready: bool, node: &str, zone: Option<&str>) -> Option<EndpointHints> {
    let spec = service.spec.as_ref()?;
    let (zones, nodes) = match spec.traffic_distribution.as_deref()? {
        "PreferClose" | "PreferSameZone" => (true, false),
        "PreferSameNode" => (true, true),
        _ => return None,
    };
    let for_zones = zone.filter(|_| zones).map(|zone| {
        vec![ForZone {
            name: zone.to_owned(),
        }]
    });
    let for_nodes = nodes.then(|| {
        vec![ForNode {
            name: node.to_owned(),
        }]
    });
    let hints = EndpointHints {
        for_nodes,
        for_zones,
    };
    (ready && hints != EndpointHints::default()).then_some(hints)
}

/// What makes two endpoints the same one.
fn identity(endpoint: &Endpoint) -> (Option<&String>, Option<&str>) {
    let uid = endpoint
        .target_ref
        .as_ref()
        .and_then(|target| target.uid.as_deref());
    (endpoint.addresses.first(), uid)
}

/// A slice on its way from what it is to what it should be.
struct Draft<'a> {
    before: Option<&'a EndpointSlice>,
    ports: Vec<OfferedPort>,
    endpoints: Vec<Endpoint>,
}

impl Draft<'_> {
    fn room(&self) -> usize {
        MAX_ENDPOINTS.saturating_sub(self.endpoints.len())
    }

    fn is_changed(&self) -> bool {
        let before = self
            .before
            .map(|slice| slice.endpoints.as_deref().unwrap_or_default());
        before != Some(self.endpoints.as_slice())
    }
}

fn plan_family(
    service: &Service,
    family: IpFamily,
    groups: Groups,
    existing: &[&EndpointSlice],
) -> Vec<Write> {
    let mut spare: Vec<&EndpointSlice> = Vec::new();
    let mut drafts: Vec<Draft<'_>> = Vec::new();
    for slice in existing {
        if groups.contains_key(&ports_of(slice)) {
            drafts.push(Draft {
                before: Some(slice),
                ports: ports_of(slice),
                endpoints: Vec::new(),
            });
        } else {
            spare.push(slice);
        }
    }
    for (ports, endpoints) in groups {
        fill(&mut drafts, &ports, endpoints);
    }
    let (full, empty): (Vec<_>, Vec<_>) = drafts
        .into_iter()
        .partition(|draft| !draft.endpoints.is_empty());
    spare.extend(empty.into_iter().filter_map(|draft| draft.before));
    let mut drafts = full;
    if drafts.is_empty() {
        drafts.push(placeholder(&mut spare));
    }
    let mut writes = Vec::new();
    for draft in drafts {
        // a slice that is not needed any more becomes one that is
        let before = draft.before.or_else(|| spare.pop());
        writes.extend(write(service, family, &draft, before));
    }
    writes.extend(spare.into_iter().map(|slice| Write::Delete(slice.clone())));
    writes
}

/// Puts the endpoints of one group into its slices: first where they are, then into slices that are written anyway, then
/// where there is room, then into new ones.
fn fill(drafts: &mut Vec<Draft<'_>>, ports: &[OfferedPort], endpoints: Vec<Endpoint>) {
    let mut wanted: BTreeMap<_, Endpoint> = BTreeMap::new();
    let mut order = Vec::new();
    for endpoint in endpoints {
        let (address, uid) = identity(&endpoint);
        let key = (address.cloned(), uid.map(str::to_owned));
        order.push(key.clone());
        wanted.insert(key, endpoint);
    }
    for draft in drafts.iter_mut().filter(|draft| draft.ports == ports) {
        let before = draft.before.and_then(|slice| slice.endpoints.as_ref());
        for old in before.into_iter().flatten() {
            let (address, uid) = identity(old);
            let key = (address.cloned(), uid.map(str::to_owned));
            if draft.room() > 0 {
                draft.endpoints.extend(wanted.remove(&key));
            }
        }
    }
    let mut rest = order
        .iter()
        .filter_map(|key| wanted.remove(key))
        .collect::<Vec<_>>()
        .into_iter();
    for written in [true, false] {
        for draft in drafts.iter_mut().filter(|draft| draft.ports == ports) {
            if draft.is_changed() == written {
                let room = draft.room();
                draft.endpoints.extend(rest.by_ref().take(room));
            }
        }
    }
    loop {
        let endpoints: Vec<_> = rest.by_ref().take(MAX_ENDPOINTS).collect();
        if endpoints.is_empty() {
            return;
        }
        drafts.push(Draft {
            before: None,
            ports: ports.to_vec(),
            endpoints,
        });
    }
}

/// A Service without endpoints keeps one empty slice, so that others see that it was looked at.
fn placeholder<'a>(spare: &mut Vec<&'a EndpointSlice>) -> Draft<'a> {
    // one that is empty already needs no write
    let empty = spare.iter().position(|slice| {
        slice.endpoints.iter().flatten().next().is_none() && ports_of(slice).is_empty()
    });
    let kept = match empty {
        Some(at) => Some(spare.remove(at)),
        None => spare.pop(),
    };
    Draft {
        before: kept,
        ports: Vec::new(),
        endpoints: Vec::new(),
    }
}

/// The ports of a slice, sorted as groups are.
fn ports_of(slice: &EndpointSlice) -> Vec<OfferedPort> {
    slice
        .ports
        .iter()
        .flatten()
        .map(|port| OfferedPort {
            name: port.name.clone().unwrap_or_default(),
            protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
            port: port.port.unwrap_or_default(),
            app_protocol: port.app_protocol.clone(),
        })
        .collect()
}

/// The write that turns `before` into the draft, if one is needed.
fn write(
    service: &Service,
    family: IpFamily,
    draft: &Draft<'_>,
    before: Option<&EndpointSlice>,
) -> Option<Write> {
    let wanted_labels = facts::labels(
        service,
        &[
            (label::SLICE_SERVICE, facts::name(&service.metadata)),
            (label::SLICE_MANAGED_BY, MANAGED_BY),
        ],
    );
    let ports: Vec<EndpointPort> = draft
        .ports
        .iter()
        .map(|port| EndpointPort {
            name: Some(port.name.clone()),
            protocol: Some(port.protocol.clone()),
            port: Some(port.port),
            app_protocol: port.app_protocol.clone(),
        })
        .collect();
    let Some(before) = before else {
        return Some(Write::Create(EndpointSlice {
            metadata: ObjectMeta {
                generate_name: Some(format!("{}-", facts::name(&service.metadata))),
                namespace: service.metadata.namespace.clone(),
                labels: Some(wanted_labels),
                owner_references: Some(vec![facts::owner(service)]),
                ..ObjectMeta::default()
            },
            address_type: family.as_str().to_owned(),
            endpoints: Some(draft.endpoints.clone()),
            ports: Some(ports),
        }));
    };
    let mut after = before.clone();
    after.metadata.labels = Some(wanted_labels);
    after.metadata.owner_references = Some(vec![facts::owner(service)]);
    let same = before.metadata.labels == after.metadata.labels
        && before.metadata.owner_references == after.metadata.owner_references
        && ports_of(before) == draft.ports
        && before.endpoints.as_deref().unwrap_or_default() == draft.endpoints.as_slice();
    after.endpoints = Some(draft.endpoints.clone());
    after.ports = Some(ports);
    (!same).then_some(Write::Update(after))
}

/// Names of the Services that own slices of ours in a list, for those that have no Service any more.
pub fn services_of<'a>(slices: impl Iterator<Item = &'a EndpointSlice>) -> BTreeSet<&'a str> {
    slices.filter_map(service_of).collect()
}

/// Name of the Service that a slice of ours belongs to.
pub fn service_of(slice: &EndpointSlice) -> Option<&str> {
    let labels = slice.metadata.labels.as_ref()?;
    let ours = labels.get(label::SLICE_MANAGED_BY).map(String::as_str) == Some(MANAGED_BY);
    labels
        .get(label::SLICE_SERVICE)
        .map(String::as_str)
        .filter(|_| ours)
}

#[cfg(test)]
mod tests;
