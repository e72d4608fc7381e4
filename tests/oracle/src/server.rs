//! Servers of the recorded network: each says its name, its port and who asks, over TCP and UDP.
//!
//! Owns the answer `name|port|source|source-port`. The upstream router answers for every address that is routed to it.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    os::fd::AsRawFd as _,
    sync::Arc,
};

use api_model::IpFamily;
use lab::{Result, error::Doing as _};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use socket2::{Domain, Socket, Type};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest, unix::AsyncFd},
    runtime::Handle,
};

use crate::{attempt::register, network::Network, topology::Topology};

/// Ports of the pods.
const POD_PORTS: [u16; 3] = [8080, 8081, 8082];
/// Port of the nodes' own servers.
const HOST_PORT: u16 = 8080;
/// Nodes with a server of their own.
const HOST_SERVERS: [&str; 2] = ["n1", "n2"];
/// Ports that the upstream router answers on.
const UPSTREAM_PORTS: [u16; 5] = [53, 80, 81, 82, 443];
/// The name that the upstream router answers with.
pub const UPSTREAM: &str = "upstream";
/// Connections that wait to be accepted.
const BACKLOG: i32 = 8192;
/// Bytes that wait in a UDP socket.
const WAITING_BYTES: usize = 16 << 20;

/// Starts all servers; they run until `runtime` ends.
pub fn start(topology: &Topology, network: &Network, runtime: &Handle) -> Result<()> {
    let both = [IpFamily::V4, IpFamily::V6];
    for (name, pod) in topology.pods.iter().filter(|(_, pod)| pod.endpoint) {
        for family in both {
            for port in POD_PORTS {
                let at = SocketAddr::new(pod.addresses.of(family), port);
                serve(network, name, name, at, runtime)?;
            }
        }
    }
    for node in HOST_SERVERS
        .iter()
        .filter(|node| topology.nodes.contains_key(**node))
    {
        if let Some(addresses) = topology.members.get(*node) {
            for family in both {
                let at = SocketAddr::new(addresses.of(family), HOST_PORT);
                serve(network, node, &format!("{node}-host"), at, runtime)?;
            }
        }
    }
    for port in UPSTREAM_PORTS {
        for any in [
            IpAddr::from(Ipv4Addr::UNSPECIFIED),
            Ipv6Addr::UNSPECIFIED.into(),
        ] {
            serve(
                network,
                UPSTREAM,
                UPSTREAM,
                SocketAddr::new(any, port),
                runtime,
            )?;
        }
    }
    Ok(())
}

fn serve(
    network: &Network,
    host: &str,
    name: &str,
    at: SocketAddr,
    runtime: &Handle,
) -> Result<()> {
    let sockets = network.space(host).run(|| bind(at));
    let (tcp, udp) = sockets.doing(format!("serving {name} at {at}"))?;
    let _inside = runtime.enter();
    let tcp = tokio::net::TcpListener::from_std(tcp).doing("serving TCP")?;
    let udp = register(udp, Interest::READABLE).doing("serving UDP")?;
    let name: Arc<str> = format!("{name}|{}", at.port()).into();
    runtime.spawn(serve_tcp(tcp, name.clone()));
    runtime.spawn(serve_udp(udp, name));
    Ok(())
}

fn bind(at: SocketAddr) -> io::Result<(TcpListener, Socket)> {
    let domain = Domain::for_address(at);
    let tcp = Socket::new(domain, Type::STREAM, None)?;
    let udp = Socket::new(domain, Type::DGRAM, None)?;
    tcp.set_reuse_address(true)?;
    if at.is_ipv6() {
        tcp.set_only_v6(true)?;
        udp.set_only_v6(true)?;
        setsockopt(&udp, sockopt::Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(&udp, sockopt::Ipv4PacketInfo, &true)?;
    }
    setsockopt(&udp, sockopt::RcvBufForce, &WAITING_BYTES)
        .or_else(|_| setsockopt(&udp, sockopt::RcvBuf, &WAITING_BYTES))?;
    tcp.bind(&at.into())?;
    udp.bind(&at.into())?;
    tcp.listen(BACKLOG)?;
    tcp.set_nonblocking(true)?;
    udp.set_nonblocking(true)?;
    Ok((tcp.into(), udp))
}

fn answer(name: &str, client: SocketAddr) -> String {
    format!("{name}|{}|{}", client.ip().to_canonical(), client.port())
}

async fn serve_tcp(listener: tokio::net::TcpListener, name: Arc<str>) {
    loop {
        // a connection that was reset before it was taken is the client's affair
        if let Ok((stream, client)) = listener.accept().await {
            tokio::spawn(answer_tcp(stream, answer(&name, client)));
        }
    }
}

/// Answers at once, and again whenever it is asked, until the client ends the connection.
async fn answer_tcp(mut stream: tokio::net::TcpStream, text: String) {
    let mut question = [0; 64];
    while stream.write_all(text.as_bytes()).await.is_ok()
        && stream
            .read(&mut question)
            .await
            .is_ok_and(|length| length > 0)
    {}
}

async fn serve_udp(socket: AsyncFd<Socket>, name: Arc<str>) {
    while let Ok(mut guard) = socket.readable().await {
        let done = guard.try_io(|socket| {
            loop {
                // other errors are what a client's host said about an earlier answer
                if let Err(error) = echo(socket.get_ref(), &name)
                    && error.kind() == io::ErrorKind::WouldBlock
                {
                    return Err(error);
                }
            }
        });
        let _: std::result::Result<io::Result<()>, _> = done;
    }
}

/// Answers one datagram from the address that it came for.
fn echo(socket: &Socket, name: &str) -> io::Result<()> {
    let mut question = [0; 64];
    let mut space = nix::cmsg_space!([u8; 128]);
    let mut parts = [io::IoSliceMut::new(&mut question)];
    let fd = socket.as_raw_fd();
    let received =
        recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut space), MsgFlags::MSG_DONTWAIT)?;
    let Some(from) = received.address else {
        return Ok(());
    };
    let client = from
        .as_sockaddr_in()
        .map(|v4| SocketAddr::from((v4.ip(), v4.port())))
        .or_else(|| from.as_sockaddr_in6().map(|v6| (v6.ip(), v6.port()).into()));
    let Some(client) = client else {
        return Ok(());
    };
    let text = answer(name, client);
    let parts = [io::IoSlice::new(text.as_bytes())];
    let flags = MsgFlags::MSG_DONTWAIT;
    let control = received.cmsgs()?.find(|it| {
        matches!(
            it,
            ControlMessageOwned::Ipv4PacketInfo(_) | ControlMessageOwned::Ipv6PacketInfo(_)
        )
    });
    match control {
        Some(ControlMessageOwned::Ipv4PacketInfo(mut info)) => {
            info.ipi_ifindex = 0;
            info.ipi_spec_dst = info.ipi_addr;
            sendmsg(
                fd,
                &parts,
                &[ControlMessage::Ipv4PacketInfo(&info)],
                flags,
                Some(&from),
            )?;
        }
        Some(ControlMessageOwned::Ipv6PacketInfo(mut info)) => {
            info.ipi6_ifindex = 0;
            sendmsg(
                fd,
                &parts,
                &[ControlMessage::Ipv6PacketInfo(&info)],
                flags,
                Some(&from),
            )?;
        }
        _ => {
            sendmsg(fd, &parts, &[], flags, Some(&from))?;
        }
    }
    Ok(())
}
