//! The table at the end: every Service, who announces it, and who reached it. All of it measured once more.

use std::net::{IpAddr, SocketAddr};

use api_model::Protocol;
use comfy_table::{Table, presets};
use k8s_openapi::api::core::v1::Service;
use kube::{ResourceExt as _, api::ListParams};

use super::reach::holder;
use crate::{cluster::Cluster, look, netns::NetNs, outcome::Outcome, probe, topology};

/// Connections behind each number of the table.
const TRIES: usize = 20;

/// One row for each Service of the demo, by name.
pub(super) async fn of_services(cluster: &Cluster) -> Outcome<Table> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "SERVICE",
        "TYPE",
        "CLUSTER-IP",
        "EXTERNAL-IP",
        "PORTS",
        "ANNOUNCED BY",
        "REACHED",
    ]);
    let services = look::services(&cluster.client)
        .list(&ListParams::default())
        .await?;
    for service in services {
        table.add_row(row(cluster, &service));
    }
    Ok(table)
}

fn row(cluster: &Cluster, service: &Service) -> [String; 7] {
    let spec = service.spec.as_ref();
    let kind = spec.and_then(|spec| spec.type_.clone()).unwrap_or_default();
    let external = look::external_ips(service);
    // reached first: it is what makes the client ask who holds the address
    let reached = reached(cluster, service, &external);
    let announced: Vec<String> = external
        .iter()
        .map(|address| announced(cluster, *address))
        .collect();
    [
        service.name_any(),
        kind,
        words(&look::cluster_ips(service)),
        words(&external),
        ports(service),
        announced.join("\n"),
        reached,
    ]
}

fn words(addresses: &[IpAddr]) -> String {
    addresses
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

fn ports(service: &Service) -> String {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_ref());
    let ports = ports.into_iter().flatten().map(|port| {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let node_port = port.node_port.map(|node_port| format!(":{node_port}"));
        format!("{}{}/{protocol}", port.port, node_port.unwrap_or_default())
    });
    ports.collect::<Vec<_>>().join("\n")
}

fn announced(cluster: &Cluster, address: IpAddr) -> String {
    let holder = holder(cluster, address).unwrap_or_else(|unmet| unmet.seen);
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let hops = cluster
        .router
        .as_ref()
        .and_then(|router| router.routes().remove(&format!("{address}/{bits}")));
    let node = |hop: IpAddr| {
        let is = |number: &u8| {
            [
                topology::node_v4(*number).into(),
                topology::node_v6(*number).into(),
            ]
            .contains(&hop)
        };
        (1..=topology::NODES)
            .find(is)
            .map_or_else(|| hop.to_string(), |number| format!("n{number}"))
    };
    let hops: Vec<String> = hops.into_iter().flatten().map(node).collect();
    if hops.is_empty() {
        format!("L2 {holder}")
    } else {
        format!("L2 {holder}, BGP {}", hops.join(" "))
    }
}

fn reached(cluster: &Cluster, service: &Service, external: &[IpAddr]) -> String {
    let topology = &cluster.topology;
    let ask = |from: &NetNs, address: IpAddr, port: u16| {
        let tally = probe::ask_many(from, Protocol::Tcp, SocketAddr::new(address, port), TRIES);
        format!("{}/{TRIES}", tally.answered())
    };
    let mut lines: Vec<String> = external
        .iter()
        .map(|address| {
            let lan = ask(&topology.client, *address, 80);
            let behind = cluster
                .router
                .as_ref()
                .map(|_| ask(&topology.outside, *address, 80));
            let behind = behind.map(|behind| format!(", behind the router {behind}"));
            format!("LAN {lan}{}", behind.unwrap_or_default())
        })
        .collect();
    if external.is_empty() {
        let node_port = look::node_port(service);
        let cluster_ip = look::cluster_ips(service).first().copied();
        lines.extend(node_port.map(|port| {
            format!(
                "LAN {}",
                ask(&topology.client, topology::node_v4(3).into(), port)
            )
        }));
        lines.extend(
            cluster_ip.map(|address| format!("node {}", ask(&topology.nodes[2].ns, address, 80))),
        );
    }
    lines.join("\n")
}
