//! What each kind wants beyond the common rules: defaults on create and update, refusals by field, what deletion waits for.
//!
//! Pure functions on objects. Services have more of it in [`crate::service`].

use k8s_openapi::jiff::SignedDuration;
use serde_json::{Value, json};

use crate::crd;
use crate::crud::{Call, DeleteOptions, Part, meta, time};
use crate::registry::Kind;
use crate::schema;
use crate::service;
use crate::status_error::Cause;

mod defaults;
mod refuse;

/// Storage name of the CRDs.
pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// What a pod gets when neither it nor the request says so.
pub(crate) const GRACE_SECONDS: i64 = 30;

/// Fills what a new object lacks, and status where the kind starts with one.
pub(crate) fn on_create(call: &mut Call<'_>, object: &mut Value) {
    match &*call.kind.storage {
        _ if call.kind.custom().is_some() => {
            if let Some(map) = object.as_object_mut().filter(|_| call.kind.status) {
                map.remove("status");
            }
        }
        "namespaces" => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"][NAME_LABEL] = name;
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        "pods" => {
            object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
            defaults::pod(object);
        }
        "services" => service::defaults::on_create(object, &mut call.warnings),
        CRDS => {
            crd::defaults(object);
            crd::established(object, call.now);
        }
        _ => defaults::other(call.kind, object, &mut call.warnings),
    }
}

/// Fills what an update lacks.
pub(crate) fn on_update(call: &mut Call<'_>, old: &Value, new: &mut Value, part: Part) {
    match &*call.kind.storage {
        "namespaces" => {
            let name = new["metadata"]["name"].clone();
            new["metadata"]["labels"][NAME_LABEL] = name;
            if part == Part::Main {
                new["spec"] = old["spec"].clone();
            }
        }
        "pods" => defaults::pod(new),
        "services" => service::defaults::on_update(old, new, part, &mut call.warnings),
        CRDS if part == Part::Main => {
            crd::defaults(new);
            new["status"]["acceptedNames"] = new["spec"]["names"].clone();
        }
        _ => defaults::other(call.kind, new, &mut call.warnings),
    }
}

/// What the kind refuses, by field.
pub(crate) fn causes(
    call: &Call<'_>,
    old: Option<&Value>,
    object: &Value,
    part: Part,
) -> Vec<Cause> {
    if let Some(custom) = call.kind.custom() {
        return schema::validate(&custom.schema, object);
    }
    match &*call.kind.storage {
        "services" => service::validate::causes(old, object, part),
        CRDS => crd::causes(object, old),
        "pods" if part == Part::Main => refuse::pod(old, object),
        "secrets" => refuse::secret(old, object),
        "configmaps" => refuse::data(old, object, &["data", "binaryData"]),
        "endpointslices.discovery.k8s.io" => refuse::slice(old, object),
        "leases.coordination.k8s.io" => refuse::lease(object),
        "nodes" if part == Part::Main => refuse::node(old, object),
        "events" => refuse::event(object),
        _ => Vec::new(),
    }
}

/// Whether nothing but its `metadata.finalizers` keeps an object that is being deleted.
pub(crate) fn may_go(kind: &Kind, object: &Value) -> bool {
    if kind.is("namespaces") {
        return object
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty);
    }
    if kind.is("pods") {
        return object
            .pointer("/metadata/deletionGracePeriodSeconds")
            .and_then(Value::as_i64)
            .unwrap_or(0)
            == 0;
    }
    true
}

/// Writes into the object that it is being deleted.
pub(crate) fn mark_deleted(call: &Call<'_>, object: &mut Value, options: &DeleteOptions) {
    let first = meta(object, "deletionTimestamp").is_empty();
    let grace = if call.kind.is("pods") {
        pod_grace(object, options)
    } else {
        0
    };
    let before = object
        .pointer("/metadata/deletionGracePeriodSeconds")
        .and_then(Value::as_i64);
    if first || before.is_some_and(|before| grace < before) {
        let wait = SignedDuration::from_secs(grace);
        object["metadata"]["deletionTimestamp"] =
            time(call.now.checked_add(wait).unwrap_or(call.now));
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    }
    if !first {
        return;
    }
    let finalizer = match options.propagation.as_deref() {
        Some("Foreground") => Some("foregroundDeletion"),
        Some("Orphan") => Some("orphan"),
        _ => call.kind.is(CRDS).then_some(CRD_CLEANUP),
    };
    if let Some(finalizer) = finalizer {
        let list = &mut object["metadata"]["finalizers"];
        match list.as_array_mut() {
            Some(items) => items.push(json!(finalizer)),
            None => *list = json!([finalizer]),
        }
    }
    if call.kind.is("namespaces") {
        object["status"]["phase"] = json!("Terminating");
    }
    if call.kind.is(CRDS) {
        let condition = json!({
            "type": "Terminating", "status": "True", "lastTransitionTime": time(call.now), "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        });
        if let Some(conditions) = object
            .pointer_mut("/status/conditions")
            .and_then(Value::as_array_mut)
        {
            conditions.push(condition);
        }
    }
}

/// A pod without a node, or one that has ended, waits for nobody.
fn pod_grace(pod: &Value, options: &DeleteOptions) -> i64 {
    let text = |pointer: &str| {
        pod.pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    if text("/spec/nodeName").is_empty() || ["Failed", "Succeeded"].contains(&text("/status/phase"))
    {
        return 0;
    }
    let own = pod
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(GRACE_SECONDS);
    options.grace_period_seconds.unwrap_or(own).max(0)
}
