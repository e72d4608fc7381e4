//! The lab's network: a LAN with three nodes, a client on it, a router, and a client behind the router.
//!
//! ```text
//!  client .200 ──┐                              ┌── n1 .1  pods 10.244.1.0/24, fd00:10:244:1::/64
//!                ├── LAN 192.0.2.0/24, ─────────┼── n2 .2  pods 10.244.2.0/24 …
//!  API .250 ─────┤   2001:db8:2::/64            └── n3 .3  pods 10.244.3.0/24 …
//!                └── router .254 ── 198.51.100.0/24, 2001:db8:51::/64 ── outside .2
//! ```
//!
//! The LAN is a bridge in the lab's own namespace, where the API server listens too. Never knows Services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::{error::Result, netns::NetNs};

/// How many nodes there are.
pub const NODES: u8 = 3;

/// Where the API server listens on the LAN.
pub const API: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 250);

/// The router on the LAN.
pub const ROUTER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
/// The router on the LAN.
pub const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0xfe);

/// The client on the LAN.
pub const CLIENT_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 200);
/// The client on the LAN.
pub const CLIENT_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0xc8);
/// The client behind the router.
pub const OUTSIDE_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The client behind the router.
pub const OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0, 0, 0, 0, 2);

/// A node of the lab.
#[derive(Clone, Debug)]
pub struct Node {
    /// 1 to [`NODES`]; its name is `n` and the number.
    pub number: u8,
    /// Its network.
    pub ns: NetNs,
}

impl Node {
    /// `n1`, `n2` …
    pub fn name(&self) -> String {
        format!("n{}", self.number)
    }

    /// Its addresses on the LAN.
    pub fn addresses(&self) -> [IpAddr; 2] {
        [node_v4(self.number).into(), node_v6(self.number).into()]
    }

    /// Takes its LAN cable out or puts it back, on the switch's side, so that the node's own addresses stay.
    pub fn cable(&self, lan: &NetNs, plugged_in: bool) -> Result<()> {
        let state = if plugged_in { "up" } else { "down" };
        lan.ip(&format!("link set lan-{} {state}", self.name()))
    }
}

/// A node's address on the LAN.
pub fn node_v4(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, number)
}

/// A node's address on the LAN.
pub fn node_v6(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, number.into())
}

/// Address of a pod on a node; host 1 is the node's own end.
pub fn pod_v4(node: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 244, node, host)
}

/// Address of a pod on a node; host 1 is the node's own end.
pub fn pod_v6(node: u8, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x10, 0x244, node.into(), 0, 0, 0, host.into())
}

/// Every namespace of the lab but the pods'.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The switch, and where the API server is.
    pub lan: NetNs,
    /// The nodes, n1 first.
    pub nodes: Vec<Node>,
    /// A host on the LAN.
    pub client: NetNs,
    /// The router between the LAN and the outside.
    pub router: NetNs,
    /// A host behind the router.
    pub outside: NetNs,
}

impl Topology {
    /// Builds it around the calling thread's namespace, which becomes the switch.
    pub fn build() -> Result<Self> {
        let lan = switch()?;
        let nodes = (1..=NODES)
            .map(|number| node(&lan, number))
            .collect::<Result<_>>()?;
        let client = host(&lan, "client", CLIENT_V4, CLIENT_V6)?;
        client.ip(&default_routes(ROUTER_V4, ROUTER_V6))?;
        let router = host(&lan, "router", ROUTER_V4, ROUTER_V6)?;
        let outside = outside(&router)?;
        Ok(Self {
            lan,
            nodes,
            client,
            router,
            outside,
        })
    }

    /// A node by name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name() == name)
    }
}

fn switch() -> Result<NetNs> {
    let lan = NetNs::of_this_thread("lan")?;
    lan.ip(&format!(
        "link set lo up\n\
         link add br0 type bridge mcast_snooping 0 forward_delay 0\n\
         link set br0 up\n\
         addr add {API}/24 dev br0\n\
         addr add 2001:db8:2::fa/64 dev br0 nodad\n"
    ))?;
    Ok(lan)
}

/// A namespace with `eth0` on the LAN
fn host(lan: &NetNs, name: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> Result<NetNs> {
    let host = NetNs::create(name)?;
    lan.ip(&format!(
        "link add lan-{name} type veth peer name eth0 netns {name}\n\
         link set lan-{name} master br0 up\n"
    ))?;
    host.ip(&format!(
        "link set eth0 up\n\
         addr add {v4}/24 dev eth0\n\
         addr add {v6}/64 dev eth0 nodad\n"
    ))?;
    Ok(host)
}

fn default_routes(v4: Ipv4Addr, v6: Ipv6Addr) -> String {
    format!("route add default via {v4}\nroute add default via {v6}\n")
}

fn forwards(ns: &NetNs) -> Result<()> {
    ns.sysctl(&[
        ("ipv4/ip_forward", "1"),
        ("ipv6/conf/all/forwarding", "1"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/conf/eth0/rp_filter", "0"),
    ])
}

fn node(lan: &NetNs, number: u8) -> Result<Node> {
    let ns = host(lan, &format!("n{number}"), node_v4(number), node_v6(number))?;
    forwards(&ns)?;
    let others = (1..=NODES).filter(|other| *other != number);
    let mut routes = vec![default_routes(ROUTER_V4, ROUTER_V6)];
    routes.extend(others.map(|other| {
        let (v4, v6) = (node_v4(other), node_v6(other));
        format!(
            "route add 10.244.{other}.0/24 via {v4}\nroute add fd00:10:244:{other}::/64 via {v6}\n"
        )
    }));
    ns.ip(&routes.concat())?;
    Ok(Node { number, ns })
}

fn outside(router: &NetNs) -> Result<NetNs> {
    forwards(router)?;
    router.sysctl(&[
        ("ipv4/fib_multipath_hash_policy", "1"),
        ("ipv6/fib_multipath_hash_policy", "1"),
    ])?;
    let outside = NetNs::create("outside")?;
    router.ip("link add eth1 type veth peer name eth0 netns outside\n\
         link set eth1 up\n\
         addr add 198.51.100.1/24 dev eth1\n\
         addr add 2001:db8:51::1/64 dev eth1 nodad\n")?;
    outside.ip(&format!(
        "link set eth0 up\n\
         addr add {OUTSIDE_V4}/24 dev eth0\n\
         addr add {OUTSIDE_V6}/64 dev eth0 nodad\n\
         route add default via 198.51.100.1\n\
         route add default via 2001:db8:51::1\n"
    ))?;
    Ok(outside)
}
