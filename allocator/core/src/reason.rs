//! Every "no" has a word.
//!
//! Owns the reasons why a Service has no address, and which event reason of `MetalLB` each is reported under. The same
//! word appears in the condition, as the first word of the event's message, in logs and as a metric label.

use std::fmt;

/// Why a Service was refused an address, or lost the one it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A requested address or pool can't be read.
    InvalidRequest,
    /// Two requests that exclude each other.
    ConflictingRequest,
    /// A requested address has a family that the Service's cluster addresses lack.
    FamilyMismatch,
    /// The Service has no cluster address, so its families are unknown.
    NoClusterIps,
    /// `RequireDualStack` with fewer than two cluster addresses.
    NotEnoughClusterIps,
    /// No pool holds the requested address.
    AddressNotInAnyPool,
    /// The requested address lies in another pool than the requested one.
    AddressInOtherPool,
    /// Another Service has the requested address and does not share it.
    AddressInUse,
    /// A node has the address, or the pool leaves it out (`avoidBuggyIPs`).
    AddressReserved,
    /// The requested pool does not exist.
    UnknownPool,
    /// The requested pool has a mistake in it and hands nothing out.
    PoolInvalid,
    /// The pool's `serviceAllocation` excludes the Service.
    PoolNotAllowed,
    /// There is no pool at all.
    NoPool,
    /// There are pools, but none is for this Service.
    NoPoolMatches,
    /// The pools for this Service have nothing left.
    PoolsFull,
    /// No pool has an address of both families left.
    NoDualStackPool,
    /// Sharing an address with its other holders is no longer possible.
    SharingRefused,
    /// The pool of the address is gone or no longer holds it.
    PoolGone,
    /// The request was changed to something else than the address held.
    RequestChanged,
    /// `spec.type` is not `LoadBalancer`.
    NotLoadBalancer,
    /// `spec.loadBalancerClass` names another implementation.
    ClassNotOurs,
    /// `clusterIP: None` can't be reached through a load balancer.
    Headless,
}

impl Reason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "InvalidRequest",
            Self::ConflictingRequest => "ConflictingRequest",
            Self::FamilyMismatch => "FamilyMismatch",
            Self::NoClusterIps => "NoClusterIPs",
            Self::NotEnoughClusterIps => "NotEnoughClusterIPs",
            Self::AddressNotInAnyPool => "AddressNotInAnyPool",
            Self::AddressInOtherPool => "AddressInOtherPool",
            Self::AddressInUse => "AddressInUse",
            Self::AddressReserved => "AddressReserved",
            Self::UnknownPool => "UnknownPool",
            Self::PoolInvalid => "PoolInvalid",
            Self::PoolNotAllowed => "PoolNotAllowed",
            Self::NoPool => "NoPool",
            Self::NoPoolMatches => "NoPoolMatches",
            Self::PoolsFull => "PoolsFull",
            Self::NoDualStackPool => "NoDualStackPool",
            Self::SharingRefused => "SharingRefused",
            Self::PoolGone => "PoolGone",
            Self::RequestChanged => "RequestChanged",
            Self::NotLoadBalancer => "NotLoadBalancer",
            Self::ClassNotOurs => "ClassNotOurs",
            Self::Headless => "Headless",
        }
    }

    /// The event that reports a refusal with this reason.
    pub fn event(self) -> EventReason {
        match self {
            Self::FamilyMismatch => EventReason::NoLbIpsIpFamily,
            Self::NoClusterIps => EventReason::NoClusterIpsIpFamily,
            Self::NotEnoughClusterIps => EventReason::NotEnoughClusterIps,
            Self::InvalidRequest
            | Self::ConflictingRequest
            | Self::AddressNotInAnyPool
            | Self::AddressInOtherPool
            | Self::AddressInUse
            | Self::AddressReserved
            | Self::UnknownPool
            | Self::PoolInvalid
            | Self::PoolNotAllowed
            | Self::NoPool
            | Self::NoPoolMatches
            | Self::PoolsFull
            | Self::NoDualStackPool
            | Self::SharingRefused
            | Self::PoolGone
            | Self::RequestChanged
            | Self::NotLoadBalancer
            | Self::ClassNotOurs
            | Self::Headless => EventReason::AllocationFailed,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A refusal as it is shown: the word and a sentence with the values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Refusal {
    /// The word.
    pub reason: Reason,
    /// What was asked for, what stood in the way, what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal with its sentence.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// Reasons of events, as `MetalLB` spells them where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventReason {
    /// Normal: the Service has its addresses.
    IpAllocated,
    /// Normal: the Service lost its addresses.
    ClearAssignment,
    /// Normal: one family of two could be had.
    AdditionalAssignFailed,
    /// Warning: no address.
    AllocationFailed,
    /// Warning: requested addresses and families disagree.
    NoLbIpsIpFamily,
    /// Warning: the Service has no cluster address.
    NoClusterIpsIpFamily,
    /// Warning: `RequireDualStack` with one cluster address.
    NotEnoughClusterIps,
    /// Warning on a pool: it breaks a rule and hands nothing out.
    InvalidConfiguration,
    /// Warning on a pool: a node has one of its addresses.
    AddressReserved,
}

impl EventReason {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IpAllocated => "IPAllocated",
            Self::ClearAssignment => "ClearAssignment",
            Self::AdditionalAssignFailed => "AdditionalAssignFailed",
            Self::AllocationFailed => "AllocationFailed",
            Self::NoLbIpsIpFamily => "nolbIPsIPFamily",
            Self::NoClusterIpsIpFamily => "noclusterIPsIPFamily",
            Self::NotEnoughClusterIps => "not enough clusterips",
            Self::InvalidConfiguration => "InvalidConfiguration",
            Self::AddressReserved => "AddressReserved",
        }
    }

    /// Whether it is a Warning rather than Normal.
    pub fn is_warning(self) -> bool {
        match self {
            Self::IpAllocated | Self::ClearAssignment | Self::AdditionalAssignFailed => false,
            Self::AllocationFailed
            | Self::NoLbIpsIpFamily
            | Self::NoClusterIpsIpFamily
            | Self::NotEnoughClusterIps
            | Self::InvalidConfiguration
            | Self::AddressReserved => true,
        }
    }
}
