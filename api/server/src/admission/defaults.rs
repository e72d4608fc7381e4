//! What each built-in kind gets that its writer left out. Pure. Source: `SetDefaults_*` of Kubernetes 1.37.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::GRACE_SECONDS;
use crate::registry::Kind;

/// Kinds whose defaults are the same on create and update.
pub(crate) fn other(kind: &Kind, object: &mut Value, warnings: &mut Vec<String>) {
    match &*kind.storage {
        "secrets" => secret_defaults(object),
        "endpointslices.discovery.k8s.io" => slice_defaults(object, warnings),
        "endpoints" => {
            for subset in object
                .get_mut("subsets")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                ports_defaults(subset);
            }
        }
        "nodes" => node_defaults(object),
        "leases.coordination.k8s.io" => fill(object, "spec", json!({})),
        "events" => event_defaults(object),
        _ => {}
    }
}

/// Go writes these out even when they are empty, and clients show them.
fn event_defaults(event: &mut Value) {
    fill(event, "source", json!({}));
    for field in ["reportingComponent", "reportingInstance"] {
        fill(event, field, json!(""));
    }
    for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
        fill(event, field, Value::Null);
    }
}

fn node_defaults(node: &mut Value) {
    fill(node, "status", json!({}));
    let status = &mut node["status"];
    fill(
        status,
        "daemonEndpoints",
        json!({"kubeletEndpoint": {"Port": 0}}),
    );
    fill(status, "nodeInfo", json!({}));
    for field in [
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ] {
        fill(&mut status["nodeInfo"], field, json!(""));
    }
}

fn fill(value: &mut Value, field: &str, default: Value) {
    if value.get(field).is_none_or(Value::is_null) {
        value[field] = default;
    }
}

fn ports_defaults(holder: &mut Value) {
    for port in holder
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        fill(port, "protocol", json!("TCP"));
    }
}

fn slice_defaults(slice: &mut Value, warnings: &mut Vec<String>) {
    if slice.get("addressType").and_then(Value::as_str) == Some("FQDN") {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".into());
    }
    ports_defaults(slice);
    for port in slice
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        fill(port, "name", json!(""));
    }
    for endpoint in slice
        .get_mut("endpoints")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        fill(endpoint, "conditions", json!({}));
        if let Some(fields) = endpoint.as_object_mut() {
            fields.remove("deprecatedTopology");
        }
    }
}

fn secret_defaults(secret: &mut Value) {
    fill(secret, "type", json!("Opaque"));
    let Some(Value::Object(plain)) = secret
        .as_object_mut()
        .and_then(|map| map.remove("stringData"))
    else {
        return;
    };
    for (key, value) in plain {
        secret["data"][key] = json!(STANDARD.encode(value.as_str().unwrap_or_default()));
    }
}

/// A Pod, on create and update.
pub(crate) fn pod(pod: &mut Value) {
    let spec = &mut pod["spec"];
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(GRACE_SECONDS)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("securityContext", json!({})),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(0)),
    ] {
        fill(spec, field, value);
    }
    if spec.get("tolerations").is_none() {
        let toleration = |key: &str| json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        spec["tolerations"] = json!([toleration("not-ready"), toleration("unreachable")]);
    }
    for container in spec
        .get_mut("containers")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let latest = container
            .get("image")
            .and_then(Value::as_str)
            .is_some_and(|image| {
                image.ends_with(":latest")
                    || !image
                        .rsplit('/')
                        .next()
                        .unwrap_or_default()
                        .contains([':', '@'])
            });
        fill(container, "resources", json!({}));
        fill(
            container,
            "terminationMessagePath",
            json!("/dev/termination-log"),
        );
        fill(container, "terminationMessagePolicy", json!("File"));
        fill(
            container,
            "imagePullPolicy",
            json!(if latest { "Always" } else { "IfNotPresent" }),
        );
        ports_defaults(container);
    }
}
