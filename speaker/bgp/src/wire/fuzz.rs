//! Mutated messages against everything that reads bytes from a peer. Small by default; `ROADSTEAD_FUZZ=10000000 cargo test
//! -p speaker-bgp --release -- fuzz --nocapture` runs ten million. Prints seed and count; `ROADSTEAD_FUZZ_SEED` repeats a run.

use std::{collections::BTreeMap, net::IpAddr};

use api_model::{IpFamily, Time};

use super::{
    encode,
    skim::{SkimContext, gate, skim},
    tests::{hex, nested_attribute_sets},
    *,
};
use crate::{
    Input, Output, Peer, Side, State,
    peer::tests::{THEIR_OPEN, config, routes},
};

/// Mutations in a run without `ROADSTEAD_FUZZ`.
const DEFAULT_COUNT: u64 = 200_000;

/// Numbers from a seed (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which isn't 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.next() >> 56).unwrap()
    }

    /// A value that lengths and types like to break at.
    fn odd_byte(&mut self) -> u8 {
        let odd = [
            0, 1, 2, 3, 4, 5, 8, 14, 15, 16, 17, 32, 33, 64, 127, 128, 129, 254, 255,
        ];
        odd[self.below(odd.len())]
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let body = |body: &[u8]| {
        let length = u16::try_from(HEADER_OCTETS + body.len()).unwrap();
        let mut message = vec![0xff; 16];
        message.extend_from_slice(&length.to_be_bytes());
        message.push(2);
        message.extend_from_slice(body);
        message
    };
    let mut seeds = vec![
        hex(THEIR_OPEN),
        encode::keepalive(),
        encode::notification(&Notification::administrative_shutdown("drained")),
        encode::route_refresh(IpFamily::V4),
        encode::route_refresh(IpFamily::V6),
        encode::end_of_rib(IpFamily::V6),
        body(&hex("0000 000a 400207 0201 0000fde9 00")),
        body(&nested_attribute_sets(3)),
        body(&nested_attribute_sets(60)),
        body(&nested_attribute_sets(500)),
    ];
    // OPENs with many capabilities, and with the long form of RFC 9072
    seeds.push(hex(
        "ffffffffffffffffffffffffffffffff 0041 01 04 fc01 005a c0000201 24
         02 22 0104 00010001 0104 00020001 0200 4104 0000fc01 4006 0078 00010180 4904 01610162 0600",
    ));
    seeds.push(hex(
        "ffffffffffffffffffffffffffffffff 002a 01 04 fc01 005a c0000201 ff ff 000a 02 0007 0104 00010001 00",
    ));
    // an UPDATE with every attribute that is judged, of plain and of MP routes
    let attributes = hex(
        "400101 00 400206 02010000fc01 400304 c0000201 800404 00000001 400504 00000064 400600
         c00708 0000fc01 c0000201 c00804 fc000001 800904 c0000201 800a04 c0000201
         c01008 0002fc0000000001 c0200c 0000fc000000000700000009 c02304 0000fc01
         800e1c 0002 01 10 20010db8000000010000000000000001 00 30 20010db80005
         800f0a 0002 01 30 20010db80006 c0d504 deadbeef c01604 00000000 c0140e 0000fde8000000000000c0000201",
    );
    let mut update = vec![0, 5, 25, 198, 51, 100, 0];
    update.extend_from_slice(&u16::try_from(attributes.len()).unwrap().to_be_bytes());
    update.extend_from_slice(&attributes);
    update.extend_from_slice(&hex("19 c6336480 00 20 cb007101"));
    seeds.push(body(&update));
    seeds
}

/// One to four small changes; half of the time the length field is put right again, so that the body is reached.
fn mutate(random: &mut Random, seeds: &[Vec<u8>], message: &mut Vec<u8>) {
    message.clone_from(&seeds[random.below(seeds.len())]);
    for _ in 0..=random.below(4) {
        // mostly behind the header, which has few ways to be wrong
        let from = if random.below(16) == 0 {
            0
        } else {
            HEADER_OCTETS.min(message.len())
        };
        let at = from + random.below(message.len() - from + 1);
        match random.below(8) {
            0 | 1 if at < message.len() => message[at] = random.odd_byte(),
            2 if at < message.len() => message[at] = random.byte(),
            3 if at < message.len() => message[at] ^= 1 << random.below(8),
            4 if at < message.len() => drop(message.remove(at)),
            5 => message.insert(at, random.byte()),
            6 => message.truncate(at),
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let piece = random.below(other.len());
                let end = (piece + random.below(40)).min(other.len());
                message.splice(at..at, other[piece..end].iter().copied());
            }
        }
    }
    message.truncate(MAX_MESSAGE_OCTETS + 8);
    if random.below(8) != 0 && message.len() >= HEADER_OCTETS {
        let length = u16::try_from(message.len()).unwrap().to_be_bytes();
        message[16..18].copy_from_slice(&length);
    }
}

/// Reads a message as a session would, and as the decoder behind the gate would.
fn read(message: &[u8], counts: &mut Counts) {
    let mut framer = Framer::default();
    let mut rest = message;
    while !rest.is_empty() {
        let taken = framer.push(rest);
        rest = &rest[taken..];
        loop {
            match framer.next_frame() {
                Ok(Some(frame)) => body(&frame, counts),
                Ok(None) => break,
                Err(_) => {
                    *counts.entry("header refused").or_default() += 1;
                    return;
                }
            }
        }
    }
}

fn body(frame: &Frame, counts: &mut Counts) {
    let word = match frame.kind {
        MessageKind::Open if decode::open(&frame.body).is_ok() => "open read",
        MessageKind::Open => "open refused",
        MessageKind::Notification => {
            let _ = decode::notification(&frame.body).to_string();
            "notification read"
        }
        MessageKind::Keepalive => "keepalive",
        MessageKind::RouteRefresh => {
            let _ = decode::route_refresh(&frame.body);
            "route refresh"
        }
        MessageKind::Update => {
            for (four_octet_as, internal) in [(true, false), (false, true)] {
                let context = SkimContext {
                    four_octet_as,
                    internal,
                };
                if let Some(gated) = gate(&frame.body, context) {
                    *counts.entry("update gated and decoded").or_default() += 1;
                    let _ = decode::update(&gated);
                }
            }
            let context = SkimContext {
                four_octet_as: true,
                internal: false,
            };
            match skim(&frame.body, context) {
                Ok(skim) if skim.treat_as_withdraw.is_some() => "update withdrawn",
                Ok(_) => "update accepted",
                Err(_) => "update resets",
            }
        }
    };
    *counts.entry(word).or_default() += 1;
}

/// A peer in the middle of a session.
fn established(now: Time) -> Peer {
    let mut peer = Peer::new(config(), 1);
    let mut out = Vec::new();
    peer.handle(now, Input::Start, &mut out);
    peer.handle(now, Input::Routes(routes(&["203.0.113.1/32"])), &mut out);
    let local = IpAddr::from([192, 0, 2, 11]);
    let side = Side::Dialled;
    peer.handle(now, Input::Connected { side, local }, &mut out);
    let mut hello = hex(THEIR_OPEN);
    hello.extend(encode::keepalive());
    peer.handle(
        now,
        Input::Bytes {
            side,
            bytes: &hello,
        },
        &mut out,
    );
    assert_eq!(peer.state(), State::Established);
    peer
}

fn setting(name: &str) -> Option<u64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a test is told its length from outside"
    )]
    std::env::var(name).ok()?.parse().ok()
}

type Counts = BTreeMap<&'static str, u64>;

#[test]
fn fuzz_mutated_messages_neither_panic_nor_hang() {
    let count = setting("ROADSTEAD_FUZZ").unwrap_or(DEFAULT_COUNT);
    let seed = setting("ROADSTEAD_FUZZ_SEED").unwrap_or(0x0ad5_7ead);
    let half = count / 2;
    let (mut counts, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(seed.wrapping_add(1), count - half));
        (
            run(seed, half),
            other.join().expect("the other half panicked"),
        )
    });
    for (word, more) in other {
        *counts.entry(word).or_default() += more;
    }
    report(seed, count, &counts);
    for word in [
        "open read",
        "update accepted",
        "update withdrawn",
        "update resets",
        "session ended",
    ] {
        assert!(counts.contains_key(word), "no mutation led to {word:?}");
    }
}

fn run(seed: u64, count: u64) -> Counts {
    let mut random = Random(seed);
    let seeds = seeds();
    let mut counts = Counts::new();
    let (mut message, mut out) = (Vec::new(), Vec::new());
    let now = Time::ZERO;
    let fresh = established(now);
    let mut peer = fresh.clone();
    for _ in 0..count {
        mutate(&mut random, &seeds, &mut message);
        read(&message, &mut counts);
        // a session lives on over many messages, so that a half-read one meets the next
        out.clear();
        let side = Side::Dialled;
        peer.handle(
            now,
            Input::Bytes {
                side,
                bytes: &message,
            },
            &mut out,
        );
        let most = message.len() / HEADER_OCTETS + 4;
        assert!(
            out.len() <= most,
            "{} outputs for {} octets, seed {seed}",
            out.len(),
            message.len()
        );
        let sent: usize = out.iter().map(sent_octets).sum();
        assert!(
            sent <= most * MAX_MESSAGE_OCTETS,
            "{sent} octets sent, seed {seed}"
        );
        if peer.state() < State::OpenSent {
            *counts.entry("session ended").or_default() += 1;
            peer = fresh.clone();
        }
    }
    counts
}

fn sent_octets(output: &Output) -> usize {
    match output {
        Output::Send { bytes, .. } => bytes.len(),
        Output::Dial | Output::Close(_) | Output::Changed(_) | Output::Notice(..) => 0,
    }
}

#[expect(
    clippy::print_stdout,
    reason = "seed and count are the result of the run"
)]
fn report(seed: u64, count: u64, counts: &Counts) {
    println!("fuzz speaker-bgp: seed {seed}, {count} mutated messages: {counts:?}");
}
