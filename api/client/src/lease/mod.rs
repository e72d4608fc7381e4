//! Leader election on `coordination.k8s.io/v1` Leases, with fencing.
//!
//! Owns the shell: one task that reads and writes the Lease as the [`Elector`] says, and the [`Leadership`] that everybody
//! asks *before each act*. A leader that cannot renew stops by itself `duration - renew_deadline` before another may take
//! over, without being told: what it asks is a deadline, not a flag.
//!
//! Limits: both ends count their own monotonic clock, which must not differ in rate by more than that margin, and which
//! stands still while a machine is suspended. Therefore writes carry a resourceVersion as well.
//!
//! ```text
//! lease::start(client, config) -> (Leadership, JoinHandle<()>)
//! ```

mod elector;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use api_model::Time;
use k8s_openapi::{
    api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout},
};
use tracing::{info, warn};

use self::elector::{Action, Elector, Event};
pub use self::elector::{LeaseConfig, LeaseConfigError};
use crate::backoff::random;

/// Whether this process leads. Cheap to clone and to ask.
#[derive(Clone, Debug)]
pub struct Leadership {
    shared: Arc<Shared>,
    changes: watch::Receiver<bool>,
}

#[derive(Debug)]
struct Shared {
    base: Instant,
    /// Milliseconds after `base` until which we may act; 0: not at all.
    until_ms: AtomicU64,
    resign: Notify,
}

impl Leadership {
    /// Whether we lead now. Ask before each act, not once.
    pub fn may_act(&self) -> bool {
        let now = self.shared.base.elapsed().as_millis();
        now < u128::from(self.shared.until_ms.load(Ordering::Acquire))
    }

    /// Waits until it changes whether we lead; `true` when we lead now. `None` when the election has ended.
    pub async fn changed(&mut self) -> Option<bool> {
        self.changes.changed().await.ok()?;
        Some(*self.changes.borrow_and_update())
    }

    /// Gives the Lease up, so that another may take it at once. Stop acting first.
    pub fn resign(&self) {
        self.shared.until_ms.store(0, Ordering::Release);
        self.shared.resign.notify_one();
    }
}

/// Takes part in the election until [`Leadership::resign`] is called or the task is aborted.
pub fn start(
    client: Client,
    config: LeaseConfig,
) -> Result<(Leadership, JoinHandle<()>), LeaseConfigError> {
    config.check()?;
    let (lead, changes) = watch::channel(false);
    let shared = Arc::new(Shared {
        base: Instant::now(),
        until_ms: AtomicU64::new(0),
        resign: Notify::new(),
    });
    let leadership = Leadership {
        shared: Arc::clone(&shared),
        changes,
    };
    let shell = Shell {
        api: Api::namespaced(client, &config.namespace),
        elector: Elector::new(config),
        shared,
        lead,
    };
    Ok((leadership, tokio::spawn(shell.run())))
}

struct Shell {
    api: Api<Lease>,
    elector: Elector,
    shared: Arc<Shared>,
    lead: watch::Sender<bool>,
}

impl Shell {
    async fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        loop {
            let action = self.elector.next(self.now(), random());
            tokio::select! {
                () = shared.resign.notified() => break,
                () = self.act(action) => {}
            }
            self.publish();
        }
        if let Some(lease) = self.elector.resigned() {
            self.write(lease).await;
        }
        self.lead
            .send_if_modified(|lead| std::mem::replace(lead, false));
    }

    fn now(&self) -> Time {
        Time::from_start(self.shared.base.elapsed())
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Wait(until) => sleep_until(self.shared.base + until.since_start()).await,
            Action::Read => {
                let name = self.elector.config().name.clone();
                let event = match self.bounded(self.api.get_opt(&name)).await {
                    Ok(found) => Event::Read(found.map(Box::new)),
                    Err(cause) => Event::Failed(cause),
                };
                self.elector.handle(self.now(), event);
            }
            Action::Write(lease) => self.write(*lease).await,
        }
    }

    /// Creates or replaces the Lease. The right to act counts from *before* the request.
    async fn write(&mut self, mut lease: Lease) {
        let begun = self.now();
        if let Some(spec) = &mut lease.spec {
            let stamp = MicroTime(Timestamp::now());
            spec.acquire_time.get_or_insert_with(|| stamp.clone());
            spec.renew_time = Some(stamp);
        }
        let params = PostParams::default();
        let written = if lease.metadata.resource_version.is_some() {
            let name = self.elector.config().name.clone();
            self.bounded(self.api.replace(&name, &params, &lease)).await
        } else {
            self.bounded(self.api.create(&params, &lease)).await
        };
        let event = match written {
            Ok(lease) => Event::Written {
                begun,
                lease: Box::new(lease),
            },
            Err(cause) => Event::Failed(cause),
        };
        self.elector.handle(self.now(), event);
    }

    async fn bounded<T>(
        &self,
        request: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, String> {
        timeout(self.elector.config().request_timeout(), request)
            .await
            .map_err(|_| "no answer in time".to_owned())?
            .map_err(|error| error.to_string())
    }

    /// Makes known until when we may act.
    fn publish(&mut self) {
        let until = self.elector.leads_until().map_or(0, |until| {
            u64::try_from(until.since_start().as_millis()).unwrap_or(u64::MAX)
        });
        self.shared.until_ms.store(until, Ordering::Release);
        let leads = self.elector.leads(self.now());
        let changed = self
            .lead
            .send_if_modified(|lead| std::mem::replace(lead, leads) != leads);
        if changed {
            let config = self.elector.config();
            if leads {
                info!(lease = config.name, identity = config.identity, "leading");
            } else {
                warn!(
                    lease = config.name,
                    identity = config.identity,
                    cause = self.elector.last_failure(),
                    "no longer leading"
                );
            }
        }
    }
}

/// Kubernetes' own times: 15 s, 10 s, 2 s.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(15);
