//! Elements of the ruleset as typed data.
//!
//! Owns names and shapes of sets and maps. Never knows bytes (`bytes`) or text (`text`).

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use api_model::IpFamily;
use ipnet::IpNet;

use crate::rules::Frontend;

/// All elements of both families' tables.
pub type Table = BTreeMap<Key, Value>;

/// Bit of a slot set that says: endpoints of this node only.
pub const LOCAL: u32 = 1 << 11;
/// Lowest bit of a Service port's id in a slot set.
pub const ID_SHIFT: u32 = 12;
/// Bits of a slot set that say how to choose.
pub const CLASS_BITS: u32 = LOCAL - 1;
/// Classes below this one are slot counts; from here on they are (slot count, timeout, scope).
pub const FIRST_AFFINITY_CLASS: u16 = 1_024;
/// Classes are below this one.
pub const CLASSES: u16 = 2_048;

/// A map or set of the ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Map {
    /// `pods`
    Pods,
    /// `service-net`
    ServiceNet,
    /// `cluster-ips`
    ClusterIps,
    /// `eps`
    Endpoints,
    /// `aff-slots`
    AffinitySlots,
    /// `aff-eps`
    AffinityEndpoints,
    /// `class`
    Class,
    /// `hairpin`
    Hairpin,
    /// `allowed`
    Allowed,
    /// `guarded`
    Guarded,
    /// `refuse`
    Refuse,
    /// `hole`
    Hole,
    /// `cip`
    ClusterIp,
    /// `ext`
    External,
    /// `loc`
    Local,
    /// `loc-in`
    LocalInside,
}

impl Map {
    /// All of them, in the order in which elements are added: what is pointed to comes before what points to it, and a
    /// guard before the frontend that it guards.
    pub const ALL: [Self; 16] = [
        Self::Pods,
        Self::ServiceNet,
        Self::ClusterIps,
        Self::Endpoints,
        Self::AffinitySlots,
        Self::AffinityEndpoints,
        Self::Class,
        Self::Hairpin,
        Self::Allowed,
        Self::Guarded,
        Self::Refuse,
        Self::Hole,
        Self::ClusterIp,
        Self::External,
        Self::Local,
        Self::LocalInside,
    ];

    /// Its name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::ServiceNet => "service-net",
            Self::ClusterIps => "cluster-ips",
            Self::Endpoints => "eps",
            Self::AffinitySlots => "aff-slots",
            Self::AffinityEndpoints => "aff-eps",
            Self::Class => "class",
            Self::Hairpin => "hairpin",
            Self::Allowed => "allowed",
            Self::Guarded => "guarded",
            Self::Refuse => "refuse",
            Self::Hole => "hole",
            Self::ClusterIp => "cip",
            Self::External => "ext",
            Self::Local => "loc",
            Self::LocalInside => "loc-in",
        }
    }
}

/// What an element is found by. Family is part of it: there is one table for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A network in `pods` or `service-net`.
    Net(Map, IpNet),
    /// An address in `cluster-ips` or (paired with itself) `hairpin`.
    Address(Map, IpAddr),
    /// A frontend in one of the maps and sets of frontends.
    Frontend(Map, Frontend),
    /// A frontend and sources that it lets in.
    Allowed(Frontend, IpNet),
    /// Slot set and slot, in `eps` or `aff-slots`.
    Slot(Map, IpFamily, u32, u32),
    /// A remembered endpoint's id with its scope, in `aff-eps`.
    Remembered(IpFamily, u32),
    /// A class.
    Class(IpFamily, u16),
}

impl Key {
    /// Which map it is in.
    pub fn map(&self) -> Map {
        match self {
            Self::Net(map, _)
            | Self::Address(map, _)
            | Self::Frontend(map, _)
            | Self::Slot(map, ..) => *map,
            Self::Allowed(..) => Map::Allowed,
            Self::Remembered(..) => Map::AffinityEndpoints,
            Self::Class(..) => Map::Class,
        }
    }

    /// Which family's table it is in.
    pub fn family(&self) -> IpFamily {
        match self {
            Self::Net(_, net) => IpFamily::of(net.addr()),
            Self::Address(_, address) => IpFamily::of(*address),
            Self::Frontend(_, frontend) | Self::Allowed(frontend, _) => {
                IpFamily::of(frontend.address)
            }
            Self::Slot(_, family, ..) | Self::Remembered(family, _) | Self::Class(family, _) => {
                *family
            }
        }
    }
}

/// What an element holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Nothing: an element of a set.
    Member,
    /// A slot set: id, scope, class.
    SlotSet(u32),
    /// An endpoint.
    Endpoint(SocketAddr),
    /// A remembered endpoint's id with its scope.
    Remembered(u32),
    /// `goto` this chain.
    Chain(ChainKind),
}

impl Value {
    /// The slot set, if it is one.
    pub fn slot_set(self) -> Option<u32> {
        let Self::SlotSet(set) = self else {
            return None;
        };
        Some(set)
    }

    /// The endpoint, if it is one.
    pub fn endpoint(self) -> Option<SocketAddr> {
        let Self::Endpoint(at) = self else {
            return None;
        };
        Some(at)
    }

    /// The remembered endpoint's id, if it is one.
    pub fn remembered(self) -> Option<u32> {
        let Self::Remembered(id) = self else {
            return None;
        };
        Some(id)
    }
}

/// A chain that chooses a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChainKind {
    /// One of so many slots at random.
    Random {
        /// Slots, 1–1,023.
        slots: u32,
    },
    /// The remembered endpoint, else one at random, remembered from now on.
    Sticky {
        /// Slots, 1–128.
        slots: u32,
        /// Timeout of the memory.
        seconds: u32,
        /// Endpoints of this node only.
        local: bool,
    },
}

impl ChainKind {
    /// Its name in the kernel.
    pub fn name(self) -> String {
        match self {
            Self::Random { slots } => format!("lb-{slots}"),
            Self::Sticky {
                slots,
                seconds,
                local: false,
            } => format!("af-{slots}-{seconds}"),
            Self::Sticky {
                slots,
                seconds,
                local: true,
            } => format!("al-{slots}-{seconds}"),
        }
    }

    /// Reads a name back; `None` for a chain of another kind.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let (kind, slots) = (parts.next()?, parts.next()?.parse().ok()?);
        let seconds = parts.next().map(str::parse::<u32>);
        if parts.next().is_some() {
            return None;
        }
        let found = match (kind, seconds) {
            ("lb", None) => Self::Random { slots },
            ("af" | "al", Some(Ok(seconds))) => Self::Sticky {
                slots,
                seconds,
                local: kind == "al",
            },
            _ => return None,
        };
        (found.name() == name).then_some(found)
    }
}
