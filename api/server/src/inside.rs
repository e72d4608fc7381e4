//! The verbs for whoever holds the [`Server`] itself: what a request would do, without TLS and HTTP.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::Server;
use crate::crud::{Call, DeleteOptions, Part, State, Written, meta};
use crate::decode::FieldValidation;
use crate::output::bytes;
use crate::patch::PatchType;
use crate::status_error::ApiError;

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// `v1`, `metallb.io/v1beta1`.
    pub api_version: String,
    /// `Service`.
    pub kind: String,
    /// Empty means `default` where the kind has namespaces.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// What an object says about itself.
    pub fn of(object: &Value) -> Self {
        let text = |field: &str| {
            object
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            namespace: meta(object, "namespace").to_owned(),
            name: meta(object, "name").to_owned(),
        }
    }
}

impl Server {
    /// Stores a new object. Unknown fields are refused. Errors: as a POST of it.
    pub fn create(&self, object: Value) -> Result<Arc<Value>, ApiError> {
        self.call(&ObjectRef::of(&object), |state, call, _| {
            state.create(call, object)
        })
    }

    /// The stored object. Errors: 404.
    pub fn get(&self, object: &ObjectRef) -> Result<Arc<Value>, ApiError> {
        self.call(object, |state, call, name| {
            state.get(call, name).map(Written::Updated)
        })
    }

    /// Merges into the stored object. Errors: as a PATCH.
    pub fn merge_patch(&self, object: &ObjectRef, patch: &Value) -> Result<Arc<Value>, ApiError> {
        let patch = bytes(patch);
        self.call(object, |state, call, name| {
            state.patch(call, name, Part::Main, (PatchType::Merge, &patch))
        })
    }

    /// Deletes the object. Errors: as a DELETE.
    pub fn delete(&self, object: &ObjectRef) -> Result<Arc<Value>, ApiError> {
        self.call(object, |state, call, name| {
            state.delete(call, name, &DeleteOptions::default())
        })
    }

    fn call(
        &self,
        object: &ObjectRef,
        verb: impl FnOnce(&mut State, &mut Call<'_>, &str) -> Result<Written, ApiError>,
    ) -> Result<Arc<Value>, ApiError> {
        self.shared.write(|state| {
            let registry = state.registry.clone();
            let kind = registry
                .find_kind(&object.api_version, &object.kind)
                .ok_or_else(ApiError::no_such_path)?;
            let namespace = match (kind.namespaced, object.namespace.as_str()) {
                (false, _) => "",
                (true, "") => "default",
                (true, namespace) => namespace,
            };
            let (now, validation) = (Timestamp::now(), FieldValidation::Strict);
            let mut call = Call {
                kind,
                namespace,
                now,
                dry_run: false,
                validation,
                warnings: Vec::new(),
            };
            match verb(state, &mut call, &object.name)? {
                Written::Created(object) | Written::Updated(object) => Ok(object),
                Written::Status(status) => Ok(Arc::new(status)),
            }
        })
    }
}
