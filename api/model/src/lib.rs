//! The words that every room shares: keys, names, numbers and time.
//!
//! Owns the newtypes that keep two arguments of one shape apart. Never knows Kubernetes types, sockets or clocks.
#![forbid(unsafe_code)]

mod key;
mod net;
mod range;
mod time;

pub use key::{NodeName, PoolName, ServiceKey};
pub use net::{Asn, IpFamily, ParseWordError, Port, Protocol};
pub use range::{AddressRange, ParseRangeError, RangeError};
pub use time::Time;
