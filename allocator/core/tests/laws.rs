//! The laws of the allocator (stated in `lib.rs`) against random histories: users, pools, nodes, lagging watches, writes
//! answered in any order, and crashes between any two of them. `PROPTEST_CASES=20000` runs that many histories.

mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use allocator_core::{FamilyPolicy, IdleService, Pool, PortUse, Reason, ServiceClaim, Uid};
use api_model::{AddressRange, IpFamily, Port, Protocol, ServiceKey};
use proptest::prelude::*;
use world::{Dice, World, addresses, claim, key, tcp};

const SERVICES: usize = 8;

/// Something that happens to the cluster.
#[derive(Clone, Debug)]
enum Happening {
    Create(usize),
    Delete(usize),
    Idle(usize),
    Want(usize, u8),
    Wipe(usize),
    Pool(usize, bool),
    Node(u8),
    Steps(usize),
    Wait(u64),
    Crash,
}

fn happening() -> impl Strategy<Value = Happening> {
    let service = 0..SERVICES;
    prop_oneof![
        4 => service.clone().prop_map(Happening::Create),
        2 => service.clone().prop_map(Happening::Delete),
        1 => service.clone().prop_map(Happening::Idle),
        1 => (service.clone(), 0_u8..9).prop_map(|(service, octet)| Happening::Want(service, octet)),
        1 => service.prop_map(Happening::Wipe),
        1 => (0..POOLS.len(), any::<bool>()).prop_map(|(pool, there)| Happening::Pool(pool, there)),
        1 => (0_u8..8).prop_map(Happening::Node),
        4 => (1_usize..12).prop_map(Happening::Steps),
        2 => (0_u64..5).prop_map(Happening::Wait),
        1 => Just(Happening::Crash),
    ]
}

const POOLS: [(&str, &[&str]); 4] = [
    ("a", &["192.0.2.0-192.0.2.1", "2001:db8::/126"]),
    ("b", &["192.0.2.4/30"]),
    ("bad", &["192.0.2.8/33", "192.0.2.3/32"]),
    ("over", &["192.0.2.1-192.0.2.5"]),
];

fn pool(place: usize) -> Pool {
    let (name, addresses) = POOLS[place];
    Pool {
        created: i64::try_from(place).expect("small"),
        ..Pool::new(name, addresses)
    }
}

/// Service number `n`: some share, some are dual stack, each asks for nothing.
fn service(n: usize, uid: &str) -> ServiceClaim {
    let dual = n % 4 == 3;
    let udp = PortUse {
        protocol: Protocol::Udp,
        port: Port::new(80).expect("not 0"),
    };
    ServiceClaim {
        uid: uid.into(),
        created: i64::try_from(n).expect("small"),
        families: if dual {
            vec![IpFamily::V4, IpFamily::V6]
        } else {
            vec![IpFamily::V4]
        },
        policy: [FamilyPolicy::SingleStack, FamilyPolicy::PreferDualStack][usize::from(dual)],
        ports: BTreeSet::from([if n.is_multiple_of(2) { tcp(80) } else { udp }]),
        sharing_key: (n < 3).then(|| "shared".into()),
        ..claim(&format!("s{n}"))
    }
}

fn may_share(a: &ServiceClaim, b: &ServiceClaim) -> bool {
    a.sharing_key.is_some()
        && a.sharing_key == b.sharing_key
        && a.ports.is_disjoint(&b.ports)
        && a.backend == b.backend
}

struct History {
    world: World,
    made: u32,
}

impl History {
    fn happen(&mut self, happening: &Happening) {
        let world = &mut self.world;
        match happening {
            Happening::Create(n) => {
                let there = world
                    .services
                    .get(&key(&format!("s{n}")))
                    .map(|claim| claim.uid.clone());
                self.made += 1;
                let uid = there.unwrap_or_else(|| format!("uid-{}", self.made).into());
                world.service(service(*n, &uid));
            }
            Happening::Delete(n) => world.delete(&format!("s{n}")),
            Happening::Idle(n) => {
                let key = key(&format!("s{n}"));
                if let Some(claim) = world.services.get(&key) {
                    let uid: Uid = claim.uid.clone();
                    let shows = claim.shown.pool.is_some();
                    world.idle(IdleService {
                        key,
                        uid,
                        reason: Reason::NotLoadBalancer,
                        shows,
                    });
                }
            }
            Happening::Want(n, octet) => {
                if let Some(claim) = world.services.get(&key(&format!("s{n}"))).cloned() {
                    let wanted = addresses(&[&format!("192.0.2.{octet}")]);
                    world.service(ServiceClaim { wanted, ..claim });
                }
            }
            Happening::Wipe(n) => {
                if let Some(mut claim) = world.services.get(&key(&format!("s{n}"))).cloned() {
                    claim.shown.addresses.clear();
                    world.put_service(claim);
                }
            }
            Happening::Pool(place, true) => world.pool(pool(*place)),
            Happening::Pool(place, false) => world.delete_pool(POOLS[*place].0),
            Happening::Node(octet) => world.node("n", &[&format!("192.0.2.{octet}")]),
            Happening::Steps(count) => {
                for _ in 0..*count {
                    world.step();
                }
            }
            Happening::Wait(seconds) => world.wait(Duration::from_secs(*seconds)),
            Happening::Crash => {
                world.crash();
                world.replay();
            }
        }
    }
}

/// No two Services show one address unless they may share it, at any moment.
fn no_address_is_shown_twice(world: &World) -> Result<(), TestCaseError> {
    for (address, keys) in world.shown() {
        let claims: Vec<&ServiceClaim> = keys
            .iter()
            .filter_map(|key| world.services.get(key))
            .collect();
        for (place, one) in claims.iter().enumerate() {
            for other in &claims[place + 1..] {
                prop_assert!(
                    may_share(one, other),
                    "{address} is shown by {} and {}",
                    one.key,
                    other.key
                );
            }
        }
    }
    Ok(())
}

/// The bits of each good pool are exactly the addresses in the ledger.
fn bits_are_the_ledger(world: &World) -> Result<(), TestCaseError> {
    let held = world.allocator.holders();
    for (place, (name, texts)) in POOLS.iter().enumerate() {
        let Some(counters) = world.allocator.counters(&(*name).into()) else {
            continue;
        };
        let ranges: Vec<AddressRange> = texts
            .iter()
            .map(|text| text.parse().expect("a range"))
            .collect();
        let inside = held
            .keys()
            .filter(|address| ranges.iter().any(|range| range.contains(**address)));
        let counted = counters.assigned_v4 + counters.assigned_v6;
        prop_assert_eq!(
            i64::try_from(inside.count()).expect("small"),
            counted,
            "pool {} ({})",
            name,
            place
        );
    }
    Ok(())
}

/// Once all is quiet: each Service shows what it holds, each held address has its record, nothing is held elsewhere,
/// and nobody waits while there is room.
fn all_is_well_when_quiet(world: &World) -> Result<(), TestCaseError> {
    let mut recorded: BTreeMap<IpAddr, BTreeSet<ServiceKey>> = BTreeMap::new();
    for (address, record) in &world.records {
        recorded.insert(*address, record.holders.keys().cloned().collect());
    }
    prop_assert_eq!(&world.allocator.holders(), &recorded, "ledger and records");
    for (key, claim) in &world.services {
        let mut shown: Vec<IpAddr> = claim.shown.addresses.clone();
        shown.sort();
        prop_assert_eq!(
            &world.allocator.addresses_of(key),
            &shown,
            "{} shows what it holds",
            key
        );
        for address in &shown {
            prop_assert!(
                !world.nodes.values().any(|node| node.contains(address)),
                "{} has a node's address",
                key
            );
            let in_pool = world.pools.values().any(|pool| {
                pool.addresses
                    .iter()
                    .filter_map(|text| text.parse().ok())
                    .any(|range: AddressRange| range.contains(*address))
            });
            prop_assert!(in_pool, "{key} holds {address}, which is in no pool");
        }
        let asks_for_nothing = claim
            .wanted
            .as_ref()
            .is_ok_and(|wanted| wanted.addresses.is_empty());
        if shown.is_empty() && asks_for_nothing {
            for name in world.pools.keys() {
                let left = world
                    .allocator
                    .counters(name)
                    .map_or(0, |counters| counters.available_v4);
                prop_assert_eq!(left, 0, "{} waits, but {} has room", key, name);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn laws_hold_through_any_history(
        seed in 1_u64..,
        happenings in prop::collection::vec(happening(), 1..60),
    ) {
        let mut world = World::new();
        world.dice = Some(Dice(seed));
        world.pool(pool(0));
        let mut history = History { world, made: 0 };
        for happening in &happenings {
            history.happen(happening);
            no_address_is_shown_twice(&history.world)?;
            bits_are_the_ledger(&history.world)?;
        }
        history.world.wait(Duration::from_secs(60));
        no_address_is_shown_twice(&history.world)?;
        all_is_well_when_quiet(&history.world)?;
        // crash + replay = same state, whatever the order of what is told, and without a write to any Service
        for _ in 0..3 {
            let before = (history.world.allocator.holders(), history.world.shown());
            let writes = (history.world.status_writes.len(), history.world.record_writes);
            history.world.restart();
            history.world.wait(Duration::from_secs(60));
            prop_assert_eq!(before, (history.world.allocator.holders(), history.world.shown()));
            prop_assert_eq!(writes, (history.world.status_writes.len(), history.world.record_writes));
        }
    }

    #[test]
    fn a_holder_never_moves_because_of_others(
        seed in 1_u64..,
        happenings in prop::collection::vec((1..SERVICES, any::<bool>()), 1..40),
    ) {
        let mut world = World::new();
        world.dice = Some(Dice(seed));
        world.pool(pool(0));
        world.pool(pool(1));
        world.service(service(0, "uid"));
        world.run();
        let first = world.shows("s0");
        prop_assert_eq!(first.len(), 1);
        for (n, create) in happenings {
            if create {
                world.service(service(n, &format!("uid-{n}")));
            } else {
                world.delete(&format!("s{n}"));
            }
            if n % 3 == 0 {
                world.wait(Duration::from_secs(3));
            }
            prop_assert_eq!(&world.shows("s0"), &first);
        }
        world.run();
        let of_first = world.status_writes.iter().filter(|write| write.key == key("s0"));
        prop_assert_eq!(of_first.count(), 1);
    }
}
