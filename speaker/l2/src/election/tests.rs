//! Laws of the election as properties, its balance, and its values.

use proptest::prelude::*;

use super::*;

fn candidates(names: &[String], preferences: &[u32]) -> BTreeMap<NodeName, u32> {
    names
        .iter()
        .zip(preferences.iter().chain(std::iter::repeat(&0)))
        .map(|(n, p)| (n.as_str().into(), *p))
        .collect()
}

fn vip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from)
    ]
}

fn group() -> impl Strategy<Value = BTreeMap<NodeName, u32>> {
    let names = prop::collection::vec("[a-z]{1,3}-[0-9]{1,2}", 0..12);
    (names, prop::collection::vec(0_u32..3, 12))
        .prop_map(|(names, weights)| candidates(&names, &weights))
}

proptest! {
    #[test]
    fn equal_views_elect_one_candidate_of_the_highest_preference(vip in vip(), group in group()) {
        let copy = group.clone();
        let holder = elect(vip, &group);
        prop_assert_eq!(holder, elect(vip, &copy));
        prop_assert_eq!(holder.is_none(), group.is_empty());
        if let Some(holder) = holder {
            prop_assert_eq!(group.get(holder), group.values().max());
        }
    }

    #[test]
    fn a_lost_loser_moves_nothing(vip in vip(), group in group()) {
        let holder = elect(vip, &group);
        for loser in group.keys().filter(|name| Some(*name) != holder) {
            let mut rest = group.clone();
            rest.remove(loser);
            prop_assert_eq!(elect(vip, &rest), holder, "without {}", loser);
        }
    }

    #[test]
    fn a_newcomer_takes_a_vip_or_leaves_it(vip in vip(), group in group(), name in "[a-z]{4}") {
        let before = elect(vip, &group).cloned();
        let mut more = group.clone();
        more.insert(name.as_str().into(), 0);
        let after = elect(vip, &more).cloned();
        prop_assert!(after == before || after == Some(name.as_str().into()));
    }
}

#[test]
fn vips_spread_over_equal_nodes() {
    for (nodes, vips, least, most) in [(3_usize, 240_u8, 60, 100), (10, 250, 10, 42)] {
        let names: Vec<_> = (1..=nodes).map(|n| format!("node-{n}")).collect();
        let group = candidates(&names, &[]);
        let mut held: BTreeMap<&NodeName, usize> = group.keys().map(|name| (name, 0)).collect();
        for last in 0..vips {
            let vip = IpAddr::from([192, 0, 2, last]);
            *held
                .get_mut(elect(vip, &group).expect("there are candidates"))
                .expect("a candidate") += 1;
        }
        assert!(
            held.values().all(|count| (least..=most).contains(count)),
            "{nodes} nodes: {held:?}"
        );
    }
}

#[test]
fn scores_are_part_of_the_protocol_and_do_not_change() {
    let scores = ["192.0.2.10", "192.0.2.11", "2001:db8:2::10"]
        .map(|vip| score(vip.parse().unwrap(), &"node-1".into()));
    assert_eq!(
        scores.map(|score| format!("{score:016x}")),
        ["10f0feec8b74e488", "462ebaa59eb6bd60", "f09090bb82264ab7"]
    );
}
