//! A peer as the operator wants it.
//!
//! Owns the plain data of one `BGPPeer` on this node and the rules its fields must keep. Never knows label selectors or
//! Secrets: the ingest resolves them. Source: MetalLB's `BGPPeer` `v1beta2`; RFC 4271 §4.2; RFC 6286.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use api_model::{Asn, IpFamily, NodeName, Port};

/// Name of a `BGPPeer` object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerName(Arc<str>);

impl PeerName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for PeerName {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key of TCP MD5 (RFC 2385). Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Arc<str>);

impl Password {
    /// The key as text; at most 80 octets are used by Linux.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// Which AS number the peer may have: `peerASN`, or `dynamicASN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAsn {
    /// `peerASN`: this one.
    Exactly(Asn),
    /// `dynamicASN: internal`: the same as ours.
    Internal,
    /// `dynamicASN: external`: any other than ours.
    External,
}

/// Hold time and keepalive interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// Hold time that we propose, in whole seconds: 0 (no timers) or 3–65535 s (RFC 4271 §4.2).
    pub hold_time: Duration,
    /// Time between KEEPALIVEs; a third of the negotiated hold time if that is less.
    pub keepalive_time: Duration,
}

impl Default for Timers {
    /// 90 s and 30 s (RFC 4271 §10).
    fn default() -> Self {
        Self {
            hold_time: Duration::from_secs(90),
            keepalive_time: Duration::from_secs(30),
        }
    }
}

impl Timers {
    /// From `holdTime` and `keepaliveTime`. If only one is given, the other is three times or a third of it.
    /// Errors: a hold time of 1 s, 2 s, above 65535 s or with a fraction; a keepalive time that isn't below the hold time.
    pub fn new(
        hold: Option<Duration>,
        keepalive: Option<Duration>,
    ) -> Result<Self, PeerConfigError> {
        let default = Self::default();
        let timers = match (hold, keepalive) {
            (None, None) => default,
            (Some(hold_time), None) => Self {
                hold_time,
                keepalive_time: hold_time / 3,
            },
            (None, Some(keepalive_time)) => Self {
                hold_time: keepalive_time.saturating_mul(3),
                keepalive_time,
            },
            (Some(hold_time), Some(keepalive_time)) => Self {
                hold_time,
                keepalive_time,
            },
        };
        timers.check()?;
        Ok(timers)
    }

    fn check(self) -> Result<(), PeerConfigError> {
        let hold = self.hold_time;
        let seconds = hold.as_secs();
        if hold.subsec_nanos() != 0 || matches!(seconds, 1 | 2) || seconds > u64::from(u16::MAX) {
            return Err(PeerConfigError::HoldTime(hold));
        }
        let keepalive = self.keepalive_time;
        if seconds != 0 && keepalive >= hold || seconds == 0 && !keepalive.is_zero() {
            return Err(PeerConfigError::KeepaliveTime { keepalive, hold });
        }
        Ok(())
    }
}

/// Addresses of this node that can stand as next hop where the session itself has another family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeAddresses {
    /// IPv4 address of the node, if it has one.
    pub v4: Option<Ipv4Addr>,
    /// IPv6 address of the node, not link-local, if it has one.
    pub v6: Option<Ipv6Addr>,
}

/// One `BGPPeer`, as it applies to this node. Any change of it restarts this session and no other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// `metadata.name`.
    pub name: PeerName,
    /// Our AS number towards this peer: `localASN`, else `myASN`.
    pub local_asn: Asn,
    /// What the peer's OPEN must say: `peerASN` or `dynamicASN`.
    pub remote_asn: RemoteAsn,
    /// `peerAddress`.
    pub address: IpAddr,
    /// `peerPort`, default 179.
    pub port: Port,
    /// `sourceAddress`: what the connection is bound to; the kernel chooses if there is none.
    pub source_address: Option<IpAddr>,
    /// BGP identifier: see [`router_id`].
    pub router_id: Ipv4Addr,
    /// `holdTime` and `keepaliveTime`: see [`Timers::new`].
    pub timers: Timers,
    /// `connectTime`: longest pause between two attempts; 120 s if there is none.
    pub connect_time: Option<Duration>,
    /// `ebgpMultiHop`: an external peer may be more than one hop away.
    pub ebgp_multi_hop: bool,
    /// Families whose routes this session carries: see [`PeerConfig::families`].
    pub families: BTreeSet<IpFamily>,
    /// Where next hops come from for the family that the session itself isn't.
    pub node_addresses: NodeAddresses,
    /// `password`, or what `passwordSecret` names.
    pub password: Option<Password>,
}

impl PeerConfig {
    /// The families of a session: that of the peer's address, and with `dualStackAddressFamily` the other too.
    pub fn families(address: IpAddr, dual_stack_address_family: bool) -> BTreeSet<IpFamily> {
        let mut families = BTreeSet::from([IpFamily::of(address)]);
        if dual_stack_address_family {
            families.extend([IpFamily::V4, IpFamily::V6]);
        }
        families
    }

    /// Whether this is an internal session (iBGP): both sides in one AS.
    pub fn is_internal(&self) -> bool {
        match self.remote_asn {
            RemoteAsn::Exactly(asn) => asn == self.local_asn,
            RemoteAsn::Internal => true,
            RemoteAsn::External => false,
        }
    }

    /// Whether the fields fit together. The message says which field is wrong and what to write.
    pub fn check(&self) -> Result<(), PeerConfigError> {
        if self.local_asn.0 == 0 || self.remote_asn == RemoteAsn::Exactly(Asn(0)) {
            return Err(PeerConfigError::ZeroAsn);
        }
        self.timers.check()?;
        if self.router_id.is_unspecified() {
            return Err(PeerConfigError::RouterId(self.router_id));
        }
        let address = self.address;
        if address.is_unspecified() || address.is_multicast() {
            return Err(PeerConfigError::Address(address));
        }
        if let Some(source) = self.source_address
            && IpFamily::of(source) != IpFamily::of(address)
        {
            return Err(PeerConfigError::SourceFamily {
                from: source,
                to: address,
            });
        }
        if self.ebgp_multi_hop && self.is_internal() {
            return Err(PeerConfigError::MultiHopInternal);
        }
        Ok(())
    }
}

/// The BGP identifier of this node: `routerID` if given, else the node's first IPv4 address, else a number made of the
/// node's name, so that it stays over restarts and isn't 0 (RFC 6286: unique in the AS, needs not be an address).
pub fn router_id(wanted: Option<Ipv4Addr>, addresses: &[IpAddr], node: &NodeName) -> Ipv4Addr {
    let first_v4 = addresses.iter().find_map(|address| match address {
        IpAddr::V4(v4) if !v4.is_unspecified() => Some(*v4),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    });
    wanted.or(first_v4).unwrap_or_else(|| {
        let hash = node.as_str().bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Ipv4Addr::from(hash.max(1))
    })
}

/// What is wrong with a peer's fields.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerConfigError {
    /// AS 0 can't be used (RFC 7607).
    #[error("myASN, localASN and peerASN must not be 0")]
    ZeroAsn,
    /// Hold time that RFC 4271 §4.2 forbids.
    #[error("holdTime {0:?}: must be 0 or 3s to 65535s, in whole seconds")]
    HoldTime(Duration),
    /// Keepalives must come before the hold time ends.
    #[error("keepaliveTime {keepalive:?}: must be below holdTime {hold:?} (and 0 if that is 0)")]
    KeepaliveTime {
        /// As given.
        keepalive: Duration,
        /// As given.
        hold: Duration,
    },
    /// BGP identifier 0 (RFC 6286).
    #[error("routerID {0}: must be an IPv4 address other than 0.0.0.0")]
    RouterId(Ipv4Addr),
    /// No host can have this address.
    #[error("peerAddress {0}: must be the address of one host")]
    Address(IpAddr),
    /// Source and destination of different families.
    #[error("sourceAddress {from} and peerAddress {to} must be of one family")]
    SourceFamily {
        /// `sourceAddress`.
        from: IpAddr,
        /// `peerAddress`.
        to: IpAddr,
    },
    /// Multihop only means something between two ASes.
    #[error("ebgpMultiHop: only with peers of another AS")]
    MultiHopInternal,
}

#[cfg(test)]
mod tests;
