//! Label selectors: does one match, is it well formed, can two match the same thing?
//!
//! Owns the meaning of `matchLabels` and `matchExpressions`. A malformed selector matches nothing; [`check`] says why.
//! Source: Kubernetes `metav1.LabelSelector`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// What is wrong with a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// An operator that is not one of the four.
    #[error(
        "{0:?} is not a valid label selector operator: write In, NotIn, Exists or DoesNotExist"
    )]
    Operator(String),
    /// `In` or `NotIn` without values.
    #[error("values must be given for operator {operator} on key {key:?}")]
    NoValues {
        /// The operator.
        operator: String,
        /// The key.
        key: String,
    },
    /// `Exists` or `DoesNotExist` with values.
    #[error("values may not be given for operator {operator} on key {key:?}")]
    Values {
        /// The operator.
        operator: String,
        /// The key.
        key: String,
    },
    /// No key.
    #[error("a match expression has no key")]
    NoKey,
    /// The same expression twice.
    #[error("duplicate match expression on key {0:?}")]
    Duplicate(String),
}

/// Whether the labels satisfy the selector. The empty selector matches everything.
pub fn matches(selector: &LabelSelector, labels: &Labels) -> bool {
    selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value))
        && selector
            .match_expressions
            .iter()
            .flatten()
            .all(|demand| satisfies(demand, labels))
}

/// Whether the labels satisfy at least one selector; with no selector there is nothing to satisfy, so they do.
pub fn matches_any_or_none_given(selectors: &[LabelSelector], labels: &Labels) -> bool {
    selectors.is_empty() || selectors.iter().any(|selector| matches(selector, labels))
}

fn satisfies(demand: &LabelSelectorRequirement, labels: &Labels) -> bool {
    let found = labels.get(&demand.key);
    let listed = |value: &String| demand.values.iter().flatten().any(|wanted| wanted == value);
    match demand.operator.as_str() {
        "In" => found.is_some_and(listed),
        "NotIn" => !found.is_some_and(listed),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        _ => false,
    }
}

/// Everything that is wrong with a selector.
pub fn check(selector: &LabelSelector) -> Vec<SelectorError> {
    let mut errors = Vec::new();
    let mut seen = Vec::new();
    for demand in selector.match_expressions.iter().flatten() {
        let values = demand.values.as_deref().unwrap_or_default();
        let (operator, key) = (demand.operator.clone(), demand.key.clone());
        if key.is_empty() {
            errors.push(SelectorError::NoKey);
        }
        match demand.operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                errors.push(SelectorError::NoValues { operator, key });
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.push(SelectorError::Values { operator, key });
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(SelectorError::Operator(operator)),
        }
        if seen.contains(&demand) {
            errors.push(SelectorError::Duplicate(demand.key.clone()));
        }
        seen.push(demand);
    }
    errors
}

/// Whether two lists of selectors (each one an "or", the empty list "everything") provably match no common label set.
/// `false` means "they may": two selectors on different keys are not disjoint.
pub fn disjoint(one: &[LabelSelector], other: &[LabelSelector]) -> bool {
    !one.is_empty()
        && !other.is_empty()
        && one
            .iter()
            .all(|a| other.iter().all(|b| disjoint_pair(a, b)))
}

/// What a selector demands of one key.
#[derive(Default)]
struct Demand<'a> {
    present: bool,
    absent: bool,
    within: Option<BTreeSet<&'a str>>,
    without: BTreeSet<&'a str>,
}

impl<'a> Demand<'a> {
    /// Must have one of these values.
    fn narrow(&mut self, values: BTreeSet<&'a str>) {
        self.present = true;
        self.within = Some(match self.within.take() {
            Some(before) => before.intersection(&values).copied().collect(),
            None => values,
        });
    }

    /// Whether no label can satisfy it.
    fn is_impossible(&self) -> bool {
        (self.present && self.absent)
            || self
                .within
                .as_ref()
                .is_some_and(|within| within.is_subset(&self.without))
    }
}

fn disjoint_pair(one: &LabelSelector, other: &LabelSelector) -> bool {
    let mut demands: BTreeMap<&str, Demand<'_>> = BTreeMap::new();
    for selector in [one, other] {
        for (key, value) in selector.match_labels.iter().flatten() {
            demands
                .entry(key)
                .or_default()
                .narrow(BTreeSet::from([value.as_str()]));
        }
        for demand in selector.match_expressions.iter().flatten() {
            let values = demand.values.iter().flatten().map(String::as_str).collect();
            let entry = demands.entry(&demand.key).or_default();
            match demand.operator.as_str() {
                "In" => entry.narrow(values),
                "NotIn" => entry.without.extend(values),
                "Exists" => entry.present = true,
                "DoesNotExist" => entry.absent = true,
                // matches nothing, so it has nothing in common with anything
                _ => return true,
            }
        }
    }
    demands.values().any(Demand::is_impossible)
}

#[cfg(test)]
mod tests;
