//! The rules as an API server and our processes ask for them.
//!
//! Owns the way from JSON to the typed rules and back. The server calls [`admit`] and [`admit_delete`]; a process that finds
//! objects stored calls [`stored`], which takes them in the order of their creation, so that of two that exclude each other
//! the older one stays in force.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Cause, FieldError, Others, finding, name};

/// A kind that has rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `IPAddressPool`
    IPAddressPool,
    /// `L2Advertisement`
    L2Advertisement,
    /// `BGPAdvertisement`
    BGPAdvertisement,
    /// `BGPPeer`, both versions
    BGPPeer,
    /// `BFDProfile`
    BFDProfile,
    /// `Community`
    Community,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::IPAddressPool,
        Self::L2Advertisement,
        Self::BGPAdvertisement,
        Self::BGPPeer,
        Self::BFDProfile,
        Self::Community,
    ];

    /// The kind as it stands in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IPAddressPool => "IPAddressPool",
            Self::L2Advertisement => "L2Advertisement",
            Self::BGPAdvertisement => "BGPAdvertisement",
            Self::BGPPeer => "BGPPeer",
            Self::BFDProfile => "BFDProfile",
            Self::Community => "Community",
        }
    }

    /// The plural in paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::IPAddressPool => "ipaddresspools",
            Self::L2Advertisement => "l2advertisements",
            Self::BGPAdvertisement => "bgpadvertisements",
            Self::BGPPeer => "bgppeers",
            Self::BFDProfile => "bfdprofiles",
            Self::Community => "communities",
        }
    }

    /// The kind of group `metallb.io` with this plural, if it has rules.
    pub fn of_plural(plural: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.plural() == plural)
    }
}

impl Others {
    /// Adds a stored object; one that cannot be read is left out.
    pub fn add(&mut self, kind: Kind, object: &Value) {
        fn push<K: DeserializeOwned>(list: &mut Vec<K>, object: &Value) {
            list.extend(serde_json::from_value(object.clone()));
        }
        match kind {
            Kind::IPAddressPool => push(&mut self.pools, object),
            Kind::L2Advertisement => push(&mut self.l2_advertisements, object),
            Kind::BGPAdvertisement => push(&mut self.bgp_advertisements, object),
            Kind::BGPPeer => push(&mut self.peers, object),
            Kind::BFDProfile => push(&mut self.bfd_profiles, object),
            Kind::Community => push(&mut self.communities, object),
        }
    }
}

/// Everything for which an API server refuses to create or update an object. `others` are those of [`Kind::ALL`] in the
/// same namespace.
pub fn admit(
    kind: Kind,
    object: &Value,
    others: &Others,
    config_namespace: &str,
) -> Vec<FieldError> {
    let namespace = object
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if namespace != config_namespace {
        let cause = Cause::Namespace(config_namespace.to_owned());
        return vec![finding("metadata.namespace", namespace, cause)];
    }
    match kind {
        Kind::IPAddressPool => read(object, |pool| super::ip_address_pool(pool, others)),
        Kind::L2Advertisement => read(object, |ad| super::l2_advertisement(ad, others)),
        Kind::BGPAdvertisement => read(object, |ad| super::bgp_advertisement(ad, others)),
        Kind::BGPPeer => read(object, |peer| super::bgp_peer(peer, others)),
        Kind::BFDProfile => read(object, |profile| super::bfd_profile(profile, others)),
        Kind::Community => read(object, |aliases| super::community(aliases, others)),
    }
}

/// Everything for which an API server refuses to delete an object.
pub fn admit_delete(kind: Kind, name: &str, others: &Others) -> Vec<FieldError> {
    match kind {
        Kind::BFDProfile => super::bfd_profile_delete(name, others),
        Kind::IPAddressPool
        | Kind::L2Advertisement
        | Kind::BGPAdvertisement
        | Kind::BGPPeer
        | Kind::Community => Vec::new(),
    }
}

fn read<K: DeserializeOwned>(
    object: &Value,
    rules: impl Fn(&K) -> Vec<FieldError>,
) -> Vec<FieldError> {
    match K::deserialize(object) {
        Ok(object) => rules(&object),
        Err(error) => vec![finding("spec", "", Cause::Unreadable(error.to_string()))],
    }
}

/// A stored object that is not to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// What is wrong with it, at least one entry.
    pub errors: Vec<FieldError>,
}

/// Stored objects that break a rule, and the rest, which is good taken together.
pub fn stored(all: Others) -> (Others, Vec<Finding>) {
    let mut good = Others::default();
    let mut bad = Vec::new();
    macro_rules! take {
        ($list:ident, $kind:expr, $rules:path) => {
            for object in in_order(all.$list, |object| &object.metadata) {
                let errors = $rules(&object, &good);
                if errors.is_empty() {
                    good.$list.push(object);
                } else {
                    let name = name(&object.metadata).to_owned();
                    bad.push(Finding {
                        kind: $kind,
                        name,
                        errors,
                    });
                }
            }
        };
    }
    take!(communities, Kind::Community, super::community);
    take!(bfd_profiles, Kind::BFDProfile, super::bfd_profile);
    take!(pools, Kind::IPAddressPool, super::ip_address_pool);
    take!(peers, Kind::BGPPeer, super::bgp_peer);
    take!(
        l2_advertisements,
        Kind::L2Advertisement,
        super::l2_advertisement
    );
    take!(
        bgp_advertisements,
        Kind::BGPAdvertisement,
        super::bgp_advertisement
    );
    (good, bad)
}

/// Oldest first; of one age by namespace and name.
fn in_order<K>(mut list: Vec<K>, meta: impl Fn(&K) -> &ObjectMeta) -> Vec<K> {
    let age = |meta: &ObjectMeta| meta.creation_timestamp.as_ref().map(|Time(at)| *at);
    list.sort_by(|a, b| {
        let (a, b) = (meta(a), meta(b));
        (age(a), &a.namespace, &a.name).cmp(&(age(b), &b.namespace, &b.name))
    });
    list
}
