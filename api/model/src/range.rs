//! Ranges of addresses as users write them: `192.0.2.0/28` or `192.0.2.10-192.0.2.99`.
//!
//! Owns the syntax and the list of special-purpose blocks that can't hold a virtual IP (RFC 6890). Never knows pools
//! or who holds an address. Leading zeros are refused because readers disagree about them (RFC 6943 §3.1.1).

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use crate::IpFamily;

/// An inclusive range of addresses of one family. Never empty and never a whole family, so that [`len`](Self::len) fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    start: IpAddr,
    end: IpAddr,
}

/// A text that is not a usable range: the text as written, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?}: {cause}")]
pub struct ParseRangeError {
    /// The text as the user wrote it, less the blanks around it.
    pub text: String,
    /// What is wrong with it.
    pub cause: RangeError,
}

/// Why a range is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Nothing but blanks.
    #[error("is empty, write a CIDR (192.0.2.0/28) or a range (192.0.2.10-192.0.2.99)")]
    Empty,
    /// Neither a `/` nor a `-`.
    #[error(
        "is neither a CIDR (192.0.2.0/28) nor a range (192.0.2.10-192.0.2.99); one address is written with /32 or /128"
    )]
    NeitherCidrNorRange,
    /// A part that is no address.
    #[error("{0:?} is not an IP address")]
    NotAnAddress(String),
    /// `192.0.2.01`: some readers take it as octal.
    #[error(
        "{0:?} has an octet with a leading zero, which some programs read as octal; leave the zero out"
    )]
    LeadingZero(String),
    /// `fe80::1%eth0`.
    #[error("an address with a zone (%) has no meaning outside one machine")]
    ZoneId,
    /// What stands after the `/` is no prefix length of the family.
    #[error("{length:?} is not a prefix length of {family} (0-{max})", max = family.bits())]
    BadPrefixLength {
        /// The text after the slash.
        length: String,
        /// Family of the address before it.
        family: IpFamily,
    },
    /// IPv4 on one side, IPv6 on the other.
    #[error("starts with {start} and ends with {end}: both must be of one family")]
    MixedFamilies {
        /// First address.
        start: IpAddr,
        /// Last address.
        end: IpAddr,
    },
    /// The end lies before the start.
    #[error("ends ({end}) before it starts ({start}), write the lower address first")]
    Reversed {
        /// First address.
        start: IpAddr,
        /// Last address.
        end: IpAddr,
    },
    /// `0.0.0.0/0`, `::/0` or the same as a range.
    #[error("covers all of {0}, the nodes, pods and Services among them")]
    WholeFamily(IpFamily),
    /// `::ffff:192.0.2.1`: on the wire that is IPv4.
    #[error("{0} is IPv4 mapped into IPv6, write it as IPv4")]
    MappedV4(Ipv6Addr),
    /// Shares addresses with a block that no Service can be reached at.
    #[error("shares addresses with {block} ({what}), which can't be the address of a Service")]
    SpecialPurpose {
        /// The block in CIDR form.
        block: &'static str,
        /// Its name in the registry.
        what: &'static str,
    },
}

/// Blocks that can't hold the address of a Service: text, first, last, name (RFC 6890, RFC 4291 §2.4).
const SPECIAL: &[(&str, IpAddr, IpAddr, &str)] = &[
    (
        "0.0.0.0/8",
        v4(0, 0, 0, 0),
        v4(0, 255, 255, 255),
        "this network",
    ),
    (
        "127.0.0.0/8",
        v4(127, 0, 0, 0),
        v4(127, 255, 255, 255),
        "loopback",
    ),
    (
        "169.254.0.0/16",
        v4(169, 254, 0, 0),
        v4(169, 254, 255, 255),
        "link-local",
    ),
    (
        "224.0.0.0/4",
        v4(224, 0, 0, 0),
        v4(239, 255, 255, 255),
        "multicast",
    ),
    (
        "255.255.255.255/32",
        v4(255, 255, 255, 255),
        v4(255, 255, 255, 255),
        "limited broadcast",
    ),
    ("::/128", v6(0), v6(0), "unspecified"),
    ("::1/128", v6(1), v6(1), "loopback"),
    (
        "::ffff:0:0/96",
        v6(0xffff << 32),
        v6(0xffff_ffff_ffff),
        "IPv4-mapped",
    ),
    (
        "fe80::/10",
        v6(0xfe80 << 112),
        v6((0xfec0 << 112) - 1),
        "link-local",
    ),
    ("ff00::/8", v6(0xff00 << 112), v6(u128::MAX), "multicast"),
];

const fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(a, b, c, d))
}

const fn v6(bits: u128) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from_bits(bits))
}

impl AddressRange {
    /// The range from `start` to `end`, both included. Errors: two families, reversed, or all addresses of a family.
    pub fn new(start: IpAddr, end: IpAddr) -> Result<Self, RangeError> {
        let family = IpFamily::of(start);
        if family != IpFamily::of(end) {
            return Err(RangeError::MixedFamilies { start, end });
        }
        if start > end {
            return Err(RangeError::Reversed { start, end });
        }
        if number(start) == 0 && number(end) == last_of(family) {
            return Err(RangeError::WholeFamily(family));
        }
        Ok(Self { start, end })
    }

    /// The range of one prefix; bits of `address` behind `length` are ignored, as in `kubectl` and `MetalLB`.
    pub fn from_prefix(address: IpAddr, length: u8) -> Result<Self, RangeError> {
        let family = IpFamily::of(address);
        let host_bits =
            family
                .bits()
                .checked_sub(length)
                .ok_or_else(|| RangeError::BadPrefixLength {
                    length: length.to_string(),
                    family,
                })?;
        let hosts = if host_bits == 0 {
            0
        } else {
            u128::MAX >> (128 - u32::from(host_bits))
        };
        let start = number(address) & !hosts;
        Self::new(address_of(family, start), address_of(family, start | hosts))
    }

    /// Family of all its addresses.
    pub fn family(&self) -> IpFamily {
        IpFamily::of(self.start)
    }

    /// First address.
    pub fn start(&self) -> IpAddr {
        self.start
    }

    /// Last address, included.
    pub fn end(&self) -> IpAddr {
        self.end
    }

    /// Number of addresses, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a range is never empty")]
    pub fn len(&self) -> u128 {
        // cannot overflow: `new` refuses the only range with 2^128 addresses
        number(self.end) - number(self.start) + 1
    }

    /// Whether `address` lies inside.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.start <= address && address <= self.end
    }

    /// The address at `offset`, counted from 0 at the start.
    pub fn get(&self, offset: u128) -> Option<IpAddr> {
        (offset < self.len()).then(|| address_of(self.family(), number(self.start) + offset))
    }

    /// How far `address` is from the start; `None` outside.
    pub fn offset_of(&self, address: IpAddr) -> Option<u128> {
        self.contains(address)
            .then(|| number(address) - number(self.start))
    }

    /// All addresses in order; lazily, a /64 has more than one wants to see.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let range = *self;
        (0..range.len()).map_while(move |offset| range.get(offset))
    }

    /// The addresses that both have.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end);
        (self.family() == other.family() && start <= end).then_some(Self { start, end })
    }

    /// The smallest list of prefixes that covers exactly this range, as (first address, length), in order.
    pub fn prefixes(&self) -> Vec<(IpAddr, u8)> {
        let family = self.family();
        let (mut at, end) = (number(self.start), number(self.end));
        let mut prefixes = Vec::new();
        loop {
            let mut host_bits = at.trailing_zeros().min(u32::from(family.bits()));
            // shrink until the block ends inside; a block of 128 host bits is a whole family, which `new` refuses
            while host_bits >= 128 || (1_u128 << host_bits) - 1 > end - at {
                host_bits -= 1;
            }
            let length = u8::try_from(u32::from(family.bits()) - host_bits);
            prefixes.push((address_of(family, at), length.expect("at most 128")));
            let last = at + ((1_u128 << host_bits) - 1);
            if last == end {
                return prefixes;
            }
            at = last + 1;
        }
    }

    /// Refuses what can't be the address of a Service: loopback, link-local, multicast, broadcast … (RFC 6890).
    pub fn check_assignable(&self) -> Result<(), RangeError> {
        for &(block, first, last, what) in SPECIAL {
            let special = Self {
                start: first,
                end: last,
            };
            if self.intersection(&special).is_some() {
                return Err(RangeError::SpecialPurpose { block, what });
            }
        }
        Ok(())
    }

    /// Reads an entry of `IPAddressPool.spec.addresses`: the syntax, then [`check_assignable`](Self::check_assignable).
    pub fn parse_assignable(text: &str) -> Result<Self, ParseRangeError> {
        let range: Self = text.parse()?;
        range.check_assignable().map_err(|cause| ParseRangeError {
            text: text.trim().to_owned(),
            cause,
        })?;
        Ok(range)
    }
}

impl FromStr for AddressRange {
    type Err = ParseRangeError;

    /// Reads `address/length` or `start-end`; blanks around the text, the dash and the slash's whole are ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        parse(text).map_err(|cause| ParseRangeError {
            text: text.to_owned(),
            cause,
        })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

fn parse(text: &str) -> Result<AddressRange, RangeError> {
    if text.is_empty() {
        return Err(RangeError::Empty);
    }
    if text.contains('%') {
        return Err(RangeError::ZoneId);
    }
    if let Some((start, end)) = text.split_once('-').filter(|_| !text.contains('/')) {
        return AddressRange::new(parse_address(start.trim())?, parse_address(end.trim())?);
    }
    let (address, length) = text
        .split_once('/')
        .ok_or(RangeError::NeitherCidrNorRange)?;
    let address = parse_address(address)?;
    AddressRange::from_prefix(address, parse_length(length, IpFamily::of(address))?)
}

fn parse_address(text: &str) -> Result<IpAddr, RangeError> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return match address {
            IpAddr::V6(mapped) if mapped.to_ipv4_mapped().is_some() => {
                Err(RangeError::MappedV4(mapped))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => Ok(address),
        };
    }
    let zero = |octet: &str| {
        octet.len() > 1 && octet.starts_with('0') && octet.bytes().all(|b| b.is_ascii_digit())
    };
    if !text.contains(':') && text.split('.').any(zero) {
        return Err(RangeError::LeadingZero(text.to_owned()));
    }
    Err(RangeError::NotAnAddress(text.to_owned()))
}

fn parse_length(text: &str, family: IpFamily) -> Result<u8, RangeError> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    match text.parse::<u8>() {
        Ok(length) if plain && length <= family.bits() => Ok(length),
        Ok(_) | Err(_) => Err(RangeError::BadPrefixLength {
            length: text.to_owned(),
            family,
        }),
    }
}

/// An address as a number; IPv4 in the low 32 bits.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn last_of(family: IpFamily) -> u128 {
    match family {
        IpFamily::V4 => u128::from(u32::MAX),
        IpFamily::V6 => u128::MAX,
    }
}

fn address_of(family: IpFamily, number: u128) -> IpAddr {
    match family {
        IpFamily::V4 => {
            let bits =
                u32::try_from(number).expect("an offset inside an IPv4 range stays below 2^32");
            IpAddr::V4(Ipv4Addr::from_bits(bits))
        }
        IpFamily::V6 => IpAddr::V6(Ipv6Addr::from_bits(number)),
    }
}

#[cfg(test)]
mod tests;
