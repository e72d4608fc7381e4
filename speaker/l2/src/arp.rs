//! ARP for IPv4 over Ethernet (RFC 826, RFC 5227): reading what others send, building answers and announcements.
//!
//! Owns the checks of RFC 826's reception algorithm and of RFC 1812 §3.3.2 (no group address as a sender). Never decides
//! whether a VIP is held. Frames with a VLAN tag are not ARP to it: they belong to the interface of that VLAN.

use std::net::Ipv4Addr;

use pnet::packet::{
    Packet as _,
    arp::{ArpHardwareTypes, ArpOperations, ArpPacket, MutableArpPacket},
    ethernet::{EtherTypes, EthernetPacket, MutableEthernetPacket},
};

use crate::{Dropped, Mac};

#[cfg(test)]
mod tests;

/// Octets of a frame that carries ARP, without padding (the driver pads to 60).
pub const FRAME_BYTES: usize = 14 + 28;

/// Request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// 1: who has the target?
    Request,
    /// 2: the sender has the sender's address.
    Reply,
}

/// A well-formed ARP message that reached this station.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Request or reply.
    pub operation: Operation,
    /// Sender's hardware address: one station's.
    pub sender_mac: Mac,
    /// Sender's protocol address; `0.0.0.0` in a probe (RFC 5227 §2.1.1).
    pub sender: Ipv4Addr,
    /// Target's protocol address.
    pub target: Ipv4Addr,
}

impl Message {
    /// True when the sender speaks of its own address: an announcement (RFC 5227 §3), not a question.
    pub fn is_announcement(&self) -> bool {
        self.sender == self.target
    }
}

/// Reads a frame received by the station `own`. Refuses what RFC 826 says to ignore: other hardware, protocols, lengths
/// or operations, frames for other stations, and senders that cannot be a station.
pub fn parse(frame: &[u8], own: Mac) -> Result<Message, Dropped> {
    let ethernet = EthernetPacket::new(frame).ok_or(Dropped::TooShort)?;
    if ethernet.get_ethertype() != EtherTypes::Arp {
        return Err(Dropped::OtherProtocol);
    }
    let destination = Mac::from(ethernet.get_destination());
    if destination != own && destination != Mac::BROADCAST {
        return Err(Dropped::NotForUs);
    }
    let arp = ArpPacket::new(ethernet.payload()).ok_or(Dropped::TooShort)?;
    if arp.get_hardware_type() != ArpHardwareTypes::Ethernet {
        return Err(Dropped::HardwareType);
    }
    if arp.get_protocol_type() != EtherTypes::Ipv4 {
        return Err(Dropped::ProtocolType);
    }
    if arp.get_hw_addr_len() != 6 || arp.get_proto_addr_len() != 4 {
        return Err(Dropped::AddressLength);
    }
    let operation = match arp.get_operation() {
        ArpOperations::Request => Operation::Request,
        ArpOperations::Reply => Operation::Reply,
        _ => return Err(Dropped::Operation),
    };
    let sender_mac = Mac::from(arp.get_sender_hw_addr());
    if !sender_mac.is_station() {
        return Err(Dropped::SenderHardware);
    }
    let sender = arp.get_sender_proto_addr();
    if sender.is_multicast() || sender.is_broadcast() || sender.is_loopback() {
        return Err(Dropped::SenderAddress);
    }
    Ok(Message {
        operation,
        sender_mac,
        sender,
        target: arp.get_target_proto_addr(),
    })
}

/// The answer to `request`: `own` has the target. Unicast to the sender (RFC 826), also for a probe.
pub fn reply(own: Mac, request: &Message) -> Vec<u8> {
    build(&Fields {
        destination: request.sender_mac,
        operation: Operation::Reply,
        sender_mac: own,
        sender: request.target,
        target_mac: request.sender_mac,
        target: request.sender,
    })
}

/// Announces that `own` has `vip` (RFC 5227 §3), in both forms. Linux ignores a gratuitous *reply* for up to a second
/// after its entry changed unless the target hardware address is the sender's; a *request* always takes effect.
pub fn announcements(own: Mac, vip: Ipv4Addr) -> [Vec<u8>; 2] {
    [(Operation::Request, Mac::ZERO), (Operation::Reply, own)].map(|(operation, target_mac)| {
        build(&Fields {
            destination: Mac::BROADCAST,
            operation,
            sender_mac: own,
            sender: vip,
            target_mac,
            target: vip,
        })
    })
}

struct Fields {
    destination: Mac,
    operation: Operation,
    sender_mac: Mac,
    sender: Ipv4Addr,
    target_mac: Mac,
    target: Ipv4Addr,
}

fn build(fields: &Fields) -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES];
    let mut ethernet = MutableEthernetPacket::new(&mut frame).expect("the frame is long enough");
    ethernet.set_destination(fields.destination.into());
    ethernet.set_source(fields.sender_mac.into());
    ethernet.set_ethertype(EtherTypes::Arp);
    let (_, body) = frame.split_at_mut(14);
    let mut arp = MutableArpPacket::new(body).expect("the frame is long enough");
    arp.set_hardware_type(ArpHardwareTypes::Ethernet);
    arp.set_protocol_type(EtherTypes::Ipv4);
    arp.set_hw_addr_len(6);
    arp.set_proto_addr_len(4);
    arp.set_operation(match fields.operation {
        Operation::Request => ArpOperations::Request,
        Operation::Reply => ArpOperations::Reply,
    });
    arp.set_sender_hw_addr(fields.sender_mac.into());
    arp.set_sender_proto_addr(fields.sender);
    arp.set_target_hw_addr(fields.target_mac.into());
    arp.set_target_proto_addr(fields.target);
    frame
}
