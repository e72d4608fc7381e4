//! What a peer may send, and what is answered.

use std::collections::BTreeSet;

use api_model::IpFamily;
use speaker_bgp::{NodeAddresses, PeerConfig, Side, State};

use crate::bench::{
    Bench, KEEPALIVE, OPEN, OPEN_BOTH, Update, config, digits, hex, routes, seconds,
};

const MARKER: &str = "ffffffffffffffffffffffffffffffff";

/// A control: 198.51.100.0/25 announced well.
const VALID: &str = "ffffffffffffffffffffffffffffffff003002000000144001010040020602010000fc01400304c000020119c6336400";

/// The rows of the case: what each packet is, and the packet after its marker.
const MALFORMED: [(&str, &str); 16] = [
    (
        "origin-7",
        "003002000000144001010740020602010000fc01400304c000020119c6336400",
    ),
    (
        "origin-len2",
        "00310200000015400102000040020602010000fc01400304c000020119c6336400",
    ),
    (
        "origin-flags",
        "003002000000148001010040020602010000fc01400304c000020119c6336400",
    ),
    (
        "aspath-seg9",
        "003002000000144001010040020609010000fc01400304c000020119c6336400",
    ),
    (
        "aspath-overrun",
        "003002000000144001010040020602050000fc01400304c000020119c6336400",
    ),
    (
        "aspath-seg0",
        "002c0200000010400101004002020200400304c000020119c6336400",
    ),
    (
        "nexthop-len3",
        "002f02000000134001010040020602010000fc01400303c0000219c6336400",
    ),
    (
        "no-nexthop",
        "0029020000000d4001010040020602010000fc0119c6336400",
    ),
    (
        "med-len5",
        "0038020000001c4001010040020602010000fc01400304c0000201800405000000010019c6336400",
    ),
    (
        "community-len6",
        "0039020000001d4001010040020602010000fc01400304c0000201c0080600010002000319c6336400",
    ),
    (
        "large-len13",
        "004002000000244001010040020602010000fc01400304c0000201c0200d0000000000000000000000000019c6336400",
    ),
    (
        "total-overrun",
        "0037020000001b4001010040020602010000fc01400304c00002018004c80000000119c6336400",
    ),
    (
        "localpref-ebgp",
        "0037020000001b4001010040020602010000fc01400304c00002014005040000006419c6336400",
    ),
    (
        "atomic-len1",
        "003402000000184001010040020602010000fc01400304c00002014006010019c6336400",
    ),
    (
        "aggregator-len5",
        "0038020000001c4001010040020602010000fc01400304c0000201c00705000000000019c6336400",
    ),
    (
        "dup-origin",
        "003402000000184001010040020602010000fc01400304c00002014001010119c6336400",
    ),
];

/// Learned routes are not kept, so "withdraw" and "discard" show in the counter of malformed UPDATEs only.
#[test]
fn b086_malformed_path_attributes_never_reset_the_session() {
    let mut bench = Bench::established(config(), OPEN);
    bench.announce(routes(&["203.0.113.1/32"]));
    for (row, (name, packet)) in (1..).zip(MALFORMED) {
        bench.send(VALID);
        bench.send(&format!("{MARKER}{packet}"));
        bench.send(KEEPALIVE);
        bench.wait(seconds(1));
        assert_eq!(
            (bench.peer.state(), bench.notification()),
            (State::Established, None),
            "{name}"
        );
        assert_eq!(
            bench.peer.counters().updates_malformed,
            row,
            "{name} counts once"
        );
    }
    assert_eq!(bench.updates().len(), 1, "203.0.113.1/32 stays announced");
}

#[test]
fn b088_unknown_attributes_are_passed_over_unless_well_known() {
    let long = format!(
        "016002000001444001010040020602010000fc01400304c0000201d0d5012c{}19c6336400",
        "00".repeat(300)
    );
    let table = [
        (
            "opt-trans-213",
            "0037020000001b4001010040020602010000fc01400304c0000201c0d504deadbeef19c6336400",
        ),
        (
            "opt-trans-partial",
            "003402000000184001010040020602010000fc01400304c0000201e0d5010119c6336400",
        ),
        (
            "opt-trans-empty",
            "003302000000174001010040020602010000fc01400304c0000201c0d50019c6336400",
        ),
        ("opt-trans-ext", &long),
        (
            "opt-nontrans",
            "003402000000184001010040020602010000fc01400304c000020180d6010119c6336400",
        ),
        (
            "low-bits",
            "003402000000184001010040020602010000fc01400304c0000201cfd5010119c6336400",
        ),
        (
            "type-0",
            "003402000000184001010040020602010000fc01400304c0000201c000010119c6336400",
        ),
    ];
    let mut bench = Bench::established(config(), OPEN);
    for (name, packet) in table {
        bench.send(&format!("{MARKER}{packet}"));
        bench.send(KEEPALIVE);
        assert_eq!(
            (bench.peer.state(), bench.notification()),
            (State::Established, None),
            "{name}"
        );
    }
    assert_eq!(bench.peer.counters().updates_malformed, 0);
    bench.announce(routes(&["203.0.113.1/32"]));
    let kinds: Vec<u8> = bench.updates().remove(0).attributes.into_keys().collect();
    assert_eq!(kinds, [1, 2, 3], "ours carry none of them");
    bench.send(&format!(
        "{MARKER}003402000000184001010040020602010000fc01400304c000020140c8010119c6336400"
    ));
    assert_eq!(
        bench.notification(),
        Some(("3/2".into(), "40c80101".into()))
    );
    bench.wait(seconds(2));
    bench.establish(OPEN);
}

/// The rows of the case: name, message, code, and data where the case says it.
fn broken_messages() -> Vec<(&'static str, Vec<u8>, &'static str, Option<&'static str>)> {
    let mp_reach = "0002011020010db800000001000000000000000100";
    let table = [
        (
            "nlri-33",
            "003102000000144001010040020602010000fc01400304c000020121c633640080".to_owned(),
            "3/10",
            None,
        ),
        (
            "nlri-cut",
            "003202000000144001010040020602010000fc01400304c000020119c633640020c6".into(),
            "3/10",
            None,
        ),
        (
            "withdrawn-overrun",
            "001c0200ff19c63364000000".into(),
            "3/1",
            None,
        ),
        (
            "attrs-overrun",
            "002b0200000fa04001010040020602010000fc01400304c0000201".into(),
            "3/1",
            None,
        ),
        (
            "mp-nlri-129",
            format!(
                "004e02000000374001010040020602010000fc01800e27{mp_reach}8120010db800000000000000000000000000"
            ),
            "3/9",
            None,
        ),
        (
            "mp-nlri-cut",
            format!("003e02000000274001010040020602010000fc01800e17{mp_reach}1820"),
            "3/9",
            None,
        ),
        ("len-18", "001204".into(), "1/2", Some("0012")),
        ("ka-20", "00140400".into(), "1/2", Some("0014")),
        ("type-9", "001309".into(), "1/3", Some("09")),
        ("type-0", "001300".into(), "1/3", Some("00")),
        ("update-22", "001602000000".into(), "1/2", Some("0016")),
    ];
    let mut rows: Vec<_> = table
        .into_iter()
        .map(|(name, packet, code, data)| (name, hex(&format!("{MARKER}{packet}")), code, data))
        .collect();
    rows.push((
        "marker",
        hex("fffffffffffffffffffffffffffffffe001304"),
        "1/1",
        None,
    ));
    rows
}

/// That a second, healthy peer sees nothing of it is shown over sockets (`bgp_io`): peers share no state at all.
#[test]
fn b089_broken_nlri_and_headers_end_the_session_with_the_right_code() {
    for (name, packet, code, data) in broken_messages() {
        for single_octets in [true, false] {
            let mut bench = established_with_ipv6();
            if single_octets {
                for octet in &packet {
                    bench.bytes(Side::Dialled, &[*octet]);
                }
            } else {
                bench.bytes(Side::Dialled, &[packet.clone(), hex(KEEPALIVE)].concat());
            }
            let (sent, sent_data) = bench.notification().unwrap_or_default();
            assert_eq!(sent, code, "{name}, single octets: {single_octets}");
            if let Some(data) = data {
                assert_eq!(sent_data, data, "{name}");
            }
            assert_eq!(bench.sent_of(3).len(), 1, "{name}");
            assert_eq!(bench.peer.state(), State::Idle, "{name}");
            bench.wait(seconds(2));
            bench.establish(OPEN_BOTH);
        }
    }
}

fn established_with_ipv6() -> Bench {
    let config = PeerConfig {
        families: BTreeSet::from([IpFamily::V4, IpFamily::V6]),
        ..config()
    };
    Bench::established(config, OPEN_BOTH)
}

/// We don't offer extended messages, so scenes 3, 4 and 5 apply.
#[test]
fn b090_messages_above_4096_octets_are_neither_taken_nor_sent() {
    let withdraw = |count: usize| {
        let octets = count * 5;
        let length = u16::try_from(19 + 4 + octets).unwrap();
        let withdrawn = u16::try_from(octets).unwrap();
        hex(&format!(
            "{MARKER}{length:04x}02{withdrawn:04x}{}0000",
            "20c6336401".repeat(count)
        ))
    };
    let mut bench = Bench::established(config(), OPEN);
    assert!(
        !digits(bench.sent_of(1)[0]).contains("0600"),
        "capability 6 is not offered"
    );
    bench.bytes(Side::Dialled, &withdraw(814));
    assert_eq!(bench.peer.state(), State::Established);
    bench.bytes(Side::Dialled, &withdraw(815));
    assert_eq!(bench.notification(), Some(("1/2".into(), "1002".into())));

    let prefixes: Vec<String> = (0..2000)
        .map(|n| format!("203.{}.{}.1/32", n / 250, n % 250))
        .collect();
    let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    for capability in ["0200", "0600"] {
        let mut bench = Bench::established(
            config(),
            &OPEN.replace("fc010200", &format!("fc01{capability}")),
        );
        bench.announce(routes(&prefixes));
        assert!(bench.sent.iter().all(|(_, _, bytes)| bytes.len() <= 4096));
        let arrived: BTreeSet<String> = bench
            .updates()
            .into_iter()
            .flat_map(|update| update.nlri)
            .collect();
        assert_eq!(arrived.len(), 2000);
    }

    let mut bench = Bench::new(config());
    bench.connect(Side::Dialled);
    bench.send(&format!("{MARKER}100101"));
    assert_eq!(bench.notification().unwrap().0, "1/2");
}

/// Next hops of 16 octets are sent, which the case allows; a link-local one alone is not used as next hop.
#[test]
fn b091_ipv6_next_hops_sent_and_received() {
    const OPEN_V6: &str =
        "ffffffffffffffffffffffffffffffff002b0104fc01005ac00002010e020c01040002000141040000fc01";
    let over_ipv6 = PeerConfig {
        address: "2001:db8:0:1::1".parse().unwrap(),
        families: BTreeSet::from([IpFamily::V6]),
        ..config()
    };
    let mut bench = Bench::established(over_ipv6.clone(), OPEN_V6);
    bench.announce(routes(&["2001:db8:0:2::1/128"]));
    assert_eq!(
        bench.updates().remove(0).attributes[&14],
        "900e00260002011020010db8000000010000000000000011008020010db8000000020000000000000001"
    );
    let global = "20010db8000000010000000000000001";
    let local = "fe800000000000000000000000000001";
    let other = "20010db8000000010000000000000002";
    let packet = |next_hop: &str| {
        let octets = next_hop.len() / 2;
        let attribute = 4 + octets + 1 + 7;
        format!(
            "{MARKER}{:04x}02{:08x}4001010040020602010000fc01800e{attribute:02x}000201{octets:02x}{next_hop}003020010db80005",
            39 + attribute,
            16 + attribute,
        )
    };
    let unspecified = "0".repeat(32);
    for good in [
        global.to_owned(),
        format!("{global}{local}"),
        local.to_owned(),
        format!("{local}{local}"),
        format!("{global}{other}"),
        unspecified,
    ] {
        bench.send(&packet(&good));
        bench.send(KEEPALIVE);
        assert_eq!(
            (bench.peer.state(), bench.notification()),
            (State::Established, None),
            "{good}"
        );
    }
    for bad in [format!("{global}{}", "0".repeat(16)), String::new()] {
        let mut bench = Bench::established(over_ipv6.clone(), OPEN_V6);
        bench.send(&packet(&bad));
        assert_eq!(bench.notification().unwrap().0, "3/9", "{bad:?}");
    }
}

/// A session over IPv4 takes the node's IPv6 address; a node that has none sends no IPv6 routes and warns.
#[test]
fn b091_ipv6_routes_over_ipv4_need_an_address_of_the_node() {
    for (node, expected) in [("2001:db8:0:1::11".parse().ok(), 1), (None, 0)] {
        let config = PeerConfig {
            families: BTreeSet::from([IpFamily::V4, IpFamily::V6]),
            node_addresses: NodeAddresses { v4: None, v6: node },
            ..config()
        };
        let mut bench = Bench::established(config, OPEN_BOTH);
        bench.announce(routes(&["2001:db8:0:2::1/128"]));
        let updates: Vec<Update> = bench.updates();
        assert_eq!(updates.len(), expected);
        assert_eq!(bench.notices.len(), 1 - expected);
        assert!(
            bench
                .notices
                .iter()
                .all(|notice| notice.contains("next hop")),
            "{:?}",
            bench.notices
        );
        for update in updates {
            assert!(
                update.attributes[&14].contains("1020010db8000000010000000000000011"),
                "{update:?}"
            );
        }
    }
}
