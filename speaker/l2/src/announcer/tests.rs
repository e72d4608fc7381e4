//! The announcer: bursts, answers, silence, groups; and its laws under random histories.

use proptest::prelude::*;

use super::*;

const ETH0: InterfaceIndex = InterfaceIndex(2);
const ETH1: InterfaceIndex = InterfaceIndex(3);
const MAC0: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0x0a]);
const MAC1: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0x1a]);
const ASKER: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0xc8]);

fn at(milliseconds: u64) -> Time {
    Time::from_start(Duration::from_millis(milliseconds))
}

fn interfaces() -> BTreeMap<InterfaceIndex, Interface> {
    [(ETH0, "eth0", MAC0), (ETH1, "eth1", MAC1)]
        .map(|(index, name, mac)| {
            (
                index,
                Interface {
                    name: name.into(),
                    mac,
                },
            )
        })
        .into()
}

fn vips(list: &[(&str, &[&str])]) -> BTreeMap<IpAddr, VipSpec> {
    list.iter()
        .map(|(vip, names)| {
            let interfaces = if names.is_empty() {
                Selection::All
            } else {
                Selection::These(
                    names
                        .iter()
                        .map(|name| InterfaceName::from(*name))
                        .collect(),
                )
            };
            (
                vip.parse().unwrap(),
                VipSpec {
                    interfaces,
                    announce: true,
                },
            )
        })
        .collect()
}

/// One line an output: `eth0 arp request 192.0.2.10`, `join eth0 ff02::1:ff00:10` …
fn shown(out: &[Output]) -> Vec<String> {
    let name = |index: &InterfaceIndex| format!("eth{}", index.0 - 2);
    out.iter()
        .map(|output| match output {
            Output::Send { interface, bytes } => format!("{} {}", name(interface), frame(bytes)),
            Output::JoinGroup { interface, group } => format!("join {} {group}", name(interface)),
            Output::LeaveGroup { interface, group } => format!("leave {} {group}", name(interface)),
            Output::Announced { vip, interface } => format!("announced {vip} {}", name(interface)),
            Output::Withdrawn { vip, interface } => format!("withdrawn {vip} {}", name(interface)),
            Output::Conflict {
                vip,
                interface,
                mac,
            } => format!("conflict {vip} {} {mac}", name(interface)),
        })
        .collect()
}

fn frame(bytes: &[u8]) -> String {
    let station = |at: usize| Mac(bytes[at..at + 6].try_into().unwrap());
    if bytes[12..14] == [8, 6] {
        let operation = if bytes[21] == 1 { "request" } else { "reply" };
        let sender: [u8; 4] = bytes[28..32].try_into().unwrap();
        format!(
            "arp {operation} {} at {} to {}",
            IpAddr::from(sender),
            station(22),
            station(0)
        )
    } else {
        let target: [u8; 16] = bytes[62..78].try_into().unwrap();
        format!(
            "na {} at {} to {}",
            IpAddr::from(target),
            station(80),
            station(0)
        )
    }
}

fn who_has(vip: [u8; 4], from: Mac, sender: [u8; 4]) -> Vec<u8> {
    let mut bytes = arp::announcements(from, sender.into())[0].clone();
    bytes[38..42].copy_from_slice(&vip);
    bytes
}

struct Rig {
    announcer: Announcer,
    now: Time,
}

impl Rig {
    fn new() -> Self {
        let mut rig = Self {
            announcer: Announcer::default(),
            now: at(0),
        };
        rig.run(Input::Interfaces(interfaces()));
        rig
    }

    fn run(&mut self, input: Input<'_>) -> Vec<String> {
        let mut out = Vec::new();
        self.announcer.handle(self.now, input, &mut out);
        shown(&out)
    }

    fn hear(&mut self, bytes: &[u8]) -> Vec<String> {
        self.run(Input::Frame {
            interface: ETH0,
            bytes,
        })
    }
}

#[test]
fn a_vip_is_announced_five_times_in_both_forms() {
    let mut rig = Rig::new();
    let burst = [
        "eth0 arp request 192.0.2.10 at 00:00:5e:00:53:0a to ff:ff:ff:ff:ff:ff",
        "eth0 arp reply 192.0.2.10 at 00:00:5e:00:53:0a to ff:ff:ff:ff:ff:ff",
    ];
    let first = rig.run(Input::Vips(vips(&[("192.0.2.10", &["eth0"])])));
    assert_eq!(first, ["announced 192.0.2.10 eth0", burst[0], burst[1]]);
    let mut times = Vec::new();
    while let Some(deadline) = rig.announcer.next_deadline() {
        rig.now = deadline;
        assert_eq!(rig.run(Input::Tick), burst);
        times.push(deadline.since_start().as_millis());
    }
    assert_eq!(times, [1100, 2200, 3300, 4400]);
    assert_eq!(rig.announcer.counters().announcements, 10);
}

#[test]
fn each_interface_announces_its_own_address() {
    let mut rig = Rig::new();
    assert_eq!(
        rig.run(Input::Vips(vips(&[("2001:db8:2::10", &[])]))),
        [
            "join eth0 ff02::1:ff00:10",
            "announced 2001:db8:2::10 eth0",
            "join eth1 ff02::1:ff00:10",
            "announced 2001:db8:2::10 eth1",
            "eth0 na 2001:db8:2::10 at 00:00:5e:00:53:0a to 33:33:00:00:00:01",
            "eth1 na 2001:db8:2::10 at 00:00:5e:00:53:1a to 33:33:00:00:00:01",
        ]
    );
}

#[test]
fn an_equal_snapshot_says_nothing_new() {
    let mut rig = Rig::new();
    rig.run(Input::Vips(vips(&[("192.0.2.10", &[])])));
    assert_eq!(rig.run(Input::Vips(vips(&[("192.0.2.10", &[])]))), [""; 0]);
    assert_eq!(rig.run(Input::Interfaces(interfaces())), [""; 0]);
}

#[test]
fn a_known_vip_that_is_not_held_is_silent() {
    let mut rig = Rig::new();
    let mut known = vips(&[("192.0.2.10", &[])]);
    for spec in known.values_mut() {
        spec.announce = false;
    }
    assert_eq!(rig.run(Input::Vips(known)), [""; 0]);
    assert_eq!(
        rig.hear(&who_has([192, 0, 2, 10], ASKER, [192, 0, 2, 200])),
        [""; 0]
    );
    assert_eq!(
        rig.announcer.counters().dropped,
        [(Dropped::NotHeld, 1)].into()
    );
}

#[test]
fn a_withdrawn_vip_is_silent_at_once() {
    let mut rig = Rig::new();
    rig.run(Input::Vips(vips(&[
        ("192.0.2.10", &["eth0"]),
        ("2001:db8:2::10", &["eth0"]),
    ])));
    let question = who_has([192, 0, 2, 10], ASKER, [192, 0, 2, 200]);
    let answer = "eth0 arp reply 192.0.2.10 at 00:00:5e:00:53:0a to 00:00:5e:00:53:c8";
    assert_eq!(rig.hear(&question), [answer]);
    assert_eq!(
        rig.run(Input::Vips(BTreeMap::new())),
        [
            "withdrawn 192.0.2.10 eth0",
            "leave eth0 ff02::1:ff00:10",
            "withdrawn 2001:db8:2::10 eth0"
        ]
    );
    assert_eq!(rig.announcer.next_deadline(), None);
    rig.now = at(10_000);
    assert_eq!(rig.hear(&question), [""; 0]);
    assert_eq!(
        rig.hear(&who_has([192, 0, 2, 99], ASKER, [192, 0, 2, 10])),
        [""; 0],
        "no defence either"
    );
    assert_eq!(rig.run(Input::Tick), [""; 0]);
}

#[test]
fn a_group_is_left_with_the_last_vip_that_needs_it() {
    let mut rig = Rig::new();
    rig.run(Input::Vips(vips(&[
        ("2001:db8:2::10", &["eth0"]),
        ("2001:db8:3::10", &["eth0"]),
    ])));
    let one = rig.run(Input::Vips(vips(&[("2001:db8:3::10", &["eth0"])])));
    assert_eq!(one, ["withdrawn 2001:db8:2::10 eth0"]);
    let none = rig.run(Input::Vips(BTreeMap::new()));
    assert_eq!(
        none,
        [
            "leave eth0 ff02::1:ff00:10",
            "withdrawn 2001:db8:3::10 eth0"
        ]
    );
}

#[test]
fn an_interface_that_returns_is_announced_on_anew() {
    let mut rig = Rig::new();
    rig.run(Input::Vips(vips(&[("192.0.2.10", &["eth0"])])));
    rig.now = at(60_000);
    while rig.announcer.next_deadline().is_some() {
        rig.run(Input::Tick);
        rig.now = rig.now + ANNOUNCE_INTERVAL;
    }
    let mut without = interfaces();
    without.remove(&ETH0);
    assert_eq!(
        rig.run(Input::Interfaces(without)),
        ["withdrawn 192.0.2.10 eth0"]
    );
    assert_eq!(
        rig.run(Input::Interfaces(interfaces())).len(),
        3,
        "announced, request, reply"
    );
    let mut changed = interfaces();
    changed.get_mut(&ETH0).expect("eth0 is there").mac = ASKER;
    assert_eq!(
        rig.run(Input::Interfaces(changed)),
        [
            "withdrawn 192.0.2.10 eth0",
            "announced 192.0.2.10 eth0",
            "eth0 arp request 192.0.2.10 at 00:00:5e:00:53:c8 to ff:ff:ff:ff:ff:ff",
            "eth0 arp reply 192.0.2.10 at 00:00:5e:00:53:c8 to ff:ff:ff:ff:ff:ff",
        ]
    );
}

#[test]
fn many_vips_are_announced_in_batches_with_questions_in_between() {
    let mut rig = Rig::new();
    let list: Vec<_> = (0..600_u16)
        .map(|n| format!("192.0.{}.{}", n / 250, n % 250))
        .collect();
    let list: Vec<(&str, &[&str])> = list
        .iter()
        .map(|vip| (vip.as_str(), &["eth0"] as &[_]))
        .collect();
    let sent = |lines: Vec<String>| lines.iter().filter(|line| line.contains(" arp ")).count();
    assert_eq!(sent(rig.run(Input::Vips(vips(&list)))), 2 * ANNOUNCE_BATCH);
    assert_eq!(rig.announcer.next_deadline(), Some(at(0)));
    assert_eq!(
        rig.hear(&who_has([192, 0, 0, 10], ASKER, [192, 0, 9, 200]))
            .len(),
        1
    );
    assert_eq!(
        sent(rig.run(Input::Tick)) + sent(rig.run(Input::Tick)),
        2 * (600 - ANNOUNCE_BATCH)
    );
    assert_eq!(rig.announcer.next_deadline(), Some(at(1100)));
}

#[test]
fn a_foreign_claim_is_reported_and_defended_and_a_fellows_is_not() {
    let mut rig = Rig::new();
    rig.run(Input::Vips(vips(&[("192.0.2.10", &["eth0"])])));
    let fellow = Mac([0, 0, 0x5e, 0, 0x53, 0x0b]);
    rig.run(Input::Fellows([fellow].into()));
    let [claim, _] = arp::announcements(fellow, [192, 0, 2, 10].into());
    assert_eq!(rig.hear(&claim), [""; 0]);
    let [own, _] = arp::announcements(MAC1, [192, 0, 2, 10].into());
    assert_eq!(
        rig.hear(&own),
        [""; 0],
        "reflected from the other interface"
    );
    let [foreign, again] = arp::announcements(ASKER, [192, 0, 2, 10].into());
    assert_eq!(
        rig.hear(&foreign),
        [
            "conflict 192.0.2.10 eth0 00:00:5e:00:53:c8",
            "eth0 arp request 192.0.2.10 at 00:00:5e:00:53:0a to ff:ff:ff:ff:ff:ff",
            "eth0 arp reply 192.0.2.10 at 00:00:5e:00:53:0a to ff:ff:ff:ff:ff:ff",
        ]
    );
    assert_eq!(rig.hear(&again), [""; 0]);
    let counters = rig.announcer.counters();
    assert_eq!(counters.conflicts, 2);
    let dropped = [
        (Dropped::Fellow, 1),
        (Dropped::Reflected, 1),
        (Dropped::Conflict, 2),
    ];
    assert_eq!(counters.dropped, dropped.into());
}

#[test]
fn a_foreign_neighbour_advertisement_is_a_conflict() {
    let mut rig = Rig::new();
    rig.run(Input::Vips(vips(&[("2001:db8:2::10", &["eth0"])])));
    let foreign = ndp::announcement(ASKER, "2001:db8:2::10".parse().unwrap());
    assert_eq!(
        rig.hear(&foreign),
        [
            "conflict 2001:db8:2::10 eth0 00:00:5e:00:53:c8",
            "eth0 na 2001:db8:2::10 at 00:00:5e:00:53:0a to 33:33:00:00:00:01",
        ]
    );
}

#[test]
fn frames_from_other_interfaces_are_not_answered() {
    let mut rig = Rig::new();
    rig.run(Input::Vips(vips(&[("192.0.2.10", &["eth0"])])));
    let question = who_has([192, 0, 2, 10], ASKER, [192, 0, 2, 200]);
    assert_eq!(
        rig.run(Input::Frame {
            interface: ETH1,
            bytes: &question
        }),
        [""; 0]
    );
    assert_eq!(
        rig.run(Input::Frame {
            interface: InterfaceIndex(9),
            bytes: &question
        }),
        [""; 0]
    );
    assert_eq!(
        rig.announcer.counters().dropped,
        [(Dropped::NotHeld, 1), (Dropped::UnknownInterface, 1)].into()
    );
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Vips(Vec<(u8, u8, bool)>),
    Interfaces(u8),
    Ask(u8, u8),
    Claim(u8, u8),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::collection::vec((0_u8..6, 0_u8..3, any::<bool>()), 0..6).prop_map(Step::Vips),
        (0_u8..4).prop_map(Step::Interfaces),
        (0_u8..6, 0_u8..2).prop_map(|(vip, interface)| Step::Ask(vip, interface)),
        (0_u8..6, 0_u8..2).prop_map(|(vip, interface)| Step::Claim(vip, interface)),
        (0_u16..3000).prop_map(Step::Wait),
    ]
}

/// Even numbers are IPv4, odd ones IPv6; 0 and 2 share nothing, 1 and 3 share their solicited-node group.
fn numbered(vip: u8) -> IpAddr {
    if vip.is_multiple_of(2) {
        IpAddr::from([192, 0, 2, vip])
    } else {
        IpAddr::from([0x2001, 0xdb8, u16::from(vip), 0, 0, 0, 0, 0x10])
    }
}

fn question(vip: IpAddr) -> Vec<u8> {
    match vip {
        IpAddr::V4(v4) => who_has(v4.octets(), ASKER, [192, 0, 2, 200]),
        IpAddr::V6(v6) => {
            // An advertisement with the type of a solicitation: flags are reserved bits there, the sum is adapted.
            let mut bytes = ndp::announcement(ASKER, v6);
            bytes[54] = 135;
            bytes[78] = 1;
            bytes[22..38].copy_from_slice(&"2001:db8:2::c8".parse::<Ipv6Addr>().unwrap().octets());
            let ip = pnet::packet::ipv6::Ipv6Packet::new(&bytes[14..]).unwrap();
            let (from, to) = (ip.get_source(), ip.get_destination());
            let icmp = pnet::packet::icmpv6::Icmpv6Packet::new(&bytes[54..]).unwrap();
            let checksum = pnet::packet::icmpv6::checksum(&icmp, &from, &to);
            bytes[56..58].copy_from_slice(&checksum.to_be_bytes());
            bytes
        }
    }
}

fn claim(vip: IpAddr) -> Vec<u8> {
    match vip {
        IpAddr::V4(v4) => arp::announcements(ASKER, v4)[1].clone(),
        IpAddr::V6(v6) => ndp::announcement(ASKER, v6),
    }
}

/// The VIP that a sent frame names as held by us.
fn named(bytes: &[u8]) -> IpAddr {
    if bytes[12..14] == [8, 6] {
        IpAddr::from(<[u8; 4]>::try_from(&bytes[28..32]).unwrap())
    } else {
        IpAddr::from(<[u8; 16]>::try_from(&bytes[62..78]).unwrap())
    }
}

fn apply(announcer: &mut Announcer, now: &mut Time, step: &Step, world: &mut World) -> Vec<Output> {
    let mut out = Vec::new();
    match step {
        Step::Vips(list) => {
            world.specs = list
                .iter()
                .map(|(vip, which, announce)| {
                    let interfaces = match which {
                        0 => Selection::All,
                        1 => Selection::These(["eth0".into()].into()),
                        _ => Selection::none(),
                    };
                    (
                        numbered(*vip),
                        VipSpec {
                            interfaces,
                            announce: *announce,
                        },
                    )
                })
                .collect();
            announcer.handle(*now, Input::Vips(world.specs.clone()), &mut out);
        }
        Step::Interfaces(bits) => {
            world.interfaces = interfaces();
            world
                .interfaces
                .retain(|index, _| bits & (1 << (index.0 - 2)) != 0);
            announcer.handle(*now, Input::Interfaces(world.interfaces.clone()), &mut out);
        }
        Step::Ask(vip, which) | Step::Claim(vip, which) => {
            let vip = numbered(*vip);
            let bytes = if matches!(step, Step::Ask(..)) {
                question(vip)
            } else {
                claim(vip)
            };
            let interface = InterfaceIndex(u32::from(*which) + 2);
            announcer.handle(
                *now,
                Input::Frame {
                    interface,
                    bytes: &bytes,
                },
                &mut out,
            );
        }
        Step::Wait(milliseconds) => {
            *now = *now + Duration::from_millis(u64::from(*milliseconds));
            announcer.handle(*now, Input::Tick, &mut out);
        }
    }
    out
}

#[derive(Default)]
struct World {
    specs: BTreeMap<IpAddr, VipSpec>,
    interfaces: BTreeMap<InterfaceIndex, Interface>,
    announced: BTreeSet<(IpAddr, InterfaceIndex)>,
    groups: BTreeSet<(InterfaceIndex, Ipv6Addr)>,
}

impl World {
    fn may(&self, vip: IpAddr, index: InterfaceIndex) -> bool {
        let selected = |spec: &VipSpec, interface: &Interface| {
            spec.announce && spec.interfaces.has(&interface.name)
        };
        match (self.specs.get(&vip), self.interfaces.get(&index)) {
            (Some(spec), Some(interface)) => selected(spec, interface),
            _ => false,
        }
    }

    /// All that may be announced, worked out from nothing.
    fn wanted(&self) -> BTreeSet<(IpAddr, InterfaceIndex)> {
        let pairs = self
            .specs
            .keys()
            .flat_map(|vip| self.interfaces.keys().map(|index| (*vip, *index)));
        pairs
            .filter(|(vip, index)| self.may(*vip, *index))
            .collect()
    }

    fn follow(&mut self, output: &Output) -> Result<(), TestCaseError> {
        match output {
            Output::Send { interface, bytes } => {
                prop_assert!(
                    self.may(named(bytes), *interface),
                    "spoke for {} not held",
                    named(bytes)
                );
                let mac = self.interfaces[interface].mac;
                prop_assert_eq!(&bytes[6..12], &mac.0, "not the station of the interface");
            }
            Output::Announced { vip, interface } => {
                prop_assert!(self.announced.insert((*vip, *interface)));
            }
            Output::Withdrawn { vip, interface } => {
                prop_assert!(self.announced.remove(&(*vip, *interface)));
            }
            Output::JoinGroup { interface, group } => {
                prop_assert!(self.groups.insert((*interface, *group)));
            }
            Output::LeaveGroup { interface, group } => {
                prop_assert!(self.groups.remove(&(*interface, *group)));
            }
            Output::Conflict { vip, interface, .. } => prop_assert!(self.may(*vip, *interface)),
        }
        Ok(())
    }
}

proptest! {
    /// Laws 1 and 2, and: what is announced, and which groups are joined, is what the last snapshots say.
    #[test]
    fn no_frame_names_a_vip_that_is_not_held(steps in prop::collection::vec(step(), 1..40)) {
        let (mut announcer, mut now, mut world) = (Announcer::default(), at(0), World::default());
        for step in &steps {
            let out = apply(&mut announcer, &mut now, step, &mut world);
            for output in &out {
                world.follow(output)?;
            }
            if let Step::Ask(vip, which) = step {
                let held = world.may(numbered(*vip), InterfaceIndex(u32::from(*which) + 2));
                let sent = out.iter().filter(|output| matches!(output, Output::Send { .. })).count();
                prop_assert_eq!(sent, usize::from(held), "answers to {:?}", step);
            }
            prop_assert_eq!(&world.announced, &world.wanted());
            prop_assert_eq!(&world.announced, &announcer.held().collect());
            let groups = world.announced.iter().filter_map(|(vip, index)| match vip {
                IpAddr::V6(v6) => Some((*index, ndp::solicited_node(*v6))),
                IpAddr::V4(_) => None,
            });
            prop_assert_eq!(&world.groups, &groups.collect());
        }
    }

    #[test]
    fn equal_histories_give_equal_outputs(steps in prop::collection::vec(step(), 1..20)) {
        let run = || {
            let (mut announcer, mut now, mut world) = (Announcer::default(), at(0), World::default());
            steps.iter().flat_map(|step| apply(&mut announcer, &mut now, step, &mut world)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(), run());
    }
}
