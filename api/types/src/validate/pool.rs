//! Rules of `IPAddressPool`.

use api_model::AddressRange;

use super::{Cause, FieldError, Others, advertisement, duplicates, finding, name, same, selectors};
use crate::IPAddressPool;

/// What is wrong with a pool beside the others.
pub fn ip_address_pool(pool: &IPAddressPool, others: &Others) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if pool.spec.addresses.is_empty() {
        errors.push(finding("spec.addresses", "", Cause::Empty));
    }
    errors.extend(ranges(pool, others));
    if let Some(allocation) = &pool.spec.service_allocation {
        let path = |field: &str| format!("spec.serviceAllocation.{field}");
        errors.extend(duplicates(&path("namespaces"), &allocation.namespaces));
        errors.extend(selectors(
            &path("namespaceSelectors"),
            &allocation.namespace_selectors,
        ));
        errors.extend(selectors(
            &path("serviceSelectors"),
            &allocation.service_selectors,
        ));
        if allocation.priority < 0 {
            let cause = Cause::OutOfRange {
                min: 0,
                max: i32::MAX.unsigned_abs().into(),
            };
            errors.push(finding(
                path("priority"),
                allocation.priority.to_string(),
                cause,
            ));
        }
    }
    if errors.is_empty() {
        for advertisement in &others.bgp_advertisements {
            errors
                .extend(advertisement::aggregation(advertisement, pool).map(
                    |(at, text, cause)| finding(format!("spec.addresses[{at}]"), text, cause),
                ));
        }
    }
    errors
}

/// Ranges that are malformed, or have addresses in common with an earlier one or with another pool.
fn ranges(pool: &IPAddressPool, others: &Others) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut taken: Vec<(&str, &str, AddressRange)> = others
        .pools
        .iter()
        .filter(|other| !same(&other.metadata, &pool.metadata))
        .flat_map(|other| {
            readable(other).map(|(_, text, range)| (name(&other.metadata), text, range))
        })
        .collect();
    for (at, text) in pool.spec.addresses.iter().enumerate() {
        let path = format!("spec.addresses[{at}]");
        let pool = name(&pool.metadata);
        let range = match AddressRange::parse_assignable(text) {
            Ok(range) => range,
            Err(error) => {
                let cause = Cause::Range {
                    pool: pool.to_owned(),
                    error,
                };
                errors.push(finding(path, text, cause));
                continue;
            }
        };
        let overlap = taken
            .iter()
            .find(|(_, _, other)| range.intersection(other).is_some());
        if let Some(&(other_pool, other, _)) = overlap {
            let cause = Cause::Overlap {
                range: text.trim().to_owned(),
                pool: pool.to_owned(),
                other: other.trim().to_owned(),
                other_pool: other_pool.to_owned(),
            };
            errors.push(finding(path, text, cause));
        }
        taken.push((pool, text, range));
    }
    errors
}

/// The ranges of a pool that can be read, with their index and text.
pub(super) fn readable(pool: &IPAddressPool) -> impl Iterator<Item = (usize, &str, AddressRange)> {
    pool.spec
        .addresses
        .iter()
        .enumerate()
        .filter_map(|(at, text)| Some((at, text.as_str(), text.parse().ok()?)))
}
