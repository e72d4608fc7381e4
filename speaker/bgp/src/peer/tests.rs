use std::collections::BTreeSet;

use api_model::{Asn, Port};
use proptest::prelude::*;

use super::*;
use crate::{
    NodeAddresses, RemoteAsn, Route, Timers,
    wire::{encode, oracle::Table, tests::hex},
};

/// OPEN of AS 64513, hold time 90 s, identifier 192.0.2.1; IPv4 unicast, four-octet AS, route refresh.
pub(crate) const THEIR_OPEN: &str =
    "ffffffffffffffffffffffffffffffff002d0104fc01005ac000020110020e01040001000141040000fc010200";

pub(crate) fn config() -> PeerConfig {
    PeerConfig {
        name: "tor".into(),
        local_asn: Asn(64512),
        remote_asn: RemoteAsn::Exactly(Asn(64513)),
        address: "192.0.2.1".parse().unwrap(),
        port: Port::new(179).unwrap(),
        source_address: None,
        router_id: "192.0.2.11".parse().unwrap(),
        timers: Timers::default(),
        connect_time: None,
        ebgp_multi_hop: false,
        families: BTreeSet::from([IpFamily::V4]),
        node_addresses: NodeAddresses::default(),
        password: None,
    }
}

pub(crate) fn routes(prefixes: &[&str]) -> Arc<Routes> {
    let routes = prefixes
        .iter()
        .map(|prefix| (prefix.parse().unwrap(), Route::default()));
    Arc::new(routes.collect())
}

/// A peer with a clock, and what it asked for.
struct Bench {
    peer: Peer,
    now: Time,
    out: Vec<Output>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            peer: Peer::new(config(), 7),
            now: Time::ZERO,
            out: Vec::new(),
        };
        bench.input(Input::Start);
        bench
    }

    fn established() -> Self {
        let mut bench = Self::new();
        bench.connect(Side::Dialled);
        bench.receive(Side::Dialled, THEIR_OPEN);
        bench.keepalive(Side::Dialled);
        assert_eq!(bench.peer.state(), State::Established);
        bench
    }

    fn input(&mut self, input: Input<'_>) {
        self.peer.handle(self.now, input, &mut self.out);
    }

    fn connect(&mut self, side: Side) {
        let local = IpAddr::from([192, 0, 2, 11]);
        self.input(Input::Connected { side, local });
    }

    fn receive(&mut self, side: Side, text: &str) {
        let bytes = hex(text);
        self.input(Input::Bytes {
            side,
            bytes: &bytes,
        });
    }

    fn keepalive(&mut self, side: Side) {
        let bytes = encode::keepalive();
        self.input(Input::Bytes {
            side,
            bytes: &bytes,
        });
    }

    fn fail(&mut self, side: Side) {
        let detail = "refused".to_owned();
        self.input(Input::Failed { side, detail });
    }

    /// Lets time pass up to the next deadline.
    fn sleep(&mut self) -> Duration {
        let deadline = self
            .peer
            .next_deadline()
            .expect("there is something to wait for");
        let slept = deadline.since(self.now);
        self.now = self.now.max(deadline);
        self.input(Input::Tick);
        slept
    }

    fn take(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// What was asked for, in short words.
    fn words(&mut self) -> Vec<String> {
        self.take().iter().map(word).collect()
    }
}

fn word(output: &Output) -> String {
    match output {
        Output::Dial => "dial".into(),
        Output::Send { side, bytes } => {
            let kind = match bytes.get(18) {
                Some(1) => "OPEN".to_owned(),
                Some(2) => "UPDATE".to_owned(),
                Some(3) => decode::notification(&bytes[19..]).to_string(),
                Some(4) => "KEEPALIVE".to_owned(),
                other => format!("{other:?}"),
            };
            format!("{side:?} {kind}")
        }
        Output::Close(side) => format!("close {side:?}"),
        Output::Changed(change) => format!("{} {}", change.state, change.reason),
        Output::Notice(reason, _) => reason.to_string(),
    }
}

#[test]
fn a_session_comes_up_and_hears_its_routes() {
    let mut bench = Bench::new();
    bench.input(Input::Routes(routes(&["203.0.113.1/32"])));
    bench.connect(Side::Dialled);
    bench.receive(Side::Dialled, THEIR_OPEN);
    bench.keepalive(Side::Dialled);
    assert_eq!(
        bench.words(),
        [
            "dial",
            "Connect Progress",
            "Dialled OPEN",
            "OpenSent Progress",
            "Dialled KEEPALIVE",
            "OpenConfirm Progress",
            "Dialled UPDATE",
            "Established Progress",
        ]
    );
    assert_eq!(bench.peer.routes_sent(), 1);
}

#[test]
fn bytes_may_come_one_by_one_or_all_at_once() {
    for piece in [1, 7, 4096] {
        let mut bench = Bench::new();
        bench.connect(Side::Dialled);
        let mut bytes = hex(THEIR_OPEN);
        bytes.extend(encode::keepalive());
        bytes.extend(encode::end_of_rib(IpFamily::V4));
        for bytes in bytes.chunks(piece) {
            let side = Side::Dialled;
            bench.input(Input::Bytes { side, bytes });
        }
        assert_eq!(bench.peer.state(), State::Established);
        assert_eq!(bench.peer.counters().updates_received, 1);
    }
}

#[test]
fn a_silent_peer_is_given_up_after_the_hold_time_exactly() {
    let mut bench = Bench::established();
    let start = bench.now;
    bench.take();
    while bench.peer.state() == State::Established {
        bench.sleep();
    }
    assert_eq!(bench.now.since(start), Duration::from_secs(90));
    let words = bench.words();
    let keepalives = words
        .iter()
        .filter(|word| word.ends_with("KEEPALIVE"))
        .count();
    assert!(
        (2..=4).contains(&keepalives),
        "{keepalives} KEEPALIVEs in 90 s"
    );
    assert_eq!(
        words[keepalives..],
        [
            "Dialled 4/0 Hold Timer Expired",
            "close Dialled",
            "Idle HoldTimerExpired"
        ]
    );
}

#[test]
fn pauses_double_up_to_two_minutes_and_a_stable_session_ends_them() {
    let mut bench = Bench::new();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        bench.fail(Side::Dialled);
        pauses.push(bench.sleep().as_secs_f64());
        assert_eq!(bench.peer.state(), State::Connect);
    }
    for (pause, full) in pauses
        .iter()
        .zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 120.0, 120.0])
    {
        assert!((full * 0.75..=full).contains(pause), "{pauses:?}");
    }
    bench.connect(Side::Dialled);
    bench.receive(Side::Dialled, THEIR_OPEN);
    bench.keepalive(Side::Dialled);
    bench.now = bench.now + STABLE_AFTER;
    bench.fail(Side::Dialled);
    assert!(bench.sleep() <= Duration::from_secs(1));
}

#[test]
fn a_dial_that_gets_no_answer_is_ended_and_repeated() {
    let mut bench = Bench::new();
    bench.take();
    assert_eq!(bench.sleep(), CONNECT_TIMEOUT);
    assert_eq!(
        bench.words(),
        ["close Dialled", "dial", "Connect ConnectTimedOut"]
    );
}

#[test]
fn stop_says_why_and_nothing_follows() {
    let mut bench = Bench::established();
    bench.take();
    bench.input(Input::Stop(Notification::administrative_shutdown(
        "node drained",
    )));
    assert_eq!(
        bench.words(),
        [
            "Dialled 6/2 Administrative Shutdown: \"node drained\"",
            "close Dialled",
            "Idle AdministrativeShutdown",
        ]
    );
    assert_eq!(bench.peer.next_deadline(), None);
    assert_eq!(bench.peer.routes_sent(), 0);
}

#[test]
fn a_peer_that_refuses_capabilities_is_asked_without() {
    let mut bench = Bench::new();
    bench.connect(Side::Dialled);
    bench.receive(Side::Dialled, "ffffffffffffffffffffffffffffffff0015030204");
    bench.sleep();
    bench.take();
    bench.connect(Side::Dialled);
    let Some(Output::Send { bytes, .. }) = bench.take().into_iter().next() else {
        panic!("no OPEN");
    };
    assert_eq!(bytes.len(), 29);
    bench.receive(Side::Dialled, THEIR_OPEN);
    bench.keepalive(Side::Dialled);
    assert!(!bench.peer.negotiated().unwrap().four_octet_as);
}

#[test]
fn updates_wait_for_the_batch_that_is_on_its_way() {
    let mut bench = Bench::established();
    bench.take();
    bench.input(Input::Routes(routes(&["203.0.113.1/32"])));
    bench.input(Input::Routes(routes(&["203.0.113.2/32"])));
    bench.input(Input::Routes(routes(&["203.0.113.3/32"])));
    assert_eq!(bench.words(), ["Dialled UPDATE"]);
    bench.input(Input::Drained(Side::Dialled));
    assert_eq!(bench.words(), ["Dialled UPDATE", "Dialled UPDATE"]);
}

#[test]
fn a_peer_that_never_reads_is_given_up_after_the_send_hold_time() {
    let mut bench = Bench::established();
    bench.input(Input::Routes(routes(&["203.0.113.1/32"])));
    let start = bench.now;
    while bench.peer.state() == State::Established {
        bench.keepalive(Side::Dialled);
        bench.sleep();
    }
    assert_eq!(bench.now.since(start), MIN_SEND_HOLD_TIME);
    assert!(
        bench
            .words()
            .contains(&"Dialled 8/0 Send Hold Timer Expired".to_owned())
    );
}

#[test]
fn while_an_accepted_session_is_up_the_peer_is_not_dialled() {
    let mut bench = Bench::new();
    bench.fail(Side::Dialled);
    bench.connect(Side::Accepted);
    bench.receive(Side::Accepted, THEIR_OPEN);
    bench.keepalive(Side::Accepted);
    bench.take();
    for _ in 0..20 {
        bench.keepalive(Side::Accepted);
        bench.sleep();
    }
    assert!(!bench.take().contains(&Output::Dial));
    bench.fail(Side::Accepted);
    bench.sleep();
    assert!(bench.take().contains(&Output::Dial));
}

#[test]
fn a_connection_nobody_asked_for_is_closed() {
    let mut peer = Peer::new(config(), 1);
    let mut out = Vec::new();
    for side in Side::ALL {
        let local = IpAddr::from([192, 0, 2, 11]);
        peer.handle(Time::ZERO, Input::Connected { side, local }, &mut out);
    }
    assert_eq!(
        out,
        [Output::Close(Side::Dialled), Output::Close(Side::Accepted)]
    );
}

/// Something that may happen to a peer, at any time.
#[derive(Clone, Debug)]
enum Step {
    Connect(Side),
    Fail(Side),
    Bytes(Side, usize),
    Drained(Side),
    Routes(u8),
    Sleep,
    Stop,
    Start,
}

fn any_step() -> impl Strategy<Value = Step> {
    let side = prop_oneof![Just(Side::Dialled), Just(Side::Accepted)];
    prop_oneof![
        3 => side.clone().prop_map(Step::Connect),
        1 => side.clone().prop_map(Step::Fail),
        8 => (side.clone(), 0..9_usize).prop_map(|(side, n)| Step::Bytes(side, n)),
        3 => side.prop_map(Step::Drained),
        2 => any::<u8>().prop_map(Step::Routes),
        3 => Just(Step::Sleep),
        1 => Just(Step::Stop),
        1 => Just(Step::Start),
    ]
}

/// Messages that a step may bring; the first ones are the usual ones.
fn message(number: usize) -> Vec<u8> {
    let high = THEIR_OPEN.replace("c0000201", "c00002fe");
    match number {
        0 | 1 => hex(THEIR_OPEN),
        2 => hex(&high),
        3..=5 => encode::keepalive(),
        6 => encode::end_of_rib(IpFamily::V4),
        7 => encode::route_refresh(IpFamily::V4),
        _ => hex("ffffffffffffffffffffffffffffffff0015030606"),
    }
}

fn some_routes(bits: u8) -> Arc<Routes> {
    let prefixes: Vec<String> = (0..8)
        .filter(|bit| bits & (1 << bit) != 0)
        .map(|bit| format!("203.0.113.{bit}/32"))
        .collect();
    routes(&prefixes.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A bench that plays the shell by its rules: connects only what was dialled, closes what should be closed.
struct Shell {
    bench: Bench,
    dialling: bool,
    open: [bool; 2],
    undrained: [bool; 2],
    tables: [Table; 2],
    wanted: Arc<Routes>,
    started: bool,
    /// The last state that was reported.
    told: State,
}

impl Shell {
    fn new() -> Self {
        let mut shell = Self {
            bench: Bench::new(),
            dialling: false,
            open: [false; 2],
            undrained: [false; 2],
            tables: Default::default(),
            wanted: Arc::default(),
            started: true,
            told: State::Idle,
        };
        shell.carry_out();
        shell
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Connect(Side::Dialled) if !self.dialling => {}
            Step::Connect(side) => {
                if side == Side::Dialled {
                    self.dialling = false;
                }
                if !self.open[index(side)] {
                    self.open[index(side)] = true;
                    self.bench.connect(side);
                }
            }
            Step::Fail(side) => {
                if side == Side::Dialled && self.dialling || self.open[index(side)] {
                    self.dialling &= side != Side::Dialled;
                    self.open[index(side)] = false;
                    self.bench.fail(side);
                }
            }
            Step::Bytes(side, number) if self.open[index(side)] => {
                let bytes = message(number);
                self.bench.input(Input::Bytes {
                    side,
                    bytes: &bytes,
                });
            }
            Step::Drained(side) if self.undrained[index(side)] => {
                self.undrained[index(side)] = false;
                self.bench.input(Input::Drained(side));
            }
            Step::Routes(bits) => {
                self.wanted = some_routes(bits);
                self.bench.input(Input::Routes(self.wanted.clone()));
            }
            Step::Sleep if self.bench.peer.next_deadline().is_some() => drop(self.bench.sleep()),
            Step::Stop => {
                self.started = false;
                self.bench
                    .input(Input::Stop(Notification::configuration_change()));
            }
            Step::Start => {
                self.started = true;
                self.bench.input(Input::Start);
            }
            Step::Bytes(..) | Step::Drained(_) | Step::Sleep => {}
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        for output in self.bench.take() {
            match output {
                Output::Dial => self.dialling = true,
                Output::Send { side, bytes } => {
                    assert!(self.open[index(side)], "sent on a closed connection");
                    self.undrained[index(side)] = true;
                    if bytes[18] == 1 {
                        self.tables[index(side)] = Table::default();
                    }
                    self.tables[index(side)].apply(&bytes, true);
                }
                Output::Close(side) => {
                    self.open[index(side)] = false;
                    self.undrained[index(side)] = false;
                    self.dialling &= side != Side::Dialled;
                }
                Output::Changed(change) => self.told = change.state,
                Output::Notice(..) => {}
            }
        }
    }
}

fn index(side: Side) -> usize {
    usize::from(side == Side::Accepted)
}

proptest! {
    /// Whatever happens: one Established connection at most, deadlines in bounds, no peer that waits for nothing, and what
    /// the session was told is what is wanted as soon as nothing waits.
    #[test]
    fn laws_of_a_peer_hold_over_any_run(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut shell = Shell::new();
        for step in &steps {
            shell.step(step);
            let peer = &shell.bench.peer;
            let states = Side::ALL.map(|side| peer.side_state(side));
            prop_assert_eq!(shell.told, peer.state(), "reported, after {:?}", step);
            prop_assert!(states != [State::Established; 2], "two sessions after {step:?}");
            let deadline = peer.next_deadline();
            let wait = deadline.map(|deadline| deadline.since(shell.bench.now));
            prop_assert!(wait <= Some(MIN_SEND_HOLD_TIME), "{wait:?}");
            if shell.started {
                prop_assert!(peer.state() >= State::Connect || deadline.is_some(), "stuck after {step:?}");
            }
            if matches!(step, Step::Sleep) {
                prop_assert!(deadline > Some(shell.bench.now) || deadline.is_none(), "a due timer is left");
            }
        }
        for side in Side::ALL {
            for _ in 0..4 {
                shell.step(&Step::Drained(side));
            }
        }
        for side in Side::ALL {
            if shell.bench.peer.side_state(side) == State::Established {
                let told: Vec<_> = shell.tables[index(side)].routes.keys().collect();
                let wanted: Vec<_> = shell.wanted.keys().collect();
                prop_assert_eq!(told, wanted);
            }
        }
    }
}
