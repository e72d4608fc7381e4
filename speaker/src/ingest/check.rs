//! Leaves out stored configuration that breaks a rule, and names the fields that do nothing yet.
//!
//! Owns the step between the tables and the views: what admission would have refused can still be stored (admission was
//! down, another server wrote it), and must neither stop the rest nor be half applied. The rules are `api_types::validate`.

use std::{collections::BTreeMap, sync::Arc};

use api_types::{
    deferred_fields,
    validate::{self, Others},
};
use kube::{Resource, ResourceExt};

use super::{Configuration, Facts, Finding};

impl Facts {
    /// Makes [`Facts::config`] the part of [`Facts::stored`] that can be used. To be called after configuration changed.
    pub fn check(&mut self) -> Vec<Finding> {
        let (config, findings) = usable(&self.stored);
        self.config = config;
        findings
    }
}

/// The configuration without what can't be used, and what was found.
fn usable(stored: &Configuration) -> (Configuration, Vec<Finding>) {
    let (good, bad) = validate::stored(Others {
        pools: owned(&stored.pools),
        l2_advertisements: owned(&stored.l2_advertisements),
        bgp_advertisements: owned(&stored.bgp_advertisements),
        peers: owned(&stored.bgp_peers),
        bfd_profiles: owned(&stored.bfd_profiles),
        communities: owned(&stored.communities),
    });
    let mut findings: Vec<Finding> = bad
        .into_iter()
        .map(|finding| {
            let errors: Vec<String> = finding.errors.iter().map(ToString::to_string).collect();
            Finding::fatal(finding.kind.as_str(), &finding.name, errors.join("; "))
        })
        .collect();
    for peer in &good.peers {
        findings.extend(deferred("BGPPeer", peer, &deferred_fields(peer)));
    }
    for profile in &good.bfd_profiles {
        findings.extend(deferred("BFDProfile", profile, &deferred_fields(profile)));
    }
    findings.sort();
    let config = Configuration {
        pools: keep(&stored.pools, &good.pools),
        l2_advertisements: keep(&stored.l2_advertisements, &good.l2_advertisements),
        bgp_advertisements: keep(&stored.bgp_advertisements, &good.bgp_advertisements),
        bgp_peers: keep(&stored.bgp_peers, &good.peers),
        bfd_profiles: keep(&stored.bfd_profiles, &good.bfd_profiles),
        secrets: stored.secrets.clone(),
        communities: keep(&stored.communities, &good.communities),
    };
    (config, findings)
}

fn owned<T, K: Clone>(table: &BTreeMap<T, Arc<K>>) -> Vec<K> {
    table.values().map(|object| (**object).clone()).collect()
}

fn deferred<K: Resource>(kind: &'static str, object: &K, fields: &[&str]) -> Option<Finding> {
    let message = format!(
        "{}: accepted, but without effect in this version",
        fields.join(", ")
    );
    (!fields.is_empty()).then(|| Finding::partial(kind, &object.name_any(), message))
}

fn keep<T: Ord + Clone + for<'a> From<&'a str>, K: Resource>(
    table: &BTreeMap<T, Arc<K>>,
    good: &[K],
) -> BTreeMap<T, Arc<K>> {
    let names = good
        .iter()
        .filter_map(|object| object.meta().name.as_deref());
    names
        .map(T::from)
        .filter_map(|name| {
            table
                .get(&name)
                .map(|object| (name.clone(), object.clone()))
        })
        .collect()
}
