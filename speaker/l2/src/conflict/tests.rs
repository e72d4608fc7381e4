//! What is a conflict, and how often it is answered.

use super::*;

const VIP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 240));
const ETH0: InterfaceIndex = InterfaceIndex(2);
const FOREIGN: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0xee]);
const OWN: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0x0a]);
const FELLOW: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0x0b]);

fn at(milliseconds: u64) -> Time {
    Time::from_start(Duration::from_millis(milliseconds))
}

fn guard() -> Guard {
    let mut guard = Guard::default();
    guard.set_own([OWN].into());
    guard.set_fellows([FELLOW].into());
    guard
}

#[test]
fn own_and_fellow_stations_are_no_conflict() {
    let mut guard = guard();
    assert_eq!(guard.judge(at(0), VIP, ETH0, OWN), Verdict::Fellow);
    assert_eq!(guard.judge(at(0), VIP, ETH0, FELLOW), Verdict::Fellow);
    assert_eq!(guard.judge(at(0), VIP, ETH0, FOREIGN), Verdict::Defend);
}

#[test]
fn a_storm_is_defended_once_in_ten_seconds() {
    let mut guard = guard();
    let defended: Vec<_> = (0..30_000)
        .step_by(10)
        .filter(|ms| guard.judge(at(*ms), VIP, ETH0, FOREIGN) == Verdict::Defend)
        .collect();
    assert_eq!(defended, [0, 10_000, 20_000]);
}

#[test]
fn each_vip_and_interface_has_its_own_interval() {
    let mut guard = guard();
    let other = "192.0.2.241".parse().unwrap();
    for (vip, interface) in [(VIP, ETH0), (other, ETH0), (VIP, InterfaceIndex(3))] {
        assert_eq!(guard.judge(at(0), vip, interface, FOREIGN), Verdict::Defend);
        assert_eq!(guard.judge(at(1), vip, interface, FOREIGN), Verdict::Quiet);
    }
    guard.forget(VIP, ETH0);
    assert_eq!(guard.judge(at(2), VIP, ETH0, FOREIGN), Verdict::Defend);
    assert_eq!(guard.judge(at(2), other, ETH0, FOREIGN), Verdict::Quiet);
}
