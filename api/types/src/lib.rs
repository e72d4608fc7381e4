//! The objects that users and our processes write: `metallb.io` as `MetalLB`'s users know it, and `roadstead.io` for what
//! `MetalLB` has no word for.
//!
//! Owns the Rust types, their CRD manifests ([`crds`]), the rules a good object obeys ([`validate`]), the fields that are
//! accepted before their behaviour exists ([`deferred`]) and the words that stand in annotations, labels, conditions and
//! events ([`names`]). Never talks to a server, reads no clock, no file, no environment: the same object gets the same answer.
//!
//! Laws, tested beside the code: every kind survives a JSON round trip without losing a field · a stored object that breaks
//! a rule yields findings, never a panic · label selectors of two objects called disjoint match no common label set.
//!
//! Source: the field list of `MetalLB` 0.16 (public API), Kubernetes API conventions, KEP-4358 and KEP-2876 (CEL).
#![forbid(unsafe_code)]
#![expect(
    clippy::duplicated_attributes,
    reason = "print columns of one kind repeat their type"
)]

mod address_record;
mod bgp_community;
mod crds;
pub mod deferred;
mod duration;
mod metallb;
pub mod names;
pub mod selector;
pub mod validate;

pub use address_record::{
    AddressHolder, AddressRecord, AddressRecordSpec, HolderPort, RecordNameError, record_address,
    record_name,
};
pub use bgp_community::{BgpCommunity, CommunityError};
pub use crds::crds;
pub use deferred::deferred_fields;
pub use duration::{DurationError, GoDuration};
pub use metallb::*;
