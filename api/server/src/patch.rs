//! The three patches: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge (Kubernetes).
//!
//! Pure. Server-side apply is not here: it is refused with a `Status` that says so.

use serde_json::{Map, Value};

use crate::status_error::ApiError;

/// Which patch a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Lists merged by key, `$patch` directives.
    Strategic,
}

impl PatchType {
    /// By media type. Errors: 415 names what is accepted; apply is named as not done.
    pub(crate) fn from_content_type(content_type: &str, strategic: bool) -> Result<Self, ApiError> {
        match content_type {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if strategic => Ok(Self::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+cbor" => {
                let mut error = ApiError::unsupported_media(
                    "application/json-patch+json, application/merge-patch+json",
                );
                error.message = "server-side apply is not done by this embedded API server: use `kubectl apply` without \
                                 --server-side, or a merge patch"
                    .into();
                Err(error)
            }
            "application/strategic-merge-patch+json" => Err(ApiError::unsupported_media(
                "application/json-patch+json, application/merge-patch+json",
            )),
            _ => {
                let mut error = ApiError::unsupported_media("");
                error.message = "415: Unsupported Media Type".into();
                Err(error)
            }
        }
    }
}

/// `object` with the patch applied. Errors: 400 for a patch that is none, 422 for one that does not apply.
pub(crate) fn apply(patch_type: PatchType, object: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let patch: Value =
        serde_json::from_slice(body).map_err(|_| ApiError::bad_request("invalid JSON patch"))?;
    let kind = match &patch {
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::String(_) => "string",
        Value::Null | Value::Bool(_) | Value::Number(_) => "value",
    };
    let wrong = |go: &str| {
        ApiError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {kind} into Go value of type {go}"
        ))
    };
    match (patch_type, &patch) {
        (PatchType::Json, Value::Array(_)) => json_patch(object, patch),
        (PatchType::Json, _) => Err(wrong("[]handlers.jsonPatchOp")),
        (_, Value::Object(_)) => {
            let mut patched = object.clone();
            if patch_type == PatchType::Merge {
                json_patch::merge(&mut patched, &patch);
                return Ok(patched);
            }
            strategic(&mut patched, patch, "")?;
            Ok(patched)
        }
        _ => Err(wrong("map[string]interface {}")),
    }
}

fn json_patch(object: &Value, patch: Value) -> Result<Value, ApiError> {
    let mut operations: json_patch::Patch =
        serde_json::from_value(patch).map_err(|_| ApiError::patch_rejected())?;
    // the real server adds where `replace` finds nothing
    for operation in &mut operations.0 {
        if let json_patch::PatchOperation::Replace(replace) = operation
            && object.pointer(replace.path.as_str()).is_none()
        {
            let (path, value) = (replace.path.clone(), replace.value.clone());
            *operation = json_patch::PatchOperation::Add(json_patch::AddOperation { path, value });
        }
    }
    let mut patched = object.clone();
    json_patch::patch(&mut patched, &operations).map_err(|_| ApiError::patch_rejected())?;
    Ok(patched)
}

/// How a list is merged: by a key of its objects, as a set of scalars, or not at all.
enum ListMerge {
    Key(&'static str),
    Set,
    Replace,
}

/// `patchMergeKey` of the built-in types, by the list's field and the field above it (`patchStrategy: merge`).
fn list_merge(parent: &str, field: &str) -> ListMerge {
    match (parent, field) {
        ("spec", "ports") => ListMerge::Key("port"),
        ("containers" | "initContainers" | "ephemeralContainers", "ports") => {
            ListMerge::Key("containerPort")
        }
        ("containers" | "initContainers" | "ephemeralContainers", "env")
        | (
            "spec",
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "volumes"
            | "imagePullSecrets",
        )
        | ("", "secrets") => ListMerge::Key("name"),
        ("containers" | "initContainers" | "ephemeralContainers", "volumeMounts") => {
            ListMerge::Key("mountPath")
        }
        ("status", "conditions" | "addresses") => ListMerge::Key("type"),
        ("status", "podIPs" | "hostIPs") | ("spec", "hostAliases") => ListMerge::Key("ip"),
        ("metadata", "ownerReferences") => ListMerge::Key("uid"),
        ("metadata" | "spec", "finalizers") | ("spec", "podCIDRs") => ListMerge::Set,
        _ => ListMerge::Replace,
    }
}

const DIRECTIVE: &str = "$patch";

fn strategic(target: &mut Value, patch: Value, field: &str) -> Result<(), ApiError> {
    let Value::Object(mut patch) = patch else {
        *target = patch;
        return Ok(());
    };
    match patch.remove(DIRECTIVE).as_ref().and_then(Value::as_str) {
        Some("replace") => {
            // as the real server does: what stands beside the directive is the new value only in lists
            *target = Value::Object(if field == "selector" {
                Map::new()
            } else {
                patch
            });
            return Ok(());
        }
        Some("delete") => {
            *target = Value::Null;
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => {
            return Err(ApiError::bad_request(format!(
                "unknown patch type found: {other}"
            )));
        }
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let map = target.as_object_mut().expect("made an object above");
    let (mut orders, mut removals) = (Vec::new(), Vec::new());
    if let Some(Value::Array(keep)) = patch.remove("$retainKeys") {
        map.retain(|key, _| keep.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$setElementOrder/") {
            orders.push((list.to_owned(), value));
        } else if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            removals.push((list.to_owned(), value));
        } else if value.is_null() {
            map.remove(&key);
        } else {
            let slot = map.entry(key.clone()).or_insert(Value::Null);
            match (value, list_merge(field, &key)) {
                (Value::Array(items), ListMerge::Key(by)) => merge_by_key(slot, items, by, &key)?,
                (Value::Array(items), ListMerge::Set) => merge_set(slot, items),
                (value @ Value::Object(_), _) => strategic(slot, value, &key)?,
                (value, _) => *slot = value,
            }
        }
    }
    for (list, gone) in removals {
        if let (Some(Value::Array(items)), Value::Array(gone)) = (map.get_mut(&list), gone) {
            items.retain(|item| !gone.contains(item));
        }
    }
    for (list, order) in orders {
        if let (Some(Value::Array(items)), Value::Array(order)) = (map.get_mut(&list), order) {
            sort_like(items, &order, &list_merge(field, &list));
        }
    }
    map.retain(|_, value| !value.is_null());
    Ok(())
}

fn merge_by_key(
    slot: &mut Value,
    patches: Vec<Value>,
    by: &str,
    field: &str,
) -> Result<(), ApiError> {
    let mut items = slot.take().as_array().cloned().unwrap_or_default();
    if patches.iter().any(|patch| {
        patch.get(DIRECTIVE).is_some_and(|word| word == "replace") && patch.get(by).is_none()
    }) {
        items.clear();
    }
    let mut added = Vec::new();
    for patch in patches {
        let directive = patch
            .get(DIRECTIVE)
            .and_then(Value::as_str)
            .map(str::to_owned);
        let Some(key) = patch.get(by).cloned() else {
            if directive.as_deref() == Some("replace") {
                continue;
            }
            return Err(ApiError::internal(format!(
                "map: {} does not contain declared merge key: {by}",
                go_map(&patch)
            )));
        };
        let place = items.iter().position(|item| item.get(by) == Some(&key));
        match (place, directive.as_deref()) {
            (_, Some("delete")) => items.retain(|item| item.get(by) != Some(&key)),
            (Some(place), _) => strategic(&mut items[place], patch, field)?,
            (None, _) => {
                let mut item = Value::Null;
                strategic(&mut item, patch, field)?;
                added.push(item);
            }
        }
    }
    added.append(&mut items);
    *slot = Value::Array(added);
    Ok(())
}

fn merge_set(slot: &mut Value, patch: Vec<Value>) {
    let old = slot.take().as_array().cloned().unwrap_or_default();
    let mut merged = patch;
    let rest: Vec<Value> = old
        .into_iter()
        .filter(|item| !merged.contains(item))
        .collect();
    merged.extend(rest);
    *slot = Value::Array(merged);
}

/// Items named in `order` come in that order; an unnamed one keeps its place after its predecessor.
fn sort_like(items: &mut [Value], order: &[Value], merge: &ListMerge) {
    let rank = |item: &Value| {
        order.iter().position(|wanted| match merge {
            ListMerge::Key(by) => wanted.get(by) == item.get(by),
            ListMerge::Set | ListMerge::Replace => wanted == item,
        })
    };
    let mut last = 0;
    let mut ranked: Vec<(usize, Value)> = Vec::with_capacity(items.len());
    for item in items.iter_mut() {
        last = rank(item).map_or(last, |rank| rank + 1);
        ranked.push((last, item.take()));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    for (slot, (_, item)) in items.iter_mut().zip(ranked) {
        *slot = item;
    }
}

/// A map as Go prints it, for the one error text that shows it.
fn go_map(value: &Value) -> String {
    let fields = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key}:{text}"),
            other => format!("{key}:{other}"),
        });
    format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
}
