//! `BFDProfile`: timers of a BFD session (RFC 5880). The schema states no defaults; the engine has them.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Timers and modes of a BFD session.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "BFDProfile",
    plural = "bfdprofiles",
    namespaced,
    status = "BFDProfileStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "BFDProfile holds timers and modes of a BFD session.",
    printcolumn(
        name = "Passive Mode",
        type_ = "boolean",
        json_path = ".spec.passiveMode"
    ),
    printcolumn(
        name = "Transmit Interval",
        type_ = "integer",
        json_path = ".spec.transmitInterval"
    ),
    printcolumn(
        name = "Receive Interval",
        type_ = "integer",
        json_path = ".spec.receiveInterval"
    ),
    printcolumn(
        name = "Multiplier",
        type_ = "integer",
        json_path = ".spec.detectMultiplier"
    )
)]
#[serde(rename_all = "camelCase", default)]
pub struct BFDProfileSpec {
    /// Smallest interval at which we can receive, in ms; 300 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60000))]
    pub receive_interval: Option<u32>,
    /// Smallest interval at which we want to send, in ms; 300 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60000))]
    pub transmit_interval: Option<u32>,
    /// Packets lost in a row until the session is down; 3 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 255))]
    pub detect_multiplier: Option<u32>,
    /// Smallest interval between echo packets, in ms; 50 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 60000))]
    pub echo_interval: Option<u32>,
    /// Send echo packets (RFC 5880 §6.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub echo_mode: Option<bool>,
    /// Wait for the other end to begin (RFC 5880 §6.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passive_mode: Option<bool>,
    /// Smallest TTL that is taken on a multihop session; 254 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 254))]
    pub minimum_ttl: Option<u32>,
}

/// Has no fields.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct BFDProfileStatus {}
