//! Address records: what is stored, and what should be.

use std::net::IpAddr;

use api_model::{IpFamily, ServiceKey};

use super::{Allocator, Cause, Deadline, Output, RecordAnswer};
use crate::{
    claim::{Record, Stored, Uid},
    ledger::Holder,
};

impl Allocator {
    /// The watch shows a record.
    pub(super) fn record(&mut self, record: Record, out: &mut Vec<Output>) {
        if self.synced {
            if !self.is_old_news(&record) {
                self.observe(&record, out);
            }
        } else {
            self.heard.insert(record.address, record);
        }
    }

    /// The watch shows that a record is gone.
    pub(super) fn record_gone(&mut self, address: IpAddr, uid: &Uid) {
        if self.buried.get(&address) == Some(uid) {
            self.buried.remove(&address);
        }
        let is_it = |stored: Option<&Stored>| stored.is_some_and(|stored| stored.uid == *uid);
        if self
            .heard
            .get(&address)
            .is_some_and(|record| is_it(record.stored.as_ref()))
        {
            self.heard.remove(&address);
        }
        if let Some(entry) = self
            .ledger
            .get_mut(address)
            .filter(|entry| is_it(entry.identity()))
        {
            entry.stored = None;
            self.touched.insert(address);
        }
    }

    /// A write to a record was answered.
    pub(super) fn record_answer(
        &mut self,
        address: IpAddr,
        answer: RecordAnswer,
        out: &mut Vec<Output>,
    ) {
        let Some(entry) = self.ledger.get_mut(address) else {
            return;
        };
        entry.in_flight = false;
        self.touched.insert(address);
        match answer {
            RecordAnswer::Stored(record) | RecordAnswer::Taken(record) => {
                self.observe(&record, out);
            }
            RecordAnswer::Gone => {
                if let Some(Stored { uid, .. }) =
                    entry.stored.take().and_then(|record| record.stored)
                {
                    self.buried.insert(address, uid);
                }
            }
        }
    }

    /// Whether the watch shows what we know to be past.
    fn is_old_news(&self, record: &Record) -> bool {
        let Some(seen) = &record.stored else {
            return false;
        };
        if self.buried.get(&record.address) == Some(&seen.uid) {
            return true;
        }
        let number = |stored: &Stored| stored.version.parse::<u64>().ok();
        let known = self
            .ledger
            .get(record.address)
            .and_then(|entry| entry.identity());
        known.is_some_and(|known| known.uid == seen.uid && number(known) > number(seen))
    }

    /// Takes a stored record for true: whoever it names is on the address; who is not named and has no room goes.
    fn observe(&mut self, record: &Record, out: &mut Vec<Output>) {
        let address = record.address;
        if self.ledger.open(address, record.pool.clone()) {
            self.pools.take(address);
        }
        self.counted.insert(record.pool.clone());
        self.touched.insert(address);
        let before = self
            .ledger
            .get_mut(address)
            .and_then(|entry| entry.stored.replace(record.clone()));
        for key in record.holders.keys() {
            self.admit(record, key);
        }
        let on_it = self
            .ledger
            .get(address)
            .map(|entry| entry.holders.keys().cloned().collect());
        let on_it: Vec<ServiceKey> = on_it.unwrap_or_default();
        let was_named = |key: &ServiceKey| {
            before
                .as_ref()
                .is_some_and(|before| before.holders.contains_key(key))
        };
        for key in on_it
            .iter()
            .filter(|key| !record.holders.contains_key(*key) && !was_named(key))
        {
            if self.has_to_yield(address, key) {
                self.ledger.take_off(address, key);
                self.settle(key, Cause::Around, out);
            }
        }
        for key in &on_it {
            self.show(key, out);
        }
    }

    /// Puts a Service that a record names onto the address: to stay if it has no other, else to leave.
    pub(super) fn admit(&mut self, record: &Record, key: &ServiceKey) {
        let (address, Some(named)) = (record.address, record.holders.get(key)) else {
            return;
        };
        if self.ledger.ports(address, key).is_some() {
            return; // known; one made anew under the same name takes over with the next update
        }
        let claim = self
            .services
            .get(key)
            .map(|service| service.claim.clone())
            .filter(|claim| claim.uid == named.uid);
        if let Some(claim) = claim {
            let held = self.ledger.held_by(key, &claim.uid);
            if !held
                .iter()
                .any(|other| IpFamily::of(*other) == IpFamily::of(address))
            {
                self.put(&claim, address, record.pool.clone());
                return;
            }
        }
        let until = self.now + self.config.drain;
        self.ledger.put(
            address,
            key,
            Holder::from_record(named, record.sharing_key.as_ref(), until),
        );
        self.deadlines
            .insert((until, Deadline::Drain(address, key.clone())));
    }

    fn has_to_yield(&self, address: IpAddr, key: &ServiceKey) -> bool {
        let entry = self.ledger.get(address);
        let holder = entry.and_then(|entry| Some((entry, entry.holders.get(key)?)));
        holder.is_some_and(|(entry, holder)| entry.has_room_for(key, &holder.sharer).is_err())
    }

    /// Writes every record that does not say what it should, unless a write to it is under way.
    pub(super) fn write_records(&mut self, out: &mut Vec<Output>) {
        for address in std::mem::take(&mut self.touched) {
            self.write_record(address, out);
        }
    }

    fn write_record(&mut self, address: IpAddr, out: &mut Vec<Output>) {
        let Some(entry) = self
            .ledger
            .get_mut(address)
            .filter(|entry| !entry.in_flight)
        else {
            return;
        };
        let wanted = entry.record(address);
        self.counted.insert(entry.pool.clone());
        if entry.holders.is_empty() {
            if let Some(stored) = wanted.stored {
                entry.in_flight = true;
                out.push(Output::DeleteRecord { address, stored });
            } else {
                self.pools.release(address);
                self.ledger.close(address);
                self.room = true;
            }
            return;
        }
        let is_right = entry
            .stored
            .as_ref()
            .map(|stored| stored.says_the_same_as(&wanted));
        let write = match is_right {
            Some(true) => return,
            Some(false) => Output::UpdateRecord(wanted),
            None => Output::CreateRecord(wanted),
        };
        entry.in_flight = true;
        out.push(write);
    }
}
