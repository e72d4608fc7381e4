//! `IPAddressPool`: ranges of addresses, and which Services may have them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A pool of addresses for Services of type `LoadBalancer`.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "IPAddressPool",
    plural = "ipaddresspools",
    namespaced,
    status = "IPAddressPoolStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "IPAddressPool holds ranges of addresses for Services of type LoadBalancer.",
    printcolumn(
        name = "Auto Assign",
        type_ = "boolean",
        json_path = ".spec.autoAssign"
    ),
    printcolumn(
        name = "Avoid Buggy IPs",
        type_ = "boolean",
        json_path = ".spec.avoidBuggyIPs"
    ),
    printcolumn(name = "Addresses", type_ = "string", json_path = ".spec.addresses")
)]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressPoolSpec {
    /// Ranges, each a CIDR prefix or `start-end`; families may be mixed.
    #[schemars(length(min = 1, max = 1024), inner(length(max = 128)))]
    pub addresses: Vec<String>,
    /// Whether Services that ask for no pool may get an address of this one.
    #[schemars(extend("default" = true))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_assign: Option<bool>,
    /// Leave out IPv4 addresses that end in 0 or 255.
    #[serde(rename = "avoidBuggyIPs")]
    pub avoid_buggy_ips: bool,
    /// Which namespaces and Services the pool is for, and its rank among pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_allocation: Option<ServiceAllocation>,
}

impl IPAddressPoolSpec {
    /// `spec.autoAssign`, true when nothing is said.
    pub fn auto_assign(&self) -> bool {
        self.auto_assign.unwrap_or(true)
    }
}

/// For whom a pool is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceAllocation {
    /// Rank among the pools that fit: the lowest wins, 0 comes last.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Namespaces by name.
    #[schemars(length(max = 1024), inner(length(max = 63)))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Namespaces by label; one that matches is enough.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub namespace_selectors: Vec<LabelSelector>,
    /// Services by label; one that matches is enough.
    #[schemars(length(max = 64))]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub service_selectors: Vec<LabelSelector>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde's skip_serializing_if calls"
)]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// How full the pool is; written by the allocator.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct IPAddressPoolStatus {
    /// IPv4 addresses in use.
    #[serde(rename = "assignedIPv4")]
    pub assigned_ipv4: i64,
    /// IPv6 addresses in use.
    #[serde(rename = "assignedIPv6")]
    pub assigned_ipv6: i64,
    /// IPv4 addresses still free.
    #[serde(rename = "availableIPv4")]
    pub available_ipv4: i64,
    /// IPv6 addresses still free; the largest 64-bit number stands for more.
    #[serde(rename = "availableIPv6")]
    pub available_ipv6: i64,
}
