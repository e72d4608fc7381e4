//! The lab's own network, without any Service: who reaches whom, and what the other side sees.

use std::{
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    time::Duration,
};

use api_model::Protocol;
use lab::{
    netns::NetNs,
    pod::Pod,
    probe::{self, Failure, Stream, Tally},
    topology::{self, Topology},
    trial,
};

fn main() -> ExitCode {
    trial::main(|runner| {
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
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    loop {
        let tally = probe::ask_many(from, Protocol::Tcp, target, 1);
        if tally.answered() == 1 {
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "not back in 5 s: {tally}"
        );
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
