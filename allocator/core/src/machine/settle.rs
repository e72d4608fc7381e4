//! One Service: what it may keep, what it loses, what it gets.

use std::{net::IpAddr, sync::Arc, time::Duration};

use api_model::{IpFamily, ServiceKey};

use super::{
    Allocator, Cause, Deadline, IngressChange, Output, Service, StatusWrite, Subject,
    choose::Choice,
};
use crate::{
    claim::{IdleService, ServiceClaim, ShownCondition},
    dual_stack::{self, Goal, Need},
    ledger::Holder,
    pool::Unusable,
    reason::{EventReason, Reason, Refusal},
    selection,
    sharing::Sharer,
};

/// Whether a Service may keep an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Good,
    /// Not if it stays like this for the grace period.
    Soon(Reason),
    /// Not any longer.
    Now(Reason),
}

impl Service {
    fn new(claim: Arc<ServiceClaim>) -> Self {
        Self {
            claim,
            refused: None,
            sent: None,
            fresh: false,
            owned: false,
            grace: None,
        }
    }
}

impl Allocator {
    pub(super) fn service(&mut self, claim: ServiceClaim, out: &mut Vec<Output>) {
        let key = claim.key.clone();
        self.idle.remove(&key);
        if self
            .services
            .get(&key)
            .is_some_and(|before| before.claim.uid != claim.uid)
        {
            self.service_gone(&key);
        }
        let claim = Arc::new(claim);
        let Some(service) = self.services.get_mut(&key) else {
            self.services.insert(key.clone(), Service::new(claim));
            if self.synced {
                self.adopt(&key);
                self.settle(&key, Cause::Change, out);
            }
            return;
        };
        let before = std::mem::replace(&mut service.claim, Arc::clone(&claim));
        if !self.synced {
            return;
        }
        if !claim.shares_the_same_as(&before) {
            self.room = true;
        }
        if claim.asks_the_same_as(&before) {
            self.show(&key, out);
        } else {
            self.settle(&key, Cause::Change, out);
        }
    }

    pub(super) fn service_idle(&mut self, idle: IdleService, out: &mut Vec<Output>) {
        if !self.synced {
            self.services.remove(&idle.key);
            self.idle.insert(idle.key.clone(), idle);
            return;
        }
        let was_on = self
            .ledger
            .of_service(&idle.key)
            .any(|(_, holder)| holder.uid == idle.uid);
        for address in self.ledger.held_by(&idle.key, &idle.uid) {
            let why = given_back(idle.reason, address);
            self.leave(address, &idle.key, Some(&why), out);
        }
        self.service_gone(&idle.key);
        if was_on && idle.shows {
            out.push(clear_idle(idle));
        }
    }

    pub(super) fn service_gone(&mut self, key: &ServiceKey) {
        self.idle.remove(key);
        let Some(service) = self.services.remove(key) else {
            return;
        };
        self.waiters.remove(&(service.claim.created, key.clone()));
        for address in self.ledger.held_by(key, &service.claim.uid) {
            self.leave(address, key, None, &mut Vec::new());
        }
    }

    /// Makes what a Service holds agree with what it asks for and may have.
    pub(super) fn settle(&mut self, key: &ServiceKey, cause: Cause, out: &mut Vec<Output>) {
        let Some(service) = self.services.get(key) else {
            return;
        };
        let claim = Arc::clone(&service.claim);
        match dual_stack::goal(&claim) {
            Ok(goal) => {
                self.drop_unfit(&claim, &goal, cause, out);
                self.refresh_holder(&claim);
                self.fill(&claim, &goal, out);
            }
            Err(refusal) => {
                for address in self.ledger.held_by(key, &claim.uid) {
                    self.leave(address, key, Some(&refusal), out);
                }
                self.waiters.remove(&(claim.created, key.clone()));
                self.refuse(key, Some(refusal), out);
            }
        }
        self.show(key, out);
    }

    fn drop_unfit(
        &mut self,
        claim: &ServiceClaim,
        goal: &Goal,
        cause: Cause,
        out: &mut Vec<Output>,
    ) {
        let key = &claim.key;
        let mut soon = Vec::new();
        for address in self.ledger.held_by(key, &claim.uid) {
            match self.fit(claim, goal, address, cause) {
                Fit::Good => {}
                Fit::Soon(reason) => soon.push((address, reason)),
                Fit::Now(reason) => {
                    self.leave(address, key, Some(&given_back(reason, address)), out);
                }
            }
        }
        let (now, grace) = (self.now, self.config.grace);
        let Some(service) = self.services.get_mut(key) else {
            return;
        };
        if soon.is_empty() {
            service.grace = None;
            return;
        }
        let until = *service.grace.get_or_insert(now + grace);
        if until > now {
            self.deadlines.insert((until, Deadline::Grace(key.clone())));
            return;
        }
        service.grace = None;
        for (address, reason) in soon {
            self.leave(address, key, Some(&given_back(reason, address)), out);
        }
    }

    /// Whether the Service may keep the address.
    pub(super) fn fit(
        &self,
        claim: &ServiceClaim,
        goal: &Goal,
        address: IpAddr,
        cause: Cause,
    ) -> Fit {
        if !goal.families.contains(&IpFamily::of(address)) {
            return Fit::Now(Reason::FamilyMismatch);
        }
        if !goal.wanted.is_empty() && !goal.wanted.contains(&address) {
            return Fit::Now(Reason::RequestChanged);
        }
        let pool = self.pools.of_even_bad(address);
        // a pool that can't be read may hold it: nobody loses an address over a slip of the pen
        let pool = pool.or_else(|| {
            let named = self.pools.get(&self.ledger.get(address)?.pool)?;
            named.problem.is_some().then_some(named)
        });
        let Some(state) = pool else {
            return Fit::Soon(Reason::PoolGone);
        };
        if goal
            .pool
            .as_ref()
            .is_some_and(|wanted| *wanted != state.pool.name)
        {
            return Fit::Now(Reason::RequestChanged);
        }
        let namespace = self.namespaces.get(&*claim.key.namespace);
        if state.problem.is_none() && selection::allows(&state.pool, claim, namespace).is_err() {
            return Fit::Soon(Reason::PoolNotAllowed);
        }
        match self.pools.usable(state, address) {
            Err(Unusable::Node(_)) => Fit::Now(Reason::AddressReserved),
            Err(Unusable::Buggy) => Fit::Soon(Reason::AddressReserved),
            Ok(()) if self.clashes(claim, address, cause) => Fit::Soon(Reason::SharingRefused),
            Ok(()) => Fit::Good,
        }
    }

    /// Whether the Service can't share with the others on its address and is the one to give way: the one that changed,
    /// or at the start the younger one.
    fn clashes(&self, claim: &ServiceClaim, address: IpAddr, cause: Cause) -> bool {
        let in_grace = self
            .services
            .get(&claim.key)
            .is_some_and(|service| service.grace.is_some());
        if cause == Cause::Around && !in_grace {
            return false;
        }
        let Some(entry) = self.ledger.get(address) else {
            return false;
        };
        let mine = Sharer::of(claim);
        entry
            .holders
            .iter()
            .filter(|(other, _)| **other != claim.key)
            .any(|(other, holder)| {
                let age = self
                    .services
                    .get(other)
                    .map(|service| (service.claim.created, other));
                let gives_way = cause != Cause::Replay
                    || age.is_some_and(|age| age < (claim.created, &claim.key));
                gives_way && holder.leaving.is_none() && mine.check(&holder.sharer).is_err()
            })
    }

    /// Tells the ledger what the Service does with its addresses now, and from which pool they are.
    fn refresh_holder(&mut self, claim: &ServiceClaim) {
        for address in self.ledger.held_by(&claim.key, &claim.uid) {
            self.ledger.put(address, &claim.key, Holder::of(claim));
            let pool = self.pools.of(address).map(|state| state.pool.name.clone());
            if let (Some(entry), Some(pool)) = (self.ledger.get_mut(address), pool) {
                entry.pool = pool;
            }
            self.touched.insert(address);
        }
    }

    /// Gives the Service what it has not got yet.
    fn fill(&mut self, claim: &ServiceClaim, goal: &Goal, out: &mut Vec<Output>) {
        let key = &claim.key;
        let mut held = self.ledger.held_by(key, &claim.uid);
        let waiter = (claim.created, key.clone());
        if goal.is_met_by(&held) {
            self.waiters.remove(&waiter);
            self.refuse(key, None, out);
            return;
        }
        self.waiters.insert(waiter.clone());
        match self.choose(claim, goal, &held) {
            Ok(choices) => {
                for choice in choices {
                    held.push(choice.address);
                    self.give(claim, &choice);
                }
                if goal.is_met_by(&held) {
                    self.waiters.remove(&waiter);
                }
                self.refuse(key, None, out);
            }
            // one of two is what was asked for as the second best
            Err(_)
                if goal.need == Need::BothIfPossible
                    && goal.wanted.is_empty()
                    && !held.is_empty() =>
            {
                self.refuse(key, None, out);
            }
            Err(refusal) => self.refuse(key, Some(refusal), out),
        }
    }

    fn give(&mut self, claim: &ServiceClaim, choice: &Choice) {
        self.put(claim, choice.address, choice.pool.clone());
        if choice.by_itself {
            self.pools.handed_out(&choice.pool, choice.address);
        }
        // who waits for an address to share may have to be told another reason
        self.room |= claim.sharing_key.is_some();
        if let Some(service) = self.services.get_mut(&claim.key) {
            service.fresh = true;
        }
    }

    /// Puts a Service on an address.
    pub(super) fn put(&mut self, claim: &ServiceClaim, address: IpAddr, pool: api_model::PoolName) {
        if self.ledger.open(address, pool.clone()) {
            self.pools.take(address);
        }
        if let Some(entry) = self.ledger.get_mut(address) {
            entry.pool.clone_from(&pool); // one who leaves may have it from a pool that is gone
        }
        self.ledger.put(address, &claim.key, Holder::of(claim));
        self.touched.insert(address);
        self.counted.insert(pool);
        if let Some(service) = self.services.get_mut(&claim.key) {
            service.owned = true;
        }
    }

    /// The Service gives the address back; it stays taken for the drain time.
    pub(super) fn leave(
        &mut self,
        address: IpAddr,
        key: &ServiceKey,
        why: Option<&Refusal>,
        out: &mut Vec<Output>,
    ) {
        let until = self.now + self.config.drain;
        if !self.ledger.leave(address, key, until) {
            return;
        }
        self.deadlines
            .insert((until, Deadline::Drain(address, key.clone())));
        let uid = self
            .ledger
            .get(address)
            .and_then(|entry| Some(entry.holders.get(key)?.uid.clone()));
        if let (Some(why), Some(uid)) = (why, uid) {
            out.push(Output::Event {
                subject: Subject::Service(key.clone(), uid),
                reason: EventReason::ClearAssignment,
                message: why.to_string(),
            });
        }
    }

    /// The drain time of a holder is over.
    pub(super) fn drained(&mut self, address: IpAddr, key: &ServiceKey) {
        let now = self.now;
        let over = |(on, holder): (IpAddr, &Holder)| {
            on == address && holder.leaving.is_some_and(|until| until <= now)
        };
        if self.ledger.of_service(key).any(over) {
            self.ledger.take_off(address, key);
            self.touched.insert(address);
            self.room = true;
        }
    }

    /// Remembers why a Service waits, or that it doesn't; an event tells of a new reason.
    fn refuse(&mut self, key: &ServiceKey, refusal: Option<Refusal>, out: &mut Vec<Output>) {
        let Some(service) = self.services.get_mut(key) else {
            return;
        };
        if service.refused == refusal {
            return;
        }
        if let Some(refusal) = &refusal
            && service.claim.shown.condition.as_ref() != Some(&refused(refusal))
        {
            out.push(Output::Event {
                subject: Subject::Service(key.clone(), service.claim.uid.clone()),
                reason: refusal.reason.event(),
                message: refusal.to_string(),
            });
        }
        service.refused = refusal;
    }

    pub(super) fn retry_status_later(&mut self, key: &ServiceKey) {
        const RETRY: Duration = Duration::from_secs(30);
        self.deadlines
            .insert((self.now + RETRY, Deadline::Retry(key.clone())));
    }
}

/// The condition of a Service that waits.
pub(super) fn refused(refusal: &Refusal) -> ShownCondition {
    ShownCondition {
        allocated: false,
        reason: refusal.reason.as_str().to_owned(),
        message: refusal.message.clone(),
    }
}

/// The write that takes our words off a Service that is not ours any more.
pub(super) fn clear_idle(idle: IdleService) -> Output {
    let why = Refusal::new(idle.reason, "the Service needs no address from us");
    Output::Status(StatusWrite {
        key: idle.key,
        uid: idle.uid,
        ingress: IngressChange::Clear,
        condition: refused(&why),
    })
}

/// The words of a Service that loses an address.
pub(super) fn given_back(reason: Reason, address: IpAddr) -> Refusal {
    Refusal::new(reason, format!("{address} is given back"))
}
