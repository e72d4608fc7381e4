//! One stored object, several ways to show it: custom resources at each of their versions (`conversion: None`), and Event
//! in the core group (as stored) and in `events.k8s.io`, where its fields have other names.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::registry::{Kind, Rules};

/// Stored name, name in `events.k8s.io/v1`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Changes a shown object into the stored form.
pub(crate) fn to_stored(kind: &Kind, object: &mut Value) {
    match &kind.rules {
        Rules::Custom(custom) if custom.storage_version != kind.version => {
            object["apiVersion"] = json!(format!("{}/{}", kind.group, custom.storage_version));
        }
        Rules::Builtin(_) if kind.group == "events.k8s.io" => {
            rename(object, |(stored, shown)| (shown, stored));
            object["apiVersion"] = json!("v1");
        }
        Rules::Builtin(_) | Rules::Custom(_) => {}
    }
}

/// The object as this kind shows it.
pub(crate) fn to_shown<'a>(kind: &Kind, object: &'a Value) -> Cow<'a, Value> {
    if object.get("apiVersion").and_then(Value::as_str) == Some(kind.api_version().as_str()) {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    object["apiVersion"] = json!(kind.api_version());
    if kind.group == "events.k8s.io" {
        rename(&mut object, |(stored, shown)| (stored, shown));
    }
    Cow::Owned(object)
}

fn rename(
    object: &mut Value,
    direction: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    for &pair in EVENT_FIELDS {
        let (from, to) = direction(pair);
        if let Some(value) = map.remove(from) {
            map.insert(to.into(), value);
        }
    }
}
