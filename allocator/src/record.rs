//! Address records as objects and as the core knows them.

use std::{collections::BTreeMap, net::IpAddr};

use allocator_core::{PortUse, Record, RecordHolder, Stored};
use api_model::{Port, ServiceKey};
use api_types::{
    AddressHolder, AddressRecord, AddressRecordSpec, HolderPort, RecordNameError, record_address,
    record_name,
};
use kube::{ResourceExt, api::ObjectMeta};

/// A stored record that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadRecordError {
    /// Its name is no address.
    #[error(transparent)]
    Name(#[from] RecordNameError),
    /// It has no uid or resourceVersion, so it isn't stored.
    #[error("address record {0} has no uid or resourceVersion")]
    NotStored(String),
}

/// Reads a stored record. The name is the address; `spec.address` only repeats it for readers.
pub fn from_object(object: &AddressRecord) -> Result<Record, ReadRecordError> {
    let name = object.name_any();
    let address = record_address(&name)?;
    let (Some(uid), Some(version)) = (object.uid(), object.resource_version()) else {
        return Err(ReadRecordError::NotStored(name));
    };
    let spec = &object.spec;
    let holder = |holder: &AddressHolder| {
        let port = |used: &HolderPort| {
            Some(PortUse {
                protocol: used.protocol,
                port: Port::new(used.port)?,
            })
        };
        let value = RecordHolder {
            uid: holder.uid.as_str().into(),
            ports: holder.ports.iter().filter_map(port).collect(),
        };
        (ServiceKey::new(&holder.namespace, &holder.name), value)
    };
    Ok(Record {
        address,
        pool: spec.pool.as_str().into(),
        sharing_key: (!spec.sharing_key.is_empty()).then(|| spec.sharing_key.as_str().into()),
        holders: spec.holders.iter().map(holder).collect::<BTreeMap<_, _>>(),
        stored: Some(Stored {
            uid: uid.into(),
            version: version.into(),
        }),
    })
}

/// The object that says what the record says, at the version that the record carries.
pub fn to_object(record: &Record) -> AddressRecord {
    let holder = |(key, holder): (&ServiceKey, &RecordHolder)| AddressHolder {
        namespace: key.namespace.to_string(),
        name: key.name.to_string(),
        uid: holder.uid.to_string(),
        ports: holder
            .ports
            .iter()
            .map(|used| HolderPort {
                protocol: used.protocol,
                port: used.port.get(),
            })
            .collect(),
    };
    let mut object = bare(record.address, record.stored.as_ref());
    object.spec = AddressRecordSpec {
        address: record.address.to_string(),
        pool: record.pool.to_string(),
        sharing_key: record.sharing_key.as_deref().unwrap_or_default().to_owned(),
        holders: record.holders.iter().map(holder).collect(),
    };
    object
}

/// An object with name and identity alone.
pub(crate) fn bare(address: IpAddr, stored: Option<&Stored>) -> AddressRecord {
    AddressRecord {
        metadata: ObjectMeta {
            name: Some(record_name(address)),
            uid: stored.map(|stored| stored.uid.to_string()),
            resource_version: stored.map(|stored| stored.version.to_string()),
            ..ObjectMeta::default()
        },
        ..AddressRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use api_model::Protocol;

    use super::*;

    #[test]
    fn a_record_reads_what_it_writes() {
        let port = PortUse {
            protocol: Protocol::Tcp,
            port: Port::new(443).unwrap(),
        };
        let holder = RecordHolder {
            uid: "u1".into(),
            ports: BTreeSet::from([port]),
        };
        let record = Record {
            address: "2001:db8::10".parse().unwrap(),
            pool: "lan".into(),
            sharing_key: Some("dns".into()),
            holders: BTreeMap::from([(ServiceKey::new("demo", "web"), holder)]),
            stored: Some(Stored {
                uid: "r1".into(),
                version: "7".into(),
            }),
        };
        let object = to_object(&record);
        assert_eq!(object.name_any(), "2001-db8-0-0-0-0-0-10");
        assert_eq!(from_object(&object), Ok(record));
    }

    #[test]
    fn what_is_not_a_stored_record_is_refused() {
        let mut object = bare("192.0.2.1".parse().unwrap(), None);
        assert_eq!(
            from_object(&object),
            Err(ReadRecordError::NotStored("192.0.2.1".to_owned()))
        );
        object.metadata.name = Some("web".to_owned());
        assert!(matches!(
            from_object(&object),
            Err(ReadRecordError::Name(_))
        ));
    }
}
