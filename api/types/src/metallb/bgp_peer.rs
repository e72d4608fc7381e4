//! `BGPPeer` `v1beta2`, the stored version: a router to hold a session with.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives a public helper struct inside a function"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::GoDuration;

/// A router to hold a BGP session with.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta2",
    kind = "BGPPeer",
    plural = "bgppeers",
    namespaced,
    status = "BGPPeerStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "BGPPeer is a router to hold a BGP session with.",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.peerAddress"),
    printcolumn(name = "ASN", type_ = "string", json_path = ".spec.peerASN"),
    printcolumn(name = "BFD Profile", type_ = "string", json_path = ".spec.bfdProfile"),
    printcolumn(
        name = "Multi Hops",
        type_ = "string",
        json_path = ".spec.ebgpMultiHop"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct BGPPeerSpec {
    /// AS number of our end.
    #[serde(default, rename = "myASN")]
    pub my_asn: u32,
    /// AS number of the router; this or `dynamicASN`.
    #[serde(default, rename = "peerASN", skip_serializing_if = "is_zero")]
    pub peer_asn: u32,
    /// Take the router's AS number from its OPEN; this or `peerASN`.
    #[serde(
        default,
        rename = "dynamicASN",
        skip_serializing_if = "Option::is_none"
    )]
    pub dynamic_asn: Option<DynamicAsn>,
    /// AS number shown to this router instead of `myASN`.
    #[serde(default, rename = "localASN", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub local_asn: Option<u32>,
    /// Address to dial; this or `interface`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub peer_address: String,
    /// Interface for a session between link-local addresses; this or `peerAddress`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 15))]
    pub interface: String,
    /// Address to dial from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub source_address: String,
    /// Port to dial.
    #[schemars(extend("default" = 179), range(min = 1, max = 16384))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_port: Option<u16>,
    /// Hold time to propose (RFC 4271 §4.2): 0, or at least 3 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_time: Option<GoDuration>,
    /// Time between KEEPALIVEs; a third of the hold time when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keepalive_time: Option<GoDuration>,
    /// Time between attempts to connect, whole seconds, 1 to 65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(
        validation = Rule::new("duration(self).getSeconds() >= 1 && duration(self).getSeconds() <= 65535")
            .message("connect time should be between 1 seconds to 65535"),
        validation = Rule::new("duration(self).getMilliseconds() % 1000 == 0")
            .message("connect time should contain a whole number of seconds")
    )]
    pub connect_time: Option<GoDuration>,
    /// BGP identifier of our end, written as an IPv4 address.
    #[serde(default, rename = "routerID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub router_id: String,
    /// Nodes that hold this session; none given means every node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub node_selectors: Vec<LabelSelector>,
    /// TCP MD5 password (RFC 2385), at most the 80 octets that the kernel takes; this or `passwordSecret`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 80))]
    pub password: String,
    /// Secret of type `kubernetes.io/basic-auth` whose key `password` holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_secret: Option<SecretReference>,
    /// `BFDProfile` for the BFD session beside this one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub bfd_profile: String,
    /// Ask the router to keep our routes while we restart (RFC 4724). Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("EnableGracefulRestart cannot be changed after creation"))]
    pub enable_graceful_restart: Option<bool>,
    /// The router of another AS is more than one hop away.
    #[serde(
        default,
        rename = "ebgpMultiHop",
        skip_serializing_if = "Option::is_none"
    )]
    pub ebgp_multi_hop: Option<bool>,
    /// VRF whose interfaces the session uses.
    #[serde(default, rename = "vrf", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 15))]
    pub vrf: String,
    /// Deprecated; has no effect.
    #[serde(default, rename = "disableMP")]
    pub disable_mp: bool,
    /// Carry both families over this session.
    #[serde(default)]
    pub dual_stack_address_family: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde's skip_serializing_if calls"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl BGPPeerSpec {
    /// `spec.peerPort`, 179 when nothing is said.
    pub fn peer_port(&self) -> u16 {
        self.peer_port.unwrap_or(179)
    }

    /// Whether a password is taken from a Secret.
    pub fn secret_name(&self) -> Option<&str> {
        self.password_secret
            .as_ref()
            .and_then(|secret| secret.name.as_deref())
            .filter(|name| !name.is_empty())
    }
}

/// Which AS numbers are taken from the router's OPEN.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum DynamicAsn {
    /// Only our own.
    Internal,
    /// Any but our own.
    External,
}

/// Names a Secret.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct SecretReference {
    /// Name of the Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// Namespace of the Secret; must be the peer's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// Has no fields.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct BGPPeerStatus {}
