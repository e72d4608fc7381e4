//! The words for why this node announces a VIP or not, and why a frame was dropped.
//!
//! One word everywhere: log field `reason`, condition reason, event message prefix, metric label.

use std::fmt;

/// Why this node speaks for a VIP, or why it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// This node is the holder and its rules are in the kernel.
    Announced,
    /// This node is the holder; its rules for the VIP are not in the kernel yet.
    NotProgrammed,
    /// Another node is the holder.
    NotElected,
    /// No `L2Advertisement` covers the VIP (pool and Services).
    NoAdvertisement,
    /// Advertisements cover the VIP, none of them this node.
    NodeNotSelected,
    /// The node carries `node.kubernetes.io/exclude-from-external-load-balancers`.
    NodeExcluded,
    /// The node's condition `NetworkUnavailable` is true.
    NetworkUnavailable,
    /// No heartbeat of the node's speaker arrives.
    MemberDown,
    /// The view knows no such node.
    NodeUnknown,
    /// No Service on the VIP has a usable endpoint.
    NoEndpoints,
    /// `externalTrafficPolicy: Local` and no usable endpoint on the node.
    NoLocalEndpoints,
    /// The address cannot be announced on a link (multicast, loopback, unspecified).
    NotAnnounceable,
}

impl Reason {
    /// The word, in CamelCase.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Announced => "Announced",
            Self::NotProgrammed => "NotProgrammed",
            Self::NotElected => "NotElected",
            Self::NoAdvertisement => "NoAdvertisement",
            Self::NodeNotSelected => "NodeNotSelected",
            Self::NodeExcluded => "NodeExcluded",
            Self::NetworkUnavailable => "NetworkUnavailable",
            Self::MemberDown => "MemberDown",
            Self::NodeUnknown => "NodeUnknown",
            Self::NoEndpoints => "NoEndpoints",
            Self::NoLocalEndpoints => "NoLocalEndpoints",
            Self::NotAnnounceable => "NotAnnounceable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a received frame got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dropped {
    /// Neither ARP nor a Neighbour Solicitation or Advertisement.
    OtherProtocol,
    /// Shorter than its headers say.
    TooShort,
    /// Ethernet destination is another station, or a group that carries no such message.
    NotForUs,
    /// ARP hardware type is not Ethernet (RFC 826).
    HardwareType,
    /// ARP protocol type is not IPv4 (RFC 826).
    ProtocolType,
    /// ARP hardware or protocol address length is not 6 or 4 (RFC 826).
    AddressLength,
    /// ARP operation is neither request nor reply (RFC 5494).
    Operation,
    /// The sender's hardware address is a group or zero (RFC 1812 §3.3.2).
    SenderHardware,
    /// The sender's protocol address cannot be a sender's (multicast, broadcast, loopback).
    SenderAddress,
    /// The sender is one of this node's own interfaces: a reflected frame.
    Reflected,
    /// IPv6 hop limit is not 255 (RFC 4861 §7.1).
    HopLimit,
    /// `ICMPv6` checksum is wrong.
    Checksum,
    /// `ICMPv6` code is not 0 (RFC 4861 §7.1).
    Code,
    /// An option is cut, or has length zero (RFC 4861 §4.6).
    NdpOption,
    /// Target is a multicast address (RFC 4861 §7.1).
    Target,
    /// Unspecified source with a source link-layer option, or not to the solicited-node group (RFC 4861 §7.1.1).
    BadProbe,
    /// The target is not held on this interface.
    NotHeld,
    /// A reply or advertisement that asks for nothing.
    NotARequest,
    /// Another speaker of the cluster announces a VIP that is held here: it takes over, or lets go soon.
    Fellow,
    /// The sender claims a VIP that is held here: a conflict, not answered as a question.
    Conflict,
    /// The frame came from an interface that is not announced on.
    UnknownInterface,
}

impl Dropped {
    /// The word, in CamelCase; a metric label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OtherProtocol => "OtherProtocol",
            Self::TooShort => "TooShort",
            Self::NotForUs => "NotForUs",
            Self::HardwareType => "HardwareType",
            Self::ProtocolType => "ProtocolType",
            Self::AddressLength => "AddressLength",
            Self::Operation => "Operation",
            Self::SenderHardware => "SenderHardware",
            Self::SenderAddress => "SenderAddress",
            Self::Reflected => "Reflected",
            Self::HopLimit => "HopLimit",
            Self::Checksum => "Checksum",
            Self::Code => "Code",
            Self::NdpOption => "NdpOption",
            Self::Target => "Target",
            Self::BadProbe => "BadProbe",
            Self::NotHeld => "NotHeld",
            Self::NotARequest => "NotARequest",
            Self::Fellow => "Fellow",
            Self::Conflict => "Conflict",
            Self::UnknownInterface => "UnknownInterface",
        }
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
