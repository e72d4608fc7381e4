//! `IPAddressPool` → [`Pool`].

use allocator_core::{Demand, Operator, Pool, PoolCounters, Selector};
use api_model::PoolName;
use api_types::{IPAddressPool, ServiceAllocation, selector};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;

/// The pool that an object describes; what is wrong beside the addresses becomes its mistake.
pub fn pool(object: &IPAddressPool) -> Pool {
    let spec = &object.spec;
    let nothing = ServiceAllocation::default();
    let allocation = spec.service_allocation.as_ref().unwrap_or(&nothing);
    let priority = u32::try_from(allocation.priority);
    let negative = priority.is_err().then(|| {
        format!(
            "spec.serviceAllocation.priority: {} is negative, write 0 (last) or more",
            allocation.priority
        )
    });
    let bad_selector = selectors_with_names(allocation).find_map(|(name, selector)| {
        let error = selector::check(selector).into_iter().next()?;
        Some(format!("spec.serviceAllocation.{name}: {error}"))
    });
    let created = object.metadata.creation_timestamp.as_ref();
    Pool {
        name: object.name_any().into(),
        created: created.map_or(0, |time| time.0.as_second()),
        addresses: spec.addresses.clone(),
        auto_assign: spec.auto_assign(),
        avoid_buggy: spec.avoid_buggy_ips,
        priority: priority.unwrap_or_default(),
        namespaces: allocation.namespaces.iter().cloned().collect(),
        namespace_selectors: allocation
            .namespace_selectors
            .iter()
            .map(read_selector)
            .collect(),
        service_selectors: allocation
            .service_selectors
            .iter()
            .map(read_selector)
            .collect(),
        mistake: negative.or(bad_selector),
        shown: object.status.as_ref().map(|status| PoolCounters {
            assigned_v4: status.assigned_ipv4,
            assigned_v6: status.assigned_ipv6,
            available_v4: status.available_ipv4,
            available_v6: status.available_ipv6,
        }),
    }
}

/// A pool whose stored object can't be read: hands nothing out, keeps what it was known to hold.
pub fn unreadable_pool(name: &str, error: &str, before: Option<Pool>) -> Pool {
    let mistake = Some(format!("the object can't be read: {error}"));
    let name: PoolName = name.into();
    match before {
        Some(before) => Pool { mistake, ..before },
        None => Pool {
            mistake,
            ..Pool::new(name.as_str(), &[])
        },
    }
}

fn selectors_with_names(
    allocation: &ServiceAllocation,
) -> impl Iterator<Item = (String, &LabelSelector)> {
    let named = |name: &'static str| {
        move |(place, selector): (usize, _)| (format!("{name}[{place}]"), selector)
    };
    let namespaces = allocation
        .namespace_selectors
        .iter()
        .enumerate()
        .map(named("namespaceSelectors"));
    namespaces.chain(
        allocation
            .service_selectors
            .iter()
            .enumerate()
            .map(named("serviceSelectors")),
    )
}

/// A selector as the core knows it. A demand with an unknown operator is left out: the pool has a mistake then.
fn read_selector(selector: &LabelSelector) -> Selector {
    Selector {
        labels: selector.match_labels.clone().unwrap_or_default(),
        demands: selector
            .match_expressions
            .iter()
            .flatten()
            .filter_map(read_demand)
            .collect(),
    }
}

fn read_demand(demand: &LabelSelectorRequirement) -> Option<Demand> {
    let values = || demand.values.iter().flatten().cloned().collect();
    let operator = match demand.operator.as_str() {
        "In" => Operator::In(values()),
        "NotIn" => Operator::NotIn(values()),
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    Some(Demand {
        key: demand.key.clone(),
        operator,
    })
}
