//! Which form an answer takes (`Accept`), and objects and lists in that form.
//!
//! Pure but for the time that ages are measured at.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use crate::convert;
use crate::registry::Kind;
use crate::status_error::ApiError;
use crate::table::{self, Include};

/// What the client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// JSON as it is.
    #[default]
    Json,
    /// YAML as it is.
    Yaml,
    /// `Table` of `meta.k8s.io/v1`.
    Table,
    /// `PartialObjectMetadata`.
    Partial,
    /// Aggregated discovery, version 2.
    Discovery,
}

impl Form {
    /// The first of the listed media types that can be made. Errors: 406.
    pub(crate) fn from_accept(accept: &str) -> Result<Self, ApiError> {
        if accept.trim().is_empty() {
            return Ok(Self::Json);
        }
        accept
            .split(',')
            .find_map(Self::one)
            .ok_or_else(ApiError::not_acceptable)
    }

    fn one(media: &str) -> Option<Self> {
        let mut parts = media.split(';').map(str::trim);
        let name = parts.next()?;
        let parameters: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |wanted: &str| {
            parameters
                .iter()
                .find(|(key, _)| *key == wanted)
                .map(|(_, value)| *value)
        };
        match (name, parameter("as")) {
            ("application/json" | "application/*" | "*/*", None) => Some(Self::Json),
            ("application/yaml", None) => Some(Self::Yaml),
            ("application/json", Some("Table")) if parameter("v") == Some("v1") => {
                Some(Self::Table)
            }
            ("application/json", Some("PartialObjectMetadata" | "PartialObjectMetadataList")) => {
                Some(Self::Partial)
            }
            ("application/json", Some("APIGroupDiscoveryList")) if parameter("v") == Some("v2") => {
                Some(Self::Discovery)
            }
            _ => None,
        }
    }

    /// `Content-Type` of the answer.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Yaml => "application/yaml",
            Self::Discovery => {
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            }
            Self::Json | Self::Table | Self::Partial => "application/json",
        }
    }
}

/// How one kind is written.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    /// The kind asked for.
    pub(crate) kind: Arc<Kind>,
    /// The form asked for.
    pub(crate) form: Form,
    /// What rows of a table carry.
    pub(crate) include: Include,
}

impl Writer {
    /// One object. `headers` false leaves out a table's columns (all frames of a watch but the first).
    pub(crate) fn object(&self, object: &Value, now: Timestamp, headers: bool) -> Value {
        let shown = convert::to_shown(&self.kind, object);
        match self.form {
            Form::Table => {
                let row = table::row(&self.kind, &shown, now, self.include);
                let columns = if headers {
                    table::columns(&self.kind)
                } else {
                    Value::Null
                };
                let version = shown
                    .pointer("/metadata/resourceVersion")
                    .cloned()
                    .unwrap_or_default();
                table::table(&columns, &[row], &json!({"resourceVersion": version}))
            }
            Form::Partial => table::partial(&shown),
            Form::Json | Form::Yaml | Form::Discovery => shown.into_owned(),
        }
    }

    /// The bytes of a list. `metadata` is the list's.
    pub(crate) fn list(&self, objects: &[Arc<Value>], metadata: &Value, now: Timestamp) -> Vec<u8> {
        match self.form {
            Form::Table => {
                let rows = objects.iter().map(|object| {
                    table::row(
                        &self.kind,
                        &convert::to_shown(&self.kind, object),
                        now,
                        self.include,
                    )
                });
                bytes(&table::table(
                    &table::columns(&self.kind),
                    &rows.collect::<Vec<_>>(),
                    metadata,
                ))
            }
            Form::Partial => {
                let items: Vec<Value> = objects
                    .iter()
                    .map(|object| table::partial(&convert::to_shown(&self.kind, object)))
                    .collect();
                bytes(&json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
                }))
            }
            Form::Json | Form::Yaml | Form::Discovery => bytes(&List {
                writer: self,
                objects,
                metadata,
            }),
        }
    }
}

/// JSON bytes; what this crate serializes has string keys only, so it cannot fail.
pub(crate) fn bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("keys are strings")
}

struct List<'a> {
    writer: &'a Writer,
    objects: &'a [Arc<Value>],
    metadata: &'a Value,
}

impl Serialize for List<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kind = &self.writer.kind;
        let items: Vec<Item<'_>> = self
            .objects
            .iter()
            .map(|object| Item { kind, object })
            .collect();
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("kind", &kind.list_kind)?;
        map.serialize_entry("apiVersion", &kind.api_version())?;
        map.serialize_entry("metadata", self.metadata)?;
        map.serialize_entry("items", &items)?;
        map.end()
    }
}

/// An item of a built-in list carries neither kind nor apiVersion.
struct Item<'a> {
    kind: &'a Kind,
    object: &'a Value,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let shown = convert::to_shown(self.kind, self.object);
        let bare = self.kind.custom().is_none();
        let fields = shown.as_object().into_iter().flatten();
        serializer.collect_map(
            fields.filter(|(key, _)| !(bare && (*key == "kind" || *key == "apiVersion"))),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_headers_of_real_clients_choose_their_form() {
        let table = [
            ("", Some(Form::Json)),
            ("*/*", Some(Form::Json)),
            (
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
                Some(Form::Table),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
                Some(Form::Discovery),
            ),
            (
                "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
                None,
            ),
            (
                "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
                Some(Form::Partial),
            ),
            ("application/vnd.kubernetes.protobuf, */*", Some(Form::Json)),
            ("application/vnd.kubernetes.protobuf", None),
            ("application/yaml", Some(Form::Yaml)),
        ];
        assert_eq!(
            table.map(|(accept, _)| (accept, Form::from_accept(accept).ok())),
            table
        );
    }
}
