//! What each built-in kind may not say, by field. Pure. Source: `pkg/apis/core/validation`, `pkg/apis/discovery/validation`.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::crud::meta;
use crate::names::{self, ip_problem, special_address};
use crate::status_error::Cause;

/// A Pod: what it must have, and that its spec stays.
pub(crate) fn pod(old: Option<&Value>, pod: &Value) -> Vec<Cause> {
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
        if let Some(map) = spec.as_object_mut() {
            for field in [
                "tolerations",
                "activeDeadlineSeconds",
                "terminationGracePeriodSeconds",
            ] {
                map.remove(field);
            }
        }
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

/// Keys and `immutable` of a `ConfigMap` or Secret.
pub(crate) fn data(old: Option<&Value>, object: &Value, fields: &[&str]) -> Vec<Cause> {
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

/// An `EndpointSlice`.
pub(crate) fn slice(old: Option<&Value>, slice: &Value) -> Vec<Cause> {
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
    let typed = FAMILIES.contains(&family);
    for (index, endpoint) in endpoints.iter().enumerate() {
        one_endpoint(endpoint, family, index, typed, &mut causes);
    }
    causes.extend(slice_ports(slice));
    causes
}

fn slice_ports(slice: &Value) -> Vec<Cause> {
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

/// A Lease.
pub(crate) fn lease(lease: &Value) -> Vec<Cause> {
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

/// An Event lives in the namespace of what it is about.
pub(crate) fn event(event: &Value) -> Vec<Cause> {
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

fn one_endpoint(
    endpoint: &Value,
    family: &str,
    index: usize,
    typed: bool,
    causes: &mut Vec<Cause>,
) {
    let text = |field: &str| endpoint.get(field).and_then(Value::as_str);
    let checks = [
        ("hostname", text("hostname").map(names::label_problem)),
        ("nodeName", text("nodeName").map(names::subdomain_problem)),
    ];
    for (field, problem) in checks {
        if let Some(problem) = problem.flatten() {
            causes.push(Cause::invalid(
                format!("endpoints[{index}].{field}"),
                &endpoint[field],
                problem,
            ));
        }
    }
    let field = format!("endpoints[{index}].addresses");
    let Some(addresses) = endpoint
        .get("addresses")
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty())
    else {
        causes.push(Cause::required(field, ""));
        return;
    };
    for (place, address) in addresses
        .iter()
        .enumerate()
        .filter(|_| typed && family != "FQDN")
    {
        let text = address.as_str().unwrap_or_default();
        let each = format!("{field}[{place}]");
        if let Some(problem) = ip_problem(text) {
            causes.push(Cause::invalid(each, address, problem));
            continue;
        }
        let Ok(ip) = text.parse::<IpAddr>() else {
            continue;
        };
        if ip.is_ipv4() != (family == "IPv4") {
            causes.push(Cause::invalid(
                &field,
                address,
                format!("must be an {family} address"),
            ));
        }
        if ip.to_string() != text {
            causes.push(Cause::invalid(
                &each,
                address,
                format!("must be in canonical form (\"{ip}\")"),
            ));
        }
        causes.extend(special_address(ip).map(|problem| Cause::invalid(each, address, problem)));
    }
}

/// A Secret of a known type has the keys of that type.
pub(crate) fn secret(old: Option<&Value>, secret: &Value) -> Vec<Cause> {
    let mut causes = data(old, secret, &["data", "type"]);
    let keys: &[&str] = match secret
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
    {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/basic-auth" => &["username", "password"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    let has = |key: &str| secret.get("data").and_then(|data| data.get(key)).is_some();
    causes.extend(
        keys.iter()
            .filter(|key| !has(key))
            .map(|key| Cause::required(format!("data[{key}]"), "")),
    );
    causes
}

/// A Node: its pod ranges are given once; taints have a known effect.
pub(crate) fn node(old: Option<&Value>, node: &Value) -> Vec<Cause> {
    const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let mut causes = Vec::new();
    let ranges = |node: &Value| node.pointer("/spec/podCIDRs").cloned();
    if old
        .and_then(ranges)
        .is_some_and(|before| Some(before) != ranges(node))
    {
        causes.push(Cause::forbidden(
            "spec.podCIDRs",
            "node updates may not change podCIDR except from \"\" to valid",
        ));
    }
    for (index, taint) in node
        .pointer("/spec/taints")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        if !EFFECTS.contains(&taint["effect"].as_str().unwrap_or_default()) {
            causes.push(Cause::not_supported(
                format!("metadata.taints[{index}].effect"),
                &taint["effect"],
                EFFECTS,
            ));
        }
    }
    causes
}
