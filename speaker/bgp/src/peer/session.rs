//! One connection: its state, its timers, its half-read message.
//!
//! Owns nothing that outlives the connection. Never decides (`fsm`) and never acts (`actions`).

use std::net::IpAddr;

use api_model::Time;

use crate::{capability::Negotiated, fsm::State, wire::Framer};

#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) state: State,
    pub(super) framer: Framer,
    /// Our address on the connection.
    pub(super) local: Option<IpAddr>,
    /// What both OPENs agreed on.
    pub(super) negotiated: Option<Negotiated>,
    pub(super) connect_retry: Option<Time>,
    pub(super) hold: Option<Time>,
    pub(super) keepalive: Option<Time>,
    /// When the pause after a failure ends.
    pub(super) idle_hold: Option<Time>,
}

impl Session {
    /// All running timers.
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Time> {
        [
            self.connect_retry,
            self.hold,
            self.keepalive,
            self.idle_hold,
        ]
        .into_iter()
        .flatten()
    }

    /// Everything but the state is as at the beginning.
    pub(super) fn reset(&mut self) {
        *self = Self {
            state: self.state,
            ..Self::default()
        };
    }
}
