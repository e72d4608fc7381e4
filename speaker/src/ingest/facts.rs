//! What this node has been told: the newest version of each object.
//!
//! Owns the tables that the watches fill. Never interprets an object beyond its key. An object without a name can't be
//! keyed and is left out; no API server sends one.

use std::{collections::BTreeMap, sync::Arc};

use api_model::{NodeName, PoolName, ServiceKey};
use api_types::{
    BFDProfile, BGPAdvertisement, BGPPeer, Community, IPAddressPool, L2Advertisement, names::label,
};
use k8s_openapi::api::{
    core::v1::{Node, Secret, Service},
    discovery::v1::EndpointSlice,
};
use kube::ResourceExt;

/// One object's newest version, or its end.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// Made or changed.
    Apply(Arc<K>),
    /// Deleted.
    Delete(Arc<K>),
}

/// A change of one object of any watched kind.
#[derive(Clone, Debug)]
pub enum Fact {
    /// A Service.
    Service(Change<Service>),
    /// An EndpointSlice.
    Slice(Change<EndpointSlice>),
    /// A Node.
    Node(Change<Node>),
    /// A pool; its addresses are announced as the advertisements say.
    Pool(Change<IPAddressPool>),
    /// A layer 2 advertisement.
    L2Advertisement(Change<L2Advertisement>),
    /// A BGP advertisement.
    BgpAdvertisement(Change<BGPAdvertisement>),
    /// A BGP peer.
    BgpPeer(Change<BGPPeer>),
    /// A BFD profile; only checked, there are no BFD sessions yet.
    BfdProfile(Change<BFDProfile>),
    /// Community aliases.
    Community(Change<Community>),
    /// A Secret that a peer's password may stand in.
    Secret(Change<Secret>),
}

/// Everything known. Ordered, so that what is derived from it is stable.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Services of all namespaces.
    pub services: BTreeMap<ServiceKey, Arc<Service>>,
    /// Slices by the Service they belong to, then by name.
    pub slices: BTreeMap<ServiceKey, BTreeMap<String, Arc<EndpointSlice>>>,
    /// Nodes.
    pub nodes: BTreeMap<NodeName, Arc<Node>>,
    /// Configuration as it is stored.
    pub stored: Configuration,
    /// The part of it that can be used: see [`Facts::check`].
    pub config: Configuration,
    /// Namespace and name of a slice to the Service it is filed under.
    slice_owners: BTreeMap<(String, String), ServiceKey>,
}

/// Objects of the configuration namespace, by name.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// Pools.
    pub pools: BTreeMap<PoolName, Arc<IPAddressPool>>,
    /// Layer 2 advertisements by name.
    pub l2_advertisements: BTreeMap<String, Arc<L2Advertisement>>,
    /// BGP advertisements by name.
    pub bgp_advertisements: BTreeMap<String, Arc<BGPAdvertisement>>,
    /// BGP peers by name.
    pub bgp_peers: BTreeMap<String, Arc<BGPPeer>>,
    /// BFD profiles by name.
    pub bfd_profiles: BTreeMap<String, Arc<BFDProfile>>,
    /// Secrets of the configuration namespace by name.
    pub secrets: BTreeMap<String, Arc<Secret>>,
    /// Community objects by name.
    pub communities: BTreeMap<String, Arc<Community>>,
}

impl Facts {
    /// Takes over one change.
    pub fn take(&mut self, fact: Fact) {
        match fact {
            Fact::Service(change) => put(&mut self.services, change, service_key),
            Fact::Slice(change) => self.take_slice(change),
            Fact::Node(change) => put(&mut self.nodes, change, |node| {
                name_of(node).map(Into::into)
            }),
            Fact::Pool(change) => put(&mut self.stored.pools, change, |pool| {
                name_of(pool).map(Into::into)
            }),
            Fact::L2Advertisement(change) => {
                put(&mut self.stored.l2_advertisements, change, name_of);
            }
            Fact::BgpAdvertisement(change) => {
                put(&mut self.stored.bgp_advertisements, change, name_of);
            }
            Fact::BgpPeer(change) => put(&mut self.stored.bgp_peers, change, name_of),
            Fact::BfdProfile(change) => put(&mut self.stored.bfd_profiles, change, name_of),
            Fact::Secret(change) => put(&mut self.stored.secrets, change, name_of),
            Fact::Community(change) => put(&mut self.stored.communities, change, name_of),
        }
    }

    /// A slice moves when its Service label changes, so its old place is emptied first.
    fn take_slice(&mut self, change: Change<EndpointSlice>) {
        let (slice, keep) = match change {
            Change::Apply(slice) => (slice, true),
            Change::Delete(slice) => (slice, false),
        };
        let Some(name) = name_of(&*slice) else { return };
        let namespace = slice.namespace().unwrap_or_default();
        let place = (namespace.clone(), name.clone());
        if let Some(former) = self.slice_owners.remove(&place)
            && let Some(slices) = self.slices.get_mut(&former)
        {
            slices.remove(&name);
            if slices.is_empty() {
                self.slices.remove(&former);
            }
        }
        if let Some(service) = slice.labels().get(label::SLICE_SERVICE).filter(|_| keep) {
            let owner = ServiceKey::new(&namespace, service);
            self.slice_owners.insert(place, owner.clone());
            self.slices.entry(owner).or_default().insert(name, slice);
        }
    }

    /// The slices of a Service, in the order of their names.
    pub fn slices_of<'a>(
        &'a self,
        key: &ServiceKey,
    ) -> impl Iterator<Item = &'a Arc<EndpointSlice>> + use<'a> {
        self.slices.get(key).into_iter().flat_map(BTreeMap::values)
    }
}

/// Kind and name by which a finding about the object of a fact goes.
pub fn place_of(fact: &Fact) -> Option<(&'static str, String)> {
    fn name<K: ResourceExt>(change: &Change<K>) -> Option<String> {
        let (Change::Apply(object) | Change::Delete(object)) = change;
        let name = object.meta().name.as_deref()?;
        Some(match object.meta().namespace.as_deref() {
            None | Some("") => name.to_owned(),
            Some(namespace) => format!("{namespace}/{name}"),
        })
    }
    let (kind, name) = match fact {
        Fact::Service(change) => ("Service", name(change)),
        Fact::Slice(change) => ("EndpointSlice", name(change)),
        Fact::Node(change) => ("Node", name(change)),
        Fact::Pool(change) => ("IPAddressPool", name(change)),
        Fact::L2Advertisement(change) => ("L2Advertisement", name(change)),
        Fact::BgpAdvertisement(change) => ("BGPAdvertisement", name(change)),
        Fact::BgpPeer(change) => ("BGPPeer", name(change)),
        Fact::BfdProfile(change) => ("BFDProfile", name(change)),
        Fact::Community(change) => ("Community", name(change)),
        Fact::Secret(change) => ("Secret", name(change)),
    };
    Some((kind, name?))
}

/// The key of a Service, or `None` if it has no name.
pub fn service_key(service: &Service) -> Option<ServiceKey> {
    let name = service.metadata.name.as_deref()?;
    Some(ServiceKey::new(
        service.metadata.namespace.as_deref().unwrap_or("default"),
        name,
    ))
}

fn name_of<K: ResourceExt>(object: &K) -> Option<String> {
    object.meta().name.clone()
}

fn put<K, T: Ord>(
    table: &mut BTreeMap<T, Arc<K>>,
    change: Change<K>,
    key: impl Fn(&K) -> Option<T>,
) {
    match change {
        Change::Apply(object) => {
            if let Some(key) = key(&object) {
                table.insert(key, object);
            }
        }
        Change::Delete(object) => {
            if let Some(key) = key(&object) {
                table.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(service: Option<&str>) -> Arc<EndpointSlice> {
        let mut slice = EndpointSlice::default();
        slice.metadata.name = Some("web-1".into());
        slice.metadata.namespace = Some("demo".into());
        slice.metadata.labels = service
            .map(|service| BTreeMap::from([(label::SLICE_SERVICE.to_owned(), service.to_owned())]));
        Arc::new(slice)
    }

    #[test]
    fn a_slice_whose_label_changes_leaves_its_old_service() {
        let mut facts = Facts::default();
        facts.take(Fact::Slice(Change::Apply(slice(Some("web")))));
        facts.take(Fact::Slice(Change::Apply(slice(Some("shop")))));
        let owners: Vec<_> = facts.slices.keys().map(ToString::to_string).collect();
        assert_eq!(owners, ["demo/shop"]);
        facts.take(Fact::Slice(Change::Apply(slice(None))));
        assert!(facts.slices.is_empty());
    }

    #[test]
    fn a_deleted_object_is_forgotten() {
        let mut facts = Facts::default();
        facts.take(Fact::Slice(Change::Apply(slice(Some("web")))));
        facts.take(Fact::Slice(Change::Delete(slice(Some("web")))));
        assert!(facts.slices.is_empty());
        let service = Arc::new(Service {
            metadata: kube::core::ObjectMeta {
                name: Some("web".into()),
                namespace: Some("demo".into()),
                ..Default::default()
            },
            ..Default::default()
        });
        facts.take(Fact::Service(Change::Apply(service.clone())));
        assert_eq!(facts.services.len(), 1);
        facts.take(Fact::Service(Change::Delete(service)));
        assert!(facts.services.is_empty());
    }
}
