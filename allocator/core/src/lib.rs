//! Which address and port a Service gets.
//!
//! Owns the bookkeeping of `ClusterIP`s, node ports and load balancer addresses. Never talks to anybody: it is told
//! facts and answers with actions and reasons.
//!
//! Laws, tested against random histories with lagging watches and crashes between any two writes (`tests/laws.rs`) and
//! against a `BTreeSet` (`bitmap`, `intervals`):
//!
//! - no address is shown by two Services unless they may share it, at any moment
//! - the bits of a pool are exactly the addresses in the ledger; taking and freeing leaves everything as before
//! - crash and replay give the same ledger, and no write to any Service; the order of inputs before `Synced` does not matter
//! - no address outside the pools is held, nor one of a node
//! - nobody waits while a pool for him has room
//! - a holder never moves unasked
#![forbid(unsafe_code)]

mod band;
mod bitmap;
mod claim;
mod cluster_ip;
mod dual_stack;
mod intervals;
mod ledger;
mod machine;
mod node_port;
mod pool;
mod range;
mod reason;
mod selection;
mod sharing;
mod slots;

pub use band::Band;
pub use bitmap::Bitmap;
pub use claim::{
    FamilyPolicy, IdleService, Labels, PortUse, Record, RecordHolder, ServiceClaim, Shown,
    ShownCondition, Stored, Uid, Wanted,
};
pub use cluster_ip::{ClusterIpAllocator, ClusterIpRangeError};
pub use intervals::Intervals;
pub use machine::{
    Allocator, Config, IngressChange, Input, Output, PoolReport, RecordAnswer, StatusWrite, Subject,
};
pub use node_port::NodePortAllocator;
pub use pool::{Pool, PoolCounters, PoolProblem};
pub use range::{AllocateError, RangeAllocator};
pub use reason::{EventReason, Reason, Refusal};
pub use selection::{Demand, Operator, Selector};
pub use slots::Slots;
