//! Admission of `metallb.io` configuration objects, as `MetalLB`'s webhooks do it: the rules are `api-types`'.
//!
//! Each write reads all configuration objects of its namespace, so a thousand pools cost a thousand reads a write.

use api_types::validate::{self, FieldError, Others};
use serde_json::{Value, json};

use crate::registry::Kind;
use crate::status_error::Cause;
use crate::store::Store;

fn rules(kind: &Kind) -> Option<validate::Kind> {
    let ours = kind.custom().is_some() && kind.group == "metallb.io";
    ours.then(|| validate::Kind::of_plural(&kind.plural))
        .flatten()
}

fn others(store: &Store, namespace: &str) -> Others {
    let mut others = Others::default();
    for kind in validate::Kind::ALL {
        let storage = format!("{}.metallb.io", kind.plural());
        for (_, stored) in store.list(&storage, Some(namespace), None) {
            others.add(kind, &stored.object);
        }
    }
    others
}

fn cause(error: &FieldError) -> Cause {
    Cause::invalid(&error.path, &json!(error.value), error.cause.to_string())
}

/// What is wrong with an object before it is stored; nothing where these checks are off.
pub(crate) fn causes(
    store: &Store,
    kind: &Kind,
    object: &Value,
    checked_namespace: Option<&str>,
) -> Vec<Cause> {
    let (Some(rules), Some(config_namespace)) = (rules(kind), checked_namespace) else {
        return Vec::new();
    };
    let namespace = crate::crud::meta(object, "namespace");
    let found = validate::admit(rules, object, &others(store, namespace), config_namespace);
    found.iter().map(cause).collect()
}

/// What forbids a deletion.
pub(crate) fn delete_causes(store: &Store, kind: &Kind, namespace: &str, name: &str) -> Vec<Cause> {
    let Some(rules) = rules(kind) else {
        return Vec::new();
    };
    let found = validate::admit_delete(rules, name, &others(store, namespace));
    found.iter().map(cause).collect()
}
