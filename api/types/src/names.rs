//! Words with a fixed spelling: groups, annotations, labels, condition types, event reasons.
//!
//! Owns the constants that two rooms or a user's dashboard must spell alike. Never holds logic.
//! Source: `MetalLB` 0.16 (annotations, labels, events), KEP-1623 (conditions).

/// API group of the kinds taken over from `MetalLB`.
pub const METALLB_GROUP: &str = "metallb.io";
/// API group of our own kinds.
pub const ROADSTEAD_GROUP: &str = "roadstead.io";
/// Name under which our processes write fields and report events.
pub const FIELD_MANAGER: &str = "roadstead";
/// Namespace in which the configuration lives unless the operator says otherwise.
pub const DEFAULT_CONFIG_NAMESPACE: &str = "metallb-system";

/// Annotations on Services. The deprecated prefix is still read; the new one wins.
pub mod annotation {
    /// Take an address from this pool only.
    pub const ADDRESS_POOL: &str = "metallb.io/address-pool";
    /// One or two addresses, separated by a comma.
    pub const LOAD_BALANCER_IPS: &str = "metallb.io/loadBalancerIPs";
    /// Sharing key: Services with the same key may hold one address together.
    pub const ALLOW_SHARED_IP: &str = "metallb.io/allow-shared-ip";
    /// Written by the allocator: the pool that the address came from.
    pub const ALLOCATED_FROM_POOL: &str = "metallb.io/ip-allocated-from-pool";
    /// [`ADDRESS_POOL`] under the deprecated prefix.
    pub const DEPRECATED_ADDRESS_POOL: &str = "metallb.universe.tf/address-pool";
    /// [`LOAD_BALANCER_IPS`] under the deprecated prefix.
    pub const DEPRECATED_LOAD_BALANCER_IPS: &str = "metallb.universe.tf/loadBalancerIPs";
    /// [`ALLOW_SHARED_IP`] under the deprecated prefix.
    pub const DEPRECATED_ALLOW_SHARED_IP: &str = "metallb.universe.tf/allow-shared-ip";

    use std::collections::BTreeMap;

    /// A value that a user may write under two spellings.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Annotated<'a> {
        /// The text as the user wrote it.
        pub value: &'a str,
        /// Whether it stood under the deprecated prefix (event `deprecatedAnnotation`).
        pub deprecated: bool,
    }

    /// Reads an annotation, the new spelling first.
    pub fn read<'a>(
        annotations: &'a BTreeMap<String, String>,
        current: &str,
        deprecated: &str,
    ) -> Option<Annotated<'a>> {
        let at = |key: &str, deprecated| {
            annotations
                .get(key)
                .map(|value| Annotated { value, deprecated })
        };
        at(current, false).or_else(|| at(deprecated, true))
    }
}

/// Labels that we read or write.
pub mod label {
    /// On a Node, any value: announces nothing.
    pub const NODE_EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
    /// On status objects: the node that announces.
    pub const NODE: &str = "metallb.io/node";
    /// On status objects: name of the Service.
    pub const SERVICE_NAME: &str = "metallb.io/service-name";
    /// On status objects: namespace of the Service.
    pub const SERVICE_NAMESPACE: &str = "metallb.io/service-namespace";
    /// On `ConfigurationState`: `controller` or `speaker`.
    pub const COMPONENT_TYPE: &str = "metallb.io/component-type";
    /// On a speaker's `ConfigurationState`: its node.
    pub const NODE_NAME: &str = "metallb.io/node-name";
    /// On an `EndpointSlice`: the Service it belongs to.
    pub const SLICE_SERVICE: &str = "kubernetes.io/service-name";
    /// On an `EndpointSlice`: who writes it.
    pub const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
    /// On `Endpoints` and `EndpointSlice` of a Service without a cluster address.
    pub const HEADLESS: &str = "service.kubernetes.io/headless";
    /// On a Node: its zone.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// On a Node: its name as the kubelet reports it.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
}

/// Condition types.
pub mod condition {
    /// On a Service: has its `LoadBalancer` addresses, or the reason why not.
    pub const ALLOCATED: &str = "roadstead.io/Allocated";
    /// On `ConfigurationState`: pools are good.
    pub const POOLS_VALID: &str = "poolReconcilerValid";
    /// On `ConfigurationState`: everything that the component reads is good.
    pub const CONFIG_VALID: &str = "configReconcilerValid";
    /// On `ConfigurationState`: no object uses a field whose behaviour is not built yet.
    pub const FIELDS_SUPPORTED: &str = "roadstead.io/AllFieldsSupported";

    /// Reasons of the conditions on `ConfigurationState`.
    pub mod reason {
        /// The configuration is in force.
        pub const RECONCILED: &str = "Reconciled";
        /// Something in the configuration is wrong.
        pub const CONFIGURATION_ERROR: &str = "ConfigurationError";
        /// The component failed for another cause.
        pub const UNKNOWN_ERROR: &str = "UnknownError";
        /// A field was accepted whose behaviour is not built yet.
        pub const FIELD_NOT_SUPPORTED: &str = "FieldNotSupported";
    }
}

/// Reasons of events on Services and on configuration objects.
pub mod event {
    /// Normal: an address was allocated.
    pub const IP_ALLOCATED: &str = "IPAllocated";
    /// Normal: an address was taken away.
    pub const CLEAR_ASSIGNMENT: &str = "ClearAssignment";
    /// Normal: the second family could not be allocated.
    pub const ADDITIONAL_ASSIGN_FAILED: &str = "AdditionalAssignFailed";
    /// Warning: no address; the message says why.
    pub const ALLOCATION_FAILED: &str = "AllocationFailed";
    /// Warning: the load balancer could not be set up.
    pub const LOAD_BALANCER_FAILED: &str = "LoadBalancerFailed";
    /// Warning: the requested addresses and the families disagree.
    pub const NO_LB_IPS_IP_FAMILY: &str = "nolbIPsIPFamily";
    /// Warning: the families of the cluster addresses cannot be told.
    pub const NO_CLUSTER_IPS_IP_FAMILY: &str = "noclusterIPsIPFamily";
    /// Warning: `RequireDualStack` with fewer than two cluster addresses.
    pub const NOT_ENOUGH_CLUSTER_IPS: &str = "not enough clusterips";
    /// Warning: our fault.
    pub const INTERNAL_ERROR: &str = "InternalError";
    /// Warning: an annotation under the old prefix was read.
    pub const DEPRECATED_ANNOTATION: &str = "deprecatedAnnotation";
    /// Normal: the node in quotes announces the Service with the protocol named.
    pub const NODE_ASSIGNED: &str = "nodeAssigned";
    /// Warning: an interface in the advertisement is missing.
    pub const ANNOUNCE_FAILED: &str = "announceFailed";
    /// Warning on a configuration object: a field was accepted whose behaviour is not built yet.
    pub const FIELD_NOT_SUPPORTED: &str = "FieldNotSupported";
    /// Warning on a configuration object: it breaks a rule and is not used.
    pub const INVALID_CONFIGURATION: &str = "InvalidConfiguration";
}
