//! Label and field selectors: reading them from a query, and whether an object matches.
//!
//! Source: "Labels and Selectors" and "Field Selectors" of the Kubernetes documentation. Pure.

use serde_json::Value;

use crate::names;
use crate::registry::{Kind, Rules};
use crate::status_error::ApiError;

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    Absent(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Greater(String, i64),
    Less(String, i64),
}

/// All requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// `app=x,tier!=1,env in (a,b),!old,size>3`. Errors: 400 with what was found.
    pub(crate) fn parse(text: &str) -> Result<Self, ApiError> {
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (requirement, after) = requirement(rest).map_err(|what| {
                ApiError::bad_request(format!("unable to parse requirement: {what}"))
            })?;
            requirements.push(requirement);
            let after = after.trim_start();
            rest = match after.strip_prefix(',') {
                Some(next) => next.trim_start(),
                None if after.is_empty() => after,
                None => {
                    let what = format!(
                        "unable to parse requirement: found '{}', expected: ',' or 'end of string'",
                        word(after).0
                    );
                    return Err(ApiError::bad_request(what));
                }
            };
        }
        Ok(Self(requirements))
    }

    /// No requirement at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's labels satisfy every requirement.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        let label = |key: &str| {
            labels
                .and_then(|labels| labels.get(key))
                .and_then(Value::as_str)
        };
        let number = |key: &str| label(key).and_then(|value| value.parse::<i64>().ok());
        self.0.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
            Requirement::In(key, values) => {
                label(key).is_some_and(|label| values.iter().any(|value| value == label))
            }
            Requirement::NotIn(key, values) => {
                !label(key).is_some_and(|label| values.iter().any(|value| value == label))
            }
            Requirement::Greater(key, bound) => number(key).is_some_and(|number| number > *bound),
            Requirement::Less(key, bound) => number(key).is_some_and(|number| number < *bound),
        })
    }
}

const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

fn word(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| "=!<>,()".contains(c) || c.is_whitespace())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn requirement(text: &str) -> Result<(Requirement, &str), String> {
    if let Some(rest) = text.strip_prefix('!') {
        let (key, rest) = word(rest.trim_start());
        return Ok((Requirement::Absent(checked_key(key)?), rest));
    }
    let (key, rest) = word(text);
    let key = checked_key(key)?;
    let rest = rest.trim_start();
    if rest.is_empty() || rest.starts_with(',') {
        return Ok((Requirement::Exists(key), rest));
    }
    for (operator, negative) in [("==", false), ("!=", true), ("=", false)] {
        if let Some(rest) = rest.strip_prefix(operator) {
            let (value, rest) = word(rest.trim_start());
            let values = vec![checked_value(value)?];
            let requirement = if negative {
                Requirement::NotIn(key, values)
            } else {
                Requirement::In(key, values)
            };
            return Ok((requirement, rest));
        }
    }
    for (operator, greater) in [('>', true), ('<', false)] {
        if let Some(rest) = rest.strip_prefix(operator) {
            let (value, rest) = word(rest.trim_start());
            let bound = value.parse().map_err(|_| {
                format!("for 'Gt', 'Lt' operators, the value must be an integer: {value}")
            })?;
            return Ok((
                if greater {
                    Requirement::Greater(key, bound)
                } else {
                    Requirement::Less(key, bound)
                },
                rest,
            ));
        }
    }
    match word(rest) {
        ("in", rest) => value_set(rest).map(|(values, rest)| (Requirement::In(key, values), rest)),
        ("notin", rest) => {
            value_set(rest).map(|(values, rest)| (Requirement::NotIn(key, values), rest))
        }
        (found, _) => Err(format!("found '{found}', expected: {OPERATORS}")),
    }
}

fn value_set(text: &str) -> Result<(Vec<String>, &str), String> {
    let text = text.trim_start();
    let inner = text
        .strip_prefix('(')
        .ok_or_else(|| format!("found '{}' expected: '('", word(text).0))?;
    let (inner, rest) = inner
        .split_once(')')
        .ok_or("found '', expected: ',' or ')'")?;
    let values = inner
        .split(',')
        .map(|value| checked_value(value.trim()))
        .collect::<Result<_, _>>()?;
    Ok((values, rest))
}

fn checked_key(key: &str) -> Result<String, String> {
    match names::label_key_problem(key) {
        None => Ok(key.to_owned()),
        Some(problem) => Err(format!("<nil>: Invalid value: \"{key}\": {problem}")),
    }
}

fn checked_value(value: &str) -> Result<String, String> {
    match names::label_value_problem(value) {
        None => Ok(value.to_owned()),
        Some(problem) => Err(format!("values[0]: Invalid value: \"{value}\": {problem}")),
    }
}

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

/// All terms must hold. Only the fields that a kind lists are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector(Vec<Term>);

impl FieldSelector {
    /// `metadata.name=x,spec.type!=ClusterIP`. Errors: 400 for other syntax and for fields that the kind lacks.
    pub(crate) fn parse(text: &str, kind: &Kind) -> Result<Self, ApiError> {
        let mut terms = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let split = [("!=", false), ("==", true), ("=", true)]
                .into_iter()
                .find_map(|(operator, equal)| {
                    part.split_once(operator)
                        .map(|(field, value)| (field, value, equal))
                });
            let Some((field, value, equal)) = split else {
                let message = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(ApiError::bad_request(message));
            };
            check_field(field, kind)?;
            terms.push(Term {
                field: field.into(),
                value: value.into(),
                equal,
            });
        }
        Ok(Self(terms))
    }

    /// No term at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's fields satisfy every term; a missing field is the empty string.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0
            .iter()
            .all(|term| (field_text(object, &term.field) == term.value) == term.equal)
    }
}

fn check_field(field: &str, kind: &Kind) -> Result<(), ApiError> {
    if field == "metadata.name" || field == "metadata.namespace" {
        return Ok(());
    }
    match &kind.rules {
        Rules::Builtin(builtin) if builtin.fields.contains(&field) => Ok(()),
        Rules::Builtin(builtin) if !builtin.fields.is_empty() => Err(ApiError::bad_request(
            format!("field label not supported: {field}"),
        )),
        Rules::Custom(custom) if custom.fields.iter().any(|f| f == field) => Ok(()),
        Rules::Builtin(_) => Err(ApiError::bad_request(format!(
            "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ))),
        Rules::Custom(_) => Err(ApiError::bad_request(format!(
            "field label not supported: {field}"
        ))),
    }
}

fn field_text(object: &Value, field: &str) -> String {
    let at = |path: &str| {
        path.split('.')
            .try_fold(object, |value, key| value.get(key))
    };
    let value = match field {
        // the older source wins, as in the registry's `ToSelectableFields`
        "source" => at("source.component").or_else(|| at("reportingComponent")),
        "spec.unschedulable" => {
            return at(field)
                .and_then(Value::as_bool)
                .unwrap_or(false)
                .to_string();
        }
        _ => at(field),
    };
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
            other.to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::registry::Registry;

    #[test]
    fn label_selectors_match_as_documented() {
        let object = json!({"metadata": {"labels": {"app": "x", "tier": "1"}}});
        let table = [
            ("", true),
            ("app=x", true),
            ("app==x,tier=1", true),
            ("app!=x", false),
            ("none!=x", true),
            ("app in (x, y)", true),
            ("app notin (x)", false),
            ("app", true),
            ("!app", false),
            ("app,!tier", false),
            ("tier>0", true),
            ("tier<1", false),
            ("app = y", false),
        ];
        let got =
            table.map(|(text, _)| (text, LabelSelector::parse(text).unwrap().matches(&object)));
        assert_eq!(got, table);
    }

    #[test]
    fn label_selector_errors_say_what_was_found() {
        let table = [
            (
                "app in x",
                "unable to parse requirement: found 'x' expected: '('",
            ),
            (
                "Bad Key=x",
                "unable to parse requirement: found 'Key', expected: in, notin, =, ==, !=, gt, lt",
            ),
        ];
        let got = table.map(|(text, _)| (text, LabelSelector::parse(text).unwrap_err().message));
        assert_eq!(got, table.map(|(text, message)| (text, message.to_owned())));
    }

    #[test]
    fn field_selectors_know_the_fields_of_their_kind() {
        let registry = Registry::new();
        let services = registry.find("", "v1", "services").unwrap();
        let selector =
            FieldSelector::parse("metadata.name!=a,spec.type=NodePort", services).unwrap();
        assert!(
            selector.matches(&json!({"metadata": {"name": "b"}, "spec": {"type": "NodePort"}}))
        );
        assert!(
            !selector.matches(&json!({"metadata": {"name": "a"}, "spec": {"type": "NodePort"}}))
        );
        let error = FieldSelector::parse("spec.sessionAffinity=None", services).unwrap_err();
        assert_eq!(
            error.message,
            "field label not supported: spec.sessionAffinity"
        );
    }
}
