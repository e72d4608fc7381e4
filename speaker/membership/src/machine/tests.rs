//! The membership: coming, going, start-up; and its laws under random histories.

use proptest::prelude::*;

use super::*;

fn at(milliseconds: u64) -> Time {
    Time::from_start(Duration::from_millis(milliseconds))
}

fn config() -> Config {
    Config {
        me: "n1".into(),
        cluster: 7,
        incarnation: 1,
    }
}

fn names(list: &[&str]) -> BTreeSet<NodeName> {
    list.iter().map(|name| NodeName::from(*name)).collect()
}

fn heartbeat(node: &str, incarnation: u64, sequence: u64) -> Heartbeat {
    Heartbeat {
        node: node.into(),
        cluster: 7,
        incarnation,
        sequence,
        leaving: false,
        macs: BTreeSet::new(),
    }
}

/// One line an output, heartbeats as `to n2 #1`.
fn shown(out: &[Output]) -> Vec<String> {
    out.iter()
        .map(|output| match output {
            Output::Send { to, datagram } => {
                let sent = Heartbeat::decode(datagram).expect("we send well-formed heartbeats");
                format!(
                    "to {to} #{}{}",
                    sent.sequence,
                    if sent.leaving { " leaving" } else { "" }
                )
            }
            Output::MemberUp { node, reason } => format!("{node} up {reason}"),
            Output::MemberDown { node, reason } => format!("{node} down {reason}"),
            Output::Settled => "settled".to_owned(),
            Output::MacsChanged { node } => format!("{node} macs"),
        })
        .collect()
}

struct Rig(Membership);

impl Rig {
    fn new(peers: &[&str]) -> Self {
        let mut rig = Self(Membership::new(config()));
        rig.run(0, Input::Peers(names(peers)));
        rig
    }

    fn run(&mut self, milliseconds: u64, input: Input<'_>) -> Vec<String> {
        let mut out = Vec::new();
        self.0.handle(at(milliseconds), input, &mut out);
        shown(&out)
    }

    /// Without the heartbeats that fall due.
    fn hear(&mut self, milliseconds: u64, heartbeat: &Heartbeat) -> Vec<String> {
        let mut lines = self.run(milliseconds, Input::Datagram(&heartbeat.encode()));
        lines.retain(|line| !line.starts_with("to "));
        lines
    }
}

#[test]
fn heartbeats_go_to_every_peer_each_interval() {
    let mut rig = Rig(Membership::new(config()));
    assert_eq!(
        rig.0.next_deadline(),
        None,
        "nobody to send to, nobody to wait for"
    );
    assert_eq!(
        rig.run(0, Input::Peers(names(&["n1", "n2", "n3"]))),
        ["to n2 #1", "to n3 #1"]
    );
    assert_eq!(rig.0.next_deadline(), Some(at(100)));
    assert_eq!(rig.run(99, Input::Tick), [""; 0]);
    assert_eq!(rig.run(100, Input::Tick), ["to n2 #2", "to n3 #2"]);
    assert_eq!(rig.run(101, Input::Tick), [""; 0]);
    assert_eq!(rig.run(205, Input::Tick), ["to n2 #3", "to n3 #3"]);
    assert_eq!(
        rig.0.next_deadline(),
        Some(at(300)),
        "a late round does not move the beat"
    );
}

#[test]
fn rounds_that_were_slept_through_are_not_made_up_for() {
    let mut rig = Rig::new(&["n2"]);
    assert_eq!(rig.run(10_000, Input::Tick)[2..], ["to n2 #2"]);
    assert_eq!(rig.0.next_deadline(), Some(at(10_100)));
}

#[test]
fn a_peer_is_alive_from_its_first_heartbeat_and_dead_300_ms_after_its_last() {
    let mut rig = Rig::new(&["n2"]);
    assert_eq!(
        rig.hear(10, &heartbeat("n2", 5, 1)),
        ["n2 up FirstHeartbeat"]
    );
    assert_eq!(rig.hear(110, &heartbeat("n2", 5, 2)), [""; 0]);
    assert_eq!(rig.run(300, Input::Tick), ["settled", "to n2 #3"]);
    assert_eq!(rig.run(409, Input::Tick), ["to n2 #4"]);
    assert_eq!(rig.0.next_deadline(), Some(at(410)));
    assert_eq!(rig.run(410, Input::Tick), ["n2 down HeartbeatsMissed"]);
    assert_eq!(rig.0.alive(), names(&["n1"]));
    assert_eq!(
        rig.hear(450, &heartbeat("n2", 5, 5)),
        ["n2 up HeartbeatsResumed"]
    );
    assert_eq!(rig.0.alive(), names(&["n1", "n2"]));
}

#[test]
fn nobody_is_dead_before_the_start_up_window_is_over() {
    let mut rig = Rig(Membership::new(config()));
    assert_eq!(rig.run(5000, Input::Tick), [""; 0]);
    assert!(!rig.0.settled(), "the window starts with the first peers");
    rig.run(5000, Input::Peers(names(&["n2", "n3"])));
    assert_eq!(rig.0.alive(), names(&["n1", "n2", "n3"]));
    assert_eq!(
        rig.hear(5100, &heartbeat("n3", 1, 1)),
        ["n3 up FirstHeartbeat"]
    );
    assert!(!rig.run(5299, Input::Tick).contains(&"settled".to_owned()));
    assert!(!rig.0.settled());
    assert_eq!(
        rig.run(5300, Input::Tick)[..2],
        ["n2 down NeverHeard", "settled"]
    );
    assert!(rig.0.settled());
    assert_eq!(rig.0.alive(), names(&["n1", "n3"]));
}

#[test]
fn a_single_node_settles_too() {
    let mut rig = Rig::new(&[]);
    assert_eq!(rig.run(300, Input::Tick), ["settled"]);
    assert_eq!(rig.0.alive(), names(&["n1"]));
}

#[test]
fn a_node_that_joins_later_counts_when_it_is_heard() {
    let mut rig = Rig::new(&[]);
    rig.run(300, Input::Tick);
    rig.run(1000, Input::Peers(names(&["n2"])));
    assert_eq!(rig.0.alive(), names(&["n1"]));
    assert_eq!(rig.0.standing(&"n2".into()), Some(Standing::Unknown));
    assert_eq!(
        rig.hear(2000, &heartbeat("n2", 1, 1)),
        ["n2 up FirstHeartbeat"]
    );
}

#[test]
fn a_node_whose_object_goes_is_down() {
    let mut rig = Rig::new(&["n2"]);
    rig.hear(10, &heartbeat("n2", 1, 1));
    assert_eq!(
        rig.run(20, Input::Peers(BTreeSet::new())),
        ["n2 down Removed"]
    );
    assert_eq!(rig.hear(30, &heartbeat("n2", 1, 2)), [""; 0]);
    assert_eq!(rig.0.counters().ignored, [(Ignored::Stranger, 1)].into());
}

#[test]
fn old_and_foreign_datagrams_change_nothing() {
    let mut rig = Rig::new(&["n2"]);
    rig.hear(10, &heartbeat("n2", 5, 9));
    for (name, other) in [
        ("repeated", heartbeat("n2", 5, 9)),
        ("overtaken", heartbeat("n2", 5, 8)),
        ("of a former process", heartbeat("n2", 4, 99)),
        (
            "of another cluster",
            Heartbeat {
                cluster: 8,
                ..heartbeat("n2", 5, 10)
            },
        ),
        ("our own", heartbeat("n1", 5, 10)),
        ("a stranger's", heartbeat("n9", 5, 10)),
    ] {
        assert_eq!(rig.hear(50, &other), [""; 0], "{name}");
    }
    assert_eq!(rig.run(310, Input::Tick)[0], "n2 down HeartbeatsMissed");
    let ignored = [
        (Ignored::Stale, 3),
        (Ignored::Cluster, 1),
        (Ignored::Own, 1),
        (Ignored::Stranger, 1),
    ];
    assert_eq!(rig.0.counters().ignored, ignored.into());
}

#[test]
fn a_restarted_peer_is_believed_at_once_or_after_its_death_if_its_clock_went_back() {
    let mut rig = Rig::new(&["n2"]);
    rig.hear(10, &heartbeat("n2", 5, 900));
    assert_eq!(rig.hear(50, &heartbeat("n2", 6, 1)), ["n2 up Restarted"]);
    assert_eq!(
        rig.hear(60, &heartbeat("n2", 2, 1)),
        [""; 0],
        "could be an old process"
    );
    assert_eq!(rig.run(350, Input::Tick)[0], "n2 down HeartbeatsMissed");
    assert_eq!(rig.hear(360, &heartbeat("n2", 6, 1)), [""; 0], "repeated");
    assert_eq!(
        rig.hear(370, &heartbeat("n2", 2, 2)),
        ["n2 up HeartbeatsResumed"]
    );
}

#[test]
fn a_leaving_node_says_so_and_is_silent() {
    let mut rig = Rig::new(&["n2", "n3"]);
    assert_eq!(
        rig.run(50, Input::Leave),
        ["to n2 #2 leaving", "to n3 #2 leaving"]
    );
    assert_eq!(rig.run(60, Input::Leave), [""; 0]);
    assert!(
        rig.run(1000, Input::Tick)
            .iter()
            .all(|line| !line.starts_with("to "))
    );
}

#[test]
fn a_peer_that_left_is_down_at_once() {
    let mut rig = Rig::new(&["n2"]);
    rig.hear(10, &heartbeat("n2", 5, 1));
    let goodbye = Heartbeat {
        leaving: true,
        ..heartbeat("n2", 5, 2)
    };
    assert_eq!(rig.hear(20, &goodbye), ["n2 down Left"]);
    assert_eq!(
        rig.hear(21, &heartbeat("n2", 5, 1)),
        [""; 0],
        "an overtaken one does not bring it back"
    );
    assert_eq!(rig.0.alive(), names(&["n1"]));
}

#[test]
fn hardware_addresses_are_told_and_heard() {
    let mut rig = Rig::new(&["n2"]);
    let (old, new) = ([[2, 0, 0, 0, 0, 1]].into(), [[2, 0, 0, 0, 0, 2]].into());
    rig.hear(
        10,
        &Heartbeat {
            macs: old,
            ..heartbeat("n2", 5, 1)
        },
    );
    let changed = Heartbeat {
        macs: new,
        ..heartbeat("n2", 5, 2)
    };
    assert_eq!(rig.hear(20, &changed), ["n2 macs"]);
    assert_eq!(rig.0.fellow_macs(), [[2, 0, 0, 0, 0, 2]].into());
    rig.run(30, Input::Macs([[2, 0, 0, 0, 0, 9]].into()));
    let mut out = Vec::new();
    rig.0.handle(at(100), Input::Tick, &mut out);
    let Some(Output::Send { datagram, .. }) = out.last() else {
        panic!("{out:?}")
    };
    assert_eq!(
        Heartbeat::decode(datagram).expect("well-formed").macs,
        [[2, 0, 0, 0, 0, 9]].into()
    );
}

/// A step of a random history: wait, then a heartbeat of node `n2`–`n4`, bytes, or a change of the peers.
#[derive(Clone, Debug)]
enum Step {
    Beat {
        node: u8,
        incarnation: u64,
        sequence: u64,
        leaving: bool,
    },
    Bytes(Vec<u8>),
    Peers(u8),
    Tick,
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let beat = (2_u8..5, 1_u64..3, 1_u64..20, prop::bool::weighted(0.1));
    let beat = beat.prop_map(|(node, incarnation, sequence, leaving)| Step::Beat {
        node,
        incarnation,
        sequence,
        leaving,
    });
    let steps = prop_oneof![
        6 => beat,
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(Step::Bytes),
        1 => (0_u8..8).prop_map(Step::Peers),
        4 => Just(Step::Tick),
    ];
    (0_u64..200, steps)
}

fn peers_of(bits: u8) -> BTreeSet<NodeName> {
    (2..5)
        .filter(|n| bits & (1 << (n - 2)) != 0)
        .map(|n| format!("n{n}").into())
        .collect()
}

/// What the accepted heartbeats say, in the simplest form: per peer the last one and its time.
#[derive(Default)]
struct Model {
    peers: BTreeMap<NodeName, Option<(Time, u64, u64, bool)>>,
    settles: Option<Time>,
}

impl Model {
    fn alive(&self, name: &NodeName, now: Time) -> bool {
        let last = self.peers.get(name).copied().flatten();
        last.is_some_and(|(heard, _, _, leaving)| !leaving && now.since(heard) < WINDOW)
    }

    fn beat(&mut self, was_alive: bool, now: Time, heartbeat: &Heartbeat) {
        let Some(last) = self.peers.get_mut(&heartbeat.node) else {
            return;
        };
        let believed = match *last {
            None => true,
            Some((_, incarnation, sequence, _)) => {
                let newer = heartbeat.sequence > sequence && heartbeat.incarnation == incarnation;
                let other = heartbeat.incarnation > incarnation
                    || (!was_alive && heartbeat.incarnation != incarnation);
                newer || other
            }
        };
        if believed {
            *last = Some((
                now,
                heartbeat.incarnation,
                heartbeat.sequence,
                heartbeat.leaving,
            ));
        }
    }

    fn all(&self, now: Time) -> BTreeSet<NodeName> {
        let settled = self.settles.is_some_and(|time| time <= now);
        let counts =
            |name: &NodeName| self.alive(name, now) || (!settled && self.peers[name].is_none());
        self.peers
            .keys()
            .filter(|name| counts(name))
            .cloned()
            .chain(["n1".into()])
            .collect()
    }
}

proptest! {
    #[test]
    fn who_is_alive_is_what_the_heartbeats_say(steps in prop::collection::vec(step(), 1..60)) {
        let (mut membership, mut model, mut now) = (Membership::new(config()), Model::default(), at(0));
        // What the outputs say, to compare with what the state says.
        let mut told = BTreeSet::new();
        for (wait, step) in steps {
            let arrival = now + Duration::from_millis(wait);
            // The shell's contract: every deadline that passes gets its tick, and none is missed.
            while let Some(deadline) = membership.next_deadline().filter(|deadline| *deadline <= arrival) {
                let before = membership.alive();
                let mut out = Vec::new();
                let just_before = Time::from_start(deadline.since_start().saturating_sub(Duration::from_millis(1)));
                prop_assert!(just_before < now || before == model.all(just_before), "changed before the deadline");
                membership.handle(deadline, Input::Tick, &mut out);
                follow(&mut told, &out);
                prop_assert!(membership.next_deadline() > Some(deadline), "a tick must move the deadline");
            }
            now = arrival;
            let mut out = Vec::new();
            match step {
                Step::Beat { node, incarnation, sequence, leaving } => {
                    let heartbeat = Heartbeat { leaving, ..heartbeat(&format!("n{node}"), incarnation, sequence) };
                    let was_alive = model.alive(&heartbeat.node, now);
                    model.beat(was_alive, now, &heartbeat);
                    membership.handle(now, Input::Datagram(&heartbeat.encode()), &mut out);
                }
                Step::Bytes(bytes) => membership.handle(now, Input::Datagram(&bytes), &mut out),
                Step::Peers(bits) => {
                    let peers = peers_of(bits);
                    model.peers.retain(|name, _| peers.contains(name));
                    for name in &peers {
                        model.peers.entry(name.clone()).or_default();
                    }
                    model.settles.get_or_insert(now + WINDOW);
                    membership.handle(now, Input::Peers(peers), &mut out);
                }
                Step::Tick => membership.handle(now, Input::Tick, &mut out),
            }
            follow(&mut told, &out);
            prop_assert_eq!(membership.alive(), model.all(now));
            prop_assert_eq!(membership.settled(), model.settles.is_some_and(|time| time <= now));
            let heard: BTreeSet<_> = model.peers.keys().filter(|name| model.alive(name, now)).cloned().collect();
            prop_assert_eq!(&told, &heard, "what was told differs from what is");
        }
    }
}

fn follow(told: &mut BTreeSet<NodeName>, out: &[Output]) {
    for output in out {
        match output {
            Output::MemberUp { node, .. } => {
                told.insert(node.clone());
            }
            Output::MemberDown { node, .. } => {
                told.remove(node);
            }
            Output::Send { .. } | Output::Settled | Output::MacsChanged { .. } => {}
        }
    }
}
