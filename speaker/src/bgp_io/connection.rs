//! One TCP connection to a peer.
//!
//! Owns the socket from dialling until its last byte has left. Never reads a message. Source: RFC 4271 §8, RFC 2385.

use std::{
    collections::VecDeque,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    pin::Pin,
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use speaker_bgp::PeerConfig;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, Interest},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use crate::sys;

/// How long the last bytes (a NOTIFICATION) may take to leave.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// TTL towards an external peer on the same link: a packet that leaves the link by mistake dies there.
const SINGLE_HOP_TTL: u32 = 1;
/// TTL towards all others.
const MULTI_HOP_TTL: u32 = 64;

type Dialling = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// A connection in one of its three ages.
pub(super) enum Connection {
    Closed,
    Dialling(Dialling),
    Open {
        stream: TcpStream,
        /// What waits to be sent; the core bounds it by sending the next batch of UPDATEs only when this one has left.
        outgoing: VecDeque<u8>,
    },
}

/// What happened on a connection.
#[derive(Debug)]
pub(super) enum Happening {
    /// It is up, with this address of ours.
    Connected { local: IpAddr },
    /// So many octets are in the buffer.
    Read(usize),
    /// Nothing waits to be sent any more.
    Drained,
    /// It could not be opened, or ended; why.
    Ended(String),
}

impl Connection {
    /// Begins to open a connection.
    pub(super) fn dial(config: &PeerConfig) -> Self {
        let remote = SocketAddr::new(config.address, config.port.get());
        let socket = socket(config);
        Self::Dialling(Box::pin(async move { socket?.connect(remote).await }))
    }

    /// Adds bytes to what waits; on a connection that isn't open they are dropped.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if let Self::Open { outgoing, .. } = self {
            outgoing.extend(bytes);
        }
    }

    /// Waits for the next thing to happen, for ever if closed. May be dropped at any time without loss.
    pub(super) async fn next(&mut self, buffer: &mut [u8]) -> Happening {
        match self {
            Self::Closed => std::future::pending().await,
            Self::Dialling(dialling) => match dialling.await.and_then(|stream| {
                let local = stream.local_addr()?.ip();
                Ok((stream, local))
            }) {
                Ok((stream, local)) => {
                    *self = Self::Open {
                        stream,
                        outgoing: VecDeque::new(),
                    };
                    Happening::Connected { local }
                }
                Err(error) => Happening::Ended(error.to_string()),
            },
            Self::Open { stream, outgoing } => exchange(stream, outgoing, buffer)
                .await
                .unwrap_or_else(|error| Happening::Ended(error.to_string())),
        }
    }

    /// Lets what waits leave, tells the peer that no more comes, and closes; `None` if there is nothing to do.
    pub(super) fn linger(self) -> Option<JoinHandle<()>> {
        let Self::Open {
            mut stream,
            outgoing,
        } = self
        else {
            return None;
        };
        let leave = async move {
            let outgoing = Vec::from(outgoing);
            stream.write_all(&outgoing).await?;
            stream.shutdown().await?;
            // closing with unread bytes would send RST, which can overtake the NOTIFICATION
            let mut rest = [0; 4096];
            while stream.read(&mut rest).await? > 0 {}
            Ok::<(), io::Error>(())
        };
        Some(tokio::spawn(async move {
            // whether the peer took it or not, the connection is over
            drop(timeout(LINGER_TIME, leave).await);
        }))
    }
}

async fn exchange(
    stream: &TcpStream,
    outgoing: &mut VecDeque<u8>,
    buffer: &mut [u8],
) -> io::Result<Happening> {
    loop {
        let interest = if outgoing.is_empty() {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        let ready = stream.ready(interest).await?;
        if ready.is_writable() && !outgoing.is_empty() {
            let (front, _) = outgoing.as_slices();
            match stream.try_write(front) {
                Ok(written) => drop(outgoing.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if outgoing.is_empty() {
                return Ok(Happening::Drained);
            }
        }
        if ready.is_readable() {
            match stream.try_read(buffer) {
                Ok(0) => {
                    return Ok(Happening::Ended(
                        "the peer closed the connection".to_owned(),
                    ));
                }
                Ok(octets) => return Ok(Happening::Read(octets)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A socket with everything that must be set before it connects.
fn socket(config: &PeerConfig) -> io::Result<TcpSocket> {
    let domain = Domain::for_address(SocketAddr::new(config.address, 0));
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    let single_hop = !config.is_internal() && !config.ebgp_multi_hop;
    let ttl = if single_hop {
        SINGLE_HOP_TTL
    } else {
        MULTI_HOP_TTL
    };
    if config.address.is_ipv4() {
        socket.set_ttl_v4(ttl)?;
    } else {
        socket.set_unicast_hops_v6(ttl)?;
    }
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = config.source_address {
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    if let Some(password) = &config.password {
        sys::set_tcp_md5(socket.as_fd(), config.address, password.secret().as_bytes())?;
    }
    Ok(TcpSocket::from_std_stream(socket.into()))
}
