//! Objects as `Table` (`meta.k8s.io/v1`): the columns that people know from `kubectl get`.
//!
//! Pure; the time is a value. Source: the printers of Kubernetes 1.37 and `additionalPrinterColumns`.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

mod builtin;

use builtin::{Column, printer};

use crate::crud::meta;
use crate::registry::Kind;

/// Which object a row carries (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    /// `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The whole object.
    Object,
    /// null.
    Nothing,
}

/// Column definitions of a kind.
pub(crate) fn columns(kind: &Kind) -> Value {
    let definition = |name: &str, kind: &str, format: &str, priority: i64, description: &str| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
    let own: Vec<Value> = if let Some(custom) = kind.custom() {
        let first = definition("Name", "string", "name", 0, "Name within its namespace");
        let text = |column: &Value, field: &str| {
            column
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let rest = custom.columns.iter().map(|column| {
            let priority = column.get("priority").and_then(Value::as_i64).unwrap_or(0);
            let (name, kind, format) = (
                text(column, "name"),
                text(column, "type"),
                text(column, "format"),
            );
            definition(
                &name,
                &kind,
                &format,
                priority,
                &text(column, "description"),
            )
        });
        let age = custom
            .columns
            .is_empty()
            .then(|| definition("Age", "date", "", 0, "Time since creation"));
        std::iter::once(first).chain(rest).chain(age).collect()
    } else {
        let column = |&(name, wide): &Column| {
            let format = if name == "Name" { "name" } else { "" };
            definition(name, "string", format, i64::from(wide), name)
        };
        printer(&kind.storage).columns.iter().map(column).collect()
    };
    Value::Array(own)
}

/// One row.
pub(crate) fn row(kind: &Kind, object: &Value, now: Timestamp, include: Include) -> Value {
    let cells = match kind.custom() {
        Some(custom) => {
            let rest = custom
                .columns
                .iter()
                .map(|column| custom_cell(column, object, now));
            let age = custom.columns.is_empty().then(|| age(object, now));
            std::iter::once(name(object))
                .chain(rest)
                .chain(age)
                .collect()
        }
        None => (printer(&kind.storage).cells)(object, now),
    };
    let object = match include {
        Include::Metadata => partial(object),
        Include::Object => object.clone(),
        Include::Nothing => Value::Null,
    };
    json!({"cells": cells, "object": object})
}

/// A whole table.
pub(crate) fn table(columns: &Value, rows: &[Value], metadata: &Value) -> Value {
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows})
}

/// `PartialObjectMetadata` of an object.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.get("metadata")})
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn count(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

fn name(object: &Value) -> Value {
    json!(meta(object, "name"))
}

fn or(text: &str, fallback: &str) -> Value {
    json!(if text.is_empty() { fallback } else { text })
}

fn since(time: &str, now: Timestamp) -> Value {
    match time.parse::<Timestamp>() {
        Ok(then) => json!(human(now.duration_since(then).as_secs())),
        Err(_) => json!("<unknown>"),
    }
}

fn age(object: &Value, now: Timestamp) -> Value {
    since(meta(object, "creationTimestamp"), now)
}

/// Seconds the way kubectl writes them: two units while the larger one is small.
fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1..0 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn custom_cell(column: &Value, object: &Value, now: Timestamp) -> Value {
    let path = column
        .get("jsonPath")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let found = json_path(object, path);
    let kind = column
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("string");
    match (found, kind) {
        (None | Some(Value::Null), _) => Value::Null,
        (Some(Value::String(time)), "date") => since(time, now),
        (Some(value @ Value::String(_)), "string") => value.clone(),
        (Some(value), "string") => json!(value.to_string()),
        (Some(value), _) => value.clone(),
    }
}

/// `.spec.a.b[0]`, `.status.conditions[?(@.type=="Ready")].status`: what printer columns use.
fn json_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (key, next) = after.split_at(end);
            (value, rest) = (value.get(key)?, next);
        } else if let Some(after) = rest.strip_prefix('[') {
            let (inner, next) = after.split_once(']')?;
            rest = next;
            value = match inner
                .strip_prefix("?(@.")
                .and_then(|filter| filter.strip_suffix(')'))
            {
                Some(filter) => {
                    let (key, wanted) = filter.split_once("==")?;
                    let wanted = wanted.trim().trim_matches(['"', '\'']);
                    value
                        .as_array()?
                        .iter()
                        .find(|item| item.get(key.trim()).and_then(Value::as_str) == Some(wanted))?
                }
                None if inner.starts_with(['"', '\'']) => {
                    value.get(inner.trim_matches(['"', '\'']))?
                }
                None => value.get(inner.parse::<usize>().ok()?)?,
            };
        } else {
            return None;
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let table = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_860, "3h1m"),
            (30_000, "8h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (70_000_000, "2y80d"),
            (-5, "<invalid>"),
        ];
        assert_eq!(
            table.map(|(seconds, _)| human(seconds)),
            table.map(|(_, text)| text.to_owned())
        );
    }

    #[test]
    fn printer_column_paths_find_what_they_name() {
        let object = json!({"spec": {"a": [1, 2]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(json_path(&object, ".spec.a[1]"), Some(&json!(2)));
        assert_eq!(
            json_path(&object, ".status.conditions[?(@.type==\"Ready\")].status"),
            Some(&json!("True"))
        );
        assert_eq!(json_path(&object, ".spec.none.x"), None);
    }
}
