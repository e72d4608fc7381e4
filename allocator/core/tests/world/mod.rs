//! A cluster around the allocator: objects, a watch that lags, writes that are answered in any order, crashes.
//!
//! Owns the fake store. Its rules are those of the API server that the allocator relies on: creating what exists fails,
//! updating or deleting at an old version fails.
#![allow(
    dead_code,
    clippy::unnecessary_wraps,
    unreachable_pub,
    reason = "shared by several test crates, none of which uses all of it"
)]

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    time::Duration,
};

use allocator_core::{
    Allocator, Config, EventReason, FamilyPolicy, IdleService, IngressChange, Input, Output, Pool,
    PoolCounters, PoolReport, PortUse, Record, RecordAnswer, ServiceClaim, Shown, StatusWrite,
    Stored, Subject, Wanted,
};
use api_model::{IpFamily, NodeName, PoolName, Port, Protocol, ServiceKey, Time};

/// Reads an address.
pub fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

/// The key of a Service in namespace `default`.
pub fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

/// A Service of type `LoadBalancer` with port 80/TCP and one IPv4 cluster address.
pub fn claim(name: &str) -> ServiceClaim {
    ServiceClaim {
        key: key(name),
        uid: format!("uid-{name}").into(),
        created: 0,
        labels: BTreeMap::new(),
        families: vec![IpFamily::V4],
        policy: FamilyPolicy::SingleStack,
        ports: BTreeSet::from([tcp(80)]),
        sharing_key: None,
        backend: "".into(),
        wanted: Ok(Wanted::default()),
        shown: Shown::default(),
    }
}

/// A TCP port.
pub fn tcp(port: u16) -> PortUse {
    PortUse {
        protocol: Protocol::Tcp,
        port: Port::new(port).expect("not 0"),
    }
}

/// A request for addresses.
pub fn addresses(list: &[&str]) -> Result<Wanted, allocator_core::Refusal> {
    Ok(Wanted {
        addresses: list.iter().map(|text| ip(text)).collect(),
        pool: None,
    })
}

/// A request for a pool.
pub fn from_pool(name: &str) -> Result<Wanted, allocator_core::Refusal> {
    Ok(Wanted {
        addresses: Vec::new(),
        pool: Some(name.into()),
    })
}

/// A source of numbers that is the same in each run.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `n` (xorshift64*).
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).expect("31 bits") % n.max(1)
    }

    /// Puts a list into another order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for place in (1..list.len()).rev() {
            list.swap(place, self.below(place + 1));
        }
    }
}

/// The cluster.
#[derive(Clone, Debug)]
pub struct World {
    /// The allocator under test.
    pub allocator: Allocator,
    /// The clock.
    pub now: Time,
    /// Stored pools.
    pub pools: BTreeMap<PoolName, Pool>,
    /// Stored namespaces.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Stored nodes.
    pub nodes: BTreeMap<NodeName, BTreeSet<IpAddr>>,
    /// Stored Services of type `LoadBalancer`.
    pub services: BTreeMap<ServiceKey, ServiceClaim>,
    /// Stored Services that need nothing.
    pub idle: BTreeMap<ServiceKey, IdleService>,
    /// Stored records.
    pub records: BTreeMap<IpAddr, Record>,
    /// Writes that were sent and not done.
    pub writes: VecDeque<Output>,
    /// Watch events that were not delivered.
    pub watch: VecDeque<Input>,
    /// All events so far.
    pub events: Vec<(Subject, EventReason, String)>,
    /// All status writes that were stored.
    pub status_writes: Vec<StatusWrite>,
    /// Records written (created, updated, deleted).
    pub record_writes: usize,
    /// The last report.
    pub configuration: Option<Vec<PoolReport>>,
    /// Decides what comes first; `None`: in order.
    pub dice: Option<Dice>,
    config: Config,
    /// The last resourceVersion given.
    pub version: u64,
}

impl World {
    /// An empty cluster with a synced allocator.
    pub fn new() -> Self {
        let mut world = Self::unsynced(Config::default());
        world.input(Input::Synced);
        world
    }

    /// An empty cluster with an allocator that was told nothing.
    pub fn unsynced(config: Config) -> Self {
        Self {
            allocator: Allocator::new(config),
            now: Time::ZERO,
            pools: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            nodes: BTreeMap::new(),
            services: BTreeMap::new(),
            idle: BTreeMap::new(),
            records: BTreeMap::new(),
            writes: VecDeque::new(),
            watch: VecDeque::new(),
            events: Vec::new(),
            status_writes: Vec::new(),
            record_writes: 0,
            configuration: None,
            dice: None,
            config,
            version: 0,
        }
    }

    /// Tells the allocator a fact; its writes wait, its reports are kept.
    pub fn input(&mut self, input: Input) {
        let mut out = Vec::new();
        self.allocator.handle(self.now, input, &mut out);
        for output in out {
            match output {
                Output::Event {
                    subject,
                    reason,
                    message,
                } => self.events.push((subject, reason, message)),
                Output::Configuration(reports) => self.configuration = Some(reports),
                Output::CreateRecord(_)
                | Output::UpdateRecord(_)
                | Output::DeleteRecord { .. }
                | Output::Status(_)
                | Output::PoolStatus { .. } => self.writes.push_back(output),
            }
        }
    }

    /// Does one write or delivers one watch event; false if there is neither.
    pub fn step(&mut self) -> bool {
        let (writes, watch) = (self.writes.len(), usize::from(!self.watch.is_empty()));
        if writes + watch == 0 {
            return false;
        }
        let place = self
            .dice
            .as_mut()
            .map_or(0, |dice| dice.below(writes + watch));
        if place < writes {
            if let Some(write) = self.writes.remove(place) {
                self.store(write);
            }
        } else if let Some(event) = self.watch.pop_front() {
            self.input(event);
        }
        true
    }

    /// Lets everything happen that happens without time passing.
    pub fn run(&mut self) {
        for _ in 0..1_000_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the allocator and the store never come to rest");
    }

    /// Lets time pass, deadline by deadline.
    pub fn wait(&mut self, duration: Duration) {
        self.run();
        let end = self.now + duration;
        while let Some(deadline) = self
            .allocator
            .next_deadline()
            .filter(|deadline| *deadline <= end)
        {
            self.now = deadline.max(self.now);
            self.input(Input::Tick);
            self.run();
        }
        self.now = end;
        self.input(Input::Tick);
        self.run();
    }

    /// A new allocator replaces the old one; what was sent and not done is lost, as is what the watch had not shown.
    pub fn restart(&mut self) {
        self.crash();
        self.replay();
        self.run();
    }

    /// The allocator is gone.
    pub fn crash(&mut self) {
        self.allocator = Allocator::new(self.config);
        self.writes.clear();
        self.watch.clear();
    }

    /// The allocator is told everything there is, in the order of the dice, then `Synced`.
    pub fn replay(&mut self) {
        let mut all: Vec<Input> = Vec::new();
        all.extend(self.pools.values().cloned().map(Input::Pool));
        let namespace = |(name, labels): (&String, &BTreeMap<String, String>)| Input::Namespace {
            name: name.clone(),
            labels: labels.clone(),
        };
        all.extend(self.namespaces.iter().map(namespace));
        let node = |(name, addresses): (&NodeName, &BTreeSet<IpAddr>)| Input::Node {
            name: name.clone(),
            addresses: addresses.clone(),
        };
        all.extend(self.nodes.iter().map(node));
        all.extend(
            self.services
                .values()
                .cloned()
                .map(|claim| Input::Service(Box::new(claim))),
        );
        all.extend(self.idle.values().cloned().map(Input::ServiceIdle));
        all.extend(self.records.values().cloned().map(Input::Record));
        if let Some(dice) = &mut self.dice {
            dice.shuffle(&mut all);
        }
        for input in all {
            self.input(input);
        }
        self.input(Input::Synced);
    }

    /// Stores a pool.
    pub fn pool(&mut self, pool: Pool) {
        self.pools.insert(pool.name.clone(), pool.clone());
        self.watch.push_back(Input::Pool(pool));
    }

    /// Deletes a pool.
    pub fn delete_pool(&mut self, name: &str) {
        self.pools.remove(&name.into());
        self.watch.push_back(Input::PoolGone(name.into()));
    }

    /// Stores a node.
    pub fn node(&mut self, name: &str, list: &[&str]) {
        let addresses: BTreeSet<IpAddr> = list.iter().map(|text| ip(text)).collect();
        self.nodes.insert(name.into(), addresses.clone());
        self.watch.push_back(Input::Node {
            name: name.into(),
            addresses,
        });
    }

    /// Stores a Service as its user writes it: what it shows stays as it is.
    pub fn service(&mut self, mut claim: ServiceClaim) {
        if let Some(before) = self
            .services
            .get(&claim.key)
            .filter(|before| before.uid == claim.uid)
        {
            claim.shown = before.shown.clone();
        }
        self.idle.remove(&claim.key);
        self.put_service(claim);
    }

    /// Stores a Service with what it shows.
    pub fn put_service(&mut self, claim: ServiceClaim) {
        self.services.insert(claim.key.clone(), claim.clone());
        self.watch.push_back(Input::Service(Box::new(claim)));
    }

    /// Stores a Service that needs nothing any more.
    pub fn idle(&mut self, idle: IdleService) {
        self.services.remove(&idle.key);
        self.idle.insert(idle.key.clone(), idle.clone());
        self.watch.push_back(Input::ServiceIdle(idle));
    }

    /// Deletes a Service.
    pub fn delete(&mut self, name: &str) {
        let key = key(name);
        self.services.remove(&key);
        self.idle.remove(&key);
        self.watch.push_back(Input::ServiceGone(key));
    }

    /// What a Service shows.
    pub fn shows(&self, name: &str) -> Vec<String> {
        let claim = self.services.get(&key(name));
        let shown = claim
            .map(|claim| claim.shown.addresses.as_slice())
            .unwrap_or_default();
        shown.iter().map(ToString::to_string).collect()
    }

    /// Reason and message of the condition of a Service that waits.
    pub fn waits(&self, name: &str) -> Option<(String, String)> {
        let condition = self.services.get(&key(name))?.shown.condition.as_ref()?;
        (!condition.allocated).then(|| (condition.reason.clone(), condition.message.clone()))
    }

    /// Events on a Service, as reason and message.
    pub fn events_of(&self, name: &str) -> Vec<(EventReason, &str)> {
        let is_it = |subject: &Subject| matches!(subject, Subject::Service(found, _) if *found == key(name));
        let mine = self.events.iter().filter(|(subject, ..)| is_it(subject));
        mine.map(|(_, reason, message)| (*reason, message.as_str()))
            .collect()
    }

    /// The counters that a pool shows.
    pub fn counters(&self, name: &str) -> PoolCounters {
        self.pools
            .get(&name.into())
            .and_then(|pool| pool.shown)
            .unwrap_or_default()
    }

    fn next_version(&mut self) -> std::sync::Arc<str> {
        self.version += 1;
        self.version.to_string().into()
    }

    /// Does a write as the API server would, answers it, and puts what changed into the watch.
    pub fn store(&mut self, write: Output) {
        match write {
            Output::CreateRecord(record) => self.create(record),
            Output::UpdateRecord(record) => self.update(record),
            Output::DeleteRecord { address, stored } => self.remove(address, &stored),
            Output::Status(write) => self.write_status(write),
            Output::PoolStatus { pool, counters } => {
                if let Some(pool) = self.pools.get_mut(&pool)
                    && pool.shown != Some(counters)
                {
                    pool.shown = Some(counters);
                    self.watch.push_back(Input::Pool(pool.clone()));
                }
            }
            Output::Event { .. } | Output::Configuration(_) => {
                unreachable!("kept when they are made")
            }
        }
    }

    fn create(&mut self, mut record: Record) {
        let address = record.address;
        if let Some(there) = self.records.get(&address).cloned() {
            self.input(Input::RecordAnswer {
                address,
                answer: RecordAnswer::Taken(there),
            });
            return;
        }
        let version = self.next_version();
        record.stored = Some(Stored {
            uid: format!("record-{version}").into(),
            version,
        });
        self.stored(record);
    }

    fn update(&mut self, mut record: Record) {
        let address = record.address;
        match self.records.get(&address).cloned() {
            None => self.input(Input::RecordAnswer {
                address,
                answer: RecordAnswer::Gone,
            }),
            Some(there) if there.stored != record.stored => {
                self.input(Input::RecordAnswer {
                    address,
                    answer: RecordAnswer::Taken(there),
                });
            }
            Some(_) => {
                let version = self.next_version();
                if let Some(stored) = &mut record.stored {
                    stored.version = version;
                }
                self.stored(record);
            }
        }
    }

    fn stored(&mut self, record: Record) {
        let address = record.address;
        self.record_writes += 1;
        self.records.insert(address, record.clone());
        self.watch.push_back(Input::Record(record.clone()));
        self.input(Input::RecordAnswer {
            address,
            answer: RecordAnswer::Stored(record),
        });
    }

    fn remove(&mut self, address: IpAddr, stored: &Stored) {
        let there = self.records.get(&address).cloned();
        let answer = match there {
            Some(there) if there.stored.as_ref() != Some(stored) => RecordAnswer::Taken(there),
            Some(_) => {
                self.record_writes += 1;
                self.records.remove(&address);
                self.watch.push_back(Input::RecordGone {
                    address,
                    uid: stored.uid.clone(),
                });
                RecordAnswer::Gone
            }
            None => RecordAnswer::Gone,
        };
        self.input(Input::RecordAnswer { address, answer });
    }

    fn write_status(&mut self, write: StatusWrite) {
        let (key, uid) = (write.key.clone(), write.uid.clone());
        let stored =
            if let Some(claim) = self.services.get_mut(&key).filter(|claim| claim.uid == uid) {
                claim.shown.condition = Some(write.condition.clone());
                match &write.ingress {
                    IngressChange::Set { addresses, pool } => {
                        claim.shown.addresses.clone_from(addresses);
                        claim.shown.other = false;
                        claim.shown.pool = Some(pool.clone());
                    }
                    IngressChange::Clear => {
                        claim.shown.addresses.clear();
                        claim.shown.other = false;
                        claim.shown.pool = None;
                    }
                    IngressChange::Keep => {}
                }
                self.watch
                    .push_back(Input::Service(Box::new(claim.clone())));
                true
            } else if let Some(idle) = self.idle.get_mut(&key).filter(|idle| idle.uid == uid) {
                idle.shows = false;
                true
            } else {
                false
            };
        if stored {
            self.status_writes.push(write);
        }
        self.input(Input::StatusAnswer { key, uid, stored });
    }

    /// Who shows which address.
    pub fn shown(&self) -> BTreeMap<IpAddr, BTreeSet<ServiceKey>> {
        let mut shown: BTreeMap<IpAddr, BTreeSet<ServiceKey>> = BTreeMap::new();
        for (key, claim) in &self.services {
            for address in &claim.shown.addresses {
                shown.entry(*address).or_default().insert(key.clone());
            }
        }
        shown
    }
}
