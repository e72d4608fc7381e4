//! Why a session is not up, or an advertisement is not applied: one word each.
//!
//! Owns the words; the same word stands in the log, in conditions, events and metric labels. Never decides anything.

use std::fmt;

/// Why something about BGP is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The peer was started, or its session reached the state that is reported.
    Progress,
    /// The TCP connection could not be opened (refused, unreachable, no route).
    ConnectFailed,
    /// The TCP connection was not up in time.
    ConnectTimedOut,
    /// The TCP connection ended without a NOTIFICATION.
    ConnectionLost,
    /// Nothing was heard from the peer for the hold time (RFC 4271 §6.5).
    HoldTimerExpired,
    /// The peer sent something that breaks the protocol; we sent a NOTIFICATION.
    ProtocolError,
    /// The peer's OPEN was refused; we sent a NOTIFICATION (RFC 4271 §6.2).
    OpenRefused,
    /// The peer sent a NOTIFICATION.
    NotificationReceived,
    /// The peer refuses more prefixes (Cease/1, RFC 4486).
    MaximumPrefixesReached,
    /// Two connections at once: this one was given up (RFC 4271 §6.8).
    CollisionLost,
    /// The operator removed the peer, changed it, or the speaker ends.
    AdministrativeShutdown,
    /// A field of the peer is not usable.
    InvalidPeer,
    /// A community is neither a number nor a known alias.
    InvalidCommunity,
    /// More communities than one UPDATE should carry.
    TooManyCommunities,
    /// The aggregation length is outside the family, or wider than the pool.
    InvalidAggregationLength,
    /// Service selectors only go together with host routes.
    SelectorWithAggregation,
    /// Two advertisements give one route different `localPref`.
    LocalPrefConflict,
    /// More routes than a peer is given.
    TooManyRoutes,
    /// There is no address of this family that could be the next hop.
    NoNextHop,
}

impl Reason {
    /// The word, in CamelCase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Progress => "Progress",
            Self::ConnectFailed => "ConnectFailed",
            Self::ConnectTimedOut => "ConnectTimedOut",
            Self::ConnectionLost => "ConnectionLost",
            Self::HoldTimerExpired => "HoldTimerExpired",
            Self::ProtocolError => "ProtocolError",
            Self::OpenRefused => "OpenRefused",
            Self::NotificationReceived => "NotificationReceived",
            Self::MaximumPrefixesReached => "MaximumPrefixesReached",
            Self::CollisionLost => "CollisionLost",
            Self::AdministrativeShutdown => "AdministrativeShutdown",
            Self::InvalidPeer => "InvalidPeer",
            Self::InvalidCommunity => "InvalidCommunity",
            Self::TooManyCommunities => "TooManyCommunities",
            Self::InvalidAggregationLength => "InvalidAggregationLength",
            Self::SelectorWithAggregation => "SelectorWithAggregation",
            Self::LocalPrefConflict => "LocalPrefConflict",
            Self::TooManyRoutes => "TooManyRoutes",
            Self::NoNextHop => "NoNextHop",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
