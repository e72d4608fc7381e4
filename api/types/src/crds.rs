//! The CRD manifests, made from the types.
//!
//! Owns the step from what `schemars` says to what kube-apiserver takes: a structural schema with known formats only, no
//! invented defaults, no `nullable`. `deploy/base/crds` holds the same text; a test keeps it fresh.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, core::crd::merge_crds};
use serde_json::Value;

use crate::{
    AddressRecord, BFDProfile, BGPAdvertisement, BGPPeer, Community, ConfigurationState,
    IPAddressPool, L2Advertisement, ServiceBGPStatus, ServiceL2Status, v1beta1,
};

/// Every CRD of ours, ordered by name.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let peers = merge_crds(vec![BGPPeer::crd(), v1beta1::BGPPeer::crd()], "v1beta2")
        .expect("both versions of BGPPeer have one group, kind and scope");
    let mut all = vec![
        IPAddressPool::crd(),
        L2Advertisement::crd(),
        BGPAdvertisement::crd(),
        peers,
        BFDProfile::crd(),
        Community::crd(),
        ServiceL2Status::crd(),
        ServiceBGPStatus::crd(),
        ConfigurationState::crd(),
        AddressRecord::crd(),
    ];
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all.into_iter().map(structural).collect()
}

/// Fields that must be there: kind, version, where in the schema, which.
///
/// A table, since the types read an object without them: a stored one that lacks a field must be reported, not unreadable.
const REQUIRED: &[(&str, &str, &str, &[&str])] = &[
    ("IPAddressPool", "v1beta1", "", &["spec"]),
    (
        "IPAddressPool",
        "v1beta1",
        "/properties/spec",
        &["addresses"],
    ),
    (
        "L2Advertisement",
        "v1beta1",
        "/properties/spec/properties/preferredNodeSelectors/items",
        &["preference", "weight"],
    ),
    ("BGPPeer", "v1beta2", "/properties/spec", &["myASN"]),
    (
        "BGPPeer",
        "v1beta1",
        "/properties/spec",
        &["myASN", "peerASN", "peerAddress"],
    ),
    (
        "BGPPeer",
        "v1beta1",
        "/properties/spec/properties/nodeSelectors/items/properties/matchExpressions/items",
        &["key", "operator", "values"],
    ),
    ("AddressRecord", "v1alpha1", "", &["spec"]),
    (
        "AddressRecord",
        "v1alpha1",
        "/properties/spec",
        &["address", "holders"],
    ),
    (
        "AddressRecord",
        "v1alpha1",
        "/properties/spec/properties/holders/items",
        &["name", "namespace", "uid"],
    ),
];

/// Rewrites the schemas of a CRD into what kube-apiserver takes.
fn structural(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let kind = crd.spec.names.kind.clone();
    let mut value = serde_json::to_value(crd).expect("a CRD is JSON");
    if let Some(versions) = value
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut)
    {
        for version in versions {
            let name = version
                .get("name")
                .and_then(Value::as_str)
                .map(str::to_owned);
            if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
                tidy(schema);
                require(schema, &kind, name.as_deref().unwrap_or_default());
            }
        }
    }
    serde_json::from_value(value).expect("a CRD stays one")
}

/// Writes what [`REQUIRED`] says about this version.
fn require(schema: &mut Value, kind: &str, version: &str) {
    for (_, _, at, fields) in REQUIRED
        .iter()
        .filter(|(k, v, ..)| (*k, *v) == (kind, version))
    {
        let node = schema
            .pointer_mut(at)
            .expect("the table names places that are there");
        node["required"] = serde_json::json!(fields);
    }
}

/// Rewrites one schema node and all below it.
fn tidy(schema: &mut Value) {
    let Some(node) = schema.as_object_mut() else {
        return;
    };
    node.remove("nullable");
    node.remove("title");
    if node.get("default").is_some_and(is_nothing) {
        node.remove("default");
    }
    if let Some(format) = node.get("format").and_then(Value::as_str) {
        match known_format(format) {
            Some(known) => node.insert("format".to_owned(), known.into()),
            None => node.remove("format"),
        };
        // `schemars` writes the bounds of unsigned numbers as floats
        for bound in ["minimum", "maximum"] {
            if let Some(number) = node.get(bound).and_then(Value::as_f64) {
                node.insert(bound.to_owned(), number.into());
            }
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = node.get_mut(key) {
            tidy(inner);
        }
    }
    if let Some(properties) = node.get_mut("properties").and_then(Value::as_object_mut) {
        properties.values_mut().for_each(tidy);
    }
}

/// A default that only says "not given".
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Object(_) => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
    }
}

/// The format of Kubernetes for one of `schemars`; `None` when there is none.
fn known_format(format: &str) -> Option<&'static str> {
    Some(match format {
        "int8" | "uint8" | "int16" | "uint16" | "int32" => "int32",
        "uint32" | "int64" | "int" | "uint" | "uint64" => "int64",
        "date-time" => "date-time",
        "double" => "double",
        "float" => "float",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
