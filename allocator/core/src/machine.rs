//! The allocator of load balancer addresses as one state machine.
//!
//! Owns the decisions: which Service gets which address, when it loses it, what its record and status should say. Is told
//! facts as [`Input`]s and answers with [`Output`]s. Never blocks, never asks: the cluster is the record, and everything in here
//! can be made again from it. Before [`Input::Synced`] it only listens, so that an address in use is never given away.
//! Each write is answered by an input; one is under way per record and per Service, so order needs no other guard:
//! a record is stored before the status shows its address, and deleted before the address is free again.

mod choose;
mod config;
mod records;
mod replay;
mod settle;
mod show;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use api_model::{NodeName, PoolName, ServiceKey, Time};

use crate::{
    claim::{IdleService, Labels, Record, ServiceClaim, ShownCondition, Stored, Uid},
    ledger::Ledger,
    pool::{Pool, PoolCounters, Pools},
    reason::{EventReason, Refusal},
};

/// What the operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long a released address stays taken, while speakers withdraw it and its traffic runs out.
    pub drain: Duration,
    /// How long a Service keeps an address that its pool no longer has, in case the pool is only being written anew.
    pub grace: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            drain: Duration::from_secs(2),
            grace: Duration::from_secs(2),
        }
    }
}

/// A fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A pool was made or changed.
    Pool(Pool),
    /// A pool was deleted.
    PoolGone(PoolName),
    /// A namespace and its labels.
    Namespace {
        /// Its name.
        name: String,
        /// Its labels.
        labels: Labels,
    },
    /// A namespace was deleted.
    NamespaceGone(String),
    /// A node and its addresses, which no Service may have.
    Node {
        /// Its name.
        name: NodeName,
        /// Its addresses.
        addresses: BTreeSet<IpAddr>,
    },
    /// A node was deleted.
    NodeGone(NodeName),
    /// A Service that is ours to serve.
    Service(Box<ServiceClaim>),
    /// A Service that needs nothing from us.
    ServiceIdle(IdleService),
    /// A Service was deleted.
    ServiceGone(ServiceKey),
    /// A record as the watch shows it.
    Record(Record),
    /// A record was deleted, says the watch.
    RecordGone {
        /// The address.
        address: IpAddr,
        /// Identity of the deleted object.
        uid: Uid,
    },
    /// Everything that there is has been told once.
    Synced,
    /// Time has passed.
    Tick,
    /// What became of a write to a record.
    RecordAnswer {
        /// The address.
        address: IpAddr,
        /// The outcome.
        answer: RecordAnswer,
    },
    /// What became of a write to a Service.
    StatusAnswer {
        /// The Service.
        key: ServiceKey,
        /// Its identity.
        uid: Uid,
        /// Whether it was stored. If not it is tried again later.
        stored: bool,
    },
}

/// Outcome of a write to a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordAnswer {
    /// Stored as asked; this is the stored object.
    Stored(Record),
    /// Not stored, because the object there is another one or newer: this one.
    Taken(Record),
    /// There is no record of this address (any more).
    Gone,
}

/// An action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Create this record; answered by [`Input::RecordAnswer`].
    CreateRecord(Record),
    /// Update this record, at the version it carries; answered.
    UpdateRecord(Record),
    /// Delete the record with exactly this identity and version; answered.
    DeleteRecord {
        /// The address.
        address: IpAddr,
        /// Identity and version.
        stored: Stored,
    },
    /// Write the status of a Service; answered by [`Input::StatusAnswer`].
    Status(StatusWrite),
    /// Report an event.
    Event {
        /// What it is about.
        subject: Subject,
        /// Its reason.
        reason: EventReason,
        /// Its text; begins with our word for the reason where there is one.
        message: String,
    },
    /// Write the counters of a pool.
    PoolStatus {
        /// The pool.
        pool: PoolName,
        /// The numbers.
        counters: PoolCounters,
    },
    /// All that is wrong with the pools now; empty: nothing.
    Configuration(Vec<PoolReport>),
}

/// A pool that hands nothing out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolReport {
    /// The pool.
    pub pool: PoolName,
    /// What is wrong and what to do.
    pub problem: String,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A Service.
    Service(ServiceKey, Uid),
    /// A pool.
    Pool(PoolName),
}

/// A write to the status of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusWrite {
    /// The Service.
    pub key: ServiceKey,
    /// Its identity: one made anew under the same name is not to be written.
    pub uid: Uid,
    /// What happens to `status.loadBalancer` and the pool annotation.
    pub ingress: IngressChange,
    /// The condition `roadstead.io/Allocated`.
    pub condition: ShownCondition,
}

/// What happens to the addresses that a Service shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngressChange {
    /// Exactly these, with `ipMode: VIP`, and the annotation names the pool.
    Set {
        /// The addresses in order.
        addresses: Vec<IpAddr>,
        /// The pool of the first.
        pool: PoolName,
    },
    /// None, and no annotation.
    Clear,
    /// As they are.
    Keep,
}

/// A Service that is ours to serve.
#[derive(Clone, Debug)]
struct Service {
    claim: Arc<ServiceClaim>,
    /// Why it waits.
    refused: Option<Refusal>,
    /// The status write that is under way.
    sent: Option<StatusWrite>,
    /// It was given addresses that no event has told of yet.
    fresh: bool,
    /// It held an address at some time since we listen: what it shows is ours to clear.
    owned: bool,
    /// Until when it keeps an address that it may no longer have.
    grace: Option<Time>,
}

/// Why a Service is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Everything is looked at once.
    Replay,
    /// The Service itself changed.
    Change,
    /// Something around it changed.
    Around,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deadline {
    /// A holder has left.
    Drain(IpAddr, ServiceKey),
    /// A Service has kept for long enough what it may not have.
    Grace(ServiceKey),
    /// A status write failed a while ago.
    Retry(ServiceKey),
}

/// The allocator of load balancer addresses.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    config: Config,
    now: Time,
    synced: bool,
    pools: Pools,
    namespaces: BTreeMap<String, Labels>,
    nodes: BTreeMap<NodeName, BTreeSet<IpAddr>>,
    services: BTreeMap<ServiceKey, Service>,
    ledger: Ledger,
    /// Services that have not all they could have, the oldest first.
    waiters: BTreeSet<(i64, ServiceKey)>,
    deadlines: BTreeSet<(Time, Deadline)>,
    /// Records that were deleted on our word, until the watch shows it.
    buried: BTreeMap<IpAddr, Uid>,
    /// Heard before `Synced`: records, and Services that need nothing.
    heard: BTreeMap<IpAddr, Record>,
    idle: BTreeMap<ServiceKey, IdleService>,
    /// What the last report said.
    reported: Vec<PoolReport>,
    /// Addresses of nodes inside pools that were reported.
    warned: BTreeSet<(PoolName, IpAddr, NodeName)>,
    /// Addresses whose record may need a write.
    touched: BTreeSet<IpAddr>,
    /// Pools whose counters may have changed.
    counted: BTreeSet<PoolName>,
    /// Something was released or allowed: waiters may be served.
    room: bool,
}

impl Allocator {
    /// An allocator that knows nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// Takes in a fact and appends the actions that follow. Never blocks; the same inputs give the same outputs.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        self.now = now;
        self.take_in(input, out);
        if !self.synced {
            return;
        }
        self.run_deadlines(out);
        // a round may free an address whose record was never stored, which the next round gives to who waits
        for _round in 0..4 {
            self.serve_waiters(out);
            self.write_records(out);
            if !self.room {
                break;
            }
        }
        self.write_counters(out);
    }

    /// When the next [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.deadlines.first().map(|(time, _)| *time)
    }

    /// Addresses that a Service holds and does not leave, in order.
    pub fn addresses_of(&self, key: &ServiceKey) -> Vec<IpAddr> {
        let held = self
            .ledger
            .of_service(key)
            .filter(|(_, holder)| holder.leaving.is_none());
        held.map(|(address, _)| address).collect()
    }

    /// Every address that is not free, with the Services on it; those leaving too.
    pub fn holders(&self) -> BTreeMap<IpAddr, BTreeSet<ServiceKey>> {
        let holders = |(address, entry): (IpAddr, &crate::ledger::Entry)| {
            (address, entry.holders.keys().cloned().collect())
        };
        self.ledger.iter().map(holders).collect()
    }

    /// The counters of a good pool.
    pub fn counters(&self, pool: &PoolName) -> Option<PoolCounters> {
        let state = self
            .pools
            .get(pool)
            .filter(|state| state.problem.is_none())?;
        Some(self.pools.counters(state))
    }

    /// Why a Service waits.
    pub fn refusal(&self, key: &ServiceKey) -> Option<&Refusal> {
        self.services.get(key)?.refused.as_ref()
    }

    fn take_in(&mut self, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::Pool(pool) => self.pool(pool, out),
            Input::PoolGone(name) => self.pool_gone(&name, out),
            Input::Namespace { name, labels } => self.namespace(&name, Some(labels), out),
            Input::NamespaceGone(name) => self.namespace(&name, None, out),
            Input::Node { name, addresses } => self.node(name, Some(addresses), out),
            Input::NodeGone(name) => self.node(name, None, out),
            Input::Service(claim) => self.service(*claim, out),
            Input::ServiceIdle(idle) => self.service_idle(idle, out),
            Input::ServiceGone(key) => self.service_gone(&key),
            Input::Record(record) => self.record(record, out),
            Input::RecordGone { address, uid } => self.record_gone(address, &uid),
            Input::Synced => self.replay(out),
            Input::Tick => {}
            Input::RecordAnswer { address, answer } => {
                self.record_answer(address, answer, out);
            }
            Input::StatusAnswer { key, uid, stored } => {
                self.status_answer(&key, &uid, stored, out);
            }
        }
    }

    fn run_deadlines(&mut self, out: &mut Vec<Output>) {
        while let Some((time, _)) = self.deadlines.first()
            && *time <= self.now
        {
            match self.deadlines.pop_first() {
                Some((_, Deadline::Drain(address, key))) => self.drained(address, &key),
                Some((_, Deadline::Grace(key))) => self.settle(&key, Cause::Around, out),
                Some((_, Deadline::Retry(key))) => self.show(&key, out),
                None => return,
            }
        }
    }

    fn serve_waiters(&mut self, out: &mut Vec<Output>) {
        if std::mem::take(&mut self.room) {
            let waiters: Vec<ServiceKey> =
                self.waiters.iter().map(|(_, key)| key.clone()).collect();
            for key in waiters {
                self.settle(&key, Cause::Around, out);
            }
        }
    }

    fn write_counters(&mut self, out: &mut Vec<Output>) {
        for pool in std::mem::take(&mut self.counted) {
            let Some(counters) = self.counters(&pool) else {
                continue;
            };
            if self.pools.show(&pool, counters) {
                out.push(Output::PoolStatus { pool, counters });
            }
        }
    }
}
