//! What users ask for, and how it is refused.

use serde_json::json;

use super::*;
use crate::world::key;

#[test]
fn b018_address_and_pool_contradict() {
    let mut world = with_pools(vec![
        Pool {
            auto_assign: false,
            ..Pool::new("blue", &["203.0.113.0/28"])
        },
        Pool {
            created: 1,
            ..Pool::new("green", &["203.0.113.16/28"])
        },
    ]);
    let both = |ip| {
        annotated(&[
            ("metallb.io/address-pool", "blue"),
            ("metallb.io/loadBalancerIPs", ip),
        ])
    };
    world.service(user("web", both("203.0.113.17")));
    world.service(user(
        "typo",
        annotated(&[("metallb.io/address-pool", "bleu")]),
    ));
    world.service(user(
        "outside",
        annotated(&[("metallb.io/loadBalancerIPs", "198.51.100.9")]),
    ));
    world.wait(Duration::from_secs(60));
    assert_refused(&world, "web", "blue");
    assert_refused(&world, "typo", "bleu");
    assert_refused(&world, "outside", "198.51.100.9");
    let writes = world.status_writes.len() + world.events.len() + world.record_writes;
    assert!(writes <= 10, "{writes} writes in 60 s");
    world.service(user("web", both("203.0.113.7")));
    world.wait(Duration::from_secs(5));
    assert_eq!(world.shows("web"), ["203.0.113.7"]);
}

/// What is expected of a row of B019: addresses, or a piece of the warning.
type Row = (
    &'static str,
    &'static str,
    Value,
    Result<&'static [&'static str], &'static str>,
);

#[test]
fn b019_duplicated_and_badly_written_address_requests() {
    let dual = json!({"spec": {
        "ipFamilyPolicy": "RequireDualStack", "clusterIPs": ["198.51.100.130", "2001:db8:0:9::1"],
    }});
    let v6 = json!({"spec": {"clusterIP": "2001:db8:0:9::1", "clusterIPs": ["2001:db8:0:9::1"]}});
    let field = |ip: &str| json!({"spec": {"loadBalancerIP": ip}});
    let rows: [Row; 12] = [
        (
            "same-twice",
            "203.0.113.9,203.0.113.9",
            json!({}),
            Ok(&["203.0.113.9"]),
        ),
        (
            "spaces",
            " 203.0.113.10 , 2001:db8:0:2::10 ",
            dual,
            Ok(&["203.0.113.10", "2001:db8:0:2::10"]),
        ),
        (
            "both-equal",
            "203.0.113.11",
            field("203.0.113.11"),
            Ok(&["203.0.113.11"]),
        ),
        (
            "both-differ",
            "203.0.113.12",
            field("203.0.113.13"),
            Err("203.0.113.12"),
        ),
        (
            "quoted",
            "\"203.0.113.14\"",
            json!({}),
            Err("\\\"203.0.113.14\\\""),
        ),
        (
            "two-v4",
            "203.0.113.15,203.0.113.16",
            json!({}),
            Err("two IPv4 addresses"),
        ),
        (
            "mapped",
            "::ffff:203.0.113.17",
            json!({}),
            Err("::ffff:203.0.113.17"),
        ),
        ("zone", "fe80::1%eth0", json!({}), Err("fe80::1%eth0")),
        ("cidr", "203.0.113.18/32", json!({}), Err("203.0.113.18/32")),
        (
            "leading-zero",
            "203.0.113.019",
            json!({}),
            Err("203.0.113.019"),
        ),
        (
            "expanded-v6",
            "2001:0DB8:0000:0002:0000:0000:0000:0019",
            v6,
            Ok(&["2001:db8:0:2::19"]),
        ),
        ("empty", "", json!({}), Ok(&["203.0.113.0"])),
    ];
    for (name, annotation, more, expected) in rows {
        let mut world = with_pools(vec![Pool::new(
            "p",
            &["203.0.113.0/26", "2001:db8:0:2::/120"],
        )]);
        let mut all = annotated(&[("metallb.io/loadBalancerIPs", annotation)]);
        merge(&mut all, more);
        world.service(user(name, all));
        world.wait(Duration::from_secs(5));
        match expected {
            Ok(addresses) => assert_eq!(world.shows(name), addresses, "{name}"),
            Err(text) => assert_refused(&world, name, text),
        }
        world.delete(name);
        world.wait(SECONDS_10);
        assert_eq!(
            world.counters("p").assigned_v4 + world.counters("p").assigned_v6,
            0,
            "{name}"
        );
    }
}

/// The allocator's part: it is never told of endpoints. That the API server refuses `headless` is in `b044`'s company.
#[test]
fn b043_headless_load_balancer_is_never_served() {
    let server = ports::server((30_000, 32_767));
    let headless = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "headless", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "clusterIP": "None", "selector": {"app": "headless"}, "ports": [{"port": 80}]},
    });
    let message = server
        .create(headless)
        .expect_err("a headless LoadBalancer")
        .to_string();
    assert!(message.contains("spec.clusterIPs[0]"), "{message}");

    let mut world = with_pools(vec![Pool::new("p", &["203.0.113.0/28"])]);
    let headless = written(
        "headless",
        json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
    );
    let extname = written(
        "extname",
        json!({
            "spec": {"type": "ExternalName", "externalName": "web.example.com"},
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}},
        }),
    );
    for service in [headless, extname] {
        let Input::ServiceIdle(idle) = ingest::service(&service, None).input else {
            panic!("served")
        };
        world.idle(idle);
    }
    world.service(user("noselector", json!({})));
    world.wait(Duration::from_secs(5));
    assert_eq!(world.shows("noselector").len(), 1);
    assert_eq!(world.counters("p").assigned_v4, 1);
    let written: Vec<_> = world
        .status_writes
        .iter()
        .map(|write| write.key.clone())
        .collect();
    assert_eq!(written, [key("noselector")]);
}

/// The allocator's and the API server's part; the rows about endpoints are the proxier's.
#[test]
fn b044_odd_port_lists() {
    let server = ports::server((30_000, 32_767));
    let refused = |name: &str, ports: Value| {
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "LoadBalancer", "ports": ports},
        });
        server.create(object).is_err()
    };
    for (name, ports, is_refused) in [
        ("zero-ports", json!([]), true),
        ("range-text", json!([{"port": "8000-8010"}]), true),
        ("two-unnamed", json!([{"port": 80}, {"port": 443}]), true),
        ("name-case", json!([{"name": "HTTP", "port": 80}]), true),
        ("port-0", json!([{"port": 0}]), true),
        ("port-65535", json!([{"port": 65535}]), false),
        (
            "two-protos",
            json!([{"name": "a", "port": 443}, {"name": "b", "port": 443, "protocol": "UDP"}]),
            false,
        ),
        (
            "same-proto",
            json!([{"name": "a", "port": 443}, {"name": "b", "port": 443}]),
            true,
        ),
    ] {
        assert_eq!(refused(name, ports), is_refused, "{name}");
    }

    // past the API server: nothing crashes, one address each
    let mut world = with_pools(vec![Pool::new("p", &["203.0.113.0/28"])]);
    for (name, ports) in [
        ("zero-ports", json!([])),
        ("port-0", json!([{"port": 0}])),
        ("port-65535", json!([{"port": 65535}])),
        (
            "two-protos",
            json!([{"name": "a", "port": 443}, {"name": "b", "port": 443, "protocol": "UDP"}]),
        ),
        ("odd-proto", json!([{"port": 80, "protocol": "QUIC"}])),
    ] {
        world.service(user(name, json!({"spec": {"ports": ports}})));
        world.wait(Duration::from_secs(5));
        assert_eq!(world.shows(name).len(), 1, "{name}");
    }
}

#[test]
fn b148_services_of_another_class_are_not_touched() {
    let class = |name: &str, class: &str, more: Value| {
        let mut all = json!({"spec": {"loadBalancerClass": class}});
        merge(&mut all, more);
        written(name, all)
    };
    let services = [
        written("none", json!({})),
        class("ours", "example.com/lb", json!({})),
        class(
            "theirs",
            "example.net/other",
            json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}}),
        ),
        class(
            "empty-theirs",
            "example.net/other",
            annotated(&[("metallb.io/loadBalancerIPs", "203.0.113.5")]),
        ),
    ];
    let tell = |world: &mut World, product: Option<&str>| {
        for service in &services {
            let input = ingest::service(service, product).input;
            if let Input::Service(claim) = input {
                world.service(*claim);
            } else if let Input::ServiceIdle(mut idle) = input {
                // what the store shows since the allocator wrote it
                let stored = world.services.get(&idle.key);
                idle.shows |= stored.is_some_and(|claim| claim.shown.pool.is_some());
                world.idle(idle);
            }
        }
    };
    for (product, serves) in [(None, "none"), (Some("example.com/lb"), "ours")] {
        let mut world = with_pools(vec![Pool::new("p", &["203.0.113.0/28"])]);
        tell(&mut world, product);
        world.wait(SECONDS_10);
        assert_eq!(world.shows(serves).len(), 1, "{product:?}");
        assert_eq!(world.counters("p").assigned_v4, 1, "{product:?}");
        assert!(
            world
                .status_writes
                .iter()
                .all(|write| write.key == key(serves)),
            "{:?}",
            world.status_writes
        );
        assert!(world.events.iter().all(|(subject, ..)| matches!(subject, allocator_core::Subject::Service(found, _) if *found == key(serves))));
    }

    // the flag is changed: the address of `none` is given back with an event, after the drain time
    let mut world = with_pools(vec![Pool::new("p", &["203.0.113.0/28"])]);
    tell(&mut world, None);
    world.wait(SECONDS_10);
    world.crash();
    tell(&mut world, Some("example.com/lb"));
    world.watch.clear();
    world.replay();
    world.wait(SECONDS_10);
    assert_eq!(world.shows("ours").len(), 1);
    assert_eq!(world.counters("p").assigned_v4, 1);
    let cleared = world
        .events_of("none")
        .into_iter()
        .filter(|(reason, _)| *reason == EventReason::ClearAssignment);
    assert_eq!(cleared.count(), 1, "{:?}", world.events_of("none"));
    assert!(
        world
            .status_writes
            .iter()
            .all(|write| write.key != key("theirs") && write.key != key("empty-theirs"))
    );
}

/// The deprecated prefix is still read; the new one wins.
#[test]
fn deprecated_annotations_are_read_and_reported() {
    let old = written(
        "web",
        annotated(&[("metallb.universe.tf/loadBalancerIPs", "203.0.113.9")]),
    );
    let read = ingest::service(&old, None);
    assert_eq!(read.deprecated, ["metallb.universe.tf/loadBalancerIPs"]);
    let Input::Service(claim) = read.input else {
        panic!("not served")
    };
    assert_eq!(claim.wanted, world::addresses(&["203.0.113.9"]));
    let both = annotated(&[
        ("metallb.universe.tf/address-pool", "old"),
        ("metallb.io/address-pool", "new"),
    ]);
    let read = ingest::service(&written("web", both), None);
    assert_eq!(read.deprecated, Vec::<&str>::new());
    let Input::Service(found) = read.input else {
        panic!("not served")
    };
    assert_eq!(found.wanted, world::from_pool("new"));
    assert_eq!(found.ports, claim_of(&written("web", json!({}))).ports);
    assert_eq!(found.families, world::claim("web").families);
}
