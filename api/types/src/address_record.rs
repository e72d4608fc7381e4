//! `AddressRecord`: one object for each `LoadBalancer` address that is held.
//!
//! Owns its shape and its name. What makes a second holder impossible even with two live allocators is the name: it is the
//! address, so that creating it twice fails. Never decides who may hold an address: that is the allocator's core.
#![expect(
    unreachable_pub,
    reason = "KubeSchema derives a public helper struct inside a function"
)]

use std::net::{IpAddr, Ipv6Addr};

use api_model::Protocol;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who holds one address.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "roadstead.io",
    version = "v1alpha1",
    kind = "AddressRecord",
    plural = "addressrecords",
    shortname = "addr",
    derive = "PartialEq",
    derive = "Default",
    attr = "cfg_attr(all(), serde(default))",
    doc = "AddressRecord says who holds one LoadBalancer address. Its name is the address, so it cannot exist twice.",
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(
        name = "Holders",
        type_ = "string",
        json_path = ".spec.holders[*].name"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct AddressRecordSpec {
    /// The address in its canonical text (RFC 5952).
    #[schemars(length(max = 45))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("address is immutable: the object's name is the address"))]
    #[serde(default)]
    pub address: String,
    /// The pool it came from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub pool: String,
    /// The key under which several Services may hold it together; empty: one holder only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub sharing_key: String,
    /// The Services that hold it; empty while it waits to be released.
    #[schemars(length(max = 256))]
    #[serde(default)]
    pub holders: Vec<AddressHolder>,
}

/// A Service that holds an address.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct AddressHolder {
    /// Namespace of the Service.
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name of the Service.
    #[schemars(length(max = 63))]
    pub name: String,
    /// `metadata.uid` of the Service: one made anew under the same name is another holder.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// The ports it uses on the address.
    #[schemars(length(max = 1024))]
    pub ports: Vec<HolderPort>,
}

/// A port that a holder uses.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct HolderPort {
    /// `TCP`, `UDP` or `SCTP`.
    #[schemars(with = "String", length(max = 4))]
    pub protocol: Protocol,
    /// The number, 1 to 65535.
    #[schemars(range(min = 1, max = 65535))]
    pub port: u16,
}

/// A name that is not an address in the spelling of [`record_name`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the name of an address record: IPv4 as it is, IPv6 as eight groups joined by '-'"
)]
pub struct RecordNameError(pub String);

/// Name of the record of an address: IPv4 as it is; IPv6 all eight groups, lower-case hex without leading zeros, joined by
/// `-`, since an object's name cannot hold colons.
pub fn record_name(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address
            .segments()
            .map(|group| format!("{group:x}"))
            .join("-"),
    }
}

/// The address whose record has this name; only the exact spelling is read.
pub fn record_address(name: &str) -> Result<IpAddr, RecordNameError> {
    let wrong = || RecordNameError(name.to_owned());
    let address = if name.contains('-') {
        let groups: Vec<u16> = name
            .split('-')
            .map(|group| u16::from_str_radix(group, 16).map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        let groups: [u16; 8] = groups.try_into().map_err(|_| wrong())?;
        IpAddr::V6(Ipv6Addr::from(groups))
    } else {
        IpAddr::V4(name.parse().map_err(|_| wrong())?)
    };
    if record_name(address) == name {
        Ok(address)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_record_is_its_address() {
        for (address, name) in [
            ("192.0.2.10", "192.0.2.10"),
            ("2001:db8::10", "2001-db8-0-0-0-0-0-10"),
            ("::", "0-0-0-0-0-0-0-0"),
            ("2001:DB8:ffff:a:b:c:d:e", "2001-db8-ffff-a-b-c-d-e"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(record_name(address), name);
            assert_eq!(record_address(name), Ok(address));
        }
    }

    #[test]
    fn other_spellings_are_no_record_names() {
        for name in [
            "",
            "web",
            "192.0.2",
            "192.0.2.010",
            "2001:db8::10",
            "2001-DB8-0-0-0-0-0-10",
            "2001-0db8-0-0-0-0-0-10",
            "+1-0-0-0-0-0-0-0",
            "1-2-3-4-5-6-7",
            "1-2-3-4-5-6-7-8-9",
            "1-2-3-4-5-6-7-10000",
        ] {
            assert_eq!(
                record_address(name),
                Err(RecordNameError(name.to_owned())),
                "{name}"
            );
        }
    }
}
