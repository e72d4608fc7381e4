use serde_json::json;

use super::*;

fn selector(value: serde_json::Value) -> LabelSelector {
    serde_json::from_value(value).unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn expression(key: &str, operator: &str, values: &[&str]) -> LabelSelector {
    selector(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
}

#[test]
fn a_selector_matches_by_its_labels_and_expressions() {
    let rack = labels(&[("rack", "a"), ("disk", "")]);
    for (text, wanted) in [
        (json!({}), true),
        (json!({"matchLabels": {"rack": "a"}}), true),
        (json!({"matchLabels": {"rack": "b"}}), false),
        (json!({"matchLabels": {"rack": "a", "zone": "x"}}), false),
    ] {
        assert_eq!(matches(&selector(text.clone()), &rack), wanted, "{text}");
    }
    for (key, operator, values, wanted) in [
        ("rack", "In", &["a", "b"][..], true),
        ("rack", "In", &["b"], false),
        ("zone", "In", &["x"], false),
        ("rack", "NotIn", &["a"], false),
        ("rack", "NotIn", &["b"], true),
        ("zone", "NotIn", &["x"], true),
        ("disk", "Exists", &[], true),
        ("zone", "Exists", &[], false),
        ("zone", "DoesNotExist", &[], true),
        ("disk", "DoesNotExist", &[], false),
        ("rack", "Equals", &["a"], false),
    ] {
        assert_eq!(
            matches(&expression(key, operator, values), &rack),
            wanted,
            "{key} {operator} {values:?}"
        );
    }
}

#[test]
fn no_selector_means_everything_and_one_of_several_is_enough() {
    let node = labels(&[("rack", "a")]);
    let a = selector(json!({"matchLabels": {"rack": "a"}}));
    let b = selector(json!({"matchLabels": {"rack": "b"}}));
    assert!(matches_any_or_none_given(&[], &node));
    assert!(matches_any_or_none_given(&[b.clone(), a], &node));
    assert!(!matches_any_or_none_given(&[b], &node));
}

#[test]
fn a_malformed_selector_is_explained() {
    let error = |selector: LabelSelector| check(&selector);
    assert_eq!(error(expression("a", "In", &["x"])), []);
    assert_eq!(
        error(expression("a", "in", &["x"])),
        [SelectorError::Operator("in".to_owned())]
    );
    assert_eq!(
        error(expression("a", "NotIn", &[])),
        [SelectorError::NoValues {
            operator: "NotIn".to_owned(),
            key: "a".to_owned()
        }]
    );
    assert_eq!(
        error(expression("", "Exists", &["x"])),
        [
            SelectorError::NoKey,
            SelectorError::Values {
                operator: "Exists".to_owned(),
                key: String::new()
            }
        ]
    );
    let demand = json!({"key": "a", "operator": "Exists"});
    assert_eq!(
        error(selector(json!({"matchExpressions": [demand, demand]}))),
        [SelectorError::Duplicate("a".to_owned())]
    );
}

#[test]
fn disjoint_selectors_are_told_from_those_that_may_meet() {
    let label = |value: &str| selector(json!({"matchLabels": {"host": value}}));
    assert!(disjoint(&[label("a")], &[label("b")]));
    assert!(disjoint(&[label("a"), label("b")], &[label("c")]));
    assert!(!disjoint(&[label("a"), label("b")], &[label("b")]));
    assert!(!disjoint(&[], &[label("b")]));
    assert!(!disjoint(
        &[label("a")],
        &[selector(json!({"matchLabels": {"rack": "b"}}))]
    ));
    assert!(disjoint(
        &[label("a")],
        &[expression("host", "NotIn", &["a"])]
    ));
    assert!(disjoint(
        &[label("a")],
        &[expression("host", "DoesNotExist", &[])]
    ));
    assert!(!disjoint(
        &[label("a")],
        &[expression("host", "Exists", &[])]
    ));
    assert!(!disjoint(
        &[label("a")],
        &[expression("host", "In", &["a", "b"])]
    ));
}

/// The law: what is called disjoint never meets, over every label set of a small world.
#[test]
fn no_label_set_satisfies_two_disjoint_selectors() {
    let mut all = vec![LabelSelector::default()];
    for key in ["k", "l"] {
        for values in [&["a"][..], &["b"], &["a", "b"]] {
            all.push(expression(key, "In", values));
            all.push(expression(key, "NotIn", values));
        }
        all.push(expression(key, "Exists", &[]));
        all.push(expression(key, "DoesNotExist", &[]));
        all.push(selector(json!({"matchLabels": {key: "a"}})));
    }
    let values = [None, Some("a"), Some("b"), Some("c")];
    let mut worlds = Vec::new();
    for k in values {
        for l in values {
            let pairs: Vec<_> = [("k", k), ("l", l)]
                .into_iter()
                .filter_map(|(key, value)| Some((key, value?)))
                .collect();
            worlds.push(labels(&pairs));
        }
    }
    for a in &all {
        for b in &all {
            let meet = worlds
                .iter()
                .any(|world| matches(a, world) && matches(b, world));
            assert_eq!(
                disjoint(std::slice::from_ref(a), std::slice::from_ref(b)),
                !meet,
                "{a:?} and {b:?}"
            );
        }
    }
}
