//! The proxier on a node of its own: real rules, real packets, IPv4.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    bench::{Host, Proxier, eventually, get, inside, ruleset, run, set_up_node, table},
    world::{Objects, READY, endpoint, key, port_8080},
};

const CLUSTER_IP: &str = "198.51.100.130:80";
const VIP: &str = "192.0.2.240:80";
const NODE_PORT: &str = "192.0.2.11:30080";

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn web(objects: &mut Objects, cluster_ip: &str, more: &Value) {
    let mut spec = json!({
        "type": "NodePort", "clusterIP": cluster_ip,
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30080}],
    });
    for (field, value) in more.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    objects.service("web", spec, json!([{"ip": "192.0.2.240"}]));
    let endpoints = [
        endpoint("198.51.100.201", "node-a", READY),
        endpoint("198.51.100.202", "node-b", READY),
    ];
    objects.slice("web", "web-a", port_8080(), &endpoints);
}

fn backends() -> [Host; 2] {
    [("one", "198.51.100.201"), ("two", "198.51.100.202")].map(|(name, address)| {
        let host = Host::plug(name, address);
        host.serve(8080);
        host
    })
}

/// A pod is known by its network, never by an interface: the one way there is, so the three settings of the case are one.
#[test]
fn b106_the_table_loads_before_any_pod_interface_is_there() {
    inside(|| {
        run("ip link set lo up");
        let mut objects = Objects::new();
        let local = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
        web(&mut objects, "198.51.100.130", &local);
        let proxier = Proxier::of(&mut objects);
        let vips = &proxier.programmed().vips;
        assert_eq!(vips.get(&key("web")), Some(&[ip("192.0.2.240")].into()));
        assert!(!run("nft list ruleset").contains("iif"));
        let healthz = eventually("healthz answers", || get("127.0.0.1:10256"));
        assert!(healthz.starts_with("HTTP/1.1 200 "), "{healthz}");
        // now the pods come
        set_up_node();
        let _backends = backends();
        let pod = Host::plug("azv0abc", "198.51.100.210");
        let mut reached = BTreeSet::new();
        for to in [CLUSTER_IP, VIP].into_iter().cycle().take(40) {
            let [server, client] = pod.ask(to).expect(to);
            assert_eq!(client, ip("198.51.100.210"), "the source address is kept");
            reached.insert((to, server));
        }
        let both = [ip("198.51.100.201"), ip("198.51.100.202")];
        let all = [CLUSTER_IP, VIP].map(|to| both.map(|server| (to, server)));
        assert_eq!(reached, all.into_iter().flatten().collect());
    });
}

/// The event on the Node follows from `Programmed::restored`.
#[test]
fn b110_rules_removed_by_somebody_else_come_back() {
    inside(|| {
        set_up_node();
        let _backends = backends();
        let pod = Host::plug("pod", "198.51.100.210");
        let client = Host::plug("client", "192.0.2.200");
        let mut objects = Objects::new();
        web(&mut objects, "198.51.100.130", &json!({}));
        let proxier = Proxier::of(&mut objects);
        let whole = table().expect("it is in place");
        let foreign = "table ip foreign {\n\tchain other {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n}\n";
        for (times, damage) in (1..).zip([
            "nft flush ruleset",
            "nft add rule ip roadstead services counter accept",
        ]) {
            run(damage);
            eventually("the table is as it was", || {
                if table()? == whole {
                    Ok(())
                } else {
                    Err("it differs".to_owned())
                }
            });
            eventually("it is told", || match proxier.programmed().restored {
                seen if seen >= times => Ok(()),
                seen => Err(seen.to_string()),
            });
            pod.ask(CLUSTER_IP).expect(damage);
            client.ask(NODE_PORT).expect(damage);
        }
        run("nft add table ip foreign");
        run("nft add chain ip foreign other { type nat hook prerouting priority dstnat ; }");
        drop(proxier);
        let again = Proxier::of(&mut objects);
        client.ask(NODE_PORT).expect("it serves again");
        assert_eq!(run("nft list table ip foreign"), foreign);
        drop(again);
        assert_eq!(run("nft list table ip foreign"), foreign);
    });
}

/// Ends by dropping the handle, which leaves the rules like SIGTERM and SIGKILL do. With the API server unreachable there is
/// no first snapshot: the proxier is started and told nothing.
#[test]
fn b111_restarting_the_proxier_drops_no_connection() {
    inside(|| {
        set_up_node();
        let _backends = backends();
        let pod = Host::plug("pod", "198.51.100.210");
        let client = Host::plug("client", "192.0.2.200");
        let mut objects = Objects::new();
        let sticky = json!({"sessionAffinity": "ClientIP"});
        web(&mut objects, "198.51.100.130", &sticky);
        let first = Proxier::of(&mut objects);
        let mut long = [
            pod.connect(CLUSTER_IP).expect("it serves"),
            client.connect(NODE_PORT).expect("it serves"),
        ];
        let reached = [
            long[0].ask().expect("it answers"),
            long[1].ask().expect("it answers"),
        ];
        let (whole, number) = (table(), ruleset());
        let memory = memory();
        assert_eq!(memory.len(), 2, "two clients are remembered");
        let stop = Arc::new(AtomicBool::new(false));
        let traffic = {
            let stop = stop.clone();
            thread::spawn(move || {
                let mut connections = 0;
                while !stop.load(Ordering::Relaxed) {
                    let pod_reached = pod.ask(CLUSTER_IP).expect("no connection fails");
                    let client_reached = client.ask(NODE_PORT).expect("no connection fails");
                    assert_eq!([pod_reached, client_reached], reached, "memory holds");
                    connections += 2;
                    thread::sleep(Duration::from_millis(10));
                }
                connections
            })
        };
        drop(first);
        for _ in 0..2 {
            let told_nothing = Proxier::start();
            thread::sleep(Duration::from_millis(1_200));
            assert_eq!((table(), ruleset()), (whole.clone(), number), "not touched");
            told_nothing.follow(&mut objects);
            assert_eq!(
                (table(), ruleset()),
                (whole.clone(), number),
                "nothing is rewritten"
            );
            drop(told_nothing);
        }
        stop.store(true, Ordering::Relaxed);
        let connections = traffic.join().expect("no connection fails");
        assert!(connections > 20, "{connections} connections meanwhile");
        for (connection, before) in long.iter_mut().zip(reached) {
            assert_eq!(connection.ask(), Ok(before), "a long one goes on");
        }
        assert_eq!(
            self::memory(),
            memory,
            "and the same clients are remembered"
        );
        // while down the Service is replaced by one with another address
        web(&mut objects, "198.51.100.140", &sticky);
        let last = Proxier::of(&mut objects);
        let shown = run("nft list ruleset");
        assert!(!shown.contains("198.51.100.130") && shown.contains("198.51.100.140"));
        drop(last);
    });
}

/// Clients that the kernel remembers, without the time that is left.
fn memory() -> BTreeSet<String> {
    let shown = run("nft list map ip roadstead aff");
    let elements = shown
        .split_once("elements = {")
        .map_or("", |(_, rest)| rest);
    let elements = elements.split(['}', ',']);
    let clients = elements.filter_map(|element| {
        let (client, rest) = element.split_once(" timeout ")?;
        let (_, endpoint) = rest.split_once(" : ")?;
        Some(format!("{} : {}", client.trim(), endpoint.trim()))
    });
    clients.collect()
}

/// One frontend of the case; the others are looked at in memory.
#[test]
fn b120_udp_packets_follow_the_endpoints_through_zero() {
    inside(|| {
        set_up_node();
        let [one, two] = [("one", "198.51.100.201"), ("two", "198.51.100.202")]
            .map(|(name, address)| Host::plug(name, address));
        let pod = Host::plug("pod", "198.51.100.210");
        let bind = |host: &Host, port: u16| {
            let socket = host.run(|| UdpSocket::bind(("0.0.0.0", port)));
            let socket = socket.expect("nobody else listens");
            socket
                .set_read_timeout(Some(Duration::from_millis(200)))
                .expect("not zero");
            socket
        };
        let [one, two] = [bind(&one, 8125), bind(&two, 8125)];
        let sender = bind(&pod, 40_000);
        let mut objects = Objects::new();
        let spec = json!({
            "clusterIP": "198.51.100.130",
            "ports": [{"name": "statsd", "protocol": "UDP", "port": 8125}],
        });
        objects.service("statsd", spec, json!([]));
        let ports = json!([{"name": "statsd", "protocol": "UDP", "port": 8125}]);
        let served_by = |objects: &mut Objects, lasts: &[u8]| {
            let endpoints = lasts.iter();
            let endpoints: Vec<_> = endpoints
                .map(|last| endpoint(&format!("198.51.100.{last}"), "node-b", READY))
                .collect();
            objects.slice("statsd", "statsd-a", ports.clone(), &endpoints);
        };
        let to: SocketAddr = "198.51.100.130:8125".parse().expect("address and port");
        let arrives = |at: &UdpSocket| {
            let source = eventually("packets arrive", || {
                // an earlier answer "unreachable" is reported here
                let _ = sender.send_to(b"1", to);
                let mut packet = [0; 8];
                at.recv_from(&mut packet).map_err(|error| error.to_string())
            });
            assert_eq!(source.1, SocketAddr::new(ip("198.51.100.210"), 40_000));
        };
        served_by(&mut objects, &[201]);
        let proxier = Proxier::of(&mut objects);
        arrives(&one);
        served_by(&mut objects, &[]);
        proxier.follow(&mut objects);
        sender.connect(to).expect("an address is kept");
        eventually("the sender is told that nobody is there", || {
            let sent = sender.send(b"2").and_then(|_| sender.recv(&mut [0; 8]));
            match sent {
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        served_by(&mut objects, &[202]);
        proxier.follow(&mut objects);
        arrives(&two);
    });
}
