//! Kinds that only our processes write: who announces a Service, and whether the configuration is good.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives a public helper struct inside a function"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Has no fields.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "ServiceL2Status",
    plural = "servicel2statuses",
    namespaced,
    status = "ServiceL2StatusStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "ServiceL2Status says which node announces a Service over layer 2.",
    printcolumn(name = "Allocated Node", type_ = "string", json_path = ".status.node"),
    printcolumn(
        name = "Service Name",
        type_ = "string",
        json_path = ".status.serviceName"
    ),
    printcolumn(
        name = "Service Namespace",
        type_ = "string",
        json_path = ".status.serviceNamespace"
    )
)]
pub struct ServiceL2StatusSpec {}

/// Who announces a Service over layer 2.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ServiceL2StatusStatus {
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("Value is immutable"))]
    pub node: Option<String>,
    /// Name of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("Value is immutable"))]
    pub service_name: Option<String>,
    /// Namespace of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("Value is immutable"))]
    pub service_namespace: Option<String>,
    /// Interfaces it is announced on; none means every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub interfaces: Vec<InterfaceInfo>,
}

/// An interface of a node.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct InterfaceInfo {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 15))]
    pub name: Option<String>,
}

/// Has no fields.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "ServiceBGPStatus",
    plural = "servicebgpstatuses",
    namespaced,
    status = "ServiceBGPStatusStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "ServiceBGPStatus says to which peers a node advertises a Service.",
    printcolumn(name = "Node", type_ = "string", json_path = ".status.node"),
    printcolumn(
        name = "Service Name",
        type_ = "string",
        json_path = ".status.serviceName"
    ),
    printcolumn(
        name = "Service Namespace",
        type_ = "string",
        json_path = ".status.serviceNamespace"
    )
)]
pub struct ServiceBGPStatusSpec {}

/// To which peers a node advertises a Service.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ServiceBGPStatusStatus {
    /// The node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("Value is immutable"))]
    pub node: Option<String>,
    /// Name of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("Value is immutable"))]
    pub service_name: Option<String>,
    /// Namespace of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("Value is immutable"))]
    pub service_namespace: Option<String>,
    /// Names of the peers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), inner(length(max = 253)))]
    pub peers: Vec<String>,
}

/// Has no fields; the object has no `spec`.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "metallb.io",
    version = "v1beta1",
    kind = "ConfigurationState",
    plural = "configurationstates",
    namespaced,
    no_spec,
    status = "ConfigurationStateStatus",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "ConfigurationState says whether the configuration that a component reads is good.",
    printcolumn(name = "Result", type_ = "string", json_path = ".status.result"),
    printcolumn(
        name = "ErrorSummary",
        type_ = "string",
        json_path = ".status.errorSummary"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
pub struct ConfigurationStateSpec {}

/// Whether the configuration is good.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigurationStateStatus {
    /// The answer in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ConfigurationResult>,
    /// What is wrong; empty when nothing is.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 32768))]
    pub error_summary: String,
    /// One condition for each part that reads configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The answer of a `ConfigurationState`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigurationResult {
    /// Good.
    Valid,
    /// Something is wrong.
    Invalid,
    /// Not looked at yet.
    Unknown,
}
