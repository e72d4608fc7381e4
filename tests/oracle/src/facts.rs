//! `facts/*.yaml`: what was seen of things that change over time, and of the health ports.
//!
//! Owns the reading. A fact that no script of ours performs is reported by name, never passed over.

use std::{collections::BTreeMap, fs, path::Path};

use lab::{Result, error::Doing as _};
use serde::Deserialize;
use serde_json::Value;

/// One observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// `conntrack/udp lb#3`.
    pub id: String,
    /// File and list, `conntrack/udp lb`.
    pub group: String,
    /// What was done.
    pub when: String,
    /// What was seen then.
    pub observed: Value,
}

/// An answer of a health check node port, IPv4 and IPv6 alike.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HealthRow {
    /// Whose Service.
    pub scenario: String,
    /// Which node was asked.
    pub node: String,
    /// Status code.
    pub code: u16,
    /// Header `X-Load-Balancing-Endpoint-Weight`.
    pub weight: usize,
    /// In the body.
    pub local_endpoints: usize,
    /// In the body.
    pub service_proxy_healthy: bool,
}

/// All facts of a folder.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Health check node ports, by the row's name.
    pub health: Vec<(String, std::result::Result<HealthRow, String>)>,
    /// Everything else.
    pub timed: Vec<Fact>,
}

/// Reads the folder's `facts`, if it has any.
pub fn read(folder: &Path) -> Result<Facts> {
    let folder = folder.join("facts");
    let mut facts = Facts::default();
    if !folder.is_dir() {
        return Ok(facts);
    }
    let doing = format!("reading {}", folder.display());
    let entries = fs::read_dir(&folder).doing(doing.clone())?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<_> = paths.collect::<std::io::Result<_>>().doing(doing)?;
    paths.retain(|path| path.extension().is_some_and(|it| it == "yaml"));
    paths.sort();
    for path in paths {
        let doing = format!("reading {}", path.display());
        let text = fs::read_to_string(&path).doing(doing.clone())?;
        let file: BTreeMap<String, Vec<Value>> = serde_yaml_ng::from_str(&text).doing(doing)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        for (list, items) in file {
            for (number, item) in (1..).zip(items) {
                facts.take(&name, &list, number, &item);
            }
        }
    }
    Ok(facts)
}

impl Facts {
    fn take(&mut self, file: &str, list: &str, number: usize, item: &Value) {
        let group = format!("{file}/{list}");
        let id = format!("{group}#{number}");
        if item.get("scenario").is_some() {
            let row = HealthRow::deserialize(item).map_err(|error| error.to_string());
            let id = row.as_ref().map_or(id.clone(), |row| {
                format!("{file}#{number} {} {}", row.scenario, row.node)
            });
            self.health.push((id, row));
            return;
        }
        self.timed.push(Fact {
            id,
            group,
            when: item["when"].as_str().unwrap_or_default().to_owned(),
            observed: item["observed"].clone(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_of_our_own_folder_is_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proxier");
        let facts = read(&folder).expect("the folder is ours");
        assert!(facts.health.iter().all(|(_, row)| row.is_ok()), "{facts:?}");
        assert!(
            facts
                .timed
                .iter()
                .all(|fact| !fact.when.is_empty() && !fact.observed.is_null())
        );
        assert!(facts.health.len() > 50 && facts.timed.len() > 70);
    }
}
