//! What each kind wants beyond the common rules: defaults on create and update, refusals by field, what deletion waits for.
//!
//! Pure functions on objects. Services have more of it in [`crate::service`].

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::crd;
use crate::crud::{Call, DeleteOptions, Part, meta, time};
use crate::names;
use crate::registry::Kind;
use crate::schema;
use crate::service;
use crate::status_error::Cause;

/// Storage name of the CRDs.
pub(crate) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// What a pod gets when neither it nor the request says so.
const GRACE_SECONDS: i64 = 30;

/// Fills what a new object lacks, and status where the kind starts with one.
pub(crate) fn on_create(call: &mut Call<'_>, object: &mut Value) {
    match &*call.kind.storage {
        _ if call.kind.custom().is_some() => {
            if call.kind.status {
                object.as_object_mut().map(|map| map.remove("status"));
            }
        }
        "namespaces" => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"][NAME_LABEL] = name;
            object["spec"] = json!({"finalizers": ["kubernetes"]});
            object["status"] = json!({"phase": "Active"});
        }
        "pods" => {
            let now = object["status"].take();
            object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
            drop(now);
            pod_defaults(object);
        }
        "services" => service::defaults::on_create(object, &mut call.warnings),
        "events"
            if object.get("count").is_none()
                && object.get("eventTime").is_none_or(Value::is_null) =>
        {
            object["count"] = json!(1);
        }
        CRDS => {
            crd::defaults(object);
            crd::established(object, call.now);
        }
        _ => {}
    }
    common(call, object);
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
        "pods" => pod_defaults(new),
        "services" => service::defaults::on_update(old, new, part, &mut call.warnings),
        CRDS if part == Part::Main => {
            crd::defaults(new);
            new["status"]["acceptedNames"] = new["spec"]["names"].clone();
        }
        _ => {}
    }
    common(call, new);
}

fn common(call: &mut Call<'_>, object: &mut Value) {
    match &*call.kind.storage {
        "secrets" => secret_defaults(object),
        "endpointslices.discovery.k8s.io" => slice_defaults(object),
        "endpoints" => {
            call.warnings.push(ENDPOINTS_DEPRECATED.into());
            for subset in object
                .get_mut("subsets")
                .and_then(Value::as_array_mut)
                .into_iter()
                .flatten()
            {
                ports_defaults(subset);
            }
        }
        _ => {}
    }
}

/// Sent with every answer about Endpoints, as the real server does since 1.33.
pub(crate) const ENDPOINTS_DEPRECATED: &str =
    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

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

fn slice_defaults(slice: &mut Value) {
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

fn pod_defaults(pod: &mut Value) {
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
        "pods" if part == Part::Main => pod_causes(old, object),
        "secrets" => data_causes(old, object, &["data", "type"]),
        "configmaps" => data_causes(old, object, &["data", "binaryData"]),
        "endpointslices.discovery.k8s.io" => slice_causes(old, object),
        "leases.coordination.k8s.io" => lease_causes(object),
        "events" => event_causes(object),
        _ => Vec::new(),
    }
}

fn pod_causes(old: Option<&Value>, pod: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let containers = pod
        .pointer("/spec/containers")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        causes.push(Cause::required("spec.containers", ""));
    }
    for (index, container) in containers.iter().enumerate() {
        let name = container
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if let Some(problem) = names::label_problem(name) {
            causes.push(Cause::invalid(
                format!("spec.containers[{index}].name"),
                &json!(name),
                problem,
            ));
        }
        if container
            .get("image")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .is_empty()
        {
            causes.push(Cause::required(
                format!("spec.containers[{index}].image"),
                "",
            ));
        }
    }
    let fixed = |pod: &Value| {
        let mut spec = pod.get("spec").cloned().unwrap_or_default();
        let map = spec.as_object_mut().into_iter();
        map.for_each(|map| {
            [
                "tolerations",
                "activeDeadlineSeconds",
                "terminationGracePeriodSeconds",
            ]
            .iter()
            .for_each(|&field| drop(map.remove(field)));
        });
        for container in spec
            .get_mut("containers")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            container.as_object_mut().map(|map| map.remove("image"));
        }
        // a pod may be bound to a node once
        if old.is_some_and(|old| old.pointer("/spec/nodeName").is_none()) {
            spec.as_object_mut().map(|map| map.remove("nodeName"));
        }
        spec
    };
    if old.is_some_and(|old| fixed(old) != fixed(pod)) {
        let what = "pod updates may not change fields other than `spec.containers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations`,`spec.terminationGracePeriodSeconds`";
        causes.push(Cause::forbidden("spec", what));
    }
    causes
}

fn data_causes(old: Option<&Value>, object: &Value, fields: &[&str]) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in fields {
        for key in object
            .get(*field)
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(serde_json::Map::keys)
        {
            let path = format!("{field}[{key}]");
            if let Some(problem) = names::config_key_problem(key) {
                causes.push(Cause::invalid(path, &json!(key), problem));
            } else if *field == "data"
                && object
                    .get("binaryData")
                    .and_then(|data| data.get(key))
                    .is_some()
            {
                causes.push(Cause::invalid(
                    path,
                    &json!(key),
                    "duplicate of key present in binaryData",
                ));
            }
        }
    }
    let Some(old) = old else { return causes };
    if old.get("immutable") == Some(&json!(true)) {
        let what = "field is immutable when `immutable` is set";
        let changed = fields
            .iter()
            .chain(&["immutable"])
            .filter(|field| old.get(**field) != object.get(**field));
        causes.extend(changed.map(|field| Cause::forbidden(*field, what)));
    }
    if old.get("type") != object.get("type") {
        causes.push(Cause::invalid(
            "type",
            &object["type"],
            "field is immutable",
        ));
    }
    causes
}

fn slice_causes(old: Option<&Value>, slice: &Value) -> Vec<Cause> {
    const MAX_ENDPOINTS: usize = 1000;
    const FAMILIES: &[&str] = &["FQDN", "IPv4", "IPv6"];
    let family = slice
        .get("addressType")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let mut causes = Vec::new();
    match family {
        "" => causes.push(Cause::required("addressType", "")),
        _ if !FAMILIES.contains(&family) => causes.push(Cause::not_supported(
            "addressType",
            &json!(family),
            FAMILIES,
        )),
        _ => {}
    }
    if old.is_some_and(|old| old.get("addressType") != slice.get("addressType")) {
        causes.push(Cause::invalid(
            "addressType",
            &slice["addressType"],
            "field is immutable",
        ));
    }
    let endpoints = slice
        .get("endpoints")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if endpoints.len() > MAX_ENDPOINTS {
        let message = format!(
            "Too many: {}: must have at most {MAX_ENDPOINTS} items",
            endpoints.len()
        );
        causes.push(Cause {
            reason: "FieldValueTooMany",
            field: "endpoints".into(),
            message,
        });
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let field = format!("endpoints[{index}].addresses");
        let Some(addresses) = endpoint
            .get("addresses")
            .and_then(Value::as_array)
            .filter(|list| !list.is_empty())
        else {
            causes.push(Cause::required(field, ""));
            continue;
        };
        for (place, address) in addresses.iter().enumerate().filter(|_| family != "FQDN") {
            let text = address.as_str().unwrap_or_default();
            let problem = match text.parse::<std::net::IpAddr>() {
                Err(_) => Some("must be a valid IP address".to_owned()),
                Ok(ip) if ip.is_loopback() => {
                    Some("may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned())
                }
                Ok(ip) if ip.to_string() != text => {
                    Some(format!("must be in canonical form (\"{ip}\")"))
                }
                Ok(ip) if ip.is_ipv4() != (family == "IPv4") => {
                    Some(format!("must be an {family} address"))
                }
                Ok(_) => None,
            };
            causes.extend(
                problem
                    .map(|problem| Cause::invalid(format!("{field}[{place}]"), address, problem)),
            );
        }
    }
    causes.extend(slice_port_causes(slice));
    causes
}

fn slice_port_causes(slice: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (index, port) in slice
        .get("ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let name = port.get("name").and_then(Value::as_str).unwrap_or_default();
        if !seen.insert(name) {
            causes.push(Cause::duplicate(
                format!("ports[{index}].name"),
                &json!(name),
            ));
        }
        if let Some(problem) = names::label_problem(name).filter(|_| !name.is_empty()) {
            causes.push(Cause::invalid(
                format!("ports[{index}].name"),
                &json!(name),
                problem,
            ));
        }
        if !["SCTP", "TCP", "UDP"].contains(&port["protocol"].as_str().unwrap_or_default()) {
            causes.push(Cause::not_supported(
                format!("ports[{index}].protocol"),
                &port["protocol"],
                &["SCTP", "TCP", "UDP"],
            ));
        }
    }
    causes
}

fn lease_causes(lease: &Value) -> Vec<Cause> {
    let number = |field: &str| {
        lease
            .get("spec")
            .and_then(|spec| spec.get(field))
            .and_then(Value::as_i64)
    };
    let mut causes = Vec::new();
    if let Some(seconds) = number("leaseDurationSeconds").filter(|&seconds| seconds <= 0) {
        causes.push(Cause::invalid(
            "spec.leaseDurationSeconds",
            &json!(seconds),
            "must be greater than 0",
        ));
    }
    if let Some(count) = number("leaseTransitions").filter(|&count| count < 0) {
        causes.push(Cause::invalid(
            "spec.leaseTransitions",
            &json!(count),
            "must be greater than or equal to 0",
        ));
    }
    causes
}

fn event_causes(event: &Value) -> Vec<Cause> {
    let about = event
        .pointer("/involvedObject/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let namespace = meta(event, "namespace");
    if about == namespace || about.is_empty() && namespace == "default" {
        return Vec::new();
    }
    vec![Cause::invalid(
        "involvedObject.namespace",
        &json!(about),
        "does not match event.namespace",
    )]
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
        let wait = k8s_openapi::jiff::SignedDuration::from_secs(grace);
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
