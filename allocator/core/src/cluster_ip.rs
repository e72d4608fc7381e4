//! `ClusterIP`s of one service CIDR.
//!
//! Owns which addresses of the CIDR are taken and which is handed out next (KEP-3070, KEP-1880). The first address is
//! never used, for IPv4 neither is the last. Never knows Services.

use std::net::IpAddr;

use api_model::{AddressRange, IpFamily};

use crate::{
    band::Band,
    range::{AllocateError, RangeAllocator},
};

/// Why a range can't be a service CIDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClusterIpRangeError {
    /// More than 2^64 addresses.
    #[error("{0} is too large for ClusterIPs, an IPv6 prefix must have length 64 or more")]
    TooLarge(AddressRange),
}

/// Allocates `ClusterIP`s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterIpAllocator {
    addresses: RangeAllocator,
    band: Band,
}

impl ClusterIpAllocator {
    /// All of the CIDR free. Errors: an IPv6 prefix shorter than 64.
    pub fn new(cidr: AddressRange) -> Result<Self, ClusterIpRangeError> {
        let size = cidr.len();
        if size > 1 << 64 {
            return Err(ClusterIpRangeError::TooLarge(cidr));
        }
        let last = match cidr.family() {
            IpFamily::V4 => size.saturating_sub(2),
            IpFamily::V6 => size - 1,
        };
        Ok(Self {
            addresses: RangeAllocator::new(cidr),
            band: Band::cluster_ip(size, 1, last),
        })
    }

    /// The service CIDR.
    pub fn range(&self) -> &AddressRange {
        self.addresses.range()
    }

    /// Takes the address that somebody chose. Errors: outside (network and broadcast address too), taken.
    pub fn allocate(&mut self, address: IpAddr) -> Result<(), AllocateError<IpAddr>> {
        match self.range().offset_of(address) {
            Some(slot) if self.band.contains(slot) => self.addresses.allocate(address),
            Some(_) | None => {
                let (first, last) = self.ends();
                Err(AllocateError::NotInRange {
                    wanted: address,
                    first,
                    last,
                })
            }
        }
    }

    /// Takes the next free address, upper band first, from a start that `seed` chooses. Errors: exhausted.
    pub fn allocate_next(&mut self, seed: u64) -> Result<IpAddr, AllocateError<IpAddr>> {
        let (first, last) = self.ends();
        let slot = self.band.next(self.addresses.slots(), seed);
        let address = slot.and_then(|slot| self.range().get(slot));
        let address = address.ok_or(AllocateError::Exhausted { first, last })?;
        self.addresses.allocate(address)?;
        Ok(address)
    }

    /// Frees the address; false if it was free or lies outside.
    pub fn release(&mut self, address: IpAddr) -> bool {
        self.addresses.release(address)
    }

    /// Whether the address is taken.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.has(address)
    }

    /// Number of addresses that can still be handed out.
    pub fn free(&self) -> u128 {
        self.band.len() - self.used()
    }

    /// Number of taken addresses.
    pub fn used(&self) -> u128 {
        self.addresses.used()
    }

    /// First and last address that may be used (of the whole range, should it have none).
    fn ends(&self) -> (IpAddr, IpAddr) {
        let range = self.range();
        let first = range.get(1).unwrap_or(range.start());
        let last = range.get(self.band.len()).unwrap_or(range.end());
        (first, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocator(cidr: &str) -> ClusterIpAllocator {
        ClusterIpAllocator::new(cidr.parse().unwrap()).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_dynamic_band_of_a_slash_16_begins_at_256() {
        let mut ips = allocator("10.96.0.0/16");
        assert_eq!(ips.allocate_next(0), Ok(ip("10.96.1.0")));
        assert_eq!(ips.allocate_next(4099), Ok(ip("10.96.17.3")));
        assert_eq!((ips.used(), ips.free()), (2, 65_534 - 2));
    }

    #[test]
    fn network_and_broadcast_are_never_handed_out() {
        let mut v4 = allocator("10.96.0.0/28");
        let out_of_range = |wanted| AllocateError::NotInRange {
            wanted: ip(wanted),
            first: ip("10.96.0.1"),
            last: ip("10.96.0.14"),
        };
        assert_eq!(v4.allocate(ip("10.96.0.0")), Err(out_of_range("10.96.0.0")));
        assert_eq!(
            v4.allocate(ip("10.96.0.15")),
            Err(out_of_range("10.96.0.15"))
        );
        assert_eq!(v4.allocate(ip("10.97.0.1")), Err(out_of_range("10.97.0.1")));
        let all: Vec<IpAddr> = (0..14).map(|_| v4.allocate_next(9).unwrap()).collect();
        let mut sorted = all.clone();
        sorted.sort();
        assert_eq!(
            sorted,
            (1..15)
                .map(|n| ip(&format!("10.96.0.{n}")))
                .collect::<Vec<_>>()
        );
        let full = AllocateError::Exhausted {
            first: ip("10.96.0.1"),
            last: ip("10.96.0.14"),
        };
        assert_eq!(v4.allocate_next(9), Err(full));
        assert!(v4.release(ip("10.96.0.9")));
        assert_eq!(v4.allocate(ip("10.96.0.9")), Ok(()));
        assert_eq!(
            v4.allocate(ip("10.96.0.9")),
            Err(AllocateError::InUse(ip("10.96.0.9")))
        );

        let mut v6 = allocator("fd00:10:96::/124");
        assert!(v6.allocate(ip("fd00:10:96::")).is_err());
        assert_eq!(v6.allocate(ip("fd00:10:96::f")), Ok(()));
        assert_eq!(v6.free(), 14);
    }

    #[test]
    fn tiny_and_huge_ranges_are_handled() {
        let mut none = allocator("10.96.0.0/31");
        assert!(matches!(
            none.allocate_next(1),
            Err(AllocateError::Exhausted { .. })
        ));
        assert_eq!(none.free(), 0);
        assert!(ClusterIpAllocator::new("fd00::/63".parse().unwrap()).is_err());
        let mut huge = allocator("fd00:10:96::/64");
        assert_eq!(huge.allocate_next(0), Ok(ip("fd00:10:96::100")));
        assert_eq!(huge.free(), (1 << 64) - 2);
    }
}
