//! What is known of a kind, and the difference that each list and event makes.
//!
//! Owns one `Arc` per object. Pure: objects in, changes out. Laws: after a list, what was told equals what was listed · an
//! object that did not change is not told again · one made anew under the same name is told as deleted and applied.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::{
    Resource,
    core::{ObjectMeta, error_boundary::InvalidObject},
};

use super::{Change, Invalid};

/// Namespace and name.
type Key = (String, String);

struct Known<K> {
    uid: Option<String>,
    version: Option<String>,
    object: Arc<K>,
}

pub(super) struct Cache<K> {
    known: BTreeMap<Key, Known<K>>,
    listed: BTreeSet<Key>,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            known: BTreeMap::new(),
            listed: BTreeSet::new(),
        }
    }
}

fn key(meta: &ObjectMeta) -> Key {
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn unreadable<K>(broken: InvalidObject) -> Change<K> {
    let (namespace, name) = key(&broken.metadata);
    Change::Invalid(Arc::new(Invalid {
        namespace,
        name,
        uid: broken.metadata.uid.unwrap_or_default(),
        error: broken.error,
    }))
}

impl<K: Resource> Cache<K> {
    /// A list begins; one that was cut short is forgotten.
    pub(super) fn begin_list(&mut self) {
        self.listed.clear();
    }

    /// The list holds this object.
    pub(super) fn listed(&mut self, object: Result<K, InvalidObject>) -> Vec<Change<K>> {
        let meta = object.as_ref().map_or_else(|e| &e.metadata, K::meta);
        self.listed.insert(key(meta));
        self.applied(object)
    }

    /// The list is complete: what it did not hold is gone.
    pub(super) fn end_list(&mut self) -> Vec<Change<K>> {
        let listed = std::mem::take(&mut self.listed);
        let gone: Vec<Key> = self
            .known
            .keys()
            .filter(|key| !listed.contains(*key))
            .cloned()
            .collect();
        gone.iter()
            .filter_map(|key| self.known.remove(key))
            .map(|known| Change::Delete(known.object))
            .collect()
    }

    /// The object was written.
    pub(super) fn applied(&mut self, object: Result<K, InvalidObject>) -> Vec<Change<K>> {
        let object = match object {
            Ok(object) => object,
            Err(broken) => return vec![unreadable(broken)],
        };
        let meta = object.meta();
        let (uid, version) = (meta.uid.clone(), meta.resource_version.clone());
        let key = key(meta);
        let mut changes = Vec::new();
        if let Some(known) = self.known.get(&key) {
            if known.uid != uid {
                changes.push(Change::Delete(Arc::clone(&known.object)));
            } else if version.is_some() && known.version == version {
                return changes;
            }
        }
        let object = Arc::new(object);
        let known = Known {
            uid,
            version,
            object: Arc::clone(&object),
        };
        self.known.insert(key, known);
        changes.push(Change::Apply(object));
        changes
    }

    /// The object was deleted.
    pub(super) fn deleted(&mut self, object: Result<K, InvalidObject>) -> Vec<Change<K>> {
        let (key, last) = match object {
            Ok(object) => (key(object.meta()), Some(Arc::new(object))),
            Err(broken) => (key(&broken.metadata), None),
        };
        self.listed.remove(&key);
        let Some(known) = self.known.remove(&key) else {
            return Vec::new();
        };
        vec![Change::Delete(last.unwrap_or(known.object))]
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn map(name: &str, uid: &str, version: &str) -> ConfigMap {
        serde_json::from_value(json!({
            "metadata": {"namespace": "demo", "name": name, "uid": uid, "resourceVersion": version},
        }))
        .unwrap()
    }

    fn broken(name: &str) -> InvalidObject {
        InvalidObject {
            error: "data: not a map".to_owned(),
            metadata: map(name, "u9", "9").metadata,
        }
    }

    /// The changes as words.
    fn words(changes: Vec<Change<ConfigMap>>) -> Vec<String> {
        let at = |object: &ConfigMap| {
            let meta = &object.metadata;
            format!(
                "{} {} {}",
                meta.name.as_deref().unwrap(),
                meta.uid.as_deref().unwrap(),
                meta.resource_version.as_deref().unwrap()
            )
        };
        changes
            .into_iter()
            .map(|change| match change {
                Change::Apply(object) => format!("apply {}", at(&object)),
                Change::Delete(object) => format!("delete {}", at(&object)),
                Change::Invalid(invalid) => format!("invalid {}: {}", invalid.name, invalid.error),
                Change::Synced => "synced".to_owned(),
            })
            .collect()
    }

    #[test]
    fn a_further_list_tells_the_difference_only() {
        let mut cache = Cache::default();
        cache.begin_list();
        for (name, uid, version) in [
            ("a", "u1", "1"),
            ("b", "u2", "2"),
            ("c", "u3", "3"),
            ("d", "u4", "4"),
        ] {
            cache.listed(Ok(map(name, uid, version)));
        }
        assert_eq!(words(cache.end_list()), [""; 0]);
        cache.begin_list();
        assert_eq!(words(cache.listed(Ok(map("a", "u1", "1")))), [""; 0]);
        assert_eq!(
            words(cache.listed(Ok(map("b", "u2", "7")))),
            ["apply b u2 7"]
        );
        assert_eq!(
            words(cache.listed(Ok(map("c", "u5", "8")))),
            ["delete c u3 3", "apply c u5 8"]
        );
        assert_eq!(words(cache.end_list()), ["delete d u4 4"]);
    }

    #[test]
    fn a_list_that_was_cut_short_deletes_nothing() {
        let mut cache = Cache::default();
        cache.begin_list();
        cache.listed(Ok(map("a", "u1", "1")));
        cache.listed(Ok(map("b", "u2", "2")));
        cache.end_list();
        cache.begin_list();
        cache.listed(Ok(map("a", "u1", "1")));
        // cut; the next list holds b alone
        cache.begin_list();
        cache.listed(Ok(map("b", "u2", "2")));
        assert_eq!(words(cache.end_list()), ["delete a u1 1"]);
    }

    #[test]
    fn an_unreadable_object_leaves_what_was_told_in_force() {
        let mut cache = Cache::default();
        cache.applied(Ok(map("a", "u9", "1")));
        assert_eq!(
            words(cache.applied(Err(broken("a")))),
            ["invalid a: data: not a map"]
        );
        cache.begin_list();
        assert_eq!(
            words(cache.listed(Err(broken("a")))),
            ["invalid a: data: not a map"]
        );
        assert_eq!(words(cache.end_list()), [""; 0]);
        assert_eq!(words(cache.deleted(Err(broken("a")))), ["delete a u9 1"]);
    }

    #[test]
    fn a_deletion_is_told_once_with_the_last_state() {
        let mut cache = Cache::default();
        cache.applied(Ok(map("a", "u1", "1")));
        assert_eq!(
            words(cache.deleted(Ok(map("a", "u1", "5")))),
            ["delete a u1 5"]
        );
        assert_eq!(words(cache.deleted(Ok(map("a", "u1", "5")))), [""; 0]);
    }
}
