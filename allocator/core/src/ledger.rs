//! Who holds which address.
//!
//! Owns the entries, one for each address that is not free, and the way back from Services and sharing keys. An entry
//! lives from the decision to give the address away until its record is deleted in the cluster: until then the address
//! is not free. Never decides who should get one.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use api_model::{AddressRange, PoolName, ServiceKey, Time};

use crate::{
    claim::{PortUse, Record, RecordHolder, ServiceClaim, Stored, Uid},
    sharing::{Clash, Sharer},
};

/// A Service on an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) uid: Uid,
    pub(crate) sharer: Sharer,
    /// It gave the address back and keeps it until then, while its traffic runs out.
    pub(crate) leaving: Option<Time>,
}

impl Holder {
    pub(crate) fn of(claim: &ServiceClaim) -> Self {
        Self {
            uid: claim.uid.clone(),
            sharer: Sharer::of(claim),
            leaving: None,
        }
    }

    /// A holder known from its record alone.
    pub(crate) fn from_record(
        holder: &RecordHolder,
        sharing_key: Option<&Arc<str>>,
        leaving: Time,
    ) -> Self {
        let sharer = Sharer {
            ports: holder.ports.clone(),
            sharing_key: sharing_key.cloned(),
            backend: "".into(),
        };
        Self {
            uid: holder.uid.clone(),
            sharer,
            leaving: Some(leaving),
        }
    }
}

impl Sharer {
    pub(crate) fn of(claim: &ServiceClaim) -> Self {
        Self {
            ports: claim.ports.clone(),
            sharing_key: claim.sharing_key.clone(),
            backend: claim.backend.clone(),
        }
    }
}

/// An address that is not free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pool: PoolName,
    pub(crate) holders: BTreeMap<ServiceKey, Holder>,
    /// The record as it is stored in the cluster.
    pub(crate) stored: Option<Record>,
    /// An operation on the record was sent and not answered yet.
    pub(crate) in_flight: bool,
}

impl Entry {
    /// What the record should say.
    pub(crate) fn record(&self, address: IpAddr) -> Record {
        let holder = |holder: &Holder| RecordHolder {
            uid: holder.uid.clone(),
            ports: holder.sharer.ports.clone(),
        };
        Record {
            address,
            pool: self.pool.clone(),
            sharing_key: self
                .holders
                .values()
                .find_map(|holder| holder.sharer.sharing_key.clone()),
            holders: self
                .holders
                .iter()
                .map(|(key, value)| (key.clone(), holder(value)))
                .collect(),
            stored: self
                .stored
                .as_ref()
                .and_then(|record| record.stored.clone()),
        }
    }

    /// Identity of the stored record.
    pub(crate) fn identity(&self) -> Option<&Stored> {
        self.stored.as_ref()?.stored.as_ref()
    }

    /// Whether the stored record says that this Service holds the address.
    pub(crate) fn confirms(&self, key: &ServiceKey, uid: &Uid) -> bool {
        self.stored
            .as_ref()
            .is_some_and(|record| record.holds(key, uid))
    }

    /// Whether the Service could hold the address beside everybody who is on it, those leaving too. The name of the
    /// Service itself is no obstacle: one made anew may take over from the one before.
    pub(crate) fn has_room_for(
        &self,
        key: &ServiceKey,
        sharer: &Sharer,
    ) -> Result<(), (ServiceKey, Clash)> {
        for (other, holder) in self.holders.iter().filter(|(other, _)| *other != key) {
            sharer
                .check(&holder.sharer)
                .map_err(|clash| (other.clone(), clash))?;
        }
        Ok(())
    }
}

/// All addresses that are not free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    entries: BTreeMap<IpAddr, Entry>,
    of_service: BTreeMap<ServiceKey, BTreeSet<IpAddr>>,
    of_sharing_key: BTreeMap<Arc<str>, BTreeSet<IpAddr>>,
}

impl Ledger {
    /// The entry of an address; none: it is free.
    pub(crate) fn get(&self, address: IpAddr) -> Option<&Entry> {
        self.entries.get(&address)
    }

    /// For what does not change holders.
    pub(crate) fn get_mut(&mut self, address: IpAddr) -> Option<&mut Entry> {
        self.entries.get_mut(&address)
    }

    /// All entries in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (IpAddr, &Entry)> {
        self.entries
            .iter()
            .map(|(address, entry)| (*address, entry))
    }

    /// Addresses of a range that are not free.
    pub(crate) fn within(&self, range: &AddressRange) -> impl Iterator<Item = (IpAddr, &Entry)> {
        self.entries
            .range(range.start()..=range.end())
            .map(|(address, entry)| (*address, entry))
    }

    /// Makes an entry without holders; false if the address was not free.
    pub(crate) fn open(&mut self, address: IpAddr, pool: PoolName) -> bool {
        if self.entries.contains_key(&address) {
            return false;
        }
        let entry = Entry {
            pool,
            holders: BTreeMap::new(),
            stored: None,
            in_flight: false,
        };
        self.entries.insert(address, entry);
        true
    }

    /// Drops an entry that has no holder any more.
    pub(crate) fn close(&mut self, address: IpAddr) {
        let entry = self.entries.remove(&address);
        assert!(
            entry.is_none_or(|entry| entry.holders.is_empty()),
            "{address} still has holders"
        );
    }

    /// Puts a Service on an address that has an entry, or replaces what is known of it there.
    pub(crate) fn put(&mut self, address: IpAddr, key: &ServiceKey, holder: Holder) {
        self.take_off(address, key);
        let Some(entry) = self.entries.get_mut(&address) else {
            return;
        };
        if let Some(sharing_key) = &holder.sharer.sharing_key {
            self.of_sharing_key
                .entry(sharing_key.clone())
                .or_default()
                .insert(address);
        }
        self.of_service
            .entry(key.clone())
            .or_default()
            .insert(address);
        entry.holders.insert(key.clone(), holder);
    }

    /// Takes a Service off an address; the entry stays.
    pub(crate) fn take_off(&mut self, address: IpAddr, key: &ServiceKey) -> Option<Holder> {
        let entry = self.entries.get_mut(&address)?;
        let holder = entry.holders.remove(key)?;
        if let Some(sharing_key) = &holder.sharer.sharing_key
            && !entry
                .holders
                .values()
                .any(|other| other.sharer.sharing_key.as_ref() == Some(sharing_key))
        {
            remove_from(&mut self.of_sharing_key, sharing_key, address);
        }
        remove_from(&mut self.of_service, key, address);
        Some(holder)
    }

    /// Marks a holder as leaving; false if it wasn't there or was leaving already.
    pub(crate) fn leave(&mut self, address: IpAddr, key: &ServiceKey, until: Time) -> bool {
        let holder = self
            .entries
            .get_mut(&address)
            .and_then(|entry| entry.holders.get_mut(key));
        match holder {
            Some(holder) if holder.leaving.is_none() => {
                holder.leaving = Some(until);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Addresses on which the Service is, with whether it is leaving.
    pub(crate) fn of_service(&self, key: &ServiceKey) -> impl Iterator<Item = (IpAddr, &Holder)> {
        self.of_service
            .get(key)
            .into_iter()
            .flatten()
            .filter_map(move |address| {
                let holder = self.entries.get(address)?.holders.get(key)?;
                Some((*address, holder))
            })
    }

    /// Addresses that the Service holds and does not leave.
    pub(crate) fn held_by(&self, key: &ServiceKey, uid: &Uid) -> Vec<IpAddr> {
        let held = self
            .of_service(key)
            .filter(|(_, holder)| holder.leaving.is_none() && holder.uid == *uid);
        held.map(|(address, _)| address).collect()
    }

    /// Addresses that are shared under this key.
    pub(crate) fn shared_under(&self, sharing_key: &str) -> impl Iterator<Item = IpAddr> {
        self.of_sharing_key
            .get(sharing_key)
            .into_iter()
            .flatten()
            .copied()
    }

    /// Ports that a Service uses on an address.
    pub(crate) fn ports(&self, address: IpAddr, key: &ServiceKey) -> Option<&BTreeSet<PortUse>> {
        Some(&self.entries.get(&address)?.holders.get(key)?.sharer.ports)
    }
}

fn remove_from<K: Ord>(map: &mut BTreeMap<K, BTreeSet<IpAddr>>, key: &K, address: IpAddr) {
    if let Some(addresses) = map.get_mut(key) {
        addresses.remove(&address);
        if addresses.is_empty() {
            map.remove(key);
        }
    }
}
