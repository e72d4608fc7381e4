//! Services through the whole server: what a write holds, keeps and gives back.

use serde_json::{Value, json};

use crate::{ApiError, Config, Identity, ObjectRef, Server};

fn server() -> Server {
    let identity = Identity::generate(&["localhost"]).unwrap();
    Server::new(
        &Config {
            seed: Some(1),
            ..Config::default()
        },
        &identity,
    )
    .unwrap()
}

fn create(server: &Server, name: &str, spec: &Value) -> Result<Value, ApiError> {
    let object =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    Ok(server.create(object)?["spec"].clone())
}

fn patch(server: &Server, name: &str, spec: &Value) -> Result<Value, ApiError> {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}});
    Ok(server.merge_patch(&ObjectRef::of(&object), &json!({"spec": spec}))?["spec"].clone())
}

fn first_field(error: &ApiError) -> (u16, &str) {
    (
        error.code,
        error
            .causes
            .first()
            .map_or("", |cause| cause.field.as_str()),
    )
}

#[test]
fn dual_stack_comes_and_goes_and_the_first_address_stays() {
    let server = server();
    let one = create(&server, "a", &json!({"ports": [{"port": 80}]})).unwrap();
    let two = patch(&server, "a", &json!({"ipFamilyPolicy": "PreferDualStack"})).unwrap();
    assert_eq!(two["clusterIPs"][0], one["clusterIP"]);
    assert_eq!(two["ipFamilies"], json!(["IPv4", "IPv6"]));
    let again = patch(&server, "a", &json!({"ipFamilyPolicy": "SingleStack"})).unwrap();
    assert_eq!(again, one);
    let second = two["clusterIPs"][1].clone();
    let other = create(
        &server,
        "b",
        &json!({"clusterIP": second, "ports": [{"port": 80}]}),
    )
    .unwrap();
    assert_eq!(
        (&other["clusterIP"], &other["ipFamilies"]),
        (&second, &json!(["IPv6"])),
        "it was given back"
    );
}

#[test]
fn refused_write_holds_nothing() {
    let server = server();
    let ports = json!([{"name": "x", "port": 80, "nodePort": 30_111}, {"name": "y", "port": 81, "nodePort": 99}]);
    let error = create(
        &server,
        "a",
        &json!({"type": "NodePort", "clusterIP": "10.96.9.9", "ports": ports}),
    )
    .unwrap_err();
    assert_eq!(first_field(&error), (422, "spec.ports[1].nodePort"));
    let both = json!(["10.96.9.9", "fd00:10:97::1"]);
    let error = create(
        &server,
        "a",
        &json!({
            "clusterIP": "10.96.9.9", "clusterIPs": both, "ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}],
        }),
    );
    assert_eq!(first_field(&error.unwrap_err()), (422, "spec.clusterIPs"));
    let ports = json!([{"port": 80, "nodePort": 30_111}]);
    create(
        &server,
        "b",
        &json!({"type": "NodePort", "clusterIP": "10.96.9.9", "ports": ports}),
    )
    .unwrap();
}

#[test]
fn type_change_gives_back_what_the_new_type_has_no_use_for() {
    let server = server();
    let spec =
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}]});
    let before = create(&server, "a", &spec).unwrap();
    let after = patch(&server, "a", &json!({"type": "ClusterIP"})).unwrap();
    let wiped = [
        "healthCheckNodePort",
        "allocateLoadBalancerNodePorts",
        "externalTrafficPolicy",
    ];
    assert!(
        wiped.iter().all(|field| after.get(field).is_none()),
        "{after}"
    );
    assert_eq!(after["clusterIP"], before["clusterIP"]);
    for (name, number) in [
        ("b", &before["healthCheckNodePort"]),
        ("c", &before["ports"][0]["nodePort"]),
    ] {
        create(
            &server,
            name,
            &json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": number}]}),
        )
        .unwrap();
    }
}

#[test]
fn cluster_address_is_free_again_only_when_the_service_is_gone() {
    let server = server();
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "finalizers": ["example.com/hold"]},
        "spec": {"clusterIP": "10.96.9.9", "ports": [{"port": 80}]},
    });
    server.create(object.clone()).unwrap();
    server.delete(&ObjectRef::of(&object)).unwrap();
    let spec = json!({"clusterIP": "10.96.9.9", "ports": [{"port": 80}]});
    assert_eq!(
        first_field(&create(&server, "b", &spec).unwrap_err()),
        (422, "spec.clusterIPs")
    );
    server
        .merge_patch(
            &ObjectRef::of(&object),
            &json!({"metadata": {"finalizers": null}}),
        )
        .unwrap();
    create(&server, "b", &spec).unwrap();
}

#[test]
fn ranges_that_cannot_be_used_are_refused_at_start() {
    let identity = Identity::generate(&["localhost"]).unwrap();
    let cidrs = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| text.parse().unwrap())
            .collect::<Vec<ipnet::IpNet>>()
    };
    for service_cidrs in [
        cidrs(&[]),
        cidrs(&["10.96.0.0/16", "10.97.0.0/16"]),
        cidrs(&["fd00::/48"]),
    ] {
        let config = Config {
            service_cidrs,
            ..Config::default()
        };
        assert!(Server::new(&config, &identity).is_err(), "{config:?}");
    }
    assert!(
        Server::new(
            &Config {
                node_port_range: (5, 4),
                ..Config::default()
            },
            &identity
        )
        .is_err()
    );
}
