//! Which Endpoints object a Service should have.
//!
//! Owns the planner; pure. The object is for readers that know nothing newer: one family (the Service's first), no terminating
//! pods, at most [`MAX_ADDRESSES`]. A Service whose selector matches nothing has an empty one.
//!
//! Source: core/v1 Endpoints (deprecated since 1.33), and what the 1.37 controller was seen to write.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Pod, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use crate::facts::{self, OfferedPort};

/// Addresses in one object; more are cut off and the annotation [`OVER_CAPACITY`] says so.
pub const MAX_ADDRESSES: usize = 1000;
/// Annotation of an object that does not hold all addresses.
pub const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// Label that says who writes the object.
pub const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Its value.
pub const CONTROLLER: &str = "endpoint-controller";

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// The object is not there yet.
    Create(Endpoints),
    /// The object changes.
    Update(Endpoints),
}

/// An address in the order that readers get.
#[derive(Clone, Debug)]
struct Found {
    ready: bool,
    address: EndpointAddress,
    ports: Vec<OfferedPort>,
}

/// The write that gives a Service its Endpoints, if one is needed.
pub fn plan(service: &Service, pods: &[&Pod], existing: Option<&Endpoints>) -> Option<Write> {
    if facts::selector(service).is_none() || service.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (found, cut) = addresses(service, pods);
    let portless = service
        .spec
        .iter()
        .flat_map(|spec| spec.ports.iter().flatten())
        .next()
        .is_none();
    let subsets = subsets(found, portless);
    let labels = facts::labels(service, &[(MANAGED_BY, CONTROLLER)]);
    let Some(before) = existing else {
        let metadata = ObjectMeta {
            name: service.metadata.name.clone(),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: cut.then(over_capacity),
            ..ObjectMeta::default()
        };
        return Some(Write::Create(Endpoints {
            metadata,
            subsets: Some(subsets),
        }));
    };
    let mut after = before.clone();
    after.metadata.labels = Some(labels);
    let annotations = after.metadata.annotations.get_or_insert_default();
    annotations.remove(OVER_CAPACITY);
    if cut {
        annotations.extend(over_capacity());
    }
    let same = before.metadata.labels == after.metadata.labels
        && before.metadata.annotations.clone().unwrap_or_default() == *annotations
        && before.subsets.as_deref().unwrap_or_default() == subsets.as_slice();
    after.subsets = Some(subsets);
    (!same).then_some(Write::Update(after))
}

fn over_capacity() -> BTreeMap<String, String> {
    BTreeMap::from([(OVER_CAPACITY.to_owned(), "truncated".to_owned())])
}

/// The addresses, ready ones first, and whether some were cut off.
fn addresses(service: &Service, pods: &[&Pod]) -> (Vec<Found>, bool) {
    let families = facts::families(service);
    let anyway = facts::publishes_not_ready(service);
    let mut found: Vec<(bool, std::net::IpAddr, Found)> = pods
        .iter()
        .filter(|pod| facts::selects(service, pod))
        .filter(|pod| !facts::has_ended(pod) && (anyway || !facts::is_terminating(pod)))
        .filter(|pod| facts::node(pod).is_some())
        .filter_map(|pod| {
            let ip = facts::address(pod, *families.first()?)?;
            let ready = anyway || facts::is_ready(pod);
            let address = EndpointAddress {
                ip: ip.to_string(),
                hostname: facts::hostname(pod, service),
                node_name: facts::node(pod).map(str::to_owned),
                target_ref: Some(facts::target(pod)),
            };
            let ports = facts::offered_ports(service, pod);
            Some((
                !ready,
                ip,
                Found {
                    ready,
                    address,
                    ports,
                },
            ))
        })
        .collect();
    found.sort_by_key(|(unready, ip, _)| (*unready, *ip));
    let cut = found.len() > MAX_ADDRESSES;
    found.truncate(MAX_ADDRESSES);
    (found.into_iter().map(|(_, _, found)| found).collect(), cut)
}

/// Addresses with the same ports, together. An address without any port of the Service is left out, unless the Service has none.
fn subsets(found: Vec<Found>, portless: bool) -> Vec<EndpointSubset> {
    let mut by_ports: BTreeMap<Vec<OfferedPort>, (Vec<EndpointAddress>, Vec<EndpointAddress>)> =
        BTreeMap::new();
    for Found {
        ready,
        address,
        mut ports,
    } in found
    {
        ports.sort();
        let (good, bad) = by_ports.entry(ports).or_default();
        if ready { good } else { bad }.push(address);
    }
    by_ports
        .into_iter()
        .filter(|(ports, _)| portless || !ports.is_empty())
        .map(|(ports, (good, bad))| EndpointSubset {
            addresses: (!good.is_empty()).then_some(good),
            not_ready_addresses: (!bad.is_empty()).then_some(bad),
            ports: (!ports.is_empty()).then(|| ports.into_iter().map(port).collect()),
        })
        .collect()
}

fn port(offered: OfferedPort) -> EndpointPort {
    EndpointPort {
        name: Some(offered.name).filter(|name| !name.is_empty()),
        protocol: Some(offered.protocol),
        port: offered.port,
        app_protocol: offered.app_protocol,
    }
}

#[cfg(test)]
mod tests;
