//! Who announces a Service, as its policy and its endpoints change.

use api_model::NodeName;
use serde_json::json;
use speaker::ingest::{Change, Fact, Facts, bgp_view, vips};

use crate::world::{DEAD, READY, endpoint};

/// Nodes that announce 203.0.113.1 to their peer.
fn announcers(facts: &Facts) -> Vec<&'static str> {
    let vips = vips(facts, None);
    let names = ["node-a", "node-b", "node-c"];
    let announces = |name: &str| {
        let me = NodeName::from(name);
        let view = bgp_view(facts, &vips, &me, &|_| true, false).view;
        let wanted = speaker_bgp::wanted(&view);
        let routes = wanted.routes.values().next().expect("the session is there");
        assert!(routes.len() <= 1, "{routes:?}");
        !routes.is_empty()
    };
    names.into_iter().filter(|name| announces(name)).collect()
}

fn take<K: serde::de::DeserializeOwned>(
    facts: &mut Facts,
    fact: fn(Change<K>) -> Fact,
    object: serde_json::Value,
) {
    let object: K = serde_json::from_value(object).expect("an object");
    facts.take(fact(Change::Apply(std::sync::Arc::new(object))));
}

fn announced_cluster() -> Facts {
    let mut facts = Facts::default();
    for (name, address) in [
        ("node-a", "192.0.2.11"),
        ("node-b", "192.0.2.12"),
        ("node-c", "192.0.2.13"),
    ] {
        let node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "addresses": [{"type": "InternalIP", "address": address}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        take(&mut facts, Fact::Node, node);
    }
    let named = |name| json!({"name": name, "namespace": "metallb-system"});
    let pool = json!({"metadata": named("p"), "spec": {"addresses": ["203.0.113.0/28"]}});
    take(&mut facts, Fact::Pool, pool);
    let advertisement = json!({"metadata": named("bgp"), "spec": {}});
    take(&mut facts, Fact::BgpAdvertisement, advertisement);
    let peer = json!({
        "metadata": named("tor"),
        "spec": {"myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1"},
    });
    take(&mut facts, Fact::BgpPeer, peer);
    assert_eq!(facts.check(), []);
    facts
}

/// What is checked is what each node wants to announce. Left out: the order between nodes when one takes over from another
/// (each is told by its own watch), and an event for a Service that nobody can serve.
#[test]
fn b128_announcements_follow_the_external_policy_and_local_endpoints() {
    let mut facts = announced_cluster();
    let policy = |facts: &mut Facts, policy: &str| {
        let service = json!({
            "metadata": {
                "name": "web", "namespace": "default",
                "annotations": {"metallb.io/ip-allocated-from-pool": "p"},
            },
            "spec": {"type": "LoadBalancer", "externalTrafficPolicy": policy,
                     "ports": [{"protocol": "TCP", "port": 80}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}},
        });
        take(facts, Fact::Service, service);
    };
    let slice = |facts: &mut Facts, endpoints: &[serde_json::Value]| {
        let slice = json!({
            "metadata": {"name": "web-a", "namespace": "default",
                         "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "ports": [{"name": "", "protocol": "TCP", "port": 80}],
            "endpoints": endpoints,
        });
        take(facts, Fact::Slice, slice);
    };
    let here = endpoint("198.51.100.201", "node-a", READY);
    let there = |conditions| endpoint("198.51.100.202", "node-b", conditions);
    let nobody: [&str; 0] = [];
    policy(&mut facts, "Cluster");
    slice(&mut facts, &[here.clone(), there(DEAD)]);
    assert_eq!(announcers(&facts), ["node-a", "node-b", "node-c"], "1");
    policy(&mut facts, "Local");
    assert_eq!(announcers(&facts), ["node-a"], "2");
    slice(&mut facts, &[here, there(READY)]);
    assert_eq!(announcers(&facts), ["node-a", "node-b"], "3");
    slice(&mut facts, &[there(READY)]);
    assert_eq!(announcers(&facts), ["node-b"], "4");
    slice(&mut facts, &[]);
    assert_eq!(announcers(&facts), nobody, "5");
    policy(&mut facts, "Cluster");
    assert_eq!(announcers(&facts), nobody, "6: without any endpoint nobody");
    let mut nowhere = there(READY);
    nowhere
        .as_object_mut()
        .expect("an endpoint")
        .remove("nodeName");
    slice(&mut facts, &[nowhere]);
    policy(&mut facts, "Local");
    assert_eq!(announcers(&facts), nobody, "7");
}
