//! The start: everything that there is becomes the ledger, then who waits is served.
//!
//! A record wins over a status; a status without a record is taken over if nothing speaks against it. The outcome is a
//! function of what was told, not of the order in which it was told.

use std::{net::IpAddr, sync::Arc};

use api_model::{IpFamily, ServiceKey};

use super::{
    Allocator, Cause, Output, Subject,
    settle::{Fit, clear_idle, given_back},
};
use crate::{
    claim::{Record, ServiceClaim},
    dual_stack,
    reason::EventReason,
    sharing::Sharer,
};

impl Allocator {
    pub(super) fn replay(&mut self, out: &mut Vec<Output>) {
        if self.synced {
            return;
        }
        self.synced = true;
        self.replay_records(out);
        self.refresh_pools();
        let mut by_age: Vec<(i64, ServiceKey)> = self
            .services
            .iter()
            .map(|(key, service)| (service.claim.created, key.clone()))
            .collect();
        by_age.sort_unstable();
        for (_, key) in &by_age {
            self.adopt(key);
        }
        for (_, key) in &by_age {
            self.settle(key, Cause::Replay, out);
        }
        self.counted
            .extend(self.pools.iter().map(|(name, _)| name.clone()));
        out.push(Output::Configuration(Vec::new()));
        self.report(out);
        if !self.reported.is_empty() {
            // the empty report above was only the answer for "nothing is wrong"
            out.retain(
                |output| !matches!(output, Output::Configuration(reports) if reports.is_empty()),
            );
        }
    }

    fn replay_records(&mut self, out: &mut Vec<Output>) {
        let mut heard: Vec<Record> = std::mem::take(&mut self.heard).into_values().collect();
        // a Service in two records keeps the address it asks for or shows; the stable sort leaves the rest in order
        let services = &self.services;
        let preferred = |record: &Record| {
            record.holders.keys().any(|key| {
                services
                    .get(key)
                    .is_some_and(|service| prefers(&service.claim, record.address))
            })
        };
        heard.sort_by_cached_key(|record| !preferred(record));
        for record in heard {
            let address = record.address;
            self.ledger.open(address, record.pool.clone());
            if let Some(entry) = self.ledger.get_mut(address) {
                entry.stored = Some(record.clone());
            }
            for key in record.holders.keys() {
                self.admit(&record, key);
            }
            self.touched.insert(address);
        }
        for (key, idle) in std::mem::take(&mut self.idle) {
            let on = self
                .ledger
                .of_service(&key)
                .filter(|(_, holder)| holder.uid == idle.uid);
            let on: Vec<IpAddr> = on.map(|(address, _)| address).collect();
            for address in &on {
                out.push(Output::Event {
                    subject: Subject::Service(key.clone(), idle.uid.clone()),
                    reason: EventReason::ClearAssignment,
                    message: given_back(idle.reason, *address).to_string(),
                });
            }
            if !on.is_empty() && idle.shows {
                out.push(clear_idle(idle));
            }
        }
    }

    /// Takes over what a Service shows, where it has no record.
    pub(super) fn adopt(&mut self, key: &ServiceKey) {
        let Some(service) = self.services.get(key) else {
            return;
        };
        let claim = Arc::clone(&service.claim);
        let Ok(goal) = dual_stack::goal(&claim) else {
            return;
        };
        for &address in &claim.shown.addresses {
            let held = self.ledger.held_by(key, &claim.uid);
            let has_one = held
                .iter()
                .any(|other| IpFamily::of(*other) == IpFamily::of(address));
            let full = goal.need == dual_stack::Need::One && !held.is_empty();
            if has_one || full || !self.is_free_for(&claim, address) {
                continue;
            }
            let Some(pool) = self
                .pools
                .of_even_bad(address)
                .map(|state| state.pool.name.clone())
            else {
                continue;
            };
            if self.fit(&claim, &goal, address, Cause::Replay) == Fit::Good {
                self.put(&claim, address, pool);
            }
        }
    }

    fn is_free_for(&self, claim: &ServiceClaim, address: IpAddr) -> bool {
        let entry = self.ledger.get(address);
        entry.is_none_or(|entry| entry.has_room_for(&claim.key, &Sharer::of(claim)).is_ok())
    }
}

fn prefers(claim: &ServiceClaim, address: IpAddr) -> bool {
    match &claim.wanted {
        Ok(wanted) if !wanted.addresses.is_empty() => wanted.addresses.contains(&address),
        Ok(_) | Err(_) => claim.shown.addresses.contains(&address),
    }
}
