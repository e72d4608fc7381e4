//! A pod of the lab: a namespace behind its node, and a server that answers `name|client-address` over TCP and UDP.
//!
//! Never knows Kubernetes objects; `kubelet` does.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    sync::Arc,
};

use tokio::{io::AsyncWriteExt as _, sync::Semaphore, task::JoinSet};

use crate::{
    error::{Doing as _, Result},
    netns::NetNs,
    topology::{Node, pod_v4, pod_v6},
};

/// Connections that one pod answers at a time; more wait in the kernel's backlog.
const CONNECTIONS: usize = 512;

/// A running pod; dropping it ends its server, and its network when no connection holds it.
#[derive(Debug)]
pub struct Pod {
    /// Its network.
    pub ns: NetNs,
    /// IPv4 and IPv6 address.
    pub addresses: [IpAddr; 2],
    server: JoinSet<()>,
}

impl Pod {
    /// A pod on `node` with the given last part of the address (2 to 254), serving these ports.
    pub fn start(node: &Node, name: &str, host: u8, ports: &[u16]) -> Result<Self> {
        let link = format!("pod{host}");
        let ns = NetNs::create(&format!("{}-{link}", node.name()))?;
        connect(node, &ns, &link, host)?;
        let mut server = JoinSet::new();
        for port in ports {
            let (tcp, udp) = ns
                .run(|| bind(*port))
                .doing(format!("serving in pod {name}"))?;
            let tcp = tokio::net::TcpListener::from_std(tcp).doing("serving TCP in a pod")?;
            let udp = tokio::net::UdpSocket::from_std(udp).doing("serving UDP in a pod")?;
            server.spawn(serve_tcp(tcp, name.into()));
            server.spawn(serve_udp(udp, name.into()));
        }
        let addresses = [
            pod_v4(node.number, host).into(),
            pod_v6(node.number, host).into(),
        ];
        Ok(Self {
            ns,
            addresses,
            server,
        })
    }

    /// Ends its server and takes its link away: whoever still sends to it gets nothing.
    pub fn stop(mut self) {
        self.server.abort_all();
        // the other end goes with it; that the link is there is not this function's concern
        let _ = self.ns.ip("link del eth0");
        self.ns.forget_name();
    }
}

/// The network of the running pod with this address.
pub fn namespace_of(address: Ipv4Addr) -> Result<NetNs> {
    let [_, _, node, host] = address.octets();
    NetNs::named(&format!("n{node}-pod{host}"))
}

/// A point-to-point link to the node, without a bridge: what a pod sees as its caller is what the node made of it.
fn connect(node: &Node, pod: &NetNs, link: &str, host: u8) -> Result<()> {
    let (v4, v6) = (pod_v4(node.number, host), pod_v6(node.number, host));
    let (node_v4, node_v6) = (pod_v4(node.number, 1), pod_v6(node.number, 1));
    let pod_name = pod.name();
    node.ns.ip(&format!(
        "link add {link} type veth peer name eth0 netns {pod_name}\n\
         link set {link} up\n\
         addr add {node_v4}/32 dev {link}\n\
         addr add {node_v6}/128 dev {link} nodad\n\
         route add {v4}/32 dev {link}\n\
         route add {v6}/128 dev {link}\n"
    ))?;
    pod.ip(&format!(
        "link set eth0 up\n\
         addr add {v4}/32 dev eth0\n\
         addr add {v6}/128 dev eth0 nodad\n\
         route add {node_v4}/32 dev eth0 scope link\n\
         route add default via {node_v4} dev eth0 onlink\n\
         route add {node_v6}/128 dev eth0\n\
         route add default via {node_v6} dev eth0\n"
    ))
}

fn bind(port: u16) -> std::io::Result<(TcpListener, UdpSocket)> {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let (tcp, udp) = (TcpListener::bind(any)?, UdpSocket::bind(any)?);
    tcp.set_nonblocking(true)?;
    udp.set_nonblocking(true)?;
    Ok((tcp, udp))
}

fn answer(name: &str, client: SocketAddr) -> String {
    format!("{name}|{}\n", client.ip().to_canonical())
}

async fn serve_tcp(listener: tokio::net::TcpListener, name: Arc<str>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
        let Ok((mut stream, client)) = listener.accept().await else {
            continue;
        };
        let name = Arc::clone(&name);
        tokio::spawn(async move {
            // a client that has gone is its own affair
            let _ = stream.write_all(answer(&name, client).as_bytes()).await;
            drop(permit);
        });
    }
}

async fn serve_udp(socket: tokio::net::UdpSocket, name: Arc<str>) {
    let mut question = [0; 512];
    loop {
        if let Ok((_, client)) = socket.recv_from(&mut question).await {
            let _ = socket
                .send_to(answer(&name, client).as_bytes(), client)
                .await;
        }
    }
}
