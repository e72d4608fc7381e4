//! `CustomResourceDefinition`: what is filled in, what is refused, and the kinds it makes.
//!
//! Source: `apiextensions.k8s.io/v1`. Conversion webhooks are refused: there is nobody to call them.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::crud::time;
use crate::names;
use crate::registry::{Custom, Kind, Rules};
use crate::status_error::Cause;

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn versions(crd: &Value) -> impl Iterator<Item = &Value> {
    crd.pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn flag(value: &Value, name: &str) -> bool {
    value.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Names that follow from others, and no conversion.
pub(crate) fn defaults(crd: &mut Value) {
    let kind = text(crd, "/spec/names/kind").to_owned();
    if text(crd, "/spec/names/singular").is_empty() {
        crd["spec"]["names"]["singular"] = json!(kind.to_lowercase());
    }
    if text(crd, "/spec/names/listKind").is_empty() {
        crd["spec"]["names"]["listKind"] = json!(format!("{kind}List"));
    }
    if text(crd, "/spec/conversion/strategy").is_empty() {
        crd["spec"]["conversion"] = json!({"strategy": "None"});
    }
}

/// Status as it is at once here: names accepted, established.
pub(crate) fn established(crd: &mut Value, now: Timestamp) {
    let condition = |name: &str, reason: &str, message: &str| json!({"type": name, "status": "True", "lastTransitionTime": time(now), "reason": reason, "message": message});
    let storage = versions(crd)
        .find(|version| flag(version, "storage"))
        .map(|version| version["name"].clone());
    crd["status"] = json!({
        "acceptedNames": crd["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": storage.into_iter().collect::<Vec<_>>(),
    });
}

/// What is wrong with it, by field.
pub(crate) fn causes(crd: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    let wanted = format!("{plural}.{group}");
    if text(crd, "/metadata/name") != wanted {
        let what = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid(
            "metadata.name",
            &crd["metadata"]["name"],
            what,
        ));
    }
    for (field, value) in [
        ("group", group),
        ("names.plural", plural),
        ("names.kind", text(crd, "/spec/names/kind")),
    ] {
        if value.is_empty() {
            causes.push(Cause::required(format!("spec.{field}"), ""));
        }
    }
    if !group.is_empty() && (names::subdomain_problem(group).is_some() || !group.contains('.')) {
        causes.push(Cause::invalid(
            "spec.group",
            &json!(group),
            "should be a domain with at least one dot",
        ));
    }
    if !["Namespaced", "Cluster"].contains(&text(crd, "/spec/scope")) {
        causes.push(Cause::not_supported(
            "spec.scope",
            &crd["spec"]["scope"],
            &["Cluster", "Namespaced"],
        ));
    }
    if text(crd, "/spec/conversion/strategy") != "None" {
        let what = "this embedded API server calls no conversion webhook: use strategy None";
        causes.push(Cause::forbidden("spec.conversion.strategy", what));
    }
    version_causes(crd, &mut causes);
    for field in [
        "/spec/group",
        "/spec/scope",
        "/spec/names/plural",
        "/spec/names/kind",
    ] {
        if old.is_some_and(|old| text(old, field) != text(crd, field)) {
            let value = json!(text(crd, field));
            causes.push(Cause::invalid(
                field.trim_start_matches('/').replace('/', "."),
                &value,
                "field is immutable",
            ));
        }
    }
    causes
}

fn deprecation(crd: &Value, version: &Value) -> String {
    match text(version, "/deprecationWarning") {
        "" => {
            let (group, kind) = (text(crd, "/spec/group"), text(crd, "/spec/names/kind"));
            format!("{group}/{} {kind} is deprecated", text(version, "/name"))
        }
        own => own.to_owned(),
    }
}

fn version_causes(crd: &Value, causes: &mut Vec<Cause>) {
    if versions(crd)
        .filter(|version| flag(version, "storage"))
        .count()
        != 1
    {
        let what = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid(
            "spec.versions",
            &crd["spec"]["versions"],
            what,
        ));
    }
    for (index, version) in versions(crd).enumerate() {
        if text(version, "/schema/openAPIV3Schema/type") != "object" {
            let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
            causes.push(Cause::required(
                field,
                "schemas are required and must have type object",
            ));
        }
    }
}

/// One kind for each served version.
pub(crate) fn kinds(crd: &Value) -> Vec<Kind> {
    let names = &crd["spec"]["names"];
    let storage_version = versions(crd)
        .find(|version| flag(version, "storage"))
        .map_or("", |version| text(version, "/name"));
    let served = versions(crd).filter(|version| flag(version, "served"));
    let kind = |version: &Value| Kind {
        group: text(crd, "/spec/group").to_owned(),
        version: text(version, "/name").to_owned(),
        plural: text(names, "/plural").to_owned(),
        singular: text(names, "/singular").to_owned(),
        kind: text(names, "/kind").to_owned(),
        list_kind: text(names, "/listKind").to_owned(),
        short_names: strings(names.get("shortNames")),
        categories: strings(names.get("categories")),
        namespaced: text(crd, "/spec/scope") == "Namespaced",
        status: version.pointer("/subresources/status").is_some(),
        storage: text(crd, "/metadata/name").into(),
        rules: Rules::Custom(Arc::new(Custom {
            schema: version
                .pointer("/schema/openAPIV3Schema")
                .cloned()
                .unwrap_or_default(),
            columns: version
                .get("additionalPrinterColumns")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            fields: version
                .get("selectableFields")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|field| text(field, "/jsonPath").trim_start_matches('.').to_owned())
                .collect(),
            deprecation: flag(version, "deprecated").then(|| deprecation(crd, version)),
            storage_version: storage_version.to_owned(),
        })),
    };
    served.map(kind).collect()
}
