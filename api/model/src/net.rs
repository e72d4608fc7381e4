//! Numbers of the network: families, protocols, ports, autonomous systems.

use std::{fmt, net::IpAddr, num::NonZeroU16, str::FromStr};

use serde::{Deserialize, Serialize};

/// A word that was not understood: what was expected and what stood there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not {expected}")]
pub struct ParseWordError {
    expected: &'static str,
    found: String,
}

impl ParseWordError {
    pub(crate) fn new(expected: &'static str, found: &str) -> Self {
        Self {
            expected,
            found: found.to_owned(),
        }
    }
}

/// IPv4 or IPv6, spelt as in `spec.ipFamilies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IpFamily {
    /// `IPv4`
    #[serde(rename = "IPv4")]
    V4,
    /// `IPv6`
    #[serde(rename = "IPv6")]
    V6,
}

impl IpFamily {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }

    /// Bits of an address of this family.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// `IPv4` or `IPv6`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for IpFamily {
    type Err = ParseWordError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "IPv4" => Ok(Self::V4),
            "IPv6" => Ok(Self::V6),
            _ => Err(ParseWordError::new("IPv4 or IPv6", text)),
        }
    }
}

/// Transport protocol of a Service port, spelt as in `spec.ports[].protocol`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// `TCP`
    #[serde(rename = "TCP")]
    Tcp,
    /// `UDP`
    #[serde(rename = "UDP")]
    Udp,
    /// `SCTP`
    #[serde(rename = "SCTP")]
    Sctp,
}

impl Protocol {
    /// Protocol number in the IP header (IANA).
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// `TCP`, `UDP` or `SCTP`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Protocol {
    type Err = ParseWordError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "TCP" => Ok(Self::Tcp),
            "UDP" => Ok(Self::Udp),
            "SCTP" => Ok(Self::Sctp),
            _ => Err(ParseWordError::new("TCP, UDP or SCTP", text)),
        }
    }
}

/// A transport port, 1–65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Port(NonZeroU16);

impl Port {
    /// The port, or `None` for 0.
    pub fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    /// The number, never 0.
    pub fn get(self) -> u16 {
        self.0.get()
    }
}

impl TryFrom<i64> for Port {
    type Error = ParseWordError;

    /// From a Kubernetes integer; refuses what is not 1–65535.
    fn try_from(number: i64) -> Result<Self, Self::Error> {
        u16::try_from(number)
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| ParseWordError::new("a port, 1-65535", &number.to_string()))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Autonomous system number, four octets (RFC 6793).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Asn(pub u32);

impl fmt::Display for Asn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
