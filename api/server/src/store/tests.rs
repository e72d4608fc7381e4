//! The store's laws, against random histories.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Clone, Debug)]
enum Write {
    Create(u8, u8),
    Update(u8, u8),
    Delete(u8, u8),
}

fn writes() -> impl Strategy<Value = Vec<Write>> {
    let write = (0u8..3, 0u8..2, 0u8..6).prop_map(|(kind, resource, name)| match kind {
        0 => Write::Create(resource, name),
        1 => Write::Update(resource, name),
        _ => Write::Delete(resource, name),
    });
    prop::collection::vec(write, 0..120)
}

fn resource(number: u8) -> ResourceName {
    Arc::from(format!("r{number}"))
}

fn key(name: u8) -> ObjectKey {
    ObjectKey::new(format!("ns{}", name % 2), format!("o{name}"))
}

fn object() -> Value {
    json!({"metadata": {}})
}

fn apply(store: &mut Store, write: &Write) -> bool {
    match *write {
        Write::Create(r, n) => store.create(&resource(r), key(n), object()).is_ok(),
        Write::Update(r, n) => store.update(&resource(r), key(n), None, object()).is_ok(),
        Write::Delete(r, n) => store.delete(&resource(r), key(n), None, None).is_ok(),
    }
}

fn snapshot(store: &Store, resource: &str) -> BTreeMap<ObjectKey, Stored> {
    store
        .list(resource, None, None)
        .map(|(key, stored)| (key.clone(), stored.clone()))
        .collect()
}

proptest! {
    #[test]
    fn revision_grows_by_one_for_each_stored_write_and_never_otherwise(writes in writes()) {
        let mut store = Store::new(1000);
        for write in &writes {
            let before = store.revision();
            let stored = apply(&mut store, write);
            prop_assert_eq!(store.revision(), before + u64::from(stored));
        }
    }

    #[test]
    fn changes_after_any_remembered_revision_turn_the_list_then_into_the_list_now(writes in writes(), limit in 1usize..200) {
        let mut store = Store::new(limit);
        let mut history = vec![(store.revision(), BTreeMap::new())];
        for write in &writes {
            if apply(&mut store, write) {
                history.push((store.revision(), snapshot(&store, "r0")));
            }
        }
        let now = snapshot(&store, "r0");
        for (age, (revision, then)) in history.iter().rev().enumerate() {
            if age > limit {
                let oldest = store.oldest;
                prop_assert_eq!(store.list_at("r0", *revision), Err(StoreError::Expired { oldest }));
                prop_assert!(store.changes_after(*revision).is_err());
                continue;
            }
            prop_assert_eq!(&store.list_at("r0", *revision).unwrap(), then);
            let mut replayed = then.clone();
            let mut last = *revision;
            for change in store.changes_after(*revision).unwrap() {
                prop_assert!(change.revision > last);
                last = change.revision;
                if &*change.resource != "r0" { continue; }
                prop_assert_eq!(&change.before, &replayed.get(&change.key).cloned());
                match &change.after {
                    Some(after) => replayed.insert(change.key.clone(), after.clone()),
                    None => replayed.remove(&change.key),
                };
            }
            prop_assert_eq!(&replayed, &now);
        }
    }

    #[test]
    fn of_two_writers_with_the_same_version_one_wins(writes in writes(), name in 0u8..6, delete in any::<bool>()) {
        let mut store = Store::new(1000);
        for write in &writes { apply(&mut store, write); }
        let _ = store.create(&resource(0), key(name), object());
        let version = store.get("r0", &key(name)).unwrap().revision;
        let first = store.update(&resource(0), key(name), Some(version), object());
        prop_assert!(first.is_ok());
        let actual = store.revision();
        let second = if delete {
            store.delete(&resource(0), key(name), Some(version), None)
        } else {
            store.update(&resource(0), key(name), Some(version), object())
        };
        prop_assert_eq!(second, Err(StoreError::Conflict { actual }));
    }

    #[test]
    fn version_in_the_object_is_the_version_in_the_store(writes in writes()) {
        let mut store = Store::new(1000);
        for write in &writes { apply(&mut store, write); }
        for stored in snapshot(&store, "r0").values() {
            let expected = json!(stored.revision.to_string());
            prop_assert_eq!(&stored.object["metadata"]["resourceVersion"], &expected);
        }
    }
}

#[test]
fn list_keeps_to_its_namespace_and_starts_after_the_given_key() {
    let mut store = Store::new(10);
    for name in 0..6 {
        store.create(&resource(0), key(name), object()).unwrap();
    }
    let names = |namespace, start: Option<&ObjectKey>| {
        store
            .list("r0", namespace, start)
            .map(|(key, _)| key.name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(Some("ns0"), None), ["o0", "o2", "o4"]);
    assert_eq!(names(Some("ns0"), Some(&key(2))), ["o4"]);
    assert_eq!(names(None, Some(&key(2))), ["o4", "o1", "o3", "o5"]);
    assert_eq!(names(Some("none"), None), [""; 0]);
}

#[test]
fn deleted_object_is_shown_with_the_version_of_its_delete() {
    let mut store = Store::new(10);
    store.create(&resource(0), key(0), object()).unwrap();
    let last = store.delete(&resource(0), key(0), Some(2), None).unwrap();
    assert_eq!(*last, json!({"metadata": {"resourceVersion": "3"}}));
    assert_eq!(store.get("r0", &key(0)), None);
}
