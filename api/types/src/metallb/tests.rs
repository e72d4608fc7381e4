use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::*;

/// Reads an object and writes it again.
fn round<K: Serialize + DeserializeOwned>(object: &Value) -> Value {
    let read: K = serde_json::from_value(object.clone()).unwrap();
    serde_json::to_value(read).unwrap()
}

fn object(kind: &str, version: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("metallb.io/{version}"),
        "kind": kind,
        "metadata": {"name": "a", "namespace": "metallb-system"},
    });
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

fn selectors() -> Value {
    json!([{
        "matchLabels": {"rack": "a"},
        "matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}],
    }])
}

#[test]
fn every_field_of_pools_and_advertisements_survives_a_round_trip() {
    let pool = object(
        "IPAddressPool",
        "v1beta1",
        &json!({
            "spec": {
                "addresses": ["192.0.2.10-192.0.2.99", "2001:db8:2::/120"],
                "autoAssign": false,
                "avoidBuggyIPs": true,
                "serviceAllocation": {
                    "priority": 10,
                    "namespaces": ["demo"],
                    "namespaceSelectors": selectors(),
                    "serviceSelectors": selectors(),
                },
            },
            "status": {"assignedIPv4": 1, "assignedIPv6": 2, "availableIPv4": 3, "availableIPv6": 4},
        }),
    );
    assert_eq!(round::<IPAddressPool>(&pool), pool);
    let l2 = object(
        "L2Advertisement",
        "v1beta1",
        &json!({
            "spec": {
                "ipAddressPools": ["lan"],
                "ipAddressPoolSelectors": selectors(),
                "nodeSelectors": selectors(),
                "interfaces": ["eth0"],
                "serviceSelectors": selectors(),
                "preferredNodeSelectors": [{"weight": 10, "preference": {"matchLabels": {"a": "b"}}}],
            },
        }),
    );
    assert_eq!(round::<L2Advertisement>(&l2), l2);
    let bgp = object(
        "BGPAdvertisement",
        "v1beta1",
        &json!({
            "spec": {
                "aggregationLength": 24,
                "aggregationLengthV6": 120,
                "localPref": 4_294_967_295_u32,
                "communities": ["64512:1", "large:1:2:3", "alias"],
                "ipAddressPools": ["lan"],
                "ipAddressPoolSelectors": selectors(),
                "nodeSelectors": selectors(),
                "peers": ["r1"],
                "serviceSelectors": selectors(),
            },
        }),
    );
    assert_eq!(round::<BGPAdvertisement>(&bgp), bgp);
}

#[test]
fn every_field_of_peers_and_profiles_survives_a_round_trip() {
    let peer = object(
        "BGPPeer",
        "v1beta2",
        &json!({
            "spec": {
                "myASN": 4_294_967_295_u32, "peerASN": 64513, "dynamicASN": "internal", "localASN": 64514,
                "peerAddress": "192.0.2.1", "interface": "eth0", "sourceAddress": "192.0.2.2",
                "peerPort": 1179, "holdTime": "90s", "keepaliveTime": "30s", "connectTime": "5s",
                "routerID": "192.0.2.2", "nodeSelectors": selectors(), "password": "p",
                "passwordSecret": {"name": "s", "namespace": "metallb-system"}, "bfdProfile": "b",
                "enableGracefulRestart": true, "ebgpMultiHop": true, "vrf": "red",
                "disableMP": true, "dualStackAddressFamily": true,
            },
        }),
    );
    assert_eq!(round::<BGPPeer>(&peer), peer);
    let old = object(
        "BGPPeer",
        "v1beta1",
        &json!({
            "spec": {
                "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1", "sourceAddress": "192.0.2.2",
                "peerPort": 1179, "holdTime": "1m30s", "keepaliveTime": "30s", "routerID": "192.0.2.2",
                "nodeSelectors": selectors(), "password": "p", "bfdProfile": "b", "ebgpMultiHop": true,
            },
        }),
    );
    assert_eq!(round::<v1beta1::BGPPeer>(&old), old);
    let bfd = object(
        "BFDProfile",
        "v1beta1",
        &json!({
            "spec": {
                "receiveInterval": 300, "transmitInterval": 301, "detectMultiplier": 3, "echoInterval": 50,
                "echoMode": true, "passiveMode": false, "minimumTtl": 254,
            },
        }),
    );
    assert_eq!(round::<BFDProfile>(&bfd), bfd);
    let community = object(
        "Community",
        "v1beta1",
        &json!({"spec": {"communities": [{"name": "a", "value": "64512:1"}]}}),
    );
    assert_eq!(round::<Community>(&community), community);
}

#[test]
fn every_field_of_status_kinds_survives_a_round_trip() {
    let who = json!({"node": "n1", "serviceName": "web", "serviceNamespace": "demo"});
    let mut l2 = object(
        "ServiceL2Status",
        "v1beta1",
        &json!({"spec": {}, "status": who}),
    );
    l2["status"]["interfaces"] = json!([{"name": "eth0"}]);
    assert_eq!(round::<ServiceL2Status>(&l2), l2);
    let mut bgp = object(
        "ServiceBGPStatus",
        "v1beta1",
        &json!({"spec": {}, "status": who}),
    );
    bgp["status"]["peers"] = json!(["r1"]);
    assert_eq!(round::<ServiceBGPStatus>(&bgp), bgp);
    let state = object(
        "ConfigurationState",
        "v1beta1",
        &json!({"status": {
            "result": "Invalid",
            "errorSummary": "e",
            "conditions": [{
                "type": "poolReconcilerValid", "status": "False", "reason": "ConfigurationError",
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }}),
    );
    assert_eq!(round::<ConfigurationState>(&state), state);
}

/// Users write `kind: L2Advertisement` with a name and nothing else.
#[test]
fn a_missing_spec_reads_as_the_empty_one() {
    let bare = object("L2Advertisement", "v1beta1", &json!({}));
    let read: L2Advertisement = serde_json::from_value(bare).unwrap();
    assert_eq!(read.spec, L2AdvertisementSpec::default());
    let bare = object("BGPAdvertisement", "v1beta1", &json!({}));
    let read: BGPAdvertisement = serde_json::from_value(bare).unwrap();
    assert_eq!(
        (
            read.spec.aggregation_length(),
            read.spec.aggregation_length_v6()
        ),
        (32, 128)
    );
    let bare = object("BGPPeer", "v1beta2", &json!({}));
    let read: BGPPeer = serde_json::from_value(bare).unwrap();
    assert_eq!(read.spec.peer_port(), 179);
}
