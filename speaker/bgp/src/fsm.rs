//! The state machine of RFC 4271 §8, as a table.
//!
//! Owns which state follows, and what must be done, for every state and every event. A pure function: timers, sockets and
//! messages are names here. Never keeps anything.
//!
//! Not as the RFC has it, on purpose: there is no DelayOpen (optional); each fault leads to Idle with a growing pause
//! (`DampPeerOscillations`, §8.1.1, always on); a NOTIFICATION in OpenSent is not answered with another one.

use std::fmt;

/// State of one connection (RFC 4271 §8.2.2), in the order of its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Nothing is tried: stopped, or pausing before the next attempt.
    #[default]
    Idle,
    /// The TCP connection is being opened.
    Connect,
    /// Waiting for the next attempt, or for the peer to connect.
    Active,
    /// TCP is up, our OPEN is sent.
    OpenSent,
    /// Both OPENs are fine, a KEEPALIVE is awaited.
    OpenConfirm,
    /// Routes can be exchanged.
    Established,
}

impl State {
    /// All states, in order.
    pub const ALL: [Self; 6] = [
        Self::Idle,
        Self::Connect,
        Self::Active,
        Self::OpenSent,
        Self::OpenConfirm,
        Self::Established,
    ];

    /// Name as in the RFC.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "Idle",
            Self::Connect => "Connect",
            Self::Active => "Active",
            Self::OpenSent => "OpenSent",
            Self::OpenConfirm => "OpenConfirm",
            Self::Established => "Established",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What can happen to a connection; names and numbers of RFC 4271 §8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Event 1 and 3.
    Start,
    /// Event 2 and 8.
    Stop,
    /// Event 9.
    ConnectRetryTimerExpires,
    /// Event 10.
    HoldTimerExpires,
    /// Event 11.
    KeepaliveTimerExpires,
    /// Event 13.
    IdleHoldTimerExpires,
    /// Event 16 and 17.
    TcpConnected,
    /// Event 18.
    TcpConnectionFails,
    /// Event 19.
    BgpOpen,
    /// Event 21.
    BgpHeaderErr,
    /// Event 22.
    BgpOpenMsgErr,
    /// Event 23.
    OpenCollisionDump,
    /// Event 24 and 25.
    NotifMsg,
    /// Event 26.
    KeepAliveMsg,
    /// Event 27.
    UpdateMsg,
    /// Event 28.
    UpdateMsgErr,
    /// Event 29 (RFC 9687 §3.2).
    SendHoldTimerExpires,
    /// A ROUTE-REFRESH (RFC 2918), without a number.
    RouteRefreshMsg,
}

impl Event {
    /// All events, in order.
    pub const ALL: [Self; 18] = [
        Self::Start,
        Self::Stop,
        Self::ConnectRetryTimerExpires,
        Self::HoldTimerExpires,
        Self::KeepaliveTimerExpires,
        Self::IdleHoldTimerExpires,
        Self::TcpConnected,
        Self::TcpConnectionFails,
        Self::BgpOpen,
        Self::BgpHeaderErr,
        Self::BgpOpenMsgErr,
        Self::OpenCollisionDump,
        Self::NotifMsg,
        Self::KeepAliveMsg,
        Self::UpdateMsg,
        Self::UpdateMsgErr,
        Self::SendHoldTimerExpires,
        Self::RouteRefreshMsg,
    ];
}

/// What is done on the way to the next state, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Open the TCP connection and start the connect-retry timer.
    Dial,
    /// Start the connect-retry timer.
    StartConnectRetry,
    /// Send OPEN; wait up to four minutes for the peer's.
    SendOpen,
    /// Send KEEPALIVE and start its timer anew.
    SendKeepalive,
    /// Take what was negotiated; start the hold timer with it.
    StartHold,
    /// Start the hold timer anew.
    RestartHold,
    /// The session is up: send all routes.
    Up,
    /// Count an UPDATE of the peer.
    CountUpdate,
    /// Send routes again.
    Refresh,
    /// Send the NOTIFICATION that comes with the event.
    Notify,
    /// Send NOTIFICATION "unexpected message" (RFC 6608) with this subcode.
    NotifyUnexpected(u8),
    /// Close TCP, stop all timers, forget what was negotiated and sent.
    Close,
    /// Start the idle-hold timer with the next longer pause.
    BackOff,
}

/// One cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state afterwards.
    pub next: State,
    /// What is done.
    pub actions: &'static [Action],
}

const fn to(next: State, actions: &'static [Action]) -> Transition {
    Transition { next, actions }
}

/// What an event leads to in a state.
pub fn transition(state: State, event: Event) -> Transition {
    match state {
        State::Idle => idle(event),
        State::Connect | State::Active => opening(state, event),
        State::OpenSent => open_sent(event),
        State::OpenConfirm => open_confirm(event),
        State::Established => established(event),
    }
}

use Action::{
    BackOff, Close, CountUpdate, Dial, Notify, NotifyUnexpected, Refresh, RestartHold,
    SendKeepalive, SendOpen, StartConnectRetry, StartHold, Up,
};

/// A fault that the peer is not told about.
const FAILED: Transition = to(State::Idle, &[Close, BackOff]);
/// A fault that the peer is told about.
const REFUSED: Transition = to(State::Idle, &[Notify, Close, BackOff]);
/// An end that we want; no further attempt follows.
const ENDED: Transition = to(State::Idle, &[Notify, Close]);

fn idle(event: Event) -> Transition {
    match event {
        Event::Start | Event::IdleHoldTimerExpires => to(State::Connect, &[Dial]),
        Event::TcpConnected => to(State::Idle, &[Close]),
        Event::Stop
        | Event::ConnectRetryTimerExpires
        | Event::HoldTimerExpires
        | Event::KeepaliveTimerExpires
        | Event::TcpConnectionFails
        | Event::BgpOpen
        | Event::BgpHeaderErr
        | Event::BgpOpenMsgErr
        | Event::OpenCollisionDump
        | Event::NotifMsg
        | Event::KeepAliveMsg
        | Event::UpdateMsg
        | Event::UpdateMsgErr
        | Event::SendHoldTimerExpires
        | Event::RouteRefreshMsg => to(State::Idle, &[]),
    }
}

/// Connect and Active: no message can have been sent or read yet.
fn opening(state: State, event: Event) -> Transition {
    match event {
        Event::Start | Event::IdleHoldTimerExpires => to(state, &[]),
        Event::Stop | Event::OpenCollisionDump => to(State::Idle, &[Close]),
        Event::ConnectRetryTimerExpires => to(State::Connect, &[Close, Dial]),
        Event::TcpConnected => to(State::OpenSent, &[SendOpen]),
        Event::HoldTimerExpires
        | Event::KeepaliveTimerExpires
        | Event::TcpConnectionFails
        | Event::BgpOpen
        | Event::BgpHeaderErr
        | Event::BgpOpenMsgErr
        | Event::NotifMsg
        | Event::KeepAliveMsg
        | Event::UpdateMsg
        | Event::UpdateMsgErr
        | Event::SendHoldTimerExpires
        | Event::RouteRefreshMsg => FAILED,
    }
}

fn open_sent(event: Event) -> Transition {
    match event {
        Event::Start | Event::TcpConnected => to(State::OpenSent, &[]),
        Event::Stop | Event::OpenCollisionDump => ENDED,
        Event::TcpConnectionFails => to(State::Active, &[Close, StartConnectRetry]),
        Event::BgpOpen => to(State::OpenConfirm, &[SendKeepalive, StartHold]),
        Event::NotifMsg => FAILED,
        Event::HoldTimerExpires
        | Event::BgpHeaderErr
        | Event::BgpOpenMsgErr
        | Event::SendHoldTimerExpires => REFUSED,
        Event::ConnectRetryTimerExpires
        | Event::KeepaliveTimerExpires
        | Event::IdleHoldTimerExpires
        | Event::KeepAliveMsg
        | Event::UpdateMsg
        | Event::UpdateMsgErr
        | Event::RouteRefreshMsg => to(State::Idle, &[NotifyUnexpected(1), Close, BackOff]),
    }
}

fn open_confirm(event: Event) -> Transition {
    match event {
        Event::Start | Event::TcpConnected => to(State::OpenConfirm, &[]),
        Event::Stop | Event::OpenCollisionDump => ENDED,
        Event::KeepaliveTimerExpires => to(State::OpenConfirm, &[SendKeepalive]),
        Event::KeepAliveMsg => to(State::Established, &[RestartHold, Up]),
        Event::TcpConnectionFails | Event::NotifMsg => FAILED,
        Event::HoldTimerExpires
        | Event::BgpHeaderErr
        | Event::BgpOpenMsgErr
        | Event::SendHoldTimerExpires => REFUSED,
        Event::ConnectRetryTimerExpires
        | Event::IdleHoldTimerExpires
        | Event::BgpOpen
        | Event::UpdateMsg
        | Event::UpdateMsgErr
        | Event::RouteRefreshMsg => to(State::Idle, &[NotifyUnexpected(2), Close, BackOff]),
    }
}

fn established(event: Event) -> Transition {
    match event {
        Event::Start | Event::TcpConnected => to(State::Established, &[]),
        Event::Stop | Event::OpenCollisionDump => ENDED,
        Event::KeepaliveTimerExpires => to(State::Established, &[SendKeepalive]),
        Event::KeepAliveMsg => to(State::Established, &[RestartHold]),
        Event::UpdateMsg => to(State::Established, &[RestartHold, CountUpdate]),
        Event::RouteRefreshMsg => to(State::Established, &[Refresh]),
        Event::TcpConnectionFails | Event::NotifMsg => FAILED,
        Event::HoldTimerExpires
        | Event::BgpHeaderErr
        | Event::UpdateMsgErr
        | Event::SendHoldTimerExpires => REFUSED,
        Event::ConnectRetryTimerExpires
        | Event::IdleHoldTimerExpires
        | Event::BgpOpen
        | Event::BgpOpenMsgErr => to(State::Idle, &[NotifyUnexpected(3), Close, BackOff]),
    }
}

#[cfg(test)]
mod tests;
