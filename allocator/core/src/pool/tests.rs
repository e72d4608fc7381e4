//! Counting, overlaps and the order of picking.

use super::*;

fn pools(list: Vec<Pool>) -> Pools {
    let mut pools = Pools::default();
    for pool in list {
        pools.set(pool);
    }
    pools.refresh(|_| Vec::new());
    pools
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn state<'a>(pools: &'a Pools, name: &str) -> &'a PoolState {
    pools.get(&name.into()).unwrap()
}

fn drain(pools: &mut Pools, name: &str, family: IpFamily) -> Vec<IpAddr> {
    std::iter::from_fn(|| {
        let address = pools.pick(state(pools, name), family)?;
        pools.take(address);
        pools.handed_out(&name.into(), address);
        Some(address)
    })
    .collect()
}

#[test]
fn addresses_that_end_in_0_and_255_are_left_out_and_counted_so() {
    for (text, left) in [
        ("192.0.2.0/24", 254),
        ("192.0.2.255/32", 0),
        ("192.0.2.1-192.0.2.254", 254),
        ("192.0.2.255-192.0.3.0", 0),
        ("192.0.2.0-192.0.4.0", 508),
        ("2001:db8::/126", 4),
    ] {
        let mut pools = pools(vec![Pool {
            avoid_buggy: true,
            ..Pool::new("p", &[text])
        }]);
        let counters = pools.counters(state(&pools, "p"));
        assert_eq!(
            counters.available_v4 + counters.available_v6,
            left,
            "{text}"
        );
        let family = pools.get(&"p".into()).unwrap().ranges()[0].family();
        assert_eq!(
            drain(&mut pools, "p", family).len(),
            usize::try_from(left).unwrap(),
            "{text}"
        );
    }
}

#[test]
fn a_released_address_is_picked_again_last() {
    let mut pools = pools(vec![Pool::new(
        "p",
        &["192.0.2.10-192.0.2.11", "192.0.2.20/31"],
    )]);
    let first = pools.pick(state(&pools, "p"), IpFamily::V4).unwrap();
    assert_eq!(first, ip("192.0.2.10"));
    pools.take(first);
    pools.handed_out(&"p".into(), first);
    pools.release(first);
    let order = drain(&mut pools, "p", IpFamily::V4);
    assert_eq!(
        order,
        ["192.0.2.11", "192.0.2.20", "192.0.2.21", "192.0.2.10"].map(ip)
    );
}

#[test]
fn of_two_overlapping_pools_the_older_one_is_good() {
    let mut pools = pools(vec![
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
    let problem =
        |pools: &Pools, name: &str| state(pools, name).problem.as_ref().map(ToString::to_string);
    assert_eq!(problem(&pools, "p1"), None);
    let overlap = |other: &str, address: &str| {
        Some(format!(
            "spec.addresses overlaps with pool {other}, both hold {address}; take the addresses out of one of them"
        ))
    };
    assert_eq!(problem(&pools, "p2"), overlap("p1", "203.0.113.10"));
    assert_eq!(problem(&pools, "p4"), overlap("p1", "203.0.113.15"));
    assert_eq!(pools.counters(state(&pools, "p3")).available_v4, 4);
    pools.remove(&"p1".into());
    let changed = pools.refresh(|_| Vec::new());
    assert_eq!(changed, BTreeSet::from(["p2".into()]));
    assert_eq!(problem(&pools, "p2"), None);
    assert_eq!(problem(&pools, "p4"), overlap("p2", "203.0.113.15"));
}

#[test]
fn the_numbers_of_huge_pools_are_saturated() {
    let pools = pools(vec![Pool::new(
        "huge",
        &["2001:db8:0:2::/64", "2001:db8:8000::/33", "203.0.113.0/24"],
    )]);
    let expected = PoolCounters {
        assigned_v4: 0,
        assigned_v6: 0,
        available_v4: 256,
        available_v6: i64::MAX,
    };
    assert_eq!(pools.counters(state(&pools, "huge")), expected);
}

#[test]
fn pools_are_tried_by_priority_then_purpose_then_name() {
    let with = |name, priority, namespace: &[&str]| Pool {
        priority,
        namespaces: namespace.iter().map(|name| (*name).to_owned()).collect(),
        ..Pool::new(name, &[])
    };
    let list = [
        with("d", 0, &[]),
        with("c", 0, &["demo"]),
        with("b", 50, &[]),
        with("a", 10, &[]),
    ];
    let mut order: Vec<&Pool> = list.iter().collect();
    order.sort_by_key(|pool| selection::rank(pool));
    assert_eq!(
        order
            .iter()
            .map(|pool| pool.name.as_str())
            .collect::<Vec<_>>(),
        ["a", "b", "c", "d"]
    );
}
