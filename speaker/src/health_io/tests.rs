use std::{
    io::{Read, Write},
    net::{TcpListener as Listener, TcpStream as Stream},
};

use api_model::ServiceKey;
use speaker_proxier::node_view::{
    Endpoint as Backend, Policy, Service, ServiceView, Slice, SlicePort, ThisNode,
};

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DEADLINE: Duration = Duration::from_secs(20);

/// A port of this machine that nobody has.
fn free_port() -> Port {
    let listener = Listener::bind((HERE, 0)).expect("a port is free");
    let address = listener.local_addr().expect("a listener has an address");
    Port::new(address.port()).expect("the system gives no port 0")
}

/// Services with a health check node port each and so many Ready endpoints here.
fn view(services: &[(&str, Port, u8)], leaving: bool) -> NodeView {
    let service = |port, endpoints| ServiceView {
        service: Arc::new(Service {
            external_policy: Policy::Local,
            health_check_node_port: Some(port),
            ..Service::default()
        }),
        slices: [Arc::new(Slice {
            ports: vec![SlicePort {
                name: "".into(),
                protocol: api_model::Protocol::Tcp,
                port,
            }],
            endpoints: (1..=endpoints).map(ready).collect(),
        })]
        .into(),
    };
    NodeView {
        generation: 1,
        node: Arc::new(ThisNode {
            name: "n1".into(),
            addresses: vec![HERE],
            zone: None,
            pod_networks: vec![],
            service_networks: vec![],
            leaving,
        }),
        services: services
            .iter()
            .map(|(name, port, count)| (ServiceKey::new("demo", name), service(*port, *count)))
            .collect(),
    }
}

fn ready(last: u8) -> Backend {
    Backend {
        address: IpAddr::from([10, 244, 1, last]),
        ready: true,
        serving: true,
        terminating: false,
        node: Some("n1".into()),
        zone_hints: BTreeSet::new(),
        node_hints: BTreeSet::new(),
    }
}

/// The whole answer, as soon as somebody listens.
fn get(port: Port, path: &str) -> String {
    let until = Instant::now() + DEADLINE;
    loop {
        match Stream::connect((HERE, port.get())) {
            Ok(mut stream) => {
                let request = format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n");
                stream.write_all(request.as_bytes()).expect("it is read");
                let mut answer = String::new();
                stream.read_to_string(&mut answer).expect("it is answered");
                return answer;
            }
            Err(error) => assert!(Instant::now() < until, "nobody listens on {port}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn service_answer(status: &str, name: &str, local: u8, healthy: bool) -> String {
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"demo\",\n\t\t\"name\": \"{name}\"\n\t}},\n\t\"localEndpoints\": {local},\n\t\
         \"serviceProxyHealthy\": {healthy}\n}}"
    );
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
         X-Load-Balancing-Endpoint-Weight: {local}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_service_port_answers_200_with_endpoints_here_and_503_without() {
    let (web, idle) = (free_port(), free_port());
    let board = Arc::new(Board::default());
    let _handle = start(board.clone(), None).expect("the thread starts");
    board.follow(&view(&[("web", web, 2), ("idle", idle, 0)], false));
    assert_eq!(
        get(web, "/any/path"),
        service_answer("200 OK", "web", 2, true)
    );
    assert_eq!(
        get(idle, "/"),
        service_answer("503 Service Unavailable", "idle", 0, true)
    );
}

#[test]
fn an_update_that_waits_for_longer_than_a_minute_makes_all_ports_unhealthy_until_it_is_done() {
    let (web, own) = (free_port(), free_port());
    let board = Arc::new(Board::default());
    let _handle = start(board.clone(), Some(own)).expect("the thread starts");
    board.follow(&view(&[("web", web, 1)], false));
    board.pending();
    assert_eq!(get(web, "/"), service_answer("200 OK", "web", 1, true));
    board.state().pending_since = Instant::now().checked_sub(PENDING_LIMIT * 2);
    let unavailable = "HTTP/1.1 503 Service Unavailable\r\n";
    assert_eq!(
        get(web, "/"),
        service_answer("503 Service Unavailable", "web", 1, false)
    );
    assert!(get(own, "/healthz").starts_with(unavailable));
    assert!(get(own, "/livez").starts_with(unavailable));
    board.in_step();
    assert_eq!(get(web, "/"), service_answer("200 OK", "web", 1, true));
    assert!(get(own, "/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn a_node_that_leaves_is_not_eligible_but_alive_and_its_services_answer_as_before() {
    let (web, own) = (free_port(), free_port());
    let board = Arc::new(Board::default());
    let _handle = start(board.clone(), Some(own)).expect("the thread starts");
    board.follow(&view(&[("web", web, 1)], true));
    assert_eq!(get(web, "/"), service_answer("200 OK", "web", 1, true));
    let healthz = get(own, "/healthz?verbose");
    assert!(
        healthz.starts_with("HTTP/1.1 503 ") && healthz.contains("\"nodeEligible\":false"),
        "{healthz}"
    );
    assert!(get(own, "/livez").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(get(own, "/").starts_with("HTTP/1.1 404 Not Found\r\n"));
}

#[test]
fn a_port_that_another_process_holds_is_reported_stops_nobody_else_and_is_taken_when_free() {
    let (taken, web) = (free_port(), free_port());
    let other = Listener::bind((HERE, taken.get())).expect("the port was free");
    let board = Arc::new(Board::default());
    let _handle = start(board.clone(), None).expect("the thread starts");
    board.follow(&view(&[("a", taken, 1), ("web", web, 1)], false));
    assert_eq!(get(web, "/"), service_answer("200 OK", "web", 1, true));
    let refusals = refusals_once(&board, |refusals| !refusals.is_empty());
    let found: Vec<_> = refusals
        .iter()
        .map(|it| (&*it.service.name, it.reason))
        .collect();
    assert_eq!(found, [("a", Reason::HealthCheckPortTaken)]);
    assert!(refusals[0].detail.contains(&taken.to_string()));
    drop(other);
    refusals_once(&board, Vec::is_empty);
    assert_eq!(get(taken, "/"), service_answer("200 OK", "a", 1, true));
}

fn refusals_once(board: &Board, holds: impl Fn(&Vec<Refusal>) -> bool) -> Vec<Refusal> {
    let until = Instant::now() + DEADLINE;
    loop {
        let refusals = board.refusals();
        if holds(&refusals) {
            return refusals;
        }
        assert!(Instant::now() < until, "still {refusals:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
