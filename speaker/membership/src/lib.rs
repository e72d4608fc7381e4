//! Who is alive: full-mesh heartbeats between the speakers of a cluster.
//!
//! Owns the state of each peer ([`machine`]) and the datagram ([`wire`]). Never opens a socket, reads a clock, or knows an
//! address: peers are node names. Never decides who speaks for a VIP.
//!
//! Every speaker sends one datagram per [`machine::INTERVAL`] to every peer. A peer is alive from its first heartbeat on and
//! dead when none has arrived for [`machine::MISSES`] intervals (300 ms). This is a failure detector, not a fence: under a
//! one-way cut or a pause two nodes can have different views. The fenced right to answer (leases from a quorum of voters)
//! replaces what [`machine::Membership::alive`] is used for; the datagram's version is the door for it.
//!
//! # Laws (property tests)
//!
//! 1. Any bytes: no panic, no change of state unless they are a whole, current heartbeat of a known peer.
//! 2. A peer that was heard within 300 ms is alive; one that was not is dead: after every call, [`machine::Membership`]
//!    says what the list of accepted heartbeats says.
//! 3. An old or repeated datagram changes nothing.
//! 4. `next_deadline` is never later than the next change of state.
//! 5. Before the start-up window is over nobody is dead, and this node is not settled.
#![forbid(unsafe_code)]

pub mod machine;
mod reason;
pub mod wire;

pub use machine::{Config, Input, Membership, Output};
pub use reason::{DownReason, Ignored, UpReason};
