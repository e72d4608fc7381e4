//! `differences.toml`: rows in which our proxier is wanted to differ from the record, how, and why.
//!
//! Owns the list. A listed row must differ exactly in the listed way.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::expectation::{Expect, RowError};

/// The list of this repository.
pub const OWN: &str = include_str!("../differences.toml");

/// What is wanted instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What our proxier does.
    pub expect: Expect,
    /// Why that is better.
    pub reason: String,
}

/// What is wanted instead of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactDifference {
    /// What is seen of our proxier.
    pub observed: Value,
    /// Why that is better.
    pub reason: String,
}

/// Wanted differences by row, `scenario#n from`, and by fact, `file/list: when`.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    rows: BTreeMap<String, Difference>,
    facts: BTreeMap<String, FactDifference>,
}

/// What can't be read.
#[derive(Debug, thiserror::Error)]
pub enum DifferencesError {
    /// Not the format.
    #[error("differences.toml: {0}")]
    Format(#[from] toml::de::Error),
    /// An expectation.
    #[error("differences.toml: {rows:?}: {source}")]
    Expect {
        /// Of which rows.
        rows: Vec<String>,
        /// What is wrong.
        source: RowError,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    difference: Vec<Entry>,
    #[serde(default)]
    fact: Vec<FactEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    rows: Vec<String>,
    expect: Value,
    reason: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FactEntry {
    facts: Vec<String>,
    observed: Value,
    reason: String,
}

impl Differences {
    /// Reads the list.
    pub fn read(text: &str) -> Result<Self, DifferencesError> {
        let file: File = toml::from_str(text)?;
        let mut listed = BTreeMap::new();
        for Entry {
            rows,
            expect,
            reason,
        } in file.difference
        {
            let expect = match Expect::read(&expect) {
                Ok(expect) => expect,
                Err(source) => return Err(DifferencesError::Expect { rows, source }),
            };
            let difference = Difference { expect, reason };
            listed.extend(rows.into_iter().map(|row| (row, difference.clone())));
        }
        let mut facts = BTreeMap::new();
        for entry in file.fact {
            let FactEntry {
                facts: names,
                observed,
                reason,
            } = entry;
            let difference = FactDifference { observed, reason };
            facts.extend(names.into_iter().map(|name| (name, difference.clone())));
        }
        Ok(Self {
            rows: listed,
            facts,
        })
    }

    /// What is wanted of a row instead of the record.
    pub fn of(&self, row: &str) -> Option<&Difference> {
        self.rows.get(row)
    }

    /// What is wanted instead of a fact.
    pub fn of_fact(&self, fact: &str) -> Option<&FactDifference> {
        self.facts.get(fact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_list_is_readable() {
        Differences::read(OWN).expect("it is ours");
    }

    #[test]
    fn an_entry_speaks_of_its_rows_alone() {
        let text = "[[difference]]\nrows = [\"a#1 client\"]\nreason = \"better\"\n\
                    expect = { outcome = \"dropped\" }\n";
        let list = Differences::read(text).expect("a list");
        let wanted = Difference {
            expect: Expect::Dropped,
            reason: "better".to_owned(),
        };
        assert_eq!(list.of("a#1 client"), Some(&wanted));
        assert_eq!(list.of("a#1 n1"), None);
        let broken = text.replace("dropped", "lost");
        assert!(Differences::read(&broken).is_err());
    }
}
