//! One range of addresses and which of them are taken.
//!
//! Owns the arithmetic between addresses and slots. Never decides which address a Service should get.

use std::net::IpAddr;

use api_model::AddressRange;

use crate::slots::Slots;

/// Why a number or address could not be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError<T> {
    /// It lies outside the range, or is one that the range leaves out (network or broadcast address).
    #[error("{wanted} is not in the valid range, {first}-{last}")]
    NotInRange {
        /// What was asked for.
        wanted: T,
        /// First of the range that may be used.
        first: T,
        /// Last of the range that may be used.
        last: T,
    },
    /// Somebody has it.
    #[error("{0} is already allocated")]
    InUse(T),
    /// Nothing is left between first and last.
    #[error("the range {first}-{last} is full")]
    Exhausted {
        /// First of the range.
        first: T,
        /// Last of the range.
        last: T,
    },
}

/// A range with its taken addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeAllocator {
    range: AddressRange,
    slots: Slots,
}

impl RangeAllocator {
    /// All addresses of the range, free.
    pub fn new(range: AddressRange) -> Self {
        Self {
            range,
            slots: Slots::new(range.len()),
        }
    }

    /// The addresses it is about.
    pub fn range(&self) -> &AddressRange {
        &self.range
    }

    /// The slots behind the addresses.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Number of taken addresses.
    pub fn used(&self) -> u128 {
        self.slots.used()
    }

    /// Number of free addresses.
    pub fn free(&self) -> u128 {
        self.slots.len() - self.slots.used()
    }

    /// Whether `address` is taken; false outside.
    pub fn has(&self, address: IpAddr) -> bool {
        self.range
            .offset_of(address)
            .is_some_and(|slot| self.slots.has(slot))
    }

    /// Takes `address`. Errors: outside, or taken.
    pub fn allocate(&mut self, address: IpAddr) -> Result<(), AllocateError<IpAddr>> {
        let slot = self
            .range
            .offset_of(address)
            .ok_or(AllocateError::NotInRange {
                wanted: address,
                first: self.range.start(),
                last: self.range.end(),
            })?;
        if self.slots.take(slot) {
            Ok(())
        } else {
            Err(AllocateError::InUse(address))
        }
    }

    /// Frees `address`; false if it was free or lies outside.
    pub fn release(&mut self, address: IpAddr) -> bool {
        self.range
            .offset_of(address)
            .is_some_and(|slot| self.slots.free(slot))
    }

    /// The first free address at or after `from`, or after the start if `from` lies before it. Takes nothing.
    pub fn next_free(&self, from: IpAddr) -> Option<IpAddr> {
        let slot = if from <= self.range.start() {
            0
        } else {
            self.range.offset_of(from)?
        };
        self.range.get(self.slots.next_free(slot)?)
    }
}
