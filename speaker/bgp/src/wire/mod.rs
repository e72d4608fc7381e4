//! The wire format of BGP-4.
//!
//! Owns every byte that goes to a peer or comes from one. `frame` cuts a stream into messages, `decode` reads them, `skim`
//! judges received UPDATEs by length (RFC 7606), `encode` writes ours. Never decides what a session does with a message.
//! The crate zettabgp is used for what it does right: it writes UPDATEs, and reads only what `skim::gate` let through.

pub mod decode;
pub mod encode;
mod frame;
mod notification;
mod reader;
pub mod skim;

pub use frame::{Frame, Framer, MessageKind};
pub use notification::Notification;

/// Octets of a message header: marker, length, type (RFC 4271 §4.1).
pub const HEADER_OCTETS: usize = 19;
/// Longest message, header included (RFC 4271 §4.1); extended messages (RFC 8654) are not offered.
pub const MAX_MESSAGE_OCTETS: usize = 4096;
/// Stands in two-octet fields for an AS number that needs four (RFC 6793).
pub const AS_TRANS: u16 = 23456;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
pub(crate) mod oracle;
#[cfg(test)]
pub(crate) mod tests;
