//! Numbers of Service ports and classes: given once, kept while in use, adopted from the kernel after a restart.
//!
//! Owns the numbering; never builds elements.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use api_model::{IpFamily, ServiceKey};

use crate::{
    nft::{
        ChainKind, Key, Map, NewChain, Table, Value, compile,
        element::{CLASSES, FIRST_AFFINITY_CLASS, ID_SHIFT, LOCAL},
    },
    rules::{Frontend, PortId},
};

/// Ids are below this one; 0 is none.
const IDS: u32 = 1 << 20;

#[derive(Debug)]
pub(super) struct Ids {
    adopted: Table,
    /// Whose each frontend will be: only that Service takes over the id that the kernel has for it.
    heirs: BTreeMap<Frontend, ServiceKey>,
    owners: BTreeMap<u32, ServiceKey>,
    ports: BTreeMap<ServiceKey, BTreeMap<PortId, u32>>,
    next: u32,
    classes: BTreeMap<ChainKind, u16>,
    chains: BTreeSet<(IpFamily, u16)>,
}

impl Ids {
    /// Goes on from a table of the kernel, in which the choosers of sets of up to so many slots are part of the fixed text.
    pub(super) fn new(adopted: Table, ready_made_slots: u32) -> Self {
        let mut ids = Self {
            owners: BTreeMap::new(),
            ports: BTreeMap::new(),
            next: 1,
            classes: BTreeMap::new(),
            chains: BTreeSet::new(),
            adopted: Table::new(),
            heirs: BTreeMap::new(),
        };
        for (key, value) in compile::ready_made_up_to(ready_made_slots)
            .iter()
            .chain(&adopted)
        {
            if let (Key::Class(family, class), Value::Chain(kind)) = (key, value) {
                ids.chains.insert((*family, *class));
                if *class >= FIRST_AFFINITY_CLASS {
                    ids.classes.entry(*kind).or_insert(*class);
                }
            }
            if let (Key::Frontend(..), Value::SlotSet(set)) = (key, value) {
                ids.next = ids.next.max((set >> ID_SHIFT) + 1);
            }
        }
        ids.adopted = adopted;
        ids
    }

    /// Says whose each frontend will be in the first snapshot.
    pub(super) fn set_heirs(&mut self, heirs: BTreeMap<Frontend, ServiceKey>) {
        self.heirs = heirs;
    }

    /// After the first snapshot nothing more is adopted.
    pub(super) fn forget_adopted(&mut self) {
        self.adopted = Table::new();
        self.heirs = BTreeMap::new();
    }

    /// The id of a Service port: its own, the one that the kernel has for its frontends, or a new one.
    pub(super) fn port<'a>(
        &mut self,
        key: &ServiceKey,
        port: &PortId,
        frontends: impl Iterator<Item = &'a Frontend>,
    ) -> Option<u32> {
        let own = self
            .ports
            .get(key)
            .and_then(|ports| ports.get(port))
            .copied();
        let id = own
            .or_else(|| self.adopted_id(key, frontends))
            .or_else(|| self.free_id())?;
        self.owners.insert(id, key.clone());
        self.ports
            .entry(key.clone())
            .or_default()
            .insert(port.clone(), id);
        Some(id)
    }

    fn adopted_id<'a>(
        &self,
        key: &ServiceKey,
        frontends: impl Iterator<Item = &'a Frontend>,
    ) -> Option<u32> {
        let maps = [Map::ClusterIp, Map::External, Map::LocalInside, Map::Local];
        let own = frontends.filter(|frontend| self.heirs.get(frontend) == Some(key));
        let keys = own.flat_map(|frontend| maps.map(|map| Key::Frontend(map, *frontend)));
        let mut ids = keys
            .filter_map(|key| self.adopted.get(&key)?.slot_set())
            .map(|set| set >> ID_SHIFT);
        ids.find(|id| !self.owners.contains_key(id))
    }

    fn free_id(&mut self) -> Option<u32> {
        let start = self.next.clamp(1, IDS - 1);
        let mut candidates = (start..IDS).chain(1..start);
        let id = candidates.find(|id| !self.owners.contains_key(id))?;
        self.next = id + 1;
        Some(id)
    }

    /// Gives back the ids of a Service but for these ports.
    pub(super) fn release(&mut self, key: &ServiceKey, keep: &BTreeSet<PortId>) {
        let Some(ports) = self.ports.get_mut(key) else {
            return;
        };
        let owners = &mut self.owners;
        ports.retain(|port, id| {
            let kept = keep.contains(port);
            if !kept {
                owners.remove(id);
            }
            kept
        });
        if ports.is_empty() {
            self.ports.remove(key);
        }
    }

    /// Whose Service port a slot set or remembered endpoint belongs to.
    pub(super) fn owner(&self, set: u32) -> Option<ServiceKey> {
        self.owners.get(&(set >> ID_SHIFT)).cloned()
    }

    /// The slots that the kernel has for a set.
    pub(super) fn adopted_slots(&self, family: IpFamily, set: u32) -> Vec<SocketAddr> {
        let plain = self.range(Map::Endpoints, family, set);
        let plain = plain.filter_map(|value| value.endpoint());
        let sticky = self.range(Map::AffinitySlots, family, set);
        let sticky = sticky
            .filter_map(|value| value.remembered())
            .filter_map(|id| self.adopted_endpoint(family, id));
        plain.chain(sticky).collect()
    }

    fn range(&self, map: Map, family: IpFamily, set: u32) -> impl Iterator<Item = &Value> {
        let from = Key::Slot(map, family, set, 0);
        let to = Key::Slot(map, family, set, u32::MAX);
        self.adopted.range(from..=to).map(|(_, value)| value)
    }

    fn adopted_endpoint(&self, family: IpFamily, id: u32) -> Option<SocketAddr> {
        self.adopted.get(&Key::Remembered(family, id))?.endpoint()
    }

    /// The endpoint ids that the kernel has for a Service port.
    pub(super) fn adopted_endpoints(&self, family: IpFamily, id: u32) -> BTreeMap<SocketAddr, u32> {
        let from = Key::Remembered(family, id << ID_SHIFT);
        let to = Key::Remembered(family, (id << ID_SHIFT) | (LOCAL * 2 - 1));
        let found = self
            .adopted
            .range(from..=to)
            .filter_map(|(key, value)| match (key, value) {
                (Key::Remembered(_, id), Value::Endpoint(at)) => Some((*at, id & (LOCAL - 1))),
                _ => None,
            });
        found.collect()
    }

    /// The class of a way to choose, or `None` when all numbers are taken.
    pub(super) fn class(&mut self, kind: ChainKind) -> Option<u16> {
        if let ChainKind::Random { slots } = kind {
            return u16::try_from(slots)
                .ok()
                .filter(|class| *class < FIRST_AFFINITY_CLASS);
        }
        if let Some(class) = self.classes.get(&kind) {
            return Some(*class);
        }
        let used: BTreeSet<u16> = self.classes.values().copied().collect();
        let class = (FIRST_AFFINITY_CLASS..CLASSES).find(|class| !used.contains(class))?;
        self.classes.insert(kind, class);
        Some(class)
    }

    /// Chains among those used that nobody made yet; from now on they count as made.
    pub(super) fn chains_to_make(
        &mut self,
        used: &BTreeSet<(IpFamily, ChainKind)>,
    ) -> Vec<NewChain> {
        let mut made = Vec::new();
        for (family, kind) in used {
            let Some(class) = self.class(*kind) else {
                continue;
            };
            if self.chains.insert((*family, class)) {
                made.push(NewChain {
                    family: *family,
                    class,
                    kind: *kind,
                });
            }
        }
        made
    }

    /// The elements of `class` for all chains made so far.
    pub(super) fn class_elements(&self) -> Table {
        let kinds: BTreeMap<u16, ChainKind> = self
            .classes
            .iter()
            .map(|(kind, class)| (*class, *kind))
            .collect();
        let elements = self.chains.iter().filter_map(|(family, class)| {
            let slots = u32::from(*class);
            let random = (*class < FIRST_AFFINITY_CLASS).then_some(ChainKind::Random { slots });
            let kind = random.or_else(|| kinds.get(class).copied())?;
            Some((Key::Class(*family, *class), Value::Chain(kind)))
        });
        elements.collect()
    }
}
