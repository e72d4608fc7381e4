//! Acceptance cases that the embedded API server decides alone: what a Service may say, and which numbers it gets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use api_server::{ApiError, Config, Identity, ObjectRef, Server};
use serde_json::{Value, json};

fn server(node_port_range: (u16, u16)) -> Server {
    let identity = Identity::generate(&["localhost"]).unwrap();
    let config = Config {
        node_port_range,
        seed: Some(7),
        ..Config::default()
    };
    Server::new(&config, &identity).unwrap()
}

fn service(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
}

fn node_port(server: &Server, name: &str) -> Result<u64, ApiError> {
    let spec = json!({"type": "NodePort", "selector": {"app": name}, "ports": [{"port": 80}]});
    let stored = server.create(service(name, &spec))?;
    Ok(stored["spec"]["ports"][0]["nodePort"].as_u64().unwrap())
}

fn causes(error: &ApiError) -> Vec<(&str, &str)> {
    error
        .causes
        .iter()
        .map(|cause| (cause.reason, cause.field.as_str()))
        .collect()
}

/// The part of the server: a health check node port is taken and given back like any other. Its answer to a full range is 500
/// as kube-apiserver's; the repair loop has no counterpart here, since what is stored and what is taken change under one lock.
#[test]
fn b025_health_check_node_port_is_taken_from_the_range_and_given_back() {
    let server = server((30_000, 30_003));
    let spec = json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30_001, "selector": {"app": "lb"},
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80, "nodePort": 30_000}],
    });
    let lb = ObjectRef::of(&server.create(service("lb", &spec)).unwrap());
    let given = BTreeSet::from([
        node_port(&server, "n1").unwrap(),
        node_port(&server, "n2").unwrap(),
    ]);
    assert_eq!(given, BTreeSet::from([30_002, 30_003]));
    let full = node_port(&server, "n3").unwrap_err();
    assert_eq!(full.code, 500);
    assert!(
        full.message.contains("the range 30000-30003 is full"),
        "{full}"
    );
    let patch = json!({"spec": {"externalTrafficPolicy": "Cluster", "healthCheckNodePort": null}});
    server.merge_patch(&lb, &patch).unwrap();
    assert_eq!(node_port(&server, "n3").unwrap(), 30_001);
}

#[test]
fn b029_dynamic_node_ports_leave_the_static_band_until_the_rest_is_full() {
    let server = server((30_000, 32_767));
    let dynamic: BTreeSet<u64> = (0..2_682)
        .map(|n| node_port(&server, &format!("a{n}")).unwrap())
        .collect();
    assert_eq!(dynamic, (30_086..=32_767).collect());
    let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30_009}]});
    server.create(service("chosen", &spec)).unwrap();
    let fallback: BTreeSet<u64> = (0..85)
        .map(|n| node_port(&server, &format!("b{n}")).unwrap())
        .collect();
    assert_eq!(
        fallback,
        (30_000..=30_085).filter(|port| *port != 30_009).collect()
    );
    assert!(
        node_port(&server, "last")
            .unwrap_err()
            .message
            .contains("is full")
    );

    let small = self::server((30_000, 30_015));
    let all: BTreeSet<u64> = (0..16)
        .map(|n| node_port(&small, &format!("s{n}")).unwrap())
        .collect();
    assert_eq!(all, (30_000..=30_015).collect());
}

/// The admission row; what the allocator does with an injected one is in its own test.
#[test]
fn b043_headless_load_balancer_is_refused_on_its_cluster_ip() {
    let server = server((30_000, 32_767));
    let spec = json!({
        "type": "LoadBalancer", "clusterIP": "None", "selector": {"app": "headless"},
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}],
    });
    let error = server.create(service("headless", &spec)).unwrap_err();
    assert_eq!(
        (error.code, causes(&error)),
        (422, vec![("FieldValueInvalid", "spec.clusterIPs[0]")])
    );
}

/// Name, ports, code and causes.
type Refused = (&'static str, Value, u16, Vec<(&'static str, &'static str)>);

fn refused() -> Vec<Refused> {
    vec![
        (
            "zero-ports",
            json!([]),
            422,
            vec![("FieldValueRequired", "spec.ports")],
        ),
        ("range-text", json!([{"port": "8000-8010"}]), 400, vec![]),
        (
            "two-unnamed",
            json!([{"port": 80}, {"port": 443}]),
            422,
            vec![
                ("FieldValueRequired", "spec.ports[0].name"),
                ("FieldValueRequired", "spec.ports[1].name"),
            ],
        ),
        (
            "name-case",
            json!([{"name": "HTTP", "port": 80}]),
            422,
            vec![("FieldValueInvalid", "spec.ports[0].name")],
        ),
        (
            "port-0",
            json!([{"port": 0}]),
            422,
            vec![
                ("FieldValueInvalid", "spec.ports[0].port"),
                ("FieldValueInvalid", "spec.ports[0].targetPort"),
            ],
        ),
        (
            "same-port-same-proto",
            json!([{"name": "a", "port": 443}, {"name": "b", "port": 443}]),
            422,
            vec![("FieldValueDuplicate", "spec.ports[1]")],
        ),
    ]
}

/// The admission rows; those about packets are in the proxier's test.
#[test]
fn b044_odd_port_lists_are_refused_with_the_field_named() {
    let server = server((30_000, 32_767));
    for (name, ports, code, fields) in refused() {
        let error = server
            .create(service(
                name,
                &json!({"type": "LoadBalancer", "ports": ports}),
            ))
            .unwrap_err();
        assert_eq!((error.code, causes(&error)), (code, fields), "{name}");
        if code == 400 {
            assert!(error.message.contains("spec.ports[0].port"), "{error}");
        }
    }
    let accepted = [
        (
            "named-target",
            json!([{"name": "http", "port": 80, "targetPort": "web"}]),
        ),
        ("port-65535", json!([{"port": 65_535}])),
        (
            "same-port-two-protos",
            json!([{"name": "a", "port": 443, "protocol": "TCP"}, {"name": "b", "port": 443, "protocol": "UDP"}]),
        ),
    ];
    for (name, ports) in accepted {
        let stored = server
            .create(service(
                name,
                &json!({"type": "LoadBalancer", "ports": ports}),
            ))
            .unwrap();
        let numbers: BTreeSet<u64> = stored["spec"]["ports"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| p["nodePort"].as_u64().unwrap())
            .collect();
        assert_eq!(
            numbers.len(),
            1,
            "{name}: ports of one number share a node port"
        );
    }
}
