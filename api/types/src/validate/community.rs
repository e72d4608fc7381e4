//! Rules of `Community`.

use super::{Cause, FieldError, Others, finding, name, same};
use crate::{BgpCommunity, Community};

/// What is wrong with a list of community aliases beside the others.
pub fn community(community: &Community, others: &Others) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let own = &community.spec.communities;
    for (at, alias) in own.iter().enumerate() {
        let path = |field: &str| format!("spec.communities[{at}].{field}");
        if !BgpCommunity::is_alias(&alias.name) {
            errors.push(finding(path("name"), &alias.name, Cause::AliasName));
        }
        if let Err(error) = alias.value.parse::<BgpCommunity>() {
            errors.push(finding(path("value"), &alias.value, error));
        }
        let here = own
            .iter()
            .take(at)
            .any(|before| before.name == alias.name)
            .then(|| name(&community.metadata));
        let elsewhere = others
            .communities
            .iter()
            .filter(|other| !same(&other.metadata, &community.metadata))
            .find(|other| other.spec.communities.iter().any(|a| a.name == alias.name))
            .map(|other| name(&other.metadata));
        if let Some(other) = here.or(elsewhere) {
            let cause = Cause::DuplicateAlias {
                alias: alias.name.clone(),
                other: other.to_owned(),
            };
            errors.push(finding(path("name"), &alias.name, cause));
        }
    }
    errors
}
