//! The ruleset: its fixed text, its elements, changes to them, and a table in memory that behaves like the kernel's.
//!
//! Owns every nftables name and byte layout. Never decides where a packet goes (`rules` does).

pub mod bytes;
pub mod compile;
pub mod element;
pub mod fake;
pub mod text;
pub mod transaction;

pub use element::{ChainKind, Key, Map, Table, Value};
pub use transaction::{NewChain, Operation, Transaction};
