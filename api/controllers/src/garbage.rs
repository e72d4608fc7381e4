//! Who must go because its owners are gone.
//!
//! Owns the graph of objects and owner references, and what follows from it. Pure: objects in, actions out. An owner that is
//! not in the graph is not believed to be gone until the shell has looked: watches of two kinds are not in step.
//!
//! Laws: an object with an owner that exists is never deleted · one whose owners are all gone is · one that still has an
//! owner loses the references to those that are gone · an owner deleted with "foreground" goes after what blocks it, one
//! deleted with "orphan" leaves its dependents.
//!
//! Source: Kubernetes "Garbage Collection" (owners and dependents, cascading deletion).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

mod shell;

pub(crate) use shell::run;

/// Finalizer of an object that was deleted with "foreground".
const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an object that was deleted with "orphan".
const ORPHAN: &str = "orphan";

/// `metadata.uid`.
type Uid = String;

/// Where an object is found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// `v1`, `apps/v1`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for a cluster-scoped kind.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: Uid,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look whether this owner exists, and say so by [`Graph::owner_is`].
    Verify(Place),
    /// Delete the object in the background.
    Delete(Place),
    /// Take the references to these owners out of the object.
    RemoveOwners(Place, BTreeSet<Uid>),
    /// Take this finalizer out of the object.
    RemoveFinalizer(Place, &'static str),
}

/// An object as far as its owners go.
#[derive(Clone, Debug)]
struct Object {
    place: Place,
    owners: Vec<OwnerReference>,
    deleting: bool,
    finalizers: Vec<String>,
}

impl Object {
    fn waits_with(&self, finalizer: &str) -> bool {
        self.deleting && self.finalizers.iter().any(|found| found == finalizer)
    }
}

/// Objects and who owns them.
#[derive(Debug, Default)]
pub struct Graph {
    objects: BTreeMap<Uid, Object>,
    dependents: BTreeMap<Uid, BTreeSet<Uid>>,
    /// Owners that were looked for and not found. A uid never comes back.
    gone: BTreeSet<Uid>,
    dirty: BTreeSet<Uid>,
}

impl Graph {
    /// The object is there, in this state.
    pub fn apply(&mut self, api_version: &str, kind: &str, meta: &ObjectMeta) {
        let Some(uid) = meta.uid.clone() else { return };
        let object = Object {
            place: Place {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone().unwrap_or_default(),
                uid: uid.clone(),
            },
            owners: meta.owner_references.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
        };
        self.unlink(&uid);
        for owner in &object.owners {
            self.dependents
                .entry(owner.uid.clone())
                .or_default()
                .insert(uid.clone());
        }
        if object.deleting {
            self.dirty
                .extend(self.dependents.get(&uid).into_iter().flatten().cloned());
        }
        self.objects.insert(uid.clone(), object);
        self.dirty.insert(uid);
    }

    /// The object is gone.
    pub fn delete(&mut self, uid: &str) {
        self.unlink(uid);
        if self.objects.remove(uid).is_some() {
            self.dirty.remove(uid);
            if let Some(dependents) = self.dependents.get(uid) {
                self.gone.insert(uid.to_owned());
                self.dirty.extend(dependents.iter().cloned());
            }
        }
    }

    /// Answer to [`Action::Verify`]: whether the owner exists. Without an answer the question comes again at the next
    /// [`retry`](Self::retry).
    pub fn owner_is(&mut self, uid: &str, there: bool) {
        if !there && self.dependents.contains_key(uid) {
            self.gone.insert(uid.to_owned());
            self.dirty
                .extend(self.dependents.get(uid).into_iter().flatten().cloned());
        }
    }

    /// Looks at an object again: what was to be done with it failed.
    pub fn retry(&mut self, uid: &str) {
        if self.objects.contains_key(uid) {
            self.dirty.insert(uid.to_owned());
        }
    }

    /// The objects that name this owner.
    pub fn dependents_of(&self, owner: &str) -> Vec<String> {
        self.dependents
            .get(owner)
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// What is to be done now.
    pub fn actions(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        for uid in std::mem::take(&mut self.dirty) {
            if let Some(object) = self.objects.get(&uid) {
                self.as_dependent(object, &mut actions);
                self.as_owner(object, &mut actions);
            }
        }
        actions
    }

    /// What follows from the owners of an object.
    fn as_dependent(&self, object: &Object, actions: &mut Vec<Action>) {
        if object.deleting || object.owners.is_empty() {
            return;
        }
        let mut gone = BTreeSet::new();
        let mut waiting = BTreeSet::new();
        let mut solid = false;
        let mut unknown = Vec::new();
        for owner in &object.owners {
            match self.objects.get(&owner.uid) {
                Some(found) if found.waits_with(FOREGROUND) => {
                    waiting.insert(owner.uid.clone());
                }
                Some(_) => solid = true,
                None if self.gone.contains(&owner.uid) => _ = gone.insert(owner.uid.clone()),
                None => unknown.push(place_of(owner, object)),
            }
        }
        if !unknown.is_empty() {
            actions.extend(unknown.into_iter().map(Action::Verify));
        } else if !solid {
            actions.push(Action::Delete(object.place.clone()));
        } else if !gone.is_empty() || !waiting.is_empty() {
            gone.append(&mut waiting);
            actions.push(Action::RemoveOwners(object.place.clone(), gone));
        }
    }

    /// What follows from an object being deleted with a policy.
    fn as_owner(&self, object: &Object, actions: &mut Vec<Action>) {
        let uid = &object.place.uid;
        let dependents: Vec<&Object> = self
            .dependents
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|uid| self.objects.get(uid))
            .collect();
        if object.waits_with(ORPHAN) {
            actions.extend(dependents.iter().map(|dependent| {
                Action::RemoveOwners(dependent.place.clone(), BTreeSet::from([uid.clone()]))
            }));
            if dependents.is_empty() {
                actions.push(Action::RemoveFinalizer(object.place.clone(), ORPHAN));
            }
        } else if object.waits_with(FOREGROUND) {
            let blocks = |dependent: &&Object| {
                dependent
                    .owners
                    .iter()
                    .any(|owner| owner.uid == *uid && owner.block_owner_deletion == Some(true))
            };
            if !dependents.iter().any(blocks) {
                actions.push(Action::RemoveFinalizer(object.place.clone(), FOREGROUND));
            }
        }
    }

    /// Takes the object out of the lists of its owners, who may wait for that.
    fn unlink(&mut self, uid: &str) {
        let owners: Vec<Uid> = self
            .objects
            .get(uid)
            .into_iter()
            .flat_map(|object| object.owners.iter().map(|owner| owner.uid.clone()))
            .collect();
        for owner in owners {
            if let Some(dependents) = self.dependents.get_mut(&owner) {
                dependents.remove(uid);
                if dependents.is_empty() {
                    self.dependents.remove(&owner);
                    self.gone.remove(&owner);
                }
            }
            if self.objects.get(&owner).is_some_and(|owner| owner.deleting) {
                self.dirty.insert(owner);
            }
        }
    }
}

/// Where an owner should be: beside its dependent, unless the shell knows that its kind is cluster-scoped.
fn place_of(owner: &OwnerReference, dependent: &Object) -> Place {
    Place {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        namespace: dependent.place.namespace.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    }
}

#[cfg(test)]
mod tests;
