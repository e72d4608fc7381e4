//! Which pools a Service may draw from, and in which order.
//!
//! Owns label selectors as pools use them and the order: priority ascending with 0 last, then pools that are made for
//! some Services before those for all, then by name. `MetalLB` leaves the order among equals to chance; here it is fixed.

use std::{cmp::Reverse, collections::BTreeSet};

use api_model::PoolName;

use crate::{
    claim::{Labels, ServiceClaim},
    pool::Pool,
};

/// A label selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// All of these labels with exactly these values.
    pub labels: Labels,
    /// All of these demands.
    pub demands: Vec<Demand>,
}

/// One entry of `matchExpressions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The label.
    pub key: String,
    /// What is demanded of it.
    pub operator: Operator,
}

/// What a demand says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label is there with one of the values.
    In(BTreeSet<String>),
    /// The label is not there, or with another value.
    NotIn(BTreeSet<String>),
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

impl Selector {
    /// Whether the labels satisfy all of it; the empty selector is satisfied by everything.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.demands.iter().all(|demand| {
                let found = labels.get(&demand.key);
                match &demand.operator {
                    Operator::In(values) => found.is_some_and(|value| values.contains(value)),
                    Operator::NotIn(values) => !found.is_some_and(|value| values.contains(value)),
                    Operator::Exists => found.is_some(),
                    Operator::DoesNotExist => found.is_none(),
                }
            })
    }
}

/// Why a pool is not for a Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotAllowed {
    #[error("not for this namespace")]
    Namespace,
    #[error("not for the labels of this Service")]
    Labels,
}

/// Whether the pool's `serviceAllocation` lets the Service in: namespace part and label part, each if given.
pub(crate) fn allows(
    pool: &Pool,
    claim: &ServiceClaim,
    namespace: Option<&Labels>,
) -> Result<(), NotAllowed> {
    let nothing = Labels::new();
    let namespace_labels = namespace.unwrap_or(&nothing);
    let any_namespace = pool.namespaces.is_empty() && pool.namespace_selectors.is_empty();
    if !any_namespace
        && !pool.namespaces.contains(&*claim.key.namespace)
        && !pool
            .namespace_selectors
            .iter()
            .any(|selector| selector.matches(namespace_labels))
    {
        return Err(NotAllowed::Namespace);
    }
    let selectors = &pool.service_selectors;
    if !selectors.is_empty()
        && !selectors
            .iter()
            .any(|selector| selector.matches(&claim.labels))
    {
        return Err(NotAllowed::Labels);
    }
    Ok(())
}

/// What pools are sorted by.
pub(crate) fn rank(pool: &Pool) -> (bool, u32, Reverse<bool>, PoolName) {
    let made_for_some = !pool.namespaces.is_empty()
        || !pool.namespace_selectors.is_empty()
        || !pool.service_selectors.is_empty();
    (
        pool.priority == 0,
        pool.priority,
        Reverse(made_for_some),
        pool.name.clone(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn demand(key: &str, operator: Operator) -> Selector {
        Selector {
            labels: Labels::new(),
            demands: vec![Demand {
                key: key.to_owned(),
                operator,
            }],
        }
    }

    #[test]
    fn selectors_mean_what_kubernetes_says() {
        let values = || BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        for (selector, on_a, on_c, without) in [
            (Selector::default(), true, true, true),
            (
                Selector {
                    labels: labels(&[("x", "a")]),
                    demands: Vec::new(),
                },
                true,
                false,
                false,
            ),
            (demand("x", Operator::In(values())), true, false, false),
            (demand("x", Operator::NotIn(values())), false, true, true),
            (demand("x", Operator::Exists), true, true, false),
            (demand("x", Operator::DoesNotExist), false, false, true),
        ] {
            let found = [&[("x", "a")][..], &[("x", "c")], &[]]
                .map(|pairs| selector.matches(&labels(pairs)));
            assert_eq!(found, [on_a, on_c, without], "{selector:?}");
        }
    }
}
