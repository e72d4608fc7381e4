//! Replays recorded packets of kube-proxy through our proxier: the same network, the same objects, the same questions.
//!
//! Owns the reading of such a folder, the network, the servers and clients in it, and the comparison. Programs the nodes
//! through the speaker's own parts only. Never passes a row of which a field was not executed and compared: what it
//! doesn't know is `UNSUPPORTED`.
#![forbid(unsafe_code)]

pub mod attempt;
pub mod compare;
pub mod differences;
pub mod expectation;
pub mod facts;
pub mod flows;
pub mod health;
pub mod http;
pub mod job;
pub mod network;
pub mod observation;
pub mod probe;
pub mod proxier;
pub mod replay;
pub mod report;
pub mod scenario;
pub mod script;
pub mod server;
pub mod topology;
pub mod world;
