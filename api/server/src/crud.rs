//! The verbs: create, get, list, update, patch, delete, each as one step on the [`State`] under its lock.
//!
//! Owns metadata (uid, timestamps, generation, finalizers) and the order of checks; what a kind wants beyond that is asked of
//! [`crate::admission`]. Takes the time as a value and draws nothing but from the seeded generator of the state.
//! Source: "Kubernetes API Concepts" and the registry's generic store.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::admission;
use crate::configuration;
use crate::convert;
use crate::decode::{self, FieldValidation};
use crate::names;
use crate::patch::{self, PatchType};
use crate::registry::{Kind, NameRule, Registry};
use crate::service::Services;
use crate::status_error::{ApiError, Cause};
use crate::store::{ObjectKey, Store, StoreError};

mod deletion;
mod metadata;

use metadata::{check_names, check_size, keep_part, new_finalizers, raise_generation};

/// Everything behind the server's one lock.
#[derive(Debug)]
pub(crate) struct State {
    /// Objects.
    pub(crate) store: Store,
    /// Kinds; replaced as a whole when a CRD comes or goes.
    pub(crate) registry: Arc<Registry>,
    /// Cluster addresses and node ports.
    pub(crate) services: Services,
    /// Where configuration objects must be.
    pub(crate) checked_namespace: Option<String>,
    /// Seeded generator for uids and picks (xorshift64*).
    pub(crate) random: Random,
}

/// A small seeded generator: good enough for names and picks, never for secrets.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// From a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next 64 bits (xorshift64*, Vigna 2016).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A version 4 uid (RFC 9562 §5.4).
    pub(crate) fn uid(&mut self) -> String {
        let bits = u128::from(self.next()) << 64 | u128::from(self.next());
        let bits = bits & !(0xf << 76) & !(0b11 << 62) | 4 << 76 | 0b10 << 62;
        let hex = format!("{bits:032x}");
        let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
        format!(
            "{}-{}-{}-{}-{}",
            part(0, 8),
            part(8, 12),
            part(12, 16),
            part(16, 20),
            part(20, 32)
        )
    }

    /// Five letters for `generateName`.
    fn suffix(&mut self) -> String {
        const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5)
            .map(|_| char::from(LETTERS[usize::try_from(self.next() % 27).expect("below 27")]))
            .collect()
    }
}

/// One request's circumstances.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// Kind of the path.
    pub(crate) kind: &'a Kind,
    /// Namespace of the path; empty for cluster scope, or for all of them in a list.
    pub(crate) namespace: &'a str,
    /// The time.
    pub(crate) now: Timestamp,
    /// Check and answer, store nothing.
    pub(crate) dry_run: bool,
    /// What to do with unknown fields.
    pub(crate) validation: FieldValidation,
    /// Collected for the `Warning` header.
    pub(crate) warnings: Vec<String>,
}

/// Which part of an object a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but status.
    Main,
    /// Status only.
    Status,
    /// A namespace's `spec.finalizers`.
    Finalize,
}

/// What a successful write answers.
#[derive(Debug, PartialEq)]
pub(crate) enum Written {
    /// 201.
    Created(Arc<Value>),
    /// 200 with the object.
    Updated(Arc<Value>),
    /// 200 with a `Status`.
    Status(Value),
}

/// `DeleteOptions` as far as they matter here.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    /// Seconds a pod gets.
    pub(crate) grace_period_seconds: Option<i64>,
    /// `Foreground` and `Orphan` add a finalizer.
    pub(crate) propagation: Option<String>,
    /// The uid the object must have.
    pub(crate) uid: Option<String>,
    /// The version the object must have.
    pub(crate) resource_version: Option<String>,
    /// Goes because its namespace or kind goes: nobody may object.
    pub(crate) cascades: bool,
}

impl Call<'_> {
    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.namespace, name)
    }

    fn not_found(&self, name: &str) -> ApiError {
        ApiError::not_found(&self.kind.group, &self.kind.plural, name)
    }

    fn invalid(&self, name: &str, causes: Vec<Cause>) -> ApiError {
        ApiError::invalid(&self.kind.group, &self.kind.kind, name, causes)
    }

    fn store_error(&self, name: &str, error: StoreError) -> ApiError {
        let (group, plural) = (&self.kind.group, &self.kind.plural);
        match error {
            StoreError::Exists => ApiError::already_exists(group, plural, name),
            StoreError::NotFound => self.not_found(name),
            StoreError::Conflict { .. } => ApiError::modified(group, plural, name),
            StoreError::Expired { .. } => {
                ApiError::expired("The resourceVersion for the provided list is too old.")
            }
            StoreError::Future { current } => ApiError::version_too_large(0, current),
        }
    }
}

/// Text at `object.metadata.field`.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// `metadata.finalizers`, empty when there are none.
pub(crate) fn finalizers(object: &Value) -> &[Value] {
    object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// A time as the API writes it: seconds, UTC.
pub(crate) fn time(now: Timestamp) -> Value {
    json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

impl State {
    /// The stored object. Errors: 404.
    pub(crate) fn get(&self, call: &Call<'_>, name: &str) -> Result<Arc<Value>, ApiError> {
        let stored = self.store.get(&call.kind.storage, &call.key(name));
        stored
            .map(|stored| stored.object.clone())
            .ok_or_else(|| call.not_found(name))
    }

    /// Stores a new object. Errors: 400, 403, 404 (namespace), 409, 422.
    pub(crate) fn create(&mut self, call: &mut Call<'_>, body: Value) -> Result<Written, ApiError> {
        let mut object = decode::decode(call.kind, body, call.validation, &mut call.warnings)?;
        let name = self.new_metadata(call, &mut object)?;
        convert::to_stored(call.kind, &mut object);
        self.check_namespace(call, &name)?;
        admission::on_create(call, &mut object);
        let mut causes = metadata_causes(call, &object);
        causes.extend(admission::causes(call, None, &object, Part::Main));
        if causes.is_empty() {
            causes = configuration::causes(
                &self.store,
                call.kind,
                &object,
                self.checked_namespace.as_deref(),
            );
        }
        if !causes.is_empty() {
            return Err(call.invalid(&name, causes));
        }
        check_size(call, &name, &object)?;
        let key = call.key(&name);
        if self.store.get(&call.kind.storage, &key).is_some() {
            return Err(call.store_error(&name, StoreError::Exists));
        }
        if call.kind.is("services") {
            self.services.create(call, &mut object, &mut self.random)?;
        }
        if call.dry_run {
            return Ok(Written::Created(Arc::new(object)));
        }
        let stored = self
            .store
            .create(&call.kind.storage, key, object)
            .map_err(|error| call.store_error(&name, error))?;
        self.after_write(call.kind, &stored);
        Ok(Written::Created(stored))
    }

    /// Replaces an object; creates it where the kind allows that. `change` makes the new object of the old one.
    pub(crate) fn put(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        part: Part,
        body: Value,
    ) -> Result<Written, ApiError> {
        let exists = self
            .store
            .get(&call.kind.storage, &call.key(name))
            .is_some();
        let creates = part == Part::Main
            && call
                .kind
                .builtin()
                .is_some_and(|builtin| builtin.put_creates);
        if !exists && creates {
            check_names(call, name, &body)?;
            return self.create(call, body);
        }
        let mut object = decode::decode(call.kind, body, call.validation, &mut call.warnings)?;
        convert::to_stored(call.kind, &mut object);
        let old = self.get(call, name)?;
        if call.kind.custom().is_some() && meta(&object, "resourceVersion").is_empty() {
            let what = "must be specified for an update";
            let cause = Cause::invalid("metadata.resourceVersion", &json!(0), what);
            let (group, plural) = (&call.kind.group, &call.kind.plural);
            return Err(ApiError::invalid(group, plural, name, vec![cause]));
        }
        let (said, has) = (meta(&object, "uid"), meta(&old, "uid"));
        if !said.is_empty() && said != has {
            let why = format!(
                "Precondition failed: UID in precondition: {said}, UID in object meta: {has}"
            );
            return Err(ApiError::conflict(
                &call.kind.group,
                &call.kind.plural,
                name,
                &why,
            ));
        }
        self.update(call, name, part, object)
    }

    /// Applies a patch to the stored object.
    pub(crate) fn patch(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        part: Part,
        patch: (PatchType, &[u8]),
    ) -> Result<Written, ApiError> {
        let old = self.get(call, name)?;
        let shown = convert::to_shown(call.kind, &old);
        let patched = patch::apply(patch.0, &shown, patch.1)?;
        if meta(&patched, "name").is_empty() {
            let message = format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            );
            return Err(ApiError::bad_request(message));
        }
        let mut object =
            decode::decode_patched(call.kind, &patched, call.validation, &mut call.warnings)?;
        convert::to_stored(call.kind, &mut object);
        let (said, has) = (meta(&object, "uid"), meta(&old, "uid"));
        if said != has && !said.is_empty() {
            let cause = Cause::invalid("metadata.uid", &json!(said), "field is immutable");
            return Err(call.invalid(name, vec![cause]));
        }
        self.update(call, name, part, object)
    }

    fn update(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        part: Part,
        mut new: Value,
    ) -> Result<Written, ApiError> {
        check_names(call, name, &new)?;
        let old = self.get(call, name)?;
        let expected = self.expected_version(call, name, &new)?;
        keep_part(call.kind, &old, &mut new, part);
        admission::on_update(call, &old, &mut new, part);
        let mut causes = metadata_causes(call, &new);
        causes.extend(new_finalizers(&old, &new));
        causes.extend(admission::causes(call, Some(&old), &new, part));
        if part == Part::Main && causes.is_empty() {
            causes = configuration::causes(
                &self.store,
                call.kind,
                &new,
                self.checked_namespace.as_deref(),
            );
        }
        if !causes.is_empty() {
            return Err(call.invalid(name, causes));
        }
        check_size(call, name, &new)?;
        let released = if call.kind.is("services") && part == Part::Main {
            self.services
                .update(call, &old, &mut new, &mut self.random)?
        } else {
            Vec::new()
        };
        raise_generation(call.kind, &old, &mut new);
        if call.dry_run || new == *old {
            return Ok(Written::Updated(Arc::new(new)));
        }
        let going = !meta(&new, "deletionTimestamp").is_empty();
        let stored = if going && finalizers(&new).is_empty() && admission::may_go(call.kind, &new) {
            // the last finalizer went: the write is answered, watchers see the state before it
            self.remove(call, name, expected, None)?;
            Arc::new(new)
        } else {
            let stored = self
                .store
                .update(&call.kind.storage, call.key(name), expected, new);
            stored.map_err(|error| call.store_error(name, error))?
        };
        self.services.release(&released);
        self.after_write(call.kind, &stored);
        Ok(Written::Updated(stored))
    }

    fn after_write(&mut self, kind: &Kind, stored: &Value) {
        if kind.is(admission::CRDS) {
            let registry = Arc::make_mut(&mut self.registry);
            for kind in crate::crd::kinds(stored) {
                registry.insert(kind);
            }
        }
    }

    fn check_namespace(&self, call: &Call<'_>, name: &str) -> Result<(), ApiError> {
        if !call.kind.namespaced {
            return Ok(());
        }
        let Some(stored) = self
            .store
            .get("namespaces", &ObjectKey::new("", call.namespace))
        else {
            return Err(ApiError::not_found("", "namespaces", call.namespace));
        };
        if meta(&stored.object, "deletionTimestamp").is_empty() {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            call.namespace
        );
        let error = ApiError::forbidden(&call.kind.group, &call.kind.plural, name, &why);
        let message = format!("namespace {} is being terminated", call.namespace);
        let cause = Cause {
            reason: "NamespaceTerminating",
            field: "metadata.namespace".into(),
            message,
        };
        Err(ApiError {
            causes: vec![cause],
            ..error
        })
    }

    fn expected_version(
        &self,
        call: &Call<'_>,
        name: &str,
        new: &Value,
    ) -> Result<Option<u64>, ApiError> {
        let said = meta(new, "resourceVersion");
        if said.is_empty() || said == "0" {
            return Ok(None);
        }
        let parse_error = |_| {
            ApiError::internal(format!(
                "strconv.ParseUint: parsing \"{said}\": invalid syntax"
            ))
        };
        let said: u64 = said.parse().map_err(parse_error)?;
        match self.store.get(&call.kind.storage, &call.key(name)) {
            Some(stored) if stored.revision == said => Ok(Some(said)),
            _ => Err(ApiError::modified(
                &call.kind.group,
                &call.kind.plural,
                name,
            )),
        }
    }
}

fn metadata_causes(call: &Call<'_>, object: &Value) -> Vec<Cause> {
    let rule = call
        .kind
        .builtin()
        .map_or(NameRule::Subdomain, |builtin| builtin.names);
    names::metadata_causes(&object["metadata"], rule)
}
