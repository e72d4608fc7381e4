//! The watches of a speaker, merged into one stream of facts.
//!
//! Owns which kinds are watched and when all of them have been listed. Never interprets an object.

use std::{fmt::Debug, pin::Pin};

use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, Resource, core::NamespaceResourceScope, runtime::watcher};
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
    let everywhere = Source {
        client,
        namespace: None,
        fields: None,
    };
    let ours = Source {
        namespace: Some(namespace),
        ..everywhere
    };
    // Passwords of peers stand in Secrets of this type; no other Secret is read.
    let passwords = Source {
        fields: Some("type=kubernetes.io/basic-auth"),
        ..ours
    };
    let watches: [Watch; KINDS] = [
        everywhere.watch(0, "Service", Fact::Service),
        everywhere.watch(1, "EndpointSlice", Fact::Slice),
        Box::pin(nodes(client)),
        ours.watch(3, "IPAddressPool", Fact::Pool),
        ours.watch(4, "L2Advertisement", Fact::L2Advertisement),
        ours.watch(5, "BGPAdvertisement", Fact::BgpAdvertisement),
        ours.watch(6, "BGPPeer", Fact::BgpPeer),
        ours.watch(7, "BFDProfile", Fact::BfdProfile),
        ours.watch(8, "Community", Fact::Community),
        passwords.watch(9, "Secret", Fact::Secret),
    ];
    stream::select_all(watches)
}

/// Where a kind is watched.
#[derive(Clone, Copy)]
struct Source<'a> {
    client: &'a Client,
    /// `None`: in all namespaces.
    namespace: Option<&'a str>,
    fields: Option<&'static str>,
}

impl Source<'_> {
    fn watch<K>(self, place: usize, kind: &'static str, fact: fn(Change<K>) -> Fact) -> Watch
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + DeserializeOwned
            + Clone
            + Debug
            + Send
            + Sync
            + 'static,
    {
        let api = match self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let config = watcher::Config::default();
        let config = self
            .fields
            .map_or(config.clone(), |fields| config.fields(fields));
        Box::pin(told(place, kind, api_client::informer(api, config), fact))
    }
}

fn nodes(client: &Client) -> impl Stream<Item = Told> + Send + use<> {
    let nodes = api_client::informer(Api::<Node>::all(client.clone()), watcher::Config::default());
    told(2, "Node", nodes, Fact::Node)
}

fn told<K: Send + Sync + 'static>(
    place: usize,
    kind: &'static str,
    changes: impl Stream<Item = api_client::Change<K>> + Send,
    fact: fn(Change<K>) -> Fact,
) -> impl Stream<Item = Told> + Send {
    changes.map(move |change| match change {
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
    })
}
