//! Acceptance cases of BGP, driven against the core: a peer with a clock of its own, bytes in and bytes out.
//!
//! What needs a socket or an API server is left out here and said so at each test; sessions over real sockets are in
//! `speaker/src/bgp_io` and against gobgpd in `tests/conformance`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod routes;
mod session;
mod wire;
