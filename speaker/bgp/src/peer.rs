//! One peer: up to two connections (the one we dial, one that is accepted), of which one becomes the session.
//!
//! Owns timers, back-off, collision (RFC 4271 §6.8) and the flow of routes to the session. Event-driven: [`Peer::handle`]
//! never blocks, and the same inputs give the same outputs. Never opens a socket: the shell carries out the outputs.

mod actions;
mod session;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use api_model::{IpFamily, Time};

use crate::{
    PeerConfig, Reason, Routes,
    adj_rib_out::AdjRibOut,
    capability::{Negotiated, negotiate},
    fsm::{Event, State},
    jitter::Jitter,
    wire::{Frame, MessageKind, Notification, decode, skim},
};
use session::Session;

/// Longest pause between two attempts where the operator gave none (`connectTime`).
pub const MAX_BACK_OFF: Duration = Duration::from_secs(120);
/// How long opening a TCP connection may take, unless `connectTime` is less.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Hold time until the peer's OPEN is there (RFC 4271 §8.2.2 suggests four minutes).
pub const OPEN_HOLD_TIME: Duration = Duration::from_secs(240);
/// A session that was up this long ends the growth of the pauses.
pub const STABLE_AFTER: Duration = Duration::from_secs(60);
/// How long UPDATEs may wait for a peer that does not read (RFC 9687 §3: at least eight minutes).
pub const MIN_SEND_HOLD_TIME: Duration = Duration::from_secs(480);
/// Answers to route refresh wait this long, so that a burst is answered once.
const REFRESH_DELAY: Duration = Duration::from_millis(100);
/// Least time between two answers for one family.
const REFRESH_GAP: Duration = Duration::from_secs(1);
/// How long a due attempt waits again while the other connection is under way.
const ASIDE: Duration = Duration::from_secs(10);

/// Which of the two connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// We opened it.
    Dialled,
    /// The peer opened it.
    Accepted,
}

impl Side {
    /// Both, in order.
    pub const ALL: [Self; 2] = [Self::Dialled, Self::Accepted];

    fn other(self) -> Self {
        match self {
            Self::Dialled => Self::Accepted,
            Self::Accepted => Self::Dialled,
        }
    }
}

/// What a peer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// Begin to connect.
    Start,
    /// End for good; the notification says why.
    Stop(Notification),
    /// TCP is up. At most one accepted connection at a time: the shell refuses further ones.
    Connected {
        /// Which connection.
        side: Side,
        /// Our address on it.
        local: IpAddr,
    },
    /// TCP could not be opened, or ended.
    Failed {
        /// Which connection.
        side: Side,
        /// What the system said.
        detail: String,
    },
    /// Bytes came in, any number in any pieces.
    Bytes {
        /// On which connection.
        side: Side,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// The routes that the peer should hear from now on.
    Routes(Arc<Routes>),
    /// All that was to be sent on this connection has left; the next batch may come.
    Drained(Side),
    /// A deadline has passed.
    Tick,
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Open a connection to the peer; answer with `Connected` or `Failed`.
    Dial,
    /// Send these bytes, then say `Drained` once nothing waits any more.
    Send {
        /// On which connection.
        side: Side,
        /// One message.
        bytes: Vec<u8>,
    },
    /// Send what waits, then close; also ends an attempt to open. Nothing more is expected from this connection.
    Close(Side),
    /// The state of the peer changed.
    Changed(SessionChange),
    /// Something that the operator should know, while the session goes on.
    Notice(Reason, String),
}

/// A change of the peer's state, which is that of its further connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionChange {
    /// The new state.
    pub state: State,
    /// Why, in one word.
    pub reason: Reason,
    /// Why, with codes and the peer's own words; may be empty.
    pub detail: String,
}

/// What was counted since the peer was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// UPDATEs received.
    pub updates_received: u64,
    /// Of these, with a fault that RFC 7606 treats without ending the session.
    pub updates_malformed: u64,
    /// UPDATEs sent.
    pub updates_sent: u64,
}

/// One peer.
#[derive(Clone, Debug)]
pub struct Peer {
    config: PeerConfig,
    /// Time of the input that is being handled.
    now: Time,
    jitter: Jitter,
    dialled: Session,
    accepted: Session,
    started: bool,
    reported: State,
    /// Failed attempts since the last stable session.
    failures: u32,
    /// Our OPEN goes without capabilities, since the peer refused them.
    without_capabilities: bool,
    up: Option<Up>,
    wanted: Arc<Routes>,
    rib: AdjRibOut,
    counters: Counters,
}

/// The session that is Established.
#[derive(Clone, Debug)]
struct Up {
    side: Side,
    since: Time,
    /// A batch of UPDATEs is on its way since then.
    sending_since: Option<Time>,
    /// When a family is sent again.
    refresh_due: BTreeMap<IpFamily, Time>,
    /// When it was last.
    refreshed: BTreeMap<IpFamily, Time>,
}

/// Why an event happens, for NOTIFICATION and report.
#[derive(Debug)]
struct Cause {
    reason: Reason,
    notification: Option<Notification>,
    detail: String,
    refresh: Option<IpFamily>,
}

impl Cause {
    fn new(reason: Reason) -> Self {
        Self {
            reason,
            notification: None,
            detail: String::new(),
            refresh: None,
        }
    }

    /// We tell the peer.
    fn sent(reason: Reason, notification: Notification) -> Self {
        Self {
            detail: format!("sent {notification}"),
            notification: Some(notification),
            ..Self::new(reason)
        }
    }

    /// The peer told us.
    fn received(notification: &Notification) -> Self {
        let (reason, hint) = if notification.is_maximum_prefixes() {
            let hint = ": the peer takes no more than its maximum of prefixes";
            (Reason::MaximumPrefixesReached, hint)
        } else {
            (Reason::NotificationReceived, "")
        };
        Self {
            detail: format!("received {notification}{hint}"),
            ..Self::new(reason)
        }
    }
}

impl Peer {
    /// A peer that isn't started. `seed`: different for each peer and node, so that they don't act in step.
    pub fn new(config: PeerConfig, seed: u64) -> Self {
        Self {
            config,
            now: Time::ZERO,
            jitter: Jitter::new(seed),
            dialled: Session::default(),
            accepted: Session::default(),
            started: false,
            reported: State::Idle,
            failures: 0,
            without_capabilities: false,
            up: None,
            wanted: Arc::default(),
            rib: AdjRibOut::default(),
            counters: Counters::default(),
        }
    }

    /// What it was made with.
    pub fn config(&self) -> &PeerConfig {
        &self.config
    }

    /// State of the further one of its connections.
    pub fn state(&self) -> State {
        self.dialled.state.max(self.accepted.state)
    }

    /// State of one connection.
    pub fn side_state(&self, side: Side) -> State {
        self.session(side).state
    }

    /// What both OPENs agreed on, while Established.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        let up = self.up.as_ref()?;
        self.session(up.side).negotiated.as_ref()
    }

    /// Number of routes that the peer holds from us.
    pub fn routes_sent(&self) -> usize {
        self.rib.len()
    }

    /// What was counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// When the next [`Input::Tick`] is due; `None`: nothing to wait for but the peer.
    pub fn next_deadline(&self) -> Option<Time> {
        let sessions = [&self.dialled, &self.accepted]
            .into_iter()
            .flat_map(Session::deadlines);
        let refresh = self
            .up
            .iter()
            .flat_map(|up| up.refresh_due.values().copied());
        sessions.chain(refresh).chain(self.send_deadline()).min()
    }

    /// Takes an input and appends what must be done. Never blocks; takes time in proportion to the bytes, or to the routes.
    pub fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Output>) {
        self.now = now;
        match input {
            Input::Start => {
                self.started = true;
                self.fire(
                    Side::Dialled,
                    Event::Start,
                    &Cause::new(Reason::Progress),
                    out,
                );
            }
            Input::Stop(notification) => self.stop(notification, out),
            Input::Connected { side, local } => self.connected(side, local, out),
            Input::Failed { side, detail } => self.failed(side, detail, out),
            Input::Bytes { side, bytes } => self.bytes(side, bytes, out),
            Input::Routes(routes) => {
                self.wanted = routes;
                self.flush(out);
            }
            Input::Drained(side) => {
                if let Some(up) = self.up.as_mut().filter(|up| up.side == side) {
                    up.sending_since = None;
                    self.flush(out);
                }
            }
            Input::Tick => self.tick(out),
        }
    }

    fn session(&self, side: Side) -> &Session {
        match side {
            Side::Dialled => &self.dialled,
            Side::Accepted => &self.accepted,
        }
    }

    fn session_mut(&mut self, side: Side) -> &mut Session {
        match side {
            Side::Dialled => &mut self.dialled,
            Side::Accepted => &mut self.accepted,
        }
    }

    fn send_deadline(&self) -> Option<Time> {
        let up = self.up.as_ref()?;
        let hold = self.session(up.side).negotiated.as_ref()?.hold_time;
        Some(up.sending_since? + MIN_SEND_HOLD_TIME.max(hold.saturating_mul(2)))
    }

    fn stop(&mut self, notification: Notification, out: &mut Vec<Output>) {
        self.started = false;
        let cause = Cause::sent(Reason::AdministrativeShutdown, notification);
        for side in Side::ALL {
            self.fire(side, Event::Stop, &cause, out);
            self.session_mut(side).idle_hold = None;
        }
    }

    fn connected(&mut self, side: Side, local: IpAddr, out: &mut Vec<Output>) {
        let session = self.session_mut(side);
        if side == Side::Accepted && session.state == State::Idle {
            session.state = State::Active;
        }
        session.local = Some(local.to_canonical());
        if !self.started {
            self.session_mut(side).state = State::Idle;
        }
        self.fire(
            side,
            Event::TcpConnected,
            &Cause::new(Reason::Progress),
            out,
        );
    }

    fn failed(&mut self, side: Side, detail: String, out: &mut Vec<Output>) {
        let reason = if self.session(side).state < State::OpenSent {
            Reason::ConnectFailed
        } else {
            Reason::ConnectionLost
        };
        let cause = Cause {
            detail,
            ..Cause::new(reason)
        };
        self.fire(side, Event::TcpConnectionFails, &cause, out);
    }

    fn bytes(&mut self, side: Side, mut bytes: &[u8], out: &mut Vec<Output>) {
        while !bytes.is_empty() && self.session(side).state >= State::OpenSent {
            let taken = self.session_mut(side).framer.push(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
            while self.session(side).state >= State::OpenSent {
                match self.session_mut(side).framer.next_frame() {
                    Ok(Some(frame)) => self.frame(side, &frame, out),
                    Ok(None) => break,
                    Err(notification) => {
                        let cause = Cause::sent(Reason::ProtocolError, notification);
                        self.fire(side, Event::BgpHeaderErr, &cause, out);
                    }
                }
            }
        }
    }

    fn frame(&mut self, side: Side, frame: &Frame, out: &mut Vec<Output>) {
        match frame.kind {
            MessageKind::Open => self.open(side, &frame.body, out),
            MessageKind::Update => self.update(side, &frame.body, out),
            MessageKind::Notification => {
                let notification = decode::notification(&frame.body);
                self.without_capabilities |= notification.is_about_parameters();
                let cause = Cause::received(&notification);
                self.fire(side, Event::NotifMsg, &cause, out);
            }
            MessageKind::Keepalive => {
                self.fire(
                    side,
                    Event::KeepAliveMsg,
                    &Cause::new(Reason::Progress),
                    out,
                );
            }
            MessageKind::RouteRefresh => {
                let cause = Cause {
                    refresh: decode::route_refresh(&frame.body)
                        .filter(|refresh| refresh.subtype == 0)
                        .and_then(|refresh| refresh.family),
                    ..Cause::new(Reason::Progress)
                };
                self.fire(side, Event::RouteRefreshMsg, &cause, out);
            }
        }
    }

    fn open(&mut self, side: Side, body: &[u8], out: &mut Vec<Output>) {
        let progress = Cause::new(Reason::Progress);
        if self.session(side).state != State::OpenSent {
            return self.fire(side, Event::BgpOpen, &progress, out);
        }
        let offered = !self.without_capabilities;
        let negotiated =
            decode::open(body).and_then(|open| negotiate(&self.config, offered, &open));
        match negotiated {
            Ok(negotiated) => {
                let loser = self.collision_loser(side, &negotiated);
                self.session_mut(side).negotiated = Some(negotiated);
                if let Some(loser) = loser {
                    let cause = Cause::sent(Reason::CollisionLost, Notification::collision());
                    self.fire(loser, Event::OpenCollisionDump, &cause, out);
                }
                if loser != Some(side) {
                    self.fire(side, Event::BgpOpen, &progress, out);
                }
            }
            Err(notification) => {
                let cause = Cause::sent(Reason::OpenRefused, notification);
                self.fire(side, Event::BgpOpenMsgErr, &cause, out);
            }
        }
    }

    /// Which connection must go, now that `side` has the peer's OPEN (RFC 4271 §6.8): an Established one always stays; else
    /// that stays which was opened by the higher identifier, or with equal ones by the higher AS (RFC 6286 §2.3).
    fn collision_loser(&self, side: Side, negotiated: &Negotiated) -> Option<Side> {
        match self.session(side.other()).state {
            State::Established => Some(side),
            State::OpenConfirm => {
                let ours = (self.config.router_id, self.config.local_asn);
                let theirs = (negotiated.peer_router_id, negotiated.peer_asn);
                Some(if ours > theirs {
                    Side::Accepted
                } else {
                    Side::Dialled
                })
            }
            State::Idle | State::Connect | State::Active | State::OpenSent => None,
        }
    }

    fn update(&mut self, side: Side, body: &[u8], out: &mut Vec<Output>) {
        let session = self.session(side);
        let progress = Cause::new(Reason::Progress);
        let (State::Established, Some(negotiated)) = (session.state, &session.negotiated) else {
            return self.fire(side, Event::UpdateMsg, &progress, out);
        };
        let context = skim::SkimContext {
            four_octet_as: negotiated.four_octet_as,
            internal: negotiated.internal,
        };
        match skim::skim(body, context) {
            Ok(skim) => {
                let faulty = skim.treat_as_withdraw.is_some() || skim.discarded > 0;
                self.counters.updates_malformed += u64::from(faulty);
                self.fire(side, Event::UpdateMsg, &progress, out);
            }
            Err(notification) => {
                let cause = Cause::sent(Reason::ProtocolError, notification);
                self.fire(side, Event::UpdateMsgErr, &cause, out);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
