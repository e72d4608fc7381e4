//! Deletion: finalizers, what goes along with a namespace or a CRD, and what waits for whom.

use std::sync::Arc;

use serde_json::{Value, json};

use super::metadata::raise_generation;
use super::{Call, DeleteOptions, State, Written, finalizers, meta};
use crate::admission;
use crate::configuration;
use crate::registry::Kind;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status_error::ApiError;
use crate::store::{ObjectKey, Stored};

impl State {
    /// Deletes, or marks for deletion while finalizers or a kubelet have work to do.
    pub(crate) fn delete(
        &mut self,
        call: &mut Call<'_>,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Written, ApiError> {
        let old = self.get(call, name)?;
        check_preconditions(call, name, &old, options)?;
        let causes = configuration::delete_causes(&self.store, call.kind, call.namespace, name);
        if !causes.is_empty() && !options.cascades {
            return Err(call.invalid(name, causes));
        }
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
    pub(super) fn remove(
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
        self.finish_waiting(call);
        Ok(())
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
            if let Err(error) = self.delete_collection(
                &mut one,
                all,
                &DeleteOptions {
                    cascades: true,
                    ..DeleteOptions::default()
                },
            ) {
                tracing::warn!(kind = kind.kind, %error, "object outlives what held it");
            }
        }
        self.finish_waiting(&Call {
            namespace: name,
            warnings: Vec::new(),
            ..*call
        });
    }

    /// Removes the namespace and the CRD that waited for the object just removed, once they are empty.
    fn finish_waiting(&mut self, call: &Call<'_>) {
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
