//! Whatever a body holds, the answer is an answer: valid objects of each kind with random damage, as creates and as patches.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{Config, Identity, ObjectRef, Server};

#[expect(clippy::too_many_lines, reason = "a table: one object of each kind")]
fn examples() -> Vec<Value> {
    let object = |api_version: &str, kind: &str, rest: Value| {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {
            "name": "a", "namespace": if kind == "IPAddressPool" { "metallb-system" } else { "default" },
            "labels": {"x": "y"}, "annotations": {"n": "t"}, "finalizers": ["example.com/f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
        }});
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        object
    };
    vec![
        object(
            "v1",
            "Namespace",
            json!({"spec": {"finalizers": ["kubernetes"]}}),
        ),
        object(
            "v1",
            "Node",
            json!({"spec": {"podCIDRs": ["10.244.1.0/24"], "taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        ),
        object(
            "v1",
            "Pod",
            json!({"spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}]}]}}),
        ),
        object(
            "v1",
            "Service",
            json!({"spec": {
                "type": "LoadBalancer", "clusterIP": "10.96.1.9", "clusterIPs": ["10.96.1.9"], "ipFamilies": ["IPv4"],
                "ports": [{"name": "a", "port": 80, "targetPort": "x", "nodePort": 30_001}], "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 30_002, "loadBalancerSourceRanges": ["192.0.2.0/24"], "externalIPs": ["192.0.2.1"],
                "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}, "selector": {"a": "b"},
            }}),
        ),
        object(
            "v1",
            "Endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]}),
        ),
        object(
            "v1",
            "ConfigMap",
            json!({"data": {"a": "b"}, "binaryData": {"c": "AAEC"}, "immutable": true}),
        ),
        object(
            "v1",
            "Secret",
            json!({"type": "Opaque", "data": {"a": "eA=="}, "stringData": {"b": "x"}}),
        ),
        object(
            "v1",
            "Event",
            json!({"involvedObject": {"kind": "Service", "namespace": "default", "name": "w"}, "count": 1}),
        ),
        object(
            "events.k8s.io/v1",
            "Event",
            json!({"regarding": {"namespace": "default"}, "note": "n", "eventTime": null}),
        ),
        object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({
                "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "hostname": "h"}],
                "ports": [{"name": "a", "port": 80, "protocol": "TCP"}],
            }),
        ),
        object(
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}}),
        ),
        object(
            "metallb.io/v1beta1",
            "IPAddressPool",
            json!({"spec": {"addresses": ["192.0.2.0/28"], "autoAssign": true}}),
        ),
        object(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            json!({
                "metadata": {"name": "as.example.com"},
                "spec": {
                    "group": "example.com", "scope": "Cluster", "names": {"plural": "as", "kind": "A"},
                    "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
                        "type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}},
                    }}, "additionalPrinterColumns": [{"name": "N", "type": "integer", "jsonPath": ".spec.n[0]"}]}],
                },
            }),
        ),
    ]
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
