//! What this node says on its links: announcements, answers, defences, silence.
//!
//! Owns, per VIP and interface, whether it is held, its burst of announcements, and the solicited-node groups that must be
//! joined. Never chooses the holder (see [`crate::candidate`]), never opens a socket: it is given frames and gives frames.
//!
//! A VIP that becomes held is announced at once and every 1.1 s for 5 s, each time as gratuitous request and reply (IPv4)
//! or as unsolicited Neighbour Advertisement (IPv6): neighbours may ignore the first ones (see [`crate::arp`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use api_model::Time;

use crate::{
    Dropped, InterfaceIndex, InterfaceName, Mac, arp,
    candidate::Selection,
    conflict::{Guard, Verdict},
    ndp,
};

#[cfg(test)]
mod tests;

/// Time between two announcements of one burst. A little over one second, because Linux accepts one change of a
/// neighbour entry a second (`locktime`).
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_millis(1100);
/// Announcements in a burst: at 0, 1.1, 2.2, 3.3 and 4.4 s.
pub const ANNOUNCE_COUNT: u8 = 5;
/// Announcements of one [`Announcer::handle`] call; the others are due at once, after the shell has looked for questions.
pub const ANNOUNCE_BATCH: usize = 256;

/// A VIP of the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipSpec {
    /// Interfaces that may announce it.
    pub interfaces: Selection<InterfaceName>,
    /// This node holds it. False: known, but silent.
    pub announce: bool,
}

/// An interface that can announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, for the `interfaces` list of an advertisement.
    pub name: InterfaceName,
    /// Its hardware address: what answers on it carry.
    pub mac: Mac,
}

/// A fact for the announcer.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The interfaces there are now; replaces the former ones.
    Interfaces(BTreeMap<InterfaceIndex, Interface>),
    /// The VIPs there are now; replaces the former ones.
    Vips(BTreeMap<IpAddr, VipSpec>),
    /// Hardware addresses of the other speakers: their announcements are no conflict.
    Fellows(BTreeSet<Mac>),
    /// A frame that arrived.
    Frame {
        /// Where it arrived.
        interface: InterfaceIndex,
        /// From the Ethernet header on.
        bytes: &'a [u8],
    },
    /// [`Announcer::next_deadline`] is reached.
    Tick,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Put this frame on the wire.
    Send {
        /// Where.
        interface: InterfaceIndex,
        /// From the Ethernet header on.
        bytes: Vec<u8>,
    },
    /// Receive this multicast group (and let MLD report it).
    JoinGroup {
        /// Where.
        interface: InterfaceIndex,
        /// A solicited-node group.
        group: Ipv6Addr,
    },
    /// No VIP needs the group any more.
    LeaveGroup {
        /// Where.
        interface: InterfaceIndex,
        /// A solicited-node group.
        group: Ipv6Addr,
    },
    /// The VIP is announced and answered for on this interface from now on.
    Announced {
        /// Address.
        vip: IpAddr,
        /// Where.
        interface: InterfaceIndex,
    },
    /// The VIP is silent on this interface from now on.
    Withdrawn {
        /// Address.
        vip: IpAddr,
        /// Where.
        interface: InterfaceIndex,
    },
    /// Another station claims the VIP; at most one report per VIP and interface in 10 s. It was announced once more.
    Conflict {
        /// Address.
        vip: IpAddr,
        /// Where.
        interface: InterfaceIndex,
        /// Who claims it.
        mac: Mac,
    },
}

/// What was done since the start; the source of the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// ARP replies.
    pub arp_replies: u64,
    /// Solicited Neighbour Advertisements.
    pub ndp_replies: u64,
    /// Gratuitous ARP frames and unsolicited Neighbour Advertisements.
    pub announcements: u64,
    /// Frames by which another station claimed a held VIP.
    pub conflicts: u64,
    /// Frames without an answer, by reason.
    pub dropped: BTreeMap<Dropped, u64>,
}

/// The announcer of one node.
#[derive(Clone, Debug, Default)]
pub struct Announcer {
    interfaces: BTreeMap<InterfaceIndex, Interface>,
    specs: BTreeMap<IpAddr, VipSpec>,
    /// VIPs that are answered for.
    held: BTreeMap<(IpAddr, InterfaceIndex), Burst>,
    /// The `next` of every burst that is not over, in order.
    due: BTreeSet<(Time, IpAddr, InterfaceIndex)>,
    /// How many held VIPs need a group.
    groups: BTreeMap<(InterfaceIndex, Ipv6Addr), usize>,
    guard: Guard,
    counters: Counters,
}

/// The announcements of one VIP on one interface: how many are left, and when the next is due.
#[derive(Clone, Copy, Debug)]
struct Burst {
    left: u8,
    next: Time,
}

impl Announcer {
    /// Takes a fact and appends what follows from it. Never blocks; the same inputs give the same outputs.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Output>) {
        match input {
            Input::Interfaces(interfaces) => self.set_interfaces(interfaces, out),
            Input::Vips(specs) => self.specs = specs,
            Input::Fellows(fellows) => self.guard.set_fellows(fellows),
            Input::Frame { interface, bytes } => {
                if let Err(reason) = self.receive(now, interface, bytes, out) {
                    *self.counters.dropped.entry(reason).or_default() += 1;
                }
                return;
            }
            Input::Tick => {
                self.announce_due(now, out);
                return;
            }
        }
        self.reconcile(now, out);
        self.announce_due(now, out);
    }

    /// When the next [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(time, _, _)| *time)
    }

    /// What was done since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// VIPs that are answered for now, and where.
    pub fn held(&self) -> impl Iterator<Item = (IpAddr, InterfaceIndex)> {
        self.held.keys().copied()
    }

    /// The one place that says whether a VIP may be answered for. The fenced right (a deadline) will be checked here.
    fn may_speak(&self, vip: IpAddr, interface: InterfaceIndex) -> bool {
        self.held.contains_key(&(vip, interface))
    }

    /// An interface that went, or came back with another hardware address, starts anew.
    fn set_interfaces(
        &mut self,
        interfaces: BTreeMap<InterfaceIndex, Interface>,
        out: &mut Vec<Output>,
    ) {
        let stale: Vec<_> = self
            .held
            .keys()
            .filter(|(_, index)| interfaces.get(index) != self.interfaces.get(index))
            .copied()
            .collect();
        for (vip, index) in stale {
            self.withdraw(vip, index, out);
        }
        self.guard
            .set_own(interfaces.values().map(|interface| interface.mac).collect());
        self.interfaces = interfaces;
    }

    /// Makes `held` what the snapshot and the interfaces say: silence first, then the new ones.
    fn reconcile(&mut self, now: Time, out: &mut Vec<Output>) {
        let mut wanted = BTreeSet::new();
        for (vip, spec) in self
            .specs
            .iter()
            .filter(|(vip, spec)| spec.announce && crate::is_announceable(**vip))
        {
            let selected = |interface: &Interface| spec.interfaces.has(&interface.name);
            let chosen = self
                .interfaces
                .iter()
                .filter(|(_, interface)| selected(interface));
            wanted.extend(chosen.map(|(index, _)| (*vip, *index)));
        }
        let gone: Vec<_> = self
            .held
            .keys()
            .filter(|key| !wanted.contains(key))
            .copied()
            .collect();
        for (vip, index) in gone {
            self.withdraw(vip, index, out);
        }
        for (vip, index) in wanted {
            if !self.held.contains_key(&(vip, index)) {
                self.hold(now, vip, index, out);
            }
        }
    }

    fn hold(&mut self, now: Time, vip: IpAddr, interface: InterfaceIndex, out: &mut Vec<Output>) {
        let burst = Burst {
            left: ANNOUNCE_COUNT,
            next: now,
        };
        self.held.insert((vip, interface), burst);
        self.due.insert((now, vip, interface));
        if let IpAddr::V6(v6) = vip {
            let group = ndp::solicited_node(v6);
            let users = self.groups.entry((interface, group)).or_default();
            *users += 1;
            if *users == 1 {
                out.push(Output::JoinGroup { interface, group });
            }
        }
        out.push(Output::Announced { vip, interface });
    }

    fn withdraw(&mut self, vip: IpAddr, interface: InterfaceIndex, out: &mut Vec<Output>) {
        if let Some(burst) = self.held.remove(&(vip, interface)) {
            self.due.remove(&(burst.next, vip, interface));
        }
        self.guard.forget(vip, interface);
        if let IpAddr::V6(v6) = vip {
            let group = ndp::solicited_node(v6);
            if let Some(users) = self.groups.get_mut(&(interface, group)) {
                *users -= 1;
                if *users == 0 {
                    self.groups.remove(&(interface, group));
                    out.push(Output::LeaveGroup { interface, group });
                }
            }
        }
        out.push(Output::Withdrawn { vip, interface });
    }

    fn announce_due(&mut self, now: Time, out: &mut Vec<Output>) {
        for _ in 0..ANNOUNCE_BATCH {
            let Some(&(time, vip, interface)) = self.due.first() else {
                return;
            };
            if time > now {
                return;
            }
            self.due.pop_first();
            self.announce(vip, interface, out);
            if let Some(burst) = self.held.get_mut(&(vip, interface)) {
                burst.left = burst.left.saturating_sub(1);
                burst.next = now + ANNOUNCE_INTERVAL;
                if burst.left > 0 {
                    self.due.insert((burst.next, vip, interface));
                }
            }
        }
    }

    fn announce(&mut self, vip: IpAddr, interface: InterfaceIndex, out: &mut Vec<Output>) {
        let Some(mac) = self
            .interfaces
            .get(&interface)
            .map(|interface| interface.mac)
        else {
            return;
        };
        if !self.may_speak(vip, interface) {
            return;
        }
        let frames = match vip {
            IpAddr::V4(v4) => arp::announcements(mac, v4).to_vec(),
            IpAddr::V6(v6) => vec![ndp::announcement(mac, v6)],
        };
        for bytes in frames {
            self.counters.announcements += 1;
            out.push(Output::Send { interface, bytes });
        }
    }

    fn receive(
        &mut self,
        now: Time,
        interface: InterfaceIndex,
        frame: &[u8],
        out: &mut Vec<Output>,
    ) -> Result<(), Dropped> {
        let own = self
            .interfaces
            .get(&interface)
            .ok_or(Dropped::UnknownInterface)?
            .mac;
        // The EtherType says which parser; both check it again.
        let parsed = match frame.get(12..14) {
            Some([0x08, 0x06]) => Heard::of_arp(&arp::parse(frame, own)?),
            Some([0x86, 0xdd]) => Heard::of_ndp(&ndp::parse(frame, own)?),
            Some(_) => return Err(Dropped::OtherProtocol),
            None => return Err(Dropped::TooShort),
        };
        if self.guard.is_own(parsed.from) {
            return Err(Dropped::Reflected);
        }
        if let Some(vip) = parsed.claims.filter(|vip| self.may_speak(*vip, interface)) {
            match self.guard.judge(now, vip, interface, parsed.from) {
                Verdict::Fellow => return Err(Dropped::Fellow),
                Verdict::Quiet => self.counters.conflicts += 1,
                Verdict::Defend => {
                    self.counters.conflicts += 1;
                    out.push(Output::Conflict {
                        vip,
                        interface,
                        mac: parsed.from,
                    });
                    self.announce(vip, interface, out);
                }
            }
            return Err(Dropped::Conflict);
        }
        let (vip, question) = parsed.asks.ok_or(Dropped::NotARequest)?;
        if !self.may_speak(vip, interface) {
            return Err(Dropped::NotHeld);
        }
        let bytes = match question {
            Question::Arp(request) => {
                self.counters.arp_replies += 1;
                arp::reply(own, &request)
            }
            Question::Ndp(request) => {
                self.counters.ndp_replies += 1;
                ndp::reply(own, &request)
            }
        };
        out.push(Output::Send { interface, bytes });
        Ok(())
    }
}

/// A message of either protocol: what it claims and what it asks.
struct Heard {
    from: Mac,
    claims: Option<IpAddr>,
    asks: Option<(IpAddr, Question)>,
}

enum Question {
    Arp(arp::Message),
    Ndp(ndp::Solicitation),
}

impl Heard {
    /// Every ARP message but a probe claims its sender's address (RFC 5227 §2.4).
    fn of_arp(message: &arp::Message) -> Self {
        let asks = message.operation == arp::Operation::Request && !message.is_announcement();
        Self {
            from: message.sender_mac,
            claims: Some(message.sender)
                .filter(|sender| *sender != Ipv4Addr::UNSPECIFIED)
                .map(IpAddr::V4),
            asks: asks.then_some((IpAddr::V4(message.target), Question::Arp(*message))),
        }
    }

    /// An advertisement claims its target; a solicitation is sent from an address that its sender has.
    fn of_ndp(message: &ndp::Message) -> Self {
        match message {
            ndp::Message::Solicitation(solicitation) => Self {
                from: solicitation.mac,
                claims: solicitation.source.map(IpAddr::V6),
                asks: Some((
                    IpAddr::V6(solicitation.target),
                    Question::Ndp(*solicitation),
                )),
            },
            ndp::Message::Advertisement { target, mac } => Self {
                from: *mac,
                claims: Some(IpAddr::V6(*target)),
                asks: None,
            },
        }
    }
}
