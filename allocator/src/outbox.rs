//! Carries out what the core decided.
//!
//! Owns the writes under way: one task each, at most [`AT_ONCE`] requests at a time, repeated with growing gaps until the
//! answer is definite, which goes back to the core. Never chooses anything: a write that fails for a while is repeated with the
//! same address. Order: the core has at most one write under way per record and per Service. Bound: therefore as many tasks
//! as there are records and Services. Every request asks first whether we still lead; dropping the outbox ends all.

mod records;
mod status;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use allocator_core::{Input, Record, RecordAnswer, StatusWrite, Stored};
use api_client::{Backoff, lease::Leadership, write::WriteError};
use api_model::ServiceKey;
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use tokio::{
    sync::{Semaphore, SemaphorePermit, mpsc},
    task::{AbortHandle, JoinSet},
};

/// Requests at a time.
const AT_ONCE: usize = 16;
/// First and longest gap between attempts while the server fails.
const GAPS: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(20));
/// The same while others write the object all the time.
const CONFLICT_GAPS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(4));

/// The writes under way.
pub(crate) struct Outbox {
    line: Line,
    tasks: JoinSet<()>,
    /// The latest status write of each Service, so that a newer one replaces one that nobody waits for.
    latest: BTreeMap<ServiceKey, AbortHandle>,
}

/// What a write needs.
#[derive(Clone)]
struct Line {
    client: Client,
    leadership: Leadership,
    permits: Arc<Semaphore>,
    answers: mpsc::Sender<Input>,
}

impl Outbox {
    /// An outbox whose answers go to `answers`.
    pub(crate) fn new(
        client: Client,
        leadership: Leadership,
        answers: mpsc::Sender<Input>,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        Self {
            line: Line {
                client,
                leadership,
                permits,
                answers,
            },
            tasks: JoinSet::new(),
            latest: BTreeMap::new(),
        }
    }

    /// Creates a record.
    pub(crate) fn create(&mut self, record: Record) {
        let line = self.line.clone();
        self.record_task(record.address, async move {
            records::create(&line, &record).await
        });
    }

    /// Updates a record at the version that it carries.
    pub(crate) fn update(&mut self, record: Record) {
        let line = self.line.clone();
        self.record_task(record.address, async move {
            records::update(&line, &record).await
        });
    }

    /// Deletes a record with exactly this identity.
    pub(crate) fn delete(&mut self, address: std::net::IpAddr, stored: Stored) {
        let line = self.line.clone();
        self.record_task(address, async move {
            records::delete(&line, address, &stored).await
        });
    }

    /// Writes the status of a Service; `known` is the object as the watch shows it.
    pub(crate) fn status(&mut self, write: StatusWrite, known: Option<Arc<Service>>) {
        self.tidy();
        let line = self.line.clone();
        let key = write.key.clone();
        let task = self.tasks.spawn(async move {
            let (key, uid) = (write.key.clone(), write.uid.clone());
            let stored = status::write(&line, &write, known).await;
            line.answer(Input::StatusAnswer { key, uid, stored }).await;
        });
        if let Some(before) = self.latest.insert(key, task) {
            before.abort();
        }
    }

    fn record_task(
        &mut self,
        address: std::net::IpAddr,
        work: impl Future<Output = RecordAnswer> + Send + 'static,
    ) {
        self.tidy();
        let line = self.line.clone();
        self.tasks.spawn(async move {
            let answer = work.await;
            line.answer(Input::RecordAnswer { address, answer }).await;
        });
    }

    /// Forgets what is done.
    fn tidy(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        if self.latest.len() > 2 * self.tasks.len() + 64 {
            self.latest.retain(|_, task| !task.is_finished());
        }
    }
}

impl Line {
    async fn answer(&self, input: Input) {
        // nobody listens any more: we don't lead any more
        let _gone = self.answers.send(input).await;
    }

    /// Waits for our turn; does not return while another may lead.
    async fn turn(&self) -> SemaphorePermit<'_> {
        let permit = self
            .permits
            .acquire()
            .await
            .expect("the semaphore is never closed");
        while !self.leadership.may_act() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        permit
    }
}

/// Gaps between the attempts of one write.
struct Attempts {
    what: &'static str,
    failures: Backoff,
    conflicts: Backoff,
    random: jitter::Random,
}

impl Attempts {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            failures: Backoff::new(GAPS.0, GAPS.1),
            conflicts: Backoff::new(CONFLICT_GAPS.0, CONFLICT_GAPS.1),
            random: jitter::Random::default(),
        }
    }

    /// Waits before the next attempt.
    async fn pause(&mut self, error: &WriteError) {
        let (what, random) = (self.what, self.random.next());
        let gap = match error {
            WriteError::Conflict(_) => {
                let gap = self.conflicts.next_gap(random);
                tracing::debug!(what, %error, ?gap, "write repeated");
                gap
            }
            WriteError::AlreadyExists(_)
            | WriteError::NotFound(_)
            | WriteError::Refused(_)
            | WriteError::Later(_) => {
                let gap = self.failures.next_gap(random);
                tracing::warn!(what, %error, ?gap, "write repeated");
                gap
            }
        };
        tokio::time::sleep(gap).await;
    }
}

/// Numbers for the jitter of gaps, different in each process and for each write.
mod jitter {
    use std::hash::{BuildHasher, RandomState};

    #[derive(Default)]
    pub(super) struct Random {
        state: RandomState,
        drawn: u64,
    }

    impl Random {
        pub(super) fn next(&mut self) -> u64 {
            self.drawn += 1;
            self.state.hash_one(self.drawn)
        }
    }
}
