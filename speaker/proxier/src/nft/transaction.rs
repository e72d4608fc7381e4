//! A change of the table as typed data: chains to be made, elements to be added, replaced and taken away.
//!
//! Owns the order inside a transaction. Never applies it.

use api_model::IpFamily;

use super::element::{ChainKind, Key, Map, Value};

/// One element's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Was not there.
    Add(Key, Value),
    /// Other value; the old one is named so that it can be checked.
    Replace(Key, Value, Value),
    /// Goes away.
    Delete(Key, Value),
}

impl Operation {
    /// The element's key.
    pub fn key(&self) -> &Key {
        match self {
            Self::Add(key, _) | Self::Replace(key, ..) | Self::Delete(key, _) => key,
        }
    }
}

/// A chain that has to exist before the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NewChain {
    /// Table.
    pub family: IpFamily,
    /// Its number in `class`.
    pub class: u16,
    /// What it does.
    pub kind: ChainKind,
}

/// A change of the table, applied as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Chains first; they harm nobody when the rest fails.
    pub chains: Vec<NewChain>,
    /// Elements, in an order that is safe when cut into batches: no frontend before its slots and its guard, no slot
    /// taken away before its frontend is.
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// Puts the operations into the safe order.
    pub fn new(chains: Vec<NewChain>, mut operations: Vec<Operation>) -> Self {
        operations.sort_by_key(phase);
        Self { chains, operations }
    }

    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.operations.is_empty()
    }
}

/// Deletes of intervals come first, since the kernel refuses overlaps; then what is pointed to, what points, and last
/// what is no longer pointed to.
fn phase(operation: &Operation) -> (u8, i32) {
    let map = operation.key().map();
    let place = Map::ALL.iter().position(|m| *m == map).unwrap_or(0);
    let place = i32::try_from(place).unwrap_or(i32::MAX);
    match operation {
        Operation::Delete(..) if matches!(map, Map::Allowed | Map::Pods | Map::ServiceNet) => {
            (0, 0)
        }
        Operation::Add(..) | Operation::Replace(..) => (1, place),
        Operation::Delete(..) => (2, -place),
    }
}
