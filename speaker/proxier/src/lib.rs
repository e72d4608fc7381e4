//! Service proxy of one node: from a snapshot of Services and endpoints to elements of a fixed nftables ruleset.
//!
//! Owns which packet goes where (`rules`), how that is written as elements (`nft`), what changes between two snapshots
//! (`planner`, `diff`), which UDP flows must be forgotten (`conntrack`) and what the health ports answer
//! (`health_check`). Never opens a socket, starts a program or reads a clock. Source: KEP-3866, KEP-1669, KEP-2433,
//! KEP-4444, KEP-1860, `deploy/docs` for the ruleset itself.
//!
//! # Laws
//! * `apply(diff(a, b))` on `a` gives `b`; `diff(b, b)` is empty.
//! * The operations of an update are bounded by the Services that changed, not by the table.
//! * Looking a packet up in the compiled table gives what looking it up in the snapshot gives.
//! * Ids and slots stay when nothing changed, also across a restart (`Planner::adopt`).
//! * A Service that cannot be programmed is left out with a [`Reason`]; all others are as if it were not there.
//!
//! # Limits
//! | what | limit | when full |
//! |---|---|---|
//! | Service ports (each family and protocol counts) | 1,048,575 | left out, `IdsExhausted` |
//! | endpoints of a Service port in use | 1,023; with affinity 128 | the first ones in address order, `TooManyEndpoints` |
//! | remembered endpoint ids of a Service port | 2,048, reused in turn | the oldest id is used again |
//! | distinct (slot count, affinity timeout, scope) | 1,024 | spread without affinity, `AffinityClassesExhausted` |
//! | remembered clients (per family) | 262,144 | new clients are served without memory |
//!
//! Every endpoint has weight 1: one slot in each set it belongs to.
#![forbid(unsafe_code)]

pub mod conntrack;
pub mod diff;
pub mod endpoints;
pub mod health_check;
pub mod nft;
pub mod node_view;
pub mod planner;
mod reason;
pub mod rules;
mod slots;

pub use planner::{Change, Planner};
pub use reason::{Reason, Refusal};
