//! Durations as Kubernetes writes them: `90s`, `1m30s`, `1h2m3.5s`.
//!
//! Owns the text and its meaning. The text is kept as written, so that a bad one is a finding with a path and not an object
//! that cannot be read. Source: Go `time.ParseDuration`, the format of `metav1.Duration`.

use std::{borrow::Cow, fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Longest text that the schema admits, in bytes.
const MAX_TEXT_BYTES: usize = 32;

/// Why a duration was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// No text.
    #[error("a duration such as 90s or 1m30s is needed, found nothing")]
    Empty,
    /// Starts with a minus sign.
    #[error("{0:?} is negative")]
    Negative(String),
    /// A number without a unit, an unknown unit, or no number.
    #[error("{0:?} is not a duration such as 90s or 1m30s (units h, m, s, ms, us, ns)")]
    Malformed(String),
    /// More than about 292 years.
    #[error("{0:?} is too long")]
    TooLong(String),
}

/// A duration as the user wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoDuration(String);

impl GoDuration {
    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What the text means.
    pub fn get(&self) -> Result<Duration, DurationError> {
        parse(&self.0)
    }
}

impl From<&str> for GoDuration {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for GoDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": MAX_TEXT_BYTES })
    }
}

/// Nanoseconds of one unit.
fn unit_nanos(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn parse(text: &str) -> Result<Duration, DurationError> {
    let malformed = || DurationError::Malformed(text.to_owned());
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text.starts_with('-') {
        return Err(DurationError::Negative(text.to_owned()));
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split_while(after, |c| !c.is_ascii_digit() && c != '.');
        let part = unit_nanos(unit)
            .and_then(|unit| scaled(number, unit))
            .ok_or_else(malformed)?;
        nanos = nanos.saturating_add(part);
        rest = after;
    }
    if nanos > i64::MAX.unsigned_abs().into() {
        return Err(DurationError::TooLong(text.to_owned()));
    }
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| DurationError::TooLong(text.to_owned()))
}

/// Splits in front of the first character that does not fit.
fn split_while(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text
        .char_indices()
        .find(|&(_, c)| !fits(c))
        .map_or(text.len(), |(at, _)| at);
    text.split_at(end)
}

/// `number` units in nanoseconds, or `None` when `number` is no decimal number of at most 18 digits a side.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| -> Option<u128> {
        match text.len() {
            0 => Some(0),
            1..=18 => text.parse::<u64>().ok().map(u128::from),
            _ => None,
        }
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let whole = digits(whole)?.checked_mul(unit)?;
    let fraction = digits(fraction)?.checked_mul(unit)?.checked_div(scale)?;
    whole.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("90s", 90_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("300ms", 300_000_000),
            (".5s", 500_000_000),
            ("5.s", 5_000_000_000),
            ("+3s", 3_000_000_000),
            ("1h2m3.000000004s", 3_723_000_000_004),
            ("7µs", 7_000),
        ] {
            assert_eq!(
                GoDuration::from(text).get(),
                Ok(Duration::from_nanos(nanos)),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_its_cause() {
        let text = |t: &str| t.to_owned();
        for (found, error) in [
            ("", DurationError::Empty),
            ("-3s", DurationError::Negative(text("-3s"))),
            ("90", DurationError::Malformed(text("90"))),
            ("s", DurationError::Malformed(text("s"))),
            (".s", DurationError::Malformed(text(".s"))),
            ("1.2.3s", DurationError::Malformed(text("1.2.3s"))),
            ("3 s", DurationError::Malformed(text("3 s"))),
            ("1d", DurationError::Malformed(text("1d"))),
            ("9999999h", DurationError::TooLong(text("9999999h"))),
            (
                "99999999999999999999s",
                DurationError::Malformed(text("99999999999999999999s")),
            ),
        ] {
            assert_eq!(GoDuration::from(found).get(), Err(error), "{found}");
        }
    }
}
