//! How our processes use an API server: watch kinds ([`informer`]), hold a lease ([`lease`]), report events ([`events`]) and
//! write what they decided ([`write`](mod@write)).
//!
//! Owns the manners of a client: lists and watches that survive every cut, back-off, fencing, bounded queues. Never decides
//! anything about addresses or packets. Source: Kubernetes API concepts (watch, 410, bookmarks), `coordination.k8s.io/v1`.
#![forbid(unsafe_code)]

mod backoff;
mod connect;
pub mod events;
mod informer;
pub mod lease;
pub mod write;

pub use backoff::{Backoff, random};
pub use connect::{ConnectError, connect};
pub use informer::{Change, Invalid, PACE, informer, informer_of};
