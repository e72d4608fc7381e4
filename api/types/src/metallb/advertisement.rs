//! `L2Advertisement` and `BGPAdvertisement`: which pools are announced how, from where and to whom.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives a public helper struct inside a function"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Announces the addresses of pools by ARP and NDP.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "L2Advertisement",
    plural = "l2advertisements",
    namespaced,
    status = "L2AdvertisementStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "L2Advertisement announces the addresses of pools by ARP and NDP.",
    printcolumn(
        name = "IPAddressPools",
        type_ = "string",
        json_path = ".spec.ipAddressPools"
    ),
    printcolumn(
        name = "IPAddressPool Selectors",
        type_ = "string",
        json_path = ".spec.ipAddressPoolSelectors"
    ),
    printcolumn(name = "Interfaces", type_ = "string", json_path = ".spec.interfaces"),
    printcolumn(
        name = "Node Selectors",
        type_ = "string",
        json_path = ".spec.nodeSelectors",
        priority = 10
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct L2AdvertisementSpec {
    /// Pools by name; with no name and no selector every pool is meant.
    #[serde(rename = "ipAddressPools", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 253)))]
    pub ip_address_pools: Vec<String>,
    /// Pools by label; one that matches is enough.
    #[serde(
        rename = "ipAddressPoolSelectors",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 64))]
    pub ip_address_pool_selectors: Vec<LabelSelector>,
    /// Nodes that may announce; none given means every node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub node_selectors: Vec<LabelSelector>,
    /// Interfaces to announce on; none given means every one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 15)))]
    pub interfaces: Vec<String>,
    /// Services by label; none given means every one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub service_selectors: Vec<LabelSelector>,
    /// Nodes that should announce rather than others; weights of all that match add up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub preferred_node_selectors: Vec<PreferredNodeSelector>,
}

/// A wish where to announce from.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(default)]
pub struct PreferredNodeSelector {
    /// How much a node that matches gains, 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub weight: i32,
    /// Which nodes.
    pub preference: LabelSelector,
}

/// Has no fields.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct L2AdvertisementStatus {}

/// Announces the addresses of pools by BGP.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "BGPAdvertisement",
    plural = "bgpadvertisements",
    namespaced,
    status = "BGPAdvertisementStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "BGPAdvertisement announces the addresses of pools by BGP.",
    printcolumn(
        name = "IPAddressPools",
        type_ = "string",
        json_path = ".spec.ipAddressPools"
    ),
    printcolumn(
        name = "IPAddressPool Selectors",
        type_ = "string",
        json_path = ".spec.ipAddressPoolSelectors"
    ),
    printcolumn(name = "Peers", type_ = "string", json_path = ".spec.peers"),
    printcolumn(
        name = "Node Selectors",
        type_ = "string",
        json_path = ".spec.nodeSelectors",
        priority = 10
    )
)]
#[x_kube(validation = Rule::new(
    "!has(self.serviceSelectors) || size(self.serviceSelectors) == 0 || \
     ((!has(self.aggregationLength) || self.aggregationLength == 32) && \
     (!has(self.aggregationLengthV6) || self.aggregationLengthV6 == 128))"
).message("serviceSelectors can only be used with aggregationLength 32 and aggregationLengthV6 128"))]
#[serde(rename_all = "camelCase")]
pub struct BGPAdvertisementSpec {
    /// Length of the IPv4 prefix that is announced.
    #[schemars(extend("default" = 32), range(min = 1, max = 32))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation_length: Option<i32>,
    /// Length of the IPv6 prefix that is announced.
    #[schemars(extend("default" = 128), range(min = 1, max = 128))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregation_length_v6: Option<i32>,
    /// `LOCAL_PREF`, sent to peers of the same AS only (RFC 4271 §5.1.5); 0 means not set.
    #[serde(default)]
    pub local_pref: u32,
    /// `N:N`, `large:N:N:N`, or the alias of a `Community`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub communities: Vec<String>,
    /// Pools by name; with no name and no selector every pool is meant.
    #[serde(
        default,
        rename = "ipAddressPools",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 1024), inner(length(max = 253)))]
    pub ip_address_pools: Vec<String>,
    /// Pools by label; one that matches is enough.
    #[serde(
        default,
        rename = "ipAddressPoolSelectors",
        skip_serializing_if = "Vec::is_empty"
    )]
    #[schemars(length(max = 64))]
    pub ip_address_pool_selectors: Vec<LabelSelector>,
    /// Nodes that announce; none given means every node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub node_selectors: Vec<LabelSelector>,
    /// Peers by name; none given means every peer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 253)))]
    pub peers: Vec<String>,
    /// Services by label; none given means every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub service_selectors: Vec<LabelSelector>,
}

impl BGPAdvertisementSpec {
    /// `spec.aggregationLength`, 32 when nothing is said.
    pub fn aggregation_length(&self) -> i32 {
        self.aggregation_length.unwrap_or(32)
    }

    /// `spec.aggregationLengthV6`, 128 when nothing is said.
    pub fn aggregation_length_v6(&self) -> i32 {
        self.aggregation_length_v6.unwrap_or(128)
    }
}

/// Has no fields.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct BGPAdvertisementStatus {}
