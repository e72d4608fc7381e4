//! Who is alive, from heartbeats.
//!
//! Owns each peer's standing and when the next heartbeat is due. Never believes a datagram that is older than what it has
//! heard (incarnation, then sequence). Source: the measured bounds of the layer 2 design (100 ms, three misses).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api_model::{NodeName, Time};

use crate::{
    DownReason, Ignored, UpReason,
    wire::{Heartbeat, MacOctets},
};

#[cfg(test)]
mod tests;

/// Time between two heartbeats to one peer.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Heartbeats that a peer may miss; with the third it is dead.
pub const MISSES: u32 = 3;
/// Time without a heartbeat after which a peer is dead; also the start-up window.
pub const WINDOW: Duration = Duration::from_millis(300);
/// Peers that are watched and sent to; the first ones in name order. More are left out (full mesh does not go further).
pub const MAX_PEERS: usize = 1000;

/// What does not change while the process runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This node.
    pub me: NodeName,
    /// Number that the speakers of one cluster share; datagrams of others are ignored.
    pub cluster: u64,
    /// Number of this process: larger than that of the node's former processes, such as the wall clock at start in ms.
    pub incarnation: u64,
}

/// A fact for the membership.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The other nodes there are; replaces the former ones. The first of these starts the start-up window.
    Peers(BTreeSet<NodeName>),
    /// Hardware addresses that this node announces with; told to the peers.
    Macs(BTreeSet<MacOctets>),
    /// A datagram that arrived.
    Datagram(&'a [u8]),
    /// [`Membership::next_deadline`] is reached. Give datagrams that wait in the socket first.
    Tick,
    /// This speaker shuts down: tells every peer, then is silent.
    Leave,
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send this datagram.
    Send {
        /// To this peer.
        to: NodeName,
        /// Same for all peers of one round.
        datagram: Arc<[u8]>,
    },
    /// The peer is alive.
    MemberUp {
        /// Who.
        node: NodeName,
        /// Why.
        reason: UpReason,
    },
    /// The peer is dead.
    MemberDown {
        /// Who.
        node: NodeName,
        /// Why.
        reason: DownReason,
    },
    /// The start-up window is over: absence means something from now on, and this node may count on itself.
    Settled,
    /// A live peer announces with other hardware addresses than before.
    MacsChanged {
        /// Who.
        node: NodeName,
    },
}

/// What was received since the start; the source of the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Heartbeats sent.
    pub sent: u64,
    /// Heartbeats believed.
    pub received: u64,
    /// Datagrams ignored, by reason.
    pub ignored: BTreeMap<Ignored, u64>,
}

/// What is known of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Not heard yet.
    Unknown,
    /// Heard within the window.
    Alive,
    /// Not heard within the window, or gone.
    Dead,
}

#[derive(Clone, Debug)]
struct Peer {
    standing: Standing,
    /// When the last heartbeat arrived.
    heard: Time,
    incarnation: u64,
    sequence: u64,
    macs: BTreeSet<MacOctets>,
}

/// The start-up window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// The peers are not known yet.
    Waiting,
    /// Peers are known, the window runs.
    Until(Time),
    /// Over.
    Settled,
}

/// The membership as one node sees it.
#[derive(Clone, Debug)]
pub struct Membership {
    config: Config,
    macs: BTreeSet<MacOctets>,
    peers: BTreeMap<NodeName, Peer>,
    start: Start,
    sequence: u64,
    /// When the next round of heartbeats is due; `None` before the first peers and after leaving.
    next_send: Option<Time>,
    left: bool,
    counters: Counters,
}

impl Membership {
    /// A node that knows nobody yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            macs: BTreeSet::new(),
            peers: BTreeMap::new(),
            start: Start::Waiting,
            sequence: 0,
            next_send: None,
            left: false,
            counters: Counters::default(),
        }
    }

    /// Takes a fact and appends what follows from it. Never blocks; the same inputs give the same outputs.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Output>) {
        match input {
            Input::Peers(peers) => self.set_peers(now, peers, out),
            Input::Macs(macs) => self.macs = macs,
            Input::Datagram(bytes) => {
                if let Err(reason) = self.receive(now, bytes, out) {
                    *self.counters.ignored.entry(reason).or_default() += 1;
                }
            }
            Input::Tick => {}
            Input::Leave => self.leave(out),
        }
        self.expire(now, out);
        self.send_due(now, out);
    }

    /// When the next [`Input::Tick`] is due: the next heartbeat, the next death, or the end of the start-up window.
    pub fn next_deadline(&self) -> Option<Time> {
        let living = self
            .peers
            .values()
            .filter(|peer| peer.standing == Standing::Alive);
        let deaths = living.map(|peer| peer.heard + WINDOW);
        let settling = match self.start {
            Start::Until(time) => Some(time),
            Start::Waiting | Start::Settled => None,
        };
        deaths.chain(settling).chain(self.next_send).min()
    }

    /// True when the start-up window is over. Before that this node must not take a silent peer for dead, nor itself for
    /// the only one: announce nothing.
    pub fn settled(&self) -> bool {
        self.start == Start::Settled
    }

    /// Nodes to count as alive in an election: this one, the peers heard within the window, and during start-up those
    /// not heard yet.
    pub fn alive(&self) -> BTreeSet<NodeName> {
        let counts = |peer: &Peer| match peer.standing {
            Standing::Alive => true,
            Standing::Unknown => !self.settled(),
            Standing::Dead => false,
        };
        let peers = self
            .peers
            .iter()
            .filter(|(_, peer)| counts(peer))
            .map(|(name, _)| name.clone());
        peers.chain([self.config.me.clone()]).collect()
    }

    /// What is known of a peer; `None` for a node that is none.
    pub fn standing(&self, node: &NodeName) -> Option<Standing> {
        self.peers.get(node).map(|peer| peer.standing)
    }

    /// Hardware addresses that the peers announce with, dead ones included: their last announcement may still arrive.
    pub fn fellow_macs(&self) -> BTreeSet<MacOctets> {
        self.peers
            .values()
            .flat_map(|peer| peer.macs.iter().copied())
            .collect()
    }

    /// What was received since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn set_peers(&mut self, now: Time, mut peers: BTreeSet<NodeName>, out: &mut Vec<Output>) {
        peers.remove(&self.config.me);
        let peers: BTreeSet<_> = peers.into_iter().take(MAX_PEERS).collect();
        self.peers.retain(|name, peer| {
            let stays = peers.contains(name);
            if !stays && peer.standing == Standing::Alive {
                out.push(Output::MemberDown {
                    node: name.clone(),
                    reason: DownReason::Removed,
                });
            }
            stays
        });
        for name in peers {
            self.peers.entry(name).or_insert_with(|| Peer {
                standing: Standing::Unknown,
                heard: now,
                incarnation: 0,
                sequence: 0,
                macs: BTreeSet::new(),
            });
        }
        if self.start == Start::Waiting {
            self.start = Start::Until(now + WINDOW);
            self.next_send = (!self.left).then_some(now);
        }
    }

    fn receive(&mut self, now: Time, bytes: &[u8], out: &mut Vec<Output>) -> Result<(), Ignored> {
        let heartbeat = Heartbeat::decode(bytes)?;
        if heartbeat.cluster != self.config.cluster {
            return Err(Ignored::Cluster);
        }
        if heartbeat.node == self.config.me {
            return Err(Ignored::Own);
        }
        let peer = self
            .peers
            .get_mut(&heartbeat.node)
            .ok_or(Ignored::Stranger)?;
        let up = peer.judge(&heartbeat)?;
        self.counters.received += 1;
        let (node, leaves) = (heartbeat.node.clone(), heartbeat.leaving);
        let was_alive = peer.standing == Standing::Alive;
        let macs_changed = peer.take(now, heartbeat);
        match (leaves, up) {
            (true, _) if was_alive => out.push(Output::MemberDown {
                node,
                reason: DownReason::Left,
            }),
            (false, Some(reason)) => out.push(Output::MemberUp { node, reason }),
            (false, None) if macs_changed => out.push(Output::MacsChanged { node }),
            _ => {}
        }
        Ok(())
    }

    /// Deaths and the end of the start-up window.
    fn expire(&mut self, now: Time, out: &mut Vec<Output>) {
        let settles = matches!(self.start, Start::Until(time) if time <= now);
        for (name, peer) in &mut self.peers {
            let reason = match peer.standing {
                Standing::Alive if now.since(peer.heard) >= WINDOW => DownReason::HeartbeatsMissed,
                Standing::Unknown if settles => DownReason::NeverHeard,
                Standing::Alive | Standing::Unknown | Standing::Dead => continue,
            };
            peer.standing = Standing::Dead;
            out.push(Output::MemberDown {
                node: name.clone(),
                reason,
            });
        }
        if settles {
            self.start = Start::Settled;
            out.push(Output::Settled);
        }
    }

    /// One round to all peers. A late round is not made up for: the next is one interval later.
    fn send_due(&mut self, now: Time, out: &mut Vec<Output>) {
        let Some(due) = self.next_send.filter(|due| *due <= now) else {
            return;
        };
        let next = due + INTERVAL;
        self.next_send = Some(if next <= now { now + INTERVAL } else { next });
        self.send_round(false, out);
    }

    fn send_round(&mut self, leaving: bool, out: &mut Vec<Output>) {
        self.sequence += 1;
        let heartbeat = Heartbeat {
            node: self.config.me.clone(),
            cluster: self.config.cluster,
            incarnation: self.config.incarnation,
            sequence: self.sequence,
            leaving,
            macs: self.macs.clone(),
        };
        let datagram: Arc<[u8]> = heartbeat.encode().into();
        for to in self.peers.keys() {
            self.counters.sent += 1;
            out.push(Output::Send {
                to: to.clone(),
                datagram: datagram.clone(),
            });
        }
    }

    fn leave(&mut self, out: &mut Vec<Output>) {
        if !self.left {
            self.left = true;
            self.next_send = None;
            self.send_round(true, out);
        }
    }
}

impl Peer {
    /// Whether a heartbeat is news, and what it changes. While the peer is alive a lower incarnation is an old process's;
    /// once it is dead any other incarnation is believed, so that a clock that went back does not silence a node for ever.
    fn judge(&self, heartbeat: &Heartbeat) -> Result<Option<UpReason>, Ignored> {
        let same = heartbeat.incarnation == self.incarnation;
        let newer = heartbeat.sequence > self.sequence;
        match self.standing {
            Standing::Unknown => Ok(Some(UpReason::FirstHeartbeat)),
            Standing::Dead if !same || newer => Ok(Some(UpReason::HeartbeatsResumed)),
            Standing::Alive if same && newer => Ok(None),
            Standing::Alive if heartbeat.incarnation > self.incarnation => {
                Ok(Some(UpReason::Restarted))
            }
            Standing::Alive | Standing::Dead => Err(Ignored::Stale),
        }
    }

    /// Remembers a heartbeat; true when the hardware addresses differ from those before.
    fn take(&mut self, now: Time, heartbeat: Heartbeat) -> bool {
        self.standing = if heartbeat.leaving {
            Standing::Dead
        } else {
            Standing::Alive
        };
        self.heard = now;
        self.incarnation = heartbeat.incarnation;
        self.sequence = heartbeat.sequence;
        std::mem::replace(&mut self.macs, heartbeat.macs) != self.macs
    }
}
