//! A row: who asks what, and what was seen when it was recorded.
//!
//! Owns the reading of rows. A field or word that isn't known makes the row unsupported; it is never passed over.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use api_model::{IpFamily, Protocol};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A file of rows, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowFile {
    /// Name of the objects' file.
    pub scenario: String,
    /// For people.
    #[serde(default)]
    pub title: String,
    /// The rows, unread.
    pub rows: Vec<Value>,
}

/// A row that was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who asks.
    pub from: String,
    /// Targets, `lb`, `clusterIP:443` …
    pub to: Vec<String>,
    /// Protocols.
    pub protocols: Vec<Protocol>,
    /// Families.
    pub families: Vec<IpFamily>,
    /// What every combination gave.
    pub expect: Expect,
}

/// What a source was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The same for all pods.
    One(String),
    /// By pod.
    ByPod(BTreeMap<String, String>),
}

impl Source {
    /// What this pod should have seen.
    pub fn of(&self, pod: &str) -> Option<&str> {
        match self {
            Self::One(name) => Some(name),
            Self::ByPod(names) => names.get(pod).map(String::as_str),
        }
    }
}

/// What came of the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// All were answered.
    Served(Served),
    /// Some were answered, the others lost.
    Mixed(Served),
    /// All were refused in this way.
    Rejected(How),
    /// Nothing came back.
    Dropped,
    /// All reached the upstream router, which saw this source.
    Passed(String),
}

/// By whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Exactly these pods.
    pub pods: BTreeSet<String>,
    /// What they saw.
    pub source: Source,
    /// Exactly these ports of theirs; without it, one port.
    pub ports: Option<BTreeSet<u16>>,
    /// One pod for all connections of a source.
    pub sticky: bool,
}

/// How a connection was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Port unreachable, of ICMP or its version 6.
    PortUnreachable,
    /// A TCP reset.
    Reset,
    /// Seen only: another ICMP message or error.
    Other(String),
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PortUnreachable => "icmp-port-unreachable",
            Self::Reset => "rst",
            Self::Other(word) => word,
        })
    }
}

impl fmt::Display for Expect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served(served) => write!(f, "served {served}"),
            Self::Mixed(served) => write!(f, "mixed {served}, the others lost"),
            Self::Rejected(how) => write!(f, "rejected {how}"),
            Self::Dropped => write!(f, "dropped"),
            Self::Passed(source) => write!(f, "passed source {source}"),
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pods: Vec<&str> = self.pods.iter().map(String::as_str).collect();
        write!(f, "by {}", pods.join("+"))?;
        match &self.source {
            Source::One(name) => write!(f, " source {name}")?,
            Source::ByPod(names) => {
                let names: Vec<_> = names.iter().map(|(p, s)| format!("{p}:{s}")).collect();
                write!(f, " source {}", names.join("+"))?;
            }
        }
        if let Some(ports) = &self.ports {
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            write!(f, " ports {}", ports.join("+"))?;
        }
        if self.sticky {
            write!(f, " sticky")?;
        }
        Ok(())
    }
}

/// Why a row isn't understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// A field that this runner doesn't know, or that says nothing for this outcome.
    #[error("field {0:?} is not known here")]
    UnknownField(String),
    /// A field without which the row says too little.
    #[error("field {0:?} is missing")]
    Missing(&'static str),
    /// A value that this runner doesn't know.
    #[error("{field}: {value} is not known")]
    Value {
        /// Where.
        field: &'static str,
        /// What.
        value: String,
    },
}

/// Takes fields out of an object; what is left at the end wasn't known.
struct Fields(Map<String, Value>);

impl Fields {
    fn of(value: &Value, field: &'static str) -> Result<Self, RowError> {
        value.as_object().cloned().map(Self).ok_or(RowError::Value {
            field,
            value: value.to_string(),
        })
    }

    fn optional<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, RowError> {
        let Some(value) = self.0.remove(field) else {
            return Ok(None);
        };
        read(&value).map(Some).ok_or_else(|| RowError::Value {
            field,
            value: value.to_string(),
        })
    }

    fn needed<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, RowError> {
        self.optional(field, read)?.ok_or(RowError::Missing(field))
    }

    fn end(self) -> Result<(), RowError> {
        match self.0.into_iter().next() {
            Some((field, _)) => Err(RowError::UnknownField(field)),
            None => Ok(()),
        }
    }
}

/// A list that isn't empty, each item read
fn list<T>(read: impl Fn(&Value) -> Option<T>) -> impl FnOnce(&Value) -> Option<Vec<T>> {
    move |value| {
        let items: Vec<T> = value.as_array()?.iter().map(read).collect::<Option<_>>()?;
        (!items.is_empty()).then_some(items)
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn protocol(value: &Value) -> Option<Protocol> {
    // the kernel that recorded had no SCTP sockets, so there is nothing to compare
    let known = value.as_str()?.parse().ok()?;
    (known != Protocol::Sctp).then_some(known)
}

fn source(value: &Value) -> Option<Source> {
    if let Some(name) = value.as_str() {
        return Some(Source::One(name.to_owned()));
    }
    let by_pod = value.as_object()?.iter();
    let by_pod = by_pod.map(|(pod, name)| Some((pod.clone(), text(name)?)));
    by_pod.collect::<Option<_>>().map(Source::ByPod)
}

fn port(value: &Value) -> Option<u16> {
    u16::try_from(value.as_u64()?).ok()
}

fn how(value: &Value) -> Option<How> {
    match value.as_str()? {
        "icmp-port-unreachable" => Some(How::PortUnreachable),
        "rst" => Some(How::Reset),
        _ => None,
    }
}

impl Row {
    /// Reads a row.
    pub fn read(value: &Value) -> Result<Self, RowError> {
        let mut fields = Fields::of(value, "row")?;
        let row = Self {
            from: fields.needed("from", text)?,
            to: fields.needed("to", list(text))?,
            protocols: fields.needed("proto", list(protocol))?,
            families: fields.needed("family", list(|word| word.as_str()?.parse().ok()))?,
            expect: Expect::read(&fields.needed("expect", |it| Some(it.clone()))?)?,
        };
        fields.end()?;
        Ok(row)
    }
}

impl Expect {
    /// Reads what is expected.
    pub fn read(value: &Value) -> Result<Self, RowError> {
        let mut fields = Fields::of(value, "expect")?;
        let outcome = fields.needed("outcome", text)?;
        let expect = match outcome.as_str() {
            "served" => Self::Served(served(&mut fields)?),
            "mixed" => Self::Mixed(served(&mut fields)?),
            "rejected" => Self::Rejected(fields.needed("how", how)?),
            "dropped" => Self::Dropped,
            "passed" => Self::Passed(fields.needed("source", text)?),
            _ => {
                return Err(RowError::Value {
                    field: "outcome",
                    value: outcome,
                });
            }
        };
        fields.end()?;
        expect.check()
    }

    /// Fields that contradict each other leave nothing to compare.
    fn check(self) -> Result<Self, RowError> {
        let (Self::Served(served) | Self::Mixed(served)) = &self else {
            return Ok(self);
        };
        if let Some(pod) = served
            .pods
            .iter()
            .find(|pod| served.source.of(pod).is_none())
        {
            let value = format!("nothing for {pod}");
            return Err(RowError::Value {
                field: "source",
                value,
            });
        }
        if matches!(self, Self::Mixed(_)) && served.sticky {
            return Err(RowError::UnknownField("sticky".to_owned()));
        }
        Ok(self)
    }
}

fn served(fields: &mut Fields) -> Result<Served, RowError> {
    Ok(Served {
        pods: fields.needed("pods", list(text))?.into_iter().collect(),
        source: fields.needed("source", source)?,
        ports: fields
            .optional("ports", list(port))?
            .map(|ports| ports.into_iter().collect()),
        sticky: fields.optional("sticky", Value::as_bool)?.unwrap_or(false),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(expect: &str) -> Result<Expect, RowError> {
        let row =
            format!("{{from: client, to: [lb], proto: [TCP], family: [IPv4], expect: {expect}}}");
        Row::read(&serde_yaml_ng::from_str(&row).expect("YAML")).map(|row| row.expect)
    }

    #[test]
    fn a_field_or_word_that_is_not_known_is_never_passed_over() {
        let unknown = |field: &str| Err(RowError::UnknownField(field.to_owned()));
        assert_eq!(read("{outcome: dropped, after: 3}"), unknown("after"));
        assert_eq!(read("{outcome: dropped, how: rst}"), unknown("how"));
        assert_eq!(
            read("{outcome: passed, source: n1, ports: [1]}"),
            unknown("ports")
        );
        let value = |field, value: &str| {
            let value = value.to_owned();
            Err(RowError::Value { field, value })
        };
        assert_eq!(read("{outcome: delayed}"), value("outcome", "delayed"));
        assert_eq!(
            read("{outcome: rejected, how: icmp-admin-prohibited}"),
            value("how", "\"icmp-admin-prohibited\"")
        );
        assert_eq!(
            read("{outcome: served, pods: [], source: n1}"),
            value("pods", "[]")
        );
        assert_eq!(
            read("{outcome: served, pods: [p1a], source: [n1]}"),
            value("source", "[\"n1\"]")
        );
        assert_eq!(
            read("{outcome: served, pods: [p1a], source: {p2a: n1}}"),
            value("source", "nothing for p1a")
        );
        assert_eq!(
            read("{outcome: served, pods: [p1a]}"),
            Err(RowError::Missing("source"))
        );
        assert_eq!(read("{outcome: rejected}"), Err(RowError::Missing("how")));
    }

    #[test]
    fn every_row_of_our_own_folder_is_understood() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/proxier/rows");
        let mut rows = 0;
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a text");
            let file: RowFile = serde_yaml_ng::from_str(&text).expect("rows");
            for value in &file.rows {
                let row = Row::read(value);
                assert!(row.is_ok(), "{}: {value}: {row:?}", path.display());
                rows += 1;
            }
        }
        assert_eq!(rows, 795);
    }
}
