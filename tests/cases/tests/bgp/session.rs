//! The life of a session: OPEN, timers, collision, back-off.

use std::time::Duration;

use api_model::{Asn, Time};
use speaker_bgp::{PeerConfig, Reason, Side, State, Timers};

use crate::bench::{Bench, KEEPALIVE, OPEN, config, digits, hex, routes, seconds};

const UPDATE: u8 = 2;
const KEEPALIVE_TYPE: u8 = 4;

/// Both orders of the two OPENs, with a gap between them and without. Over sockets nothing of ours listens, which the case
/// allows too ("active only"); the rule is the core's.
#[test]
fn b068_simultaneous_opens_end_in_one_session() {
    let with_id = |id: &str| OPEN.replace("c0000201", id);
    let cases = [
        (with_id("c0000201"), Side::Dialled),
        (with_id("c00002fe"), Side::Accepted),
        (with_id("c000020b"), Side::Accepted),
    ];
    for (open, survivor) in cases {
        for order in [Side::ALL, [Side::Accepted, Side::Dialled]] {
            for gap in [Duration::ZERO, Duration::from_millis(50), seconds(2)] {
                let mut bench = Bench::new(config());
                bench.announce(routes(&["203.0.113.1/32"]));
                bench.connect(Side::Dialled);
                bench.connect(Side::Accepted);
                for side in order {
                    bench.bytes(side, &hex(&open));
                    bench.wait(gap);
                }
                for side in Side::ALL {
                    bench.bytes(side, &hex(KEEPALIVE));
                }
                let what = format!("{open} {order:?} {gap:?}");
                let loser = if survivor == Side::Dialled {
                    Side::Accepted
                } else {
                    Side::Dialled
                };
                assert_eq!(
                    bench.peer.side_state(survivor),
                    State::Established,
                    "{what}"
                );
                assert_eq!(bench.peer.side_state(loser), State::Idle, "{what}");
                assert_eq!(bench.closed, [loser], "{what}");
                let sent = |kind: u8| -> Vec<Side> {
                    let sent = bench.sent.iter().filter(|(_, _, bytes)| bytes[18] == kind);
                    sent.map(|&(_, side, _)| side).collect()
                };
                assert_eq!(sent(3), [loser], "{what}");
                assert_eq!(bench.notification().unwrap().0, "6/7", "{what}");
                assert_eq!(sent(UPDATE), [survivor], "{what}: announced once");
            }
        }
    }
}

/// The rows of `crd_table` are the core's rule, which admission calls.
#[test]
fn b070_an_open_with_bad_fields_is_refused_with_the_right_code() {
    let hold = |hex: &str| OPEN.replace("fc01005a", &format!("fc01{hex}"));
    let table = [
        (hold("0001"), "2/6", ""),
        (hold("0002"), "2/6", ""),
        (
            "ffffffffffffffffffffffffffffffff00250103fc01005ac0000201080206010400010001".into(),
            "2/1",
            "0004",
        ),
        (OPEN.replace("fc01", "fc57"), "2/2", ""),
        (OPEN.replace("c0000201", "00000000"), "2/3", ""),
    ];
    for (open, notification, data) in table {
        let mut bench = Bench::new(config());
        bench.connect(Side::Dialled);
        bench.send(&open);
        bench.send(KEEPALIVE);
        assert_eq!(
            bench.notification(),
            Some((notification.into(), data.into())),
            "{open}"
        );
        assert_eq!(
            (bench.closed.as_slice(), bench.peer.state()),
            (&[Side::Dialled][..], State::Idle)
        );
        assert_eq!(bench.changes.last().unwrap().reason, Reason::OpenRefused);
        bench.wait(Duration::from_millis(700));
        assert_eq!(bench.dials.len(), 1, "the next attempt waits");
        bench.wait(seconds(1));
        assert_eq!(bench.dials.len(), 2, "but it comes");
    }

    let mut bench = Bench::established(config(), &hold("0003"));
    let negotiated = bench.peer.negotiated().unwrap();
    assert_eq!(
        (negotiated.hold_time, negotiated.keepalive_time),
        (seconds(3), seconds(1))
    );
    let before = bench.sent_of(KEEPALIVE_TYPE).len();
    for _ in 0..20 {
        bench.wait(seconds(1));
        bench.send(KEEPALIVE);
    }
    assert_eq!(bench.peer.state(), State::Established);
    assert_eq!(
        bench.sent_of(KEEPALIVE_TYPE).len() - before,
        20,
        "one a second"
    );

    let timers = |hold: Option<u64>, keepalive: Option<u64>| {
        Timers::new(
            hold.map(Duration::from_millis),
            keepalive.map(Duration::from_millis),
        )
        .is_ok()
    };
    assert!(!timers(Some(1000), None));
    assert!(!timers(Some(2000), None));
    assert!(timers(Some(3000), Some(1000)));
    assert!(!timers(Some(90_000), Some(90_000)));
    assert!(timers(Some(0), Some(0)));
    assert!(!timers(Some(1500), None));
    assert!(!timers(Some(65_536_000), None));
}

/// CPU is measured by what costs it: with hold time 0 there is no deadline at all.
#[test]
fn b071_hold_time_zero_disables_the_timers() {
    let ours = PeerConfig {
        timers: Timers::new(Some(Duration::ZERO), Some(Duration::ZERO)).unwrap(),
        ..config()
    };
    let theirs = OPEN.replace("fc01005a", "fc010000");
    for (config, open) in [(config(), theirs.as_str()), (ours, OPEN)] {
        let mut bench = Bench::established(config, open);
        assert_eq!(bench.peer.negotiated().unwrap().hold_time, Duration::ZERO);
        assert_eq!(bench.peer.next_deadline(), None);
        bench.wait(seconds(300));
        bench.send("ffffffffffffffffffffffffffffffff00170200000000");
        bench.wait(seconds(60));
        assert_eq!(bench.peer.state(), State::Established);
        assert_eq!(
            bench.sent_of(KEEPALIVE_TYPE).len(),
            1,
            "the answer to the OPEN"
        );
        assert_eq!(bench.notification(), None);
        bench.announce(routes(&["203.0.113.1/32"]));
        assert_eq!(bench.updates().len(), 1, "changes are still sent");
    }
}

/// What a router does each time it is dialled.
type Scene = fn(&mut Bench);

fn refuses_the_as(bench: &mut Bench) {
    bench.connect(Side::Dialled);
    bench.send("ffffffffffffffffffffffffffffffff0015030202");
}

fn resets(bench: &mut Bench) {
    bench.fail();
}

fn flaps(bench: &mut Bench) {
    bench.establish(OPEN);
    bench.wait(seconds(2));
    bench.send("ffffffffffffffffffffffffffffffff0015030605");
}

fn wants_no_more(bench: &mut Bench) {
    bench.establish(OPEN);
    bench.send("ffffffffffffffffffffffffffffffff001c03060100010100000003");
}

/// Plays a scene for ten minutes; gives the times of all attempts.
fn ten_minutes(bench: &mut Bench, scene: Scene) -> Vec<Duration> {
    let end = Time::from_start(seconds(600));
    let mut answered = 0;
    while bench.now < end {
        if bench.dials.len() > answered {
            answered = bench.dials.len();
            scene(bench);
        } else {
            let next = bench.peer.next_deadline().unwrap();
            let step = next.since(bench.now).min(end.since(bench.now));
            bench.wait(step);
        }
    }
    bench.dials.iter().map(|dial| dial.since_start()).collect()
}

/// How often events are written is the status room's part.
#[test]
fn b073_a_refusing_peer_is_not_hammered() {
    for scene in [refuses_the_as as Scene, resets, flaps] {
        let mut late_gaps = Vec::new();
        for seed in 0..20 {
            let mut bench = Bench::seeded(config(), seed);
            let dials = ten_minutes(&mut bench, scene);
            let early = dials.iter().filter(|&&dial| dial < seconds(30)).count();
            assert!(early <= 6, "{early} attempts in 30 s: {dials:?}");
            assert!(dials.len() <= 25, "{} attempts: {dials:?}", dials.len());
            let gaps: Vec<Duration> = dials
                .windows(2)
                .map(|pair| pair[1].saturating_sub(pair[0]))
                .collect();
            assert!(gaps.iter().max() >= Some(&seconds(30)), "{gaps:?}");
            late_gaps.extend(gaps.last().copied());
        }
        let (least, most) = (
            late_gaps.iter().min().unwrap(),
            late_gaps.iter().max().unwrap(),
        );
        assert!(*most >= *least * 11 / 10, "gaps don't vary: {late_gaps:?}");
    }

    let mut bench = Bench::new(config());
    ten_minutes(&mut bench, refuses_the_as);
    assert_eq!(
        bench.changes.last().unwrap().detail,
        "received 2/2 Bad Peer AS"
    );
    let repaired = bench.now;
    let dials = bench.dials.len();
    while bench.dials.len() == dials {
        bench.wait(seconds(1));
    }
    bench.establish(OPEN);
    assert!(bench.now.since(repaired) <= seconds(130));
}

/// The event is the status room's part; its text is the change's detail. Memory is bounded because nothing of a received
/// route is kept: the state of the peer is the same before and after.
#[test]
fn b078_maximum_prefixes_theirs_and_ours() {
    let mut bench = Bench::new(config());
    bench.announce(routes(&[
        "203.0.113.1/32",
        "203.0.113.2/32",
        "203.0.113.3/32",
        "203.0.113.4/32",
    ]));
    let dials = ten_minutes(&mut bench, wants_no_more);
    assert!(dials.len() <= 12, "{} attempts: {dials:?}", dials.len());
    let down = bench
        .changes
        .iter()
        .find(|change| change.reason == Reason::MaximumPrefixesReached);
    assert!(down.unwrap().detail.contains("maximum"), "{down:?}");
    let all = bench.updates().iter().all(|update| update.nlri.len() == 4);
    assert!(all, "our list is not cut to fit");

    let mut bench = Bench::established(config(), OPEN);
    bench.announce(routes(&["203.0.113.1/32"]));
    let sent = bench.sent.len();
    let before = format!("{:?}", (bench.peer.negotiated(), bench.peer.routes_sent()));
    for n in 0..50_000_u32 {
        let prefix = digits(&(0x0a00_0000 + n * 128).to_be_bytes());
        bench.send(&format!(
            "ffffffffffffffffffffffffffffffff003502000000144001010040020602010000fc01400304c0000201\
             19{prefix}19{prefix}"
        ));
    }
    bench.send(
        "ffffffffffffffffffffffffffffffff002c02000000144001010040020602010000fc01400304c000020100",
    );
    assert_eq!(bench.peer.state(), State::Established);
    assert_eq!(bench.peer.counters().updates_received, 50_001);
    assert_eq!(
        before,
        format!("{:?}", (bench.peer.negotiated(), bench.peer.routes_sent()))
    );
    assert_eq!(bench.sent.len(), sent, "nothing was withdrawn");
}

#[test]
fn b081_route_refresh_sends_the_routes_of_that_family_again() {
    let refresh = |text: &str| format!("ffffffffffffffffffffffffffffffff001705{text}");
    let mut bench = Bench::established(config(), OPEN);
    bench.announce(routes(&["203.0.113.1/32"]));
    assert_eq!(bench.updates().len(), 1);
    bench.send(&refresh("00010001"));
    bench.wait(seconds(2));
    let updates = bench.updates();
    assert_eq!(updates.len(), 2);
    assert_eq!(updates[0], updates[1]);
    for other in ["00020001", "00190041", "00010101"] {
        bench.send(&refresh(other));
    }
    bench.wait(seconds(2));
    assert_eq!(bench.updates().len(), 2, "other families and subtypes");
    for _ in 0..1000 {
        bench.send(&refresh("00010001"));
        bench.wait(Duration::from_millis(1));
    }
    let end = bench.now;
    bench.wait(seconds(5));
    let answers = bench.updates().len() - 2;
    assert!((1..=10).contains(&answers), "{answers} answers to a burst");
    let (last, _, _) = bench
        .sent
        .iter()
        .rev()
        .find(|(_, _, bytes)| bytes[18] == UPDATE)
        .unwrap();
    assert!(*last >= end, "none after the end of the burst");
    assert_eq!(bench.peer.state(), State::Established);
    bench.send("ffffffffffffffffffffffffffffffff0018050001000100");
    assert_eq!(bench.notification().unwrap().0, "1/2");
    assert!(
        digits(bench.sent_of(1)[0]).contains("0200"),
        "our OPEN offers it"
    );
}

#[test]
fn b083_as_path_width_follows_the_four_octet_capability() {
    const OLD: &str = "ffffffffffffffffffffffffffffffff001d0104fc01005ac000020100";
    const OLD_MP: &str =
        "ffffffffffffffffffffffffffffffff00250104fc01005ac0000201080206010400010001";
    let table = [
        (64512, OLD, "4002040201fc00", None, "fc00"),
        (64512, OLD_MP, "4002040201fc00", None, "fc00"),
        (64512, OPEN, "40020602010000fc00", None, "fc00"),
        (
            65551,
            OLD,
            "40020402015ba0",
            Some("c0110602010001000f"),
            "5ba0",
        ),
        (65551, OPEN, "40020602010001000f", None, "5ba0"),
    ];
    for (local, open, as_path, as4_path, my_as) in table {
        let config = PeerConfig {
            local_asn: Asn(local),
            ..config()
        };
        let mut bench = Bench::established(config, open);
        bench.announce(routes(&["203.0.113.1/32"]));
        let update = bench.updates().remove(0);
        assert_eq!(update.attributes[&2], as_path);
        assert_eq!(update.attributes.get(&17).map(String::as_str), as4_path);
        assert_eq!(update.nlri, ["203.0.113.1/32"]);
        let ours = digits(bench.sent_of(1)[0]);
        assert_eq!(&ours[40..44], my_as);
        assert!(ours.contains(&format!("4104{local:08x}")), "{ours}");
        assert_eq!(
            (bench.peer.state(), bench.notification()),
            (State::Established, None)
        );
    }
}
