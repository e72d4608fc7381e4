//! The verbs: create, get, list, update, patch, delete, each as one step on the [`State`] under its lock.
//!
//! Owns metadata (uid, timestamps, generation, finalizers) and the order of checks; what a kind wants beyond that is asked of
//! [`crate::admission`]. Takes the time as a value and draws nothing but from the seeded generator of the state.
//! Source: "Kubernetes API Concepts" and the registry's generic store.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::admission;
use crate::convert;
use crate::decode::{self, FieldValidation};
use crate::names;
use crate::patch::{self, PatchType};
use crate::registry::{Generation, Kind, NameRule, Registry};
use crate::selector::{FieldSelector, LabelSelector};
use crate::service::Services;
use crate::status_error::{ApiError, Cause};
use crate::store::{ObjectKey, Store, StoreError, Stored};

const MAX_OBJECT_BYTES: usize = 1_572_864;

/// Everything behind the server's one lock.
#[derive(Debug)]
pub(crate) struct State {
    /// Objects.
    pub(crate) store: Store,
    /// Kinds; replaced as a whole when a CRD comes or goes.
    pub(crate) registry: Arc<Registry>,
    /// Cluster addresses and node ports.
    pub(crate) services: Services,
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

fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    object["metadata"]
        .as_object_mut()
        .expect("made an object above")
}

/// Sets or removes a field so that `new` has what `old` has.
fn carry(new: &mut Map<String, Value>, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => new.insert(field.into(), value.clone()),
        None => new.remove(field),
    };
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
        let mut causes = self.metadata_causes(call, &object);
        causes.extend(admission::causes(call, None, &object, Part::Main));
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
        let mut causes = self.metadata_causes(call, &new);
        causes.extend(new_finalizers(&old, &new));
        causes.extend(admission::causes(call, Some(&old), &new, part));
        if !causes.is_empty() {
            return Err(call.invalid(name, causes));
        }
        check_size(call, name, &new)?;
        let released = if call.kind.is("services") {
            self.services
                .update(call, &old, &mut new, part, &mut self.random)?
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

    /// Deletes, or marks for deletion while finalizers or a kubelet have work to do.
    pub(crate) fn delete(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Written, ApiError> {
        let old = self.get(call, name)?;
        check_preconditions(call, name, &old, options)?;
        let mut new = Value::clone(&old);
        admission::mark_deleted(call, &mut new, options);
        let waits = !finalizers(&new).is_empty() || !admission::may_go(call.kind, &new);
        if !waits {
            if !call.dry_run {
                self.remove(call, name, None, Some(new.clone()))?;
            }
            return Ok(deleted_answer(call.kind, &old, new));
        }
        raise_generation(call.kind, &old, &mut new);
        if call.dry_run || new == *old {
            return Ok(Written::Updated(Arc::new(new)));
        }
        let stored = self
            .store
            .update(&call.kind.storage, call.key(name), None, new);
        let stored = stored.map_err(|error| call.store_error(name, error))?;
        self.drain(call, &stored);
        Ok(Written::Updated(stored))
    }

    /// Deletes what the selectors match and answers the list of it.
    pub(crate) fn delete_collection(
        &mut self,
        call: &mut Call<'_>,
        selectors: (&LabelSelector, &FieldSelector),
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Value>>, ApiError> {
        let namespace = (!call.namespace.is_empty()).then_some(call.namespace);
        let matching = self.store.list(&call.kind.storage, namespace, None);
        let matching: Vec<(ObjectKey, Arc<Value>)> = matching
            .filter(|(_, stored)| {
                selectors.0.matches(&stored.object) && selectors.1.matches(&stored.object)
            })
            .map(|(key, stored)| (key.clone(), stored.object.clone()))
            .collect();
        for (key, _) in &matching {
            let mut one = Call {
                namespace: &key.namespace,
                warnings: Vec::new(),
                ..*call
            };
            self.delete(&mut one, &key.name, options)?;
        }
        Ok(matching.into_iter().map(|(_, object)| object).collect())
    }

    /// Takes an object out for good and tells whoever waited for that.
    fn remove(
        &mut self,
        call: &Call<'_>,
        name: &str,
        expected: Option<u64>,
        last: Option<Value>,
    ) -> Result<(), ApiError> {
        let removed = self
            .store
            .delete(&call.kind.storage, call.key(name), expected, last);
        let removed = removed.map_err(|error| call.store_error(name, error))?;
        if call.kind.is("services") {
            self.services.forget(&removed);
        }
        if call.kind.is(admission::CRDS) {
            let registry = Arc::make_mut(&mut self.registry);
            let text = |pointer: &str| {
                removed
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            registry.remove(text("/spec/group"), text("/spec/names/plural"));
        }
        self.finish_waiting(call)
    }

    fn after_write(&mut self, kind: &Kind, stored: &Value) {
        if kind.is(admission::CRDS) {
            let registry = Arc::make_mut(&mut self.registry);
            crate::crd::kinds(stored)
                .into_iter()
                .for_each(|kind| registry.insert(kind));
        }
    }

    /// A namespace or a CRD that goes takes its objects with it.
    fn drain(&mut self, call: &Call<'_>, stored: &Value) {
        let registry = self.registry.clone();
        let name = meta(stored, "name");
        let inside: Vec<&Arc<Kind>> = if call.kind.is("namespaces") {
            registry.iter().filter(|kind| kind.namespaced).collect()
        } else if call.kind.is(admission::CRDS) {
            registry
                .iter()
                .filter(|kind| {
                    kind.builtin().is_none() && format!("{}.{}", kind.plural, kind.group) == name
                })
                .collect()
        } else {
            return;
        };
        let namespace = if call.kind.is("namespaces") { name } else { "" };
        for kind in inside {
            let mut one = Call {
                kind,
                namespace,
                warnings: Vec::new(),
                ..*call
            };
            let all = (&LabelSelector::default(), &FieldSelector::default());
            if let Err(error) = self.delete_collection(&mut one, all, &DeleteOptions::default()) {
                tracing::warn!(kind = kind.kind, %error, "object outlives what held it");
            }
        }
        if let Err(error) = self.finish_waiting(&Call {
            namespace: name,
            warnings: Vec::new(),
            ..*call
        }) {
            tracing::warn!(name, %error, "cannot finish a deletion");
        }
    }

    /// Removes the namespace and the CRD that waited for the object just removed, once they are empty.
    fn finish_waiting(&mut self, call: &Call<'_>) -> Result<(), ApiError> {
        let registry = self.registry.clone();
        let namespace = ObjectKey::new("", call.namespace);
        let going = |stored: &Stored| !meta(&stored.object, "deletionTimestamp").is_empty();
        if self.store.get("namespaces", &namespace).is_some_and(going) {
            let empty = registry.iter().filter(|kind| kind.namespaced).all(|kind| {
                self.store
                    .list(&kind.storage, Some(call.namespace), None)
                    .next()
                    .is_none()
            });
            if empty {
                let kind = registry.find("", "v1", "namespaces").expect("built in");
                let one = Call {
                    kind,
                    namespace: "",
                    warnings: Vec::new(),
                    ..*call
                };
                let _ = self.store.delete(&one.kind.storage, namespace, None, None);
            }
        }
        let waiting: Vec<ObjectKey> = self
            .store
            .list(admission::CRDS, None, None)
            .filter(|(key, stored)| going(stored) && self.store.count(&key.name) == 0)
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            let kind = registry
                .find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
                .expect("built in");
            if let Ok(last) = self.store.delete(&kind.storage, key, None, None) {
                let text = |pointer: &str| {
                    last.pointer(pointer)
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                };
                Arc::make_mut(&mut self.registry)
                    .remove(text("/spec/group"), text("/spec/names/plural"));
            }
        }
        Ok(())
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

    fn metadata_causes(&self, call: &Call<'_>, object: &Value) -> Vec<Cause> {
        let rule = call
            .kind
            .builtin()
            .map_or(NameRule::Subdomain, |builtin| builtin.names);
        names::metadata_causes(&object["metadata"], rule)
    }

    /// Fills what the server sets in a new object's metadata and returns its name.
    fn new_metadata(&mut self, call: &Call<'_>, object: &mut Value) -> Result<String, ApiError> {
        if !meta(object, "resourceVersion").is_empty() {
            return Err(ApiError::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        check_namespace_named(call, object)?;
        let generated = (meta(object, "name").is_empty()
            && !meta(object, "generateName").is_empty())
        .then(|| format!("{}{}", meta(object, "generateName"), self.random.suffix()));
        let metadata = metadata_mut(object);
        for field in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
            "resourceVersion",
        ] {
            metadata.remove(field);
        }
        if let Some(name) = generated {
            metadata.insert("name".into(), json!(name));
        }
        if call.kind.namespaced {
            metadata.insert("namespace".into(), json!(call.namespace));
        }
        metadata.insert("uid".into(), json!(self.random.uid()));
        metadata.insert("creationTimestamp".into(), time(call.now));
        if call.kind.generation() != Generation::Never {
            metadata.insert("generation".into(), json!(1));
        }
        Ok(meta(object, "name").to_owned())
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

fn check_size(call: &Call<'_>, name: &str, object: &Value) -> Result<(), ApiError> {
    let bytes = serde_json::to_vec(object).map_or(usize::MAX, |bytes| bytes.len());
    if bytes <= MAX_OBJECT_BYTES {
        return Ok(());
    }
    Err(call.invalid(name, vec![Cause::too_long("", MAX_OBJECT_BYTES)]))
}

fn check_namespace_named(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    let namespace = meta(object, "namespace");
    if namespace.is_empty() || namespace == call.namespace {
        return Ok(());
    }
    let message =
        "the namespace of the provided object does not match the namespace sent on the request";
    Err(ApiError::bad_request(message))
}

fn check_names(call: &Call<'_>, name: &str, object: &Value) -> Result<(), ApiError> {
    check_namespace_named(call, object)?;
    let said = meta(object, "name");
    if said.is_empty() || said == name {
        return Ok(());
    }
    let message =
        format!("the name of the object ({said}) does not match the name on the URL ({name})");
    Err(ApiError::bad_request(message))
}

/// Puts back everything that this part of the object does not own.
fn keep_part(kind: &Kind, old: &Value, new: &mut Value, part: Part) {
    let old_metadata = old.get("metadata").cloned().unwrap_or_default();
    let metadata = metadata_mut(new);
    metadata.remove("managedFields");
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "generateName",
        "resourceVersion",
    ] {
        carry(metadata, &old_metadata, field);
    }
    let fields = new.as_object_mut().expect("an object has metadata");
    match part {
        Part::Main if kind.status => carry(fields, old, "status"),
        Part::Main => {}
        Part::Status => {
            let (status, metadata) = (fields.remove("status"), fields.remove("metadata"));
            *fields = old.as_object().cloned().unwrap_or_default();
            fields.remove("status");
            fields.extend(status.map(|status| ("status".to_owned(), status)));
            if kind.custom().is_none() {
                fields.extend(metadata.map(|metadata| ("metadata".to_owned(), metadata)));
            }
        }
        Part::Finalize => {
            let spec = fields.remove("spec");
            *fields = old.as_object().cloned().unwrap_or_default();
            fields.extend(spec.map(|spec| ("spec".to_owned(), spec)));
        }
    }
}

fn new_finalizers(old: &Value, new: &Value) -> Option<Cause> {
    if meta(old, "deletionTimestamp").is_empty() {
        return None;
    }
    let added: Vec<&Value> = finalizers(new)
        .iter()
        .filter(|f| !finalizers(old).contains(f))
        .collect();
    let list = added
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let what = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
    );
    (!added.is_empty()).then(|| Cause::forbidden("metadata.finalizers", what))
}

fn raise_generation(kind: &Kind, old: &Value, new: &mut Value) {
    let without = |object: &Value, fields: &[&str]| {
        let mut map = object.as_object().cloned().unwrap_or_default();
        fields.iter().for_each(|&field| drop(map.remove(field)));
        map
    };
    let changed = match kind.generation() {
        Generation::Never => false,
        Generation::Any => without(old, &["status"]) != without(new, &["status"]),
        // a pod's or a custom resource's deletion counts as a change of what is wanted
        Generation::Spec => {
            without(old, &["status", "metadata"]) != without(new, &["status", "metadata"])
                || meta(old, "deletionTimestamp") != meta(new, "deletionTimestamp")
        }
    };
    if changed {
        let generation = old
            .pointer("/metadata/generation")
            .and_then(Value::as_i64)
            .unwrap_or(0);
        metadata_mut(new).insert("generation".into(), json!(generation + 1));
    }
}

fn check_preconditions(
    call: &Call<'_>,
    name: &str,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let conflict = |why: String| {
        Err(ApiError::conflict(
            &call.kind.group,
            &call.kind.kind,
            name,
            &why,
        ))
    };
    let (uid, version) = (meta(old, "uid"), meta(old, "resourceVersion"));
    if let Some(wanted) = options.uid.as_deref().filter(|&wanted| wanted != uid) {
        return conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ));
    }
    if let Some(wanted) = options
        .resource_version
        .as_deref()
        .filter(|&wanted| wanted != version)
    {
        return conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        ));
    }
    Ok(())
}

fn deleted_answer(kind: &Kind, old: &Value, last: Value) -> Written {
    if kind
        .builtin()
        .is_some_and(|builtin| builtin.delete_answers_object)
    {
        let shown = if kind.is("pods") { last } else { old.clone() };
        return Written::Updated(Arc::new(shown));
    }
    let mut details =
        json!({"name": meta(old, "name"), "kind": kind.plural, "uid": meta(old, "uid")});
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    Written::Status(status)
}
