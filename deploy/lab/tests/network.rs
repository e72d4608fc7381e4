//! The lab's own network, without any Service: who reaches whom, and what the other side sees.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use api_model::Protocol;
use lab::{
    netns::NetNs,
    pod::Pod,
    probe::{self, Failure, Stream, Tally},
    router::{NODE_ASN, ROUTER_ASN, Router, Routes},
    topology::{self, Node, Topology},
    trial,
};

fn main() -> ExitCode {
    trial::main(|runner, _| {
        let run_time = tokio::runtime::Runtime::new().expect("a run time starts");
        let _inside = run_time.enter();
        let topology = Topology::build().expect("the lab's network comes up");
        let pod = Pod::start(&topology.nodes[1], "web-a", 2, &[8080]).expect("a pod starts");
        let other = Pod::start(&topology.nodes[1], "web-b", 3, &[8080]).expect("a pod starts");
        runner.run((
            "every_node_reaches_a_pod_by_both_families",
            Box::new(|| {
                every_node_reaches_a_pod(&topology, &pod);
            }),
        ));
        runner.run((
            "a_pod_sees_the_address_of_a_pod_beside_it",
            Box::new(|| {
                sees(&other.ns, pod.addresses, other.addresses);
            }),
        ));
        runner.run((
            "a_client_behind_the_router_reaches_a_node_and_only_it",
            Box::new(|| {
                nobody_listens(&topology.outside, topology::node_v4(1).into());
                nobody_listens(&topology.outside, topology::node_v6(3).into());
            }),
        ));
        runner.run((
            "an_unplugged_node_is_silent_and_comes_back",
            Box::new(|| {
                unplugged(&topology, &pod);
            }),
        ));
        runner.run((
            "a_stream_measures_the_time_without_an_answer",
            Box::new(|| {
                stream_gap(&topology, &pod);
            }),
        ));
        if skips::have("gobgpd") {
            runner.run((
                "the_router_spreads_connections_over_equal_next_hops",
                Box::new(|| {
                    spread(&topology);
                }),
            ));
        } else {
            skips::skip("gobgpd", "no gobgpd on this machine");
        }
        pod.stop();
        other.stop();
    })
}

fn on(address: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(address, port)
}

fn all_from(pod: &str, source: IpAddr, count: usize) -> Tally {
    Tally {
        pods: [(pod.to_owned(), count)].into(),
        sources: [(source, count)].into(),
        ..Tally::default()
    }
}

fn every_node_reaches_a_pod(topology: &Topology, pod: &Pod) {
    for node in &topology.nodes {
        for (address, lan_address) in pod.addresses.into_iter().zip(node.addresses()) {
            for protocol in [Protocol::Tcp, Protocol::Udp] {
                let tally = probe::ask_many(&node.ns, protocol, on(address, 8080), 5);
                // the pod's own node speaks to it from the pod link's end
                let gateways: [IpAddr; 2] =
                    [topology::pod_v4(2, 1).into(), topology::pod_v6(2, 1).into()];
                let gateway = if address.is_ipv4() {
                    gateways[0]
                } else {
                    gateways[1]
                };
                let source = if node.number == 2 {
                    gateway
                } else {
                    lan_address
                };
                assert_eq!(
                    tally,
                    all_from("web-a", source, 5),
                    "{} {protocol} {address}",
                    node.name()
                );
            }
        }
    }
}

fn sees(from: &NetNs, targets: [IpAddr; 2], sources: [IpAddr; 2]) {
    for (target, source) in targets.into_iter().zip(sources) {
        let tally = probe::ask_many(from, Protocol::Tcp, on(target, 8080), 3);
        assert_eq!(tally, all_from("web-a", source, 3), "{target}");
    }
}

/// A closed port of a host that is reached refuses
fn nobody_listens(from: &NetNs, target: IpAddr) {
    let tally = probe::ask_many(from, Protocol::Tcp, on(target, 8080), 2);
    let expected = Tally {
        failures: [(Failure::Refused, 2)].into(),
        ..Tally::default()
    };
    assert_eq!(tally, expected, "{target}");
}

fn unplugged(topology: &Topology, pod: &Pod) {
    let target = on(pod.addresses[0], 8080);
    let from = &topology.nodes[0].ns;
    topology.nodes[1]
        .cable(&topology.lan, false)
        .expect("the cable comes out");
    let tally = probe::ask_many(from, Protocol::Udp, target, 1);
    assert_eq!((tally.answered(), tally.failed()), (0, 1), "{tally}");
    topology.nodes[1]
        .cable(&topology.lan, true)
        .expect("the cable goes in");
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let tally = probe::ask_many(from, Protocol::Tcp, target, 1);
        if tally.answered() == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "not back in 5 s: {tally}");
    }
}

fn stream_gap(topology: &Topology, pod: &Pod) {
    let cut = Duration::from_millis(300);
    let stream = Stream::start(&topology.nodes[0].ns, on(pod.addresses[0], 8080));
    wait(Duration::from_millis(200));
    topology.nodes[1]
        .cable(&topology.lan, false)
        .expect("the cable comes out");
    wait(cut);
    topology.nodes[1]
        .cable(&topology.lan, true)
        .expect("the cable goes in");
    wait(Duration::from_millis(1_500));
    let heard = stream.stop().expect("the stream ends");
    assert!(heard.longest_gap >= cut, "{heard:?}");
    assert!(
        heard.longest_gap < Duration::from_millis(1_500),
        "{heard:?}"
    );
    assert!(heard.answers > 100, "{heard:?}");
}

/// Lets time pass that is itself measured: not a wait for something to happen
fn wait(time: Duration) {
    std::thread::sleep(time);
}

/// gobgpd on two nodes in the place of speakers, each announcing the same address to the router
fn spread(topology: &Topology) {
    let folder = std::path::Path::new("/run");
    let router = Router::start(&topology.router, folder).expect("gobgpd starts");
    let speakers: Vec<Child> = topology.nodes[..2].iter().map(announce).collect();
    let hops: BTreeSet<IpAddr> = [1, 2].map(|number| topology::node_v4(number).into()).into();
    let wanted = Routes::from([("203.0.113.10/32".to_owned(), hops)]);
    eventually(|| router.routes(), &wanted);
    let servers: Vec<Pod> = topology.nodes[..2].iter().map(behind).collect();
    let tally = probe::ask_many(
        &topology.outside,
        Protocol::Tcp,
        on([203, 0, 113, 10].into(), 8080),
        60,
    );
    assert_eq!(tally.answered(), 60, "{tally}");
    assert_eq!(tally.pod_names(), ["n1", "n2"]);
    for mut speaker in speakers {
        speaker.kill().expect("gobgpd can be ended");
        speaker.wait().expect("gobgpd ends");
    }
    eventually(|| router.routes(), &Routes::new());
    servers.into_iter().for_each(Pod::stop);
}

fn announce(node: &Node) -> Child {
    let (address, router) = (topology::node_v4(node.number), topology::ROUTER_V4);
    let text = format!(
        "[global.config]\n as = {NODE_ASN}\n router-id = \"{address}\"\n[[neighbors]]\n [neighbors.config]\n \
         neighbor-address = \"{router}\"\n peer-as = {ROUTER_ASN}\n [neighbors.timers.config]\n connect-retry = 1\n"
    );
    let file = format!("/run/{}.toml", node.name());
    std::fs::write(&file, text).expect("the lab's /run can be written");
    let mut command = Command::new("gobgpd");
    command
        .args(["-f", &file, "--api-hosts", "127.0.0.1:50051"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let daemon = node.ns.start(&mut command).expect("gobgpd starts");
    let added = || {
        let hop = address.to_string();
        let mut add = Command::new("gobgp");
        add.args([
            "global",
            "rib",
            "add",
            "203.0.113.10/32",
            "nexthop",
            &hop,
            "-a",
            "ipv4",
        ]);
        add.stdout(Stdio::null()).stderr(Stdio::null());
        let mut add = node.ns.start(&mut add).expect("gobgp starts");
        add.wait().expect("gobgp ends").success()
    };
    eventually(added, &true);
    daemon
}

/// A pod that answers for the announced address itself
fn behind(node: &Node) -> Pod {
    let pod = Pod::start(node, &node.name(), 9, &[8080]).expect("a pod starts");
    pod.ns
        .ip("addr add 203.0.113.10/32 dev lo")
        .expect("the address can be added");
    let via = topology::pod_v4(node.number, 9);
    let route = format!("route add 203.0.113.10/32 via {via}");
    node.ns.ip(&route).expect("the route can be added");
    pod
}

/// Polls until `look` sees `wanted`; fails with the last look after 10 s
fn eventually<T: PartialEq + std::fmt::Debug>(mut look: impl FnMut() -> T, wanted: &T) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let seen = look();
        if seen == *wanted {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "after 10 s: {seen:?}, wanted {wanted:?}"
        );
        wait(Duration::from_millis(20));
    }
}
