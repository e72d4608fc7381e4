//! What the operator sets.

use std::time::Duration;

use api_client::lease::LeaseConfig;

/// Configuration of the allocator.
#[derive(Clone, Debug)]
pub struct Config {
    /// Namespace of the pools, of our Lease and of our `ConfigurationState`.
    pub namespace: String,
    /// `--lb-class`: serve exactly the Services with this `spec.loadBalancerClass`; none: those without one.
    pub class: Option<String>,
    /// The election among several allocators.
    pub lease: LeaseConfig,
    /// How long a released address stays taken, while speakers withdraw it and its traffic runs out.
    pub drain: Duration,
    /// How long a Service keeps an address that its pool no longer has, in case the pool is only being written anew.
    pub grace: Duration,
}

impl Config {
    /// Defaults. `identity` tells this process from every other one that takes part in the election.
    pub fn new(namespace: &str, identity: &str) -> Self {
        let core = allocator_core::Config::default();
        Self {
            namespace: namespace.to_owned(),
            class: None,
            lease: LeaseConfig::new(namespace, "roadstead-allocator", identity),
            drain: core.drain,
            grace: core.grace,
        }
    }

    /// The part that the core reads.
    pub(crate) fn core(&self) -> allocator_core::Config {
        allocator_core::Config {
            drain: self.drain,
            grace: self.grace,
        }
    }
}
