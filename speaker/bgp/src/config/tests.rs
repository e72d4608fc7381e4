use super::*;

pub(crate) fn seconds(value: u64) -> Duration {
    Duration::from_secs(value)
}

#[test]
fn the_missing_timer_is_three_times_or_a_third_of_the_other() {
    let timers = |hold, keepalive| {
        Timers::new(hold, keepalive).map(|t| (t.hold_time.as_secs(), t.keepalive_time.as_secs()))
    };
    assert_eq!(timers(None, None), Ok((90, 30)));
    assert_eq!(timers(Some(seconds(30)), None), Ok((30, 10)));
    assert_eq!(timers(None, Some(seconds(5))), Ok((15, 5)));
    assert_eq!(timers(Some(seconds(0)), None), Ok((0, 0)));
}

#[test]
fn a_node_without_ipv4_gets_a_stable_router_id_of_its_own() {
    let v6: IpAddr = "2001:db8:0:1::11".parse().unwrap();
    let a = router_id(None, &[v6], &NodeName::from("node-a"));
    assert_eq!(a, router_id(None, &[v6], &NodeName::from("node-a")));
    assert_ne!(a, router_id(None, &[v6], &NodeName::from("node-b")));
    assert!(!a.is_unspecified());
    let v4: IpAddr = "192.0.2.11".parse().unwrap();
    assert_eq!(
        IpAddr::V4(router_id(None, &[v6, v4], &NodeName::from("x"))),
        v4
    );
}

#[test]
fn a_password_is_never_shown() {
    assert_eq!(format!("{:?}", Password::from("hunter2")), "Password(…)");
}
