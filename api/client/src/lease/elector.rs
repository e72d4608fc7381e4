//! Who leads: the state machine behind the Lease.
//!
//! Owns the decision when to read, take, renew and stop. Pure: time and randomness come in, requests go out.
//!
//! Laws: of two electors that see one Lease, never both lead, as long as their clocks agree in rate within the margin ·
//! a leader that cannot renew stops `duration - renew_deadline` before its Lease can be taken · a Lease is taken only after
//! it stood unchanged for its whole duration on *our* clock, whatever its time stamps say · a Lease that is given up is
//! taken at once.

use std::time::Duration;

use api_model::Time;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::DEFAULT_DURATION;

/// An election.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Who we are: different in each process, also in two on one machine.
    pub identity: String,
    /// How long a Lease holds without renewal.
    pub duration: Duration,
    /// How long after its last renewal began a leader still acts. Shorter than `duration` by the margin for clocks.
    pub renew_deadline: Duration,
    /// Time between attempts.
    pub retry_period: Duration,
}

/// Times that do not keep two leaders apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "lease times must obey retry_period < renew_deadline < duration, and duration must be whole seconds; \
     found {retry_period:?}, {renew_deadline:?}, {duration:?}"
)]
pub struct LeaseConfigError {
    duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

impl LeaseConfig {
    /// An election with the times that Kubernetes' own components use: 15 s, 10 s, 2 s.
    pub fn new(namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity.to_owned(),
            duration: DEFAULT_DURATION,
            renew_deadline: DEFAULT_DURATION * 2 / 3,
            retry_period: DEFAULT_DURATION * 2 / 15,
        }
    }

    pub(super) fn check(&self) -> Result<(), LeaseConfigError> {
        let whole = self.duration.subsec_nanos() == 0 && !self.duration.is_zero();
        if whole
            && !self.retry_period.is_zero()
            && self.retry_period < self.renew_deadline
            && self.renew_deadline < self.duration
        {
            return Ok(());
        }
        Err(LeaseConfigError {
            duration: self.duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
        })
    }

    /// How long one request may take: two fit into the renewal deadline.
    pub(super) fn request_timeout(&self) -> Duration {
        self.renew_deadline / 2
    }
}

/// What the shell is to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Nothing until then.
    Wait(Time),
    /// Read the Lease.
    Read,
    /// Create the Lease, or replace it when it carries a resourceVersion.
    Write(Box<Lease>),
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// The Lease was read; `None`: there is none.
    Read(Option<Box<Lease>>),
    /// The Lease was written by us, by a request that began then.
    Written { begun: Time, lease: Box<Lease> },
    /// A request failed or was refused.
    Failed(String),
}

/// The Lease as we saw it last.
#[derive(Clone, Debug)]
struct Seen {
    lease: Option<Lease>,
    /// Since when it stands unchanged, on our clock.
    since: Time,
    /// Whether it was read after the last attempt to write.
    fresh: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Elector {
    config: LeaseConfig,
    seen: Option<Seen>,
    /// We wrote the Lease last; until then we may act.
    leads_until: Option<Time>,
    next_attempt: Time,
    last_failure: String,
}

impl Elector {
    pub(super) fn new(config: LeaseConfig) -> Self {
        Self {
            config,
            seen: None,
            leads_until: None,
            next_attempt: Time::ZERO,
            last_failure: String::new(),
        }
    }

    pub(super) fn config(&self) -> &LeaseConfig {
        &self.config
    }

    pub(super) fn leads_until(&self) -> Option<Time> {
        self.leads_until
    }

    pub(super) fn leads(&self, now: Time) -> bool {
        self.leads_until.is_some_and(|until| now < until)
    }

    pub(super) fn last_failure(&self) -> &str {
        &self.last_failure
    }

    /// What to do now. `random` shifts attempts, so that two who wait do not collide for ever.
    pub(super) fn next(&mut self, now: Time, random: u64) -> Action {
        if now < self.next_attempt {
            // a leader whose right ends before the next attempt wakes up to say so
            let wake = match self.leads_until {
                Some(until) if now < until => until.min(self.next_attempt),
                _ => self.next_attempt,
            };
            return Action::Wait(wake);
        }
        let Some(seen) = self.seen.as_mut().filter(|seen| seen.fresh) else {
            return Action::Read;
        };
        seen.fresh = false;
        self.next_attempt = now + self.config.retry_period + self.jitter(random);
        match self.wanted(now) {
            Some(lease) => Action::Write(Box::new(lease)),
            None => Action::Wait(self.next_attempt),
        }
    }

    /// Takes note of what came of an action.
    pub(super) fn handle(&mut self, now: Time, event: Event) {
        match event {
            Event::Read(lease) => self.observe(now, lease.map(|lease| *lease)),
            Event::Written { begun, lease } => {
                self.leads_until = (holder(&lease) == Some(&self.config.identity))
                    .then(|| begun + self.config.renew_deadline);
                self.seen = Some(Seen {
                    lease: Some(*lease),
                    since: now,
                    fresh: true,
                });
            }
            Event::Failed(cause) => {
                self.last_failure = cause;
                self.next_attempt = self.next_attempt.max(now + self.config.retry_period);
                if let Some(seen) = &mut self.seen {
                    seen.fresh = false;
                }
            }
        }
    }

    /// The Lease that gives up what we hold.
    pub(super) fn resigned(&mut self) -> Option<Lease> {
        self.leads_until = None;
        let mut lease = self.seen.take()?.lease?;
        if holder(&lease) != Some(&self.config.identity) {
            return None;
        }
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        Some(lease)
    }

    fn observe(&mut self, now: Time, lease: Option<Lease>) {
        let version = |lease: &Option<Lease>| {
            lease
                .as_ref()
                .and_then(|l| l.metadata.resource_version.clone())
        };
        let since = match &self.seen {
            Some(seen) if version(&seen.lease) == version(&lease) => seen.since,
            _ => now,
        };
        if lease.as_ref().and_then(holder) != Some(&self.config.identity) {
            self.leads_until = None;
        }
        self.seen = Some(Seen {
            lease,
            since,
            fresh: true,
        });
    }

    /// The Lease to write now; `None` while somebody else holds it.
    fn wanted(&self, now: Time) -> Option<Lease> {
        let seen = self.seen.as_ref()?;
        let Some(lease) = &seen.lease else {
            return Some(self.lease(None));
        };
        let free = match holder(lease) {
            None => true,
            Some(holder) if *holder == self.config.identity => true,
            Some(_) => now.since(seen.since) >= duration(lease).max(Duration::from_secs(1)),
        };
        free.then(|| self.lease(Some(lease)))
    }

    /// Our Lease, in place of `before`. The shell fills in the time stamps, which nobody here decides by.
    fn lease(&self, before: Option<&Lease>) -> Lease {
        let before_spec = before
            .and_then(|lease| lease.spec.clone())
            .unwrap_or_default();
        let ours = before.and_then(holder) == Some(&self.config.identity);
        let transitions = before_spec.lease_transitions.unwrap_or(0);
        let spec = LeaseSpec {
            holder_identity: Some(self.config.identity.clone()),
            lease_duration_seconds: i32::try_from(self.config.duration.as_secs()).ok(),
            acquire_time: before_spec.acquire_time.clone().filter(|_| ours),
            renew_time: None,
            lease_transitions: Some(if ours || before.is_none() {
                transitions
            } else {
                transitions.saturating_add(1)
            }),
            ..before_spec
        };
        let metadata = match before {
            Some(lease) => lease.metadata.clone(),
            None => ObjectMeta {
                namespace: Some(self.config.namespace.clone()),
                name: Some(self.config.name.clone()),
                ..ObjectMeta::default()
            },
        };
        Lease {
            metadata,
            spec: Some(spec),
        }
    }

    fn jitter(&self, random: u64) -> Duration {
        let part = u32::from((random & 0xff) as u8);
        self.config.retry_period * part / 1024
    }
}

/// Who holds a Lease; an empty name means nobody.
fn holder(lease: &Lease) -> Option<&String> {
    lease
        .spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.as_ref())
        .filter(|holder| !holder.is_empty())
}

fn duration(lease: &Lease) -> Duration {
    let seconds = lease
        .spec
        .as_ref()
        .and_then(|spec| spec.lease_duration_seconds);
    seconds
        .and_then(|seconds| u64::try_from(seconds).ok())
        .map_or(DEFAULT_DURATION, Duration::from_secs)
}

#[cfg(test)]
mod tests;
