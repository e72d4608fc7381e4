//! Heartbeats over UDP.
//!
//! Owns a socket and an OS thread of its own: a heartbeat that waits for rule loading would be a false death. Feeds
//! `speaker_membership::Membership`, carries out its outputs, decides nothing.
//!
//! ```text
//! start(config) -> (Handle, watch of View)      handle.update(Peers), the newest counts
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::Instant,
};

use api_model::{NodeName, Time};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};
use speaker_l2::Mac;
use speaker_membership::{Config, Input, Membership, Output};
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

/// Datagrams taken before a deadline is looked at again.
const DATAGRAM_BATCH: usize = 256;
/// A heartbeat is far shorter; longer datagrams are none.
const DATAGRAM_BYTES: usize = 1500;

/// Whom to send heartbeats to, and what this node announces with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peers {
    /// The other nodes, each with the address its speaker listens on.
    pub addresses: BTreeMap<NodeName, IpAddr>,
    /// Hardware addresses of this node.
    pub macs: BTreeSet<Mac>,
}

/// Who is there, as this node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Nodes to count as alive, this one included.
    pub alive: BTreeSet<NodeName>,
    /// Absence means something: the start-up window is over. Before, nothing is announced.
    pub settled: bool,
    /// Hardware addresses of the other speakers.
    pub fellows: BTreeSet<Mac>,
}

/// Feeds the thread. Dropping it tells the peers that this node leaves, and ends the thread.
#[derive(Debug)]
pub struct Handle {
    mailbox: Arc<Mutex<Mailbox>>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Mailbox {
    peers: Option<Peers>,
    stop: bool,
}

impl Handle {
    /// Replaces the peers.
    pub fn update(&self, peers: Peers) {
        self.post(|mailbox| mailbox.peers = Some(peers));
    }

    fn post(&self, change: impl FnOnce(&mut Mailbox)) {
        change(&mut self.mailbox.lock().unwrap_or_else(PoisonError::into_inner));
        // A full pipe means that the thread is already going to look.
        let _ = io::Write::write(&mut &self.wake, &[1]);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.post(|mailbox| mailbox.stop = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts the thread in the network namespace of the calling one, listening on `port` of every address.
pub fn start(config: Config, port: u16) -> io::Result<(Handle, watch::Receiver<View>)> {
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let (view, receiver) = watch::channel(View::default());
    let mailbox = Arc::new(Mutex::new(Mailbox::default()));
    let (socket, ipv6) = listen(port)?;
    let heart = Heart {
        membership: Membership::new(config),
        socket,
        ipv6,
        port,
        woken,
        mailbox: mailbox.clone(),
        view,
        start: Instant::now(),
        addresses: BTreeMap::new(),
    };
    let thread = std::thread::Builder::new()
        .name("membership".into())
        .spawn(move || heart.run())?;
    Ok((
        Handle {
            mailbox,
            wake,
            thread: Some(thread),
        },
        receiver,
    ))
}

/// One socket for both families; on a kernel without IPv6, for IPv4 alone.
fn listen(port: u16) -> io::Result<(UdpSocket, bool)> {
    let open = |domain: Domain, address: SocketAddr| -> io::Result<UdpSocket> {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if domain == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket.into())
    };
    match open(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, port).into()) {
        Ok(socket) => Ok((socket, true)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => Ok((
            open(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, port).into())?,
            false,
        )),
    }
}

struct Heart {
    membership: Membership,
    socket: UdpSocket,
    ipv6: bool,
    port: u16,
    woken: UnixStream,
    mailbox: Arc<Mutex<Mailbox>>,
    view: watch::Sender<View>,
    start: Instant,
    addresses: BTreeMap<NodeName, IpAddr>,
}

impl Heart {
    fn now(&self) -> Time {
        Time::from_start(self.start.elapsed())
    }

    fn run(mut self) {
        let mut out = Vec::new();
        loop {
            // Datagrams first: a late wake-up must not bury a peer whose heartbeat waits in the socket.
            self.read_datagrams(&mut out);
            let go_on = self.read_mailbox(&mut out);
            let now = self.now();
            self.membership.handle(now, Input::Tick, &mut out);
            if !go_on {
                self.membership.handle(now, Input::Leave, &mut out);
            }
            self.carry_out(&mut out);
            self.show();
            if !go_on {
                return;
            }
            self.wait();
        }
    }

    fn wait(&self) {
        let timeout = self
            .membership
            .next_deadline()
            .map_or(PollTimeout::NONE, |due| {
                let millis = due.since(self.now()).as_millis();
                PollTimeout::try_from(millis.saturating_add(u128::from(millis > 0)))
                    .unwrap_or(PollTimeout::MAX)
            });
        let mut fds =
            [self.socket.as_fd(), self.woken.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = poll(&mut fds, timeout);
    }

    fn read_datagrams(&mut self, out: &mut Vec<Output>) {
        let mut buffer = [0; DATAGRAM_BYTES];
        for _ in 0..DATAGRAM_BATCH {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, _)) => {
                    let now = self.now();
                    let bytes = buffer.get(..length).unwrap_or_default();
                    self.membership.handle(now, Input::Datagram(bytes), out);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP error of an earlier datagram: that peer's silence says the same.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => {
                    error!(%error, "heartbeats can't be read");
                    return;
                }
            }
        }
    }

    fn read_mailbox(&mut self, out: &mut Vec<Output>) -> bool {
        let mut drain = [0; 64];
        while io::Read::read(&mut &self.woken, &mut drain).is_ok_and(|read| read > 0) {}
        let (peers, stop) = {
            let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            (mailbox.peers.take(), mailbox.stop)
        };
        if let Some(peers) = peers {
            let now = self.now();
            let macs = peers.macs.iter().map(|mac| mac.0).collect();
            self.membership.handle(now, Input::Macs(macs), out);
            let names = peers.addresses.keys().cloned().collect();
            self.addresses = peers.addresses;
            self.membership.handle(now, Input::Peers(names), out);
        }
        !stop
    }

    fn carry_out(&mut self, out: &mut Vec<Output>) {
        for output in out.drain(..) {
            match output {
                Output::Send { to, datagram } => {
                    let Some(address) = self.addresses.get(&to) else {
                        continue;
                    };
                    let address = match (self.ipv6, address) {
                        (true, IpAddr::V4(v4)) => IpAddr::V6(v4.to_ipv6_mapped()),
                        (true | false, address) => *address,
                    };
                    if let Err(error) = self.socket.send_to(&datagram, (address, self.port)) {
                        debug!(%error, %to, "a heartbeat was not sent");
                    }
                }
                Output::MemberUp { node, reason } => info!(%node, %reason, "speaker is up"),
                Output::MemberDown { node, reason } => warn!(%node, %reason, "speaker is down"),
                Output::Settled => info!("start-up window is over"),
                Output::MacsChanged { node } => debug!(%node, "speaker has other interfaces"),
            }
        }
    }

    fn show(&self) {
        let view = View {
            alive: self.membership.alive(),
            settled: self.membership.settled(),
            fellows: self.membership.fellow_macs().into_iter().map(Mac).collect(),
        };
        self.view.send_if_modified(|shown| {
            let differs = *shown != view;
            if differs {
                *shown = view;
            }
            differs
        });
    }
}
