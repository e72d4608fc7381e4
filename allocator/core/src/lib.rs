//! Which address and port a Service gets.
//!
//! Owns the bookkeeping of `ClusterIP`s, node ports and load balancer addresses. Never talks to anybody: it is told
//! facts and answers with actions and reasons.
#![forbid(unsafe_code)]

mod band;
mod bitmap;
mod cluster_ip;
mod intervals;
mod node_port;
mod range;
mod slots;

pub use band::Band;
pub use bitmap::Bitmap;
pub use cluster_ip::{ClusterIpAllocator, ClusterIpRangeError};
pub use intervals::Intervals;
pub use node_port::NodePortAllocator;
pub use range::{AllocateError, RangeAllocator};
pub use slots::Slots;
