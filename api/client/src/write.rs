//! Writes that say what came of them.
//!
//! Owns the forms in which our processes write: merge patches of metadata and status that carry a resourceVersion where a
//! newer holder must not be overwritten, creates, and deletes that name uid and version. Never retries: the caller decides
//! by the [`WriteError`] whether the choice still stands.

use std::{fmt::Debug, time::Duration};

use kube::{
    Api, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::time::timeout;

/// How long one write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Why a write did not happen, by what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Somebody wrote in between: look again, then decide anew.
    #[error("the object changed in between: {0}")]
    Conflict(String),
    /// There is one already.
    #[error("the object exists already: {0}")]
    AlreadyExists(String),
    /// It is gone.
    #[error("the object is gone: {0}")]
    NotFound(String),
    /// The server refuses it as it is: writing it again is of no use.
    #[error("the server refuses it: {0}")]
    Refused(String),
    /// The server cannot be reached, is overloaded, or broke: write it again later.
    #[error("the server did not take it: {0}")]
    Later(String),
}

impl WriteError {
    /// Whether the same write may work later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Later(_))
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = &error else {
            return Self::Later(error.to_string());
        };
        let text = status.message.clone();
        if status.is_already_exists() {
            return Self::AlreadyExists(text);
        }
        match status.code {
            409 => Self::Conflict(text),
            404 => Self::NotFound(text),
            // 401 and 403 come and go with credentials and roles
            400 | 405 | 413 | 415 | 422 => Self::Refused(text),
            _ => Self::Later(text),
        }
    }
}

/// Bounds a request in time.
async fn bounded<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, WriteError> {
    match timeout(WRITE_TIMEOUT, request).await {
        Ok(done) => Ok(done?),
        Err(_) => Err(WriteError::Later(format!(
            "no answer within {} s",
            WRITE_TIMEOUT.as_secs()
        ))),
    }
}

/// Creates an object.
pub async fn create<K>(api: &Api<K>, object: &K) -> Result<K, WriteError>
where
    K: Clone + Serialize + DeserializeOwned + Debug,
{
    bounded(api.create(&params(), object)).await
}

/// Replaces an object; its `metadata.resourceVersion` is the precondition.
pub async fn replace<K>(api: &Api<K>, name: &str, object: &K) -> Result<K, WriteError>
where
    K: Clone + Serialize + DeserializeOwned + Debug,
{
    bounded(api.replace(name, &params(), object)).await
}

/// Merges `patch` into the object. With `version`, only if nobody wrote since.
pub async fn merge<K>(
    api: &Api<K>,
    name: &str,
    version: Option<&str>,
    patch: Value,
) -> Result<K, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let patch = Patch::Merge(at_version(patch, version));
    bounded(api.patch(name, &patch_params(), &patch)).await
}

/// Merges `status` into the object's status. With `version`, only if nobody wrote since.
pub async fn merge_status<K>(
    api: &Api<K>,
    name: &str,
    version: Option<&str>,
    status: Value,
) -> Result<K, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let patch = Patch::Merge(at_version(json!({ "status": status }), version));
    bounded(api.patch_status(name, &patch_params(), &patch)).await
}

/// Deletes the object if it is still this one. That it is gone already counts as done.
pub async fn delete_exactly<K>(api: &Api<K>, object: &K) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let meta = object.meta();
    let exactly = DeleteParams {
        preconditions: Some(Preconditions {
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        }),
        ..DeleteParams::default()
    };
    let name = meta.name.as_deref().unwrap_or_default();
    match bounded(api.delete(name, &exactly)).await {
        Ok(_) | Err(WriteError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(api_types::names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(api_types::names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Adds the precondition to a patch.
fn at_version(mut patch: Value, version: Option<&str>) -> Value {
    if let (Some(version), Some(patch)) = (version, patch.as_object_mut()) {
        let meta = patch.entry("metadata").or_insert_with(|| json!({}));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert("resourceVersion".to_owned(), version.into());
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_precondition_joins_the_metadata_that_is_patched() {
        assert_eq!(
            at_version(json!({"metadata": {"annotations": {"a": "b"}}}), Some("7")),
            json!({"metadata": {"annotations": {"a": "b"}, "resourceVersion": "7"}})
        );
        assert_eq!(
            at_version(json!({"status": {}}), Some("7")),
            json!({"status": {}, "metadata": {"resourceVersion": "7"}})
        );
        assert_eq!(
            at_version(json!({"status": {}}), None),
            json!({"status": {}})
        );
    }

    #[test]
    fn errors_are_sorted_by_what_to_do() {
        for (code, reason, wanted) in [
            (409, "AlreadyExists", "the object exists already: m"),
            (409, "Conflict", "the object changed in between: m"),
            (404, "NotFound", "the object is gone: m"),
            (422, "Invalid", "the server refuses it: m"),
            (403, "Forbidden", "the server did not take it: m"),
            (500, "InternalError", "the server did not take it: m"),
            (504, "Timeout", "the server did not take it: m"),
        ] {
            let status = Status::failure("m", reason).with_code(code);
            let error = WriteError::from(kube::Error::Api(status.boxed()));
            assert_eq!(error.to_string(), wanted, "{code} {reason}");
        }
    }
}
