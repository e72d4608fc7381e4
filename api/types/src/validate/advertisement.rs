//! Rules of `L2Advertisement` and `BGPAdvertisement`.

use std::collections::BTreeSet;

use api_model::IpFamily;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{
    Cause, FieldError, Others, duplicates, finding, name, pool, same, selector_text, selectors,
};
use crate::{
    BGPAdvertisement, BgpCommunity, IPAddressPool, L2Advertisement,
    selector::{self, Labels},
};

/// What is wrong with a layer 2 advertisement.
pub fn l2_advertisement(advertisement: &L2Advertisement, _others: &Others) -> Vec<FieldError> {
    let spec = &advertisement.spec;
    let mut errors = duplicates("spec.ipAddressPools", &spec.ip_address_pools);
    errors.extend(selectors(
        "spec.ipAddressPoolSelectors",
        &spec.ip_address_pool_selectors,
    ));
    errors.extend(selectors("spec.nodeSelectors", &spec.node_selectors));
    errors.extend(selectors("spec.serviceSelectors", &spec.service_selectors));
    errors.extend(duplicates("spec.interfaces", &spec.interfaces));
    for (at, preferred) in spec.preferred_node_selectors.iter().enumerate() {
        let path = format!("spec.preferredNodeSelectors[{at}]");
        if !(1..=100).contains(&preferred.weight) {
            let cause = Cause::OutOfRange { min: 1, max: 100 };
            errors.push(finding(
                format!("{path}.weight"),
                preferred.weight.to_string(),
                cause,
            ));
        }
        let text = selector_text(&preferred.preference);
        errors.extend(
            selector::check(&preferred.preference)
                .into_iter()
                .map(|error| finding(format!("{path}.preference"), &text, error)),
        );
    }
    errors
}

/// What is wrong with a BGP advertisement beside the others.
pub fn bgp_advertisement(advertisement: &BGPAdvertisement, others: &Others) -> Vec<FieldError> {
    let mut errors = own_rules(advertisement);
    if !errors.is_empty() {
        return errors;
    }
    for pool in &others.pools {
        errors.extend(aggregation(advertisement, pool).map(|(_, _, cause)| {
            let family = cause_family(&cause);
            let (field, length) = match family {
                IpFamily::V4 => (
                    "spec.aggregationLength",
                    advertisement.spec.aggregation_length(),
                ),
                IpFamily::V6 => (
                    "spec.aggregationLengthV6",
                    advertisement.spec.aggregation_length_v6(),
                ),
            };
            finding(field, length.to_string(), cause)
        }));
    }
    let rest = others
        .bgp_advertisements
        .iter()
        .filter(|other| !same(&other.metadata, &advertisement.metadata));
    for other in rest {
        if other.spec == advertisement.spec {
            let cause = Cause::Identical(name(&other.metadata).to_owned());
            errors.push(finding("spec", name(&advertisement.metadata), cause));
        } else if local_prefs_conflict(advertisement, other, &others.pools) {
            let cause = Cause::LocalPref {
                ours: advertisement.spec.local_pref,
                other: name(&other.metadata).to_owned(),
                theirs: other.spec.local_pref,
            };
            let ours = advertisement.spec.local_pref.to_string();
            errors.push(finding("spec.localPref", ours, cause));
        }
    }
    errors
}

/// Rules that need no other object.
fn own_rules(advertisement: &BGPAdvertisement) -> Vec<FieldError> {
    let spec = &advertisement.spec;
    let mut errors = duplicates("spec.ipAddressPools", &spec.ip_address_pools);
    errors.extend(selectors(
        "spec.ipAddressPoolSelectors",
        &spec.ip_address_pool_selectors,
    ));
    errors.extend(selectors("spec.nodeSelectors", &spec.node_selectors));
    errors.extend(selectors("spec.serviceSelectors", &spec.service_selectors));
    errors.extend(duplicates("spec.peers", &spec.peers));
    errors.extend(duplicates("spec.communities", &spec.communities));
    for (at, text) in spec.communities.iter().enumerate() {
        if !BgpCommunity::is_alias(text)
            && let Err(error) = text.parse::<BgpCommunity>()
        {
            errors.push(finding(format!("spec.communities[{at}]"), text, error));
        }
    }
    for (path, length, max) in [
        ("spec.aggregationLength", spec.aggregation_length(), 32_u8),
        (
            "spec.aggregationLengthV6",
            spec.aggregation_length_v6(),
            128,
        ),
    ] {
        if !(1..=i32::from(max)).contains(&length) {
            let cause = Cause::OutOfRange {
                min: 1,
                max: max.into(),
            };
            errors.push(finding(path, length.to_string(), cause));
        }
    }
    let aggregates = spec.aggregation_length() != 32 || spec.aggregation_length_v6() != 128;
    if aggregates && !spec.service_selectors.is_empty() {
        let text = spec
            .service_selectors
            .iter()
            .map(selector_text)
            .collect::<Vec<_>>();
        errors.push(finding(
            "spec.serviceSelectors",
            text.join(","),
            Cause::SelectorsWithAggregation,
        ));
    }
    errors
}

/// Ranges of the pool that an aggregate of the advertisement would reach beyond: index, text, cause.
pub(super) fn aggregation<'a>(
    advertisement: &'a BGPAdvertisement,
    pool: &'a IPAddressPool,
) -> impl Iterator<Item = (usize, &'a str, Cause)> {
    let spec = &advertisement.spec;
    pool::readable(pool)
        .filter(|_| selects(advertisement, pool))
        .filter_map(move |(at, text, range)| {
            let length = match range.family() {
                IpFamily::V4 => spec.aggregation_length(),
                IpFamily::V6 => spec.aggregation_length_v6(),
            };
            let length = u8::try_from(length).ok()?;
            // of a range that is no single prefix, the largest part decides, as in MetalLB
            let prefix = range
                .prefixes()
                .into_iter()
                .map(|(_, length)| length)
                .min()?;
            (length < prefix).then(|| {
                let cause = Cause::Aggregation {
                    length,
                    range: text.trim().to_owned(),
                    pool: name(&pool.metadata).to_owned(),
                    prefix,
                };
                (at, text, cause)
            })
        })
}

fn cause_family(cause: &Cause) -> IpFamily {
    let is_v6 = matches!(cause, Cause::Aggregation { range, .. } if range.contains(':'));
    if is_v6 { IpFamily::V6 } else { IpFamily::V4 }
}

/// Whether the advertisement is for this pool.
fn selects(advertisement: &BGPAdvertisement, pool: &IPAddressPool) -> bool {
    let spec = &advertisement.spec;
    if spec.ip_address_pools.is_empty() && spec.ip_address_pool_selectors.is_empty() {
        return true;
    }
    let labels: Labels = pool.metadata.labels.clone().unwrap_or_default();
    spec.ip_address_pools
        .iter()
        .any(|wanted| wanted == name(&pool.metadata))
        || spec
            .ip_address_pool_selectors
            .iter()
            .any(|selector| selector::matches(selector, &labels))
}

/// Whether both would send one prefix to one peer from one node with different values (RFC 4271 §5.1.5: a route has one).
fn local_prefs_conflict(
    a: &BGPAdvertisement,
    b: &BGPAdvertisement,
    pools: &[IPAddressPool],
) -> bool {
    a.spec.local_pref != b.spec.local_pref
        && !peers_apart(&a.spec.peers, &b.spec.peers)
        && !nodes_apart(&a.spec.node_selectors, &b.spec.node_selectors)
        && !nodes_apart(&a.spec.service_selectors, &b.spec.service_selectors)
        && share_a_prefix(a, b, pools)
}

fn peers_apart(a: &[String], b: &[String]) -> bool {
    !a.is_empty()
        && !b.is_empty()
        && a.iter()
            .collect::<BTreeSet<_>>()
            .is_disjoint(&b.iter().collect())
}

fn nodes_apart(a: &[LabelSelector], b: &[LabelSelector]) -> bool {
    selector::disjoint(a, b)
}

/// Whether a pool is announced by both in prefixes of one length. A pool that is named and not there may hold anything.
fn share_a_prefix(a: &BGPAdvertisement, b: &BGPAdvertisement, pools: &[IPAddressPool]) -> bool {
    let v4 = a.spec.aggregation_length() == b.spec.aggregation_length();
    let v6 = a.spec.aggregation_length_v6() == b.spec.aggregation_length_v6();
    let common = pools
        .iter()
        .filter(|pool| selects(a, pool) && selects(b, pool))
        .flat_map(pool::readable)
        .any(|(_, _, range)| match range.family() {
            IpFamily::V4 => v4,
            IpFamily::V6 => v6,
        });
    let known = |pool: &&String| {
        pools
            .iter()
            .any(|known| name(&known.metadata) == pool.as_str())
    };
    let absent = |ad: &BGPAdvertisement| -> BTreeSet<String> {
        ad.spec
            .ip_address_pools
            .iter()
            .filter(|pool| !known(pool))
            .cloned()
            .collect()
    };
    common || ((v4 || v6) && !absent(a).is_disjoint(&absent(b)))
}
