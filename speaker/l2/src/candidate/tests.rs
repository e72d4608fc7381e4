//! The rules for candidates, one table; the gate.

use super::*;

const VIP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 10));

fn names(list: &[&str]) -> BTreeSet<NodeName> {
    list.iter().map(|name| NodeName::from(*name)).collect()
}

fn user(local_only: bool, on: &[&str]) -> User {
    User {
        local_only,
        has_endpoints: !on.is_empty(),
        endpoints_on: names(on),
    }
}

fn view(users: &[(&str, User)]) -> View {
    View {
        me: "n1".into(),
        nodes: ["n1", "n2", "n3"]
            .map(|name| (name.into(), Node::usable()))
            .into(),
        advertisements: vec![Advertisement::everything("l2")],
        vips: [(
            VIP,
            Vip {
                pool: "lan".into(),
                users: users
                    .iter()
                    .map(|(name, user)| (ServiceKey::new("demo", name), user.clone()))
                    .collect(),
            },
        )]
        .into(),
    }
}

/// `n1=5 n2=0; n3 NodeExcluded` for the VIP of the view.
fn shown(view: &View) -> String {
    let found = candidates(view, &view.vips[&VIP]);
    let usable: Vec<_> = found
        .usable
        .iter()
        .map(|(name, weight)| format!("{name}={weight}"))
        .collect();
    let refused: Vec<_> = found
        .refused
        .iter()
        .map(|(name, reason)| format!("{name} {reason}"))
        .collect();
    format!("{}; {}", usable.join(" "), refused.join(" "))
}

#[test]
fn every_usable_node_is_a_candidate_under_cluster_policy() {
    assert_eq!(
        shown(&view(&[("web", user(false, &["n2"]))])),
        "n1=0 n2=0 n3=0; "
    );
}

#[test]
fn local_policy_asks_for_an_endpoint_on_the_node() {
    let shown = shown(&view(&[("web", user(true, &["n2"]))]));
    assert_eq!(shown, "n2=0; n1 NoLocalEndpoints n3 NoLocalEndpoints");
}

#[test]
fn nobody_speaks_for_a_service_without_endpoints() {
    for local_only in [false, true] {
        let shown = shown(&view(&[("web", user(local_only, &[]))]));
        assert_eq!(
            shown, "; n1 NoEndpoints n2 NoEndpoints n3 NoEndpoints",
            "local_only {local_only}"
        );
    }
}

#[test]
fn an_endpoint_that_names_no_node_counts_under_cluster_policy_only() {
    let nowhere = |local_only| User {
        local_only,
        has_endpoints: true,
        endpoints_on: BTreeSet::new(),
    };
    assert_eq!(shown(&view(&[("web", nowhere(false))])), "n1=0 n2=0 n3=0; ");
    let refused = "; n1 NoLocalEndpoints n2 NoLocalEndpoints n3 NoLocalEndpoints";
    assert_eq!(shown(&view(&[("web", nowhere(true))])), refused);
}

#[test]
fn a_shared_vip_goes_to_a_node_that_serves_all_its_services_if_there_is_one() {
    let both = view(&[
        ("dns", user(true, &["n1", "n2"])),
        ("web", user(true, &["n2", "n3"])),
    ]);
    assert_eq!(
        shown(&both),
        "n2=0; n1 NoLocalEndpoints n3 NoLocalEndpoints"
    );
    let apart = view(&[("dns", user(true, &["n1"])), ("web", user(true, &["n3"]))]);
    assert_eq!(shown(&apart), "n1=0 n3=0; n2 NoLocalEndpoints");
    let idle = view(&[("dns", user(true, &[])), ("web", user(true, &["n3"]))]);
    assert_eq!(
        shown(&idle),
        "n3=0; n1 NoLocalEndpoints n2 NoLocalEndpoints"
    );
}

#[test]
fn the_only_node_that_serves_all_does_not_count_when_it_is_down() {
    let mut view = view(&[
        ("dns", user(true, &["n1", "n2"])),
        ("web", user(true, &["n2", "n3"])),
    ]);
    view.nodes.insert(
        "n2".into(),
        Node {
            alive: false,
            ..Node::usable()
        },
    );
    assert_eq!(shown(&view), "n1=0 n3=0; n2 MemberDown");
}

#[test]
fn a_node_is_refused_for_what_it_is() {
    let mut view = view(&[("web", user(false, &["n2"]))]);
    view.nodes.insert(
        "n1".into(),
        Node {
            excluded: true,
            ..Node::usable()
        },
    );
    view.nodes.insert(
        "n2".into(),
        Node {
            network_unavailable: true,
            ..Node::usable()
        },
    );
    view.nodes.insert(
        "n3".into(),
        Node {
            alive: false,
            ..Node::usable()
        },
    );
    assert_eq!(
        shown(&view),
        "; n1 NodeExcluded n2 NetworkUnavailable n3 MemberDown"
    );
}

#[test]
fn no_advertisement_covers_the_vip() {
    let mut view = view(&[("web", user(false, &["n2"]))]);
    view.advertisements.clear();
    let nobody = "; n1 NoAdvertisement n2 NoAdvertisement n3 NoAdvertisement";
    assert_eq!(shown(&view), nobody);
    let mut ad = Advertisement::everything("dmz");
    ad.pools = Selection::These([PoolName::from("dmz")].into());
    view.advertisements = vec![ad];
    assert_eq!(shown(&view), nobody);
}

#[test]
fn a_list_of_services_covers_its_service_alone_and_no_shared_vip() {
    let mut ad = Advertisement::everything("web");
    ad.services = Selection::These([ServiceKey::new("demo", "web")].into());
    let mut alone = view(&[("web", user(false, &["n2"]))]);
    alone.advertisements = vec![ad.clone()];
    assert_eq!(shown(&alone), "n1=0 n2=0 n3=0; ");
    let mut shared = view(&[("web", user(false, &["n2"])), ("dns", user(false, &["n2"]))]);
    shared.advertisements = vec![ad];
    assert_eq!(
        shown(&shared),
        "; n1 NoAdvertisement n2 NoAdvertisement n3 NoAdvertisement"
    );
}

#[test]
fn weights_add_up_over_the_advertisements_that_allow_the_node() {
    let mut first = Advertisement::everything("a");
    first.nodes = Selection::These(names(&["n1", "n2"]));
    first.preferences = [("n1".into(), 40), ("n3".into(), 90)].into();
    let mut second = Advertisement::everything("b");
    second.nodes = Selection::These(names(&["n1"]));
    second.preferences = [("n1".into(), 2)].into();
    let mut view = view(&[("web", user(false, &["n2"]))]);
    view.advertisements = vec![first, second];
    assert_eq!(shown(&view), "n1=42 n2=0; n3 NodeNotSelected");
    assert_eq!(
        decide(&view, &Gate::default())[&VIP].holder,
        Some("n1".into())
    );
}

#[test]
fn interfaces_are_the_union_over_the_advertisements_for_this_node() {
    let ad = |name: &str, nodes: Selection<NodeName>, interfaces: &[&str]| {
        let mut ad = Advertisement::everything(name);
        ad.nodes = nodes;
        if !interfaces.is_empty() {
            ad.interfaces = Selection::These(
                interfaces
                    .iter()
                    .map(|name| InterfaceName::from(*name))
                    .collect(),
            );
        }
        ad
    };
    let mut view = view(&[("web", user(false, &["n2"]))]);
    view.advertisements = vec![
        ad("a", Selection::All, &["eth0"]),
        ad("b", Selection::These(names(&["n1"])), &["eth1"]),
        ad("c", Selection::These(names(&["n2"])), &[]),
    ];
    let mine = decide(&view, &Gate::default());
    assert_eq!(
        mine[&VIP].interfaces,
        Selection::These(["eth0".into(), "eth1".into()].into())
    );
    view.me = "n2".into();
    assert_eq!(
        decide(&view, &Gate::default())[&VIP].interfaces,
        Selection::All
    );
}

#[test]
fn only_the_holder_announces_and_only_once_its_rules_are_there() {
    let mut view = view(&[("web", user(false, &["n2"]))]);
    let holder = decide(&view, &Gate::default())[&VIP]
        .holder
        .clone()
        .expect("three candidates");
    let mut open = Gate::default();
    open.programmed(VIP);
    for name in ["n1", "n2", "n3"] {
        view.me = name.into();
        let (closed, opened) = if holder.as_str() == name {
            (Reason::NotProgrammed, Reason::Announced)
        } else {
            (Reason::NotElected, Reason::NotElected)
        };
        assert_eq!(
            decide(&view, &Gate::default())[&VIP].reason,
            closed,
            "{name}"
        );
        assert_eq!(decide(&view, &open)[&VIP].reason, opened, "{name}");
    }
}

#[test]
fn a_node_outside_the_view_announces_nothing() {
    let mut view = view(&[("web", user(false, &["n2"]))]);
    view.me = "n9".into();
    assert_eq!(
        decide(&view, &Gate::default())[&VIP].reason,
        Reason::NodeUnknown
    );
}

#[test]
fn an_address_that_is_no_station_is_not_announced() {
    for text in ["224.0.0.1", "ff02::1", "127.0.0.1", "::", "255.255.255.255"] {
        let mut view = view(&[("web", user(false, &["n2"]))]);
        let vip = view.vips.remove(&VIP).expect("the VIP of the view");
        let address = text.parse().unwrap();
        view.vips.insert(address, vip);
        let decision = &decide(&view, &Gate::default())[&address];
        assert_eq!(
            (decision.reason, &decision.holder),
            (Reason::NotAnnounceable, &None),
            "{text}"
        );
    }
}

#[test]
fn the_gate_latches_per_vip() {
    let other: IpAddr = "192.0.2.11".parse().unwrap();
    let mut gate = Gate::default();
    gate.programmed(VIP);
    gate.programmed(other);
    gate.rules_gone(other);
    assert!(gate.is_open(VIP) && !gate.is_open(other));
    gate.retain(&view(&[]).vips);
    assert!(gate.is_open(VIP), "the VIP is still in the view");
    gate.retain(&BTreeMap::new());
    assert_eq!(gate, Gate::default());
}
