//! Writes to address records.

use std::net::IpAddr;

use allocator_core::{Record, RecordAnswer, Stored};
use api_client::write::{self, WriteError};
use api_types::{AddressRecord, record_name};
use kube::Api;

use super::{Attempts, Line};
use crate::record::{bare, from_object, to_object};

/// Creates a record. One that is there is never touched: it is the answer.
pub(super) async fn create(line: &Line, record: &Record) -> RecordAnswer {
    let api: Api<AddressRecord> = Api::all(line.client.clone());
    let object = to_object(record);
    let mut attempts = Attempts::new("create address record");
    loop {
        let turn = line.turn().await;
        let error = match write::create(&api, &object).await {
            Ok(stored) => match from_object(&stored) {
                Ok(record) => return RecordAnswer::Stored(record),
                Err(error) => WriteError::Later(error.to_string()),
            },
            Err(WriteError::AlreadyExists(_) | WriteError::Conflict(_)) => {
                match look(&api, record.address).await {
                    Ok(RecordAnswer::Gone) => WriteError::Later("it came and went".to_owned()),
                    Ok(there) => return there,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        drop(turn);
        attempts.pause(&error).await;
    }
}

/// Updates a record, unless somebody else wrote it.
pub(super) async fn update(line: &Line, record: &Record) -> RecordAnswer {
    let api: Api<AddressRecord> = Api::all(line.client.clone());
    let object = to_object(record);
    let name = record_name(record.address);
    let mut attempts = Attempts::new("update address record");
    loop {
        let turn = line.turn().await;
        let error = match write::replace(&api, &name, &object).await {
            Ok(stored) => match from_object(&stored) {
                Ok(record) => return RecordAnswer::Stored(record),
                Err(error) => WriteError::Later(error.to_string()),
            },
            Err(WriteError::NotFound(_)) => return RecordAnswer::Gone,
            Err(WriteError::Conflict(_) | WriteError::AlreadyExists(_)) => {
                match look(&api, record.address).await {
                    Ok(there) => return there,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        drop(turn);
        attempts.pause(&error).await;
    }
}

/// Deletes a record, unless somebody else wrote it or made it anew.
pub(super) async fn delete(line: &Line, address: IpAddr, stored: &Stored) -> RecordAnswer {
    let api: Api<AddressRecord> = Api::all(line.client.clone());
    let object = bare(address, Some(stored));
    let mut attempts = Attempts::new("delete address record");
    loop {
        let turn = line.turn().await;
        let error = match write::delete_exactly(&api, &object).await {
            Ok(()) => return RecordAnswer::Gone,
            Err(WriteError::Conflict(_)) => match look(&api, address).await {
                Ok(there) => return there,
                Err(error) => error,
            },
            Err(error) => error,
        };
        drop(turn);
        attempts.pause(&error).await;
    }
}

/// What is stored of an address now.
pub(super) async fn look(
    api: &Api<AddressRecord>,
    address: IpAddr,
) -> Result<RecordAnswer, WriteError> {
    match api.get_opt(&record_name(address)).await? {
        Some(object) => from_object(&object)
            .map(RecordAnswer::Taken)
            .map_err(|error| WriteError::Later(error.to_string())),
        None => Ok(RecordAnswer::Gone),
    }
}
