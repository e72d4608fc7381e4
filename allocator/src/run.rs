//! The one task: watches, lease and timer → core → outbox.
//!
//! Owns the order of things: facts and answers go into the core one by one, what it says goes out in that order. Never touches
//! anything unless it leads; whoever wins the Lease starts from nothing and replays the cluster.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use allocator_core::{Allocator, Input, Output, Subject};
use api_client::{
    Change, Invalid,
    events::{self, Recorder, Severity},
    informer,
    lease::{self, Leadership, LeaseConfigError},
};
use api_model::{PoolName, ServiceKey, Time};
use api_types::{AddressRecord, IPAddressPool, names::event::DEPRECATED_ANNOTATION};
use futures::{
    StreamExt,
    stream::{BoxStream, select_all},
};
use k8s_openapi::api::core::v1::{Namespace, Node, ObjectReference, Service};
use kube::{Api, Client, Resource, ResourceExt, runtime::watcher};
use tokio::{
    sync::mpsc,
    task::AbortHandle,
    time::{Instant, sleep_until},
};
use tracing::{debug, error, info, warn};

use crate::{Config, ingest, outbox::Outbox, record, report::Reporter};

/// Answers that wait for the core.
const ANSWERS: usize = 1024;
/// How long the Lease may take to be given back at the end.
const RESIGN: Duration = Duration::from_secs(5);

/// Why the allocator ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The times of the Lease don't fit together.
    #[error("doing leader election: {0}")]
    Lease(#[from] LeaseConfigError),
    /// The election ended by itself.
    #[error("doing leader election: its task ended")]
    ElectionEnded,
}

/// Allocates addresses while it leads, until `shutdown` is ready. Survives every failure of the API server.
pub async fn run(
    client: Client,
    config: Config,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let (mut leadership, election) = lease::start(client.clone(), config.lease.clone())?;
    // whoever drops this future must not go on leading without acting
    let _election = Ends(election.abort_handle());
    let (recorder, events) = events::start(
        client.clone(),
        "roadstead-allocator",
        &config.lease.identity,
    );
    let _events = Ends(events.abort_handle());
    let mut shutdown = std::pin::pin!(shutdown);
    let ended = loop {
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            changed = leadership.changed() => match changed {
                None => break Err(Error::ElectionEnded),
                Some(false) => continue,
                Some(true) => {}
            },
        }
        info!(identity = config.lease.identity, "leading");
        let leader = Leader::new(&client, &config, &leadership, &recorder);
        tokio::select! {
            () = &mut shutdown => break Ok(()),
            () = leader.lead(leadership.clone()) => info!("not leading any more"),
        }
    };
    leadership.resign();
    if tokio::time::timeout(RESIGN, election).await.is_err() {
        warn!("the lease was not given back in time");
    }
    ended
}

/// A task that ends with what started it.
struct Ends(AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Everything that is watched.
enum Fact {
    Service(Change<Service>),
    Pool(Change<IPAddressPool>),
    Namespace(Change<Namespace>),
    Node(Change<Node>),
    Record(Change<AddressRecord>),
}

/// Number of kinds in [`Fact`].
const KINDS: usize = 5;

/// One term of leadership.
struct Leader {
    core: Allocator,
    start: Instant,
    client: Client,
    namespace: String,
    class: Option<String>,
    outbox: Outbox,
    answers: mpsc::Receiver<Input>,
    reporter: Reporter,
    recorder: Recorder,
    services: BTreeMap<ServiceKey, Arc<Service>>,
    pools: BTreeMap<PoolName, Arc<IPAddressPool>>,
    synced: BTreeSet<&'static str>,
    /// Services whose deprecated annotations were reported, by uid.
    warned: BTreeSet<(String, &'static str)>,
}

impl Leader {
    fn new(client: &Client, config: &Config, leadership: &Leadership, recorder: &Recorder) -> Self {
        let (sender, answers) = mpsc::channel(ANSWERS);
        Self {
            core: Allocator::new(config.core()),
            start: Instant::now(),
            client: client.clone(),
            namespace: config.namespace.clone(),
            class: config.class.clone(),
            outbox: Outbox::new(client.clone(), leadership.clone(), sender),
            answers,
            reporter: Reporter::start(client.clone(), &config.namespace),
            recorder: recorder.clone(),
            services: BTreeMap::new(),
            pools: BTreeMap::new(),
            synced: BTreeSet::new(),
            warned: BTreeSet::new(),
        }
    }

    /// Ends when we don't lead any more.
    async fn lead(mut self, mut leadership: Leadership) {
        let mut facts = select_all(self.watches());
        loop {
            let deadline = self
                .core
                .next_deadline()
                .map(|time| self.start + time.since_start());
            let timer = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = leadership.changed() => if changed != Some(true) {
                    return;
                },
                Some(answer) = self.answers.recv() => self.input(answer),
                Some(fact) = facts.next() => self.fact(fact),
                () = timer => self.input(Input::Tick),
            }
        }
    }

    fn watches(&self) -> Vec<BoxStream<'static, Fact>> {
        let client = || self.client.clone();
        let config = watcher::Config::default;
        vec![
            informer(Api::all(client()), config())
                .map(Fact::Service)
                .boxed(),
            informer(Api::namespaced(client(), &self.namespace), config())
                .map(Fact::Pool)
                .boxed(),
            informer(Api::all(client()), config())
                .map(Fact::Namespace)
                .boxed(),
            informer(Api::all(client()), config())
                .map(Fact::Node)
                .boxed(),
            informer(Api::all(client()), config())
                .map(Fact::Record)
                .boxed(),
        ]
    }

    fn fact(&mut self, fact: Fact) {
        match fact {
            Fact::Service(change) => self.service(change),
            Fact::Pool(change) => self.pool(change),
            Fact::Record(change) => self.record(change),
            Fact::Namespace(change) => match change {
                Change::Apply(object) => self.input(ingest::namespace(&object)),
                Change::Delete(object) => self.input(Input::NamespaceGone(object.name_any())),
                Change::Invalid(what) => unreadable("Namespace", &what),
                Change::Synced => self.kind_synced("Namespace"),
            },
            Fact::Node(change) => match change {
                Change::Apply(object) => self.input(ingest::node(&object)),
                Change::Delete(object) => self.input(Input::NodeGone(object.name_any().into())),
                Change::Invalid(what) => unreadable("Node", &what),
                Change::Synced => self.kind_synced("Node"),
            },
        }
    }

    fn service(&mut self, change: Change<Service>) {
        match change {
            Change::Apply(object) => {
                let read = ingest::service(&object, self.class.as_deref());
                for name in read.deprecated {
                    if self.warned.insert((object.uid().unwrap_or_default(), name)) {
                        let message = format!(
                            "annotation {name} is deprecated, write it with the prefix metallb.io"
                        );
                        self.recorder.report(
                            &*object,
                            Severity::Warning,
                            DEPRECATED_ANNOTATION,
                            &message,
                        );
                    }
                }
                self.services.insert(key_of(&object), object);
                self.input(read.input);
            }
            Change::Delete(object) => {
                let uid = object.uid().unwrap_or_default();
                self.warned.retain(|(warned, _)| *warned != uid);
                self.services.remove(&key_of(&object));
                self.input(Input::ServiceGone(key_of(&object)));
            }
            Change::Invalid(what) => unreadable("Service", &what),
            Change::Synced => self.kind_synced("Service"),
        }
    }

    fn pool(&mut self, change: Change<IPAddressPool>) {
        match change {
            Change::Apply(object) => {
                let pool = ingest::pool(&object);
                self.pools.insert(pool.name.clone(), object);
                self.input(Input::Pool(pool));
            }
            Change::Delete(object) => {
                let name = PoolName::from(object.name_any());
                self.pools.remove(&name);
                self.input(Input::PoolGone(name));
            }
            Change::Invalid(what) => {
                let before = self
                    .pools
                    .get(&what.name.as_str().into())
                    .map(|before| ingest::pool(before));
                self.input(Input::Pool(ingest::unreadable_pool(
                    &what.name,
                    &what.error,
                    before,
                )));
            }
            Change::Synced => self.kind_synced("IPAddressPool"),
        }
    }

    fn record(&mut self, change: Change<AddressRecord>) {
        match change {
            Change::Apply(object) => match record::from_object(&object) {
                Ok(record) => self.input(Input::Record(record)),
                Err(error) => error!(%error, "address record ignored"),
            },
            Change::Delete(object) => {
                let address = api_types::record_address(&object.name_any());
                if let (Ok(address), Some(uid)) = (address, object.uid()) {
                    self.input(Input::RecordGone {
                        address,
                        uid: uid.into(),
                    });
                }
            }
            Change::Invalid(what) => unreadable("AddressRecord", &what),
            Change::Synced => self.kind_synced("AddressRecord"),
        }
    }

    /// Once every kind has been told in full, the core may begin.
    fn kind_synced(&mut self, kind: &'static str) {
        let is_new = self.synced.insert(kind);
        if is_new && self.synced.len() == KINDS {
            info!(
                services = self.services.len(),
                pools = self.pools.len(),
                "everything is known, allocating"
            );
            self.input(Input::Synced);
        }
    }

    fn input(&mut self, input: Input) {
        let now = Time::from_start(self.start.elapsed());
        let mut out = Vec::new();
        debug!(?input, "input");
        self.core.handle(now, input, &mut out);
        for output in out {
            debug!(?output, "output");
            self.output(output);
        }
    }

    fn output(&mut self, output: Output) {
        match output {
            Output::CreateRecord(record) => self.outbox.create(record),
            Output::UpdateRecord(record) => self.outbox.update(record),
            Output::DeleteRecord { address, stored } => self.outbox.delete(address, stored),
            Output::Status(write) => {
                info!(service = %write.key, ingress = ?write.ingress, reason = write.condition.reason, "service status");
                let known = self.services.get(&write.key).cloned();
                self.outbox.status(write, known);
            }
            Output::Event {
                subject,
                reason,
                message,
            } => {
                let severity = if reason.is_warning() {
                    Severity::Warning
                } else {
                    Severity::Normal
                };
                let object = self.reference(&subject);
                self.recorder
                    .report_on(&object, severity, reason.as_str(), &message);
            }
            Output::PoolStatus { pool, counters } => self.reporter.counters(pool, counters),
            Output::Configuration(reports) => {
                for report in &reports {
                    warn!(pool = %report.pool, problem = report.problem, "pool hands nothing out");
                }
                self.reporter.configuration(reports);
            }
        }
    }

    fn reference(&self, subject: &Subject) -> ObjectReference {
        match subject {
            Subject::Service(key, uid) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Service".to_owned()),
                namespace: Some(key.namespace.to_string()),
                name: Some(key.name.to_string()),
                uid: Some(uid.to_string()),
                ..ObjectReference::default()
            },
            Subject::Pool(name) => ObjectReference {
                api_version: Some(IPAddressPool::api_version(&()).into_owned()),
                kind: Some("IPAddressPool".to_owned()),
                namespace: Some(self.namespace.clone()),
                name: Some(name.to_string()),
                uid: self.pools.get(name).and_then(|pool| pool.uid()),
                ..ObjectReference::default()
            },
        }
    }
}

fn key_of(object: &Service) -> ServiceKey {
    ServiceKey::new(&object.namespace().unwrap_or_default(), &object.name_any())
}

/// What can't be read changes nothing: what was known of it stays in force.
fn unreadable(kind: &str, what: &Invalid) {
    warn!(
        kind,
        namespace = what.namespace,
        name = what.name,
        error = what.error,
        "object ignored"
    );
}
