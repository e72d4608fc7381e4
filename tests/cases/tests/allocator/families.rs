//! One address or two.

use allocator_core::FamilyPolicy::{self, PreferDualStack, RequireDualStack, SingleStack};
use api_model::IpFamily::{self, V4, V6};
use serde_json::json;

use super::*;
use crate::world::claim;

/// Policy, families, pools that may be used, what is shown, a piece of the event.
type Row = (
    FamilyPolicy,
    &'static [IpFamily],
    &'static [&'static str],
    &'static [&'static str],
    &'static str,
);

/// The documented answer for two pools of one family each: none, since a pair comes from one pool.
#[test]
fn b133_prefer_dual_stack_falls_back() {
    let rows: [Row; 7] = [
        (
            PreferDualStack,
            &[V4, V6],
            &["v4"],
            &["203.0.113.0"],
            "single-stack",
        ),
        (
            PreferDualStack,
            &[V6, V4],
            &["v4"],
            &["203.0.113.0"],
            "single-stack",
        ),
        (
            PreferDualStack,
            &[V4, V6],
            &["v4", "both"],
            &["198.51.100.0", "2001:db8:0:4::"],
            "both",
        ),
        (RequireDualStack, &[V4, V6], &["v4"], &[], "IPv4+IPv6"),
        (RequireDualStack, &[V4, V6], &["v4", "v6"], &[], "IPv4+IPv6"),
        (SingleStack, &[V6], &["both"], &["2001:db8:0:4::"], "both"),
        (SingleStack, &[V6], &["v4"], &[], "IPv6"),
    ];
    for (policy, families, usable, expected, event) in rows {
        let pool = |name: &str, addresses: &[&str]| Pool {
            auto_assign: usable.contains(&name),
            ..Pool::new(name, addresses)
        };
        let mut world = with_pools(vec![
            pool("v4", &["203.0.113.0/30"]),
            pool("v6", &["2001:db8:0:2::/126"]),
            pool("both", &["198.51.100.0/30", "2001:db8:0:4::/126"]),
        ]);
        world.service(ServiceClaim {
            policy,
            families: families.to_vec(),
            ..claim("web")
        });
        world.wait(Duration::from_secs(5));
        let row = format!("{policy:?} {families:?} {usable:?}");
        assert_eq!(world.shows("web"), expected, "{row}");
        let events = world.events_of("web");
        assert!(
            events.iter().any(|(_, message)| message.contains(event)),
            "{row}: {events:?}"
        );
        assert_eq!(
            warnings(&world, "web").is_empty(),
            !expected.is_empty(),
            "{row}: {events:?}"
        );
        world.delete("web");
        world.wait(SECONDS_10);
        for name in ["v4", "v6", "both"] {
            let counters = world.counters(name);
            assert_eq!(
                (counters.assigned_v4, counters.assigned_v6),
                (0, 0),
                "{row}: {name} leaks"
            );
        }
    }
}

#[test]
fn the_order_of_addresses_follows_the_families() {
    let mut world = with_pools(vec![Pool::new(
        "both",
        &["198.51.100.0/30", "2001:db8:0:4::/126"],
    )]);
    world.service(ServiceClaim {
        policy: RequireDualStack,
        families: vec![V6, V4],
        ..claim("web")
    });
    world.run();
    assert_eq!(world.shows("web"), ["2001:db8:0:4::", "198.51.100.0"]);
}

#[test]
fn b134_addresses_match_cluster_ip_families() {
    let mut world = with_pools(vec![Pool::new(
        "both",
        &["203.0.113.0/28", "2001:db8:0:2::/120"],
    )]);
    world.service(user(
        "web",
        json!({"spec": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4"]}}),
    ));
    world.service(user(
        "bad",
        annotated(&[("metallb.io/loadBalancerIPs", "2001:db8:0:2::9")]),
    ));
    world.wait(SECONDS_10);
    let first = world.shows("web");
    assert_eq!(first.len(), 1);
    assert!(first[0].starts_with("203.0.113."), "{first:?}");
    assert_refused(&world, "bad", "IPv6");
    world.restart();
    let touched = json!({
        "metadata": {"labels": {"touch": "1"}},
        "spec": {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4"]},
    });
    world.service(user("web", touched));
    world.wait(SECONDS_10);
    assert_eq!(world.shows("web"), first);
    assert_eq!(world.counters("both").assigned_v6, 0);
}

/// semantics of KEP-563 for load balancer addresses: the first address never changes because the second does.
#[test]
fn policy_changes_move_only_the_second_address() {
    let mut world = with_pools(vec![Pool::new(
        "both",
        &["203.0.113.0/28", "2001:db8:0:2::/120"],
    )]);
    let with = |policy| ServiceClaim {
        policy,
        families: vec![V4, V6],
        ..claim("web")
    };
    for (policy, expected) in [
        (SingleStack, &["203.0.113.0"][..]),
        (RequireDualStack, &["203.0.113.0", "2001:db8:0:2::"]),
        (PreferDualStack, &["203.0.113.0", "2001:db8:0:2::"]),
        (SingleStack, &["203.0.113.0"]),
    ] {
        world.service(with(policy));
        world.wait(SECONDS_10);
        assert_eq!(world.shows("web"), expected, "{policy:?}");
    }
    // a second one comes as soon as the pool has one
    let mut world = with_pools(vec![Pool::new("p", &["203.0.113.0/28"])]);
    world.service(with(PreferDualStack));
    world.run();
    assert_eq!(world.shows("web"), ["203.0.113.0"]);
    world.pool(Pool::new("p", &["203.0.113.0/28", "2001:db8:0:2::/120"]));
    world.run();
    assert_eq!(world.shows("web"), ["203.0.113.0", "2001:db8:0:2::"]);
}
