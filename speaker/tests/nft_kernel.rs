//! The table in a real kernel, in a network namespace of its own for each test: what is written is what is read.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    process::Command,
    sync::Arc,
    thread,
};

use api_model::{IpFamily, Port, Protocol, ServiceKey};
use nix::sched::{CloneFlags, unshare};
use speaker::nft_io::{Found, NftIo};
use speaker_proxier::{
    Planner,
    nft::{
        ChainKind, Key, Map, NewChain, Operation, Table, Value,
        compile::{Settings, ready_made_classes},
    },
    node_view::{
        Endpoint, NodeView, Policy, Service, ServicePort, ServiceView, Slice, SlicePort,
        SourceRanges, ThisNode,
    },
};

const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

/// Runs a test on a thread in a fresh namespace, which goes with the thread.
fn inside(test: impl FnOnce(NftIo) + Send + 'static) {
    let thread = thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skips::skip("net-admin", &format!("making a network namespace: {error}"));
        }
        test(NftIo::open(Settings::default()).expect("the namespace is ours"));
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

fn nft(words: &str) -> String {
    let output = Command::new("nft")
        .args(words.split(' '))
        .output()
        .expect("nft is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nft {words}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn port(number: u16) -> Port {
    Port::new(number).expect("not 0")
}

fn service_port(protocol: Protocol, number: u16, node_port: u16) -> ServicePort {
    ServicePort {
        name: protocol.as_str().into(),
        protocol,
        port: port(number),
        node_port: Port::new(node_port),
    }
}

/// An endpoint of node `n1` or `n2` at 10.244.N.last and its IPv6 twin.
fn endpoints(node: u8, last: u16) -> [Endpoint; 2] {
    let [high, low] = last.to_be_bytes();
    let v4 = IpAddr::from([10, 244, node.wrapping_add(high), low]);
    let v6 = IpAddr::from([0xfd00, 0x10, 0x244, u16::from(node), 0, 0, 0, last]);
    [v4, v6].map(|address| Endpoint {
        address,
        ready: true,
        serving: true,
        terminating: false,
        node: Some(format!("n{node}").as_str().into()),
        zone_hints: BTreeSet::new(),
        node_hints: BTreeSet::new(),
    })
}

fn slice(protocols: &[Protocol], endpoints: impl IntoIterator<Item = [Endpoint; 2]>) -> Arc<Slice> {
    let ports = protocols.iter().map(|protocol| SlicePort {
        name: protocol.as_str().into(),
        protocol: *protocol,
        port: port(8080),
    });
    Arc::new(Slice {
        ports: ports.collect(),
        endpoints: endpoints.into_iter().flatten().collect(),
    })
}

/// Services that together have an element in every map of both families. `seconds` is the affinity timeout of one of them.
fn view(seconds: u32) -> NodeView {
    let plain = Service {
        cluster_ips: vec![ip("10.96.0.1"), ip("fd00:10:96::1")],
        external_ips: vec![ip("198.51.100.7"), ip("2001:db8:7::1")],
        ports: vec![
            service_port(Protocol::Tcp, 80, 30_080),
            service_port(Protocol::Udp, 53, 30_053),
            service_port(Protocol::Sctp, 9, 0),
        ],
        ..Service::default()
    };
    let sticky = Service {
        cluster_ips: vec![ip("10.96.0.2"), ip("fd00:10:96::2")],
        load_balancer_ips: vec![ip("192.0.2.10"), ip("2001:db8:2::10")],
        ports: vec![service_port(Protocol::Tcp, 443, 30_443)],
        external_policy: Policy::Local,
        affinity: Some(seconds),
        source_ranges: SourceRanges {
            allowed: ["192.0.2.0/25", "192.0.2.200/32", "2001:db8:2::/64"]
                .map(|net| net.parse().expect("a network"))
                .to_vec(),
            fail_closed: false,
        },
        ..Service::default()
    };
    let hole = Service {
        cluster_ips: vec![ip("10.96.0.3"), ip("fd00:10:96::3")],
        load_balancer_ips: vec![ip("192.0.2.11"), ip("2001:db8:2::11")],
        ports: vec![service_port(Protocol::Tcp, 80, 0)],
        external_policy: Policy::Local,
        ..Service::default()
    };
    let unserved = Service {
        cluster_ips: vec![ip("10.96.0.4"), ip("fd00:10:96::4")],
        ports: vec![service_port(Protocol::Tcp, 80, 0)],
        ..Service::default()
    };
    let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let services = [
        (
            "plain",
            plain,
            vec![slice(&all, (1..=3).map(|last| endpoints(1, last)))],
        ),
        (
            "sticky",
            sticky,
            vec![slice(&all, [endpoints(1, 9), endpoints(2, 9)])],
        ),
        ("hole", hole, vec![slice(&all, [endpoints(2, 9)])]),
        ("unserved", unserved, vec![]),
    ];
    NodeView {
        generation: 1,
        node: Arc::new(node()),
        services: services.into_iter().map(view_of).collect(),
    }
}

fn view_of((name, service, slices): (&str, Service, Vec<Arc<Slice>>)) -> (ServiceKey, ServiceView) {
    let view = ServiceView {
        service: Arc::new(service),
        slices: slices.into(),
    };
    (ServiceKey::new("demo", name), view)
}

fn node() -> ThisNode {
    let networks = |texts: &[&str]| {
        let texts = texts.iter();
        texts.map(|text| text.parse().expect("a network")).collect()
    };
    ThisNode {
        name: "n1".into(),
        addresses: vec![ip("172.31.0.11"), ip("fd31::11")],
        zone: None,
        pod_networks: networks(&["10.244.1.0/24", "10.244.9.0/25", "fd00:10:244:1::/64"]),
        service_networks: networks(&["10.96.0.0/16", "fd00:10:96::/112"]),
        leaving: false,
    }
}

/// Brings the kernel from one view to the next as the speaker does; gives the chains that had to be made.
fn follow(nft: &mut NftIo, planner: &mut Planner, view: &NodeView) -> Vec<NewChain> {
    let transaction = planner.update(view).transaction;
    nft.make_chains(&transaction.chains)
        .expect("the chains are taken");
    nft.apply(&transaction.operations)
        .expect("the elements are taken");
    transaction.chains
}

fn held(nft: &mut NftIo) -> Table {
    match nft.read().expect("the kernel answers") {
        Found::Table(table) => table,
        Found::Unusable(why) => panic!("the table can't be used: {why}"),
    }
}

fn unusable(nft: &mut NftIo) -> &'static str {
    match nft.read().expect("the kernel answers") {
        Found::Table(_) => panic!("the table is taken as ours"),
        Found::Unusable(why) => why,
    }
}

#[test]
fn elements_written_by_netlink_are_read_back_equal_in_every_map_of_both_families() {
    inside(|mut kernel| {
        kernel
            .replace(ready_made_classes())
            .expect("the text loads");
        let mut planner = Planner::default();
        follow(&mut kernel, &mut planner, &view(10_800));
        let wanted = planner.table();
        let filled: BTreeSet<_> = wanted.keys().map(|key| (key.family(), key.map())).collect();
        let all = FAMILIES.map(|family| Map::ALL.map(|map| (family, map)));
        assert_eq!(filled, all.into_iter().flatten().collect());
        assert_eq!(held(&mut kernel), wanted);
        let shown = nft("list ruleset");
        for ip in ["ip", "ip6"] {
            assert!(shown.contains(&format!("table {ip} roadstead {{")), "{ip}");
        }
    });
}

#[test]
fn a_table_loaded_as_one_text_is_read_back_equal_and_emptied_by_netlink() {
    inside(|mut kernel| {
        let mut planner = Planner::default();
        planner.update(&view(60));
        let whole = kernel.replace(planner.table()).expect("the text loads");
        assert_eq!(held(&mut kernel), whole);
        let mut empty = view(60);
        empty.services = BTreeMap::new();
        follow(&mut kernel, &mut planner, &empty);
        let left = held(&mut kernel);
        assert_eq!(left, planner.table());
        let others = left
            .keys()
            .filter(|key| !matches!(key, Key::Class(..) | Key::Net(..)));
        assert_eq!(others.count(), 0);
    });
}

#[test]
fn a_further_affinity_timeout_gets_its_chains_in_both_families_and_scopes() {
    inside(|mut kernel| {
        kernel
            .replace(ready_made_classes())
            .expect("the text loads");
        let mut planner = Planner::default();
        for seconds in [10_800, 1, 60, 65_536, 70_000, 86_400] {
            let made = follow(&mut kernel, &mut planner, &view(seconds));
            let wanted = [(1, true), (2, false)].map(|(slots, local)| ChainKind::Sticky {
                slots,
                seconds,
                local,
            });
            let made: BTreeSet<_> = made
                .iter()
                .map(|chain| (chain.family, chain.kind))
                .collect();
            let both = FAMILIES.map(|family| wanted.map(|kind| (family, kind)));
            assert_eq!(made, both.into_iter().flatten().collect());
            assert_eq!(held(&mut kernel), planner.table(), "{seconds} s");
        }
        // as nft writes them: 65,536 s, 70,000 s, a day
        for ip in ["ip", "ip6"] {
            for (seconds, text) in [
                (1, "timeout 1s"),
                (65_536, "timeout 18h12m16s"),
                (70_000, "timeout 19h26m40s"),
                (86_400, "timeout 1d"),
            ] {
                let chain = nft(&format!("list chain {ip} roadstead use-{seconds}"));
                assert!(chain.contains(text), "{chain}");
            }
        }
    });
}

#[test]
fn what_somebody_else_changed_is_seen() {
    inside(|mut kernel| {
        assert_eq!(unusable(&mut kernel), "no table with this fixed text");
        let mut planner = Planner::default();
        planner.update(&view(60));
        let whole = kernel.replace(planner.table()).expect("the text loads");
        let before = kernel.generation().expect("the kernel answers");
        nft("delete element ip roadstead cluster-ips { 10.96.0.1 }");
        assert_ne!(kernel.generation().expect("the kernel answers"), before);
        let transaction = planner.resync(&held(&mut kernel));
        let operations = &transaction.operations;
        assert_eq!(operations.len(), 1, "{operations:?}");
        kernel.apply(operations).expect("the element is taken");
        assert_eq!(held(&mut kernel), whole);
        nft("add rule ip roadstead services accept");
        assert_eq!(unusable(&mut kernel), "a chain or rule was changed");
        kernel.replace(planner.table()).expect("the text loads");
        assert_eq!(held(&mut kernel), whole);
        nft("flush ruleset");
        assert_eq!(unusable(&mut kernel), "no table with this fixed text");
    });
}

#[test]
fn a_batch_that_the_kernel_refuses_changes_nothing() {
    inside(|mut kernel| {
        kernel
            .replace(ready_made_classes())
            .expect("the text loads");
        let mut planner = Planner::default();
        let mut operations = planner.update(&view(60)).transaction.operations;
        let nobodys = Key::Address(Map::ClusterIps, ip("10.96.9.9"));
        operations.push(Operation::Delete(nobodys, Value::Member));
        assert!(kernel.apply(&operations).is_err());
        assert_eq!(held(&mut kernel), ready_made_classes());
    });
}

#[test]
fn a_set_of_1023_slots_is_written_and_read() {
    inside(|mut kernel| {
        kernel
            .replace(ready_made_classes())
            .expect("the text loads");
        let mut view = view(60);
        let many = slice(&[Protocol::Tcp], (1..=1_100).map(|last| endpoints(1, last)));
        let plain = ServiceKey::new("demo", "plain");
        let service = view.services.get_mut(&plain).expect("it is there");
        service.slices = [many].into();
        let mut planner = Planner::default();
        follow(&mut kernel, &mut planner, &view);
        let table = held(&mut kernel);
        assert_eq!(table, planner.table());
        let random = Value::Chain(ChainKind::Random { slots: 1_023 });
        for family in FAMILIES {
            assert_eq!(table.get(&Key::Class(family, 1_023)), Some(&random));
            let slots = table.keys().filter(|key| {
                matches!(key, Key::Slot(Map::Endpoints, of, _, slot) if *of == family && *slot < 1_023)
            });
            assert!(slots.count() >= 1_023);
        }
    });
}
