//! `Community`: names for BGP communities.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names for BGP communities.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "Community",
    plural = "communities",
    namespaced,
    status = "CommunityStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "Community gives names to BGP communities."
)]
#[serde(default)]
pub struct CommunitySpec {
    /// The names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024))]
    pub communities: Vec<CommunityAlias>,
}

/// One name.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct CommunityAlias {
    /// The name that a `BGPAdvertisement` may use.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub name: String,
    /// `N:N` or `large:N:N:N`.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub value: String,
}

/// Has no fields.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct CommunityStatus {}
