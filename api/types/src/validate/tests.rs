use serde_json::{Value, json};

use super::*;

const NAMESPACE: &str = "metallb-system";

fn object(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})
}

fn others(objects: &[(Kind, Value)]) -> Others {
    let mut others = Others::default();
    for (kind, object) in objects {
        others.add(*kind, object);
    }
    others
}

/// The findings as an API server shows them.
fn refused(kind: Kind, name: &str, spec: &Value, others: &Others) -> Vec<String> {
    admit(kind, &object(name, spec), others, NAMESPACE)
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn alone(kind: Kind, spec: &Value) -> Vec<String> {
    refused(kind, "a", spec, &Others::default())
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_pool_is_refused_with_the_text_the_user_wrote() {
    assert_eq!(
        alone(
            Kind::IPAddressPool,
            &json!({"addresses": ["192.0.2.0/24", "2001:db8::/64"]})
        ),
        NOTHING
    );
    assert_eq!(
        alone(Kind::IPAddressPool, &json!({"addresses": []})),
        ["spec.addresses: Invalid value: \"\": must not be empty"]
    );
    let bad = alone(
        Kind::IPAddressPool,
        &json!({"addresses": ["192.0.2.0/28", "192.0.2.29,192.0.2.34"]}),
    );
    assert_eq!(bad.len(), 1);
    assert!(
        bad[0].starts_with(
            "spec.addresses[1]: Invalid value: \"192.0.2.29,192.0.2.34\": invalid CIDR or range in pool \"a\": \"192.0.2.29,192.0.2.34\": "
        ),
        "{bad:?}"
    );
}

#[test]
fn pools_may_not_overlap_each_other_or_themselves() {
    let there = others(&[(
        Kind::IPAddressPool,
        object("lan", &json!({"addresses": ["192.0.2.10-192.0.2.99"]})),
    )]);
    assert_eq!(
        refused(
            Kind::IPAddressPool,
            "b",
            &json!({"addresses": ["192.0.2.96/28"]}),
            &there
        ),
        [
            "spec.addresses[0]: Invalid value: \"192.0.2.96/28\": CIDR \"192.0.2.96/28\" in pool \"b\" overlaps with already defined CIDR \"192.0.2.10-192.0.2.99\" of pool \"lan\""
        ]
    );
    // an update of the pool itself
    assert_eq!(
        refused(
            Kind::IPAddressPool,
            "lan",
            &json!({"addresses": ["192.0.2.10-192.0.2.120"]}),
            &there
        ),
        NOTHING
    );
    assert_eq!(
        alone(
            Kind::IPAddressPool,
            &json!({"addresses": ["192.0.2.0/28", "192.0.2.8-192.0.2.20"]})
        ),
        [
            "spec.addresses[1]: Invalid value: \"192.0.2.8-192.0.2.20\": CIDR \"192.0.2.8-192.0.2.20\" in pool \"a\" overlaps with already defined CIDR \"192.0.2.0/28\" of pool \"a\""
        ]
    );
}

#[test]
fn lists_with_duplicates_and_malformed_selectors_are_refused() {
    let a = json!({"matchLabels": {"a": "b"}});
    assert_eq!(
        alone(
            Kind::IPAddressPool,
            &json!({
                "addresses": ["192.0.2.0/28"],
                "serviceAllocation": {"priority": -1, "namespaces": ["x", "y", "x"], "namespaceSelectors": [a, a]},
            })
        ),
        [
            "spec.serviceAllocation.namespaces[2]: Invalid value: \"x\": duplicate entry",
            "spec.serviceAllocation.namespaceSelectors[1]: Invalid value: \"{\\\"matchLabels\\\":{\\\"a\\\":\\\"b\\\"}}\": duplicate entry",
            "spec.serviceAllocation.priority: Invalid value: \"-1\": must be from 0 to 2147483647",
        ]
    );
    assert_eq!(
        alone(
            Kind::L2Advertisement,
            &json!({
                "ipAddressPools": ["p", "p"], "interfaces": ["e", "e"],
                "nodeSelectors": [{"matchExpressions": [{"key": "k", "operator": "Is", "values": ["v"]}]}],
                "preferredNodeSelectors": [{"weight": 101, "preference": {}}],
            })
        ),
        [
            "spec.ipAddressPools[1]: Invalid value: \"p\": duplicate entry",
            "spec.nodeSelectors[0]: Invalid value: \"{\\\"matchExpressions\\\":[{\\\"key\\\":\\\"k\\\",\\\"operator\\\":\\\"Is\\\",\\\"values\\\":[\\\"v\\\"]}]}\": \"Is\" is not a valid label selector operator: write In, NotIn, Exists or DoesNotExist",
            "spec.interfaces[1]: Invalid value: \"e\": duplicate entry",
            "spec.preferredNodeSelectors[0].weight: Invalid value: \"101\": must be from 1 to 100",
        ]
    );
}

#[test]
fn an_aggregate_stays_inside_the_pool() {
    let pools = others(&[
        (
            Kind::IPAddressPool,
            object("p28", &json!({"addresses": ["192.0.2.0/28"]})),
        ),
        (
            Kind::IPAddressPool,
            object("six", &json!({"addresses": ["2001:db8::/120"]})),
        ),
    ]);
    let ad = |spec: Value| refused(Kind::BGPAdvertisement, "ad", &spec, &pools);
    assert_eq!(
        ad(json!({"aggregationLength": 28, "aggregationLengthV6": 120})),
        NOTHING
    );
    assert_eq!(
        ad(json!({"aggregationLength": 26, "aggregationLengthV6": 64})),
        [
            "spec.aggregationLength: Invalid value: \"26\": invalid aggregation length 26: \"192.0.2.0/28\" of pool \"p28\" is a /28, so that the aggregate would announce addresses outside of the pool",
            "spec.aggregationLengthV6: Invalid value: \"64\": invalid aggregation length 64: \"2001:db8::/120\" of pool \"six\" is a /120, so that the aggregate would announce addresses outside of the pool",
        ]
    );
    assert_eq!(
        ad(json!({"aggregationLength": 26, "ipAddressPools": ["other"]})),
        NOTHING
    );
    assert_eq!(
        ad(json!({"aggregationLength": 33, "aggregationLengthV6": 0})),
        [
            "spec.aggregationLength: Invalid value: \"33\": must be from 1 to 32",
            "spec.aggregationLengthV6: Invalid value: \"0\": must be from 1 to 128",
        ]
    );
    assert_eq!(
        ad(json!({"aggregationLength": 28, "ipAddressPools": ["p28"], "serviceSelectors": [{}]})),
        [
            "spec.serviceSelectors: Invalid value: \"{}\": serviceSelectors can only be used with aggregationLength 32 and aggregationLengthV6 128"
        ]
    );
    // the pool that comes second is refused as well
    let ads = others(&[(
        Kind::BGPAdvertisement,
        object("ad", &json!({"aggregationLength": 24})),
    )]);
    assert_eq!(
        refused(
            Kind::IPAddressPool,
            "p",
            &json!({"addresses": ["192.0.2.0/24", "198.51.100.0/25"]}),
            &ads
        ),
        [
            "spec.addresses[1]: Invalid value: \"198.51.100.0/25\": invalid aggregation length 24: \"198.51.100.0/25\" of pool \"p\" is a /25, so that the aggregate would announce addresses outside of the pool"
        ]
    );
}

/// One `LOCAL_PREF` per prefix, peer and node: case B041 with its five orders.
#[test]
fn b041_local_prefs_may_differ_only_where_routes_do() {
    let pool = || {
        (
            Kind::IPAddressPool,
            object("p", &json!({"addresses": ["203.0.113.0/24"]})),
        )
    };
    let ad = |pref: u32, length: u8, peers: &[&str]| json!({"aggregationLength": length, "localPref": pref, "ipAddressPools": ["p"], "peers": peers});
    let after = |first: Value, second: Value| {
        let there = others(&[pool(), (Kind::BGPAdvertisement, object("first", &first))]);
        refused(Kind::BGPAdvertisement, "second", &second, &there)
    };
    let conflict = [
        "spec.localPref: Invalid value: \"500\": invalid localPref 500: advertisement \"first\" announces the same prefixes to the same peers with localPref 200",
    ];
    assert_eq!(after(ad(200, 32, &[]), ad(500, 32, &[])), conflict);
    assert_eq!(after(ad(200, 32, &[]), ad(100, 24, &[])), NOTHING);
    assert_eq!(after(ad(200, 32, &["r1"]), ad(500, 32, &["r2"])), NOTHING);
    assert_eq!(after(ad(200, 32, &[]), ad(500, 32, &["r2"])), conflict);
    let mut same = ad(200, 32, &[]);
    same["communities"] = json!(["64512:1"]);
    assert_eq!(after(ad(200, 32, &[]), same), NOTHING);
    // disjoint nodes
    let mut on_a = ad(200, 32, &[]);
    on_a["nodeSelectors"] = json!([{"matchLabels": {"rack": "a"}}]);
    let mut on_b = ad(500, 32, &[]);
    on_b["nodeSelectors"] = json!([{"matchLabels": {"rack": "b"}}]);
    assert_eq!(after(on_a, on_b), NOTHING);
    assert_eq!(
        after(ad(200, 32, &[]), ad(200, 32, &[])),
        ["spec: Invalid value: \"second\": an identical advertisement already exists: \"first\""]
    );
}

#[test]
fn communities_are_checked_and_aliases_are_unique() {
    assert_eq!(
        alone(
            Kind::BGPAdvertisement,
            &json!({"communities": ["64512:1", "large:1:2:3", "later", "1:2:3", "65536:1", "64512:1"]})
        ),
        [
            "spec.communities[5]: Invalid value: \"64512:1\": duplicate entry",
            "spec.communities[3]: Invalid value: \"1:2:3\": invalid community format \"1:2:3\": write N:N or large:N:N:N",
            "spec.communities[4]: Invalid value: \"65536:1\": invalid community value \"65536\" in \"65536:1\": a number of 16 bits is needed",
        ]
    );
    let there = others(&[(
        Kind::Community,
        object(
            "c1",
            &json!({"communities": [{"name": "x", "value": "1:1"}]}),
        ),
    )]);
    assert_eq!(
        refused(
            Kind::Community,
            "c2",
            &json!({"communities": [{"name": "x", "value": "1:2"}, {"name": "", "value": "z"}]}),
            &there
        ),
        [
            "spec.communities[0].name: Invalid value: \"x\": duplicate definition of community \"x\", defined in Community \"c1\" too",
            "spec.communities[1].name: Invalid value: \"\": the name of a community must not be empty and must not hold a colon",
            "spec.communities[1].value: Invalid value: \"z\": invalid community format \"z\": write N:N or large:N:N:N",
        ]
    );
}

fn peer(change: &Value) -> Value {
    let mut spec = json!({"myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1"});
    for (key, value) in change.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn the_fields_of_a_peer_are_checked_one_by_one() {
    for (change, wanted) in [
        (json!({}), None),
        (json!({"holdTime": "0s"}), None),
        (
            json!({"holdTime": "3s", "keepaliveTime": "1s", "connectTime": "65535s"}),
            None,
        ),
        (
            json!({"peerASN": 0, "dynamicASN": "external", "ebgpMultiHop": true}),
            None,
        ),
        (json!({"peerAddress": "", "interface": "eth0"}), None),
        (
            json!({"sourceAddress": "192.0.2.9", "routerID": "10.0.0.1"}),
            None,
        ),
        (
            json!({"myASN": 0}),
            Some("spec.myASN: Invalid value: \"0\": must be from 1 to 4294967295"),
        ),
        (
            json!({"localASN": 0}),
            Some("spec.localASN: Invalid value: \"0\": must be from 1 to 4294967295"),
        ),
        (
            json!({"peerASN": 0}),
            Some(
                "spec.peerASN: Invalid value: \"0\": exactly one of peerASN and dynamicASN must be given",
            ),
        ),
        (
            json!({"dynamicASN": "external"}),
            Some(
                "spec.peerASN: Invalid value: \"64513\": exactly one of peerASN and dynamicASN must be given",
            ),
        ),
        (
            json!({"interface": "eth0"}),
            Some(
                "spec.peerAddress: Invalid value: \"192.0.2.1\": exactly one of peerAddress and interface must be given",
            ),
        ),
        (
            json!({"peerAddress": "192.0.2.256"}),
            Some(
                "spec.peerAddress: Invalid value: \"192.0.2.256\": invalid BGPPeer address \"192.0.2.256\"",
            ),
        ),
        (
            json!({"peerAddress": "224.0.0.5"}),
            Some(
                "spec.peerAddress: Invalid value: \"224.0.0.5\": invalid BGPPeer address \"224.0.0.5\"",
            ),
        ),
        (
            json!({"sourceAddress": "x"}),
            Some("spec.sourceAddress: Invalid value: \"x\": invalid BGPPeer source address \"x\""),
        ),
        (
            json!({"sourceAddress": "2001:db8::1"}),
            Some(
                "spec.sourceAddress: Invalid value: \"2001:db8::1\": is not of the family of peerAddress 192.0.2.1",
            ),
        ),
        (
            json!({"peerPort": 16385}),
            Some("spec.peerPort: Invalid value: \"16385\": must be from 1 to 16384"),
        ),
        (
            json!({"routerID": "0.0.0.0"}),
            Some(
                "spec.routerID: Invalid value: \"0.0.0.0\": invalid router ID \"0.0.0.0\": an IPv4 address other than 0.0.0.0 is needed",
            ),
        ),
        (
            json!({"routerID": "2001:db8::1"}),
            Some(
                "spec.routerID: Invalid value: \"2001:db8::1\": invalid router ID \"2001:db8::1\": an IPv4 address other than 0.0.0.0 is needed",
            ),
        ),
        (
            json!({"holdTime": "2s"}),
            Some(
                "spec.holdTime: Invalid value: \"2s\": invalid hold time: must be 0 or from 3s to 65535s",
            ),
        ),
        (
            json!({"holdTime": "90"}),
            Some(
                "spec.holdTime: Invalid value: \"90\": \"90\" is not a duration such as 90s or 1m30s (units h, m, s, ms, us, ns)",
            ),
        ),
        (
            json!({"holdTime": "30s", "keepaliveTime": "31s"}),
            Some(
                "spec.keepaliveTime: Invalid value: \"31s\": invalid keepalive time: must not be longer than the hold time \"30s\"",
            ),
        ),
        (
            json!({"connectTime": "1500ms"}),
            Some(
                "spec.connectTime: Invalid value: \"1500ms\": connect time must be whole seconds from 1s to 65535s",
            ),
        ),
        (
            json!({"peerASN": 64512, "ebgpMultiHop": true}),
            Some(
                "spec.ebgpMultiHop: Invalid value: \"true\": ebgpMultiHop cannot be used for a peer of the same AS",
            ),
        ),
        (
            json!({"password": "p", "passwordSecret": {"name": "s"}}),
            Some(
                "spec.passwordSecret.name: Invalid value: \"s\": exactly one of password and passwordSecret must be given",
            ),
        ),
        (
            json!({"passwordSecret": {"name": "s", "namespace": "x"}}),
            Some(
                "spec.passwordSecret.namespace: Invalid value: \"x\": the Secret must be in namespace \"metallb-system\"",
            ),
        ),
    ] {
        let found = alone(Kind::BGPPeer, &peer(&change));
        let wanted: Vec<&str> = wanted.into_iter().collect();
        assert_eq!(found, wanted, "{change}");
    }
}

#[test]
fn two_peers_with_one_router_need_disjoint_nodes() {
    let on = |rack: &str| json!({"nodeSelectors": [{"matchLabels": {"rack": rack}}]});
    let there = others(&[(Kind::BGPPeer, object("r1", &peer(&on("a"))))]);
    let exists = [
        "spec.peerAddress: Invalid value: \"192.0.2.1\": peer \"r1\" already exists with the same address, port and VRF for nodes that both select",
    ];
    let second = |change: &Value| refused(Kind::BGPPeer, "r2", &peer(change), &there);
    assert_eq!(second(&json!({})), exists);
    assert_eq!(second(&on("a")), exists);
    assert_eq!(second(&on("b")), NOTHING);
    assert_eq!(second(&json!({"vrf": "red"})), NOTHING);
    assert_eq!(second(&json!({"peerPort": 1179})), NOTHING);
}

#[test]
fn a_bfd_profile_has_bounds_and_stays_while_it_is_used() {
    assert_eq!(
        alone(
            Kind::BFDProfile,
            &json!({"receiveInterval": 9, "minimumTtl": 255, "detectMultiplier": 3})
        ),
        [
            "spec.receiveInterval: Invalid value: \"9\": must be from 10 to 60000",
            "spec.minimumTtl: Invalid value: \"255\": must be from 1 to 254",
        ]
    );
    let there = others(&[(
        Kind::BGPPeer,
        object("r1", &peer(&json!({"bfdProfile": "b"}))),
    )]);
    let refused: Vec<String> = admit_delete(Kind::BFDProfile, "b", &there)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        refused,
        [
            "metadata.name: Invalid value: \"b\": failed to delete BFDProfile \"b\": BGPPeer \"r1\" uses it"
        ]
    );
    assert_eq!(admit_delete(Kind::BFDProfile, "c", &there), []);
}

#[test]
fn every_kind_is_refused_outside_of_the_configuration_namespace() {
    for kind in Kind::ALL {
        let mut elsewhere = object("a", &json!({}));
        elsewhere["metadata"]["namespace"] = json!("default");
        let found: Vec<String> = admit(kind, &elsewhere, &Others::default(), NAMESPACE)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "metadata.namespace: Invalid value: \"default\": resource must be created in metallb-system namespace"
            ]
        );
        assert_eq!(Kind::of_plural(kind.plural()), Some(kind));
    }
}

#[test]
fn an_object_of_another_shape_is_a_finding_and_no_panic() {
    for kind in Kind::ALL {
        let shapeless = json!({"metadata": {"name": "a", "namespace": NAMESPACE}, "spec": 7});
        let found = admit(kind, &shapeless, &Others::default(), NAMESPACE);
        assert!(
            matches!(
                found.as_slice(),
                [FieldError {
                    cause: Cause::Unreadable(_),
                    ..
                }]
            ),
            "{found:?}"
        );
    }
}

/// Admission was down: of two stored objects that exclude each other the older one stays in force, and one that is broken
/// disturbs no other.
#[test]
fn stored_objects_are_taken_oldest_first() {
    let aged = |name: &str, created: &str, spec: Value| {
        let mut object = object(name, &spec);
        object["metadata"]["creationTimestamp"] = json!(created);
        object
    };
    let all = others(&[
        (
            Kind::IPAddressPool,
            aged(
                "young",
                "2026-01-02T00:00:00Z",
                json!({"addresses": ["192.0.2.0/24"]}),
            ),
        ),
        (
            Kind::IPAddressPool,
            aged(
                "old",
                "2026-01-01T00:00:00Z",
                json!({"addresses": ["192.0.2.0/28"]}),
            ),
        ),
        (
            Kind::IPAddressPool,
            aged(
                "broken",
                "2025-01-01T00:00:00Z",
                json!({"addresses": ["nonsense"]}),
            ),
        ),
        (
            Kind::IPAddressPool,
            aged(
                "other",
                "2026-01-03T00:00:00Z",
                json!({"addresses": ["198.51.100.0/24"]}),
            ),
        ),
    ]);
    let (good, bad) = stored(all);
    let names = |pools: &[IPAddressPool]| -> Vec<String> {
        pools
            .iter()
            .map(|pool| name(&pool.metadata).to_owned())
            .collect()
    };
    assert_eq!(names(&good.pools), ["old", "other"]);
    let bad: Vec<_> = bad
        .iter()
        .map(|finding| (finding.kind, finding.name.as_str(), finding.errors.len()))
        .collect();
    assert_eq!(
        bad,
        [
            (Kind::IPAddressPool, "broken", 1),
            (Kind::IPAddressPool, "young", 1)
        ]
    );
}
