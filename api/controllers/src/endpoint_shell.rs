//! The shell of the endpoint controllers.
//!
//! Owns five watches (Services, pods, nodes, slices, Endpoints), the set of Services to look at, and the writes that the two
//! planners ask for. Never decides what a slice holds. A write that fails is planned anew after [`RETRY`]; what we wrote
//! counts as seen at once, so that a slow watch leads to no second slice.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use api_client::{
    Change, informer,
    write::{self, WriteError},
};
use api_types::names::label;
use futures::{FutureExt, Stream, StreamExt, stream, stream::BoxStream};
use k8s_openapi::api::{
    core::v1::{Endpoints, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client, Resource, runtime::watcher::Config};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use crate::{endpoints, facts, facts::Nodes, slices};

/// When a failed write is planned anew.
const RETRY: Duration = Duration::from_secs(1);
/// Changes taken in before the planners run.
const BATCH: usize = 1024;
/// Kinds that are watched.
const KINDS: usize = 5;

/// Namespace and name.
type Key = (String, String);

enum Fact {
    Service(Change<Service>),
    Pod(Change<Pod>),
    Node(Change<Node>),
    Slice(Change<EndpointSlice>),
    Endpoints(Change<Endpoints>),
}

/// Keeps slices and Endpoints right until it is dropped.
pub(crate) async fn run(client: Client) {
    let mut facts = watch(&client);
    let mut controller = Controller {
        client,
        state: State::default(),
        retry_at: None,
    };
    loop {
        let retry = controller
            .retry_at
            .unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
        tokio::select! {
            fact = facts.next() => {
                let Some(fact) = fact else { return };
                controller.state.take(fact);
                for _ in 0..BATCH {
                    let Some(Some(fact)) = facts.next().now_or_never() else { break };
                    controller.state.take(fact);
                }
            }
            () = sleep_until(retry) => {
                controller.retry_at = None;
                controller.state.retry();
            }
        }
        controller.sync().await;
    }
}

fn watch(client: &Client) -> impl Stream<Item = Fact> + Unpin + use<> {
    let config = Config::default;
    let ours = format!("{}={}", label::SLICE_MANAGED_BY, slices::MANAGED_BY);
    let all: [BoxStream<'static, Fact>; KINDS] = [
        informer(Api::all(client.clone()), config())
            .map(Fact::Service)
            .boxed(),
        informer(Api::all(client.clone()), config())
            .map(Fact::Pod)
            .boxed(),
        informer(Api::all(client.clone()), config())
            .map(Fact::Node)
            .boxed(),
        informer(Api::all(client.clone()), config().labels(&ours))
            .map(Fact::Slice)
            .boxed(),
        informer(Api::all(client.clone()), config())
            .map(Fact::Endpoints)
            .boxed(),
    ];
    stream::select_all(all)
}

/// What is known of the cluster.
#[derive(Default)]
struct State {
    services: BTreeMap<Key, Arc<Service>>,
    pods: BTreeMap<Key, Arc<Pod>>,
    nodes: Nodes,
    slices: BTreeMap<Key, Arc<EndpointSlice>>,
    endpoints: BTreeMap<Key, Arc<Endpoints>>,
    /// Services to plan.
    dirty: BTreeSet<Key>,
    /// Services whose write failed.
    failed: BTreeSet<Key>,
    /// Kinds whose first list is in.
    synced: BTreeSet<&'static str>,
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn version<K: Resource>(object: &K) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

/// Stores an object unless a newer state of the same one is there: ours, told by the answer to a write.
fn store<K: Resource>(map: &mut BTreeMap<Key, Arc<K>>, object: &Arc<K>) {
    let key = key(&**object);
    let newer = map.get(&key).is_some_and(|known| {
        known.meta().uid == object.meta().uid && version(&**known) > version(&**object)
    });
    if !newer {
        map.insert(key, Arc::clone(object));
    }
}

impl State {
    fn take(&mut self, fact: Fact) {
        match fact {
            Fact::Service(change) => self.service(&change),
            Fact::Pod(change) => self.pod(&change),
            Fact::Node(change) => self.node(&change),
            Fact::Slice(change) => self.slice(&change),
            Fact::Endpoints(change) => self.endpoint(&change),
        }
    }

    fn service(&mut self, change: &Change<Service>) {
        match change {
            Change::Apply(service) => {
                self.dirty.insert(key(&**service));
                self.services.insert(key(&**service), Arc::clone(service));
            }
            Change::Delete(service) => {
                self.dirty.insert(key(&**service));
                self.services.remove(&key(&**service));
            }
            Change::Invalid(invalid) => warn!(
                name = invalid.name,
                error = invalid.error,
                "unreadable Service"
            ),
            Change::Synced => _ = self.synced.insert("Service"),
        }
    }

    fn pod(&mut self, change: &Change<Pod>) {
        match change {
            Change::Apply(pod) => {
                // also the Services that selected it before
                if let Some(before) = self.pods.insert(key(&**pod), Arc::clone(pod)) {
                    self.touch(&before);
                }
                self.touch(pod);
            }
            Change::Delete(pod) => {
                if let Some(before) = self.pods.remove(&key(&**pod)) {
                    self.touch(&before);
                }
            }
            Change::Invalid(invalid) => {
                warn!(name = invalid.name, error = invalid.error, "unreadable Pod");
            }
            Change::Synced => _ = self.synced.insert("Pod"),
        }
    }

    /// Marks the Services that select a pod.
    fn touch(&mut self, pod: &Pod) {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let from = (namespace.clone(), String::new());
        let selecting = self
            .services
            .range(from..)
            .take_while(|((of, _), _)| *of == namespace)
            .filter(|(_, service)| facts::selects(service, pod))
            .map(|(key, _)| key.clone());
        self.dirty.extend(selecting);
    }

    /// A node that comes or goes matters to every Service; a zone that changes counts at a Service's next turn only, as in
    /// Kubernetes.
    fn node(&mut self, change: &Change<Node>) {
        match change {
            Change::Apply(node) => {
                let zone = node
                    .metadata
                    .labels
                    .as_ref()
                    .and_then(|labels| labels.get(label::ZONE));
                let name = facts::name(&node.metadata).to_owned();
                if self.nodes.insert(name, zone.cloned()).is_none() {
                    self.dirty.extend(self.services.keys().cloned());
                }
            }
            Change::Delete(node) => {
                self.nodes.remove(facts::name(&node.metadata));
                self.dirty.extend(self.services.keys().cloned());
            }
            Change::Invalid(invalid) => warn!(
                name = invalid.name,
                error = invalid.error,
                "unreadable Node"
            ),
            Change::Synced => _ = self.synced.insert("Node"),
        }
    }

    fn slice(&mut self, change: &Change<EndpointSlice>) {
        match change {
            Change::Apply(slice) => {
                store(&mut self.slices, slice);
                self.touch_owner(slice);
            }
            Change::Delete(slice) => {
                self.slices.remove(&key(&**slice));
                self.touch_owner(slice);
            }
            Change::Invalid(invalid) => warn!(
                name = invalid.name,
                error = invalid.error,
                "unreadable EndpointSlice"
            ),
            Change::Synced => _ = self.synced.insert("EndpointSlice"),
        }
    }

    /// Marks the Service of a slice.
    fn touch_owner(&mut self, slice: &EndpointSlice) {
        if let Some(service) = slices::service_of(slice) {
            let namespace = slice.metadata.namespace.clone().unwrap_or_default();
            self.dirty.insert((namespace, service.to_owned()));
        }
    }

    fn endpoint(&mut self, change: &Change<Endpoints>) {
        match change {
            Change::Apply(endpoints) => {
                store(&mut self.endpoints, endpoints);
                self.dirty.insert(key(&**endpoints));
            }
            Change::Delete(endpoints) => {
                self.endpoints.remove(&key(&**endpoints));
                self.dirty.insert(key(&**endpoints));
            }
            Change::Invalid(invalid) => warn!(
                name = invalid.name,
                error = invalid.error,
                "unreadable Endpoints"
            ),
            Change::Synced => _ = self.synced.insert("Endpoints"),
        }
    }

    fn retry(&mut self) {
        self.dirty.append(&mut self.failed);
    }

    /// The pods of a namespace.
    fn pods_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Pod> {
        let from = (namespace.to_owned(), String::new());
        self.pods
            .range(from..)
            .take_while(move |((of, _), _)| of == namespace)
            .map(|(_, pod)| &**pod)
    }

    /// The slices of a Service.
    fn slices_of<'a>(&'a self, service: &'a Key) -> impl Iterator<Item = &'a EndpointSlice> {
        let from = (service.0.clone(), String::new());
        self.slices
            .range(from..)
            .take_while(|((of, _), _)| *of == service.0)
            .map(|(_, slice)| &**slice)
            .filter(|slice| slices::service_of(slice) == Some(&service.1))
    }
}

struct Controller {
    client: Client,
    state: State,
    retry_at: Option<Instant>,
}

impl Controller {
    /// Plans and writes every marked Service, once everything has been seen.
    async fn sync(&mut self) {
        if self.state.synced.len() < KINDS {
            return;
        }
        for key in std::mem::take(&mut self.state.dirty) {
            if let Err(error) = self.sync_service(&key).await {
                debug!(namespace = key.0, service = key.1, %error, "endpoints not written, retrying");
                self.state.failed.insert(key);
                self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
            }
        }
    }

    async fn sync_service(&mut self, key: &Key) -> Result<(), WriteError> {
        let Some(service) = self.state.services.get(key).cloned() else {
            return self.service_is_gone(key).await;
        };
        let (slice_writes, endpoints_write) = {
            let pods: Vec<&Pod> = self
                .state
                .pods_in(&key.0)
                .filter(|pod| facts::selects(&service, pod))
                .collect();
            let existing: Vec<&EndpointSlice> = self.state.slices_of(key).collect();
            let endpoints = self.state.endpoints.get(key).map(|endpoints| &**endpoints);
            (
                slices::plan(&service, &pods, &self.state.nodes, &existing),
                endpoints::plan(&service, &pods, endpoints),
            )
        };
        for write in slice_writes {
            self.write_slice(&key.0, write).await?;
        }
        match endpoints_write {
            Some(write) => self.write_endpoints(key, write).await,
            None => Ok(()),
        }
    }

    /// Endpoints have no owner: they go with their Service. Slices are the garbage collector's.
    async fn service_is_gone(&mut self, key: &Key) -> Result<(), WriteError> {
        let Some(endpoints) = self.state.endpoints.get(key).cloned() else {
            return Ok(());
        };
        let labels = endpoints.metadata.labels.as_ref();
        let ours = labels.and_then(|labels| labels.get(endpoints::MANAGED_BY));
        if ours.is_none_or(|by| by != endpoints::CONTROLLER) {
            return Ok(());
        }
        let api: Api<Endpoints> = Api::namespaced(self.client.clone(), &key.0);
        write::delete_exactly(&api, &*endpoints).await?;
        self.state.endpoints.remove(key);
        info!(namespace = key.0, service = key.1, "endpoints deleted");
        Ok(())
    }

    async fn write_slice(
        &mut self,
        namespace: &str,
        write: slices::Write,
    ) -> Result<(), WriteError> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), namespace);
        let written = match &write {
            slices::Write::Create(slice) => write::create(&api, slice).await,
            slices::Write::Update(slice) => {
                write::replace(&api, facts::name(&slice.metadata), slice).await
            }
            slices::Write::Delete(slice) => {
                let gone = write::delete_exactly(&api, slice).await;
                self.state.slices.remove(&key(slice));
                return gone;
            }
        };
        match written {
            Ok(slice) => store(&mut self.state.slices, &Arc::new(slice)),
            // the watch has not told yet that it is gone
            Err(WriteError::NotFound(text)) => {
                if let slices::Write::Update(slice) = &write {
                    self.state.slices.remove(&key(slice));
                }
                return Err(WriteError::NotFound(text));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn write_endpoints(
        &mut self,
        key: &Key,
        write: endpoints::Write,
    ) -> Result<(), WriteError> {
        let api: Api<Endpoints> = Api::namespaced(self.client.clone(), &key.0);
        let written = match &write {
            endpoints::Write::Create(endpoints) => write::create(&api, endpoints).await,
            endpoints::Write::Update(endpoints) => write::replace(&api, &key.1, endpoints).await,
        };
        store(&mut self.state.endpoints, &Arc::new(written?));
        Ok(())
    }
}
