use super::*;

/// A Lease on a server: versions count up, an outdated write is refused.
#[derive(Default)]
struct Server {
    lease: Option<Lease>,
    version: u64,
}

impl Server {
    fn write(&mut self, mut lease: Lease) -> Result<Lease, String> {
        let stored = self
            .lease
            .as_ref()
            .and_then(|l| l.metadata.resource_version.clone());
        if lease.metadata.resource_version != stored {
            return Err("conflict".to_owned());
        }
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Ok(lease)
    }

    fn holder(&self) -> Option<String> {
        self.lease.as_ref().and_then(holder).cloned()
    }
}

fn elector(identity: &str) -> Elector {
    Elector::new(LeaseConfig::new("ns", "l", identity))
}

fn at(seconds: u64) -> Time {
    Time::from_start(Duration::from_secs(seconds))
}

/// Lets one elector do what it wants at this time; `reachable` says whether its requests arrive.
fn step(elector: &mut Elector, server: &mut Server, now: Time, reachable: bool) {
    for _ in 0..4 {
        let event = match elector.next(now, 0) {
            Action::Wait(_) => return,
            _ if !reachable => Event::Failed("cut".to_owned()),
            Action::Read => Event::Read(server.lease.clone().map(Box::new)),
            Action::Write(lease) => match server.write(*lease) {
                Ok(lease) => Event::Written {
                    begun: now,
                    lease: Box::new(lease),
                },
                Err(cause) => Event::Failed(cause),
            },
        };
        elector.handle(now, event);
    }
}

#[test]
fn the_first_takes_the_lease_and_the_second_waits() {
    let mut server = Server::default();
    let (mut a, mut b) = (elector("a"), elector("b"));
    step(&mut a, &mut server, at(0), true);
    step(&mut b, &mut server, at(0), true);
    assert!(a.leads(at(9)) && !a.leads(at(10)));
    assert!(!b.leads(at(0)));
    assert_eq!(server.holder().as_deref(), Some("a"));
}

#[test]
fn a_leader_that_renews_keeps_the_lease_for_ever() {
    let mut server = Server::default();
    let (mut a, mut b) = (elector("a"), elector("b"));
    for second in 0..600 {
        step(&mut a, &mut server, at(second), true);
        step(&mut b, &mut server, at(second), true);
        assert!(
            a.leads(at(second)) && !b.leads(at(second)),
            "second {second}"
        );
    }
    let spec = server.lease.unwrap().spec.unwrap();
    assert_eq!(spec.lease_transitions, Some(0));
}

#[test]
fn a_leader_that_is_cut_off_stops_before_another_takes_over() {
    let mut server = Server::default();
    let (mut a, mut b) = (elector("a"), elector("b"));
    let mut stopped = None;
    let mut taken = None;
    for second in 0..60 {
        let cut = second >= 20;
        step(&mut a, &mut server, at(second), !cut);
        step(&mut b, &mut server, at(second), true);
        assert!(
            !(a.leads(at(second)) && b.leads(at(second))),
            "two lead at {second}"
        );
        if cut && !a.leads(at(second)) {
            stopped.get_or_insert(second);
        }
        if b.leads(at(second)) {
            taken.get_or_insert(second);
        }
    }
    let (stopped, taken) = (stopped.unwrap(), taken.unwrap());
    assert!(stopped <= 30, "stopped at {stopped}");
    assert!(taken >= stopped + 3 && taken <= 40, "taken at {taken}");
    // the old leader comes back and finds the Lease taken
    step(&mut a, &mut server, at(60), true);
    assert!(!a.leads(at(60)));
}

/// The answer to a renewal is lost: the Lease is ours on the server, but we may act only as long as before.
#[test]
fn a_lost_answer_does_not_lengthen_the_right_to_act() {
    let mut server = Server::default();
    let mut a = elector("a");
    step(&mut a, &mut server, at(0), true);
    let Action::Write(lease) = a.next(at(2), 0) else {
        panic!("a renewal is due");
    };
    server.write(*lease).unwrap();
    a.handle(at(7), Event::Failed("no answer in time".to_owned()));
    assert_eq!(a.leads_until(), Some(at(10)));
    step(&mut a, &mut server, at(9), true);
    assert_eq!(a.leads_until(), Some(at(19)));
}

#[test]
fn the_right_to_act_counts_from_before_the_request() {
    let mut server = Server::default();
    let mut a = elector("a");
    a.handle(at(0), Event::Read(None));
    let Action::Write(lease) = a.next(at(0), 0) else {
        panic!("the lease is free");
    };
    let lease = server.write(*lease).unwrap();
    a.handle(
        at(4),
        Event::Written {
            begun: at(0),
            lease: Box::new(lease),
        },
    );
    assert_eq!(a.leads_until(), Some(at(10)));
}

#[test]
fn a_lease_that_is_given_up_is_taken_at_once() {
    let mut server = Server::default();
    let (mut a, mut b) = (elector("a"), elector("b"));
    step(&mut a, &mut server, at(0), true);
    step(&mut b, &mut server, at(0), true);
    let lease = a.resigned().unwrap();
    assert!(!a.leads(at(0)));
    server.write(lease).unwrap();
    step(&mut b, &mut server, at(3), true);
    assert!(b.leads(at(3)));
    assert_eq!(
        server.lease.unwrap().spec.unwrap().lease_transitions,
        Some(1)
    );
}

/// Time stamps of a server whose clock is wrong do not matter: only how long the Lease stood unchanged on our clock.
#[test]
fn a_lease_with_an_old_time_stamp_is_not_taken_early() {
    let mut server = Server::default();
    let old: Lease = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "l", "namespace": "ns"},
        "spec": {"holderIdentity": "z", "leaseDurationSeconds": 15, "renewTime": "2001-01-01T00:00:00.000000Z"},
    }))
    .unwrap();
    server.write(old).unwrap();
    let mut a = elector("a");
    for second in 0..15 {
        step(&mut a, &mut server, at(second), true);
        assert!(!a.leads(at(second)), "taken at {second}");
    }
    step(&mut a, &mut server, at(17), true);
    assert!(a.leads(at(17)));
}

#[test]
fn times_that_do_not_keep_leaders_apart_are_refused() {
    let good = LeaseConfig::new("ns", "l", "a");
    assert_eq!(good.check(), Ok(()));
    for (duration, deadline, retry) in [
        (15_000, 15_000, 2_000),
        (15_000, 2_000, 2_000),
        (15_500, 10_000, 2_000),
        (0, 0, 0),
        (15_000, 10_000, 0),
    ] {
        let bad = LeaseConfig {
            duration: Duration::from_millis(duration),
            renew_deadline: Duration::from_millis(deadline),
            retry_period: Duration::from_millis(retry),
            ..good.clone()
        };
        assert!(bad.check().is_err(), "{bad:?}");
    }
}

/// Many electors, each cut off now and then by a fixed pattern: at no second do two lead, and somebody leads most of the time.
#[test]
fn among_five_electors_with_cuts_never_two_lead() {
    for seed in 0_u64..200 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut server = Server::default();
        let mut all: Vec<Elector> = (0..5).map(|n| elector(&format!("e{n}"))).collect();
        let mut cut_until = [0_u64; 5];
        let mut led = 0;
        for second in 0..300 {
            for (elector, cut) in all.iter_mut().zip(&mut cut_until) {
                if draw() % 40 == 0 {
                    *cut = second + draw() % 30;
                }
                step(elector, &mut server, at(second), second >= *cut);
            }
            let leaders = all
                .iter()
                .filter(|elector| elector.leads(at(second)))
                .count();
            assert!(leaders <= 1, "seed {seed}: {leaders} lead at {second}");
            led += leaders;
        }
        assert!(led > 100, "seed {seed}: somebody led for {led} of 300 s");
    }
}
