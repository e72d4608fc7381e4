use std::collections::BTreeSet;

use api_model::{IpFamily, Port};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    nft::{bytes, compile::ready_made_classes, element::ID_SHIFT, fake::FakeTable},
    node_view::{
        Endpoint, Policy, Service, ServicePort, ServiceView, Slice, SlicePort, SourceRanges,
    },
    rules::{Packet, desired},
};

fn node() -> ThisNode {
    ThisNode {
        name: "n1".into(),
        addresses: vec![ip("172.31.0.11"), ip("fd31::11")],
        zone: Some("a".into()),
        pod_networks: vec![
            "10.244.1.0/24".parse().unwrap(),
            "fd00:10:244:1::/64".parse().unwrap(),
        ],
        service_networks: vec![
            "10.96.0.0/16".parse().unwrap(),
            "fd00:10:96::/112".parse().unwrap(),
        ],
        leaving: false,
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn port(number: u16) -> Port {
    Port::new(number).unwrap()
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Cluster), Just(Policy::Local)]
}

fn addresses(pool: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<IpAddr>> {
    proptest::sample::subsequence(pool.to_vec(), 0..=most)
        .prop_map(|picked| picked.into_iter().map(ip).collect())
}

fn any_port() -> impl Strategy<Value = ServicePort> {
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp)];
    (protocol, 80..83u16, proptest::option::of(30_000..30_004u16)).prop_map(
        |(protocol, number, node_port)| ServicePort {
            name: format!("{protocol}-{number}").to_lowercase().into(),
            protocol,
            port: port(number),
            node_port: node_port.map(port),
        },
    )
}

fn any_service() -> impl Strategy<Value = Service> {
    let shares = (
        addresses(&["10.96.1.1", "10.96.1.2", "fd00:10:96::1"], 2),
        addresses(
            &["203.0.113.1", "203.0.113.2", "2001:db8::1", "172.31.0.11"],
            2,
        ),
        addresses(
            &["198.51.100.1", "203.0.113.2", "10.96.1.2", "2001:db8::2"],
            2,
        ),
        vec(any_port(), 0..3),
    );
    let ranges = proptest::sample::subsequence(
        vec![
            "172.31.0.0/25",
            "172.31.0.0/16",
            "10.244.1.0/24",
            "0.0.0.0/0",
            "fd31::/64",
        ],
        0..4,
    );
    let rest = (
        policy(),
        policy(),
        proptest::option::of(1..4u32),
        ranges,
        any::<bool>(),
    );
    (shares, rest).prop_map(
        |((cluster, lb, external, ports), (outside, inside, affinity, ranges, fail_closed))| {
            Service {
                cluster_ips: cluster,
                load_balancer_ips: lb,
                external_ips: external,
                ports,
                external_policy: outside,
                internal_policy: inside,
                affinity,
                source_ranges: SourceRanges {
                    allowed: ranges.into_iter().map(|net| net.parse().unwrap()).collect(),
                    fail_closed,
                },
                health_check_node_port: None,
            }
        },
    )
}

fn any_endpoint() -> impl Strategy<Value = Endpoint> {
    let address = prop_oneof![
        (1..3u8, 10..15u8).prop_map(|(net, host)| IpAddr::from([10, 244, net, host])),
        (10..13u16).prop_map(|host| IpAddr::from([0xfd00, 0x10, 0x244, 1, 0, 0, 0, host])),
    ];
    let node = prop_oneof![Just(None), Just(Some("n1".into())), Just(Some("n2".into()))];
    let zone = prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))];
    (address, node, zone, any::<[bool; 3]>()).prop_map(
        |(address, node, zone, [ready, serving, terminating])| Endpoint {
            address,
            ready,
            serving: ready || serving,
            terminating,
            node,
            zone_hints: zone.map(Arc::from).into_iter().collect(),
            node_hints: BTreeSet::new(),
        },
    )
}

fn any_slice() -> impl Strategy<Value = Slice> {
    let ports = (
        vec(any_port(), 1..3),
        prop_oneof![Just(8080u16), Just(8081)],
    )
        .prop_map(|(ports, target)| {
            let ports = ports.into_iter();
            ports
                .map(move |p| SlicePort {
                    name: p.name,
                    protocol: p.protocol,
                    port: port(target),
                })
                .collect()
        });
    (ports, vec(any_endpoint(), 0..6)).prop_map(|(ports, endpoints)| Slice { ports, endpoints })
}

fn any_view() -> impl Strategy<Value = NodeView> {
    let service =
        (any_service(), vec(any_slice(), 0..3)).prop_map(|(service, slices)| ServiceView {
            service: Arc::new(service),
            slices: slices.into_iter().map(Arc::new).collect(),
        });
    proptest::collection::btree_map(0..5u8, service, 0..5).prop_map(|services| NodeView {
        generation: 1,
        node: Arc::new(node()),
        services: services
            .into_iter()
            .map(|(n, view)| (ServiceKey::new("demo", &format!("s{n}")), view))
            .collect(),
    })
}

fn packets() -> Vec<(Packet, bool)> {
    let sources = [
        "172.31.0.100",
        "172.31.0.200",
        "172.31.0.11",
        "10.244.1.10",
        "10.244.2.10",
    ];
    let sources6 = ["fd31::100", "fd31::11", "fd00:10:244:1::10"];
    let to = [
        "10.96.1.1",
        "10.96.1.2",
        "10.96.9.9",
        "203.0.113.1",
        "203.0.113.2",
        "198.51.100.1",
        "172.31.0.11",
    ];
    let to6 = [
        "fd00:10:96::1",
        "fd00:10:96::9",
        "2001:db8::1",
        "2001:db8::2",
        "fd31::11",
    ];
    let mut packets = Vec::new();
    for (sources, to) in [(&sources[..], &to[..]), (&sources6[..], &to6[..])] {
        for (source, address) in sources
            .iter()
            .flat_map(|s| to.iter().map(move |t| (ip(s), ip(t))))
        {
            for (protocol, number) in [Protocol::Tcp, Protocol::Udp]
                .into_iter()
                .flat_map(|p| [80, 81, 30_000, 443].map(|n| (p, n)))
            {
                let to = Frontend {
                    address,
                    protocol,
                    port: port(number),
                };
                packets.push((Packet { source, to }, node().addresses.contains(&source)));
            }
        }
    }
    packets
}

fn fresh() -> (Planner, FakeTable) {
    (
        Planner::default(),
        FakeTable {
            elements: ready_made_classes(),
        },
    )
}

/// Classes stay once made; what is compared is everything else.
fn without_classes(table: &Table) -> Table {
    table
        .iter()
        .filter(|(key, _)| !matches!(key, Key::Class(..)))
        .map(|(key, value)| (*key, *value))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn applying_the_change_gives_the_table_and_no_further_change(views in vec(any_view(), 1..4)) {
        let (mut planner, mut kernel) = fresh();
        for view in &views {
            let change = planner.update(view);
            prop_assert_eq!(kernel.apply(&change.transaction), Ok(()));
            prop_assert_eq!(&kernel.elements, &planner.table());
            prop_assert!(planner.resync(&kernel.elements).is_empty());
            let mut again = view.clone();
            again.generation += 1;
            prop_assert_eq!(planner.update(&again), Change::default());
        }
    }

    #[test]
    fn a_packet_in_the_table_goes_where_the_snapshot_says(views in vec(any_view(), 1..3)) {
        let (mut planner, mut kernel) = fresh();
        for view in &views {
            kernel.apply(&planner.update(view).transaction).unwrap();
            let rules = desired(view);
            for (packet, own) in packets() {
                prop_assert_eq!(kernel.verdict(&packet, own), rules.verdict(&packet), "{:?}", packet);
            }
        }
    }

    #[test]
    fn diff_of_any_two_tables_leads_from_one_to_the_other(a in any_view(), b in any_view()) {
        let tables = [a, b].map(|view| {
            let mut planner = Planner::default();
            planner.update(&view);
            planner.table()
        });
        let mut kernel = FakeTable { elements: tables[0].clone() };
        prop_assert_eq!(kernel.apply(&diff(&tables[0], &tables[1])), Ok(()));
        prop_assert_eq!(without_classes(&kernel.elements), without_classes(&tables[1]));
    }

    #[test]
    fn after_a_restart_nothing_is_rewritten(views in vec(any_view(), 1..3)) {
        let (mut planner, mut kernel) = fresh();
        for view in &views {
            kernel.apply(&planner.update(view).transaction).unwrap();
        }
        let last = &views[views.len() - 1];
        let mut restarted = Planner::adopt(&kernel.elements);
        let change = restarted.resume(&kernel.elements, last);
        // A port whose frontends are all another Service's is not to be found again, and no packet reaches its slots.
        let table = restarted.table();
        let reached: BTreeSet<u32> =
            table.values().filter_map(|value| value.slot_set()).map(|set| set >> ID_SHIFT).collect();
        let mut rewritten = change.transaction.operations;
        rewritten.retain(|operation| {
            let (Key::Slot(_, _, set, _) | Key::Remembered(_, set)) = operation.key() else {
                return true;
            };
            reached.contains(&(set >> ID_SHIFT))
        });
        prop_assert_eq!(rewritten, vec![]);
        prop_assert_eq!(change.transaction.chains, vec![]);
    }

    #[test]
    fn a_restart_after_other_changes_ends_in_the_right_table(a in any_view(), b in any_view()) {
        let (mut planner, mut kernel) = fresh();
        kernel.apply(&planner.update(&a).transaction).unwrap();
        let mut restarted = Planner::adopt(&kernel.elements);
        let change = restarted.resume(&kernel.elements, &b);
        prop_assert_eq!(kernel.apply(&change.transaction), Ok(()));
        let rules = desired(&b);
        for (packet, own) in packets() {
            prop_assert_eq!(kernel.verdict(&packet, own), rules.verdict(&packet), "{:?}", packet);
        }
    }

    #[test]
    fn elements_read_back_as_written(view in any_view()) {
        let mut planner = Planner::default();
        planner.update(&view);
        let table = planner.table();
        let mut read = Table::new();
        for family in [IpFamily::V4, IpFamily::V6] {
            for map in Map::ALL {
                let mine = table.iter().filter(|(key, _)| key.map() == map && key.family() == family);
                let raw: Vec<_> = mine.flat_map(|(key, value)| bytes::encode(key, value)).collect();
                read.extend(bytes::decode(map, family, &raw).unwrap());
            }
        }
        prop_assert_eq!(read, table);
    }
}

fn many(services: u16) -> NodeView {
    let one = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let endpoint = |last: u8| Endpoint {
            address: IpAddr::from([10, 244, last, low]),
            ready: true,
            serving: true,
            terminating: false,
            node: Some("n2".into()),
            zone_hints: BTreeSet::new(),
            node_hints: BTreeSet::new(),
        };
        let view = ServiceView {
            service: Arc::new(Service {
                cluster_ips: vec![IpAddr::from([10, 96, high, low])],
                ports: vec![ServicePort {
                    name: "".into(),
                    protocol: Protocol::Tcp,
                    port: port(80),
                    node_port: None,
                }],
                ..Service::default()
            }),
            slices: [Arc::new(Slice {
                ports: vec![SlicePort {
                    name: "".into(),
                    protocol: Protocol::Tcp,
                    port: port(8080),
                }],
                endpoints: (1..=3).map(endpoint).collect(),
            })]
            .into(),
        };
        (ServiceKey::new("many", &format!("s{n:05}")), view)
    };
    NodeView {
        generation: 0,
        node: Arc::new(node()),
        services: (0..services).map(one).collect(),
    }
}

#[test]
fn one_endpoint_exchanged_among_many_services_is_one_operation() {
    for size in [10, 1_000] {
        let mut view = many(size);
        let mut planner = Planner::default();
        planner.update(&view);
        let service = view
            .services
            .get_mut(&ServiceKey::new("many", "s00005"))
            .unwrap();
        let mut slice = (*service.slices[0]).clone();
        slice.endpoints[1].address = ip("10.244.9.9");
        service.slices = [Arc::new(slice)].into();
        let change = planner.update(&view);
        assert_eq!(
            change.transaction.operations.len(),
            1,
            "{:?}",
            change.transaction
        );
        assert_eq!(change.services.len(), 1);
    }
}

#[test]
fn a_new_service_with_three_endpoints_is_five_operations() {
    for size in [10, 1_000] {
        let mut planner = Planner::default();
        planner.update(&many(size));
        let change = planner.update(&many(size + 1));
        assert_eq!(
            change.transaction.operations.len(),
            5,
            "{:?}",
            change.transaction
        );
    }
}
