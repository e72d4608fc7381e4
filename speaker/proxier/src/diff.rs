//! The operations that turn one table into another.
//!
//! Owns the comparison; never reads the kernel. Chains come with the `class` elements that name them.

use crate::nft::{Key, NewChain, Operation, Table, Transaction, Value};

/// What has to be done so that `actual` becomes `desired`. Classes that are there already are left alone even when
/// nobody uses them any more: a chain never goes.
pub fn diff(actual: &Table, desired: &Table) -> Transaction {
    let mut chains = Vec::new();
    let mut operations = Vec::new();
    for (key, value) in desired {
        match (actual.get(key), key, value) {
            (Some(held), _, _) if held == value => {}
            (None, Key::Class(family, class), Value::Chain(kind)) => chains.push(NewChain {
                family: *family,
                class: *class,
                kind: *kind,
            }),
            (Some(held), _, _) => operations.push(Operation::Replace(*key, *held, *value)),
            (None, _, _) => operations.push(Operation::Add(*key, *value)),
        }
    }
    let gone = actual.iter().filter(|(key, _)| !desired.contains_key(key));
    let gone = gone.filter(|(key, _)| !matches!(key, Key::Class(..)));
    operations.extend(gone.map(|(key, value)| Operation::Delete(*key, *value)));
    Transaction::new(chains, operations)
}
