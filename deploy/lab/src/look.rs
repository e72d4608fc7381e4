//! What the API server says about a Service, in the words of the demo's steps.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use api_types::{AddressRecord, ServiceBGPStatus, ServiceL2Status};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::{
    error::{Doing as _, Error, Result},
    netns::NetNs,
    outcome::{Outcome, eventually},
    pod,
};

/// Namespace of the demo's Services and pods.
pub const NAMESPACE: &str = "demo";

/// The demo's Services.
pub fn services(client: &Client) -> Api<Service> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// The demo's pods.
pub fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// A Service by name.
pub async fn service(client: &Client, name: &str) -> Result<Service> {
    services(client)
        .get(name)
        .await
        .doing(format!("reading service {name}"))
}

/// Addresses in `status.loadBalancer`.
pub fn external_ips(service: &Service) -> Vec<IpAddr> {
    let status = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let ingress = status
        .and_then(|balancer| balancer.ingress.as_ref())
        .into_iter()
        .flatten();
    ingress
        .filter_map(|ingress| ingress.ip.as_deref()?.parse().ok())
        .collect()
}

/// `spec.clusterIPs`, without `None`.
pub fn cluster_ips(service: &Service) -> Vec<IpAddr> {
    let spec = service.spec.as_ref();
    let addresses = spec
        .and_then(|spec| spec.cluster_ips.as_ref())
        .into_iter()
        .flatten();
    addresses
        .filter_map(|address| address.parse().ok())
        .collect()
}

/// Node port of the first port.
pub fn node_port(service: &Service) -> Option<u16> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    u16::try_from(ports.first()?.node_port?).ok()
}

/// Waits until the Service has as many external addresses as families; returns them and how long it took.
pub async fn await_external_ips(
    client: &Client,
    name: &str,
) -> Outcome<(Vec<IpAddr>, std::time::Duration)> {
    let expected = format!("service {name} with an external address of each family");
    eventually(&expected, || async {
        let service = service(client, name)
            .await
            .map_err(|error| error.to_string())?;
        let families = service
            .spec
            .as_ref()
            .and_then(|spec| spec.ip_families.as_ref())
            .map_or(1, Vec::len);
        let addresses = external_ips(&service);
        if addresses.len() == families {
            return Ok(addresses);
        }
        let conditions = service
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let conditions: Vec<String> = conditions
            .iter()
            .map(|condition| {
                format!(
                    "{}={} {}: {}",
                    condition.type_, condition.status, condition.reason, condition.message
                )
            })
            .collect();
        Err(format!("{addresses:?}, conditions {conditions:?}"))
    })
    .await
}

/// The first external address of a Service, with port 80.
pub async fn vip(client: &Client, name: &str) -> Outcome<SocketAddr> {
    let (addresses, _) = await_external_ips(client, name).await?;
    let first = addresses.first().copied();
    let none = || Error::because(format!("reading service {name}"), "no external address");
    Ok(SocketAddr::new(first.ok_or_else(none)?, 80))
}

/// Pods in the Service's slices, each with its `ready`.
pub async fn endpoints(client: &Client, name: &str) -> Result<BTreeMap<String, bool>> {
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), NAMESPACE);
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
    let slices = slices
        .list(&of_service)
        .await
        .doing(format!("reading the slices of {name}"))?;
    let endpoints = slices
        .items
        .into_iter()
        .flat_map(|slice| slice.endpoints.into_iter().flatten());
    Ok(endpoints
        .filter_map(|endpoint| {
            let pod = endpoint.target_ref?.name?;
            Some((pod, endpoint.conditions?.ready.unwrap_or(true)))
        })
        .collect())
}

/// Addresses that are held, each with the names of its holders.
pub async fn records(client: &Client) -> Result<BTreeMap<String, Vec<String>>> {
    let records: Api<AddressRecord> = Api::all(client.clone());
    let records = records
        .list(&ListParams::default())
        .await
        .doing("reading the address records")?;
    let holders = |record: &AddressRecord| {
        record
            .spec
            .holders
            .iter()
            .map(|holder| holder.name.clone())
            .collect()
    };
    Ok(records
        .items
        .iter()
        .map(|record| (record.spec.address.clone(), holders(record)))
        .collect())
}

/// A pod's network and IPv4 address.
pub async fn pod_network(client: &Client, name: &str) -> Result<(NetNs, IpAddr)> {
    let pod = pods(client)
        .get(name)
        .await
        .doing(format!("reading pod {name}"))?;
    let address = pod
        .status
        .as_ref()
        .and_then(|status| status.pod_ip.as_deref());
    let address = address.unwrap_or_default().parse();
    let address: std::net::Ipv4Addr =
        address.doing(format!("reading the address of pod {}", pod.name_any()))?;
    Ok((pod::namespace_of(address)?, address.into()))
}

/// Who announces a Service, as the status objects say: layer 2 first, then BGP by node.
pub async fn announcers(client: &Client, name: &str) -> Result<Vec<String>> {
    const DOING: &str = "reading who announces";
    let all = ListParams::default();
    let is_its = |namespace: Option<&str>, service: Option<&str>| {
        namespace == Some(NAMESPACE) && service == Some(name)
    };
    let layer_two: Api<ServiceL2Status> = Api::all(client.clone());
    let layer_two = layer_two
        .list(&all)
        .await
        .doing(DOING)?
        .items
        .into_iter()
        .filter_map(|object| object.status);
    let mut announcers: Vec<String> = layer_two
        .filter(|status| {
            is_its(
                status.service_namespace.as_deref(),
                status.service_name.as_deref(),
            )
        })
        .map(|status| format!("L2 {}", status.node.unwrap_or_default()))
        .collect();
    let bgp: Api<ServiceBGPStatus> = Api::all(client.clone());
    let bgp = bgp
        .list(&all)
        .await
        .doing(DOING)?
        .items
        .into_iter()
        .filter_map(|object| object.status);
    let mut by_bgp: Vec<String> = bgp
        .filter(|status| {
            is_its(
                status.service_namespace.as_deref(),
                status.service_name.as_deref(),
            )
        })
        .map(|status| {
            format!(
                "BGP {} to {}",
                status.node.unwrap_or_default(),
                status.peers.join(" ")
            )
        })
        .collect();
    announcers.sort();
    by_bgp.sort();
    announcers.extend(by_bgp);
    Ok(announcers)
}
