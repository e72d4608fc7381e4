//! A cluster on one machine: network namespaces for nodes, pods, a router and clients; and what runs in them.
//!
//! Owns the machine's side of the demo and of the end-to-end tests: it plays the hardware, the kubelet and the router.
//! Never decides what Roadstead decides, and never touches the machine's own network.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod control_plane;
pub mod demo;
pub mod error;
pub mod kubelet;
pub mod look;
pub mod netns;
pub mod objects;
pub mod outcome;
pub mod pod;
pub mod probe;
pub mod processes;
pub mod router;
pub mod sandbox;
pub mod topology;
pub mod trial;

pub use error::{Error, Result};
