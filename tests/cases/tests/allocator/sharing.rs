//! Several Services on one address.

use serde_json::json;

use super::*;

fn sharer(name: &str, key: &str, ports: &Value, policy: &str, app: &str) -> ServiceClaim {
    let mut all = annotated(&[("metallb.io/allow-shared-ip", key)]);
    merge(
        &mut all,
        json!({"spec": {"ports": ports, "externalTrafficPolicy": policy, "selector": {"app": app}}}),
    );
    user(name, all)
}

#[test]
fn b011_sharing_with_local_policy() {
    let mut world = with_pools(vec![Pool::new("p", &["203.0.113.50/32"])]);
    let service = |name: &str, policy: &str| {
        let (port, app) = match name {
            "http" => (80, "nginx"),
            "https" => (443, "nginx"),
            _ => (83, "nginx2"),
        };
        sharer(name, "k", &json!([{"port": port}]), policy, app)
    };
    for name in ["http", "other", "https"] {
        world.service(service(name, "Local"));
    }
    let check = |world: &World, other: &[&str]| {
        assert_eq!(
            (world.shows("http"), world.shows("https")),
            (
                vec!["203.0.113.50".to_owned()],
                vec!["203.0.113.50".to_owned()]
            )
        );
        assert_eq!(world.shows("other"), other);
    };
    world.wait(SECONDS_10);
    check(&world, &[]);
    assert_refused(&world, "other", "shar");
    world.service(service("other", "Cluster"));
    world.wait(SECONDS_10);
    check(&world, &[]);
    for name in ["http", "other", "https"] {
        world.service(service(name, "Cluster"));
        world.run();
    }
    world.wait(SECONDS_10);
    check(&world, &["203.0.113.50"]);
    let cleared = world
        .events
        .iter()
        .filter(|(_, reason, _)| *reason == EventReason::ClearAssignment);
    assert_eq!(
        cleared.count(),
        0,
        "nobody lost the address while the three were changed one by one"
    );
}

#[test]
fn b012_dns_tcp_and_udp_share_a_port_number() {
    let mut world = with_pools(vec![Pool::new("dns", &["203.0.113.53/32"])]);
    let dns = |name, key, ports: Value| sharer(name, key, &ports, "Cluster", "dns");
    let tcp = |more: bool| {
        let metrics = json!({"name": "metrics", "protocol": "TCP", "port": 9153});
        let first = json!({"name": "dns-tcp", "protocol": "TCP", "port": 53});
        dns(
            "tcp",
            "dns",
            if more {
                json!([first, metrics])
            } else {
                json!([first])
            },
        )
    };
    world.service(dns("udp", "dns", json!([{"protocol": "UDP", "port": 53}])));
    world.service(tcp(true));
    world.service(dns(
        "sctp",
        "dns",
        json!([{"protocol": "SCTP", "port": 53}]),
    ));
    world.service(dns(
        "clash",
        "dns",
        json!([{"name": "a", "port": 8080}, {"name": "m", "port": 9153}]),
    ));
    world.service(dns("wrongkey", "DNS", json!([{"port": 8443}])));
    world.service(user(
        "nokey",
        annotated(&[("metallb.io/loadBalancerIPs", "203.0.113.53")]),
    ));
    world.service(dns("emptykey", "", json!([{"port": 8445}])));
    world.wait(SECONDS_10);
    for name in ["udp", "tcp", "sctp"] {
        assert_eq!(world.shows(name), ["203.0.113.53"], "{name}");
    }
    assert_refused(&world, "clash", "9153");
    world.service(tcp(false));
    world.wait(Duration::from_secs(5));
    assert_eq!(world.shows("clash"), ["203.0.113.53"]);
    for name in ["wrongkey", "nokey", "emptykey"] {
        assert_eq!(world.shows(name), Vec::<String>::new(), "{name}");
    }
    let record = world.records.values().next().expect("one record");
    assert_eq!(
        (
            world.records.len(),
            record.holders.len(),
            record.sharing_key.as_deref()
        ),
        (1, 4, Some("dns"))
    );
}
