//! The three patches: JSON patch (RFC 6902), merge patch (RFC 7386) and strategic merge (Kubernetes).
//!
//! Pure. Server-side apply is not here: it is refused with a `Status` that says so.

use std::collections::BTreeMap;

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
            *operation = json_patch::PatchOperation::Add(json_patch::AddOperation {
                path: replace.path.clone(),
                value: replace.value.clone(),
            });
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
    if let Some(Value::Array(keep)) = patch.remove("$retainKeys") {
        map.retain(|key, _| keep.iter().any(|kept| kept == key));
    }
    let mut orders = take_directive(&mut patch, "$setElementOrder/");
    let removals = take_directive(&mut patch, "$deleteFromPrimitiveList/");
    for (key, value) in patch {
        if value.is_null() {
            map.remove(&key);
            continue;
        }
        let order = orders.remove(&key);
        merge_field(map, &key, value, field, order)?;
    }
    for (list, gone) in removals {
        if let Some(Value::Array(items)) = map.get_mut(&list) {
            items.retain(|item| !gone.contains(item));
        }
    }
    for (list, order) in orders {
        let by = match list_merge(field, &list) {
            ListMerge::Key(by) => Some(by),
            ListMerge::Set | ListMerge::Replace => None,
        };
        if let Some(slot) = map.get_mut(&list) {
            let before = slot.as_array().cloned().unwrap_or_default();
            arrange(slot, &order, &before, by);
        }
    }
    map.retain(|_, value| !value.is_null());
    Ok(())
}

/// One field of a patch into `map`, which is the value of `parent`. `order` is what the patch says about a list's order.
fn merge_field(
    map: &mut Map<String, Value>,
    key: &str,
    value: Value,
    parent: &str,
    order: Option<Vec<Value>>,
) -> Result<(), ApiError> {
    let slot = map.entry(key.to_owned()).or_insert(Value::Null);
    let before = slot.as_array().cloned().unwrap_or_default();
    match (value, list_merge(parent, key)) {
        (Value::Array(items), ListMerge::Key(by)) => {
            let order = order.unwrap_or_else(|| items.clone());
            merge_by_key(slot, items, by, key)?;
            arrange(slot, &order, &before, Some(by));
        }
        (Value::Array(items), ListMerge::Set) => {
            let order = order.unwrap_or_else(|| items.clone());
            let added = items.into_iter().filter(|item| !before.contains(item));
            *slot = before.iter().cloned().chain(added).collect();
            arrange(slot, &order, &before, None);
        }
        (value @ Value::Object(_), _) => strategic(slot, value, key)?,
        (value, _) => *slot = value,
    }
    Ok(())
}

/// Directives of one kind, by the list that they are about.
fn take_directive(patch: &mut Map<String, Value>, prefix: &str) -> BTreeMap<String, Vec<Value>> {
    let keys: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(prefix))
        .cloned()
        .collect();
    let list = |key: String| {
        Some((
            key.get(prefix.len()..)?.to_owned(),
            patch.remove(&key)?.as_array().cloned()?,
        ))
    };
    keys.into_iter().filter_map(list).collect()
}

fn merge_by_key(
    slot: &mut Value,
    patches: Vec<Value>,
    by: &str,
    field: &str,
) -> Result<(), ApiError> {
    let mut items = slot.take().as_array().cloned().unwrap_or_default();
    let replaces = |patch: &Value| patch.get(DIRECTIVE).is_some_and(|word| word == "replace");
    if patches
        .iter()
        .any(|patch| replaces(patch) && patch.get(by).is_none())
    {
        items.clear();
    }
    for patch in patches {
        let Some(key) = patch.get(by).cloned() else {
            if replaces(&patch) {
                continue;
            }
            let what = format!(
                "map: {} does not contain declared merge key: {by}",
                go_map(&patch)
            );
            return Err(ApiError::internal(what));
        };
        if patch.get(DIRECTIVE).is_some_and(|word| word == "delete") {
            items.retain(|item| item.get(by) != Some(&key));
        } else if let Some(item) = items.iter_mut().find(|item| item.get(by) == Some(&key)) {
            strategic(item, patch, field)?;
        } else {
            let mut item = Value::Null;
            strategic(&mut item, patch, field)?;
            items.push(item);
        }
    }
    *slot = Value::Array(items);
    Ok(())
}

/// Items that `order` names come in that order. One that only the server has goes before a named one if it stood before it.
fn arrange(slot: &mut Value, order: &[Value], before: &[Value], by: Option<&str>) {
    let Value::Array(items) = slot.take() else {
        return;
    };
    let same = |a: &Value, b: &Value| match by {
        Some(by) => a.get(by).is_some() && a.get(by) == b.get(by),
        None => a == b,
    };
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same(other, item));
    let (mut named, own): (Vec<Value>, Vec<Value>) = items
        .into_iter()
        .partition(|item| place(order, item).is_some());
    named.sort_by_key(|item| place(order, item));
    let mut arranged = Vec::with_capacity(named.len() + own.len());
    let mut own = own.into_iter().peekable();
    for item in named {
        let here = place(before, &item);
        while let Some(mine) = own.next_if(|mine| here.is_some() && place(before, mine) < here) {
            arranged.push(mine);
        }
        arranged.push(item);
    }
    arranged.extend(own);
    *slot = Value::Array(arranged);
}

/// A map as Go prints it, for the one error text that shows it.
fn go_map(value: &Value) -> String {
    let fields = value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| match value {
            Value::String(text) => format!("{key}:{text}"),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => {
                format!("{key}:{value}")
            }
        });
    format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
}
