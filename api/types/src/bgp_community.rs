//! Values of BGP communities as users write them.
//!
//! Owns the two spellings `N:N` (RFC 1997) and `large:N:N:N` (RFC 8092). Never resolves aliases: what has no colon is one.

use std::{fmt, str::FromStr};

/// A community value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BgpCommunity {
    /// `N:N`, two times 16 bits (RFC 1997).
    Standard(u16, u16),
    /// `large:N:N:N`, three times 32 bits (RFC 8092).
    Large(u32, u32, u32),
}

/// Why a community was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommunityError {
    /// Neither `N:N` nor `large:N:N:N`.
    #[error("invalid community format {0:?}: write N:N or large:N:N:N")]
    Format(String),
    /// A number that does not fit.
    #[error("invalid community value {number:?} in {text:?}: a number of {bits} bits is needed")]
    Value {
        /// The whole text.
        text: String,
        /// The part that is wrong.
        number: String,
        /// Bits that the number may have.
        bits: u8,
    },
}

impl BgpCommunity {
    /// Whether the text is the name of an alias and not a value: it holds no colon.
    pub fn is_alias(text: &str) -> bool {
        !text.is_empty() && !text.contains(':')
    }

    /// The standard community as the 32 bits on the wire.
    pub fn standard(self) -> Option<u32> {
        match self {
            Self::Standard(high, low) => Some(u32::from(high) << 16 | u32::from(low)),
            Self::Large(..) => None,
        }
    }
}

impl fmt::Display for BgpCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(a, b) => write!(f, "{a}:{b}"),
            Self::Large(a, b, c) => write!(f, "large:{a}:{b}:{c}"),
        }
    }
}

/// One number; only digits, so that `+1` and blanks are refused.
fn number<N: FromStr>(text: &str, part: &str, bits: u8) -> Result<N, CommunityError> {
    let wrong = || CommunityError::Value {
        text: text.to_owned(),
        number: part.to_owned(),
        bits,
    };
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    part.parse().map_err(|_| wrong())
}

impl FromStr for BgpCommunity {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts.as_slice() {
            ["large", a, b, c] => Ok(Self::Large(
                number(text, a, 32)?,
                number(text, b, 32)?,
                number(text, c, 32)?,
            )),
            [a, b] => Ok(Self::Standard(number(text, a, 16)?, number(text, b, 16)?)),
            _ => Err(CommunityError::Format(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_read_and_written_alike() {
        for (text, value) in [
            ("64512:100", BgpCommunity::Standard(64512, 100)),
            ("0:65535", BgpCommunity::Standard(0, 65535)),
            (
                "large:4294967295:0:7",
                BgpCommunity::Large(4_294_967_295, 0, 7),
            ),
        ] {
            assert_eq!(text.parse(), Ok(value));
            assert_eq!(value.to_string(), text);
        }
        assert_eq!(
            BgpCommunity::Standard(65535, 0xff01).standard(),
            Some(0xffff_ff01)
        );
    }

    #[test]
    fn what_is_no_community_is_refused_with_its_cause() {
        let format = |t: &str| CommunityError::Format(t.to_owned());
        let value = |t: &str, n: &str, bits| CommunityError::Value {
            text: t.to_owned(),
            number: n.to_owned(),
            bits,
        };
        for (text, error) in [
            ("", format("")),
            ("1:2:3", format("1:2:3")),
            ("large:1:2", format("large:1:2")),
            ("65536:1", value("65536:1", "65536", 16)),
            ("1:", value("1:", "", 16)),
            ("-1:1", value("-1:1", "-1", 16)),
            ("+1:1", value("+1:1", "+1", 16)),
            (
                "large:4294967296:1:1",
                value("large:4294967296:1:1", "4294967296", 32),
            ),
        ] {
            assert_eq!(text.parse::<BgpCommunity>(), Err(error), "{text}");
        }
    }
}
