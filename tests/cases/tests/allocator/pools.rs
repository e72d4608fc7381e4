//! Which ranges are good, which pool serves, and what is left out.

use std::collections::BTreeSet;

use api_model::IpFamily;
use serde_json::json;

use super::*;
use crate::world::{Dice, claim, from_pool, ip};

/// The rows that B033 refuses, with the text that the message must hold.
const BAD: &[&[&str]] = &[
    &["203.0.113.20-203.0.113.10"],
    &["203.0.113.251-203.0.113.259"],
    &["203.0.113.240.203.0.113.250"],
    &["203.0.113.29,203.0.113.34"],
    &["203.0.113.0/33"],
    &["2001:db8::/129"],
    &["203.0.113.1-2001:db8::1"],
    &["::ffff:203.0.113.0/120"],
    &["::ffff:203.0.113.1-::ffff:203.0.113.9"],
    &["203.0.113.0/-1"],
    &["203.0.113.0/"],
    &["203.0.113"],
    &["203.0.113.01-203.0.113.09"],
    &["203.0.113.1-"],
    &["-203.0.113.9"],
    &["203.0.113.1--203.0.113.9"],
    &["- 2001:db8::46/128"],
    &[""],
    &["0.0.0.0/0"],
    &["::/0"],
    &["0.0.0.0-255.255.255.255"],
    &["127.0.0.0/8"],
    &["::1/128"],
    &["224.0.0.0/24"],
    &["ff02::/16"],
    &["169.254.10.0/24"],
    &["fe80::/64"],
    &["255.255.255.255/32"],
    &["2001:db8::1%eth0/128"],
    &[],
    &["203.0.113.20-203.0.113.10", "203.0.113.64/28"],
];

fn server() -> api_server::Server {
    let identity = api_server::Identity::generate(&["localhost"]).expect("an identity");
    let config = api_server::Config {
        seed: Some(33),
        ..api_server::Config::default()
    };
    let server = api_server::Server::new(&config, &identity).expect("a server");
    server.install_crds(api_types::crds()).expect("CRDs");
    server
}

fn pool_object(name: &str, addresses: &[&str]) -> Value {
    json!({
        "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": name, "namespace": "metallb-system"}, "spec": {"addresses": addresses},
    })
}

#[test]
fn b033_bad_range_table_is_refused_at_admission() {
    for row in BAD {
        let error = server()
            .create(pool_object("bad", row))
            .expect_err(&format!("{row:?} was accepted"));
        let message = error.to_string();
        assert!(message.contains("\"bad\""), "{message}");
        let text = row.first().copied().unwrap_or_default();
        assert!(message.contains(text), "{message} does not show {text:?}");
    }
    for good in ["203.0.113.1 - 203.0.113.9", "203.0.113.40-203.0.113.41\n"] {
        server().create(pool_object("good", &[good])).expect(good);
    }
}

/// Stored as if admission had been down, and the allocator restarted.
#[test]
fn b033_bad_range_disturbs_no_other_pool() {
    for row in BAD {
        let mut world = with_pools(vec![Pool::new("good", &["203.0.113.200/30"])]);
        world.service(user(
            "keeper",
            annotated(&[("metallb.io/loadBalancerIPs", "203.0.113.200")]),
        ));
        world.run();
        world.pool(Pool {
            created: 1,
            ..Pool::new("bad", row)
        });
        for restarted in [false, true] {
            if restarted {
                world.restart();
            }
            world.wait(SECONDS_10);
            assert_eq!(world.shows("keeper"), ["203.0.113.200"], "{row:?}");
            let reports = world.configuration.as_ref().expect("a report");
            assert_eq!(reports.len(), 1, "{row:?}: {reports:?}");
            assert_eq!(reports[0].pool, "bad".into());
            let text = row.first().map_or("empty", |text| text.trim());
            assert!(
                reports[0].problem.contains(text),
                "{:?} does not show {text:?}",
                reports[0].problem
            );
        }
        world.service(user(
            "late",
            annotated(&[("metallb.io/address-pool", "bad")]),
        ));
        world.run();
        assert_refused(&world, "late", "bad");
    }
}

#[test]
fn b034_small_pools_are_used_up() {
    let mut world = with_pools(vec![
        Pool::new("same", &["203.0.113.210-203.0.113.210"]),
        Pool::new("slash32", &["203.0.113.211/32"]),
        Pool::new("slash31", &["203.0.113.212/31"]),
        Pool::new("v6one", &["2001:db8:0:2::5/128"]),
        Pool::new("v6two", &["2001:db8:0:2::6/127"]),
    ]);
    let mut shown = BTreeSet::new();
    for n in 1..=5 {
        world.service(claim(&format!("s{n}")));
        world.service(ServiceClaim {
            families: vec![IpFamily::V6],
            ..claim(&format!("v{n}"))
        });
        world.run();
        shown.extend(world.shows(&format!("s{n}")));
        shown.extend(world.shows(&format!("v{n}")));
    }
    let expected = [
        "2001:db8:0:2::5",
        "2001:db8:0:2::6",
        "2001:db8:0:2::7",
        "203.0.113.210",
        "203.0.113.211",
        "203.0.113.212",
        "203.0.113.213",
    ];
    assert_eq!(
        shown.iter().map(String::as_str).collect::<Vec<_>>(),
        expected
    );
    assert!(failed(&world, "s5") && failed(&world, "v4") && failed(&world, "v5"));
}

#[test]
fn b016_priority_without_selectors_serves_everybody() {
    let mut world = with_pools(vec![
        Pool {
            priority: 50,
            ..Pool::new("low", &["203.0.113.80/32"])
        },
        Pool {
            priority: 10,
            ..Pool::new("high", &["203.0.113.90/32"])
        },
        Pool::new("none", &["203.0.113.100/32"]),
        Pool::new("zero", &["203.0.113.110/32"]),
    ]);
    for name in ["s1", "s2", "s3"] {
        world.service(claim(name));
        world.run();
    }
    // the last one: fixed by name among equals
    let shown = ["s1", "s2", "s3"].map(|name| world.shows(name).join(","));
    assert_eq!(shown, ["203.0.113.90", "203.0.113.80", "203.0.113.100"]);
}

/// Both entry orders; every address of 10,000 Services different; counters saturate, never negative.
#[test]
fn b030_ipv6_slash_64_pool() {
    for swap in [false, true] {
        let mut addresses = vec!["2001:db8:0:2::/64", "203.0.113.0/24"];
        if swap {
            addresses.reverse();
        }
        let mut world = with_pools(vec![
            Pool::new("huge", &addresses),
            Pool::new("huger", &["2001:db8:8000::/33", "2001:db8:4000::/34"]),
        ]);
        world.service(ServiceClaim {
            families: vec![IpFamily::V6],
            ..claim("v6")
        });
        world.service(claim("v4"));
        world.run();
        assert_eq!(world.shows("v6"), ["2001:db8:0:2::"]);
        let counters = world.counters("huge");
        assert_eq!((counters.available_v6, counters.assigned_v6), (i64::MAX, 1));
        assert_eq!(counters.available_v4 + counters.assigned_v4, 256);
        for n in 0..10_000 {
            world.service(ServiceClaim {
                families: vec![IpFamily::V6],
                ..claim(&format!("s{n}"))
            });
        }
        world.run();
        assert_eq!(world.shown().len(), 10_002);
        for n in 0..10_000 {
            world.delete(&format!("s{n}"));
        }
        world.wait(SECONDS_10);
        assert_eq!(
            (world.counters("huge").assigned_v6, world.records.len()),
            (1, 2)
        );
    }
}

#[test]
fn b036_pool_versus_node_address() {
    let mut world = World::new();
    world.node("node-a", &["192.0.2.11"]);
    world.node("node-b", &["192.0.2.12"]);
    world.pool(Pool::new("beside", &["192.0.2.13-192.0.2.37"]));
    world.pool(Pool {
        created: 1,
        ..Pool::new("over", &["192.0.2.8-192.0.2.11"])
    });
    world.run();
    let warned = |world: &World, pool: &str, texts: [&str; 2]| {
        world.events.iter().any(|(subject, reason, message)| {
            *subject == allocator_core::Subject::Pool(pool.into())
                && *reason == EventReason::AddressReserved
                && texts.iter().all(|text| message.contains(text))
        })
    };
    assert!(
        warned(&world, "over", ["192.0.2.11", "node-a"]),
        "{:?}",
        world.events
    );
    world.service(claim("s1"));
    world.run();
    assert_eq!(world.shows("s1"), ["192.0.2.13"]);
    world.node("node-c", &["192.0.2.13"]);
    world.service(claim("s2"));
    world.wait(Duration::from_secs(5));
    assert!(
        warned(&world, "beside", ["192.0.2.13", "node-c"]),
        "{:?}",
        world.events
    );
    assert_eq!(
        (world.shows("s1").join(","), world.shows("s2").join(",")),
        ("192.0.2.14".into(), "192.0.2.15".into())
    );
    for n in 0..40 {
        world.service(claim(&format!("more{n:02}")));
    }
    world.run();
    let shown = world.shown();
    assert!(
        !shown.contains_key(&ip("192.0.2.11")) && !shown.contains_key(&ip("192.0.2.13")),
        "{shown:?}"
    );
    assert_eq!(
        shown.len(),
        24 + 3,
        "the other addresses of both pools stay usable"
    );
}

/// The rule for overlaps: the older pool keeps the addresses, the younger hands nothing out until they are apart.
#[test]
fn b037_overlapping_ranges_are_harmless() {
    let server = server();
    server
        .create(pool_object("p1", &["203.0.113.0/28"]))
        .expect("p1");
    for (name, addresses) in [
        ("p2", "203.0.113.10-203.0.113.20"),
        ("p4", "203.0.113.15/32"),
    ] {
        let message = server
            .create(pool_object(name, &[addresses]))
            .expect_err(name)
            .to_string();
        assert!(
            message.contains(name) && message.contains("p1"),
            "{message}"
        );
    }

    let mut world = with_pools(vec![
        Pool {
            created: 1,
            ..Pool::new("p1", &["203.0.113.0/28"])
        },
        Pool {
            created: 2,
            ..Pool::new("p2", &["203.0.113.10-203.0.113.20"])
        },
        Pool {
            created: 3,
            ..Pool::new("p3", &["203.0.113.32/30", "203.0.113.34-203.0.113.35"])
        },
        Pool {
            created: 4,
            ..Pool::new("p4", &["203.0.113.15/32"])
        },
    ]);
    let reported = |world: &World| -> Vec<String> {
        let reports = world.configuration.iter().flatten();
        reports
            .map(|report| format!("{}: {}", report.pool, report.problem.contains("pool p1")))
            .collect()
    };
    assert_eq!(reported(&world), ["p2: true", "p4: true"]);
    assert_eq!(world.counters("p3").available_v4, 4);
    for n in 0..64 {
        world.service(ServiceClaim {
            created: n,
            ..claim(&format!("s{n:02}"))
        });
    }
    world.wait(Duration::from_secs(20));
    assert_eq!(world.shown().len(), 20, "p1 and p3");
    world.pool(Pool {
        created: 2,
        ..Pool::new("p2", &["203.0.113.16-203.0.113.20"])
    });
    world.wait(SECONDS_10);
    assert_eq!(world.shown().len(), 25);
    assert_eq!(reported(&world), ["p4: true"]);
    let holder = world.shown()[&ip("203.0.113.15")].clone();
    world.delete_pool("p4");
    world.wait(SECONDS_10);
    assert_eq!(world.shown()[&ip("203.0.113.15")], holder);
    assert!(world.shown().values().all(|holders| holders.len() == 1));
    assert_eq!(reported(&world), Vec::<String>::new());
}

/// The documented answer: an address that the flag leaves out is refused also when it is asked for.
#[test]
fn b038_network_and_broadcast_octets() {
    let on_request = |name: &str, addresses: &str, avoid_buggy: bool| Pool {
        auto_assign: false,
        avoid_buggy,
        ..Pool::new(name, &[addresses])
    };
    let mut world = with_pools(vec![
        on_request("plain", "203.0.113.0/24", false),
        on_request("careful", "198.51.100.0/24", true),
        on_request("tiny", "192.0.2.255/32", true),
        on_request("six", "2001:db8:0:2::/126", true),
    ]);
    assert_eq!(world.counters("careful").available_v4, 254);
    for (pool, families) in [
        ("plain", IpFamily::V4),
        ("careful", IpFamily::V4),
        ("tiny", IpFamily::V4),
        ("six", IpFamily::V6),
    ] {
        for n in 0..260 {
            let wanted = from_pool(pool);
            world.service(ServiceClaim {
                wanted,
                families: vec![families],
                ..claim(&format!("{pool}-{n:03}"))
            });
        }
    }
    world.run();
    let given = |prefix: &str| {
        world
            .shown()
            .keys()
            .filter(|address| address.to_string().starts_with(prefix))
            .count()
    };
    assert_eq!(
        ["203.0.113.", "198.51.100.", "192.0.2.", "2001:"].map(given),
        [256, 254, 0, 4]
    );
    let shown = world.shown();
    assert!(shown.contains_key(&ip("203.0.113.0")) && shown.contains_key(&ip("203.0.113.255")));
    assert!(!shown.contains_key(&ip("198.51.100.0")) && !shown.contains_key(&ip("198.51.100.255")));
    assert_refused(&world, "tiny-000", "tiny");
    world.service(user(
        "explicit",
        annotated(&[("metallb.io/loadBalancerIPs", "198.51.100.255")]),
    ));
    world.run();
    assert_refused(&world, "explicit", "198.51.100.255");
    assert_eq!(world.counters("careful").assigned_v4, 254);
}

/// Without the advertisements. Pools arrive in two orders; the answer does not depend on it.
#[test]
fn b156_thousand_pools() {
    let pool = |n: u32| Pool {
        created: i64::from(n),
        priority: if n < 100 { n + 1 } else { 0 },
        ..Pool::new(
            &format!("pool-{n:04}"),
            &[&format!("2001:db8:1:{n:x}::/120")],
        )
    };
    let mut outcomes = Vec::new();
    for seed in [1, 2] {
        let mut world = World::unsynced(allocator_core::Config::default());
        world.dice = Some(Dice(seed));
        world.pools = (0..1000)
            .map(pool)
            .map(|pool| (pool.name.clone(), pool))
            .collect();
        world.replay();
        world.dice = None;
        for n in 0..5000 {
            world.service(ServiceClaim {
                created: n,
                families: vec![IpFamily::V6],
                ..claim(&format!("s{n:04}"))
            });
        }
        world.run();
        assert_eq!(world.shown().len(), 5000);
        let writes = world.status_writes.len();
        world.pool(Pool {
            auto_assign: false,
            ..pool(500)
        });
        world.run();
        world.restart();
        if seed == 1 {
            (20..1000).for_each(|n| world.delete_pool(&format!("pool-{n:04}")));
        }
        world.wait(SECONDS_10);
        assert_eq!(world.status_writes.len(), writes, "nobody else is written");
        outcomes.push(world.shown());
    }
    assert_eq!(outcomes[0], outcomes[1], "priority, then name");
}
