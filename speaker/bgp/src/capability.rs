//! Capabilities (RFC 5492), and what two OPENs agree on.
//!
//! Owns reading and writing of the capabilities that we know, and the checks of a peer's OPEN against its configuration
//! (RFC 4271 §6.2). Unknown capabilities are passed over. Never knows the state of a session.

use std::{collections::BTreeSet, net::Ipv4Addr, time::Duration};

use api_model::{Asn, IpFamily};

use crate::{
    PeerConfig, RemoteAsn,
    wire::{AS_TRANS, Notification, decode::Open},
};

/// Multiprotocol extensions (RFC 4760).
pub(crate) const MULTIPROTOCOL: u8 = 1;
/// Route refresh (RFC 2918).
pub(crate) const ROUTE_REFRESH: u8 = 2;
/// Four-octet AS numbers (RFC 6793).
pub(crate) const FOUR_OCTET_AS: u8 = 65;
/// SAFI of unicast.
pub(crate) const UNICAST: u8 = 1;

/// AFI of a family (IANA).
pub(crate) fn afi(family: IpFamily) -> u16 {
    match family {
        IpFamily::V4 => 1,
        IpFamily::V6 => 2,
    }
}

/// The family of an AFI and SAFI, if we carry it.
pub(crate) fn family(afi: u16, safi: u8) -> Option<IpFamily> {
    match (afi, safi) {
        (1, UNICAST) => Some(IpFamily::V4),
        (2, UNICAST) => Some(IpFamily::V6),
        _ => None,
    }
}

/// What a peer's capabilities say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Unicast families it named.
    pub families: BTreeSet<IpFamily>,
    /// Whether it named any family at all; if not, it means IPv4 unicast (RFC 4760 §8).
    pub multiprotocol: bool,
    /// Its AS number in four octets.
    pub four_octet_as: Option<Asn>,
    /// It can ask for, and understands, route refresh.
    pub route_refresh: bool,
}

impl Capabilities {
    /// Takes in one capability; unknown ones, and known ones of a wrong length, change nothing.
    pub(crate) fn note(&mut self, code: u8, value: &[u8]) {
        match (code, value) {
            (MULTIPROTOCOL, &[high, low, _, safi]) => {
                self.multiprotocol = true;
                self.families
                    .extend(family(u16::from_be_bytes([high, low]), safi));
            }
            (ROUTE_REFRESH, []) => self.route_refresh = true,
            (FOUR_OCTET_AS, &[a, b, c, d]) => {
                self.four_octet_as = Some(Asn(u32::from_be_bytes([a, b, c, d])));
            }
            _ => {}
        }
    }
}

/// What is in force after both OPENs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The peer's AS number.
    pub peer_asn: Asn,
    /// The peer's BGP identifier.
    pub peer_router_id: Ipv4Addr,
    /// Hold time (RFC 4271 §4.2): the smaller one; zero turns both timers off.
    pub hold_time: Duration,
    /// Time between our KEEPALIVEs before jitter; zero with a hold time of zero.
    pub keepalive_time: Duration,
    /// AS numbers in UPDATEs have four octets (RFC 6793).
    pub four_octet_as: bool,
    /// Families that both sides carry.
    pub families: BTreeSet<IpFamily>,
    /// One AS on both sides.
    pub internal: bool,
}

/// Checks a peer's OPEN against the configuration and says what is in force.
/// Errors: the NOTIFICATION to answer with (RFC 4271 §6.2, RFC 6286, RFC 7607).
/// `offered`: whether our own OPEN carried capabilities; without them no capability of the peer counts.
pub fn negotiate(
    config: &PeerConfig,
    offered: bool,
    open: &Open,
) -> Result<Negotiated, Notification> {
    let peer_asn = match open.capabilities.four_octet_as {
        Some(asn) => asn,
        None => Asn(u32::from(open.my_as)),
    };
    let right = match config.remote_asn {
        RemoteAsn::Exactly(asn) => peer_asn == asn,
        RemoteAsn::Internal => peer_asn == config.local_asn,
        RemoteAsn::External => peer_asn != config.local_asn,
    };
    let hidden = open.capabilities.four_octet_as.is_none() && open.my_as == AS_TRANS;
    if !right || peer_asn.0 == 0 || hidden {
        return Err(Notification::bad_peer_as());
    }
    let internal = peer_asn == config.local_asn;
    if open.router_id.is_unspecified() || internal && open.router_id == config.router_id {
        return Err(Notification::bad_identifier());
    }
    let hold_time = Duration::from_secs(open.hold_time.into()).min(config.timers.hold_time);
    Ok(Negotiated {
        peer_asn,
        peer_router_id: open.router_id,
        hold_time,
        keepalive_time: keepalive_time(config, hold_time),
        four_octet_as: offered && open.capabilities.four_octet_as.is_some(),
        families: common_families(config, offered, &open.capabilities),
        internal,
    })
}

/// A third of the hold time, less if the operator wants less, but not below a second (RFC 4271 §4.4).
fn keepalive_time(config: &PeerConfig, hold_time: Duration) -> Duration {
    if hold_time.is_zero() {
        return Duration::ZERO;
    }
    let wanted = config.timers.keepalive_time.min(hold_time / 3);
    wanted.max(Duration::from_secs(1))
}

fn common_families(
    config: &PeerConfig,
    offered: bool,
    theirs: &Capabilities,
) -> BTreeSet<IpFamily> {
    let theirs = if offered && theirs.multiprotocol {
        theirs.families.clone()
    } else {
        BTreeSet::from([IpFamily::V4])
    };
    config.families.intersection(&theirs).copied().collect()
}
