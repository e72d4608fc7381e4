//! Gives Services their load balancer addresses: the shell around `allocator-core`.
//!
//! Owns the I/O: what the API server shows becomes facts for the core ([`ingest`]), what the core decides becomes writes
//! (`outbox`) and reports (`report`). Never decides anything itself.
//!
//! ```text
//! allocator::run(client, Config::new("metallb-system", "pod-a"), shutdown) -> Result<(), Error>
//! ```
#![forbid(unsafe_code)]

mod config;
pub mod ingest;
mod outbox;
mod record;
mod report;
mod run;

pub use config::Config;
pub use record::{ReadRecordError, from_object as read_record, to_object as write_record};
pub use run::{Error, run};
