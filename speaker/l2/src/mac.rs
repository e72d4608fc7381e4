//! Ethernet hardware addresses.

use std::{fmt, str::FromStr};

use pnet::util::MacAddr;

/// A 48-bit Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// `ff:ff:ff:ff:ff:ff`
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// `00:00:00:00:00:00`
    pub const ZERO: Self = Self([0; 6]);

    /// True for group addresses, broadcast included (IEEE 802: lowest bit of the first octet).
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// True for an address that one station can have: neither group nor zero.
    pub fn is_station(self) -> bool {
        !self.is_group() && self != Self::ZERO
    }

    /// Ethernet address of an IPv6 multicast group (RFC 2464 §7): `33:33` and the last four octets.
    pub const fn of_group(group: std::net::Ipv6Addr) -> Self {
        let o = group.octets();
        Self([0x33, 0x33, o[12], o[13], o[14], o[15]])
    }
}

impl From<Mac> for MacAddr {
    fn from(mac: Mac) -> Self {
        let o = mac.0;
        Self(o[0], o[1], o[2], o[3], o[4], o[5])
    }
}

impl From<MacAddr> for Mac {
    fn from(mac: MacAddr) -> Self {
        Self([mac.0, mac.1, mac.2, mac.3, mac.4, mac.5])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let o = self.0;
        write!(f, "{:02x}:{:02x}:{:02x}", o[0], o[1], o[2])?;
        write!(f, ":{:02x}:{:02x}:{:02x}", o[3], o[4], o[5])
    }
}

/// Text that is not six hexadecimal octets joined by colons.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a hardware address such as 00:00:5e:00:53:0a")]
pub struct ParseMacError(String);

impl FromStr for Mac {
    type Err = ParseMacError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = || ParseMacError(text.to_owned());
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts
                .next()
                .filter(|part| part.len() == 2)
                .ok_or_else(refused)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| refused())?;
        }
        if parts.next().is_some() {
            return Err(refused());
        }
        Ok(Self(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_reads_what_it_writes() {
        let mac = Mac([0, 0, 0x5e, 0, 0x53, 0x0a]);
        assert_eq!(mac.to_string(), "00:00:5e:00:53:0a");
        assert_eq!(mac.to_string().parse(), Ok(mac));
    }

    #[test]
    fn mac_refuses_what_has_not_six_octets() {
        for text in [
            "",
            "00",
            "00:00:5e:00:53",
            "00:00:5e:00:53:0a:0b",
            "0:0:5e:0:53:a",
            "zz:00:5e:00:53:0a",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text:?} was read");
        }
    }
}
