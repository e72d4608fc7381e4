//! A table in memory that is as strict as the kernel, and that carries packets as the ruleset does.
//!
//! Owns the meaning of the fixed text, for tests and dry runs. Never used on a node's packets.

use std::net::IpAddr;

use api_model::IpFamily;
use ipnet::IpNet;

use super::element::{CLASS_BITS, ChainKind, Key, LOCAL, Map, Table, Value};
use super::transaction::{Operation, Transaction};
use crate::rules::{Frontend, Packet, Verdict};

/// Why the kernel would refuse a transaction as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Added twice.
    #[error("{0:?} is there already")]
    Exists(Key),
    /// Taken away or replaced, but not there, or with another value.
    #[error("{0:?} is not there with this value")]
    Missing(Key),
    /// Intervals of one frontend overlap.
    #[error("{0:?} overlaps with {1:?}")]
    Overlap(Key, Key),
}

/// The table of a node in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeTable {
    /// Its elements.
    pub elements: Table,
}

impl FakeTable {
    /// Applies a transaction as a whole or not at all.
    pub fn apply(&mut self, transaction: &Transaction) -> Result<(), ApplyError> {
        let mut next = self.elements.clone();
        for chain in &transaction.chains {
            next.insert(
                Key::Class(chain.family, chain.class),
                Value::Chain(chain.kind),
            );
        }
        for operation in &transaction.operations {
            match operation {
                Operation::Delete(key, held) => remove(&mut next, key, held)?,
                Operation::Add(key, value) => add(&mut next, key, *value)?,
                Operation::Replace(key, held, value) => {
                    remove(&mut next, key, held)?;
                    add(&mut next, key, *value)?;
                }
            }
        }
        self.elements = next;
        Ok(())
    }

    /// Carries a first packet through the chains; `own` says whether its source is an address of the node.
    pub fn verdict(&self, packet: &Packet, own: bool) -> Verdict {
        let to = packet.to;
        let has = |map| self.elements.contains_key(&Key::Frontend(map, to));
        if has(Map::Guarded) && !self.allows(packet) {
            return Verdict::Drop;
        }
        let pod = self.in_net(Map::Pods, packet.source);
        let routes = [
            (Map::ClusterIp, true, !pod),
            (Map::External, true, true),
            (Map::LocalInside, pod, false),
            (Map::LocalInside, own, true),
            (Map::Local, true, false),
        ];
        for (map, applies, masquerade) in routes {
            let held = self.elements.get(&Key::Frontend(map, to));
            if let (true, Some(Value::SlotSet(set))) = (applies, held) {
                return self.pick(IpFamily::of(to.address), *set, masquerade);
            }
        }
        if has(Map::Refuse)
            || self
                .elements
                .contains_key(&Key::Address(Map::ClusterIps, to.address))
                && !has(Map::Hole)
        {
            Verdict::Refuse
        } else if has(Map::Hole) || self.in_net(Map::ServiceNet, to.address) {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }

    fn allows(&self, packet: &Packet) -> bool {
        let mut nets = allowed(&self.elements, packet.to);
        nets.any(|net| net.contains(&packet.source))
    }

    fn in_net(&self, map: Map, address: IpAddr) -> bool {
        nets(&self.elements, map).any(|net| net.contains(&address))
    }

    /// A set whose class or slots are missing delivers to nobody: the packet passes untouched, as in the kernel.
    fn pick(&self, family: IpFamily, set: u32, masquerade: bool) -> Verdict {
        let class = u16::try_from(set & CLASS_BITS).unwrap_or(0);
        let Some(Value::Chain(kind)) = self.elements.get(&Key::Class(family, class)) else {
            return Verdict::Pass;
        };
        let base = set & !CLASS_BITS;
        let (slots, affinity) = match *kind {
            ChainKind::Random { slots } => (slots, None),
            ChainKind::Sticky {
                slots,
                seconds,
                local,
            } => {
                debug_assert_eq!(
                    local,
                    base & LOCAL != 0,
                    "scope of the chain and of the set"
                );
                (slots, Some(seconds))
            }
        };
        let endpoint = |slot| {
            let mut key = Key::Slot(Map::Endpoints, family, base, slot);
            if affinity.is_some() {
                let slot = Key::Slot(Map::AffinitySlots, family, base, slot);
                key = Key::Remembered(family, self.elements.get(&slot)?.remembered()?);
            }
            self.elements.get(&key)?.endpoint()
        };
        let found = (0..slots).map(endpoint);
        match found.collect::<Option<_>>() {
            Some(to) => Verdict::Deliver {
                to,
                masquerade,
                affinity,
            },
            None => Verdict::Pass,
        }
    }
}

fn remove(table: &mut Table, key: &Key, held: &Value) -> Result<(), ApplyError> {
    if table.get(key) != Some(held) {
        return Err(ApplyError::Missing(*key));
    }
    table.remove(key);
    Ok(())
}

fn add(table: &mut Table, key: &Key, value: Value) -> Result<(), ApplyError> {
    if table.contains_key(key) {
        return Err(ApplyError::Exists(*key));
    }
    if let Some(other) = overlapping(table, key) {
        return Err(ApplyError::Overlap(*key, other));
    }
    table.insert(*key, value);
    Ok(())
}

/// Sources that a frontend lets in. Elements of one frontend stand side by side.
fn allowed(table: &Table, of: Frontend) -> impl Iterator<Item = IpNet> {
    let from = Key::Allowed(of, IpNet::default());
    let held = table.range(from..).map_while(|(key, _)| {
        let Key::Allowed(frontend, net) = key else {
            return None;
        };
        Some((*frontend, *net))
    });
    held.take_while(move |(frontend, _)| *frontend == of)
        .map(|(_, net)| net)
}

/// Networks of `pods` or `service-net`.
fn nets(table: &Table, of: Map) -> impl Iterator<Item = IpNet> {
    let from = Key::Net(of, IpNet::default());
    let held = table.range(from..).map_while(|(key, _)| {
        let Key::Net(map, net) = key else {
            return None;
        };
        Some((*map, *net))
    });
    held.take_while(move |(map, _)| *map == of)
        .map(|(_, net)| net)
}

/// An interval of the same set or frontend that has an address in common with a new one.
fn overlapping(table: &Table, new: &Key) -> Option<Key> {
    let shares = |a: &IpNet, b: &IpNet| a.contains(b) || b.contains(a);
    if let Key::Allowed(of, net) = new {
        let other = allowed(table, *of).find(|other| shares(net, other));
        return other.map(|other| Key::Allowed(*of, other));
    }
    let Key::Net(of, net) = new else {
        return None;
    };
    let other = nets(table, *of).find(|other| shares(net, other));
    other.map(|other| Key::Net(*of, other))
}
