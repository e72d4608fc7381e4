//! Watches one kind and tells every change exactly once.
//!
//! Owns list, watch and what is known of the kind; tells the difference after each list, so that what vanished while no
//! watch was open is told as deleted. Never gives up: each failure is followed by a growing gap, and a watch that the server
//! calls expired, in whichever of its forms, by a fresh list.
//!
//! ```text
//! informer(api, config) -> Stream of Apply · Delete · Invalid · Synced
//! ```
//! Order: after each list come the changes it brought, deletions last, then `Synced`. The task ends when the stream is
//! dropped. Queue: [`QUEUE`] changes; when it is full the watch waits, and the server notices a slow reader.
//!
//! Source: Kubernetes API concepts ("Efficient detection of changes", "410 Gone", KEP-3157 streaming lists).

mod cache;

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::{Stream, TryStreamExt, stream};
use kube::{
    Api, Client, Resource,
    core::{
        DeserializeGuard, ObjectList, Request, WatchEvent,
        params::{ListParams, WatchParams},
    },
    runtime::watcher::{Config, InitialListStrategy},
};
use serde::de::DeserializeOwned;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tracing::{debug, warn};

use self::cache::Cache;
use crate::backoff::{Backoff, random};

/// Changes that wait for a slow consumer.
const QUEUE: usize = 1024;
/// How long a watch lives before it is opened anew, when the caller names no time.
const WATCH_SECONDS: u32 = 120;
/// How much longer than that the server may keep silent.
const WATCH_GRACE: Duration = Duration::from_secs(10);
/// A watch that ends sooner than this counts as a failure.
const WATCH_TOO_SHORT: Duration = Duration::from_secs(1);
/// A watch that held this long shows that the server is well.
const WATCH_HEALTHY: Duration = Duration::from_secs(10);
/// How long one page of a list may take.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);
/// Watches that fail in a row until the kind is listed again.
const WATCHES_BEFORE_LIST: u32 = 5;

/// One change of a kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K> {
    /// The object is new or differs from what was told before.
    Apply(Arc<K>),
    /// The object is gone; this is its last known state.
    Delete(Arc<K>),
    /// The stored object is not of the kind's shape. What was told of it before stays in force.
    Invalid(Arc<Invalid>),
    /// Everything that was there at the time of a list has been told. Comes again after every further list.
    Synced,
}

/// A stored object that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Its namespace; empty for a cluster-scoped kind.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its `metadata.uid`.
    pub uid: String,
    /// What is wrong, with the field.
    pub error: String,
}

/// Watches the kind behind `api`. `config` gives selectors, page size and whether lists are streamed.
pub fn informer<K>(
    api: Api<K>,
    config: Config,
) -> impl Stream<Item = Change<K>> + Send + Unpin + use<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    informer_of(api, &K::kind(&()), config, PACE)
}

/// How long [`informer`] waits after failures: 1 s, doubling to 10 s, each longer by up to a half. A server that heals is
/// listed again within twice the longest gap.
pub const PACE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));

/// The same for a kind that is known at run time only, and with another pace; `kind` is its name in the log.
pub fn informer_of<K>(
    api: Api<K>,
    kind: &str,
    config: Config,
    pace: Backoff,
) -> impl Stream<Item = Change<K>> + Send + Unpin + use<K>
where
    K: Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    let (changes, mut receiver) = mpsc::channel(QUEUE);
    let url = api.resource_url().to_owned();
    let informer = Informer {
        kind: kind.to_owned(),
        request: Request::new(url),
        client: api.into_client(),
        config,
        cache: Cache::default(),
        backoff: pace,
        changes,
    };
    tokio::spawn(informer.run());
    stream::poll_fn(move |context| receiver.poll_recv(context))
}

/// Why a list or a watch ended.
#[derive(Debug)]
enum End {
    /// Nobody listens any more.
    Dropped,
    /// The version is too old: list again.
    Expired(String),
    /// Anything else.
    Failed(String),
}

struct Informer<K> {
    kind: String,
    request: Request,
    client: Client,
    config: Config,
    cache: Cache<K>,
    backoff: Backoff,
    changes: mpsc::Sender<Change<K>>,
}

impl<K> Informer<K>
where
    K: Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
{
    async fn run(mut self) {
        let closed = self.changes.clone();
        tokio::select! {
            () = closed.closed() => {}
            () = self.list_and_watch() => {}
        }
        debug!(kind = self.kind, "informer ended");
    }

    /// Lists, watches, and lists again, until nobody listens.
    async fn list_and_watch(&mut self) {
        loop {
            let begun = Instant::now();
            let listed = match self.config.initial_list_strategy {
                InitialListStrategy::ListWatch => self.list().await,
                InitialListStrategy::StreamingList => self.stream_list().await,
            };
            let ended = match listed {
                Ok(version) => self.watch_from(version).await,
                Err(end) => end,
            };
            match ended {
                End::Dropped => return,
                // the gap is one between lists: what watches waited since counts
                End::Expired(cause) => self.wait(begun, "Expired", &cause).await,
                End::Failed(cause) => self.wait(begun, "ListFailed", &cause).await,
            }
        }
    }

    /// Waits after a failure, until the gap since `begun` is large enough.
    async fn wait(&mut self, begun: Instant, reason: &'static str, cause: &str) {
        let gap = self.backoff.next_gap(random());
        warn!(
            kind = self.kind,
            reason,
            cause,
            gap_ms = gap.as_millis(),
            "watch restarted"
        );
        sleep_until(begun + gap).await;
    }

    /// Lists page by page. The version to watch from.
    async fn list(&mut self) -> Result<String, End> {
        self.cache.begin_list();
        let mut params = ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            limit: self.config.page_size,
            ..ListParams::default()
        };
        loop {
            let request = self.request.list(&params).map_err(|e| failed(&e))?;
            let page = self
                .client
                .request::<ObjectList<DeserializeGuard<K>>>(request);
            let page = timeout(LIST_TIMEOUT, page)
                .await
                .map_err(|_| End::Failed("the list took too long".to_owned()))?
                .map_err(ended)?;
            for object in page.items {
                let change = self.cache.listed(object.0);
                self.tell(change).await?;
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                let version = page.metadata.resource_version.unwrap_or_default();
                return self.end_list(version).await;
            }
        }
    }

    /// Lists by a watch that sends what is there first (KEP-3157). The version to watch from.
    async fn stream_list(&mut self) -> Result<String, End> {
        self.cache.begin_list();
        let params = WatchParams {
            send_initial_events: true,
            ..self.watch_params()
        };
        let request = self.request.watch(&params, "0").map_err(|e| failed(&e))?;
        let events = self
            .client
            .request_events::<DeserializeGuard<K>>(request)
            .await
            .map_err(ended)?;
        let mut events = std::pin::pin!(events);
        loop {
            let event = timeout(LIST_TIMEOUT, events.try_next())
                .await
                .map_err(|_| End::Failed("the list took too long".to_owned()))?
                .map_err(ended)?;
            match event {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    let change = self.cache.listed(object.0);
                    self.tell(change).await?;
                }
                Some(WatchEvent::Deleted(object)) => {
                    let change = self.cache.deleted(object.0);
                    self.tell(change).await?;
                }
                Some(WatchEvent::Bookmark(mark)) => {
                    let annotations = &mark.metadata.annotations;
                    if annotations.contains_key("k8s.io/initial-events-end") {
                        return self.end_list(mark.metadata.resource_version).await;
                    }
                }
                Some(WatchEvent::Error(status)) => return Err(status_end(&status)),
                None => return Err(End::Failed("the list ended early".to_owned())),
            }
        }
    }

    /// Tells what vanished, then that all is told.
    async fn end_list(&mut self, version: String) -> Result<String, End> {
        if version.is_empty() {
            return Err(End::Failed("the list has no resourceVersion".to_owned()));
        }
        let gone = self.cache.end_list();
        self.tell(gone).await?;
        self.tell(vec![Change::Synced]).await?;
        Ok(version)
    }

    /// Watches from a version on, over as many watches as it takes, until the version is too old.
    async fn watch_from(&mut self, mut version: String) -> End {
        loop {
            let begun = Instant::now();
            let ended = self.watch_once(&mut version).await;
            if begun.elapsed() >= WATCH_HEALTHY {
                self.backoff.reset();
            }
            match ended {
                Ok(()) if begun.elapsed() >= WATCH_TOO_SHORT => {}
                Ok(()) => {
                    self.wait(begun, "WatchClosed", "the server closed the watch at once")
                        .await;
                }
                Err(End::Failed(cause)) if self.backoff.failures() < WATCHES_BEFORE_LIST => {
                    self.wait(Instant::now(), "WatchFailed", &cause).await;
                }
                Err(end) => return end,
            }
        }
    }

    /// One watch, until the server ends it.
    async fn watch_once(&mut self, version: &mut String) -> Result<(), End> {
        let params = self.watch_params();
        let idle =
            Duration::from_secs(params.timeout.unwrap_or(WATCH_SECONDS).into()) + WATCH_GRACE;
        let request = self
            .request
            .watch(&params, version)
            .map_err(|e| failed(&e))?;
        let opening = self.client.request_events::<DeserializeGuard<K>>(request);
        let events = timeout(LIST_TIMEOUT, opening)
            .await
            .map_err(|_| End::Failed("the server did not open the watch".to_owned()))?
            .map_err(ended)?;
        let mut events = std::pin::pin!(events);
        loop {
            let event = timeout(idle, events.try_next())
                .await
                .map_err(|_| End::Failed("the server kept silent".to_owned()))?
                .map_err(ended)?;
            let (object, change) = match event {
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    let at = object.meta().resource_version.clone();
                    (at, self.cache.applied(object.0))
                }
                Some(WatchEvent::Deleted(object)) => {
                    let at = object.meta().resource_version.clone();
                    (at, self.cache.deleted(object.0))
                }
                Some(WatchEvent::Bookmark(mark)) => (Some(mark.metadata.resource_version), vec![]),
                Some(WatchEvent::Error(status)) => return Err(status_end(&status)),
                None => return Ok(()),
            };
            self.backoff.reset();
            if let Some(at) = object.filter(|at| !at.is_empty()) {
                *version = at;
            }
            self.tell(change).await?;
        }
    }

    fn watch_params(&self) -> WatchParams {
        WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: self.config.timeout.or(Some(WATCH_SECONDS)),
            bookmarks: true,
            send_initial_events: false,
        }
    }

    async fn tell(&self, changes: Vec<Change<K>>) -> Result<(), End> {
        for change in changes {
            self.changes.send(change).await.map_err(|_| End::Dropped)?;
        }
        Ok(())
    }
}

fn failed(error: &dyn std::error::Error) -> End {
    End::Failed(error.to_string())
}

/// What a failed request means.
#[expect(clippy::needless_pass_by_value, reason = "the form that map_err calls")]
fn ended(error: kube::Error) -> End {
    if let kube::Error::Api(status) = &error {
        return status_end(status);
    }
    failed(&error)
}

/// The server says "too old" in three ways: code 410, reason `Expired` or `Gone`, or in words only.
fn status_end(status: &kube::core::Status) -> End {
    let cause = format!("{} {}: {}", status.code, status.reason, status.message);
    let expired = status.code == 410
        || ["Expired", "Gone"].contains(&status.reason.as_str())
        || status.message.contains("too old resource version");
    if expired {
        End::Expired(cause)
    } else {
        End::Failed(cause)
    }
}
