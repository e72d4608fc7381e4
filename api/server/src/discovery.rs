//! What the server says about itself: groups, resources, version, and the part of `OpenAPI` that kubectl needs.
//!
//! Pure. Aggregated discovery is KEP-3352; the `OpenAPI` documents hold paths and their query parameters (KEP-2885, so that
//! `kubectl create` leaves the checking of fields to the server) and the schemas of custom kinds. `kubectl explain` of a
//! built-in kind finds none.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::registry::{Kind, Registry, group_version};

/// The version this server is compatible with.
pub(crate) const VERSION: (&str, &str, &str) = ("1", "37", "v1.37.2-roadstead");

/// `/version`.
pub(crate) fn version() -> Value {
    let (major, minor, git) = VERSION;
    json!({
        "major": major, "minor": minor, "gitVersion": git, "gitCommit": "", "gitTreeState": "clean", "buildDate": "",
        "goVersion": "none", "compiler": "rustc", "platform": format!("linux/{}", std::env::consts::ARCH),
        "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": major, "minCompatibilityMinor": "36",
    })
}

/// `/api`.
pub(crate) fn api_versions() -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    })
}

/// Groups without core: name and versions.
fn groups(registry: &Registry) -> BTreeMap<&str, Vec<&str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in registry.iter().filter(|kind| !kind.group.is_empty()) {
        let versions = groups.entry(&kind.group).or_default();
        if !versions.contains(&kind.version.as_str()) {
            versions.push(&kind.version);
        }
    }
    // the newest first: v1 before v1beta2 before v1beta1
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| {
            (
                version.contains("alpha"),
                version.contains("beta"),
                std::cmp::Reverse(*version),
            )
        });
    }
    groups
}

fn group_json(name: &str, versions: &[&str]) -> Value {
    let version =
        |version: &&str| json!({"groupVersion": group_version(name, version), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// `/apis`.
pub(crate) fn group_list(registry: &Registry) -> Value {
    let groups: Vec<Value> = groups(registry)
        .iter()
        .map(|(name, versions)| group_json(name, versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/GROUP`.
pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let mut group = group_json(name, groups(registry).get(name)?);
    group["kind"] = json!("APIGroup");
    group["apiVersion"] = json!("v1");
    Some(group)
}

fn subresources(kind: &Kind) -> Vec<(&'static str, &'static [&'static str])> {
    let mut list: Vec<(&str, &[&str])> = Vec::new();
    if kind.is("namespaces") {
        list.push(("finalize", &["update"]));
    }
    if kind.status {
        list.push(("status", &["get", "patch", "update"]));
    }
    list
}

fn in_version<'a>(
    registry: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a Arc<Kind>> {
    registry
        .iter()
        .filter(move |kind| kind.group == group && kind.version == version)
}

fn names(kind: &Kind, target: &mut Value) {
    if !kind.short_names.is_empty() {
        target["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        target["categories"] = json!(kind.categories);
    }
}

/// `/api/v1`, `/apis/GROUP/VERSION`.
pub(crate) fn resource_list(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in in_version(registry, group, version) {
        let mut resource = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": kind.verbs(), "storageVersionHash": format!("{}.{}", kind.plural, kind.version),
        });
        names(kind, &mut resource);
        resources.push(resource);
        for (name, verbs) in subresources(kind) {
            resources.push(json!({
                "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced, "kind": kind.kind,
                "verbs": verbs,
            }));
        }
    }
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version), "resources": resources});
    (!resources_empty(&list)).then_some(list)
}

fn resources_empty(list: &Value) -> bool {
    list["resources"].as_array().is_none_or(Vec::is_empty)
}

/// `APIGroupDiscoveryList` for `/api` (core) or `/apis` (the rest).
pub(crate) fn aggregated(registry: &Registry, core: bool) -> Value {
    let mut all = groups(registry);
    if core {
        all = BTreeMap::from([("", vec!["v1"])]);
    }
    let version = |group: &str, version: &str| {
        let resources: Vec<Value> = in_version(registry, group, version)
            .map(|kind| aggregated_resource(kind))
            .collect();
        json!({"version": version, "freshness": "Current", "resources": resources})
    };
    let item = |(group, versions): (&&str, &Vec<&str>)| {
        let metadata = if group.is_empty() {
            json!({})
        } else {
            json!({"name": group})
        };
        json!({"metadata": metadata, "versions": versions.iter().map(|v| version(group, v)).collect::<Vec<_>>()})
    };
    let items: Vec<Value> = all.iter().map(item).collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_resource(kind: &Kind) -> Value {
    // built-in kinds leave out what equals the group they stand in
    let response = match kind.custom() {
        Some(_) => json!({"group": kind.group, "version": kind.version, "kind": kind.kind}),
        None => json!({"group": "", "version": "", "kind": kind.kind}),
    };
    let mut resource = json!({
        "resource": kind.plural, "responseKind": response, "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": kind.singular, "verbs": kind.verbs(),
    });
    names(kind, &mut resource);
    let subresources: Vec<Value> = subresources(kind)
        .into_iter()
        .map(|(name, verbs)| json!({"subresource": name, "responseKind": response, "verbs": verbs}))
        .collect();
    if !subresources.is_empty() {
        resource["subresources"] = json!(subresources);
    }
    resource
}

fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

/// `/openapi/v3`.
pub(crate) fn openapi_index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for kind in registry.iter() {
        let path = group_path(&kind.group, &kind.version);
        let url = format!("/openapi/v3/{path}?hash={}", registry.iter().count());
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
    json!({"paths": paths})
}

/// `/openapi/v3/api/v1` and so on: the paths of each kind.
pub(crate) fn openapi(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation"]
        .into_iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect();
    let mut paths = Map::new();
    for kind in in_version(registry, group, version) {
        let operation = |action: &str| {
            json!({
                "parameters": parameters, "responses": {"200": {"description": "OK"}}, "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
            })
        };
        let namespace = if kind.namespaced {
            "/namespaces/{namespace}"
        } else {
            ""
        };
        let path = format!("/{}{namespace}/{}", group_path(group, version), kind.plural);
        paths.insert(path.clone(), json!({"post": operation("post")}));
        paths.insert(
            format!("{path}/{{name}}"),
            json!({"patch": operation("patch"), "put": operation("put")}),
        );
    }
    let schemas: Map<String, Value> = in_version(registry, group, version)
        .filter_map(|kind| schema(kind))
        .collect();
    let info = json!({"title": "Kubernetes", "version": VERSION.2});
    (!paths.is_empty()).then(
        || json!({"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}),
    )
}

/// Name and schema of a custom kind, as `kubectl explain` looks for it.
fn schema(kind: &Kind) -> Option<(String, Value)> {
    let mut schema = kind.custom()?.schema.clone();
    let text = |description: &str| json!({"type": "string", "description": description});
    schema["properties"]["apiVersion"] =
        text("APIVersion defines the versioned schema of this representation of an object.");
    schema["properties"]["kind"] =
        text("Kind is a string value representing the REST resource this object represents.");
    schema["properties"]["metadata"] =
        json!({"type": "object", "description": "Standard object's metadata."});
    let named = json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
    schema["x-kubernetes-group-version-kind"] = named;
    let reversed: Vec<&str> = kind.group.rsplit('.').collect();
    Some((
        format!("{}.{}.{}", reversed.join("."), kind.version, kind.kind),
        schema,
    ))
}
