//! From API objects to what the cores want to be told. Pure.
//!
//! Owns the reading of Services, slices, nodes and `metallb.io` objects: selectors are resolved here, so that no core knows
//! a label. A broken object is left out and reported as a [`Finding`]; it never stops the others.

mod bgp;
mod check;
mod facts;
mod l2;
mod node_view;

pub use bgp::{BgpIngest, bgp_view, internal_addresses};
pub use facts::{Change, Configuration, Fact, Facts, place_of, service_key};
pub use l2::{Announceable, ingress_addresses, l2_view, vips};
pub use node_view::{Networks, NodeViews, pod_networks, this_node};

use k8s_openapi::api::core::v1::Service;

/// Something wrong with an object, to be shown in `ConfigurationState` and as an event on the object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Kind of the object.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// What is wrong, where, and what to do.
    pub message: String,
    /// The object is left out; otherwise a field of it has no effect.
    pub fatal: bool,
}

impl Finding {
    /// The object is left out.
    pub fn fatal(kind: &'static str, name: &str, message: String) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            message,
            fatal: true,
        }
    }

    /// A part of the object has no effect.
    pub fn partial(kind: &'static str, name: &str, message: String) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            message,
            fatal: false,
        }
    }
}

/// Whether this Service's load balancer addresses are ours: type LoadBalancer and the class that we serve. Without
/// `--lb-class` only Services without a class (KEP-1959).
pub fn is_ours(service: &Service, lb_class: Option<&str>) -> bool {
    let Some(spec) = &service.spec else {
        return false;
    };
    spec.type_.as_deref() == Some("LoadBalancer") && spec.load_balancer_class.as_deref() == lb_class
}
