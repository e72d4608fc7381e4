//! BGP speaker core: one session per peer, and the routes that each peer should hear.
//!
//! Owns the wire format, the state machine of RFC 4271 §8, the choice of routes and the Adj-RIB-Out. Never opens a socket,
//! reads a clock or draws a random number: the shell (`speaker/src/bgp_io.rs`) feeds it bytes and time, and carries out its
//! outputs. Routes that peers send are counted and forgotten; nothing is imported.
//!
//! Laws (property tests in the rooms named):
//! * any bytes: no panic, no endless loop, bounded memory (`wire`, `peer`);
//! * at most one connection of a peer is Established (`peer`);
//! * applying all sent UPDATEs to an empty table gives the wanted routes (`adj_rib_out`, `peer`);
//! * deadlines lie within the bounds of RFC 4271 §10 (`peer`);
//! * all states × all events are written down as one table (`fsm`).
//!
//! Not here, on purpose: DelayOpen (RFC 4271 §8.1.1, optional), graceful restart (RFC 4724), extended messages (RFC 8654).
#![forbid(unsafe_code)]

mod adj_rib_out;
mod advertisement;
pub mod capability;
mod community;
mod config;
pub mod fsm;
mod jitter;
pub mod peer;
mod reason;
pub mod wire;

pub use adj_rib_out::{AdjRibOut, MAX_BATCH_PREFIXES};
pub use advertisement::{
    Advertisement, AdvertisementName, AdvertisementView, AnnouncedAddress, MAX_ROUTES_PER_PEER,
    PoolSpan, Refusal, Route, Routes, Wanted, wanted,
};
pub use community::{
    Communities, Community, CommunityError, LargeCommunity, MAX_COMMUNITIES, MAX_LARGE_COMMUNITIES,
    resolve_communities,
};
pub use config::{
    NodeAddresses, Password, PeerConfig, PeerConfigError, PeerName, RemoteAsn, Timers, router_id,
};
pub use fsm::State;
pub use peer::{Counters, Input, Output, Peer, SessionChange, Side};
pub use reason::Reason;
pub use wire::Notification;
