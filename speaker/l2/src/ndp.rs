//! Neighbour Discovery over Ethernet (RFC 4861): reading solicitations and advertisements, building advertisements.
//!
//! Owns the validity rules of RFC 4861 §7.1. Options are read here and not by the packet crate, whose reader overflows on
//! a length of 32 or more. Never decides whether a VIP is held. Extension headers are not followed: a solicitation behind
//! one is dropped (RFC 6980 forbids the only one that could matter, the fragment header).

use std::net::Ipv6Addr;

use pnet::packet::{
    Packet as _,
    ethernet::{EtherTypes, EthernetPacket, MutableEthernetPacket},
    icmpv6::{
        self, Icmpv6Code, Icmpv6Packet, Icmpv6Type, Icmpv6Types, MutableIcmpv6Packet,
        ndp::{MutableNeighborAdvertPacket, NeighborAdvertPacket, NeighborSolicitPacket},
    },
    ip::IpNextHeaderProtocols,
    ipv6::{Ipv6Packet, MutableIpv6Packet},
};

use crate::{Dropped, Mac};

#[cfg(test)]
mod tests;

/// Octets of a frame that carries a Neighbour Advertisement with a target link-layer address.
pub const ADVERTISEMENT_BYTES: usize = ETHERNET_BYTES + IPV6_BYTES + MESSAGE_BYTES + 8;
/// The all-nodes group on the link (RFC 4291 §2.7.1).
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
/// Type, code, checksum, flags or reserved, target.
const MESSAGE_BYTES: usize = 24;
const SOURCE_LINK_LAYER: u8 = 1;
const TARGET_LINK_LAYER: u8 = 2;
/// NA flags (RFC 4861 §4.4) in the first octet after the checksum.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// A valid message that reached this station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Who has the target? (§4.3)
    Solicitation(Solicitation),
    /// The sender has the target (§4.4).
    Advertisement {
        /// Address that is spoken of.
        target: Ipv6Addr,
        /// Target link-layer address, or the frame's source without one.
        mac: Mac,
    },
}

/// A Neighbour Solicitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solicitation {
    /// Who asks; `None` for duplicate address detection (source `::`).
    pub source: Option<Ipv6Addr>,
    /// Station to answer: the source link-layer option, or the frame's source (the option is absent in NUD probes).
    pub mac: Mac,
    /// Address asked for.
    pub target: Ipv6Addr,
}

/// Solicited-node group of an address (RFC 4291 §2.7.1): `ff02::1:ff` and the last three octets.
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., high, middle, low] = address.octets();
    Ipv6Addr::from([
        0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, high, middle, low,
    ])
}

/// Reads a frame received by the station `own`. Refuses everything that RFC 4861 §7.1 says to discard, and frames for
/// other stations.
pub fn parse(frame: &[u8], own: Mac) -> Result<Message, Dropped> {
    let ethernet = EthernetPacket::new(frame).ok_or(Dropped::TooShort)?;
    if ethernet.get_ethertype() != EtherTypes::Ipv6 {
        return Err(Dropped::OtherProtocol);
    }
    let ip = Ipv6Packet::new(ethernet.payload()).ok_or(Dropped::TooShort)?;
    if ip.get_version() != 6 || ip.get_next_header() != IpNextHeaderProtocols::Icmpv6 {
        return Err(Dropped::OtherProtocol);
    }
    let length = usize::from(ip.get_payload_length());
    let body = ethernet
        .payload()
        .get(IPV6_BYTES..IPV6_BYTES + length)
        .ok_or(Dropped::TooShort)?;
    let icmp = Icmpv6Packet::new(body).ok_or(Dropped::TooShort)?;
    let kind = icmp.get_icmpv6_type();
    if kind != Icmpv6Types::NeighborSolicit && kind != Icmpv6Types::NeighborAdvert {
        return Err(Dropped::OtherProtocol);
    }
    let destination = Mac::from(ethernet.get_destination());
    if destination != own && destination != Mac::of_group(ip.get_destination()) {
        return Err(Dropped::NotForUs);
    }
    check_header(&ip, &icmp)?;
    let source_mac = Mac::from(ethernet.get_source());
    if kind == Icmpv6Types::NeighborSolicit {
        parse_solicitation(&ip, body, source_mac).map(Message::Solicitation)
    } else {
        parse_advertisement(body, source_mac)
    }
}

fn check_header(ip: &Ipv6Packet<'_>, icmp: &Icmpv6Packet<'_>) -> Result<(), Dropped> {
    if ip.get_hop_limit() != 255 {
        return Err(Dropped::HopLimit);
    }
    if icmp.get_icmpv6_code() != Icmpv6Code(0) {
        return Err(Dropped::Code);
    }
    if icmpv6::checksum(icmp, &ip.get_source(), &ip.get_destination()) != icmp.get_checksum() {
        return Err(Dropped::Checksum);
    }
    if ip.get_source().is_multicast() || ip.get_source().is_loopback() {
        return Err(Dropped::SenderAddress);
    }
    Ok(())
}

/// §7.1.1: with source `::` the destination is the solicited-node group and no link-layer option is there.
fn parse_solicitation(
    ip: &Ipv6Packet<'_>,
    body: &[u8],
    frame_mac: Mac,
) -> Result<Solicitation, Dropped> {
    let message = NeighborSolicitPacket::new(body).ok_or(Dropped::TooShort)?;
    let target = message.get_target_addr();
    if target.is_multicast() {
        return Err(Dropped::Target);
    }
    let option = link_layer_option(body, SOURCE_LINK_LAYER)?;
    let source = Some(ip.get_source()).filter(|source| !source.is_unspecified());
    if source.is_none() && (option.is_some() || ip.get_destination() != solicited_node(target)) {
        return Err(Dropped::BadProbe);
    }
    let mac = option.unwrap_or(frame_mac);
    if !mac.is_station() {
        return Err(Dropped::SenderHardware);
    }
    Ok(Solicitation {
        source,
        mac,
        target,
    })
}

fn parse_advertisement(body: &[u8], frame_mac: Mac) -> Result<Message, Dropped> {
    let message = NeighborAdvertPacket::new(body).ok_or(Dropped::TooShort)?;
    let target = message.get_target_addr();
    if target.is_multicast() {
        return Err(Dropped::Target);
    }
    let mac = link_layer_option(body, TARGET_LINK_LAYER)?.unwrap_or(frame_mac);
    if !mac.is_station() {
        return Err(Dropped::SenderHardware);
    }
    Ok(Message::Advertisement { target, mac })
}

/// Walks all options (§4.6: length in units of 8 octets, never 0) and returns the first link-layer address of `kind`.
fn link_layer_option(body: &[u8], kind: u8) -> Result<Option<Mac>, Dropped> {
    let mut rest = body.get(MESSAGE_BYTES..).ok_or(Dropped::TooShort)?;
    let mut found = None;
    while let [option, units, ..] = *rest {
        if units == 0 {
            return Err(Dropped::NdpOption);
        }
        let (this, after) = rest
            .split_at_checked(usize::from(units) * 8)
            .ok_or(Dropped::NdpOption)?;
        if option == kind
            && found.is_none()
            && let [_, _, mac @ ..] = this
        {
            found = Some(Mac(
                <[u8; 6]>::try_from(mac).map_err(|_| Dropped::NdpOption)?
            ));
        }
        rest = after;
    }
    if rest.is_empty() {
        Ok(found)
    } else {
        Err(Dropped::NdpOption)
    }
}

/// The answer to `request` (§7.2.4): to the asker with the solicited flag, or to all nodes without it when the asker has
/// no address yet (RFC 4862 §5.4.3).
pub fn reply(own: Mac, request: &Solicitation) -> Vec<u8> {
    match request.source {
        Some(source) => build(
            own,
            request.target,
            (request.mac, source),
            SOLICITED | OVERRIDE,
        ),
        None => announcement(own, request.target),
    }
}

/// Announces to all nodes that `own` has `vip` (§7.2.6): solicited clear, override set, with the link-layer address.
pub fn announcement(own: Mac, vip: Ipv6Addr) -> Vec<u8> {
    build(own, vip, (Mac::of_group(ALL_NODES), ALL_NODES), OVERRIDE)
}

fn build(own: Mac, vip: Ipv6Addr, to: (Mac, Ipv6Addr), flags: u8) -> Vec<u8> {
    let mut frame = vec![0; ADVERTISEMENT_BYTES];
    let mut ethernet = MutableEthernetPacket::new(&mut frame).expect("the frame is long enough");
    ethernet.set_destination(to.0.into());
    ethernet.set_source(own.into());
    ethernet.set_ethertype(EtherTypes::Ipv6);
    let (_, packet) = frame.split_at_mut(ETHERNET_BYTES);
    let mut ip = MutableIpv6Packet::new(packet).expect("the frame is long enough");
    ip.set_version(6);
    ip.set_payload_length(32);
    ip.set_next_header(IpNextHeaderProtocols::Icmpv6);
    ip.set_hop_limit(255);
    ip.set_source(vip);
    ip.set_destination(to.1);
    let (_, body) = packet.split_at_mut(IPV6_BYTES);
    fill_advertisement(body, own, vip, flags);
    let checksum = icmpv6::checksum(
        &Icmpv6Packet::new(body).expect("the frame is long enough"),
        &vip,
        &to.1,
    );
    MutableIcmpv6Packet::new(body)
        .expect("the frame is long enough")
        .set_checksum(checksum);
    frame
}

fn fill_advertisement(body: &mut [u8], own: Mac, vip: Ipv6Addr, flags: u8) {
    let (message, option) = body.split_at_mut(MESSAGE_BYTES);
    let mut advertisement =
        MutableNeighborAdvertPacket::new(message).expect("the frame is long enough");
    advertisement.set_icmpv6_type(Icmpv6Type(136));
    advertisement.set_flags(flags);
    advertisement.set_target_addr(vip);
    let (kind_and_length, address) = option.split_at_mut(2);
    kind_and_length.copy_from_slice(&[TARGET_LINK_LAYER, 1]);
    address.copy_from_slice(&own.0);
}
