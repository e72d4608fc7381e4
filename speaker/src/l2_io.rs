//! The layer 2 responder: packet sockets, interfaces, multicast groups.
//!
//! Owns an OS thread of its own, so that neither rule loading nor a decode of ten thousand objects delays an answer. Feeds
//! `speaker_l2::announcer`, carries out its outputs, decides nothing.
//!
//! ```text
//! L2::start(config) -> (Handle, events)      handle.update(Snapshot), the newest counts
//! ```
//! Events wait in a bounded queue; when it is full the event is dropped and counted, the announcement stands.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv6Addr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use api_model::Time;
use nix::{
    ifaddrs::getifaddrs,
    net::if_::{InterfaceFlags, if_nametoindex},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use socket2::{Domain, Protocol, Socket, Type};
use speaker_l2::{
    InterfaceIndex, InterfaceName, Mac,
    announcer::{Announcer, Input, Interface, Output, VipSpec},
};
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use crate::sys;

/// Events that wait for the reader.
const QUEUE: usize = 4096;
/// How often the interfaces are looked at again.
const RESCAN: Duration = Duration::from_secs(1);
/// Frames taken from one socket before the other has its turn.
const FRAME_BATCH: usize = 64;
/// No ARP or Neighbour Discovery frame that we answer is longer.
const FRAME_BYTES: usize = 2048;

/// What is to be announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Addresses, and where.
    pub vips: BTreeMap<IpAddr, VipSpec>,
    /// Hardware addresses of the other speakers: their announcements are no conflict.
    pub fellows: BTreeSet<Mac>,
}

/// What happened on the links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The VIP is announced and answered for on this interface.
    Announced(IpAddr, InterfaceName),
    /// The VIP is silent on this interface.
    Withdrawn(IpAddr, InterfaceName),
    /// Another station claims the VIP.
    Conflict(IpAddr, InterfaceName, Mac),
    /// The interfaces that can announce, with their hardware addresses.
    Interfaces(BTreeMap<InterfaceName, Mac>),
}

/// Settings.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Interfaces that are never used, whole names or with `*` at the end.
    pub exclude: Vec<String>,
}

/// Feeds the responder. Dropping it withdraws everything and ends the thread.
#[derive(Debug)]
pub struct Handle {
    mailbox: Arc<Mutex<Mailbox>>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Mailbox {
    snapshot: Option<Snapshot>,
    stop: bool,
}

impl Handle {
    /// Replaces what is to be announced.
    pub fn update(&self, snapshot: Snapshot) {
        self.post(|mailbox| mailbox.snapshot = Some(snapshot));
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

/// Starts the responder in the network namespace of the calling thread. Needs `CAP_NET_RAW`.
pub fn start(config: Config) -> io::Result<(Handle, mpsc::Receiver<Event>)> {
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_nonblocking(true)?;
    let (events, receiver) = mpsc::channel(QUEUE);
    let mailbox = Arc::new(Mutex::new(Mailbox::default()));
    let responder = Responder {
        config,
        arp: sys::packet_socket(sys::ETH_P_ARP)?,
        ndp: sys::packet_socket(sys::ETH_P_IPV6)?,
        groups: Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP)).ok(),
        woken,
        mailbox: mailbox.clone(),
        events,
        start: Instant::now(),
        announcer: Announcer::default(),
        names: BTreeMap::new(),
        rescan_at: Time::ZERO,
    };
    let thread = std::thread::Builder::new()
        .name("l2".into())
        .spawn(move || responder.run())?;
    Ok((
        Handle {
            mailbox,
            wake,
            thread: Some(thread),
        },
        receiver,
    ))
}

struct Responder {
    config: Config,
    arp: OwnedFd,
    ndp: OwnedFd,
    /// Joins groups, so that MLD reports them to snooping switches; `None` on a kernel without IPv6.
    groups: Option<Socket>,
    woken: UnixStream,
    mailbox: Arc<Mutex<Mailbox>>,
    events: mpsc::Sender<Event>,
    start: Instant,
    announcer: Announcer,
    names: BTreeMap<InterfaceIndex, Interface>,
    rescan_at: Time,
}

impl Responder {
    fn now(&self) -> Time {
        Time::from_start(self.start.elapsed())
    }

    fn run(mut self) {
        let mut out = Vec::new();
        loop {
            if self.now() >= self.rescan_at {
                self.rescan(&mut out);
            }
            if !self.read_mailbox(&mut out) {
                break;
            }
            self.read_frames(&mut out);
            if self
                .announcer
                .next_deadline()
                .is_some_and(|due| due <= self.now())
            {
                let now = self.now();
                self.announcer.handle(now, Input::Tick, &mut out);
            }
            self.carry_out(&mut out);
            self.wait();
        }
        let now = self.now();
        self.announcer
            .handle(now, Input::Vips(BTreeMap::new()), &mut out);
        self.carry_out(&mut out);
    }

    /// Sleeps until a frame, a letter or a deadline comes.
    fn wait(&self) {
        let due = self
            .announcer
            .next_deadline()
            .unwrap_or(self.rescan_at)
            .min(self.rescan_at);
        let millis = due.since(self.now()).as_millis();
        // Rounded up: waking too early would spin.
        let timeout = PollTimeout::try_from(millis.saturating_add(u128::from(millis > 0)))
            .unwrap_or(PollTimeout::MAX);
        let mut fds = [self.arp.as_fd(), self.ndp.as_fd(), self.woken.as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = poll(&mut fds, timeout);
    }

    /// Takes the newest snapshot; false when the handle is gone.
    fn read_mailbox(&mut self, out: &mut Vec<Output>) -> bool {
        let mut drain = [0; 64];
        while io::Read::read(&mut &self.woken, &mut drain).is_ok_and(|read| read > 0) {}
        let (snapshot, stop) = {
            let mut mailbox = self.mailbox.lock().unwrap_or_else(PoisonError::into_inner);
            (mailbox.snapshot.take(), mailbox.stop)
        };
        if let Some(snapshot) = snapshot {
            let now = self.now();
            self.announcer
                .handle(now, Input::Fellows(snapshot.fellows), out);
            self.announcer.handle(now, Input::Vips(snapshot.vips), out);
        }
        !stop
    }

    fn read_frames(&mut self, out: &mut Vec<Output>) {
        let mut buffer = [0; FRAME_BYTES];
        for ndp in [false, true] {
            for _ in 0..FRAME_BATCH {
                let socket = if ndp { &self.ndp } else { &self.arp };
                match sys::receive(socket.as_fd(), &mut buffer) {
                    Ok(Some((length, interface))) => {
                        let Some(bytes) = buffer.get(..length) else {
                            continue;
                        };
                        let now = self.now();
                        self.announcer
                            .handle(now, Input::Frame { interface, bytes }, out);
                    }
                    Ok(None) => break,
                    Err(error) => {
                        error!(%error, "a packet socket can't be read");
                        break;
                    }
                }
                // An answer does not wait for the rest of the batch.
                self.carry_out(out);
            }
        }
    }

    fn carry_out(&mut self, out: &mut Vec<Output>) {
        for output in out.drain(..) {
            match output {
                Output::Send { interface, bytes } => {
                    if let Err(error) = sys::send(self.arp.as_fd(), interface, &bytes) {
                        debug!(%error, interface = interface.0, "a frame was not sent");
                    }
                }
                Output::JoinGroup { interface, group } => self.join(interface, group, true),
                Output::LeaveGroup { interface, group } => self.join(interface, group, false),
                Output::Announced { vip, interface } => {
                    let name = self.name(interface);
                    info!(%vip, interface = &*name, reason = "Announced", "address announced");
                    self.tell(Event::Announced(vip, name));
                }
                Output::Withdrawn { vip, interface } => {
                    let name = self.name(interface);
                    info!(%vip, interface = &*name, reason = "Withdrawn", "address withdrawn");
                    self.tell(Event::Withdrawn(vip, name));
                }
                Output::Conflict {
                    vip,
                    interface,
                    mac,
                } => {
                    let name = self.name(interface);
                    warn!(%vip, interface = &*name, %mac, reason = "Conflict", "another station claims the address");
                    self.tell(Event::Conflict(vip, name, mac));
                }
            }
        }
    }

    fn name(&self, interface: InterfaceIndex) -> InterfaceName {
        self.names.get(&interface).map_or_else(
            || format!("if{}", interface.0).into(),
            |interface| interface.name.clone(),
        )
    }

    fn tell(&self, event: Event) {
        if let Err(error) = self.events.try_send(event) {
            debug!(%error, "an event of layer 2 was dropped");
        }
    }

    fn join(&self, interface: InterfaceIndex, group: Ipv6Addr, join: bool) {
        let Some(socket) = &self.groups else { return };
        let done = if join {
            socket.join_multicast_v6(&group, interface.0)
        } else {
            socket.leave_multicast_v6(&group, interface.0)
        };
        if let Err(error) = done {
            debug!(%error, %group, interface = interface.0, join, "multicast group not changed");
        }
    }

    fn rescan(&mut self, out: &mut Vec<Output>) {
        self.rescan_at = self.now() + RESCAN;
        let found = match interfaces(&self.config.exclude) {
            Ok(found) => found,
            Err(error) => {
                error!(%error, "interfaces can't be listed");
                return;
            }
        };
        if found == self.names {
            return;
        }
        // Withdrawals are still told with the former names.
        let now = self.now();
        self.announcer
            .handle(now, Input::Interfaces(found.clone()), out);
        self.carry_out(out);
        self.names.clone_from(&found);
        let macs = found
            .into_values()
            .map(|interface| (interface.name, interface.mac));
        self.tell(Event::Interfaces(macs.collect()));
    }
}

/// Interfaces that can announce: up, running, broadcast, with an Ethernet address; not loopback, NOARP or slave of a bond.
fn interfaces(exclude: &[String]) -> io::Result<BTreeMap<InterfaceIndex, Interface>> {
    let mut found = BTreeMap::new();
    for entry in getifaddrs()? {
        let Some(mac) = entry
            .address
            .as_ref()
            .and_then(|address| address.as_link_addr()?.addr())
        else {
            continue;
        };
        let needed = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_BROADCAST;
        let forbidden = InterfaceFlags::IFF_LOOPBACK
            | InterfaceFlags::IFF_NOARP
            | InterfaceFlags::IFF_POINTOPOINT
            | InterfaceFlags::IFF_SLAVE;
        let name = entry.interface_name.as_str();
        if !entry.flags.contains(needed)
            || entry.flags.intersects(forbidden)
            || excluded(name, exclude)
        {
            continue;
        }
        if let Ok(index) = if_nametoindex(name) {
            found.insert(
                InterfaceIndex(index),
                Interface {
                    name: name.into(),
                    mac: Mac(mac),
                },
            );
        }
    }
    Ok(found)
}

fn excluded(name: &str, patterns: &[String]) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        })
}
