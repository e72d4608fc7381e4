//! Carrying out the state machine's actions, and what timers bring about.
//!
//! Owns the way from a table cell to outputs. Never decides which cell.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use api_model::{IpFamily, Time};

use super::{
    ASIDE, CONNECT_TIMEOUT, Cause, MAX_BACK_OFF, OPEN_HOLD_TIME, Output, Peer, REFRESH_DELAY,
    REFRESH_GAP, STABLE_AFTER, SessionChange, Side, Up,
};
use crate::{
    Reason,
    adj_rib_out::has_next_hop,
    fsm::{Action, Event, State, transition},
    wire::{
        Notification,
        encode::{self, OpenFields, UpdateContext},
    },
};

impl Peer {
    /// Looks an event up in the table, carries out its actions and reports a change of the peer's state.
    pub(super) fn fire(&mut self, side: Side, event: Event, cause: &Cause, out: &mut Vec<Output>) {
        let cell = transition(self.session(side).state, event);
        self.session_mut(side).state = cell.next;
        let mut unexpected = None;
        for &action in cell.actions {
            if let Action::NotifyUnexpected(subcode) = action {
                unexpected = Some(Notification::unexpected_message(subcode));
            }
            self.act(side, action, cause, out);
        }
        if side == Side::Accepted && matches!(cell.next, State::Active | State::Connect) {
            // an accepted connection has nothing to wait for: the peer must open a new one
            self.accepted.reset();
            self.accepted.state = State::Idle;
            self.back_off(cause);
        }
        match unexpected {
            Some(notification) => {
                self.report(&Cause::sent(Reason::ProtocolError, notification), out);
            }
            None => self.report(cause, out),
        }
    }

    fn report(&mut self, cause: &Cause, out: &mut Vec<Output>) {
        let state = self.state();
        // an attempt that got no answer leaves the state as it is, but the operator should hear of it
        if state != self.reported || cause.reason == Reason::ConnectTimedOut {
            self.reported = state;
            out.push(Output::Changed(SessionChange {
                state,
                reason: cause.reason,
                detail: cause.detail.clone(),
            }));
        }
    }

    fn act(&mut self, side: Side, action: Action, cause: &Cause, out: &mut Vec<Output>) {
        match action {
            Action::Dial => {
                let timeout = self.config.connect_time.unwrap_or(CONNECT_TIMEOUT);
                let timeout = timeout.min(CONNECT_TIMEOUT).max(self.pause());
                self.session_mut(side).reset();
                self.session_mut(side).connect_retry = Some(self.now + timeout);
                out.push(Output::Dial);
            }
            Action::StartConnectRetry => {
                self.failures = self.failures.saturating_add(1);
                let pause = self.pause();
                self.session_mut(side).connect_retry = Some(self.now + self.jitter.spread(pause));
            }
            Action::SendOpen => {
                let deadline = self.now + OPEN_HOLD_TIME;
                let session = self.session_mut(side);
                session.connect_retry = None;
                session.hold = Some(deadline);
                out.push(send(side, encode::open(&self.open_fields())));
            }
            Action::SendKeepalive => self.send_keepalive(side, out),
            Action::StartHold | Action::RestartHold => {
                let now = self.now;
                let session = self.session_mut(side);
                let hold = session
                    .negotiated
                    .as_ref()
                    .map_or(Duration::ZERO, |n| n.hold_time);
                session.hold = (!hold.is_zero()).then(|| now + hold);
            }
            Action::Up => self.begin(side, out),
            Action::CountUpdate => self.counters.updates_received += 1,
            Action::Refresh => self.schedule_refresh(cause.refresh),
            Action::Notify => {
                if let Some(notification) = &cause.notification {
                    out.push(send(side, encode::notification(notification)));
                }
            }
            Action::NotifyUnexpected(subcode) => {
                let notification = Notification::unexpected_message(subcode);
                out.push(send(side, encode::notification(&notification)));
            }
            Action::Close => self.close(side, out),
            Action::BackOff => self.back_off(cause),
        }
    }

    fn open_fields(&self) -> OpenFields {
        let seconds = self.config.timers.hold_time.as_secs();
        OpenFields {
            asn: self.config.local_asn,
            hold_time: u16::try_from(seconds).unwrap_or(u16::MAX),
            router_id: self.config.router_id,
            families: self.config.families.clone(),
            with_capabilities: !self.without_capabilities,
        }
    }

    /// The next KEEPALIVE comes after 75 % to 100 % of the interval, but never sooner than a second (RFC 4271 §4.4).
    fn send_keepalive(&mut self, side: Side, out: &mut Vec<Output>) {
        let interval = self
            .session(side)
            .negotiated
            .as_ref()
            .map(|n| n.keepalive_time);
        let interval = interval
            .filter(|interval| !interval.is_zero())
            .map(|interval| {
                let spread = self.jitter.spread(interval);
                spread.max(Duration::from_secs(1))
            });
        self.session_mut(side).keepalive = interval.map(|interval| self.now + interval);
        out.push(send(side, encode::keepalive()));
    }

    /// The session is up: nothing was sent on it yet.
    fn begin(&mut self, side: Side, out: &mut Vec<Output>) {
        self.rib.clear();
        self.up = Some(Up {
            side,
            since: self.now,
            sending_since: None,
            refresh_due: BTreeMap::new(),
            refreshed: BTreeMap::new(),
        });
        let context = self.update_context(side);
        let families = self
            .session(side)
            .negotiated
            .as_ref()
            .map(|n| n.families.clone());
        for family in families.unwrap_or_default() {
            if !has_next_hop(&context, family) {
                let detail =
                    format!("{family} routes are not sent: this node has no {family} next hop");
                out.push(Output::Notice(Reason::NoNextHop, detail));
            }
        }
        self.flush(out);
    }

    fn close(&mut self, side: Side, out: &mut Vec<Output>) {
        // the pause before the next attempt belongs to the peer, not to this connection
        let idle_hold = self.session(side).idle_hold;
        self.session_mut(side).reset();
        self.session_mut(side).idle_hold = idle_hold;
        if let Some(up) = self.up.take_if(|up| up.side == side) {
            if self.now.since(up.since) >= STABLE_AFTER {
                self.failures = 0;
            }
            self.rib.clear();
        }
        out.push(Output::Close(side));
    }

    /// Pauses before the next attempt; a peer that wants no more prefixes gets the longest pause.
    fn back_off(&mut self, cause: &Cause) {
        self.failures = self.failures.saturating_add(1);
        let pause = if cause.reason == Reason::MaximumPrefixesReached {
            self.longest_pause()
        } else {
            self.pause()
        };
        if self.started && self.dialled.state == State::Idle {
            self.dialled.idle_hold = Some(self.now + self.jitter.spread(pause));
        }
    }

    fn longest_pause(&self) -> Duration {
        self.config.connect_time.unwrap_or(MAX_BACK_OFF)
    }

    /// 1, 2, 4 … seconds after the first, second, third … failure.
    fn pause(&self) -> Duration {
        let doublings = self.failures.saturating_sub(1).min(16);
        let pause = if self.failures == 0 {
            0
        } else {
            1_u64 << doublings
        };
        Duration::from_secs(pause).min(self.longest_pause())
    }

    fn schedule_refresh(&mut self, family: Option<IpFamily>) {
        let Some(family) = family else { return };
        let Some(up) = self.up.as_mut() else { return };
        let earliest = up
            .refreshed
            .get(&family)
            .map_or(self.now, |&last| last + REFRESH_GAP);
        up.refresh_due
            .entry(family)
            .or_insert_with(|| earliest.max(self.now + REFRESH_DELAY));
    }

    /// What timers bring about.
    pub(super) fn tick(&mut self, out: &mut Vec<Output>) {
        let now = self.now;
        let due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        for side in Side::ALL {
            if due(self.session(side).hold) {
                let cause =
                    Cause::sent(Reason::HoldTimerExpired, Notification::hold_timer_expired());
                self.fire(side, Event::HoldTimerExpires, &cause, out);
            }
            if due(self.session(side).keepalive) {
                self.fire(
                    side,
                    Event::KeepaliveTimerExpires,
                    &Cause::new(Reason::Progress),
                    out,
                );
            }
        }
        if due(self.send_deadline())
            && let Some(side) = self.up.as_ref().map(|up| up.side)
        {
            let cause = Cause::sent(
                Reason::ConnectionLost,
                Notification::send_hold_timer_expired(),
            );
            self.fire(side, Event::SendHoldTimerExpires, &cause, out);
        }
        self.tick_dialling(out);
        self.tick_refresh(out);
    }

    fn tick_dialling(&mut self, out: &mut Vec<Output>) {
        let now = self.now;
        let due = |deadline: Option<Time>| deadline.is_some_and(|deadline| deadline <= now);
        let (retry, idle) = (due(self.dialled.connect_retry), due(self.dialled.idle_hold));
        if !retry && !idle {
            return;
        }
        let aside = (self.accepted.state >= State::OpenSent).then(|| self.now + ASIDE);
        if idle {
            self.dialled.idle_hold = aside;
        }
        if retry {
            self.dialled.connect_retry = aside;
        }
        if aside.is_some() {
            return;
        }
        if retry {
            self.failures = self.failures.saturating_add(1);
            let cause = Cause::new(Reason::ConnectTimedOut);
            self.fire(Side::Dialled, Event::ConnectRetryTimerExpires, &cause, out);
        } else {
            let cause = Cause::new(Reason::Progress);
            self.fire(Side::Dialled, Event::IdleHoldTimerExpires, &cause, out);
        }
    }

    fn tick_refresh(&mut self, out: &mut Vec<Output>) {
        let Some(up) = self.up.as_mut() else { return };
        let due: Vec<IpFamily> = up
            .refresh_due
            .iter()
            .filter(|&(_, &deadline)| deadline <= self.now)
            .map(|(&family, _)| family)
            .collect();
        for family in &due {
            up.refresh_due.remove(family);
            up.refreshed.insert(*family, self.now);
            self.rib.repeat(*family);
        }
        if !due.is_empty() {
            self.flush(out);
        }
    }

    /// Sends the next batch of UPDATEs, unless the last one is still on its way.
    pub(super) fn flush(&mut self, out: &mut Vec<Output>) {
        let Some(up) = &self.up else { return };
        let side = up.side;
        let Some(negotiated) = &self.session(side).negotiated else {
            return;
        };
        if up.sending_since.is_some() {
            return;
        }
        let families = negotiated.families.clone();
        let messages = self
            .rib
            .next_batch(&self.wanted, &families, &self.update_context(side));
        if messages.is_empty() {
            return;
        }
        let sent = u64::try_from(messages.len()).unwrap_or(u64::MAX);
        self.counters.updates_sent = self.counters.updates_sent.saturating_add(sent);
        out.extend(messages.into_iter().map(|bytes| send(side, bytes)));
        if let Some(up) = &mut self.up {
            up.sending_since = Some(self.now);
        }
    }

    /// Next hop self: our address on the connection, for the other family an address of the node.
    fn update_context(&self, side: Side) -> UpdateContext {
        let session = self.session(side);
        let negotiated = session.negotiated.as_ref();
        let node = self.config.node_addresses;
        let (v4, v6) = match session.local {
            Some(IpAddr::V4(local)) => (Some(local), None),
            Some(IpAddr::V6(local)) if local.is_unicast_link_local() => (None, None),
            Some(IpAddr::V6(local)) => (None, Some(local)),
            None => (None, None),
        };
        UpdateContext {
            local_asn: self.config.local_asn,
            internal: negotiated.is_some_and(|n| n.internal),
            four_octet_as: negotiated.is_some_and(|n| n.four_octet_as),
            next_hop_v4: v4.or(node.v4),
            next_hop_v6: v6.or(node.v6),
        }
    }
}

fn send(side: Side, bytes: Vec<u8>) -> Output {
    Output::Send { side, bytes }
}
