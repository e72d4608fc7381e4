//! The part of `metadata` that the server owns: what a new object gets, what a write may not touch, when `generation` grows.

use serde_json::{Map, Value, json};

use super::{Call, Part, State, finalizers, meta, time};
use crate::registry::{Generation, Kind};
use crate::status_error::{ApiError, Cause};

const MAX_OBJECT_BYTES: usize = 1_572_864;

impl State {
    /// Fills what the server sets in a new object's metadata and returns its name.
    pub(super) fn new_metadata(
        &mut self,
        call: &Call<'_>,
        object: &mut Value,
    ) -> Result<String, ApiError> {
        if !meta(object, "resourceVersion").is_empty() {
            return Err(ApiError::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        check_namespace_named(call, object)?;
        let generated = (meta(object, "name").is_empty()
            && !meta(object, "generateName").is_empty())
        .then(|| format!("{}{}", meta(object, "generateName"), self.random.suffix()));
        let metadata = metadata_mut(object);
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
            "resourceVersion",
        ] {
            metadata.remove(field);
        }
        if let Some(name) = generated {
            metadata.insert("name".into(), json!(name));
        }
        if call.kind.namespaced {
            metadata.insert("namespace".into(), json!(call.namespace));
        } else {
            metadata.remove("namespace");
        }
        metadata.insert("uid".into(), json!(self.random.uid()));
        metadata.insert("creationTimestamp".into(), time(call.now));
        if call.kind.generation() != Generation::Never {
            metadata.insert("generation".into(), json!(1));
        }
        Ok(meta(object, "name").to_owned())
    }
}

pub(super) fn check_size(call: &Call<'_>, name: &str, object: &Value) -> Result<(), ApiError> {
    let bytes = serde_json::to_vec(object).map_or(usize::MAX, |bytes| bytes.len());
    if bytes <= MAX_OBJECT_BYTES {
        return Ok(());
    }
    Err(call.invalid(name, vec![Cause::too_long("", MAX_OBJECT_BYTES)]))
}

fn check_namespace_named(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    let namespace = meta(object, "namespace");
    if !call.kind.namespaced || namespace.is_empty() || namespace == call.namespace {
        return Ok(());
    }
    let message =
        "the namespace of the provided object does not match the namespace sent on the request";
    Err(ApiError::bad_request(message))
}

pub(super) fn check_names(call: &Call<'_>, name: &str, object: &Value) -> Result<(), ApiError> {
    check_namespace_named(call, object)?;
    let said = meta(object, "name");
    if said.is_empty() || said == name {
        return Ok(());
    }
    let message =
        format!("the name of the object ({said}) does not match the name on the URL ({name})");
    Err(ApiError::bad_request(message))
}

/// Puts back everything that this part of the object does not own.
pub(super) fn keep_part(kind: &Kind, old: &Value, new: &mut Value, part: Part) {
    let old_metadata = old.get("metadata").cloned().unwrap_or_default();
    let metadata = metadata_mut(new);
    metadata.remove("managedFields");
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "resourceVersion",
    ] {
        carry(metadata, &old_metadata, field);
    }
    let fields = new.as_object_mut().expect("an object has metadata");
    match part {
        Part::Main if kind.status => carry(fields, old, "status"),
        Part::Main => {}
        Part::Status => {
            let (status, metadata) = (fields.remove("status"), fields.remove("metadata"));
            *fields = old.as_object().cloned().unwrap_or_default();
            fields.remove("status");
            fields.extend(status.map(|status| ("status".to_owned(), status)));
            if kind.custom().is_none() {
                fields.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
            }
        }
        Part::Finalize => {
            let spec = fields.remove("spec");
            *fields = old.as_object().cloned().unwrap_or_default();
            fields.extend(spec.map(|spec| ("spec".to_owned(), spec)));
        }
    }
}

pub(super) fn new_finalizers(old: &Value, new: &Value) -> Option<Cause> {
    if meta(old, "deletionTimestamp").is_empty() {
        return None;
    }
    let added: Vec<&Value> = finalizers(new)
        .iter()
        .filter(|f| !finalizers(old).contains(f))
        .collect();
    let list = added
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let what = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
    );
    (!added.is_empty()).then(|| Cause::forbidden("metadata.finalizers", what))
}

pub(super) fn raise_generation(kind: &Kind, old: &Value, new: &mut Value) {
    let without = |object: &Value, fields: &[&str]| {
        let mut map = object.as_object().cloned().unwrap_or_default();
        for &field in fields {
            map.remove(field);
        }
        map
    };
    let changed = match kind.generation() {
        Generation::Never => false,
        Generation::Any => without(old, &["status"]) != without(new, &["status"]),
        // a pod's or a custom resource's deletion counts as a change of what is wanted
        Generation::Spec => {
            without(old, &["status", "metadata"]) != without(new, &["status", "metadata"])
                || meta(old, "deletionTimestamp") != meta(new, "deletionTimestamp")
        }
    };
    if changed {
        let generation = old
            .pointer("/metadata/generation")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        metadata_mut(new).insert("generation".into(), json!(generation + 1));
    }
}

fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    object["metadata"]
        .as_object_mut()
        .expect("made an object above")
}

/// Sets or removes a field so that `new` has what `old` has.
fn carry(new: &mut Map<String, Value>, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => new.insert(field.into(), value.clone()),
        None => new.remove(field),
    };
}
