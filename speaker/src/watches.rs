//! The watches of a speaker, merged into one stream of facts.
//!
//! Owns which kinds are watched and when all of them have been listed. Never interprets an object.

use std::{fmt::Debug, pin::Pin};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::{
    core::v1::{Node, Secret, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, Resource, runtime::watcher};
use serde::de::DeserializeOwned;

use crate::ingest::{Change, Fact, Finding};

/// Kinds that are watched; the first picture is whole when each was listed once.
pub(crate) const KINDS: usize = 10;

/// What a watch tells.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// An object changed.
    Fact(Fact),
    /// A stored object is not of its kind's shape. Its former version, if any, stays in force.
    Unreadable(Finding),
    /// This kind was listed; the number is its place among the kinds.
    Listed(usize),
}

type Watch = Pin<Box<dyn Stream<Item = Told> + Send>>;

/// All watches. Pages and relists are the informer's business.
pub(crate) fn start(
    client: &Client,
    namespace: &str,
) -> impl Stream<Item = Told> + Send + Unpin + use<> {
    let all = watcher::Config::default;
    let ours = || namespace;
    let watches: [Watch; KINDS] = [
        watch(
            0,
            "Service",
            Api::<Service>::all(client.clone()),
            all(),
            Fact::Service,
        ),
        watch(
            1,
            "EndpointSlice",
            Api::<EndpointSlice>::all(client.clone()),
            all(),
            Fact::Slice,
        ),
        watch(
            2,
            "Node",
            Api::<Node>::all(client.clone()),
            all(),
            Fact::Node,
        ),
        watch(
            3,
            "IPAddressPool",
            Api::namespaced(client.clone(), ours()),
            all(),
            Fact::Pool,
        ),
        watch(
            4,
            "L2Advertisement",
            Api::namespaced(client.clone(), ours()),
            all(),
            Fact::L2Advertisement,
        ),
        watch(
            5,
            "BGPAdvertisement",
            Api::namespaced(client.clone(), ours()),
            all(),
            Fact::BgpAdvertisement,
        ),
        watch(
            6,
            "BGPPeer",
            Api::namespaced(client.clone(), ours()),
            all(),
            Fact::BgpPeer,
        ),
        watch(
            7,
            "BFDProfile",
            Api::namespaced(client.clone(), ours()),
            all(),
            Fact::BfdProfile,
        ),
        watch(
            8,
            "Community",
            Api::namespaced(client.clone(), ours()),
            all(),
            Fact::Community,
        ),
        watch(
            9,
            "Secret",
            Api::<Secret>::namespaced(client.clone(), ours()),
            all().fields("type=kubernetes.io/basic-auth"),
            Fact::Secret,
        ),
    ];
    stream::select_all(watches)
}

fn watch<K>(
    place: usize,
    kind: &'static str,
    api: Api<K>,
    config: watcher::Config,
    fact: fn(Change<K>) -> Fact,
) -> Watch
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    Box::pin(
        api_client::informer(api, config).map(move |change| match change {
            api_client::Change::Apply(object) => Told::Fact(fact(Change::Apply(object))),
            api_client::Change::Delete(object) => Told::Fact(fact(Change::Delete(object))),
            api_client::Change::Invalid(invalid) => {
                let name = match invalid.namespace.as_str() {
                    "" => invalid.name.clone(),
                    namespace => format!("{namespace}/{}", invalid.name),
                };
                Told::Unreadable(Finding::fatal(kind, &name, invalid.error.clone()))
            }
            api_client::Change::Synced => Told::Listed(place),
        }),
    )
}
