//! The ruleset as text for the `nft` program: the whole table, or further chains.
//!
//! Owns the spelling; never runs `nft`. Incremental changes of elements don't go this way (`bytes` does).

use std::{collections::BTreeMap, fmt::Write};

use api_model::IpFamily;

use super::{
    compile::{Chain, Settings, TABLE, chooser, declarations, family_word, fixed_chains},
    element::{ChainKind, Key, Map, Table, Value},
    transaction::NewChain,
};
use crate::rules::Frontend;

/// Both families' tables, replacing what is there, in one transaction.
pub fn whole(settings: Settings, table: &Table) -> String {
    let mut text = String::new();
    for family in [IpFamily::V4, IpFamily::V6] {
        let ip = family_word(family);
        // declared first so that the delete never fails; all in one transaction
        let _ = writeln!(
            text,
            "table {ip} {TABLE}\ndelete table {ip} {TABLE}\ntable {ip} {TABLE} {{"
        );
        table_body(&mut text, family, settings, table);
        text.push_str("}\n");
    }
    text
}

fn table_body(text: &mut String, family: IpFamily, settings: Settings, table: &Table) {
    let mut elements: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let mut kinds = Vec::new();
    for (key, value) in table.iter().filter(|(key, _)| key.family() == family) {
        if let Value::Chain(kind) = value {
            kinds.push(*kind);
        }
        elements
            .entry(key.map().name())
            .or_default()
            .push(element(key, value));
    }
    let classes = elements.remove(Map::Class.name()).unwrap_or_default();
    for (kind, name, body) in declarations(family) {
        let held = elements.remove(name).unwrap_or_default();
        if name != Map::Class.name() {
            declare(text, kind, name, &body, &held);
        }
    }
    for chain in choosers(family, kinds.into_iter()) {
        chain_block(text, &chain);
    }
    for (kind, name, body) in declarations(family) {
        if name == Map::Class.name() {
            declare(text, kind, name, &body, &classes);
        }
    }
    for chain in fixed_chains(family, settings) {
        chain_block(text, &chain);
    }
}

fn declare(text: &mut String, kind: &str, name: &str, body: &str, elements: &[String]) {
    let _ = writeln!(text, "\t{kind} {name} {{\n\t\t{body}");
    if !elements.is_empty() {
        let _ = writeln!(text, "\t\telements = {{ {} }}", elements.join(",\n\t\t\t"));
    }
    text.push_str("\t}\n");
}

/// Each chain once, also when several choosers share it.
fn choosers(family: IpFamily, kinds: impl Iterator<Item = ChainKind>) -> Vec<Chain> {
    let mut chains: Vec<Chain> = Vec::new();
    for chain in kinds.flat_map(|kind| chooser(family, kind)) {
        if !chains.iter().any(|made| made.name == chain.name) {
            chains.push(chain);
        }
    }
    chains
}

fn chain_block(text: &mut String, chain: &Chain) {
    let _ = writeln!(text, "\tchain {} {{", chain.name);
    if let Some(hook) = chain.hook {
        let _ = writeln!(text, "\t\t{hook}; policy accept;");
    }
    for rule in &chain.rules {
        let _ = writeln!(text, "\t\t{rule}");
    }
    text.push_str("\t}\n");
}

/// Further chains with their `class` elements, for a table that is there. Chains that several choosers share are
/// emptied and filled again, so that repeating is harmless.
pub fn further_chains(new: &[NewChain]) -> String {
    let mut text = String::new();
    for family in [IpFamily::V4, IpFamily::V6] {
        let ip = family_word(family);
        let mine: Vec<&NewChain> = new.iter().filter(|chain| chain.family == family).collect();
        for chain in choosers(family, mine.iter().map(|chain| chain.kind)) {
            let name = &chain.name;
            let _ = writeln!(
                text,
                "add chain {ip} {TABLE} {name}\nflush chain {ip} {TABLE} {name}"
            );
            for rule in &chain.rules {
                let _ = writeln!(text, "add rule {ip} {TABLE} {name} {rule}");
            }
        }
        for chain in mine {
            let element = element(&Key::Class(family, chain.class), &Value::Chain(chain.kind));
            let _ = writeln!(text, "add element {ip} {TABLE} class {{ {element} }}");
        }
    }
    text
}

/// One element, `key` or `key : value`.
fn element(key: &Key, value: &Value) -> String {
    let key = match key {
        Key::Net(_, net) => net.to_string(),
        Key::Address(Map::Hairpin, address) => format!("{address} . {address}"),
        Key::Address(_, address) => address.to_string(),
        Key::Frontend(_, at) => frontend(at),
        Key::Allowed(at, net) => format!("{} . {net}", frontend(at)),
        Key::Slot(_, _, set, slot) => format!("{} . {slot}", word(*set)),
        Key::Remembered(_, id) => word(*id),
        Key::Class(_, class) => word(u32::from(*class)),
    };
    match value {
        Value::Member => key,
        Value::SlotSet(word_of) | Value::Remembered(word_of) => {
            format!("{key} : {}", word(*word_of))
        }
        Value::Endpoint(at) => format!("{key} : {} . {}", at.ip(), at.port()),
        Value::Chain(kind) => format!("{key} : goto {}", kind.name()),
    }
}

fn frontend(at: &Frontend) -> String {
    let protocol = at.protocol.as_str().to_lowercase();
    format!("{} . {protocol} . {}", at.address, at.port)
}

/// A priority as `nft` writes it: two hexadecimal halves.
fn word(value: u32) -> String {
    format!("{:x}:{:x}", value >> 16, value & 0xffff)
}
