//! Writes to the status of a Service, and to the one annotation that goes with it.
//!
//! Each patch names only what is ours (`status.loadBalancer.ingress`, our condition among the others, our annotation) and the
//! resourceVersion that it was made from, so that nothing that another wrote meanwhile is lost and a former leader can't
//! overwrite a newer holder. After a conflict the Service is read again and the *same* addresses are written, if the records
//! still say that they are its own.

use std::{net::IpAddr, sync::Arc};

use allocator_core::{IngressChange, RecordAnswer, ShownCondition, StatusWrite};
use api_client::write::{self, WriteError};
use api_types::{
    AddressRecord,
    names::{annotation, condition},
};
use k8s_openapi::{
    api::core::v1::Service,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{Attempts, Line, records::look};

/// Whether to go on with a write.
enum Outcome {
    Done,
    /// The Service is another one, or the addresses are not its own any more.
    Pointless,
}

/// Writes until it is stored (true) or pointless (false).
pub(super) async fn write(line: &Line, write: &StatusWrite, known: Option<Arc<Service>>) -> bool {
    let api: Api<Service> = Api::namespaced(line.client.clone(), &write.key.namespace);
    let mut known = known.filter(|known| known.uid().as_deref() == Some(&*write.uid));
    let mut attempts = Attempts::new("write service status");
    let mut first = true;
    loop {
        let turn = line.turn().await;
        let attempt = async {
            let service = match known.take() {
                Some(service) => Arc::unwrap_or_clone(service),
                None => match api.get_opt(&write.key.name).await? {
                    Some(service) => service,
                    None => return Ok(Outcome::Pointless),
                },
            };
            if !is_meant(write, &service) || (!first && !still_its_own(line, write).await?) {
                return Ok(Outcome::Pointless);
            }
            store(&api, write, service).await
        };
        let error = match attempt.await {
            Ok(Outcome::Done) => return true,
            Ok(Outcome::Pointless) | Err(WriteError::NotFound(_)) => return false,
            Err(error @ WriteError::Refused(_)) => {
                tracing::error!(service = %write.key, %error, "the server refuses the status");
                return false;
            }
            Err(error) => error,
        };
        drop(turn);
        first = false;
        attempts.pause(&error).await;
    }
}

fn is_meant(write: &StatusWrite, service: &Service) -> bool {
    let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    let sets = matches!(write.ingress, IngressChange::Set { .. });
    service.uid().as_deref() == Some(&*write.uid) && (!sets || kind == Some("LoadBalancer"))
}

/// Whether the records still name the Service: another allocator may have acted since.
async fn still_its_own(line: &Line, write: &StatusWrite) -> Result<bool, WriteError> {
    let IngressChange::Set { addresses, .. } = &write.ingress else {
        return Ok(true);
    };
    let api: Api<AddressRecord> = Api::all(line.client.clone());
    for address in addresses {
        match look(&api, *address).await? {
            RecordAnswer::Taken(record) | RecordAnswer::Stored(record)
                if record.holds(&write.key, &write.uid) => {}
            RecordAnswer::Taken(_) | RecordAnswer::Stored(_) | RecordAnswer::Gone => {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The annotation proves that a status is ours: it comes before it and goes after it.
async fn store(
    api: &Api<Service>,
    write: &StatusWrite,
    service: Service,
) -> Result<Outcome, WriteError> {
    match &write.ingress {
        IngressChange::Set { pool, .. } => {
            let service = annotate(api, write, service, Some(pool.as_str())).await?;
            store_status(api, write, service).await?;
        }
        IngressChange::Clear => {
            let service = store_status(api, write, service).await?;
            annotate(api, write, service, None).await?;
        }
        IngressChange::Keep => {
            store_status(api, write, service).await?;
        }
    }
    Ok(Outcome::Done)
}

async fn annotate(
    api: &Api<Service>,
    write: &StatusWrite,
    service: Service,
    pool: Option<&str>,
) -> Result<Service, WriteError> {
    let found = service
        .annotations()
        .get(annotation::ALLOCATED_FROM_POOL)
        .map(String::as_str);
    if found == pool {
        return Ok(service);
    }
    let patch = json!({"metadata": {"annotations": {annotation::ALLOCATED_FROM_POOL: pool}}});
    write::merge(
        api,
        &write.key.name,
        service.resource_version().as_deref(),
        patch,
    )
    .await
}

async fn store_status(
    api: &Api<Service>,
    write: &StatusWrite,
    service: Service,
) -> Result<Service, WriteError> {
    let status = status_patch(write, &service, Timestamp::now());
    if says_already(&service, &status) {
        return Ok(service);
    }
    write::merge_status(
        api,
        &write.key.name,
        service.resource_version().as_deref(),
        status,
    )
    .await
}

/// The patch of `status`: our addresses, and all conditions with ours among them (a merge patch replaces lists whole).
fn status_patch(write: &StatusWrite, service: &Service, now: Timestamp) -> Value {
    let status = service.status.as_ref();
    let before = status
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let mut patch = json!({"conditions": conditions(before, &write.condition, now)});
    let ingress = match &write.ingress {
        IngressChange::Set { addresses, .. } => {
            addresses.iter().map(entry).collect::<Vec<_>>().into()
        }
        IngressChange::Clear => Value::Null,
        IngressChange::Keep => return patch,
    };
    if let Some(patch) = patch.as_object_mut() {
        patch.insert("loadBalancer".to_owned(), json!({"ingress": ingress}));
    }
    patch
}

fn entry(address: &IpAddr) -> Value {
    json!({"ip": address.to_string(), "ipMode": "VIP"})
}

fn conditions(mut all: Vec<Condition>, ours: &ShownCondition, now: Timestamp) -> Vec<Condition> {
    let status = if ours.allocated { "True" } else { "False" };
    let before = all
        .iter()
        .find(|found| found.type_ == condition::ALLOCATED && found.status == status);
    let since = before.map_or(Time(now), |before| before.last_transition_time.clone());
    let new = Condition {
        type_: condition::ALLOCATED.to_owned(),
        status: status.to_owned(),
        reason: ours.reason.clone(),
        message: ours.message.clone(),
        last_transition_time: since,
        observed_generation: None,
    };
    match all
        .iter_mut()
        .find(|found| found.type_ == condition::ALLOCATED)
    {
        Some(found) => *found = new,
        None => all.push(new),
    }
    all
}

/// Whether the patch would change nothing.
fn says_already(service: &Service, patch: &Value) -> bool {
    let status = serde_json::to_value(&service.status).unwrap_or_default();
    let same = |field: &str| match patch.get(field) {
        Some(wanted) if wanted.get("ingress").is_some_and(Value::is_null) => status
            .pointer("/loadBalancer/ingress")
            .is_none_or(|found| found.as_array().is_none_or(Vec::is_empty)),
        Some(wanted) => status.get(field) == Some(wanted),
        None => true,
    };
    same("conditions") && same("loadBalancer")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(text: &str) -> Service {
        serde_json::from_str(text).unwrap()
    }

    fn write(ingress: IngressChange) -> StatusWrite {
        StatusWrite {
            key: "demo/web".parse().unwrap(),
            uid: "u".into(),
            ingress,
            condition: ShownCondition {
                allocated: true,
                reason: "Allocated".to_owned(),
                message: "192.0.2.10 from pool lan".to_owned(),
            },
        }
    }

    #[test]
    fn a_patch_names_our_fields_and_keeps_the_conditions_of_others() {
        let before = service(
            r#"{"status": {"conditions": [{"type": "example.com/Other", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}"#,
        );
        let set = IngressChange::Set {
            addresses: vec!["192.0.2.10".parse().unwrap()],
            pool: "lan".into(),
        };
        let patch = status_patch(&write(set), &before, Timestamp::UNIX_EPOCH);
        assert_eq!(
            patch,
            json!({
                "conditions": [
                    {"type": "example.com/Other", "status": "True", "reason": "R", "message": "",
                     "lastTransitionTime": "2026-01-01T00:00:00Z"},
                    {"type": "roadstead.io/Allocated", "status": "True", "reason": "Allocated",
                     "message": "192.0.2.10 from pool lan", "lastTransitionTime": "1970-01-01T00:00:00Z"},
                ],
                "loadBalancer": {"ingress": [{"ip": "192.0.2.10", "ipMode": "VIP"}]},
            })
        );
        let clear = status_patch(&write(IngressChange::Clear), &before, Timestamp::UNIX_EPOCH);
        assert_eq!(
            clear.pointer("/loadBalancer"),
            Some(&json!({"ingress": null}))
        );
        let keep = status_patch(&write(IngressChange::Keep), &before, Timestamp::UNIX_EPOCH);
        assert_eq!(keep.pointer("/loadBalancer"), None);
    }

    #[test]
    fn what_is_shown_already_is_not_written_again() {
        let shown = service(
            r#"{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.10", "ipMode": "VIP"}]},
                "conditions": [{"type": "roadstead.io/Allocated", "status": "True", "reason": "Allocated",
                "message": "192.0.2.10 from pool lan", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}"#,
        );
        let set = |text: &str| {
            write(IngressChange::Set {
                addresses: vec![text.parse().unwrap()],
                pool: "lan".into(),
            })
        };
        let says = |write: &StatusWrite| {
            says_already(&shown, &status_patch(write, &shown, Timestamp::UNIX_EPOCH))
        };
        assert!(says(&set("192.0.2.10")));
        assert!(says(&write(IngressChange::Keep)));
        assert!(!says(&set("192.0.2.11")));
        assert!(!says(&write(IngressChange::Clear)));
    }
}
