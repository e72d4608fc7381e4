//! From advertisements and addresses to routes.

use std::collections::{BTreeMap, BTreeSet};

use api_model::{NodeName, ServiceKey};
use speaker_bgp::{
    Advertisement, AdvertisementView, AnnouncedAddress, PeerConfig, PeerConfigError, Reason, State,
    router_id, wanted,
};

use crate::bench::{Bench, OPEN, config, digits, seconds};

fn advertisement(name: &str, communities: &[&str]) -> Advertisement {
    Advertisement {
        communities: communities.iter().map(|&text| text.to_owned()).collect(),
        ..Advertisement::of_everything(name.into())
    }
}

fn announced(service: &str, address: &str) -> AnnouncedAddress {
    AnnouncedAddress {
        service: ServiceKey::new("default", service),
        address: address.parse().unwrap(),
        pool: "p".into(),
    }
}

fn view(advertisements: Vec<Advertisement>, addresses: Vec<AnnouncedAddress>) -> AdvertisementView {
    AdvertisementView {
        peers: vec![config()],
        advertisements,
        announced: addresses,
        ..AdvertisementView::default()
    }
}

/// Sends what the view wants, after a moment in which much else could have happened.
fn tell(bench: &mut Bench, view: &AdvertisementView) {
    bench.announce(wanted(view).routes[&"tor".into()].clone());
}

/// Which node has a ready endpoint is the ingest's part; here the list of addresses changes as it would.
#[test]
fn b074_service_churn_never_touches_the_session() {
    let addresses: Vec<AnnouncedAddress> = (0..200)
        .map(|n| announced(&format!("s{n}"), &format!("203.0.113.{n}")))
        .collect();
    let mut view = view(vec![advertisement("bgp", &[])], vec![]);
    let mut bench = Bench::established(config(), OPEN);
    for address in &addresses {
        view.announced.push(address.clone());
        tell(&mut bench, &view);
    }
    view.announced.drain(..100);
    tell(&mut bench, &view);
    for round in 0..20 {
        view.announced = addresses[100..].to_vec();
        if round % 2 == 0 {
            view.announced.drain(..50);
        }
        tell(&mut bench, &view);
        bench.wait(seconds(1));
    }
    let before = bench.updates().len();
    view.advertisements = vec![advertisement("bgp", &["64512:7"])];
    tell(&mut bench, &view);
    let changed = bench.updates().split_off(before);
    assert!(
        changed.iter().all(|update| update.withdrawn.is_empty()),
        "{changed:?}"
    );
    assert_eq!(
        changed.len(),
        1,
        "100 prefixes with one set of attributes fit into one UPDATE"
    );

    let mut table: BTreeMap<String, Option<String>> = BTreeMap::new();
    for update in bench.updates() {
        for prefix in &update.withdrawn {
            assert!(
                table.remove(prefix).is_some(),
                "{prefix} was withdrawn but not there"
            );
        }
        for prefix in &update.nlri {
            table.insert(prefix.clone(), update.attributes.get(&8).cloned());
        }
    }
    let expected: BTreeMap<String, Option<String>> = (100..200)
        .map(|n| {
            (
                format!("203.0.113.{n}/32"),
                Some("c00804fc000007".to_owned()),
            )
        })
        .collect();
    assert_eq!(table, expected);
    assert_eq!(
        (bench.peer.state(), bench.dials.len()),
        (State::Established, 1)
    );
    assert_eq!(bench.notification(), None);
}

/// Admission refuses `bad1` and `bad3` by the same rule that leaves them out here.
#[test]
fn b093_communities_of_several_advertisements_are_merged() {
    let address = vec![announced("web", "203.0.113.1")];
    let a = advertisement("a", &["64512:1", "65535:65281"]);
    let b = advertisement("b", &["64512:2", "64512:1"]);
    let c = advertisement("c", &["large:64512:7:9"]);
    let mut bench = Bench::established(config(), OPEN);
    tell(
        &mut bench,
        &view(vec![a.clone(), b, c.clone()], address.clone()),
    );
    tell(&mut bench, &view(vec![a, c], address.clone()));
    tell(
        &mut bench,
        &view(vec![advertisement("plain", &[])], address.clone()),
    );
    let updates = bench.updates();
    let communities = |n: usize| updates[n].attributes.get(&8).map(String::as_str);
    assert_eq!(updates.len(), 3);
    assert_eq!(communities(0), Some("c0080cfc000001fc000002ffffff01"));
    assert_eq!(updates[0].attributes[&32], "c0200c0000fc000000000700000009");
    assert_eq!(communities(1), Some("c00808fc000001ffffff01"));
    assert_eq!(
        updates[2].attributes.keys().copied().collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert!(updates.iter().all(|update| update.withdrawn.is_empty()));

    let bad = [
        advertisement("bad1", &["64512:65536"]),
        advertisement("bad2", &["no-such-alias"]),
        advertisement("bad3", &["64512"]),
    ];
    let refused = wanted(&view(bad.to_vec(), address));
    let refusals: Vec<_> = refused
        .refusals
        .iter()
        .map(|r| (r.advertisement.as_str(), r.reason))
        .collect();
    let invalid = Reason::InvalidCommunity;
    assert_eq!(
        refusals,
        [("bad1", invalid), ("bad2", invalid), ("bad3", invalid)]
    );
    assert!(
        refused.routes[&"tor".into()].is_empty(),
        "never sent as a wrong number"
    );
}

/// Text that is no IPv4 address at all is refused when the object is read; that identifiers are unique over nodes is seen
/// where all nodes are known.
#[test]
fn b098_router_ids_of_ipv6_only_nodes() {
    let node = |name: &str, last: u16| {
        let address = format!("2001:db8:0:1::{last:x}").parse().unwrap();
        router_id(None, &[address], &NodeName::from(name))
    };
    let ids = [
        node("node-a", 0x11),
        node("node-b", 0x12),
        node("node-c", 0x13),
    ];
    assert_eq!(BTreeSet::from(ids).len(), 3);
    assert!(ids.iter().all(|id| !id.is_unspecified()));
    assert_eq!(node("node-a", 0x11), ids[0], "the same after a restart");

    for (wanted, valid) in [
        ("192.0.2.77", true),
        ("224.0.0.1", true),
        ("0.0.0.0", false),
    ] {
        let id = router_id(
            Some(wanted.parse().unwrap()),
            &[],
            &NodeName::from("node-a"),
        );
        let config = PeerConfig {
            address: "2001:db8:0:1::1".parse().unwrap(),
            families: PeerConfig::families("2001:db8:0:1::1".parse().unwrap(), false),
            router_id: id,
            ..config()
        };
        assert_eq!(
            config.check(),
            if valid {
                Ok(())
            } else {
                Err(PeerConfigError::RouterId(id))
            }
        );
        if valid {
            let mut bench = Bench::new(config);
            bench.connect(speaker_bgp::Side::Dialled);
            let open = digits(bench.sent_of(1)[0]);
            assert_eq!(&open[48..56], digits(&id.octets()));
        }
    }
}

/// The lenient reading is ours: with one Service not ready, the address stays announced for the other, since the ready one
/// serves its own ports.
#[test]
fn b100_a_shared_address_is_withdrawn_only_with_its_last_user() {
    let one = announced("one", "203.0.113.1");
    let two = announced("two", "203.0.113.1");
    let all = || vec![advertisement("bgp", &[])];
    let mut bench = Bench::established(config(), OPEN);
    for users in [
        vec![one.clone(), two.clone()],
        vec![two.clone()],
        vec![one, two.clone()],
        vec![two],
    ] {
        tell(&mut bench, &view(all(), users));
        bench.wait(seconds(5));
    }
    assert_eq!(
        bench.updates().len(),
        1,
        "no withdraw and no new announcement in between"
    );
    let before = bench.now;
    tell(&mut bench, &view(all(), vec![]));
    let updates = bench.updates();
    assert_eq!(updates.last().unwrap().withdrawn, ["203.0.113.1/32"]);
    assert_eq!(bench.sent.last().unwrap().0, before, "at once");
}
