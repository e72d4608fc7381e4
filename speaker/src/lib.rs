//! The speaker: per node, it announces addresses over layer 2 or BGP and maps them to endpoints.
//!
//! Owns the sockets, the threads and the tasks that feed four cores (`speaker-membership`, `speaker-l2`, `speaker-bgp`,
//! `speaker-proxier`). Decides nothing itself. `unsafe` stands in `sys.rs` only, where a socket option has no safe wrapper.
//!
//! ```text
//! watches ─► ingest ─┬─► NodeView ─► proxier_io (rules into the kernel) ─► Programmed ─┐
//!                    ├─► View ─► l2_io (announce, answer) ◄──── gate, per VIP ─────────┤
//!                    └─► AdvertisementView ─► bgp_io (UPDATE) ◄──── gate, per VIP ─────┘
//!            membership_io (heartbeats) ─► who is alive ─► View
//! ```
#![deny(unsafe_code)]

pub mod bgp_io;
mod config;
mod conntrack_io;
mod derive;
mod drain;
mod health_io;
pub mod ingest;
pub mod l2_io;
pub mod membership_io;
mod netlink;
pub mod nft_io;
pub mod proxier_io;
mod run;
mod status;
mod sys;
mod watches;

pub use config::Config;
pub use run::{Error, run};
