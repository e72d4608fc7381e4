//! Which kinds the server has.
//!
//! Owns one question to discovery and the way from an owner reference to an API. Events are left out: nothing owns them for
//! long, and they expire.

use kube::{
    Api, Client,
    core::DynamicObject,
    discovery::{ApiCapabilities, ApiResource, Discovery, Scope, verbs},
};

/// A kind that can be listed and deleted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    watched: bool,
}

impl Kind {
    fn new(resource: ApiResource, capabilities: &ApiCapabilities) -> Option<Self> {
        let able = [verbs::LIST, verbs::DELETE]
            .iter()
            .all(|verb| capabilities.supports_operation(verb));
        (able && resource.kind != "Event").then(|| Self {
            namespaced: capabilities.scope == Scope::Namespaced,
            watched: capabilities.supports_operation(verbs::WATCH),
            resource,
        })
    }

    /// `apps/v1 Deployment`.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.resource.api_version, self.resource.kind)
    }

    /// Whether the kind can be watched.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    /// The API of the kind over all namespaces.
    pub(crate) fn everywhere(&self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource)
    }

    /// The API of the kind in a namespace; of a cluster-scoped kind the same as [`everywhere`](Self::everywhere).
    pub(crate) fn within(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            self.everywhere(client)
        }
    }
}

/// The kinds that the server has now, each in one version.
pub(crate) async fn discover(client: &Client) -> Result<Vec<Kind>, kube::Error> {
    let found = Discovery::new(client.clone()).run_aggregated().await?;
    let mut kinds: Vec<Kind> = found
        .groups_alphabetical()
        .into_iter()
        .flat_map(kube::discovery::ApiGroup::recommended_resources)
        .filter_map(|(resource, capabilities)| Kind::new(resource, &capabilities))
        .collect();
    kinds.sort_by_key(Kind::title);
    Ok(kinds)
}
