//! What a bare API server lacks: controllers.
//!
//! Owns `EndpointSlice`s ([`slices`]), Endpoints ([`endpoints`]), owner-reference garbage collection ([`garbage`]). A real
//! cluster has its own; this crate runs beside our embedded server, which ends namespaces and custom kinds itself. Each part is a pure planner and a
//! shell that watches, asks the planner and writes. Never runs pods: whoever plays the node removes a pod that is being
//! deleted with grace.
//!
//! ```text
//! controllers::run(client, shutdown).await     // until `shutdown` says so or its sender is dropped
//! ```
#![forbid(unsafe_code)]

mod endpoint_shell;
pub mod endpoints;
mod facts;
pub mod garbage;
mod kinds;
pub mod slices;

#[cfg(test)]
mod testing;

use kube::Client;
use tokio::sync::watch;

pub use facts::Nodes;

/// Runs all controllers until `shutdown` holds `true` or its sender is dropped.
pub async fn run(client: Client, mut shutdown: watch::Receiver<bool>) {
    tokio::select! {
        _ = shutdown.wait_for(|stop| *stop) => {}
        () = endpoint_shell::run(client.clone()) => {}
        () = garbage::run(client) => {}
    }
}
