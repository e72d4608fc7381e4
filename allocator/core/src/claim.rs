//! What a Service asks of the allocator, and what it shows today.
//!
//! Owns the plain data that `ingest` makes of a Service object. Never knows Kubernetes types.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use api_model::{IpFamily, PoolName, Port, Protocol, ServiceKey};

use crate::reason::{Reason, Refusal};

/// `metadata.uid`: an object made anew under the same name is another one.
pub type Uid = Arc<str>;

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// A port that a Service uses on its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortUse {
    /// The protocol.
    pub protocol: Protocol,
    /// The number.
    pub port: Port,
}

impl fmt::Display for PortUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.port, self.protocol)
    }
}

/// `spec.ipFamilyPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FamilyPolicy {
    /// One address.
    #[default]
    SingleStack,
    /// Two if they can be had, else one.
    PreferDualStack,
    /// Two or none.
    RequireDualStack,
}

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Exactly these addresses; empty: any.
    pub addresses: Vec<IpAddr>,
    /// Only from this pool.
    pub pool: Option<PoolName>,
}

/// The condition `roadstead.io/Allocated` as it stands on the Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownCondition {
    /// `status: "True"`.
    pub allocated: bool,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// What the Service object shows today.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Addresses in `status.loadBalancer.ingress`.
    pub addresses: Vec<IpAddr>,
    /// Something else stands there as well (host name, unreadable address, ipMode other than VIP, ports).
    pub other: bool,
    /// The annotation that says which pool the addresses came from; the proof that we wrote them.
    pub pool: Option<PoolName>,
    /// Our condition.
    pub condition: Option<ShownCondition>,
}

/// A Service of type `LoadBalancer` that is ours to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceClaim {
    /// Its name.
    pub key: ServiceKey,
    /// Its identity.
    pub uid: Uid,
    /// `metadata.creationTimestamp` in seconds since 1970: older Services are served first.
    pub created: i64,
    /// Its labels, for `serviceSelectors`.
    pub labels: Labels,
    /// Families of its cluster addresses, in order.
    pub families: Vec<IpFamily>,
    /// One address or two.
    pub policy: FamilyPolicy,
    /// Ports it will use on the address.
    pub ports: BTreeSet<PortUse>,
    /// Services with the same key may share an address; never empty.
    pub sharing_key: Option<Arc<str>>,
    /// What its traffic depends on: empty with `externalTrafficPolicy: Cluster`, the selector's text with `Local`.
    pub backend: Arc<str>,
    /// What the user asked for, or why that can't be read.
    pub wanted: Result<Wanted, Refusal>,
    /// What it shows today.
    pub shown: Shown,
}

impl ServiceClaim {
    /// Whether anything changed that an address depends on.
    pub(crate) fn asks_the_same_as(&self, other: &Self) -> bool {
        self.labels == other.labels
            && self.families == other.families
            && self.policy == other.policy
            && self.wanted == other.wanted
            && self.shares_the_same_as(other)
    }

    /// Whether nothing changed that other holders of its address depend on.
    pub(crate) fn shares_the_same_as(&self, other: &Self) -> bool {
        self.ports == other.ports
            && self.sharing_key == other.sharing_key
            && self.backend == other.backend
    }
}

/// A Service that needs no address from us (any more).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleService {
    /// Its name.
    pub key: ServiceKey,
    /// Its identity.
    pub uid: Uid,
    /// Why it is not served.
    pub reason: Reason,
    /// Whether it still shows addresses or the annotation.
    pub shows: bool,
}

/// One held address as it is stored in the cluster (`AddressRecord`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The address.
    pub address: IpAddr,
    /// Where it came from.
    pub pool: PoolName,
    /// Under which key it is shared.
    pub sharing_key: Option<Arc<str>>,
    /// Who holds it.
    pub holders: BTreeMap<ServiceKey, RecordHolder>,
    /// Identity and version of the stored object; `None` while it is not stored.
    pub stored: Option<Stored>,
}

/// A Service in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordHolder {
    /// Identity of the Service.
    pub uid: Uid,
    /// Ports it uses.
    pub ports: BTreeSet<PortUse>,
}

/// Identity of a stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub version: Arc<str>,
}

impl Record {
    /// Whether both say the same, whatever their versions.
    pub(crate) fn says_the_same_as(&self, other: &Self) -> bool {
        self.pool == other.pool
            && self.sharing_key == other.sharing_key
            && self.holders == other.holders
    }

    /// Whether this Service is among the holders.
    pub fn holds(&self, key: &ServiceKey, uid: &Uid) -> bool {
        self.holders
            .get(key)
            .is_some_and(|holder| holder.uid == *uid)
    }
}
