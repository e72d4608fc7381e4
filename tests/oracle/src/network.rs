//! The recorded network, rebuilt: a switch, the client, the upstream router, nodes, and pods on point-to-point links.
//!
//! Owns namespaces, links and routes; all below the lab's own namespaces, so that nothing is left. Never programs a Service.
//!
//! The client routes what isn't a node's through the first node; the upstream router holds every Service address as its
//! own, so that what leaves a node untouched is answered there.

use std::{collections::BTreeMap, fs, io::ErrorKind};

use api_model::IpFamily;
use ipnet::IpNet;
use lab::{Result, error::Doing as _, netns::NetNs};

use crate::topology::{Addresses, Pod, Topology};

/// Networks that load balancer addresses and external IPs of the recording come from.
const PUBLIC: [&str; 4] = [
    "203.0.113.0/24",
    "198.51.100.0/24",
    "2001:db8:113::/64",
    "2001:db8:51::/64",
];
/// The node that the client sends through.
const GATEWAY: &str = "n1";
/// A pod's next hop; it is on no interface, the neighbour entry is written by hand.
const NEXT_HOP: &str = "169.254.1.1";

/// Namespaces by name: `client`, `upstream`, nodes, pods, `switch`.
#[derive(Debug)]
pub struct Network {
    spaces: BTreeMap<String, NetNs>,
}

impl Network {
    /// Builds it.
    pub fn build(topology: &Topology) -> Result<Self> {
        let mut network = Self {
            spaces: BTreeMap::new(),
        };
        network.switch()?;
        let members = topology.members.iter();
        let hosts = members.filter(|(name, _)| {
            topology.nodes.contains_key(*name) || ["client", "upstream"].contains(&name.as_str())
        });
        for (name, addresses) in hosts {
            let further: Vec<Addresses> = topology.further_addresses(name).collect();
            network.host(name, *addresses, &further)?;
        }
        network.client_routes(topology)?;
        network.upstream_routes(topology)?;
        for name in topology.nodes.keys() {
            network.node(topology, name)?;
        }
        for (name, pod) in &topology.pods {
            network.pod(name, pod)?;
        }
        Ok(network)
    }

    /// A namespace by name.
    ///
    /// # Panics
    /// When the topology names no such host; callers ask for names of [`Topology::namespace_of`].
    pub fn space(&self, name: &str) -> &NetNs {
        self.spaces
            .get(name)
            .expect("the topology's hosts are built")
    }

    fn make(&mut self, name: &str) -> Result<NetNs> {
        let space = NetNs::create(name)?;
        quiet(&space)?;
        self.spaces.insert(name.to_owned(), space.clone());
        Ok(space)
    }

    fn switch(&mut self) -> Result<()> {
        let switch = self.make("switch")?;
        switch.ip("link add br0 type bridge mcast_snooping 0 forward_delay 0\nlink set br0 up\n")
    }

    /// A host with `eth0` on the LAN; its further addresses are never chosen as a source by themselves.
    fn host(&mut self, name: &str, addresses: Addresses, further: &[Addresses]) -> Result<()> {
        let host = self.make(name)?;
        self.space("switch").ip(&format!(
            "link add lan-{name} type veth peer name eth0 netns {name}\n\
             link set lan-{name} master br0 up\n"
        ))?;
        let mut lines = vec![format!(
            "addr add {}/24 dev eth0\naddr add {}/64 dev eth0 nodad\n",
            addresses.v4, addresses.v6
        )];
        lines.extend(further.iter().map(|Addresses { v4, v6 }| {
            format!("addr add {v4}/24 dev eth0\naddr add {v6}/64 dev eth0 nodad preferred_lft 0\n")
        }));
        lines.push("link set eth0 up\n".to_owned());
        host.ip(&lines.concat())
    }

    fn client_routes(&self, topology: &Topology) -> Result<()> {
        let Some(gateway) = topology.members.get(GATEWAY) else {
            return Ok(());
        };
        let mut nets = service_networks(topology);
        nets.extend(
            topology
                .further_addresses(GATEWAY)
                .flat_map(|Addresses { v4, v6 }| {
                    [
                        IpNet::from(std::net::IpAddr::V4(v4)),
                        IpNet::from(std::net::IpAddr::V6(v6)),
                    ]
                }),
        );
        let route = |net: &IpNet| {
            let via = gateway.of(IpFamily::of(net.addr()));
            format!("route add {net} via {via}\n")
        };
        let routes: Vec<String> = nets.iter().map(route).collect();
        self.space("client").ip(&routes.concat())
    }

    fn upstream_routes(&self, topology: &Topology) -> Result<()> {
        let upstream = self.space("upstream");
        upstream.sysctl(&[("ipv6/ip_nonlocal_bind", "1")])?;
        let local = service_networks(topology).into_iter();
        let mut routes: Vec<String> = local
            .map(|net| format!("route add local {net} dev lo\n"))
            .collect();
        routes.extend(nodes(topology).flat_map(|(name, node)| to_pods(topology, name, *node)));
        upstream.ip(&routes.concat())
    }

    fn node(&self, topology: &Topology, name: &str) -> Result<()> {
        let space = self.space(name);
        space.sysctl(&[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")])?;
        let upstream = topology.members.get("upstream");
        let upstream = upstream.expect("a topology without one is refused");
        let mut routes = vec![format!(
            "route add default via {}\nroute add default via {}\n",
            upstream.v4, upstream.v6
        )];
        let others = nodes(topology).filter(|(other, _)| *other != name);
        routes.extend(others.flat_map(|(other, node)| to_pods(topology, other, *node)));
        space.ip(&routes.concat())
    }

    fn pod(&mut self, name: &str, pod: &Pod) -> Result<()> {
        let space = self.make(name)?;
        let node = self.space(&pod.node);
        let Addresses { v4, v6 } = pod.addresses;
        let link = format!("v-{name}");
        node.ip(&format!(
            "link add {link} type veth peer name eth0 netns {name}\nlink set {link} up\n\
             addr add fe80::1/64 dev {link} nodad\n"
        ))?;
        let hardware = node.ip_json(&["link", "show", "dev", &link])?;
        let node_hardware = hardware[0]["address"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let pod_hardware = space.hardware_address()?;
        space.ip(&format!(
            "addr add {v4}/32 dev eth0\naddr add {v6}/128 dev eth0 nodad\nlink set eth0 up\n\
             neigh add {NEXT_HOP} lladdr {node_hardware} dev eth0 nud permanent\n\
             route add default via {NEXT_HOP} dev eth0 onlink\n\
             neigh add fe80::1 lladdr {node_hardware} dev eth0 nud permanent\n\
             route add default via fe80::1 dev eth0\n"
        ))?;
        node.ip(&format!(
            "route add {v4}/32 dev {link}\nneigh add {v4} lladdr {pod_hardware} dev {link} nud permanent\n\
             route add {v6}/128 dev {link}\nneigh add {v6} lladdr {pod_hardware} dev {link} nud permanent\n"
        ))
    }
}

fn nodes(topology: &Topology) -> impl Iterator<Item = (&str, &Addresses)> {
    let members = topology.members.iter();
    let nodes = members.filter(|(name, _)| topology.nodes.contains_key(*name));
    nodes.map(|(name, addresses)| (name.as_str(), addresses))
}

/// Routes to a node's pods.
fn to_pods(topology: &Topology, name: &str, node: Addresses) -> Vec<String> {
    let nets = pod_networks(topology, name).into_iter();
    let route = |net: IpNet| {
        let via = node.of(IpFamily::of(net.addr()));
        format!("route add {net} via {via}\n")
    };
    nets.map(route).collect()
}

fn pod_networks(topology: &Topology, node: &str) -> Vec<IpNet> {
    let spec = topology.nodes.get(node).and_then(|node| node.spec.as_ref());
    let words = spec.iter().flat_map(|spec| spec.pod_cidrs.iter().flatten());
    words.filter_map(|word| word.parse().ok()).collect()
}

fn service_networks(topology: &Topology) -> Vec<IpNet> {
    let public = PUBLIC
        .iter()
        .map(|net| net.parse().expect("constants are networks"));
    public
        .chain(topology.service_networks.iter().copied())
        .collect()
}

/// Settings of every host: nothing is dropped or delayed but by rules.
fn quiet(space: &NetNs) -> Result<()> {
    space.sysctl(&[
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv6/conf/default/accept_ra", "0"),
        ("ipv4/icmp_ratelimit", "0"),
        ("ipv6/icmp/ratelimit", "0"),
        ("ipv4/tcp_max_syn_backlog", "16384"),
        ("ipv4/ip_local_port_range", "33000 60999"),
    ])?;
    // these belong to one namespace since Linux 6.12 and to the machine before; there they stay as they are
    for (key, value) in [
        ("ipv4/icmp_msgs_per_sec", "1000000"),
        ("ipv4/icmp_msgs_burst", "1000000"),
        ("core/somaxconn", "16384"),
    ] {
        let written = space.run(|| fs::write(format!("/proc/sys/net/{key}"), value));
        match written {
            Err(error)
                if ![ErrorKind::NotFound, ErrorKind::PermissionDenied].contains(&error.kind()) =>
            {
                return Err(error).doing(format!("setting net/{key}"));
            }
            _ => {}
        }
    }
    Ok(())
}
