//! Acceptance cases of layer 2, driven with the frames of the cases against the real core: election, announcer, ARP and
//! Neighbour Discovery.
//!
//! Left out here: what only a kernel shows (sockets, groups on the wire; `speaker/tests/l2_kernel.rs`) and the Events that
//! the shell writes.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use api_model::{NodeName, ServiceKey, Time};
use speaker_l2::{
    Dropped, InterfaceIndex, Mac, Reason,
    announcer::{Announcer, Input, Interface, Output},
    candidate::{self, Advertisement, Gate, Node, Selection, User, View, Vip},
};

const ETH0: InterfaceIndex = InterfaceIndex(2);
const NODE_A: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0x0a]);
const NODE_B: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0x0b]);
/// The ARP frames of the cases are padded to the Ethernet minimum with this many zero octets.
const PADDING: usize = 18;

/// `node-a`, elected for one VIP, with `eth0`.
struct Speaker {
    announcer: Announcer,
    now: Time,
}

impl Speaker {
    fn holding(vip: &str) -> Self {
        let mut speaker = Self {
            announcer: Announcer::default(),
            now: Time::ZERO,
        };
        let eth0 = Interface {
            name: "eth0".into(),
            mac: NODE_A,
        };
        speaker.tell(Input::Interfaces([(ETH0, eth0)].into()));
        speaker.tell(Input::Fellows([NODE_B].into()));
        let view = view(vip, &["node-a"], false, &["node-a"]);
        let vip = vip.parse().expect("an address");
        let mut gate = Gate::default();
        gate.programmed(vip);
        speaker.follow(&view, &gate);
        speaker.wait(10_000);
        speaker
    }

    fn tell(&mut self, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        self.announcer.handle(self.now, input, &mut out);
        out
    }

    /// Announces what the view decides for `view.me`.
    fn follow(&mut self, view: &View, gate: &Gate) -> Vec<Output> {
        let decisions = candidate::decide(view, gate);
        let specs = decisions.into_iter().map(|(vip, decision)| {
            let announce = decision.announce();
            let interfaces = decision.interfaces;
            (
                vip,
                speaker_l2::announcer::VipSpec {
                    interfaces,
                    announce,
                },
            )
        });
        let specs = specs.collect();
        self.tell(Input::Vips(specs))
    }

    /// Lets time pass with every tick that falls due.
    fn wait(&mut self, milliseconds: u64) -> Vec<Output> {
        let end = self.now + Duration::from_millis(milliseconds);
        let mut all = Vec::new();
        while let Some(due) = self.announcer.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            all.extend(self.tell(Input::Tick));
        }
        self.now = end;
        all
    }

    /// Hears a frame of a case; the frames sent in answer.
    fn hear(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let out = self.tell(Input::Frame {
            interface: ETH0,
            bytes: frame,
        });
        sent(&out)
    }

    fn dropped(&self, reason: Dropped) -> u64 {
        let dropped = &self.announcer.counters().dropped;
        dropped.get(&reason).copied().unwrap_or_default()
    }
}

fn sent(out: &[Output]) -> Vec<Vec<u8>> {
    let frames = out.iter().filter_map(|output| match output {
        Output::Send { interface, bytes } => {
            assert_eq!(*interface, ETH0);
            Some(bytes.clone())
        }
        Output::JoinGroup { .. }
        | Output::LeaveGroup { .. }
        | Output::Announced { .. }
        | Output::Withdrawn { .. }
        | Output::Conflict { .. } => None,
    });
    frames.collect()
}

/// Speakers on `nodes`, one Service on `vip` with endpoints on `on`.
fn view(vip: &str, nodes: &[&str], local_only: bool, on: &[&str]) -> View {
    let user = User {
        local_only,
        has_endpoints: !on.is_empty(),
        endpoints_on: on.iter().map(|name| NodeName::from(*name)).collect(),
    };
    let vip_of = Vip {
        pool: "lan".into(),
        users: [(ServiceKey::new("default", "web"), user)].into(),
    };
    View {
        me: "node-a".into(),
        nodes: nodes
            .iter()
            .map(|name| (NodeName::from(*name), Node::usable()))
            .collect(),
        advertisements: vec![Advertisement::everything("l2")],
        vips: [(vip.parse().expect("an address"), vip_of)].into(),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|digit| *digit != ' ').collect();
    let octet = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16);
    digits
        .chunks(2)
        .map(|pair| octet(pair).expect("hexadecimal"))
        .collect()
}

/// An ARP frame of a case.
fn arp(text: &str) -> Vec<u8> {
    let mut frame = hex(text);
    assert_eq!(frame.len(), 42, "{text}");
    frame.resize(42 + PADDING, 0);
    frame
}

const WHO_HAS: &str =
    "ffffffffffff00005e0053c8 0806 00010800 0604 0001 00005e0053c8c00002c8 000000000000c00002f0";
/// The reply to it, in full.
const IS_AT: &str =
    "00005e0053c800005e00530a 0806 00010800 0604 0002 00005e00530ac00002f0 00005e0053c8c00002c8";

#[test]
fn b054_a_node_that_loses_a_vip_is_silent_at_once() {
    let vip: IpAddr = "192.0.2.240".parse().expect("an address");
    let mut gate = Gate::default();
    gate.programmed(vip);
    let mut node_a = Speaker::holding("192.0.2.240");
    let on = |name: &str| view("192.0.2.240", &["node-a", "node-b"], true, &[name]);
    for turn in 0..51 {
        let name = if turn % 2 == 0 { "node-b" } else { "node-a" };
        let now = on(name);
        let decision = &candidate::decide(&now, &gate)[&vip];
        assert_eq!(decision.holder, Some(name.into()), "turn {turn}");
        let answers = {
            node_a.follow(&now, &gate);
            node_a.hear(&arp(WHO_HAS))
        };
        let expected = if name == "node-a" {
            vec![hex(IS_AT)]
        } else {
            vec![]
        };
        assert_eq!(answers, expected, "turn {turn}");
        let said = sent(&node_a.wait(300));
        assert_eq!(said, Vec::<Vec<u8>>::new(), "no burst is due in 300 ms");
    }
    let decision = &candidate::decide(&on("node-b"), &gate)[&vip];
    assert_eq!(decision.reason, Reason::NoLocalEndpoints);
    let said = sent(&node_a.wait(20_000));
    assert_eq!(said, Vec::<Vec<u8>>::new(), "the burst is over, too");
}

#[test]
fn b056_a_unicast_request_for_the_vip_is_answered() {
    let mut speaker = Speaker::holding("192.0.2.240");
    let to_me = "00005e00530a00005e0053c8 0806 00010800 0604 0001 00005e0053c8c00002c8 000000000000c00002f0";
    let with_target = "00005e00530a00005e0053c8 0806 00010800 0604 0001 00005e0053c8c00002c8 00005e00530ac00002f0";
    for request in [to_me, with_target] {
        assert_eq!(speaker.hear(&arp(request)), [hex(IS_AT)], "{request}");
    }
    let router_poll = "00005e00530a00005e005301 0806 00010800 0604 0001 00005e005301c0000201 000000000000c00002f0";
    let to_router = "00005e00530100005e00530a 0806 00010800 0604 0002 00005e00530ac00002f0 00005e005301c0000201";
    assert_eq!(speaker.hear(&arp(router_poll)), [hex(to_router)]);
    let foreign_mac = "00005e00530b00005e0053c8 0806 00010800 0604 0001 00005e0053c8c00002c8 000000000000c00002f0";
    let other_target = "00005e00530a00005e0053c8 0806 00010800 0604 0001 00005e0053c8c00002c8 000000000000c00002c7";
    for request in [foreign_mac, other_target] {
        assert!(speaker.hear(&arp(request)).is_empty(), "{request}");
    }
    assert_eq!(speaker.dropped(Dropped::NotForUs), 1);
    assert_eq!(speaker.dropped(Dropped::NotHeld), 1);
}

#[test]
fn b057_a_probe_for_the_vip_is_answered_and_others_are_left_to_their_holders() {
    let mut speaker = Speaker::holding("192.0.2.240");
    let probe = |last: &str| {
        arp(&format!(
            "ffffffffffff00005e0053ee 0806 00010800 0604 0001 00005e0053ee00000000 000000000000c00002{last}"
        ))
    };
    let defended = "00005e0053ee00005e00530a 0806 00010800 0604 0002 00005e00530ac00002f0 00005e0053ee00000000";
    assert_eq!(speaker.hear(&probe("f0")), [hex(defended)]);
    assert!(speaker.hear(&probe("f1")).is_empty(), "a free address");
    assert!(speaker.hear(&probe("0b")).is_empty(), "the node's own");
    assert_eq!(
        speaker.announcer.counters().conflicts,
        0,
        "a probe is no claim"
    );
}

#[test]
fn b058_a_foreign_claim_is_reported_and_defended_once_in_ten_seconds() {
    let mut speaker = Speaker::holding("192.0.2.240");
    let claim = "ffffffffffff00005e0053ee 0806 00010800 0604 0001 00005e0053eec00002f0 000000000000c00002f0";
    let reply = "ffffffffffff00005e0053ee 0806 00010800 0604 0002 00005e0053eec00002f0 00005e0053eec00002f0";
    let mut out = Vec::new();
    for _ in 0..5 {
        let bytes = arp(claim);
        out.extend(speaker.tell(Input::Frame {
            interface: ETH0,
            bytes: &bytes,
        }));
        out.extend(speaker.wait(600));
    }
    out.extend(speaker.wait(3000));
    let bytes = arp(reply);
    out.extend(speaker.tell(Input::Frame {
        interface: ETH0,
        bytes: &bytes,
    }));
    let conflict = Output::Conflict {
        vip: "192.0.2.240".parse().expect("an address"),
        interface: ETH0,
        mac: Mac([0, 0, 0x5e, 0, 0x53, 0xee]),
    };
    let reports: Vec<_> = out
        .iter()
        .filter(|output| matches!(output, Output::Conflict { .. }))
        .collect();
    assert_eq!(reports, [&conflict]);
    let defence = sent(&out);
    assert_eq!(
        defence.len(),
        2,
        "one announcement, its request and its reply form"
    );
    assert!(
        defence
            .iter()
            .all(|frame| frame[..12] == hex("ffffffffffff00005e00530a"))
    );
    speaker.wait(15_000);
    let echo = "ffffffffffff00005e00530a 0806 00010800 0604 0001 00005e00530ac00002f0 000000000000c00002f0";
    let fellow = "ffffffffffff00005e00530b 0806 00010800 0604 0001 00005e00530bc00002f0 000000000000c00002f0";
    for frame in [echo, fellow] {
        let bytes = arp(frame);
        let out = speaker.tell(Input::Frame {
            interface: ETH0,
            bytes: &bytes,
        });
        assert_eq!(out, [], "{frame}");
    }
    assert_eq!(speaker.announcer.counters().conflicts, 6);
    let answer = speaker.hear(&arp(WHO_HAS));
    assert_eq!(answer, [hex(IS_AT)], "the VIP was not given up");
}

#[test]
fn b059_odd_arp_frames_are_dropped_and_counted() {
    let mut speaker = Speaker::holding("192.0.2.240");
    // What is odd, hardware, protocol, lengths, operation and sender's hardware address.
    let table = [
        ("htype 7", "0007 0800 0604 0001 00005e0053c8"),
        ("htype 65535", "ffff 0800 0604 0001 00005e0053c8"),
        ("ptype IPv6", "0001 86dd 0604 0001 00005e0053c8"),
        ("hlen 8", "0001 0800 0804 0001 00005e0053c8"),
        ("hlen 0", "0001 0800 0004 0001 00005e0053c8"),
        ("plen 16", "0001 0800 0610 0001 00005e0053c8"),
        ("plen 0", "0001 0800 0600 0001 00005e0053c8"),
        ("operation 0", "0001 0800 0604 0000 00005e0053c8"),
        ("operation 2", "0001 0800 0604 0002 00005e0053c8"),
        ("operation 3", "0001 0800 0604 0003 00005e0053c8"),
        ("operation 8", "0001 0800 0604 0008 00005e0053c8"),
        ("operation 9", "0001 0800 0604 0009 00005e0053c8"),
        ("operation 25", "0001 0800 0604 0019 00005e0053c8"),
        ("operation 65535", "0001 0800 0604 ffff 00005e0053c8"),
        ("broadcast sender", "0001 0800 0604 0001 ffffffffffff"),
        ("multicast sender", "0001 0800 0604 0001 01005e000001"),
    ];
    for (name, odd) in table {
        let frame = arp(&format!(
            "ffffffffffff00005e0053c8 0806 {odd} c00002c8 000000000000c00002f0"
        ));
        assert!(speaker.hear(&frame).is_empty(), "{name}");
        assert_eq!(
            speaker.hear(&arp(WHO_HAS)),
            [hex(IS_AT)],
            "good after {name}"
        );
    }
    let expected: BTreeMap<_, _> = [
        (Dropped::HardwareType, 2),
        (Dropped::ProtocolType, 1),
        (Dropped::AddressLength, 4),
        (Dropped::Operation, 6),
        (Dropped::SenderHardware, 2),
        (Dropped::NotARequest, 1),
    ]
    .into();
    assert_eq!(speaker.announcer.counters().dropped, expected);
}

/// An NS of a case: Ethernet addresses, payload length, IPv6 addresses, `ICMPv6` from the checksum on.
fn solicitation(stations: &str, length: &str, addresses: &str, body: &str) -> Vec<u8> {
    hex(&format!(
        "{stations} 86dd 60000000 00{length} 3aff {addresses} 8700 {body}"
    ))
}

const VIP6: &str = "20010db8000000010000000000000240";
const GROUP6: &str = "ff0200000000000000000001ff000240";
const ASKER6: &str = "20010db80000000100000000000000c8";
const ASKER_LINK_LOCAL: &str = "fe8000000000000002005efffe0053c8";
const TO_NODE: &str = "00005e00530a00005e0053c8";
const TO_GROUP: &str = "3333ff00024000005e0053c8";

/// Stations, hop limit, IPv6 addresses, type and flags, target, and option of an advertisement.
type Parts = (Vec<u8>, u8, Vec<u8>, [u8; 2], Vec<u8>, Vec<u8>);

/// Takes an advertisement apart; its checksum is checked.
fn advertisement(frame: &[u8]) -> Parts {
    assert_eq!(frame.len(), 86);
    let words = frame[22..]
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut sum = words.sum::<u32>() + 32 + 58;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    assert_eq!(sum, 0xffff, "checksum");
    (
        frame[..12].to_vec(),
        frame[21],
        frame[22..54].to_vec(),
        [frame[54], frame[58]],
        frame[62..78].to_vec(),
        frame[78..].to_vec(),
    )
}

#[test]
fn b062_a_solicitation_without_the_source_option_is_answered() {
    let mut speaker = Speaker::holding("2001:db8:0:1::240");
    let with_option = format!("671a 00000000 {VIP6} 010100005e0053c8");
    let table = [
        (
            "NUD, global source",
            ASKER6,
            solicitation(
                TO_NODE,
                "18",
                &format!("{ASKER6}{VIP6}"),
                &format!("ea36 00000000 {VIP6}"),
            ),
        ),
        (
            "NUD, link-local source",
            ASKER_LINK_LOCAL,
            solicitation(
                TO_NODE,
                "18",
                &format!("{ASKER_LINK_LOCAL}{VIP6}"),
                &format!("676f 00000000 {VIP6}"),
            ),
        ),
        (
            "multicast with the option",
            ASKER6,
            solicitation(TO_GROUP, "20", &format!("{ASKER6}{GROUP6}"), &with_option),
        ),
        (
            "multicast without it",
            ASKER6,
            solicitation(
                TO_GROUP,
                "18",
                &format!("{ASKER6}{GROUP6}"),
                &format!("19ec 00000000 {VIP6}"),
            ),
        ),
    ];
    for (name, asker, frame) in table {
        let answers = speaker.hear(&frame);
        let shown: Vec<_> = answers.iter().map(|frame| advertisement(frame)).collect();
        let expected = (
            hex("00005e0053c800005e00530a"),
            255,
            hex(&format!("{VIP6}{asker}")),
            // Type 136; solicited and override.
            [136, 0x60],
            hex(VIP6),
            hex("020100005e00530a"),
        );
        assert_eq!(shown, [expected], "{name}");
    }
}

#[test]
fn b063_the_solicited_node_group_is_joined_and_left_with_the_vip() {
    let mut speaker = Speaker::holding("2001:db8:0:1::240");
    let group = "ff02::1:ff00:240".parse().expect("a group");
    let (join, leave) = (
        Output::JoinGroup {
            interface: ETH0,
            group,
        },
        Output::LeaveGroup {
            interface: ETH0,
            group,
        },
    );
    let gone = speaker.tell(Input::Vips(BTreeMap::new()));
    assert!(gone.contains(&leave), "{gone:?}");
    let spec = speaker_l2::announcer::VipSpec {
        interfaces: Selection::All,
        announce: true,
    };
    let vips = [("2001:db8:0:1::240".parse().expect("an address"), spec)].into();
    let back = speaker.tell(Input::Vips(vips));
    assert!(back.contains(&join), "{back:?}");
    let down = speaker.tell(Input::Interfaces(BTreeMap::new()));
    assert!(down.contains(&leave), "{down:?}");
    let eth0 = Interface {
        name: "eth0".into(),
        mac: NODE_A,
    };
    let up = speaker.tell(Input::Interfaces([(ETH0, eth0)].into()));
    assert!(up.contains(&join), "{up:?}");
}

#[test]
fn b065_duplicate_address_detection_for_the_vip_is_answered() {
    let mut speaker = Speaker::holding("2001:db8:0:1::240");
    let none = "00000000000000000000000000000000";
    let newcomer = "3333ff00024000005e0053ee";
    let dad_vip = solicitation(
        newcomer,
        "18",
        &format!("{none}{GROUP6}"),
        &format!("486e 00000000 {VIP6}"),
    );
    let shown: Vec<_> = speaker
        .hear(&dad_vip)
        .iter()
        .map(|frame| advertisement(frame))
        .collect();
    let expected = (
        hex("33330000000100005e00530a"),
        255,
        hex(&format!("{VIP6}ff020000000000000000000000000001")),
        // Type 136; override alone: nobody has asked who has an address.
        [136, 0x20],
        hex(VIP6),
        hex("020100005e00530a"),
    );
    assert_eq!(shown, [expected]);
    let free = "20010db800000001000000000000024f";
    let free_group = "ff0200000000000000000001ff00024f";
    let dad_free = solicitation(
        "3333ff00024f00005e0053ee",
        "18",
        &format!("{none}{free_group}"),
        &format!("4850 00000000 {free}"),
    );
    let with_option = solicitation(
        newcomer,
        "20",
        &format!("{none}{GROUP6}"),
        &format!("9576 00000000 {VIP6} 010100005e0053ee"),
    );
    let unicast = solicitation(
        "00005e00530a00005e0053ee",
        "18",
        &format!("{none}{VIP6}"),
        &format!("18b9 00000000 {VIP6}"),
    );
    for (name, frame) in [
        ("a free address", dad_free),
        ("with the source option", with_option),
        ("to the address", unicast),
    ] {
        assert!(speaker.hear(&frame).is_empty(), "{name}");
    }
    assert_eq!(speaker.dropped(Dropped::NotHeld), 1);
    assert_eq!(speaker.dropped(Dropped::BadProbe), 2);
}
