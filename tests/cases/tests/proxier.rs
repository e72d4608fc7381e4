//! Acceptance cases of the proxier: rules in memory, and what concerns the kernel in a network namespace.

#[path = "proxier/cluster.rs"]
mod cluster;
#[path = "proxier/kernel.rs"]
mod kernel;

use api_model::{IpFamily, Protocol};
use cluster::{Cluster, delivered, endpoint, port_8080, web};
use kernel::{Proxier, connect, eventually, in_namespace, pod, run};
use serde_json::json;
use speaker_proxier::{
    Reason,
    nft::{
        ChainKind, Key, Map, Value,
        compile::{Settings, declarations, fixed_chains},
        text,
    },
    rules::Verdict,
};

const CLIENT: &str = "192.0.2.200";
const POD: &str = "198.51.100.210";

fn two_endpoints(cluster: &mut Cluster, a_ready: bool, b_ready: bool) {
    let endpoints = vec![
        endpoint("198.51.100.201", "node-a", a_ready),
        endpoint("198.51.100.202", "node-b", b_ready),
    ];
    cluster.slice("web-a", "web", port_8080(), endpoints);
}

fn both(masquerade: bool) -> Verdict {
    delivered(&["198.51.100.201:8080", "198.51.100.202:8080"], masquerade)
}

/// Pods are known by network, so there is no interface prefix to be set; what the case wants of one holds all the same.
#[test]
fn b106_no_rule_waits_for_an_interface_and_pods_keep_their_source() {
    for family in [IpFamily::V4, IpFamily::V6] {
        for chain in fixed_chains(family, Settings::default()) {
            for rule in chain.rules {
                let words: Vec<&str> = rule.split(' ').collect();
                assert!(
                    !words
                        .iter()
                        .any(|word| word.starts_with("iif") || word.starts_with("oif")),
                    "{rule}"
                );
            }
        }
    }
    let mut cluster = Cluster::on("node-a");
    cluster.service(
        "web",
        web(json!({"externalTrafficPolicy": "Local"})),
        &[json!({"ip": "192.0.2.240"})],
    );
    two_endpoints(&mut cluster, true, true);
    cluster.sync();
    assert_eq!(cluster.tcp(POD, "198.51.100.130:80"), both(false));
    assert_eq!(
        cluster.tcp(POD, "192.0.2.240:80"),
        both(false),
        "any ready endpoint, not only the local one"
    );
}

#[test]
fn b106_the_table_loads_where_no_pod_interface_exists() {
    in_namespace(|| {
        let mut cluster = Cluster::on("node-a");
        cluster.service(
            "web",
            web(json!({"externalTrafficPolicy": "Local"})),
            &[json!({"ip": "192.0.2.240"})],
        );
        two_endpoints(&mut cluster, true, true);
        let proxier = Proxier::start();
        proxier.follow(cluster.view());
        let health = eventually("/healthz answers", || http("127.0.0.1:10256", "/healthz"));
        assert_eq!(health.lines().next(), Some("HTTP/1.1 200 OK"));
        // the networks of the cluster may be of the other family only: then this family's set of pods is empty
        assert!(
            run("nft", &["list", "set", "ip6", "roadstead", "pods"]).contains("type ipv6_addr")
        );
    });
}

#[test]
fn b110_rules_that_somebody_removed_come_back() {
    in_namespace(|| {
        pod("198.51.100.201");
        let mut cluster = Cluster::on("node-a");
        cluster.service("web", web(json!({})), &[]);
        cluster.slice(
            "web-a",
            "web",
            port_8080(),
            vec![endpoint("198.51.100.201", "node-a", true)],
        );
        run("nft", &["add", "table", "ip", "foreign"]);
        let proxier = Proxier::start();
        proxier.follow(cluster.view());
        let before = run("nft", &["list", "table", "ip", "roadstead"]);
        let damages: [&[&str]; 4] = [
            &["delete", "table", "ip", "roadstead"],
            &[
                "delete",
                "element",
                "ip",
                "roadstead",
                "cip",
                "{ 198.51.100.130 . tcp . 80 }",
            ],
            &["flush", "chain", "ip", "roadstead", "unserved"],
            &[
                "add",
                "rule",
                "ip",
                "roadstead",
                "services",
                "counter",
                "drop",
            ],
        ];
        for damage in damages {
            run("nft", damage);
            eventually(&format!("healed after {damage:?}"), || {
                let now = nft_table();
                if now == before {
                    Ok(())
                } else {
                    Err(now.len())
                }
            });
            connect(CLIENT, "198.51.100.130:80").expect("served again");
        }
        run("nft", &["list", "table", "ip", "foreign"]);
        drop(proxier);
        assert_eq!(
            run("nft", &["list", "table", "ip", "roadstead"]),
            before,
            "rules stay at a clean exit"
        );
    });
}

fn nft_table() -> String {
    let output = std::process::Command::new("nft")
        .args(["list", "table", "ip", "roadstead"])
        .output();
    output
        .map(|it| String::from_utf8_lossy(&it.stdout).into_owned())
        .unwrap_or_default()
}

/// The restart by SIGKILL and with the API server away are one and the same here: a new process knows nothing and the old
/// one cleaned nothing up.
#[test]
fn b111_a_restart_drops_no_connection_and_writes_nothing() {
    in_namespace(|| {
        for address in ["198.51.100.201", "198.51.100.202"] {
            pod(address);
        }
        let mut cluster = Cluster::on("node-a");
        let spec = json!({"type": "NodePort", "sessionAffinity": "ClientIP",
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30080}]});
        cluster.service("web", web(spec.clone()), &[]);
        two_endpoints(&mut cluster, true, true);
        let proxier = Proxier::start();
        proxier.follow(cluster.view());
        let (first, _open) = connect(CLIENT, "192.0.2.11:30080").expect("served");
        let before = rules_without_memory();
        drop(proxier);

        // down: served all the same; and up again without a view (the API server is away): nothing is touched
        connect(CLIENT, "198.51.100.130:80").expect("served while the proxier is down");
        let generation = ruleset_generation();
        let proxier = Proxier::start();
        connect(CLIENT, "198.51.100.130:80").expect("served before the first list");
        assert_eq!(
            ruleset_generation(),
            generation,
            "nothing is written before the first view"
        );
        proxier.follow(cluster.view());
        assert_eq!(rules_without_memory(), before, "the same rules");
        assert_eq!(
            ruleset_generation(),
            generation,
            "and none of them written again"
        );
        for _ in 0..20 {
            let (who, _) = connect(CLIENT, "192.0.2.11:30080").expect("served");
            assert_eq!(who, first, "the memory of clients lives on");
        }
        drop(proxier);

        // replaced while down
        cluster.delete_service("web");
        let mut other = web(spec);
        other["clusterIP"] = json!("198.51.100.131");
        cluster.service("web", other, &[]);
        let proxier = Proxier::start();
        proxier.follow(cluster.view());
        assert!(
            !rules_without_memory().contains("198.51.100.130"),
            "nothing of the old ClusterIP is left"
        );
        connect(CLIENT, "198.51.100.131:80").expect("the new one is served");
    });
}

fn rules_without_memory() -> String {
    let table = nft_table();
    let (head, tail) = table
        .split_once("map aff {")
        .expect("the memory of clients");
    let (_, tail) = tail.split_once("\n\t}\n").expect("its end");
    format!("{head}{tail}")
}

fn ruleset_generation() -> u32 {
    speaker::nft_io::NftIo::open(Settings::default())
        .and_then(|mut nft| nft.generation())
        .expect("the kernel has one")
}

#[test]
fn b111_a_restart_adopts_ids_and_slots() {
    let mut cluster = Cluster::on("node-a");
    cluster.service(
        "web",
        web(json!({"sessionAffinity": "ClientIP"})),
        &[json!({"ip": "192.0.2.240"})],
    );
    two_endpoints(&mut cluster, true, true);
    cluster.sync();
    let before = cluster.kernel.elements.clone();
    let change = cluster.restart();
    assert!(change.transaction.is_empty(), "{:?}", change.transaction);
    assert_eq!(cluster.kernel.elements, before);
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one case, from its beginning to its end"
)]
fn b116_source_ranges_filter_the_load_balancer_address_alone() {
    let mut cluster = Cluster::on("node-a");
    let tight = |ranges| {
        web(json!({
            "clusterIPs": ["198.51.100.130", "2001:db8:0:9::2"],
            "loadBalancerSourceRanges": ranges,
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30080}],
        }))
    };
    let ingress = [
        json!({"ip": "192.0.2.240"}),
        json!({"ip": "2001:db8:0:1::240"}),
    ];
    cluster.service(
        "tight",
        tight(json!(["192.0.2.192/28", " 2001:db8:0:1::c8/128"])),
        &ingress,
    );
    let mut open = web(json!({}));
    open["clusterIP"] = json!("198.51.100.131");
    cluster.service("open", open, &[json!({"ip": "192.0.2.241"})]);
    for name in ["tight", "open"] {
        cluster.slice(
            name,
            name,
            port_8080(),
            vec![endpoint("198.51.100.201", "node-a", true)],
        );
    }
    cluster.slice(
        "six",
        "tight",
        port_8080(),
        vec![endpoint("2001:db8:0:a::5", "node-a", true)],
    );
    cluster.sync();
    let served = delivered(&["198.51.100.201:8080"], true);
    let six = delivered(&["[2001:db8:0:a::5]:8080"], true);
    assert_eq!(cluster.tcp(CLIENT, "192.0.2.240:80"), served);
    assert_eq!(cluster.tcp("192.0.2.99", "192.0.2.240:80"), Verdict::Drop);
    assert_eq!(
        cluster.tcp("2001:db8:0:1::c8", "[2001:db8:0:1::240]:80"),
        six
    );
    assert_eq!(
        cluster.tcp("2001:db8:0:1::c9", "[2001:db8:0:1::240]:80"),
        Verdict::Drop
    );
    assert_eq!(cluster.tcp(POD, "192.0.2.240:80"), Verdict::Drop);
    assert_eq!(
        cluster.tcp(POD, "198.51.100.130:80"),
        delivered(&["198.51.100.201:8080"], false)
    );
    assert_eq!(cluster.tcp("192.0.2.99", "192.0.2.11:30080"), served);
    assert_eq!(cluster.tcp("192.0.2.99", "192.0.2.241:80"), served);

    cluster.service("tight", tight(json!(["0.0.0.0/0"])), &ingress);
    cluster.sync();
    assert_eq!(cluster.tcp("192.0.2.99", "192.0.2.240:80"), served);
    assert_eq!(
        cluster.tcp("2001:db8:0:1::c9", "[2001:db8:0:1::240]:80"),
        six,
        "no IPv6 range: IPv6 is open"
    );

    cluster.service("tight", tight(json!([])), &ingress);
    cluster.sync();
    assert_eq!(cluster.tcp("192.0.2.99", "192.0.2.240:80"), served);

    cluster.service("tight", tight(json!(["192.0.2.300/24"])), &ingress);
    let change = cluster.sync();
    assert_eq!(
        cluster.tcp(CLIENT, "192.0.2.240:80"),
        Verdict::Drop,
        "closed, not open"
    );
    assert_eq!(
        cluster.tcp("192.0.2.99", "192.0.2.241:80"),
        served,
        "others are untouched"
    );
    assert!(cluster.reasons(&change).contains(&Reason::BadSourceRange));
}

#[test]
fn b118_addresses_with_ip_mode_proxy_are_left_to_the_outside() {
    let mut cluster = Cluster::on("node-a");
    let ingress = |first: &str| {
        vec![
            json!({"ip": "203.0.113.81", "ipMode": first}),
            json!({"ip": "203.0.113.82", "ipMode": "VIP"}),
            json!({"ip": "203.0.113.83"}),
            json!({"hostname": "lb.example.com"}),
            json!({"ip": "203.0.113.84", "ipMode": "Proxy"}),
        ]
    };
    two_endpoints(&mut cluster, true, true);
    for (first, verdict) in [("Proxy", Verdict::Pass), ("VIP", both(true))] {
        cluster.service("web", web(json!({})), &ingress(first));
        cluster.sync();
        assert_eq!(cluster.tcp(POD, "203.0.113.81:80"), verdict);
        assert_eq!(cluster.tcp(POD, "203.0.113.82:80"), both(true));
        assert_eq!(cluster.tcp(POD, "203.0.113.83:80"), both(true));
        assert_eq!(cluster.tcp(POD, "203.0.113.84:80"), Verdict::Pass);
    }
}

/// The proxier's half: the allocation of one address for all ports is the allocator's.
#[test]
fn b119_each_of_151_ports_reaches_its_own_target() {
    let mut cluster = Cluster::on("node-a");
    let name = |n: u16| format!("rtp-{n}");
    let mut ports =
        vec![json!({"name": "sip", "protocol": "TCP", "port": 5060, "targetPort": 5060})];
    ports.extend(
        (0..150).map(|n| json!({"name": name(n), "protocol": "UDP", "port": 10_000 + 2 * n})),
    );
    cluster.service(
        "rtp",
        web(json!({"ports": ports})),
        &[json!({"ip": "192.0.2.240"})],
    );
    let slice_ports = |range: std::ops::Range<u16>| {
        let udp = range.map(|n| json!({"name": name(n), "protocol": "UDP", "port": 20_000 + n}));
        serde_json::Value::from(udp.collect::<Vec<_>>())
    };
    let at = ["198.51.100.201", "198.51.100.202", "198.51.100.203"];
    let endpoints = || at.map(|address| endpoint(address, "node-a", true)).to_vec();
    cluster.slice("rtp-1", "rtp", slice_ports(0..100), endpoints());
    cluster.slice("rtp-2", "rtp", slice_ports(100..150), endpoints());
    cluster.slice(
        "rtp-3",
        "rtp",
        json!([{"name": "sip", "protocol": "TCP", "port": 5060}]),
        endpoints(),
    );
    cluster.sync();
    for n in [0, 75, 149] {
        let to = at.map(|address| format!("{address}:{}", 20_000 + n));
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let frontend = format!("192.0.2.240:{}", 10_000 + 2 * n);
        assert_eq!(
            cluster.packet(Protocol::Udp, CLIENT, &frontend),
            delivered(&to, true)
        );
    }
    let sip = at.map(|address| format!("{address}:5060"));
    let sip: Vec<&str> = sip.iter().map(String::as_str).collect();
    assert_eq!(
        cluster.tcp(CLIENT, "192.0.2.240:5060"),
        delivered(&sip, true)
    );
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one case, from its beginning to its end"
)]
fn b120_udp_flows_are_forgotten_at_zero_and_at_a_new_endpoint() {
    use speaker_proxier::conntrack::Flow;
    let at = |text: &str| text.parse().expect("address and port");
    let flow = |to: &str, from: &str| Flow {
        source: at("198.51.100.210:40000"),
        destination: at(to),
        answers_from: at(from),
    };
    let frontends = [
        "198.51.100.130:8125",
        "192.0.2.11:30125",
        "192.0.2.240:8125",
        "203.0.113.9:8125",
    ];
    let mut cluster = Cluster::on("node-a");
    let spec = json!({"externalIPs": ["203.0.113.9"],
        "ports": [{"protocol": "UDP", "port": 8125, "nodePort": 30125}]});
    cluster.service("statsd", web(spec), &[json!({"ip": "192.0.2.240"})]);
    let ports = || json!([{"name": "", "protocol": "UDP", "port": 8125}]);
    let one = |address: &str, ready| vec![endpoint(address, "node-a", ready)];
    for zero in [vec![], one("198.51.100.201", false)] {
        cluster.slice("statsd-a", "statsd", ports(), one("198.51.100.201", true));
        cluster.sync();
        cluster.slice("statsd-a", "statsd", ports(), zero);
        let change = cluster.sync();
        for frontend in frontends {
            assert!(
                change
                    .forget
                    .must_go(&flow(frontend, "198.51.100.201:8125")),
                "{frontend}"
            );
            assert_eq!(
                cluster.packet(Protocol::Udp, POD, frontend),
                Verdict::Refuse
            );
        }
        cluster.slice("statsd-a", "statsd", ports(), one("198.51.100.202", true));
        let change = cluster.sync();
        for frontend in frontends {
            assert!(
                !change
                    .forget
                    .must_go(&flow(frontend, "198.51.100.202:8125")),
                "{frontend}"
            );
            assert!(
                change
                    .forget
                    .must_go(&flow(frontend, "198.51.100.201:8125")),
                "{frontend}"
            );
        }
        assert!(
            !change
                .forget
                .must_go(&flow("203.0.113.77:30125", "203.0.113.77:30125")),
            "a third party's"
        );
    }
    // the Service goes: its flows too, and those that were never ours stay
    cluster.delete_service("statsd");
    let change = cluster.sync();
    assert!(
        change
            .forget
            .must_go(&flow("192.0.2.240:8125", "198.51.100.202:8125"))
    );
    assert!(
        !change
            .forget
            .must_go(&flow("192.0.2.240:8125", "192.0.2.240:8125"))
    );
}

#[test]
fn b124_affinity_ends_with_the_endpoint_and_stays_with_the_new_one() {
    in_namespace(|| {
        for address in ["198.51.100.201", "198.51.100.202"] {
            pod(address);
        }
        let mut cluster = Cluster::on("node-a");
        cluster.service("web", web(json!({"sessionAffinity": "ClientIP"})), &[]);
        let proxier = Proxier::start();
        let mut step = |ready: [bool; 2]| {
            two_endpoints(&mut cluster, ready[0], ready[1]);
            proxier.follow(cluster.view());
            let mut answers =
                (0..10).map(|_| connect(CLIENT, "198.51.100.130:80").expect("served").0);
            let first = answers.next().expect("ten of them");
            assert!(answers.all(|who| who == first), "all ten on one");
            first
        };
        let x = step([true, true]);
        let x_is_first = x.to_string() == "198.51.100.201";
        let without_x = [!x_is_first, x_is_first];
        let y = step(without_x);
        assert_ne!(y, x, "X is not ready");
        assert_eq!(
            step([true, true]),
            y,
            "X is ready again: the new affinity holds"
        );
        assert_eq!(step([x_is_first, !x_is_first]), x, "Y is gone");
    });
}

#[test]
fn b124_an_endpoint_that_joins_or_leaves_changes_no_other_ones_memory() {
    let mut cluster = Cluster::on("node-a");
    cluster.service("web", web(json!({"sessionAffinity": "ClientIP"})), &[]);
    let ids = |cluster: &Cluster| -> Vec<(Key, Value)> {
        let elements = cluster.kernel.elements.iter();
        elements
            .filter(|(key, _)| key.map() == Map::AffinityEndpoints)
            .map(|(k, v)| (*k, *v))
            .collect()
    };
    two_endpoints(&mut cluster, true, true);
    cluster.sync();
    let two = ids(&cluster);
    let mut three = vec![endpoint("198.51.100.200", "node-b", true)];
    three.extend(
        [("198.51.100.201", "node-a"), ("198.51.100.202", "node-b")]
            .map(|(at, on)| endpoint(at, on, true)),
    );
    cluster.slice("web-a", "web", port_8080(), three);
    cluster.sync();
    assert!(
        two.iter().all(|held| ids(&cluster).contains(held)),
        "the ids of X and Y stay"
    );
    two_endpoints(&mut cluster, true, false);
    cluster.sync();
    two_endpoints(&mut cluster, true, true);
    cluster.sync();
    let back = ids(&cluster);
    assert!(
        back.contains(&two[0]) && !back.contains(&two[1]),
        "who comes back is remembered by nobody: {back:?}"
    );
}

#[test]
fn b127_timeouts_from_one_second_to_a_day() {
    let table = [
        (1, 1),
        (65_536, 65_536),
        (70_000, 70_000),
        (86_400, 86_400),
        (86_401, 86_400),
        (0, 1),
    ];
    for (given, used) in table {
        let mut cluster = Cluster::on("node-a");
        let config = json!({"clientIP": {"timeoutSeconds": given}});
        cluster.service(
            "web",
            web(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config})),
            &[],
        );
        two_endpoints(&mut cluster, true, true);
        let change = cluster.sync();
        let kinds: Vec<_> = change
            .transaction
            .chains
            .iter()
            .map(|chain| chain.kind)
            .collect();
        assert_eq!(
            kinds,
            [ChainKind::Sticky {
                slots: 2,
                seconds: used,
                local: false
            }]
        );
        let said = cluster
            .reasons(&change)
            .contains(&Reason::AffinityTimeoutClamped);
        assert_eq!(said, given != used, "{given}");
    }
}

#[test]
fn b127_the_kernel_keeps_long_timeouts_and_takes_a_new_one() {
    in_namespace(|| {
        for address in ["198.51.100.201", "198.51.100.202"] {
            pod(address);
        }
        let mut cluster = Cluster::on("node-a");
        two_endpoints(&mut cluster, true, true);
        let proxier = Proxier::start();
        for (seconds, shown) in [
            (70_000, ["expires 19h26m40s", "expires 19h26m3"]),
            (86_400, ["expires 1d", "expires 23h59m5"]),
            (60, ["expires 1m", "expires 5"]),
        ] {
            let config = json!({"clientIP": {"timeoutSeconds": seconds}});
            cluster.service(
                "web",
                web(json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": config})),
                &[],
            );
            proxier.follow(cluster.view());
            connect(CLIENT, "198.51.100.130:80").expect("served");
            let memory = run("nft", &["list", "map", "ip", "roadstead", "aff"]);
            assert!(
                shown.iter().any(|it| memory.contains(it)),
                "{shown:?}: {memory}"
            );
        }
    });
}

/// The proxier's half: which node serves a packet from outside. Who announces is layer 2's and BGP's.
#[test]
fn b128_each_change_of_policy_and_endpoints_shows_at_every_node() {
    let mut nodes = ["node-a", "node-b", "node-c"].map(Cluster::on);
    let all = |nodes: &mut [Cluster; 3], policy: &str, endpoints: &[serde_json::Value]| {
        nodes.each_mut().map(|node| {
            node.service(
                "web",
                web(json!({"externalTrafficPolicy": policy})),
                &[json!({"ip": "203.0.113.1"})],
            );
            node.slice("web-a", "web", port_8080(), endpoints.to_vec());
            node.sync();
            node.tcp(CLIENT, "203.0.113.1:80")
        })
    };
    let a = endpoint("198.51.100.201", "node-a", true);
    let b = |ready| endpoint("198.51.100.202", "node-b", ready);
    let to = |last: u8, masquerade| delivered(&[&format!("198.51.100.{last}:8080")], masquerade);
    let first = to(201, true);
    let steps = [
        (
            "Cluster",
            vec![a.clone(), b(false)],
            [first.clone(), first.clone(), first],
        ),
        (
            "Local",
            vec![a.clone(), b(false)],
            [to(201, false), Verdict::Drop, Verdict::Drop],
        ),
        (
            "Local",
            vec![a, b(true)],
            [to(201, false), to(202, false), Verdict::Drop],
        ),
        (
            "Local",
            vec![b(true)],
            [Verdict::Drop, to(202, false), Verdict::Drop],
        ),
        (
            "Local",
            vec![],
            [Verdict::Refuse, Verdict::Refuse, Verdict::Refuse],
        ),
        (
            "Cluster",
            vec![],
            [Verdict::Refuse, Verdict::Refuse, Verdict::Refuse],
        ),
        (
            "Local",
            vec![json!({"addresses": ["198.51.100.202"], "conditions": {"ready": true}})],
            [Verdict::Drop, Verdict::Drop, Verdict::Drop],
        ),
    ];
    for (number, (policy, endpoints, expected)) in (1..).zip(steps) {
        assert_eq!(
            all(&mut nodes, policy, &endpoints),
            expected,
            "step {number}"
        );
    }
}

#[test]
fn b131_the_health_check_node_port_tells_the_truth() {
    in_namespace(|| {
        let mut cluster = Cluster::on("node-a");
        let spec = || web(json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32100}));
        cluster.service("web", spec(), &[json!({"ip": "192.0.2.240"})]);
        cluster.slice(
            "web-a",
            "web",
            port_8080(),
            vec![endpoint("198.51.100.202", "node-b", true)],
        );
        let proxier = Proxier::start();
        proxier.follow(cluster.view());
        let body = |local| {
            format!(
                "{{\n\t\"service\": {{\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t}},\n\t\
                 \"localEndpoints\": {local},\n\t\"serviceProxyHealthy\": true\n}}"
            )
        };
        let whole = |status, local| {
            let body = body(local);
            format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\
                 X-Load-Balancing-Endpoint-Weight: {local}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )
        };
        let at = "192.0.2.11:32100";
        assert_eq!(
            eventually("the port answers", || http(at, "/any")),
            whole("503 Service Unavailable", 0)
        );
        let two =
            ["198.51.100.201", "198.51.100.202"].map(|address| endpoint(address, "node-a", true));
        cluster.slice("web-a", "web", port_8080(), two.to_vec());
        proxier.follow(cluster.view());
        assert_eq!(
            eventually("the port answers", || http(at, "/")),
            whole("200 OK", 2)
        );
        assert!(
            http("198.51.100.201:32100", "/").is_err(),
            "node addresses only"
        );
        cluster.delete_service("web");
        proxier.follow(cluster.view());
        eventually("closed", || http(at, "/").map_or(Ok(()), Err));

        // another process has the port: said, and everything else goes on
        let taken = std::net::TcpListener::bind(at).expect("free now");
        cluster.service("web", spec(), &[json!({"ip": "192.0.2.240"})]);
        proxier.follow(cluster.view());
        eventually("the taken port is reported", || {
            let refusals = proxier.refusals();
            let said = refusals
                .iter()
                .any(|it| it.reason == Reason::HealthCheckPortTaken && it.detail.contains("32100"));
            if said { Ok(()) } else { Err(refusals) }
        });
        drop(taken);
        assert_eq!(
            eventually("the port answers", || http(at, "/")),
            whole("200 OK", 2)
        );
    });
}

fn http(at: &str, path: &str) -> std::io::Result<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(at)?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The age of slices is not compared (said in `speaker_proxier::endpoints`): of one address in two slices the Ready one counts.
#[test]
fn b137_a_ready_pod_beats_a_ghost_with_its_address() {
    let ghost = json!({
        "addresses": ["198.51.100.201"], "nodeName": "node-a",
        "conditions": {"ready": false, "serving": false, "terminating": true},
        "targetRef": {"kind": "Pod", "name": "ghost", "namespace": "default"},
    });
    let mut fresh = endpoint("198.51.100.201", "node-a", true);
    fresh["targetRef"] = json!({"kind": "Pod", "name": "fresh", "namespace": "default"});
    let arrangements = [
        (vec![ghost.clone()], vec![fresh.clone()]),
        (vec![fresh.clone()], vec![ghost.clone()]),
        (vec![ghost.clone(), fresh.clone()], vec![]),
        (vec![fresh, ghost], vec![]),
    ];
    for (first, second) in arrangements {
        let mut cluster = Cluster::on("node-a");
        cluster.service("web", web(json!({})), &[]);
        cluster.slice("web-a", "web", port_8080(), first);
        cluster.slice("web-b", "web", port_8080(), second);
        cluster.sync();
        assert_eq!(
            cluster.tcp(POD, "198.51.100.130:80"),
            delivered(&["198.51.100.201:8080"], false)
        );
        let slots = cluster
            .kernel
            .elements
            .keys()
            .filter(|key| key.map() == Map::Endpoints)
            .count();
        assert_eq!(slots, 1, "weight of one endpoint");
    }
}

#[test]
fn b138_two_ports_on_one_address_are_two_endpoints() {
    let mut cluster = Cluster::on("node-a");
    let ports = json!([{"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"}]);
    cluster.service("web", web(json!({"ports": ports})), &[]);
    for (slice, port) in [("web-a", 8080), ("web-b", 8081)] {
        let ports = json!([{"name": "http", "protocol": "TCP", "port": port}]);
        cluster.slice(
            slice,
            "web",
            ports,
            vec![endpoint("192.0.2.12", "node-b", true)],
        );
    }
    cluster.sync();
    let verdict = cluster.tcp(POD, "198.51.100.130:80");
    assert_eq!(
        verdict,
        delivered(&["192.0.2.12:8080", "192.0.2.12:8081"], false)
    );
    let slots = cluster
        .kernel
        .elements
        .keys()
        .filter(|key| key.map() == Map::Endpoints)
        .count();
    assert_eq!(slots, 2, "one slot each: half and half");
    cluster.delete_slice("web-a");
    cluster.sync();
    assert_eq!(
        cluster.tcp(POD, "198.51.100.130:80"),
        delivered(&["192.0.2.12:8081"], false)
    );
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one case, from its beginning to its end"
)]
fn b142_hints_are_followed_or_fall_back() {
    let hinted =
        |last: u8, node: &str, hint: Option<&str>, [ready, serving, terminating]: [bool; 3]| {
            json!({
                "addresses": [format!("198.51.100.{last}")], "nodeName": node,
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
                "hints": hint.map(|zone| json!({"forZones": [{"name": zone}]})),
            })
        };
    let (up, down, ending) = (
        [true, true, false],
        [false, false, false],
        [false, true, true],
    );
    let (z1, z2, z3) = (Some("z1"), Some("z2"), Some("z3"));
    let table = [
        (
            "followed",
            vec![hinted(201, "node-a", z1, up), hinted(202, "node-b", z2, up)],
            vec![201],
        ),
        (
            "unready",
            vec![
                hinted(201, "node-a", z1, down),
                hinted(202, "node-b", z2, up),
            ],
            vec![202],
        ),
        (
            "partial",
            vec![
                hinted(201, "node-a", z1, up),
                hinted(202, "node-b", None, up),
            ],
            vec![201, 202],
        ),
        (
            "none-for-us",
            vec![hinted(202, "node-b", z2, up), hinted(203, "node-b", z3, up)],
            vec![202, 203],
        ),
        (
            "unready-without-hint",
            vec![
                hinted(201, "node-a", z1, up),
                hinted(202, "node-b", None, down),
            ],
            vec![201],
        ),
        (
            "terminating",
            vec![
                hinted(201, "node-a", z1, ending),
                hinted(202, "node-b", z2, up),
            ],
            vec![202],
        ),
    ];
    let run = |zone, policy: &str, endpoints: &[serde_json::Value], source, to| {
        let mut cluster = Cluster::on("node-a");
        cluster.zone = zone;
        let spec = json!({"trafficDistribution": "PreferClose", "externalTrafficPolicy": policy});
        cluster.service("web", web(spec), &[json!({"ip": "192.0.2.240"})]);
        cluster.slice("web-a", "web", port_8080(), endpoints.to_vec());
        cluster.sync();
        cluster.tcp(source, to)
    };
    let to = |lasts: &[u8]| {
        let to: Vec<String> = lasts
            .iter()
            .map(|last| format!("198.51.100.{last}:8080"))
            .collect();
        delivered(&to.iter().map(String::as_str).collect::<Vec<_>>(), false)
    };
    for (name, endpoints, expected) in &table {
        assert_eq!(
            run(z1, "Cluster", endpoints, POD, "198.51.100.130:80"),
            to(expected),
            "{name}"
        );
    }
    assert_eq!(
        run(None, "Cluster", &table[0].1, POD, "198.51.100.130:80"),
        to(&[201, 202]),
        "no zone label"
    );
    let other_zone = [hinted(201, "node-a", z2, up)];
    assert_eq!(
        run(z1, "Local", &other_zone, CLIENT, "192.0.2.240:80"),
        to(&[201]),
        "local wins"
    );
}

#[test]
fn the_whole_ruleset_is_accepted_by_nft() {
    in_namespace(|| {
        let mut cluster = Cluster::on("node-a");
        cluster.service(
            "web",
            web(json!({"sessionAffinity": "ClientIP", "externalTrafficPolicy": "Local"})),
            &[],
        );
        two_endpoints(&mut cluster, true, true);
        cluster.sync();
        let file =
            std::env::temp_dir().join(format!("roadstead-ruleset-{}.nft", std::process::id()));
        std::fs::write(
            &file,
            text::whole(Settings::default(), &cluster.planner.table()),
        )
        .expect("written");
        run("nft", &["-c", "-f", &file.to_string_lossy()]);
        std::fs::remove_file(&file).expect("it was there");
        assert_eq!(
            declarations(IpFamily::V4).len(),
            declarations(IpFamily::V6).len()
        );
    });
}
