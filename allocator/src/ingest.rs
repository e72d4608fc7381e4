//! Objects as the API server shows them become facts for the core. Pure: same object, same fact.
//!
//! Owns the reading of annotations, fields and status. Never refuses an object: what can't be read becomes a refusal or a
//! pool with a mistake, which the core reports.

mod pool;
mod service;

use std::net::IpAddr;

use allocator_core::{Input, Labels};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::{ResourceExt, api::ObjectMeta};

pub use pool::{pool, unreadable_pool};
pub use service::{Read, service};

/// A namespace with its labels.
pub fn namespace(object: &Namespace) -> Input {
    Input::Namespace {
        name: object.name_any(),
        labels: labels(&object.metadata),
    }
}

/// A node with every address that its status names.
pub fn node(object: &Node) -> Input {
    let listed = object
        .status
        .as_ref()
        .and_then(|status| status.addresses.as_ref());
    let addresses = listed
        .into_iter()
        .flatten()
        .filter_map(|listed| listed.address.parse::<IpAddr>().ok());
    Input::Node {
        name: object.name_any().into(),
        addresses: addresses.collect(),
    }
}

fn labels(metadata: &ObjectMeta) -> Labels {
    metadata.labels.clone().unwrap_or_default()
}
