use serde_json::{Value, json};

use super::*;

fn meta(name: &str, change: &Value) -> ObjectMeta {
    let mut meta = json!({"namespace": "demo", "name": name, "uid": format!("u-{name}")});
    for (key, value) in change.as_object().unwrap() {
        meta[key] = value.clone();
    }
    serde_json::from_value(meta).unwrap()
}

fn owned_by(owners: &[&str]) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .map(|owner| json!({"apiVersion": "v1", "kind": "Service", "name": owner, "uid": format!("u-{owner}"), "blockOwnerDeletion": true}))
        .collect();
    json!({ "ownerReferences": references })
}

fn graph(objects: &[(&str, Value)]) -> Graph {
    let mut graph = Graph::default();
    for (name, change) in objects {
        graph.apply("v1", "Thing", &meta(name, change));
    }
    graph
}

/// The actions in words.
fn words(graph: &mut Graph) -> Vec<String> {
    graph
        .actions()
        .into_iter()
        .map(|action| match action {
            Action::Verify(place) => {
                format!("verify {} {}/{}", place.kind, place.namespace, place.name)
            }
            Action::Delete(place) => format!("delete {}", place.name),
            Action::RemoveOwners(place, owners) => {
                format!(
                    "{} loses {}",
                    place.name,
                    owners.into_iter().collect::<Vec<_>>().join("+")
                )
            }
            Action::RemoveFinalizer(place, finalizer) => {
                format!("{} without {finalizer}", place.name)
            }
        })
        .collect()
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_dependent_goes_after_its_owner() {
    let mut graph = graph(&[("web", json!({})), ("slice", owned_by(&["web"]))]);
    assert_eq!(words(&mut graph), NOTHING);
    graph.delete("u-web");
    assert_eq!(words(&mut graph), ["delete slice"]);
    graph.delete("u-slice");
    assert_eq!(words(&mut graph), NOTHING);
    assert!(graph.dependents.is_empty() && graph.gone.is_empty() && graph.objects.is_empty());
}

#[test]
fn an_owner_that_is_not_known_is_looked_for_before_anything_goes() {
    let mut graph = graph(&[("slice", owned_by(&["web"]))]);
    assert_eq!(words(&mut graph), ["verify Service demo/web"]);
    // it is there, its watch is late
    graph.owner_is("u-web", true);
    assert_eq!(words(&mut graph), NOTHING);
    graph.retry("u-slice");
    assert_eq!(words(&mut graph), ["verify Service demo/web"]);
    graph.owner_is("u-web", false);
    assert_eq!(words(&mut graph), ["delete slice"]);
}

#[test]
fn an_owner_made_anew_under_the_same_name_is_another_one() {
    let mut graph = graph(&[("slice", owned_by(&["web"]))]);
    graph.apply("v1", "Service", &meta("web", &json!({"uid": "u-new"})));
    assert_eq!(words(&mut graph), ["verify Service demo/web"]);
}

#[test]
fn with_one_owner_left_only_the_other_reference_goes() {
    let mut graph = graph(&[
        ("a", json!({})),
        ("b", json!({})),
        ("slice", owned_by(&["a", "b"])),
    ]);
    graph.delete("u-a");
    assert_eq!(words(&mut graph), ["slice loses u-a"]);
    graph.apply("v1", "Thing", &meta("slice", &owned_by(&["b"])));
    assert_eq!(words(&mut graph), NOTHING);
    graph.delete("u-b");
    assert_eq!(words(&mut graph), ["delete slice"]);
}

#[test]
fn an_owner_deleted_in_the_foreground_goes_last() {
    let mut graph = graph(&[("web", json!({})), ("slice", owned_by(&["web"]))]);
    assert_eq!(words(&mut graph), NOTHING);
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FOREGROUND]});
    graph.apply("v1", "Service", &meta("web", &going));
    assert_eq!(words(&mut graph), ["delete slice"]);
    graph.delete("u-slice");
    assert_eq!(words(&mut graph), ["web without foregroundDeletion"]);
}

#[test]
fn an_owner_deleted_with_orphan_leaves_its_dependents() {
    let mut graph = graph(&[("web", json!({})), ("slice", owned_by(&["web"]))]);
    let going = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [ORPHAN]});
    graph.apply("v1", "Service", &meta("web", &going));
    assert_eq!(words(&mut graph), ["slice loses u-web"]);
    graph.apply("v1", "Thing", &meta("slice", &json!({})));
    assert_eq!(words(&mut graph), ["web without orphan"]);
}

#[test]
fn an_object_that_is_being_deleted_is_not_deleted_twice() {
    let mut slice = owned_by(&["web"]);
    slice["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut graph = graph(&[("web", json!({})), ("slice", slice)]);
    graph.delete("u-web");
    assert_eq!(words(&mut graph), NOTHING);
}

#[test]
fn a_chain_goes_one_after_the_other() {
    let mut graph = graph(&[
        ("a", json!({})),
        ("b", owned_by(&["a"])),
        ("c", owned_by(&["b"])),
    ]);
    graph.delete("u-a");
    assert_eq!(words(&mut graph), ["delete b"]);
    graph.delete("u-b");
    assert_eq!(words(&mut graph), ["delete c"]);
}
