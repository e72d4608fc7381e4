//! What a speaker is told on its command line.

use api_model::NodeName;
use ipnet::IpNet;

/// Settings of one speaker.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the Node object of this machine.
    pub node: NodeName,
    /// Namespace of pools, advertisements and peers.
    pub config_namespace: String,
    /// `--lb-class`: serve only Services of this class; without it only those without a class.
    pub lb_class: Option<String>,
    /// Announce also from nodes that carry `node.kubernetes.io/exclude-from-external-load-balancers`.
    pub ignore_exclude_label: bool,
    /// Networks of all pods of the cluster: sources inside them count as pods. When empty, the podCIDRs of all nodes.
    pub pod_networks: Vec<IpNet>,
    /// Ranges that ClusterIPs come from.
    pub service_networks: Vec<IpNet>,
    /// Interfaces that are never announced on, as whole names or with `*` at the end.
    pub exclude_interfaces: Vec<String>,
    /// UDP port of the heartbeats between speakers.
    pub heartbeat_port: u16,
    /// Whether this speaker programs the kernel. Without, another proxy (kube-proxy) carries the packets.
    pub proxier: bool,
    /// Port of the proxier's `/healthz` and `/livez` on all addresses; 0 answers nowhere.
    pub healthz_port: u16,
}

impl Config {
    /// The defaults of the command line for one node.
    pub fn for_node(node: &str) -> Self {
        Self {
            node: node.into(),
            config_namespace: api_types::names::DEFAULT_CONFIG_NAMESPACE.to_owned(),
            lb_class: None,
            ignore_exclude_label: false,
            pod_networks: Vec::new(),
            service_networks: Vec::new(),
            exclude_interfaces: Vec::new(),
            heartbeat_port: 7946,
            proxier: true,
            healthz_port: 10_256,
        }
    }
}
