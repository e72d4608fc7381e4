//! `roadstead speaker`: announces addresses from this node and maps them to endpoints.

use std::process::ExitCode;

use ipnet::IpNet;
use speaker::Config;

use crate::{
    Failure,
    connect::{Scope, Server, host_name, stop_signal},
};

/// Flags of `roadstead speaker`.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    server: Server,
    /// Name of this machine's Node object; without it the host's name
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,
    #[command(flatten)]
    network: Network,
}

/// What the speaker knows of networks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Network {
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
    /// Port of the proxier's /healthz and /livez on all addresses; 0 answers nowhere
    #[arg(long, value_name = "PORT", default_value_t = 10_256)]
    healthz_port: u16,
}

impl Network {
    /// With these ranges of ClusterIPs, unless the user named some.
    pub(crate) fn with_cluster_ips(mut self, ranges: Vec<IpNet>) -> Self {
        if self.service_cluster_ip_range.is_empty() {
            self.service_cluster_ip_range = ranges;
        }
        self
    }
}

pub(crate) async fn main(flags: Flags) -> Result<ExitCode, Failure> {
    let node = flags.node_name.map_or_else(host_name, Ok)?;
    let client = flags.server.client().await?;
    let config = config(&flags.server.scope, flags.network, &node);
    speaker::run(client, config, stop_signal()?).await?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn config(scope: &Scope, network: Network, node: &str) -> Config {
    Config {
        config_namespace: scope.config_namespace.clone(),
        lb_class: scope.lb_class.clone(),
        ignore_exclude_label: network.ignore_exclude_lb,
        pod_networks: network.cluster_cidr,
        service_networks: network.service_cluster_ip_range,
        exclude_interfaces: network.exclude_interfaces,
        heartbeat_port: network.heartbeat_port,
        proxier: !network.no_proxier,
        healthz_port: network.healthz_port,
        ..Config::for_node(node)
    }
}
