//! `topology.yaml`: who is who on the recorded network.
//!
//! Owns names and addresses. Never makes a namespace (`network` does).

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use api_model::IpFamily;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use serde::Deserialize;

/// The topology of this repository, for folders without one.
pub const OWN: &str = include_str!("../proxier/topology.yaml");

/// Both addresses of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Addresses {
    /// IPv4.
    #[serde(rename = "IPv4")]
    pub v4: Ipv4Addr,
    /// IPv6.
    #[serde(rename = "IPv6")]
    pub v6: Ipv6Addr,
}

impl Addresses {
    /// The one of a family.
    pub fn of(&self, family: IpFamily) -> IpAddr {
        match family {
            IpFamily::V4 => self.v4.into(),
            IpFamily::V6 => self.v6.into(),
        }
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Pod {
    /// Its node.
    pub node: String,
    /// Its addresses.
    #[serde(flatten)]
    pub addresses: Addresses,
    /// Whether a server runs in it.
    pub endpoint: bool,
}

#[derive(Debug, Deserialize)]
struct Lan {
    members: BTreeMap<String, Addresses>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    service_cluster_ip_range: String,
    kube_proxy: KubeProxy,
    lan: Lan,
    pods: BTreeMap<String, Pod>,
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct KubeProxy {
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: String,
}

/// The network as it was recorded.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Addresses on the LAN by name; `n1-second` is a second address of n1.
    pub members: BTreeMap<String, Addresses>,
    /// Pods by name.
    pub pods: BTreeMap<String, Pod>,
    /// Node objects by name.
    pub nodes: BTreeMap<String, Node>,
    /// Ranges of Service addresses.
    pub service_networks: Vec<IpNet>,
    /// Sources that count as pods.
    pub pod_networks: Vec<IpNet>,
}

/// What can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// Not the format.
    #[error("topology.yaml: {0}")]
    Format(#[from] serde_yaml_ng::Error),
    /// Not a network.
    #[error("topology.yaml: {0:?} is not a network")]
    Network(String),
    /// A host that the runner needs.
    #[error("topology.yaml: no {0}")]
    Missing(&'static str),
}

impl Topology {
    /// Reads the file's text.
    pub fn read(text: &str) -> Result<Self, TopologyError> {
        let file: File = serde_yaml_ng::from_str(text)?;
        for needed in ["client", "upstream"] {
            if !file.lan.members.contains_key(needed) {
                return Err(TopologyError::Missing(needed));
            }
        }
        let named = |node: Node| Some((node.metadata.name.clone()?, node));
        Ok(Self {
            members: file.lan.members,
            pods: file.pods,
            nodes: file.nodes.into_iter().filter_map(named).collect(),
            service_networks: networks(&file.service_cluster_ip_range)?,
            pod_networks: networks(&file.kube_proxy.cluster_cidr)?,
        })
    }

    /// The namespace that a member or pod lives in; nothing for a name that can't ask.
    pub fn namespace_of(&self, name: &str) -> Option<String> {
        if self.pods.contains_key(name) || self.nodes.contains_key(name) || name == "upstream" {
            Some(name.to_owned())
        } else if name.starts_with("client") && self.members.contains_key(name) {
            Some("client".to_owned())
        } else {
            None
        }
    }

    /// Addresses of a member or pod.
    pub fn addresses(&self, name: &str) -> Option<Addresses> {
        let member = self.members.get(name).copied();
        member.or_else(|| self.pods.get(name).map(|pod| pod.addresses))
    }

    /// The name of an address, or the address itself as text.
    pub fn name_of(&self, address: IpAddr) -> String {
        let family = IpFamily::of(address);
        let pods = self.pods.iter().map(|(name, pod)| (name, pod.addresses));
        let all = self.members.iter().map(|(name, a)| (name, *a)).chain(pods);
        let found = all
            .filter(|(_, addresses)| addresses.of(family) == address)
            .map(|(name, _)| name.clone())
            .next();
        found.unwrap_or_else(|| address.to_string())
    }

    /// Further addresses of a node or of the client: members named `<host>…` that are no host of their own.
    pub fn further_addresses<'a>(&'a self, host: &'a str) -> impl Iterator<Item = Addresses> + 'a {
        let of_host = move |(name, _): &(&String, &Addresses)| {
            name.as_str() != host && name.starts_with(host) && !self.nodes.contains_key(*name)
        };
        self.members.iter().filter(of_host).map(|(_, a)| *a)
    }
}

fn networks(text: &str) -> Result<Vec<IpNet>, TopologyError> {
    let parse = |word: &str| {
        let net = word.trim().parse();
        net.map_err(|_| TopologyError::Network(word.to_owned()))
    };
    text.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_topology_names_hosts_by_their_addresses() {
        let topology = Topology::read(OWN).expect("it is ours");
        let name = |text: &str| topology.name_of(text.parse().expect("an address"));
        assert_eq!(name("172.31.0.11"), "n1");
        assert_eq!(name("fd31:1::11"), "n1-second");
        assert_eq!(name("fd00:10:244:2::10"), "p2a");
        assert_eq!(name("192.0.2.1"), "192.0.2.1");
        let namespaces = ["client2", "p1c", "n3", "upstream", "n1-second", "p9z"]
            .map(|name| topology.namespace_of(name));
        let some = |name: &str| Some(name.to_owned());
        assert_eq!(
            namespaces,
            [
                some("client"),
                some("p1c"),
                some("n3"),
                some("upstream"),
                None,
                None
            ]
        );
        assert_eq!(topology.further_addresses("n1").count(), 1);
        assert_eq!(topology.further_addresses("client").count(), 1);
    }
}
