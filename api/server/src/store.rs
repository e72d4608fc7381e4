//! The store: objects by resource, namespace and name, one revision counter, and the log of the latest changes.
//!
//! Owns `resourceVersion`; never looks into an object otherwise, never blocks, knows neither clock nor network.
//! Source: the storage contract of the Kubernetes API conventions ("Concurrency Control and Consistency", "Efficient
//! detection of changes").
//!
//! Laws (property tests in `store/tests.rs`):
//! * the revision only grows, by one for each write that is stored;
//! * the changes after any remembered revision turn the list at that revision into the list now;
//! * of two writers that name the same revision of one object, one wins.
//!
//! Bounds: the log holds [`Store::new`]'s `log_limit` changes, the oldest fall out; whoever asks for something older
//! gets [`StoreError::Expired`] and lists again. No operation but a list is slower than logarithmic.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;

/// Name of a stored resource: `services`, `leases.coordination.k8s.io`.
pub(crate) type ResourceName = Arc<str>;

/// Namespace (empty for cluster scope) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    /// Empty when the resource has no namespaces.
    pub(crate) namespace: String,
    /// Object name.
    pub(crate) name: String,
}

impl ObjectKey {
    /// Key from its two parts.
    pub(crate) fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// One object and the revision of its last write.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    /// Also in `object.metadata.resourceVersion`.
    pub(crate) revision: u64,
    /// The whole object, shared with the log and with readers.
    pub(crate) object: Arc<Value>,
}

/// One stored write. `before` and `after` say what kind it was: nothing before is an add, nothing after a delete.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Revision that this write made.
    pub(crate) revision: u64,
    /// Which resource.
    pub(crate) resource: ResourceName,
    /// Which object.
    pub(crate) key: ObjectKey,
    /// State before, if there was one.
    pub(crate) before: Option<Stored>,
    /// State after; for a delete nothing, and `last` holds the final state with the revision of the delete.
    pub(crate) after: Option<Stored>,
    /// What a watcher is shown: the object after the write, or the last state of a deleted one.
    pub(crate) last: Arc<Value>,
}

/// Why a write or a look back is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StoreError {
    /// Create of something that is there.
    #[error("the object exists")]
    Exists,
    /// Write to something that is not there.
    #[error("the object does not exist")]
    NotFound,
    /// The named revision is not the object's.
    #[error("the object is at revision {actual}")]
    Conflict {
        /// Its revision now.
        actual: u64,
    },
    /// The log no longer reaches back that far.
    #[error("revision is older than {oldest}, the oldest remembered")]
    Expired {
        /// First revision that can still be asked for.
        oldest: u64,
    },
    /// Nothing was written at that revision yet.
    #[error("revision is newer than {current}, the current one")]
    Future {
        /// The revision now.
        current: u64,
    },
}

type Objects = BTreeMap<ObjectKey, Stored>;

/// Everything the server knows.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    oldest: u64,
    log_limit: usize,
    log: VecDeque<Change>,
    resources: BTreeMap<ResourceName, Objects>,
}

impl Store {
    /// An empty store at revision 1 that remembers `log_limit` changes (at least one).
    pub(crate) fn new(log_limit: usize) -> Self {
        let resources = BTreeMap::new();
        Self {
            revision: 1,
            oldest: 1,
            log_limit: log_limit.max(1),
            log: VecDeque::new(),
            resources,
        }
    }

    /// Revision of the last stored write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The object, if it is there.
    pub(crate) fn get(&self, resource: &str, key: &ObjectKey) -> Option<&Stored> {
        self.resources.get(resource)?.get(key)
    }

    /// Number of objects of a resource.
    pub(crate) fn count(&self, resource: &str) -> usize {
        self.resources.get(resource).map_or(0, BTreeMap::len)
    }

    /// Stores a new object and returns it with its `resourceVersion`.
    pub(crate) fn create(
        &mut self,
        resource: &ResourceName,
        key: ObjectKey,
        object: Value,
    ) -> Result<Arc<Value>, StoreError> {
        if self.get(resource, &key).is_some() {
            return Err(StoreError::Exists);
        }
        Ok(self.put(resource, key, None, object))
    }

    /// Replaces an object, if it is still at `expected` (when given).
    pub(crate) fn update(
        &mut self,
        resource: &ResourceName,
        key: ObjectKey,
        expected: Option<u64>,
        object: Value,
    ) -> Result<Arc<Value>, StoreError> {
        let before = self.expect(resource, &key, expected)?;
        Ok(self.put(resource, key, Some(before), object))
    }

    /// Removes an object, if it is still at `expected` (when given), and returns its last state with the revision of
    /// the removal. `last` replaces that state where the deleting write also changed it.
    pub(crate) fn delete(
        &mut self,
        resource: &ResourceName,
        key: ObjectKey,
        expected: Option<u64>,
        last: Option<Value>,
    ) -> Result<Arc<Value>, StoreError> {
        let before = self.expect(resource, &key, expected)?;
        self.revision += 1;
        let mut object = last.unwrap_or_else(|| Value::clone(&before.object));
        set_version(&mut object, self.revision);
        let last = Arc::new(object);
        if let Some(objects) = self.resources.get_mut(resource) {
            objects.remove(&key);
        }
        let (resource, revision) = (resource.clone(), self.revision);
        self.remember(Change {
            revision,
            resource,
            key,
            before: Some(before),
            after: None,
            last: last.clone(),
        });
        Ok(last)
    }

    /// Objects of a resource in key order, in one namespace or all, after `start` (exclusive) when given.
    pub(crate) fn list<'a>(
        &'a self,
        resource: &str,
        namespace: Option<&'a str>,
        start: Option<&ObjectKey>,
    ) -> impl Iterator<Item = (&'a ObjectKey, &'a Stored)> + use<'a> {
        let first = match (start, namespace) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, Some(namespace)) => Bound::Included(ObjectKey::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        let objects = self.resources.get(resource);
        let range = objects
            .into_iter()
            .flat_map(move |objects| objects.range((first.clone(), Bound::Unbounded)));
        range.take_while(move |(key, _)| {
            namespace.is_none_or(|namespace| key.namespace == namespace)
        })
    }

    /// All objects of a resource as they were at `revision`, made by undoing the log.
    pub(crate) fn list_at(
        &self,
        resource: &str,
        revision: u64,
    ) -> Result<BTreeMap<ObjectKey, Stored>, StoreError> {
        let mut objects = self.resources.get(resource).cloned().unwrap_or_default();
        let start = self.log_position(revision)?;
        for change in self
            .log
            .range(start..)
            .rev()
            .filter(|change| &*change.resource == resource)
        {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// Changes of all resources after `revision`, oldest first.
    pub(crate) fn changes_after(
        &self,
        revision: u64,
    ) -> Result<impl Iterator<Item = &Change>, StoreError> {
        Ok(self.log.range(self.log_position(revision)?..))
    }

    fn log_position(&self, revision: u64) -> Result<usize, StoreError> {
        if revision < self.oldest {
            return Err(StoreError::Expired {
                oldest: self.oldest,
            });
        }
        if revision > self.revision {
            return Err(StoreError::Future {
                current: self.revision,
            });
        }
        Ok(self
            .log
            .partition_point(|change| change.revision <= revision))
    }

    fn expect(
        &self,
        resource: &str,
        key: &ObjectKey,
        expected: Option<u64>,
    ) -> Result<Stored, StoreError> {
        let stored = self.get(resource, key).ok_or(StoreError::NotFound)?;
        match expected {
            Some(revision) if revision != stored.revision => Err(StoreError::Conflict {
                actual: stored.revision,
            }),
            _ => Ok(stored.clone()),
        }
    }

    fn put(
        &mut self,
        resource: &ResourceName,
        key: ObjectKey,
        before: Option<Stored>,
        mut object: Value,
    ) -> Arc<Value> {
        self.revision += 1;
        set_version(&mut object, self.revision);
        let object = Arc::new(object);
        let stored = Stored {
            revision: self.revision,
            object: object.clone(),
        };
        self.resources
            .entry(resource.clone())
            .or_default()
            .insert(key.clone(), stored.clone());
        let (resource, revision, last) = (resource.clone(), self.revision, object.clone());
        self.remember(Change {
            revision,
            resource,
            key,
            before,
            after: Some(stored),
            last,
        });
        object
    }

    fn remember(&mut self, change: Change) {
        self.log.push_back(change);
        if self.log.len() > self.log_limit
            && let Some(forgotten) = self.log.pop_front()
        {
            self.oldest = forgotten.revision;
        }
    }
}

fn set_version(object: &mut Value, revision: u64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert(
            "resourceVersion".into(),
            Value::String(revision.to_string()),
        );
    }
}

#[cfg(test)]
mod tests;
