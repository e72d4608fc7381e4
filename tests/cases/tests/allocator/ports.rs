//! Node ports, as the embedded API server gives them out with `allocator-core`.

use std::collections::BTreeSet;

use api_server::{Config, Identity, ObjectRef, Server};
use serde_json::{Value, json};

pub(crate) fn server(node_port_range: (u16, u16)) -> Server {
    let identity = Identity::generate(&["localhost"]).expect("an identity");
    let config = Config {
        node_port_range,
        seed: Some(7),
        ..Config::default()
    };
    Server::new(&config, &identity).expect("a server")
}

/// Creates a Service of type `NodePort` and returns its port. Errors: the server's message.
fn node_port(server: &Server, name: &str, port: Option<u16>) -> Result<u64, String> {
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port.unwrap_or(0)}]},
    });
    let stored = server.create(object).map_err(|error| error.to_string())?;
    Ok(stored
        .pointer("/spec/ports/0/nodePort")
        .and_then(Value::as_u64)
        .expect("a node port"))
}

/// Without the repair loop, which the embedded server does not need: its store and its allocator change together.
#[test]
fn b025_health_check_node_port_is_in_the_bitmap() {
    let server = server((30_000, 30_003));
    let lb = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "lb", "namespace": "default"},
        "spec": {
            "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30001,
            "selector": {"app": "lb"}, "ports": [{"port": 80, "nodePort": 30000}],
        },
    });
    server.create(lb.clone()).expect("lb");
    let given: BTreeSet<u64> = ["n1", "n2"]
        .map(|name| node_port(&server, name, None).expect(name))
        .into();
    assert_eq!(given, BTreeSet::from([30_002, 30_003]));
    let full = node_port(&server, "n3", None).expect_err("the range is full");
    assert!(full.contains("full"), "{full}");
    let patch = json!({"spec": {"externalTrafficPolicy": "Cluster", "healthCheckNodePort": null}});
    server
        .merge_patch(&ObjectRef::of(&lb), &patch)
        .expect("the patch");
    assert_eq!(node_port(&server, "n3", None), Ok(30_001));
}

#[test]
fn b029_node_port_static_band() {
    let range = server((30_000, 32_767));
    let automatic = |count: usize, prefix: &str| -> BTreeSet<u64> {
        (0..count)
            .map(|n| node_port(&range, &format!("{prefix}{n}"), None).expect("a port"))
            .collect()
    };
    assert_eq!(automatic(2682, "first"), (30_086..=32_767).collect());
    assert_eq!(node_port(&range, "chosen", Some(30_009)), Ok(30_009));
    let expected: BTreeSet<u64> = (30_000..=30_085).filter(|port| *port != 30_009).collect();
    assert_eq!(automatic(85, "next"), expected);
    assert!(
        node_port(&range, "last", None)
            .expect_err("the range is full")
            .contains("full")
    );

    let small = server((30_000, 30_015));
    let given: BTreeSet<u64> = (0..16)
        .map(|n| node_port(&small, &format!("s{n}"), None).expect("a port"))
        .collect();
    assert_eq!(given, (30_000..=30_015).collect());
}
