//! Writing messages to a peer.
//!
//! Owns OPEN, KEEPALIVE, NOTIFICATION, ROUTE-REFRESH, and UPDATEs packed up to the longest message. zettabgp lays out UPDATEs
//! and most attributes; what it gets wrong is written here byte for byte: AS_PATH (it swaps the segment types), communities
//! (flags), OPEN parameters, NOTIFICATION data. Never decides what is sent.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use api_model::{Asn, IpFamily};
use ipnet::IpNet;
use zettabgp::{
    BgpMessage as _,
    message::update::BgpUpdateMessage,
    prelude::{
        BgpAddr, BgpAddrV4, BgpAddrV6, BgpAddrs, BgpAttrItem, BgpAttrOrigin, BgpAttrParams,
        BgpAttrUnknown, BgpLocalpref, BgpMPUpdates, BgpMPWithdraws, BgpNextHop, BgpOrigin,
    },
};

use super::{
    AS_TRANS, HEADER_OCTETS, MAX_MESSAGE_OCTETS, MessageKind, Notification, decode::session_params,
};
use crate::{
    Route,
    capability::{FOUR_OCTET_AS, MULTIPROTOCOL, ROUTE_REFRESH, UNICAST, afi},
};

/// `LOCAL_PREF` towards internal peers where the operator gave none.
const DEFAULT_LOCAL_PREF: u32 = 100;
/// The two length fields of an UPDATE.
const UPDATE_LENGTHS: usize = 4;
/// Header of an MP attribute with extended length, AFI, SAFI: common to reach and unreach.
const MP_UNREACH_OCTETS: usize = 4 + 3;
/// The same with a next hop of 16 octets and the reserved octet.
const MP_REACH_OCTETS: usize = MP_UNREACH_OCTETS + 1 + 16 + 1;

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const EXTENDED_LENGTH: u8 = 0x10;

/// What our OPEN says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFields {
    /// Our AS number.
    pub asn: Asn,
    /// Hold time in seconds: 0 or at least 3.
    pub hold_time: u16,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// Unicast families that we carry.
    pub families: BTreeSet<IpFamily>,
    /// Whether capabilities are sent at all: no, after a peer refused them (RFC 5492 §3).
    pub with_capabilities: bool,
}

/// What an UPDATE depends on besides the routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateContext {
    /// Our AS number, the only one in our AS_PATHs.
    pub local_asn: Asn,
    /// Towards an internal peer: empty AS_PATH, with `LOCAL_PREF`.
    pub internal: bool,
    /// AS numbers have four octets.
    pub four_octet_as: bool,
    /// Next hop of IPv4 routes.
    pub next_hop_v4: Option<Ipv4Addr>,
    /// Next hop of IPv6 routes.
    pub next_hop_v6: Option<Ipv6Addr>,
}

/// Puts header and body together.
fn message(kind: MessageKind, body: &[u8]) -> Vec<u8> {
    let length = HEADER_OCTETS + body.len();
    assert!(
        length <= MAX_MESSAGE_OCTETS,
        "every body is cut to the longest message"
    );
    let length = u16::try_from(length).expect("4096 fits into 16 bits");
    let mut bytes = vec![0xff; 16];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.push(kind.number());
    bytes.extend_from_slice(body);
    bytes
}

/// A KEEPALIVE (RFC 4271 §4.4).
pub fn keepalive() -> Vec<u8> {
    message(MessageKind::Keepalive, &[])
}

/// A NOTIFICATION (RFC 4271 §4.5).
pub fn notification(notification: &Notification) -> Vec<u8> {
    let mut body = vec![notification.code, notification.subcode];
    let room = MAX_MESSAGE_OCTETS - HEADER_OCTETS - body.len();
    let data = &notification.data;
    body.extend_from_slice(data.get(..room).unwrap_or(data));
    message(MessageKind::Notification, &body)
}

/// A ROUTE-REFRESH for a family (RFC 2918 §3).
pub fn route_refresh(family: IpFamily) -> Vec<u8> {
    let [high, low] = afi(family).to_be_bytes();
    message(MessageKind::RouteRefresh, &[high, low, 0, UNICAST])
}

/// An OPEN (RFC 4271 §4.2) with our capabilities in one parameter.
pub fn open(fields: &OpenFields) -> Vec<u8> {
    let my_as = u16::try_from(fields.asn.0).unwrap_or(AS_TRANS);
    let mut body = vec![4];
    body.extend_from_slice(&my_as.to_be_bytes());
    body.extend_from_slice(&fields.hold_time.to_be_bytes());
    body.extend_from_slice(&fields.router_id.octets());
    if !fields.with_capabilities {
        body.push(0);
        return message(MessageKind::Open, &body);
    }
    let mut capabilities = Vec::new();
    for &family in &fields.families {
        let [high, low] = afi(family).to_be_bytes();
        capabilities.extend_from_slice(&[MULTIPROTOCOL, 4, high, low, 0, UNICAST]);
    }
    capabilities.extend_from_slice(&[ROUTE_REFRESH, 0, FOUR_OCTET_AS, 4]);
    capabilities.extend_from_slice(&fields.asn.0.to_be_bytes());
    let length = u8::try_from(capabilities.len()).expect("two families at most: 20 octets");
    body.extend_from_slice(&[length + 2, 2, length]);
    body.extend_from_slice(&capabilities);
    message(MessageKind::Open, &body)
}

/// End-of-RIB of a family (RFC 4724 §2).
pub fn end_of_rib(family: IpFamily) -> Vec<u8> {
    let mut update = BgpUpdateMessage::new();
    if family == IpFamily::V6 {
        update.attrs.push(withdraws_v6(Vec::new()));
    }
    finish(&update)
}

/// UPDATEs that withdraw these prefixes, as few as possible, each family in messages of its own.
pub fn withdraw(prefixes: &[IpNet]) -> Vec<Vec<u8>> {
    let (v4, v6) = by_family(prefixes);
    let room = MAX_MESSAGE_OCTETS - HEADER_OCTETS - UPDATE_LENGTHS;
    let v4 = chunks(v4, room, |p: &BgpAddrV4| p.prefixlen).map(|chunk| {
        let mut update = BgpUpdateMessage::new();
        update.withdraws = BgpAddrs::IPV4U(chunk);
        finish(&update)
    });
    let v6 = chunks(v6, room - MP_UNREACH_OCTETS, |p: &BgpAddrV6| p.prefixlen).map(|chunk| {
        let mut update = BgpUpdateMessage::new();
        update.attrs.push(withdraws_v6(chunk));
        finish(&update)
    });
    v4.chain(v6).collect()
}

/// UPDATEs that announce these prefixes, all with the attributes of one route, as few as possible. Prefixes of a family
/// without a next hop are left out.
pub fn announce(context: &UpdateContext, route: &Route, prefixes: &[IpNet]) -> Vec<Vec<u8>> {
    let (v4, v6) = by_family(prefixes);
    let attributes = attributes(context, route);
    let room = MAX_MESSAGE_OCTETS - HEADER_OCTETS - UPDATE_LENGTHS - octets_of(&attributes);
    let mut messages = Vec::new();
    if let Some(next_hop) = context.next_hop_v4 {
        let next_hop = BgpAttrItem::NextHop(BgpNextHop::new(IpAddr::V4(next_hop)));
        for chunk in chunks(
            v4,
            room - octets_of(std::slice::from_ref(&next_hop)),
            |p: &BgpAddrV4| p.prefixlen,
        ) {
            let mut update = BgpUpdateMessage::new();
            update.attrs.clone_from(&attributes);
            update.attrs.insert(2, next_hop.clone());
            update.updates = BgpAddrs::IPV4U(chunk);
            messages.push(finish(&update));
        }
    }
    if let Some(next_hop) = context.next_hop_v6 {
        for chunk in chunks(v6, room - MP_REACH_OCTETS, |p: &BgpAddrV6| p.prefixlen) {
            let mut update = BgpUpdateMessage::new();
            update.attrs.clone_from(&attributes);
            // RFC 7606 §5.1: first, so that a receiver finds it even if a later attribute is broken
            update.attrs.insert(
                0,
                BgpAttrItem::MPUpdates(BgpMPUpdates {
                    nexthop: BgpAddr::V6(next_hop),
                    addrs: BgpAddrs::IPV6U(chunk),
                }),
            );
            messages.push(finish(&update));
        }
    }
    messages
}

/// Attributes that both families share: ORIGIN, AS_PATH, then the rest by ascending type.
fn attributes(context: &UpdateContext, route: &Route) -> Vec<BgpAttrItem> {
    let mut items = vec![BgpAttrItem::Origin(BgpOrigin::new(BgpAttrOrigin::Igp))];
    items.push(raw(TRANSITIVE, 2, as_path(context)));
    if context.internal {
        let value = route.local_pref.unwrap_or(DEFAULT_LOCAL_PREF);
        items.push(BgpAttrItem::LocalPref(BgpLocalpref::new(value)));
    }
    let plain = &route.communities.plain;
    if !plain.is_empty() {
        let value = plain
            .iter()
            .flat_map(|community| community.0.to_be_bytes())
            .collect();
        items.push(raw(OPTIONAL | TRANSITIVE, 8, value));
    }
    if needs_as4_path(context) {
        let [a, b, c, d] = context.local_asn.0.to_be_bytes();
        items.push(raw(OPTIONAL | TRANSITIVE, 17, vec![2, 1, a, b, c, d]));
    }
    let large = &route.communities.large;
    if !large.is_empty() {
        let words = large
            .iter()
            .flat_map(|community| [community.0, community.1, community.2]);
        items.push(raw(
            OPTIONAL | TRANSITIVE,
            32,
            words.flat_map(u32::to_be_bytes).collect(),
        ));
    }
    items
}

/// Whether our AS number is hidden behind AS_TRANS (RFC 6793 §4.2.2).
fn needs_as4_path(context: &UpdateContext) -> bool {
    !context.internal && !context.four_octet_as && context.local_asn.0 > u32::from(u16::MAX)
}

/// One AS_SEQUENCE with our AS, or nothing towards internal peers (RFC 4271 §5.1.2).
fn as_path(context: &UpdateContext) -> Vec<u8> {
    let mut value = Vec::new();
    if !context.internal {
        value.extend_from_slice(&[2, 1]);
        if context.four_octet_as {
            value.extend_from_slice(&context.local_asn.0.to_be_bytes());
        } else {
            let asn = u16::try_from(context.local_asn.0).unwrap_or(AS_TRANS);
            value.extend_from_slice(&asn.to_be_bytes());
        }
    }
    value
}

/// An attribute byte for byte.
fn raw(flags: u8, typecode: u8, value: Vec<u8>) -> BgpAttrItem {
    let flags = if value.len() > usize::from(u8::MAX) {
        flags | EXTENDED_LENGTH
    } else {
        flags
    };
    BgpAttrItem::Unknown(BgpAttrUnknown {
        params: BgpAttrParams { typecode, flags },
        value,
    })
}

fn withdraws_v6(prefixes: Vec<BgpAddrV6>) -> BgpAttrItem {
    BgpAttrItem::MPWithdraws(BgpMPWithdraws::new(BgpAddrs::IPV6U(prefixes)))
}

/// Room for any attributes that we write: communities are bounded far below this.
const SCRATCH_OCTETS: usize = MAX_MESSAGE_OCTETS;

/// How many octets these attributes take.
fn octets_of(attributes: &[BgpAttrItem]) -> usize {
    let params = session_params(true);
    let mut scratch = [0; SCRATCH_OCTETS];
    attributes
        .iter()
        .map(|item| {
            item.encode_to(&params, &mut scratch)
                .expect("our attributes are bounded")
        })
        .sum()
}

/// The message around an UPDATE whose size was checked before.
fn finish(update: &BgpUpdateMessage) -> Vec<u8> {
    let mut body = [0; SCRATCH_OCTETS];
    let length = update
        .encode_to(&session_params(true), &mut body)
        .expect("the prefixes were cut to the room");
    message(MessageKind::Update, body.get(..length).unwrap_or_default())
}

fn by_family(prefixes: &[IpNet]) -> (Vec<BgpAddrV4>, Vec<BgpAddrV6>) {
    let mut families = (Vec::new(), Vec::new());
    for prefix in prefixes {
        match prefix {
            IpNet::V4(net) => families
                .0
                .push(BgpAddrV4::new(net.network(), net.prefix_len())),
            IpNet::V6(net) => families
                .1
                .push(BgpAddrV6::new(net.network(), net.prefix_len())),
        }
    }
    families
}

/// Cuts a list of prefixes into pieces that fit into `room` octets.
fn chunks<P>(
    prefixes: Vec<P>,
    room: usize,
    length: impl Fn(&P) -> u8,
) -> impl Iterator<Item = Vec<P>> {
    let mut prefixes = prefixes.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut left = room;
        let mut chunk = Vec::new();
        while let Some(prefix) = prefixes.peek() {
            let octets = 1 + usize::from(length(prefix).div_ceil(8));
            let Some(rest) = left.checked_sub(octets) else {
                break;
            };
            left = rest;
            chunk.extend(prefixes.next());
        }
        (!chunk.is_empty()).then_some(chunk)
    })
}
