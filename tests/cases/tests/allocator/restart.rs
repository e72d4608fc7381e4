//! Holders keep their addresses: over restarts, deletions of others, and damage to the status.

use super::*;
use crate::world::{Dice, claim, ip, key};
use allocator_core::{Config, Shown};
use api_model::PoolName;

/// 20 cold starts, the list in another order each time, the pending Service touched while the list is read.
#[test]
fn b001_restart_adopts_before_allocating() {
    for seed in 1..=20 {
        let mut world = World::unsynced(Config::default());
        let pool = Pool::new("one", &["203.0.113.7/32"]);
        world.pools.insert(pool.name.clone(), pool);
        let mut pending = claim("a-pending");
        let mut holder = ServiceClaim {
            created: 1,
            ..claim("z-holder")
        };
        holder.shown.addresses = vec![ip("203.0.113.7")];
        world.services.insert(key("z-holder"), holder);
        world.dice = Some(Dice(seed));
        pending
            .labels
            .insert("touched".to_owned(), "yes".to_owned());
        world.input(Input::Service(Box::new(pending.clone())));
        world.services.insert(key("a-pending"), pending);
        world.replay();
        world.wait(SECONDS_10);

        assert_eq!(world.shows("z-holder"), ["203.0.113.7"]);
        assert_eq!(world.shows("a-pending"), Vec::<String>::new());
        assert!(failed(&world, "a-pending"));
        let writes = world
            .status_writes
            .iter()
            .filter(|write| write.key == key("z-holder"));
        assert_eq!(
            writes.count(),
            0,
            "seed {seed}: the holder's status was written"
        );
        assert_eq!(world.events_of("z-holder"), []);
    }
}

#[test]
fn b003_delete_does_not_shuffle() {
    let mut world = with_pools(vec![Pool::new("p", &["203.0.113.2-203.0.113.6"])]);
    world.service(user(
        "s1",
        serde_json::json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}}),
    ));
    world.service(user("s2", serde_json::json!({})));
    world.service(user("s3", serde_json::json!({})));
    world.run();
    let before = (world.shows("s2"), world.shows("s3"));
    let events = world.events.len();
    assert_eq!(
        [world.shows("s1").len(), before.0.len(), before.1.len()],
        [1, 1, 1]
    );
    world.delete("s1");
    world.wait(SECONDS_10);
    world.restart();
    world.wait(SECONDS_10);
    assert_eq!((world.shows("s2"), world.shows("s3")), before);
    assert_eq!(world.counters("p").assigned_v4, 2);
    assert_eq!(world.events.len(), events, "{:?}", world.events);
}

#[test]
fn b006_pool_edit_keeps_contained_addresses() {
    let mut world = with_pools(vec![Pool::new("public", &["203.0.113.120-203.0.113.127"])]);
    world.service(claim("s1"));
    world.service(user(
        "s2",
        annotated(&[("metallb.io/loadBalancerIPs", "203.0.113.126")]),
    ));
    world.service(claim("s3"));
    world.run();
    let shown = |world: &World| ["s1", "s2", "s3"].map(|name| world.shows(name));
    let before = shown(&world);
    for addresses in [
        &["203.0.113.117-203.0.113.127"][..],
        &["203.0.113.117-203.0.113.122", "203.0.113.126-203.0.113.127"],
        &["203.0.113.126-203.0.113.127", "203.0.113.117-203.0.113.122"],
    ] {
        world.pool(Pool::new("public", addresses));
        world.wait(Duration::from_secs(5));
        assert_eq!(shown(&world), before, "{addresses:?}");
    }
    world.delete_pool("public");
    world.wait(Duration::from_secs(1));
    assert_eq!(shown(&world), before, "within the grace period");
    world.pool(Pool::new("renamed", &["203.0.113.117-203.0.113.127"]));
    world.wait(SECONDS_10);
    assert_eq!(shown(&world), before);
    assert_eq!(world.counters("renamed").assigned_v4, 3);
    let pool: Option<PoolName> = world.services[&key("s1")].shown.pool.clone();
    assert_eq!(pool, Some("renamed".into()));
}

/// Without the speakers' part. The address is taken until the drain time is over, so that nobody answers for it meanwhile.
#[test]
fn b008_lb_to_cluster_ip_releases() {
    let mut world = World::unsynced(Config::default());
    let pool = Pool::new("p", &["192.0.2.240/32"]);
    world.pools.insert(pool.name.clone(), pool);
    let mut web = claim("web");
    web.shown = Shown {
        addresses: vec![ip("192.0.2.240")],
        ..Shown::default()
    };
    world.services.insert(key("web"), web);
    world.services.insert(
        key("next"),
        ServiceClaim {
            created: 1,
            ..claim("next")
        },
    );
    world.replay();
    world.run();
    assert_eq!(
        (world.shows("web"), world.shows("next")),
        (vec!["192.0.2.240".to_owned()], vec![])
    );
    to_cluster_ip(&mut world, "web");
    world.wait(Duration::from_secs(1));
    assert!(!world.idle[&key("web")].shows, "the old status is cleared");
    assert_eq!(
        world.shows("next"),
        Vec::<String>::new(),
        "not before the drain time is over"
    );
    world.wait(Duration::from_secs(9));
    assert_eq!(world.shows("next"), ["192.0.2.240"]);
}

#[test]
fn b007_waiter_is_served_on_release() {
    let mut world = with_pools(vec![Pool::new("full", &["203.0.113.10-203.0.113.11"])]);
    for (created, name) in (0..).zip(["s1", "s2"]) {
        world.service(ServiceClaim {
            created,
            ..claim(name)
        });
        world.run();
    }
    // w2 comes first in the alphabet of creation only: by name it would be the other way round
    world.service(ServiceClaim {
        created: 8,
        ..claim("w2-younger")
    });
    world.service(ServiceClaim {
        created: 7,
        ..claim("x1-older")
    });
    world.run();
    assert!(failed(&world, "x1-older") && failed(&world, "w2-younger"));
    let (of_s1, of_s2) = (world.shows("s1"), world.shows("s2"));
    world.delete("s1");
    world.wait(Duration::from_secs(5));
    assert_eq!(
        (world.shows("x1-older"), world.shows("w2-younger")),
        (of_s1, vec![])
    );
    to_cluster_ip(&mut world, "s2");
    world.wait(Duration::from_secs(5));
    assert_eq!(world.shows("w2-younger"), of_s2);
}

/// The documented choice: records outlive the status, so both get their recorded addresses back.
#[test]
fn b146_cleared_status_is_restored() {
    let mut world = with_pools(vec![Pool::new("p", &["203.0.113.0/28"])]);
    world.service(claim("a"));
    world.service(claim("b"));
    world.run();
    let (of_a, of_b) = (world.shows("a"), world.shows("b"));
    let damage = |world: &mut World, name: &str, addresses: Vec<std::net::IpAddr>| {
        let mut claim = world.services[&key(name)].clone();
        claim.shown.addresses = addresses;
        world.put_service(claim);
    };
    damage(&mut world, "a", Vec::new());
    world.run();
    assert_eq!(
        (world.shows("a"), world.shows("b")),
        (of_a.clone(), of_b.clone())
    );
    damage(&mut world, "a", vec![ip(&of_b[0])]);
    world.run();
    assert_eq!(
        (world.shows("a"), world.shows("b")),
        (of_a.clone(), of_b.clone())
    );

    world.crash();
    damage(&mut world, "a", Vec::new());
    damage(&mut world, "b", Vec::new());
    world.service(ServiceClaim {
        created: -1,
        ..claim("c")
    });
    world.replay();
    world.wait(Duration::from_secs(5));
    assert_eq!((world.shows("a"), world.shows("b")), (of_a, of_b));
    assert_eq!(world.shows("c").len(), 1);
}

/// Two allocators without any election on one store, each seeing the watch late, all writes in random order.
#[test]
fn b154_two_allocators_never_double_assign() {
    for seed in 1..=12 {
        let mut a = with_pools(vec![
            Pool::new("p", &["203.0.113.0/26"]),
            Pool::new("ports", &["203.0.113.64/32"]),
        ]);
        let mut b = a.clone();
        let mut dice = Dice(seed);
        for n in 0..64 {
            let claim = claim(&format!("s{n}"));
            a.service(claim.clone());
            b.service(claim);
        }
        // one store: whoever acts takes it over with all its news, which the other sees as watch events
        while !(a.writes.is_empty()
            && b.writes.is_empty()
            && a.watch.is_empty()
            && b.watch.is_empty())
        {
            let (actor, other) = if dice.below(2) == 0 {
                (&mut a, &mut b)
            } else {
                (&mut b, &mut a)
            };
            let seen = actor.watch.len();
            actor.dice = Some(Dice(dice.0));
            dice.below(2);
            let had = actor.watch.front().cloned();
            actor.step();
            let consumed =
                usize::from(actor.watch.len() < seen || actor.watch.front() != had.as_ref());
            let news: Vec<Input> = actor
                .watch
                .iter()
                .skip(seen - consumed.min(seen))
                .cloned()
                .collect();
            other.watch.extend(news);
            other.records.clone_from(&actor.records);
            other.services.clone_from(&actor.services);
            other.pools.clone_from(&actor.pools);
            other.version = actor.version;
            for (address, holders) in actor.shown() {
                assert_eq!(
                    holders.len(),
                    1,
                    "seed {seed}: {address} is shown by {holders:?}"
                );
            }
        }
        a.wait(SECONDS_10);
        let shown = a.shown();
        assert_eq!(shown.len(), 64, "seed {seed}: everybody is served");
        let recorded: Vec<_> = a.records.keys().copied().collect();
        assert_eq!(
            recorded,
            shown.keys().copied().collect::<Vec<_>>(),
            "seed {seed}: nothing leaked"
        );
    }
}
