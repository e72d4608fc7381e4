//! One connection: opened, and followed until it is answered, refused or given up.
//!
//! Owns the reading of errors: ICMP from the socket's error queue, a reset from the socket. Never retries.

use std::{
    io::{self, Read as _},
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd as _,
    time::Duration,
};

use api_model::Protocol;
use nix::{
    errno::Errno,
    sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt},
};
use socket2::{Domain, Socket, Type};
use tokio::{
    io::{Interest, unix::AsyncFd},
    time::{Instant, timeout_at},
};

use crate::{expectation::How, server::UPSTREAM};

/// How long an answer may take; longer than the first repetition of a SYN.
pub const PATIENCE: Duration = Duration::from_millis(1600);
/// `SO_EE_ORIGIN_ICMP`
const ORIGIN_ICMP: u8 = 2;
/// `SO_EE_ORIGIN_ICMP6`
const ORIGIN_ICMP6: u8 = 3;

/// What to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Address to ask from, where the host has several.
    pub source: Option<IpAddr>,
    /// Where to.
    pub target: SocketAddr,
    /// How.
    pub protocol: Protocol,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A pod answered.
    Served {
        /// Its name.
        pod: String,
        /// Its port.
        port: u16,
        /// Who it thinks asked.
        source: IpAddr,
    },
    /// The upstream router answered.
    Passed {
        /// Who it thinks asked.
        source: IpAddr,
    },
    /// Refused.
    Rejected(How),
    /// Nothing came back.
    Dropped,
    /// Something that none of the above is.
    Odd(String),
}

/// A connection under way.
#[derive(Debug)]
pub enum Opened {
    /// To be followed.
    Waiting(Socket),
    /// Over already.
    Done(Reply),
}

impl Attempt {
    /// Opens it from the namespace of the calling thread.
    pub fn open(&self) -> Opened {
        match self.start() {
            Ok(opened) => opened,
            Err(error) => Opened::Done(Reply::Odd(format!("no socket: {error}"))),
        }
    }

    fn start(&self) -> io::Result<Opened> {
        let kind = match self.protocol {
            Protocol::Tcp => Type::STREAM,
            Protocol::Udp => Type::DGRAM,
            Protocol::Sctp => return Err(io::ErrorKind::Unsupported.into()),
        };
        let socket = Socket::new(Domain::for_address(self.target), kind, None)?;
        socket.set_nonblocking(true)?;
        if self.target.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?;
        } else {
            setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?;
        }
        if self.protocol == Protocol::Tcp {
            // the end is a reset, so that no port waits
            socket.set_linger(Some(Duration::ZERO))?;
        }
        if let Some(source) = self.source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        if let Err(error) = socket.connect(&self.target.into())
            && error.raw_os_error() != Some(Errno::EINPROGRESS as i32)
        {
            return Ok(Self::failed(socket, &error));
        }
        if self.protocol == Protocol::Udp
            && let Err(error) = socket.send(b"who?")
        {
            return Ok(Self::failed(socket, &error));
        }
        Ok(Opened::Waiting(socket))
    }

    /// A rule of the host itself that drops or rejects makes the call fail with EPERM; what it rejected with, if it did,
    /// comes by the error queue.
    fn failed(socket: Socket, error: &io::Error) -> Opened {
        if error.raw_os_error() == Some(Errno::EPERM as i32) {
            return Opened::Waiting(socket);
        }
        Opened::Done(refused(&socket, error))
    }
}

/// Follows an open connection until `deadline`.
pub async fn follow(socket: Socket, deadline: Instant) -> Reply {
    let interest = Interest::READABLE | Interest::ERROR;
    let socket = match register(socket, interest) {
        Ok(socket) => socket,
        Err(error) => return Reply::Odd(format!("not followed: {error}")),
    };
    let followed = timeout_at(deadline, async {
        loop {
            let mut guard = match socket.ready(interest).await {
                Ok(guard) => guard,
                Err(error) => return Reply::Odd(format!("not followed: {error}")),
            };
            match look(socket.get_ref()) {
                Some(reply) => return reply,
                None => guard.clear_ready(),
            }
        }
    });
    followed.await.unwrap_or(Reply::Dropped)
}

/// Puts a socket into the run time's epoll.
#[expect(
    deprecated,
    reason = "its successor is not safe code; a socket that is owned keeps its descriptor open"
)]
pub(crate) fn register(socket: Socket, interest: Interest) -> io::Result<AsyncFd<Socket>> {
    AsyncFd::with_interest(socket, interest)
}

fn look(socket: &Socket) -> Option<Reply> {
    let mut text = [0; 256];
    match (&*socket).read(&mut text) {
        Ok(length) => {
            let text = text.get(..length).unwrap_or_default();
            let text = String::from_utf8_lossy(text);
            Some(read_answer(&text).unwrap_or_else(|| Reply::Odd(format!("answer {text:?}"))))
        }
        // an ICMP message may lie in the queue without an error of the socket
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            queued(socket).map(Reply::Rejected)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
        Err(error) => Some(refused(socket, &error)),
    }
}

fn read_answer(text: &str) -> Option<Reply> {
    let mut words = text.trim_end().split('|');
    let (pod, port, source) = (words.next()?, words.next()?, words.next()?);
    let source = source.parse().ok()?;
    if pod == UPSTREAM {
        return Some(Reply::Passed { source });
    }
    Some(Reply::Served {
        pod: pod.to_owned(),
        port: port.parse().ok()?,
        source,
    })
}

/// Why a socket failed: what the queue says, or what the error is.
fn refused(socket: &Socket, error: &io::Error) -> Reply {
    if let Some(how) = queued(socket) {
        return Reply::Rejected(how);
    }
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ECONNREFUSED | Errno::ECONNRESET) => Reply::Rejected(How::Reset),
        Some(Errno::EPERM) => Reply::Dropped,
        _ => Reply::Rejected(How::Other(error.to_string())),
    }
}

/// The message in the error queue.
fn queued(socket: &Socket) -> Option<How> {
    let mut space = nix::cmsg_space!([u8; 256]);
    let mut data = [0; 512];
    let mut parts = [io::IoSliceMut::new(&mut data)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let fd = socket.as_raw_fd();
    let message = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut space), flags).ok()?;
    let mut errors = message.cmsgs().ok()?.filter_map(|control| {
        if let ControlMessageOwned::Ipv4RecvErr(error, _)
        | ControlMessageOwned::Ipv6RecvErr(error, _) = control
        {
            Some(error)
        } else {
            None
        }
    });
    let error = errors.next()?;
    Some(match (error.ee_origin, error.ee_type, error.ee_code) {
        (ORIGIN_ICMP, 3, 3) | (ORIGIN_ICMP6, 1, 4) => How::PortUnreachable,
        (ORIGIN_ICMP, kind, code) => How::Other(format!("icmp-{kind}-{code}")),
        (ORIGIN_ICMP6, kind, code) => How::Other(format!("icmp6-{kind}-{code}")),
        _ => How::Other(format!("local error {}", error.ee_errno)),
    })
}
