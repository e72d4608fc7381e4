//! Mutated ARP and Neighbour Discovery frames against the parsers and the announcer (law 5: no panic, no answer for a VIP not
//! held). Small by default; `ROADSTEAD_FUZZ=10000000` runs ten million. Prints seed and count; `ROADSTEAD_FUZZ_SEED` repeats a run.
#![expect(
    clippy::unwrap_used,
    reason = "a test that fails at its own numbers should say so"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use api_model::Time;
use speaker_l2::{
    InterfaceIndex, Mac,
    announcer::{Announcer, Input, Interface, Output, VipSpec},
    arp,
    candidate::Selection,
    ndp,
};

/// Mutations in a run without `ROADSTEAD_FUZZ`.
const DEFAULT_COUNT: u64 = 200_000;
const LINK: InterfaceIndex = InterfaceIndex(7);
const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

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

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.next() >> 56).unwrap()
    }
}

fn held() -> [IpAddr; 2] {
    [
        "192.0.2.10".parse().unwrap(),
        "2001:db8:2::10".parse().unwrap(),
    ]
}

/// Whole frames of every kind that is understood, for VIPs that are held and for others.
fn seeds() -> Vec<Vec<u8>> {
    let v4: Ipv4Addr = "192.0.2.10".parse().unwrap();
    let v6: Ipv6Addr = "2001:db8:2::10".parse().unwrap();
    let mut seeds = vec![arp_request(v4), arp_request("192.0.2.11".parse().unwrap())];
    seeds.extend(arp::announcements(OTHER, v4));
    seeds.push(ndp::announcement(OTHER, v6));
    for target in [v6, "2001:db8:2::11".parse().unwrap()] {
        seeds.push(solicitation(target, &[1, 1, 2, 0, 0, 0, 0, 2]));
        seeds.push(solicitation(target, &[]));
        // the longest option length, and one of zero
        seeds.push(solicitation(target, &[1, 255, 0, 0, 0, 0, 0, 0]));
        seeds.push(solicitation(target, &[1, 0, 0, 0, 0, 0, 0, 0]));
    }
    seeds
}

fn arp_request(target: Ipv4Addr) -> Vec<u8> {
    let mut frame = [
        &[0xff; 6][..],
        &OTHER.0,
        &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
        &OTHER.0,
    ]
    .concat();
    frame.extend([192, 0, 2, 200]);
    frame.extend([0; 6]);
    frame.extend(target.octets());
    frame
}

fn solicitation(target: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    let source: Ipv6Addr = "2001:db8:2::c8".parse().unwrap();
    let group = ndp::solicited_node(target);
    let mut message = vec![135, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    message.extend(options);
    let length = u16::try_from(message.len()).unwrap();
    let sum = checksum(source, group, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [
        &Mac::of_group(group).0[..],
        &OTHER.0,
        &[0x86, 0xdd, 0x60, 0, 0, 0],
    ]
    .concat();
    frame.extend(length.to_be_bytes());
    frame.extend([58, 255]);
    frame.extend(source.octets());
    frame.extend(group.octets());
    frame.extend(message);
    frame
}

/// RFC 4443 §2.3.
fn checksum(source: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let mut words = [&source.octets()[..], &to.octets()].concat();
    words.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    words.extend([0, 0, 0, 58]);
    words.extend(message);
    words.resize(words.len().next_multiple_of(2), 0);
    let mut sum: u32 = words
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}

/// Corrects the checksum of a frame that still has room for one, so that mutations get behind that check too.
fn mend(frame: &mut [u8]) {
    if frame.len() < 62 || frame[12..14] != [0x86, 0xdd] {
        return;
    }
    let at = |from: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&frame[from..from + 16]).unwrap());
    let (source, to) = (at(22), at(38));
    frame[56..58].copy_from_slice(&[0, 0]);
    let sum = checksum(source, to, &frame[54..]);
    frame[56..58].copy_from_slice(&sum.to_be_bytes());
}

fn mutate(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        match random.below(6) {
            0 => frame.truncate(random.below(frame.len() + 1)),
            1 => frame.extend((0..random.below(80)).map(|_| 0xa5)),
            2 if !frame.is_empty() => {
                let at = random.below(frame.len());
                frame[at] = [0, 1, 2, 4, 6, 8, 32, 127, 128, 255][random.below(10)];
            }
            3 if !frame.is_empty() => {
                let at = random.below(frame.len());
                frame[at] ^= 1 << random.below(8);
            }
            4 if frame.len() > 54 => {
                let at = 54 + random.below(frame.len() - 54);
                frame[at] = random.byte();
            }
            _ if !frame.is_empty() => {
                let at = random.below(frame.len());
                frame[at] = random.byte();
            }
            _ => {}
        }
    }
    if random.below(2) == 0 {
        mend(&mut frame);
    }
    frame
}

fn holder() -> Announcer {
    let mut announcer = Announcer::default();
    let interface = Interface {
        name: "eth0".into(),
        mac: OWN,
    };
    let spec = VipSpec {
        interfaces: Selection::All,
        announce: true,
    };
    let mut out = Vec::new();
    let interfaces = BTreeMap::from([(LINK, interface)]);
    announcer.handle(Time::ZERO, Input::Interfaces(interfaces), &mut out);
    let vips = held().map(|vip| (vip, spec.clone())).into();
    announcer.handle(Time::ZERO, Input::Vips(vips), &mut out);
    announcer
}

/// The address that a frame of ours speaks for.
fn spoken_for(frame: &[u8]) -> IpAddr {
    let reader = Mac(frame[..6].try_into().unwrap());
    match arp::parse(frame, reader) {
        Ok(message) => message.sender.into(),
        Err(_) => match ndp::parse(frame, reader) {
            Ok(ndp::Message::Advertisement { target, .. }) => target.into(),
            other => panic!("not a frame that we may send: {other:?}"),
        },
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how many and which frames is asked for from outside"
)]
fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn fuzz_no_frame_brings_a_panic_or_an_answer_for_a_vip_not_held() {
    let count = setting("ROADSTEAD_FUZZ").unwrap_or(DEFAULT_COUNT);
    let seed = setting("ROADSTEAD_FUZZ_SEED").unwrap_or(0x0ad5_7ead);
    let (mut random, seeds, mut announcer) = (Random(seed), seeds(), holder());
    let held: BTreeSet<IpAddr> = held().into();
    let (mut answers, mut conflicts) = (0_u64, 0_u64);
    let mut out = Vec::new();
    for round in 0..count {
        let frame = mutate(&mut random, &seeds);
        let now = Time::from_start(Duration::from_millis(round));
        let input = Input::Frame {
            interface: LINK,
            bytes: &frame,
        };
        announcer.handle(now, input, &mut out);
        assert!(out.len() <= 4, "one frame brought {} outputs", out.len());
        for output in out.drain(..) {
            match output {
                Output::Send { interface, bytes } => {
                    answers += 1;
                    assert_eq!(interface, LINK);
                    assert!(
                        held.contains(&spoken_for(&bytes)),
                        "{frame:02x?} brought {bytes:02x?}"
                    );
                }
                Output::Conflict { .. } => conflicts += 1,
                other @ (Output::JoinGroup { .. }
                | Output::LeaveGroup { .. }
                | Output::Announced { .. }
                | Output::Withdrawn { .. }) => panic!("{frame:02x?} brought {other:?}"),
            }
        }
    }
    println!(
        "frames: seed {seed}, {count} mutated frames, {answers} frames sent, {conflicts} conflicts"
    );
    assert!(
        answers > count / 1000 && conflicts > 0,
        "mutations are too wild to reach the code behind the checks"
    );
}
