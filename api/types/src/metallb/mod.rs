//! The kinds of group `metallb.io`, field for field as `MetalLB` 0.16 has them.
//!
//! Owns shape, defaults and the rules that the schema itself can state. Rules between fields and between objects are in
//! [`crate::validate`]. A missing `spec` reads as the empty one, since users write `kind: L2Advertisement` with a name only.

mod advertisement;
mod bfd_profile;
mod bgp_peer;
mod community;
mod ip_address_pool;
mod status_kinds;
pub mod v1beta1;

pub use advertisement::{
    BGPAdvertisement, BGPAdvertisementSpec, BGPAdvertisementStatus, L2Advertisement,
    L2AdvertisementSpec, L2AdvertisementStatus, PreferredNodeSelector,
};
pub use bfd_profile::{BFDProfile, BFDProfileSpec, BFDProfileStatus};
pub use bgp_peer::{BGPPeer, BGPPeerSpec, BGPPeerStatus, DynamicAsn, SecretReference};
pub use community::{Community, CommunityAlias, CommunitySpec, CommunityStatus};
pub use ip_address_pool::{
    IPAddressPool, IPAddressPoolSpec, IPAddressPoolStatus, ServiceAllocation,
};
pub use status_kinds::{
    ConfigurationResult, ConfigurationState, ConfigurationStateSpec, ConfigurationStateStatus,
    InterfaceInfo, ServiceBGPStatus, ServiceBGPStatusSpec, ServiceBGPStatusStatus, ServiceL2Status,
    ServiceL2StatusSpec, ServiceL2StatusStatus,
};

#[cfg(test)]
mod tests;
