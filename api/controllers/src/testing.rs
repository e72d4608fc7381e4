//! Objects for tests, as short as they can be.

use k8s_openapi::api::core::v1::{Pod, Service};
use serde_json::{Value, json};

use crate::Nodes;

/// A Service `demo/web` with this spec; two families unless said otherwise.
pub(crate) fn service(spec: &Value) -> Service {
    let mut object = json!({
        "metadata": {"namespace": "demo", "name": "web", "uid": "s1", "labels": {"team": "x"}},
        "spec": {"selector": {"app": "web"}, "clusterIP": "10.96.0.1", "ipFamilies": ["IPv4"]},
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

/// A ready pod on node `n1`; its number is the last part of its addresses.
pub(crate) fn pod(name: &str, number: u16) -> Pod {
    let (hi, lo) = (number / 250, number % 250 + 1);
    serde_json::from_value(json!({
        "metadata": {"namespace": "demo", "name": name, "uid": format!("uid-{name}"), "labels": {"app": "web"}},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "podIP": format!("10.1.{hi}.{lo}"),
            "podIPs": [{"ip": format!("10.1.{hi}.{lo}")}, {"ip": format!("fd00:1::{hi}:{lo}")}],
        },
    }))
    .unwrap()
}

/// The pod with a merge patch applied.
pub(crate) fn patched(pod: &Pod, patch: &Value) -> Pod {
    let mut object = serde_json::to_value(pod).unwrap();
    merge(&mut object, patch);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in fields {
        merge(&mut into[key], value);
    }
}

pub(crate) fn unready(pod: &Pod) -> Pod {
    patched(
        pod,
        &json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    )
}

pub(crate) fn terminating(pod: &Pod) -> Pod {
    patched(
        pod,
        &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
    )
}

/// Nodes `n1` in zone a, `n2` in zone b, `n3` without a zone.
pub(crate) fn nodes() -> Nodes {
    [("n1", Some("a")), ("n2", Some("b")), ("n3", None)]
        .into_iter()
        .map(|(name, zone)| (name.to_owned(), zone.map(str::to_owned)))
        .collect()
}
