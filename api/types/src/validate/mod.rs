//! What makes a configuration object good, beyond its schema.
//!
//! Owns the rules between fields and between objects, one function a kind; [`admit`] runs them for an API server,
//! [`stored`] for a process that found the objects there. Pure: an object and the others in, findings out; nothing panics,
//! whatever is stored. Never decides what to do about a finding.
//!
//! "Not there yet" is no finding: a missing BFD profile, Secret or community alias may come later.
//! Message pieces that `MetalLB`'s users match on are kept. Source: `MetalLB` 0.16 webhooks, RFC 4271, RFC 6890.

mod admission;
mod advertisement;
mod community;
mod peer;
mod pool;

use std::{collections::BTreeSet, fmt, net::IpAddr};

use api_model::ParseRangeError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::ObjectMeta;

pub use self::{
    admission::{Finding, Kind, admit, admit_delete, stored},
    advertisement::{bgp_advertisement, l2_advertisement},
    community::community,
    peer::{bfd_profile, bfd_profile_delete, bgp_peer},
    pool::ip_address_pool,
};
use crate::{
    BFDProfile, BGPAdvertisement, BGPPeer, Community, CommunityError, DurationError, IPAddressPool,
    L2Advertisement,
    selector::{self, SelectorError},
};

/// The configuration that is there. An object of the same namespace and name as the one looked at does not count.
#[derive(Clone, Debug, Default)]
pub struct Others {
    /// Pools.
    pub pools: Vec<IPAddressPool>,
    /// Layer 2 advertisements.
    pub l2_advertisements: Vec<L2Advertisement>,
    /// BGP advertisements.
    pub bgp_advertisements: Vec<BGPAdvertisement>,
    /// Peers.
    pub peers: Vec<BGPPeer>,
    /// BFD profiles.
    pub bfd_profiles: Vec<BFDProfile>,
    /// Communities.
    pub communities: Vec<Community>,
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Where: `spec.addresses[0]`.
    pub path: String,
    /// What stands there.
    pub value: String,
    /// What is wrong with it.
    pub cause: Cause,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: Invalid value: {:?}: {}",
            self.path, self.value, self.cause
        )
    }
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// An entry stands twice in a list.
    #[error("duplicate entry")]
    Duplicate,
    /// A list that must not be empty is.
    #[error("must not be empty")]
    Empty,
    /// A selector is malformed.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// A range is malformed or cannot hold addresses of Services.
    #[error("invalid CIDR or range in pool {pool:?}: {error}")]
    Range {
        /// The pool.
        pool: String,
        /// What is wrong.
        error: ParseRangeError,
    },
    /// Two ranges have addresses in common.
    #[error(
        "CIDR {range:?} in pool {pool:?} overlaps with already defined CIDR {other:?} of pool {other_pool:?}"
    )]
    Overlap {
        /// The range, as written.
        range: String,
        /// Its pool.
        pool: String,
        /// The range that was there, as written.
        other: String,
        /// Its pool.
        other_pool: String,
    },
    /// The number is outside of its bounds.
    #[error("must be from {min} to {max}")]
    OutOfRange {
        /// Smallest allowed.
        min: u64,
        /// Largest allowed.
        max: u64,
    },
    /// An aggregate would announce addresses outside of the pool.
    #[error(
        "invalid aggregation length {length}: {range:?} of pool {pool:?} is a /{prefix}, so that the aggregate would announce addresses outside of the pool"
    )]
    Aggregation {
        /// The aggregation length.
        length: u8,
        /// The range, as written.
        range: String,
        /// Its pool.
        pool: String,
        /// Length of the shortest prefix in the range.
        prefix: u8,
    },
    /// Selecting Services and aggregating exclude each other.
    #[error(
        "serviceSelectors can only be used with aggregationLength 32 and aggregationLengthV6 128"
    )]
    SelectorsWithAggregation,
    /// One route would have two values of `LOCAL_PREF`.
    #[error(
        "invalid localPref {ours}: advertisement {other:?} announces the same prefixes to the same peers with localPref {theirs}"
    )]
    LocalPref {
        /// The value looked at.
        ours: u32,
        /// The other advertisement.
        other: String,
        /// Its value.
        theirs: u32,
    },
    /// There is an advertisement that says the same.
    #[error("an identical advertisement already exists: {0:?}")]
    Identical(String),
    /// A community value is malformed.
    #[error(transparent)]
    Community(#[from] CommunityError),
    /// The alias is defined elsewhere too.
    #[error("duplicate definition of community {alias:?}, defined in Community {other:?} too")]
    DuplicateAlias {
        /// The alias.
        alias: String,
        /// The object that defines it too.
        other: String,
    },
    /// An alias without a name, or one that reads like a value.
    #[error("the name of a community must not be empty and must not hold a colon")]
    AliasName,
    /// Of two fields exactly one must be given.
    #[error("exactly one of {one} and {other} must be given")]
    ExactlyOne {
        /// One field.
        one: &'static str,
        /// The other field.
        other: &'static str,
    },
    /// Not an address to dial.
    #[error("invalid BGPPeer address {0:?}")]
    PeerAddress(String),
    /// Not an address to dial from.
    #[error("invalid BGPPeer source address {0:?}")]
    SourceAddress(String),
    /// The two ends are of different families.
    #[error("is not of the family of peerAddress {0}")]
    SourceFamily(IpAddr),
    /// Not a BGP identifier.
    #[error("invalid router ID {0:?}: an IPv4 address other than 0.0.0.0 is needed")]
    RouterId(String),
    /// A time is malformed.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// RFC 4271 §4.2.
    #[error("invalid hold time: must be 0 or from 3s to 65535s")]
    HoldTime,
    /// A keepalive that comes after the hold time.
    #[error("invalid keepalive time: must not be longer than the hold time {0:?}")]
    KeepaliveTime(String),
    /// Not whole seconds from 1 to 65535.
    #[error("connect time must be whole seconds from 1s to 65535s")]
    ConnectTime,
    /// Multihop between two ends of one AS.
    #[error("ebgpMultiHop cannot be used for a peer of the same AS")]
    MultiHopInside,
    /// The Secret lies in another namespace.
    #[error("the Secret must be in namespace {0:?}")]
    SecretNamespace(String),
    /// There is a session with this router on a common node.
    #[error(
        "peer {other:?} already exists with the same address, port and VRF for nodes that both select"
    )]
    PeerExists {
        /// The other peer.
        other: String,
    },
    /// The profile is in use.
    #[error("failed to delete BFDProfile {profile:?}: BGPPeer {peer:?} uses it")]
    ProfileInUse {
        /// The profile.
        profile: String,
        /// The peer.
        peer: String,
    },
    /// The object lies in a namespace that nobody reads.
    #[error("resource must be created in {0} namespace")]
    Namespace(String),
    /// The object is not of the kind's shape.
    #[error("{0}")]
    Unreadable(String),
}

/// Makes a finding.
fn finding(
    path: impl Into<String>,
    value: impl Into<String>,
    cause: impl Into<Cause>,
) -> FieldError {
    FieldError {
        path: path.into(),
        value: value.into(),
        cause: cause.into(),
    }
}

fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}

/// Whether two objects of one kind are the same one.
fn same(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    a.name == b.name && a.namespace == b.namespace
}

/// Entries that stand twice.
fn duplicates(path: &str, list: &[String]) -> Vec<FieldError> {
    let mut seen = BTreeSet::new();
    list.iter()
        .enumerate()
        .filter(|(_, entry)| !seen.insert(*entry))
        .map(|(at, entry)| finding(format!("{path}[{at}]"), entry, Cause::Duplicate))
        .collect()
}

/// Selectors that are malformed or stand twice.
fn selectors(path: &str, list: &[LabelSelector]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, one) in list.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let text = selector_text(one);
        errors.extend(
            selector::check(one)
                .into_iter()
                .map(|error| finding(&path, &text, error)),
        );
        if list.iter().take(at).any(|before| before == one) {
            errors.push(finding(&path, &text, Cause::Duplicate));
        }
    }
    errors
}

fn selector_text(selector: &LabelSelector) -> String {
    serde_json::to_string(selector).unwrap_or_default()
}

#[cfg(test)]
mod tests;
