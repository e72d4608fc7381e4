//! The shell of the garbage collector.
//!
//! Owns one watch for each kind that the server has, also those that come later, and the requests that the graph asks for.
//! Nothing is done before every kind has been listed. A request that fails is planned anew after [`RETRY`]. Queue:
//! [`QUEUE`] changes; when it is full the watches wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api_client::{
    Change, PACE, informer_of,
    write::{self, WriteError},
};
use futures::StreamExt;
use kube::{
    Client,
    api::{DeleteParams, Preconditions, PropagationPolicy},
    core::DynamicObject,
    runtime::watcher::Config,
};
use serde_json::json;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tracing::{debug, info, warn};

use super::{Action, Graph, Place};
use crate::kinds::{self, Kind};

/// When a failed request is planned anew, and an owner of unknown kind is looked for again.
const RETRY: Duration = Duration::from_secs(2);
/// How soon after a CRD changed the kinds are asked for again.
const REDISCOVER: Duration = Duration::from_millis(500);
/// How often the kinds are asked for anyway.
const ROUTINE: Duration = Duration::from_secs(60);
/// Changes that wait.
const QUEUE: usize = 1024;

/// A change of a kind, by its title.
type Told = (String, Change<DynamicObject>);

/// Collects garbage until it is dropped.
pub(crate) async fn run(client: Client) {
    let (sender, mut told) = mpsc::channel(QUEUE);
    let mut collector = Collector {
        client,
        graph: Graph::default(),
        watches: BTreeMap::new(),
        sender,
        failed: BTreeSet::new(),
        discover_at: Instant::now(),
        retry_at: None,
    };
    loop {
        let retry = collector
            .retry_at
            .unwrap_or(collector.discover_at)
            .min(collector.discover_at);
        tokio::select! {
            change = told.recv() => {
                let Some((title, change)) = change else { return };
                collector.take(&title, change);
                while let Ok((title, change)) = told.try_recv() {
                    collector.take(&title, change);
                }
            }
            () = sleep_until(retry) => collector.wake().await,
        }
        collector.collect().await;
    }
}

/// The watch of one kind.
struct Watch {
    kind: Kind,
    task: JoinHandle<()>,
    synced: bool,
    /// Objects told so far, to forget when the kind goes.
    uids: BTreeSet<String>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Collector {
    client: Client,
    graph: Graph,
    watches: BTreeMap<String, Watch>,
    sender: mpsc::Sender<Told>,
    failed: BTreeSet<String>,
    discover_at: Instant,
    retry_at: Option<Instant>,
}

impl Collector {
    fn take(&mut self, title: &str, change: Change<DynamicObject>) {
        let Some(watch) = self.watches.get_mut(title) else {
            return;
        };
        let resource = &watch.kind.resource;
        match change {
            Change::Apply(object) => {
                self.graph
                    .apply(&resource.api_version, &resource.kind, &object.metadata);
                watch.uids.extend(object.metadata.uid.clone());
            }
            Change::Delete(object) => {
                if let Some(uid) = &object.metadata.uid {
                    self.graph.delete(uid);
                    watch.uids.remove(uid);
                }
            }
            Change::Invalid(_) => {}
            Change::Synced => watch.synced = true,
        }
        if watch.synced && resource.kind == "CustomResourceDefinition" {
            self.discover_at = self.discover_at.min(Instant::now() + REDISCOVER);
        }
    }

    /// Does what is due.
    async fn wake(&mut self) {
        let now = Instant::now();
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            for uid in std::mem::take(&mut self.failed) {
                self.graph.retry(&uid);
            }
        }
        if self.discover_at <= now {
            self.discover_at = now + ROUTINE;
            match kinds::discover(&self.client).await {
                Ok(kinds) => self.watch(kinds),
                Err(error) => {
                    warn!(%error, "kinds unknown, asking again");
                    self.discover_at = now + RETRY;
                }
            }
        }
    }

    /// Begins to watch what is new, and forgets what is gone.
    fn watch(&mut self, kinds: Vec<Kind>) {
        let now: BTreeMap<String, Kind> = kinds
            .into_iter()
            .filter(Kind::is_watched)
            .map(|kind| (kind.title(), kind))
            .collect();
        self.watches.retain(|title, watch| {
            let stays = now.get(title) == Some(&watch.kind);
            if !stays {
                for uid in &watch.uids {
                    self.graph.delete(uid);
                }
            }
            stays
        });
        for (title, kind) in now {
            if !self.watches.contains_key(&title) {
                debug!(kind = title, "collecting garbage of a kind");
                let task = tokio::spawn(forward(
                    self.client.clone(),
                    kind.clone(),
                    self.sender.clone(),
                ));
                let watch = Watch {
                    kind,
                    task,
                    synced: false,
                    uids: BTreeSet::new(),
                };
                self.watches.insert(title, watch);
            }
        }
    }

    async fn collect(&mut self) {
        if self.watches.is_empty() || self.watches.values().any(|watch| !watch.synced) {
            return;
        }
        loop {
            let actions = self.graph.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.act(action).await;
            }
        }
    }

    async fn act(&mut self, action: Action) {
        let (place, done) = match action {
            Action::Verify(place) => {
                self.verify(place).await;
                return;
            }
            Action::Delete(place) => {
                let done = self.delete(&place).await;
                (place, done)
            }
            Action::RemoveOwners(place, owners) => {
                let done = self.remove_owners(&place, &owners).await;
                (place, done)
            }
            Action::RemoveFinalizer(place, finalizer) => {
                let done = self.remove_finalizer(&place, finalizer).await;
                (place, done)
            }
        };
        match done {
            Ok(()) | Err(WriteError::NotFound(_)) => {}
            Err(error) => {
                debug!(kind = place.kind, name = place.name, %error, "garbage not collected, retrying");
                self.again(place.uid);
            }
        }
    }

    fn again(&mut self, uid: String) {
        self.failed.insert(uid);
        self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
    }

    fn kind(&self, place: &Place) -> Option<&Kind> {
        self.watches.values().map(|watch| &watch.kind).find(|kind| {
            kind.resource.kind == place.kind && kind.resource.group == group(&place.api_version)
        })
    }

    /// Asks the server whether an owner exists. An owner of a kind that the server does not have stays unknown.
    async fn verify(&mut self, owner: Place) {
        let Some(kind) = self.kind(&owner) else {
            debug!(
                kind = owner.kind,
                api_version = owner.api_version,
                "owner of an unknown kind"
            );
            return;
        };
        if kind.namespaced && owner.namespace.is_empty() {
            warn!(
                kind = owner.kind,
                name = owner.name,
                "a cluster-scoped object names an owner in a namespace"
            );
            return;
        }
        let api = kind.within(&self.client, &owner.namespace);
        match api.get_opt(&owner.name).await {
            Ok(found) => {
                let there =
                    found.is_some_and(|found| found.metadata.uid.as_ref() == Some(&owner.uid));
                self.graph.owner_is(&owner.uid, there);
                if there {
                    // its watch will tell soon; the dependents are looked at again then
                    self.remember(&owner);
                }
            }
            Err(error) => {
                debug!(%error, "owner not verified, retrying");
                self.remember(&owner);
            }
        }
    }

    /// Looks at the dependents of an owner again.
    fn remember(&mut self, owner: &Place) {
        for uid in self.graph.dependents_of(&owner.uid) {
            self.again(uid);
        }
    }

    async fn delete(&self, place: &Place) -> Result<(), WriteError> {
        let Some(kind) = self.kind(place) else {
            return Ok(());
        };
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            preconditions: Some(Preconditions {
                uid: Some(place.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let api = kind.within(&self.client, &place.namespace);
        match api
            .delete(&place.name, &params)
            .await
            .map_err(WriteError::from)
        {
            // another one has that name now
            Ok(_) | Err(WriteError::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
        info!(
            kind = place.kind,
            namespace = place.namespace,
            name = place.name,
            "deleted: its owners are gone"
        );
        Ok(())
    }

    async fn remove_owners(
        &self,
        place: &Place,
        owners: &BTreeSet<String>,
    ) -> Result<(), WriteError> {
        let Some((kind, object)) = self.read(place).await? else {
            return Ok(());
        };
        let rest: Vec<_> = object
            .metadata
            .owner_references
            .iter()
            .flatten()
            .filter(|owner| !owners.contains(&owner.uid))
            .collect();
        let patch = json!({"metadata": {"ownerReferences": rest}});
        let api = kind.within(&self.client, &place.namespace);
        write::merge(
            &api,
            &place.name,
            object.metadata.resource_version.as_deref(),
            patch,
        )
        .await?;
        Ok(())
    }

    async fn remove_finalizer(&self, place: &Place, finalizer: &str) -> Result<(), WriteError> {
        let Some((kind, object)) = self.read(place).await? else {
            return Ok(());
        };
        let rest: Vec<_> = object
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|found| *found != finalizer)
            .collect();
        let patch = json!({"metadata": {"finalizers": rest}});
        let api = kind.within(&self.client, &place.namespace);
        write::merge(
            &api,
            &place.name,
            object.metadata.resource_version.as_deref(),
            patch,
        )
        .await?;
        Ok(())
    }

    /// The object as it is now, if it is still this one.
    async fn read(&self, place: &Place) -> Result<Option<(&Kind, DynamicObject)>, WriteError> {
        let Some(kind) = self.kind(place) else {
            return Ok(None);
        };
        let found = kind
            .within(&self.client, &place.namespace)
            .get_opt(&place.name)
            .await?;
        Ok(found
            .filter(|found| found.metadata.uid.as_ref() == Some(&place.uid))
            .map(|found| (kind, found)))
    }
}

/// The group of an `apiVersion`; empty for the core group.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Sends the changes of a kind on.
async fn forward(client: Client, kind: Kind, sender: mpsc::Sender<Told>) {
    let title = kind.title();
    let mut changes = informer_of(kind.everywhere(&client), &title, Config::default(), PACE);
    while let Some(change) = changes.next().await {
        if sender.send((title.clone(), change)).await.is_err() {
            return;
        }
    }
}
