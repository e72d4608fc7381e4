//! Whatever a body holds, the answer is an answer: valid objects of each kind with random damage, as creates and as patches.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Config, Identity, ObjectRef, Server};

/// One object of each kind, with the metadata that all share.
fn examples() -> Vec<Value> {
    let texts = include_str!("poison_examples.json");
    let mut objects: Vec<Value> = serde_json::from_str(texts).expect("the file is JSON");
    for object in &mut objects {
        let namespace = match object["kind"].as_str() {
            Some("IPAddressPool") => "metallb-system",
            _ => "default",
        };
        let named = object["metadata"]["name"]
            .as_str()
            .unwrap_or("a")
            .to_owned();
        object["metadata"] = json!({
            "name": named, "namespace": namespace,
            "labels": {"x": "y"}, "annotations": {"n": "t"}, "finalizers": ["example.com/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
        });
    }
    objects
}

/// Paths of all nodes of a value, as JSON pointers.
fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            paths(
                value,
                &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                found,
            );
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, value)| paths(value, &format!("{at}/{index}"), found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn damage() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!([])),
        Just(json!("")),
        Just(json!(-1)),
        Just(json!(1.5)),
        Just(json!(true)),
        Just(json!(u64::MAX)),
        Just(json!("None")),
        Just(json!([[{"a": null}]])),
        Just(json!({"a": {"b": [1]}})),
        Just(json!("10.96.0.1/33")),
        "\\PC{0,12}".prop_map(Value::from),
    ]
}

proptest! {
    #[test]
    fn damaged_objects_of_each_kind_are_answered_and_disturb_nothing_else(
        kind in 0usize..13, wounds in prop::collection::vec((any::<prop::sample::Index>(), damage()), 1..4), patch in any::<bool>(),
    ) {
        let server = server();
        let good = examples().swap_remove(kind);
        let mut bad = good.clone();
        for (place, damage) in wounds {
            let mut all = Vec::new();
            paths(&bad, "", &mut all);
            let path: &String = place.get(&all);
            if let Some(node) = bad.pointer_mut(path) { *node = damage; }
        }
        if patch {
            let stored = server.create(good.clone()).unwrap();
            let _ = server.merge_patch(&ObjectRef::of(&stored), &bad);
            let _ = server.delete(&ObjectRef::of(&stored));
        } else if let Ok(stored) = server.create(bad) {
            let _ = server.delete(&ObjectRef::of(&stored));
        }
        let other = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"}, "spec": {"ports": [{"port": 80}]}});
        prop_assert!(server.create(other).is_ok());
    }
}

fn server() -> Server {
    static SHARED: std::sync::OnceLock<(Identity, Vec<Value>)> = std::sync::OnceLock::new();
    let (identity, crds) = SHARED.get_or_init(|| {
        let crds = api_types::crds()
            .into_iter()
            .map(|crd| serde_json::to_value(crd).unwrap());
        let pools = crds.filter(|crd| crd["metadata"]["name"] == "ipaddresspools.metallb.io");
        (Identity::generate(&["localhost"]).unwrap(), pools.collect())
    });
    let server = Server::new(
        &Config {
            seed: Some(3),
            ..Config::default()
        },
        identity,
    )
    .unwrap();
    server.install_crds(crds).unwrap();
    server
}
