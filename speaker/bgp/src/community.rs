//! Communities: values, their text, and aliases.
//!
//! Owns how `N:N`, `large:N:N:N` and the aliases of `Community` objects become numbers. Never knows which route carries them.
//! Source: RFC 1997, RFC 8092, MetalLB's `Community` and `BGPAdvertisement.spec.communities`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Most plain communities of one route: with all of them, and all large ones, one prefix still fits into an UPDATE.
pub const MAX_COMMUNITIES: usize = 255;
/// Most large communities of one route.
pub const MAX_LARGE_COMMUNITIES: usize = 128;

/// A community, two halves of 16 bits (RFC 1997).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u32);

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 >> 16, self.0 & 0xffff)
    }
}

/// A large community, three parts of 32 bits (RFC 8092).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity(pub u32, pub u32, pub u32);

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "large:{}:{}:{}", self.0, self.1, self.2)
    }
}

/// The communities of one route: each once, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Communities {
    /// Plain ones.
    pub plain: BTreeSet<Community>,
    /// Large ones.
    pub large: BTreeSet<LargeCommunity>,
}

impl Communities {
    /// Takes in the others; says no, and changes nothing, if that were more than a route carries.
    pub fn unite(&mut self, other: &Self) -> Result<(), CommunityError> {
        let mut all = self.clone();
        all.plain.extend(&other.plain);
        all.large.extend(&other.large);
        if all.plain.len() > MAX_COMMUNITIES || all.large.len() > MAX_LARGE_COMMUNITIES {
            return Err(CommunityError::TooMany);
        }
        *self = all;
        Ok(())
    }
}

/// What is wrong with a list of communities.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommunityError {
    /// Two or three numbers, but not in range.
    #[error("community {0:?}: write 0-65535:0-65535, or large: and three numbers up to 4294967295")]
    NotANumber(String),
    /// A word that no `Community` object explains.
    #[error("community {0:?}: no Community object has an alias of this name")]
    UnknownAlias(String),
    /// More than one route can carry.
    #[error("more than 255 communities or 128 large communities on one route")]
    TooMany,
}

/// Reads `spec.communities`: numbers, or aliases (name → value text) of the `Community` objects.
pub fn resolve_communities(
    texts: &[String],
    aliases: &BTreeMap<String, String>,
) -> Result<Communities, CommunityError> {
    let mut all = Communities::default();
    for text in texts {
        let value = aliases.get(text).unwrap_or(text);
        all.unite(&parse(value)?)?;
    }
    Ok(all)
}

/// Reads one value; an alias of an alias is not followed.
fn parse(text: &str) -> Result<Communities, CommunityError> {
    let mut one = Communities::default();
    if let Some(rest) = text.strip_prefix("large:") {
        one.large
            .insert(large(rest).ok_or_else(|| not_a_number(text))?);
    } else if text.contains(':') {
        one.plain
            .insert(plain(text).ok_or_else(|| not_a_number(text))?);
    } else if text.is_empty() || text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(not_a_number(text));
    } else {
        return Err(CommunityError::UnknownAlias(text.to_owned()));
    }
    Ok(one)
}

fn not_a_number(text: &str) -> CommunityError {
    CommunityError::NotANumber(text.to_owned())
}

fn plain(text: &str) -> Option<Community> {
    let (high, low) = text.split_once(':')?;
    let (high, low) = (digits::<u16>(high)?, digits::<u16>(low)?);
    Some(Community(u32::from(high) << 16 | u32::from(low)))
}

fn large(text: &str) -> Option<LargeCommunity> {
    let (global, rest) = text.split_once(':')?;
    let (first, second) = rest.split_once(':')?;
    Some(LargeCommunity(
        digits(global)?,
        digits(first)?,
        digits(second)?,
    ))
}

/// A number of digits only: no sign, no space.
fn digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(texts: &[&str]) -> Result<String, CommunityError> {
        let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
        let aliases = BTreeMap::from([
            ("no-export".to_owned(), "65535:65281".to_owned()),
            ("loop".to_owned(), "no-export".to_owned()),
        ]);
        let all = resolve_communities(&texts, &aliases)?;
        let words = all.plain.iter().map(ToString::to_string);
        Ok(words
            .chain(all.large.iter().map(ToString::to_string))
            .collect::<Vec<_>>()
            .join(" "))
    }

    #[test]
    fn numbers_and_aliases_are_read_each_once_and_ascending() {
        assert_eq!(
            resolve(&[
                "no-export",
                "64512:2",
                "64512:1",
                "64512:2",
                "large:64512:7:9"
            ]),
            Ok("64512:1 64512:2 65535:65281 large:64512:7:9".to_owned())
        );
    }

    #[test]
    fn what_is_no_community_is_refused_with_its_text() {
        for text in [
            "64512:65536",
            "64512",
            "",
            "1:2:3",
            "large:1:2",
            "+1:2",
            "large:1:2:4294967296",
            " 1:2",
        ] {
            assert_eq!(resolve(&[text]), Err(not_a_number(text)), "{text:?}");
        }
        for text in ["no-such-alias", "loop"] {
            assert!(
                matches!(resolve(&[text]), Err(CommunityError::UnknownAlias(_))),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_route_takes_255_communities_and_no_more() {
        let texts: Vec<String> = (0..256).map(|n| format!("1:{n}")).collect();
        let none = BTreeMap::new();
        assert_eq!(
            resolve_communities(&texts[..255], &none).map(|c| c.plain.len()),
            Ok(255)
        );
        assert_eq!(
            resolve_communities(&texts, &none),
            Err(CommunityError::TooMany)
        );
    }
}
