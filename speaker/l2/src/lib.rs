//! Layer 2: which node speaks for a VIP, and what it says.
//!
//! Owns the choice of candidates ([`candidate`]), the election ([`election`]), the announcement of a VIP on a node's
//! interfaces ([`announcer`]), conflict detection ([`conflict`]) and the wire forms of ARP ([`arp`], RFC 826) and
//! Neighbour Discovery ([`ndp`], RFC 4861). Never opens a socket, reads a clock or knows Kubernetes types.
//!
//! # Laws (property tests)
//!
//! 1. No frame names a VIP that this node does not hold at that moment ([`announcer`]).
//! 2. Withdrawing a VIP silences it in the same call: no answer, no burst, no defence afterwards ([`announcer`]).
//! 3. [`election::elect`] is a pure function: equal views give one and the same holder, at most one ([`election`]).
//! 4. A lost loser moves nothing: without a candidate that holds nothing, every VIP stays where it was ([`election`]).
//! 5. Any bytes from the wire: no panic, no answer for a VIP not held, bounded memory (`tests/frames.rs`).
//!
//! Not here yet: the fenced right to answer (a deadline checked at each reply). [`announcer::Announcer`] has one place
//! that decides whether a VIP may be answered for, so that the deadline has a place to go. Until then two nodes with
//! different views of who is alive may both answer for a VIP.
#![forbid(unsafe_code)]

pub mod announcer;
pub mod arp;
pub mod candidate;
pub mod conflict;
pub mod election;
mod mac;
pub mod ndp;
mod reason;

pub use mac::{Mac, ParseMacError};
pub use reason::{Dropped, Reason};

use std::{net::IpAddr, sync::Arc};

/// Name of a network interface, such as `eth0`.
pub type InterfaceName = Arc<str>;

/// Kernel index of a network interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceIndex(pub u32);

/// The right (or its absence) of this node to speak for a VIP, as [`candidate::decide`] works it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Node elected to speak for the VIP; `None` when no node is a candidate.
    pub holder: Option<api_model::NodeName>,
    /// Why this node announces the VIP or does not.
    pub reason: Reason,
    /// Interfaces that the advertisements name for this node (union of those that match).
    pub interfaces: candidate::Selection<InterfaceName>,
}

impl Decision {
    /// True when this node announces the VIP and answers for it.
    pub fn announce(&self) -> bool {
        self.reason == Reason::Announced
    }
}

/// True for an address that can be announced on a link: not unspecified, loopback, multicast or broadcast.
pub fn is_announceable(vip: IpAddr) -> bool {
    let broadcast = matches!(vip, IpAddr::V4(v4) if v4.is_broadcast());
    !(vip.is_unspecified() || vip.is_loopback() || vip.is_multicast() || broadcast)
}
