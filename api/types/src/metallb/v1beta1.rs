//! `BGPPeer` `v1beta1`: deprecated, served from what is stored as `v1beta2` (same JSON, conversion `None`).
//!
//! Our processes read `v1beta2` only. This type exists for its schema, so that old manifests are still taken.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BGPPeerStatus, GoDuration};

/// A router to hold a BGP session with.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "BGPPeer",
    plural = "bgppeers",
    namespaced,
    status = "BGPPeerStatus",
    storage = false,
    deprecated = "v1beta1 is deprecated, please use v1beta2",
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
#[serde(rename_all = "camelCase", default)]
pub struct BGPPeerSpec {
    /// AS number of our end.
    #[serde(rename = "myASN")]
    pub my_asn: u32,
    /// AS number of the router.
    #[serde(rename = "peerASN")]
    pub peer_asn: u32,
    /// Address to dial.
    #[schemars(length(max = 64))]
    pub peer_address: String,
    /// Address to dial from.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub source_address: String,
    /// Port to dial.
    #[schemars(range(min = 0, max = 16384))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_port: Option<u16>,
    /// Hold time to propose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_time: Option<GoDuration>,
    /// Time between KEEPALIVEs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive_time: Option<GoDuration>,
    /// BGP identifier of our end.
    #[serde(rename = "routerID", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub router_id: String,
    /// Nodes that hold this session; none given means every node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub node_selectors: Vec<NodeSelector>,
    /// TCP MD5 password.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 80))]
    pub password: String,
    /// `BFDProfile` for the BFD session beside this one.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub bfd_profile: String,
    /// The router of another AS is more than one hop away.
    #[serde(rename = "ebgpMultiHop", skip_serializing_if = "Option::is_none")]
    pub ebgp_multi_hop: Option<bool>,
}

/// Nodes by label, in the form of this version.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Labels with these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Further demands, all of which must hold.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<MatchExpression>,
}

/// One demand on a label.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct MatchExpression {
    /// Key of the label.
    #[schemars(length(max = 317))]
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[schemars(length(max = 16))]
    pub operator: String,
    /// Values for `In` and `NotIn`.
    #[schemars(length(min = 1, max = 256), inner(length(max = 63)))]
    pub values: Vec<String>,
}
