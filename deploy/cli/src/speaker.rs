//! `roadstead speaker`: announces addresses from this node and maps them to endpoints.

use std::process::ExitCode;

use ipnet::IpNet;
use speaker::Config;

use crate::{
    Failure,
    connect::{Server, host_name, stop_signal},
};

/// Flags of `roadstead speaker`.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    server: Server,
    /// Name of this machine's Node object; without it the host's name
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,
    /// Networks of all pods, comma-separated; without it the podCIDRs of all Node objects
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    cluster_cidr: Vec<IpNet>,
    /// Ranges of ClusterIPs, comma-separated: an address of them that no Service has is dropped
    #[arg(long, value_name = "CIDR,…", value_delimiter = ',')]
    service_cluster_ip_range: Vec<IpNet>,
    /// Interfaces never to announce on, comma-separated; a name may end in `*`
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    exclude_interfaces: Vec<String>,
    /// Announce also from nodes labelled node.kubernetes.io/exclude-from-external-load-balancers
    #[arg(long)]
    ignore_exclude_lb: bool,
    /// UDP port of the heartbeats between speakers
    #[arg(long, value_name = "PORT", default_value_t = 7946)]
    heartbeat_port: u16,
    /// Only announce; another proxy such as kube-proxy carries the packets
    #[arg(long)]
    no_proxier: bool,
}

pub(crate) async fn main(flags: Flags) -> Result<ExitCode, Failure> {
    let node = flags.node_name.clone().map_or_else(host_name, Ok)?;
    let client = flags.server.client().await?;
    speaker::run(client, config(&flags, &node), stop_signal()?).await?;
    Ok(ExitCode::SUCCESS)
}

fn config(flags: &Flags, node: &str) -> Config {
    Config {
        config_namespace: flags.server.scope.config_namespace.clone(),
        lb_class: flags.server.scope.lb_class.clone(),
        ignore_exclude_label: flags.ignore_exclude_lb,
        pod_networks: flags.cluster_cidr.clone(),
        service_networks: flags.service_cluster_ip_range.clone(),
        exclude_interfaces: flags.exclude_interfaces.clone(),
        heartbeat_port: flags.heartbeat_port,
        proxier: !flags.no_proxier,
        ..Config::for_node(node)
    }
}
