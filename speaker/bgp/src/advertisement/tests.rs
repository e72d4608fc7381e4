use api_model::{Asn, Port};

use super::*;
use crate::{NodeAddresses, RemoteAsn, Timers};

fn peer(name: &str, remote: u32) -> PeerConfig {
    PeerConfig {
        name: name.into(),
        local_asn: Asn(64512),
        remote_asn: RemoteAsn::Exactly(Asn(remote)),
        address: "192.0.2.1".parse().unwrap(),
        port: Port::new(179).unwrap(),
        source_address: None,
        router_id: "192.0.2.11".parse().unwrap(),
        timers: Timers::default(),
        connect_time: None,
        ebgp_multi_hop: false,
        families: PeerConfig::families("192.0.2.1".parse().unwrap(), true),
        node_addresses: NodeAddresses::default(),
        password: None,
    }
}

fn announced(service: &str, address: &str) -> AnnouncedAddress {
    AnnouncedAddress {
        service: ServiceKey::new("demo", service),
        address: address.parse().unwrap(),
        pool: "lan".into(),
    }
}

fn advertisement(name: &str) -> Advertisement {
    Advertisement::of_everything(name.into())
}

fn view(advertisements: Vec<Advertisement>) -> AdvertisementView {
    AdvertisementView {
        peers: vec![peer("ext", 64513), peer("int", 64512)],
        advertisements,
        announced: vec![
            announced("web", "203.0.113.1"),
            announced("web6", "2001:db8::1"),
        ],
        ..AdvertisementView::default()
    }
}

/// The routes of a peer as lines of text.
fn lines(wanted: &Wanted, peer: &str) -> Vec<String> {
    wanted.routes[&PeerName::from(peer)]
        .iter()
        .map(|(prefix, route)| {
            let mut words = vec![prefix.to_string()];
            words.extend(route.local_pref.map(|value| format!("pref {value}")));
            words.extend(route.communities.plain.iter().map(ToString::to_string));
            words.extend(route.communities.large.iter().map(ToString::to_string));
            words.join(" ")
        })
        .collect()
}

fn reasons(wanted: &Wanted) -> Vec<(&str, Reason)> {
    wanted
        .refusals
        .iter()
        .map(|r| (r.advertisement.as_str(), r.reason))
        .collect()
}

#[test]
fn an_empty_advertisement_announces_every_address_to_every_peer() {
    let wanted = wanted(&view(vec![advertisement("a")]));
    for peer in ["ext", "int"] {
        assert_eq!(lines(&wanted, peer), ["203.0.113.1/32", "2001:db8::1/128"]);
    }
    assert_eq!(wanted.peers_of.len(), 2);
    assert_eq!(wanted.refusals, []);
}

#[test]
fn without_an_advertisement_a_peer_is_there_and_hears_nothing() {
    let wanted = wanted(&view(vec![]));
    assert_eq!(wanted.routes.len(), 2);
    assert!(wanted.routes.values().all(|routes| routes.is_empty()));
    assert!(wanted.peers_of.is_empty());
}

#[test]
fn communities_unite_and_local_pref_goes_to_internal_peers_only() {
    let a = Advertisement {
        communities: vec!["64512:1".into(), "no-export".into()],
        local_pref: Some(200),
        ..advertisement("a")
    };
    let b = Advertisement {
        communities: vec!["large:64512:7:9".into(), "64512:1".into()],
        ..advertisement("b")
    };
    let mut view = view(vec![b, a]);
    view.aliases = BTreeMap::from([("no-export".into(), "65535:65281".into())]);
    view.announced.truncate(1);
    let wanted = wanted(&view);
    let communities = "64512:1 65535:65281 large:64512:7:9";
    assert_eq!(
        lines(&wanted, "ext"),
        [format!("203.0.113.1/32 {communities}")]
    );
    assert_eq!(
        lines(&wanted, "int"),
        [format!("203.0.113.1/32 pref 200 {communities}")]
    );
}

#[test]
fn an_aggregate_is_announced_once_for_many_services() {
    let a = Advertisement {
        aggregation_length: 24,
        aggregation_length_v6: 64,
        ..advertisement("a")
    };
    let mut view = view(vec![a]);
    view.announced.push(announced("other", "203.0.113.77"));
    view.pools.insert(
        "lan".into(),
        vec![PoolSpan {
            first: "203.0.113.0".parse().unwrap(),
            last: "203.0.113.255".parse().unwrap(),
        }],
    );
    let wanted = wanted(&view);
    assert_eq!(lines(&wanted, "ext"), ["203.0.113.0/24", "2001:db8::/64"]);
    assert_eq!(wanted.peers_of.len(), 3);
}

#[test]
fn an_aggregate_wider_than_the_pool_is_refused() {
    let a = Advertisement {
        aggregation_length: 24,
        ..advertisement("a")
    };
    let mut view = view(vec![a]);
    view.pools.insert(
        "lan".into(),
        vec![PoolSpan {
            first: "203.0.113.0".parse().unwrap(),
            last: "203.0.113.99".parse().unwrap(),
        }],
    );
    let wanted = wanted(&view);
    assert_eq!(lines(&wanted, "ext"), ["2001:db8::1/128"]);
    assert_eq!(reasons(&wanted), [("a", Reason::InvalidAggregationLength)]);
}

#[test]
fn peers_pools_and_services_narrow_an_advertisement() {
    let to_ext = Advertisement {
        peers: Some(BTreeSet::from(["ext".into()])),
        services: Some(BTreeSet::from([ServiceKey::new("demo", "web")])),
        ..advertisement("a")
    };
    let other_pool = Advertisement {
        pools: Some(BTreeSet::from(["dmz".into()])),
        ..advertisement("b")
    };
    let wanted = wanted(&view(vec![to_ext, other_pool]));
    assert_eq!(lines(&wanted, "ext"), ["203.0.113.1/32"]);
    assert!(lines(&wanted, "int").is_empty());
    let peers = BTreeSet::from(["ext".into()]);
    assert_eq!(
        wanted.peers_of,
        BTreeMap::from([(ServiceKey::new("demo", "web"), peers)])
    );
}

#[test]
fn a_peer_only_hears_the_families_it_carries() {
    let mut view = view(vec![advertisement("a")]);
    view.peers[0].families = BTreeSet::from([IpFamily::V4]);
    let wanted = wanted(&view);
    assert_eq!(lines(&wanted, "ext"), ["203.0.113.1/32"]);
}

#[test]
fn one_poisoned_advertisement_leaves_the_others_alone() {
    let bad = Advertisement {
        communities: vec!["64512:65536".into()],
        ..advertisement("a-bad")
    };
    let selector = Advertisement {
        services: Some(BTreeSet::new()),
        aggregation_length: 24,
        ..advertisement("b-bad")
    };
    let length = Advertisement {
        aggregation_length: 33,
        ..advertisement("c-bad")
    };
    let wanted = wanted(&view(vec![bad, selector, length, advertisement("good")]));
    assert_eq!(lines(&wanted, "ext"), ["203.0.113.1/32", "2001:db8::1/128"]);
    assert_eq!(
        reasons(&wanted),
        [
            ("a-bad", Reason::InvalidCommunity),
            ("b-bad", Reason::SelectorWithAggregation),
            ("c-bad", Reason::InvalidAggregationLength),
        ]
    );
}

#[test]
fn the_first_local_pref_stays_and_the_second_is_told() {
    let pref = |name: &str, value| Advertisement {
        local_pref: Some(value),
        ..advertisement(name)
    };
    let wanted = wanted(&view(vec![
        pref("b32", 500),
        pref("a32", 200),
        pref("same", 200),
    ]));
    assert_eq!(lines(&wanted, "int")[0], "203.0.113.1/32 pref 200");
    assert_eq!(reasons(&wanted), [("b32", Reason::LocalPrefConflict)]);
    assert_eq!(
        wanted.refusals[0].message,
        "203.0.113.1/32 to peer int: localPref 200 of a32 is used, not 500 of b32"
    );
}

#[test]
fn the_order_of_the_inputs_does_not_matter() {
    let pref = |name: &str, value| Advertisement {
        local_pref: Some(value),
        communities: vec![format!("1:{value}")],
        ..advertisement(name)
    };
    let forward = view(vec![pref("a", 1), pref("b", 2), pref("c", 3)]);
    let mut backward = forward.clone();
    backward.advertisements.reverse();
    backward.announced.reverse();
    backward.peers.reverse();
    let (forward, backward) = (wanted(&forward), wanted(&backward));
    assert_eq!(forward.routes, backward.routes);
    assert_eq!(forward.peers_of, backward.peers_of);
}
