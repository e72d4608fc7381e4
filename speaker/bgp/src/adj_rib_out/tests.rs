use proptest::prelude::*;

use super::*;
use crate::{Communities, Community, wire::oracle::Table};
use api_model::Asn;

fn context() -> UpdateContext {
    UpdateContext {
        local_asn: Asn(64512),
        internal: true,
        four_octet_as: true,
        next_hop_v4: Some("192.0.2.11".parse().unwrap()),
        next_hop_v6: Some("2001:db8::11".parse().unwrap()),
    }
}

fn both() -> BTreeSet<IpFamily> {
    BTreeSet::from([IpFamily::V4, IpFamily::V6])
}

/// Sends until nothing is left, into the peer's table.
fn settle(
    rib: &mut AdjRibOut,
    table: &mut Table,
    wanted: &Routes,
    context: &UpdateContext,
) -> usize {
    let mut count = 0;
    loop {
        let batch = rib.next_batch(wanted, &both(), context);
        if batch.is_empty() {
            return count;
        }
        count += batch.len();
        for message in &batch {
            table.apply(message, true);
        }
    }
}

/// What the peer understood, in our words.
fn understood(table: &Table) -> Routes {
    table
        .routes
        .iter()
        .map(|(&prefix, heard)| {
            let next_hop = if prefix.addr().is_ipv4() {
                "192.0.2.11"
            } else {
                "2001:db8::11"
            };
            assert_eq!(heard.next_hop.to_string(), next_hop);
            let route = Route {
                local_pref: heard.local_pref,
                communities: heard.communities.clone(),
            };
            (prefix, route)
        })
        .collect()
}

fn any_prefix() -> impl Strategy<Value = IpNet> {
    prop_oneof![
        (0..64_u32, 20..=32_u8).prop_map(|(n, length)| {
            ipnet::Ipv4Net::new((0xcb00_0000 | n).into(), length)
                .unwrap()
                .trunc()
                .into()
        }),
        (0..64_u128, 40..=128_u8).prop_map(|(n, length)| {
            ipnet::Ipv6Net::new((0x2001_0db8_u128 << 96 | n).into(), length)
                .unwrap()
                .trunc()
                .into()
        }),
    ]
}

fn any_route() -> impl Strategy<Value = Route> {
    (1..3_u32, prop::collection::btree_set(0..4_u32, 0..3)).prop_map(|(pref, plain)| Route {
        local_pref: Some(pref),
        communities: Communities {
            plain: plain.into_iter().map(Community).collect(),
            ..Communities::default()
        },
    })
}

fn any_routes() -> impl Strategy<Value = Routes> {
    prop::collection::btree_map(any_prefix(), any_route(), 0..40)
}

proptest! {
    /// The law: whatever was wanted in between, the peer's table ends as the wanted routes.
    #[test]
    fn all_updates_applied_to_an_empty_table_give_the_wanted_routes(
        steps in prop::collection::vec(any_routes(), 1..6),
    ) {
        let (mut rib, mut table) = (AdjRibOut::default(), Table::default());
        for wanted in &steps {
            settle(&mut rib, &mut table, wanted, &context());
            prop_assert_eq!(&understood(&table), wanted);
            prop_assert_eq!(settle(&mut rib, &mut table, wanted, &context()), 0);
        }
    }

    /// A batch may be cut short by a change of mind; the next one starts from what was really sent.
    #[test]
    fn a_change_between_batches_loses_nothing(first in any_routes(), last in any_routes()) {
        let (mut rib, mut table) = (AdjRibOut::default(), Table::default());
        for message in rib.next_batch(&first, &both(), &context()) {
            table.apply(&message, true);
        }
        settle(&mut rib, &mut table, &last, &context());
        prop_assert_eq!(understood(&table), last);
    }
}

#[test]
fn a_changed_attribute_is_announced_again_without_a_withdrawal() {
    let prefix: IpNet = "203.0.113.1/32".parse().unwrap();
    let route = |pref| Route {
        local_pref: Some(pref),
        ..Route::default()
    };
    let (mut rib, mut table) = (AdjRibOut::default(), Table::default());
    for pref in [100, 200, 300] {
        settle(
            &mut rib,
            &mut table,
            &Routes::from([(prefix, route(pref))]),
            &context(),
        );
    }
    assert_eq!(table.withdrawals, 0);
    assert_eq!(table.routes[&prefix].local_pref, Some(300));
}

#[test]
fn ten_thousand_routes_with_one_set_of_attributes_take_few_messages() {
    let wanted: Routes = (0..10_000_u32)
        .map(|n| {
            (
                ipnet::Ipv4Net::new((0x0a00_0000 + n).into(), 32)
                    .unwrap()
                    .into(),
                Route {
                    local_pref: Some(100),
                    ..Route::default()
                },
            )
        })
        .collect();
    let (mut rib, mut table) = (AdjRibOut::default(), Table::default());
    let messages = settle(&mut rib, &mut table, &wanted, &context());
    assert_eq!(understood(&table), wanted);
    assert!(messages <= 20, "{messages} messages");
}

#[test]
fn what_has_no_next_hop_or_is_not_carried_is_not_sent() {
    let wanted: Routes = ["203.0.113.1/32", "2001:db8::1/128"]
        .into_iter()
        .map(|prefix| (prefix.parse().unwrap(), Route::default()))
        .collect();
    let no_v6 = UpdateContext {
        next_hop_v6: None,
        ..context()
    };
    let mut rib = AdjRibOut::default();
    assert_eq!(rib.next_batch(&wanted, &both(), &no_v6).len(), 1);
    assert_eq!(rib.len(), 1);
    let mut rib = AdjRibOut::default();
    let only_v6 = BTreeSet::from([IpFamily::V6]);
    assert_eq!(rib.next_batch(&wanted, &only_v6, &no_v6).len(), 0);
    assert!(rib.is_empty());
}

#[test]
fn a_refreshed_family_is_sent_again_and_the_other_is_not() {
    let wanted: Routes = ["203.0.113.1/32", "2001:db8::1/128"]
        .into_iter()
        .map(|prefix| (prefix.parse().unwrap(), Route::default()))
        .collect();
    let mut rib = AdjRibOut::default();
    rib.next_batch(&wanted, &both(), &context());
    rib.repeat(IpFamily::V4);
    let again = rib.next_batch(&wanted, &both(), &context());
    let mut table = Table::default();
    for message in &again {
        table.apply(message, true);
    }
    assert_eq!(
        table
            .routes
            .keys()
            .map(ToString::to_string)
            .collect::<Vec<_>>(),
        ["203.0.113.1/32"]
    );
}

#[test]
fn a_prefix_that_goes_during_a_refresh_is_still_withdrawn() {
    let prefix: IpNet = "203.0.113.1/32".parse().unwrap();
    let (mut rib, mut table) = (AdjRibOut::default(), Table::default());
    settle(
        &mut rib,
        &mut table,
        &Routes::from([(prefix, Route::default())]),
        &context(),
    );
    rib.repeat(IpFamily::V4);
    settle(&mut rib, &mut table, &Routes::new(), &context());
    assert_eq!((table.routes.len(), rib.len()), (0, 0));
}
