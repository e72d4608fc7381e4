//! Structural schemas of custom resources: pruning, defaults, and the value rules of `OpenAPI`.
//!
//! Does types, enums, bounds, lengths, required fields and defaults. Does **not** do CEL (`x-kubernetes-validations`),
//! `oneOf`/`anyOf`/`not`, `pattern` and `format`: a CRD with them is accepted and those rules are not applied.
//! Source: KEP-1111 (structural schemas), `OpenAPI` v3.0 schema object.

use serde_json::{Map, Value, json};

use crate::status_error::Cause;

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// Drops what the schema does not name and lists it in `unknown`.
pub(crate) fn prune(schema: &Value, object: &mut Value, unknown: &mut Vec<String>) {
    if schema.is_null() {
        return;
    }
    if let Value::Object(map) = object {
        let kept: Vec<(String, Value)> = ["apiVersion", "kind", "metadata"]
            .into_iter()
            .filter_map(|key| map.remove_entry(key))
            .collect();
        prune_value(schema, object, "", unknown);
        if let Value::Object(map) = object {
            map.extend(kept);
        }
    }
}

fn prune_value(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let properties = schema.get("properties");
            let additional = schema
                .get("additionalProperties")
                .filter(|additional| additional.is_object());
            let preserve = flag(schema, PRESERVE)
                || schema.get("additionalProperties").and_then(Value::as_bool) == Some(true);
            map.retain(|key, value| {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let Some(inner) = properties
                    .and_then(|properties| properties.get(key))
                    .or(additional)
                else {
                    if !preserve {
                        unknown.push(path);
                    }
                    return preserve;
                };
                prune_value(inner, value, &path, unknown);
                true
            });
        }
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                for (index, item) in items.iter_mut().enumerate() {
                    prune_value(inner, item, &format!("{path}[{index}]"), unknown);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Fills defaults where a field is missing, or null and not nullable. Inside lists and maps too; never makes a parent.
pub(crate) fn default(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, inner) in schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                let missing = map
                    .get(key)
                    .is_none_or(|value| value.is_null() && !flag(inner, "nullable"));
                if missing {
                    match inner.get("default") {
                        Some(fill) => map.insert(key.clone(), fill.clone()),
                        None => map.remove(key),
                    };
                }
                if let Some(value) = map.get_mut(key) {
                    default(inner, value);
                }
            }
            if let Some(inner) = schema
                .get("additionalProperties")
                .filter(|inner| inner.is_object())
            {
                map.values_mut().for_each(|value| default(inner, value));
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                for item in items {
                    default(inner, item);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Everything in `object` that breaks a rule of the schema, with its path.
pub(crate) fn validate(schema: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, inner) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if ["apiVersion", "kind", "metadata"].contains(&key.as_str()) {
            continue;
        }
        if let Some(value) = object.get(key) {
            check(inner, value, key, &mut causes);
        }
    }
    required(schema, object.as_object(), "", &mut causes);
    causes
}

fn check(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && flag(schema, "nullable") {
        return;
    }
    let wanted = schema.get("type").and_then(Value::as_str);
    if !has_type(schema, wanted, value) {
        let (name, wanted) = (type_name(value), wanted.unwrap_or("integer or string"));
        let leaf = path.rsplit('.').next().unwrap_or(path);
        causes.push(Cause::type_invalid(
            path,
            name,
            format!("{leaf} in body must be of type {wanted}: \"{name}\""),
        ));
        return;
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        let names: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        causes.push(Cause::not_supported(path, value, &names));
    }
    match value {
        Value::Object(map) => {
            required(schema, Some(map), path, causes);
            bounds(
                schema,
                value,
                path,
                ("minProperties", "maxProperties", map.len()),
                causes,
            );
            let additional = schema
                .get("additionalProperties")
                .filter(|inner| inner.is_object());
            for (key, value) in map {
                let known = schema
                    .get("properties")
                    .and_then(|properties| properties.get(key));
                if let Some(inner) = known.or(additional) {
                    check(inner, value, &format!("{path}.{key}"), causes);
                }
            }
        }
        Value::Array(items) => {
            bounds(
                schema,
                value,
                path,
                ("minItems", "maxItems", items.len()),
                causes,
            );
            for (index, item) in items.iter().enumerate() {
                if let Some(inner) = schema.get("items") {
                    check(inner, item, &format!("{path}[{index}]"), causes);
                }
            }
            unique(schema, items, path, causes);
        }
        Value::String(text) => bounds(
            schema,
            value,
            path,
            ("minLength", "maxLength", text.chars().count()),
            causes,
        ),
        Value::Number(_) => range(schema, value, path, causes),
        Value::Null | Value::Bool(_) => {}
    }
}

fn required(schema: &Value, map: Option<&Map<String, Value>>, path: &str, causes: &mut Vec<Cause>) {
    for name in schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        if !map.is_some_and(|map| map.contains_key(name)) {
            let field = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            };
            causes.push(Cause::required(field, ""));
        }
    }
}

fn has_type(schema: &Value, wanted: Option<&str>, value: &Value) -> bool {
    if flag(schema, "x-kubernetes-int-or-string") {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    match wanted {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => {
            value.is_i64()
                || value.is_u64()
                || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        Some("number") => value.is_number(),
        Some(_) => false,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn bounds(
    schema: &Value,
    value: &Value,
    path: &str,
    (least, most, count): (&str, &str, usize),
    causes: &mut Vec<Cause>,
) {
    let limit = |name: &str| {
        schema
            .get(name)
            .and_then(Value::as_u64)
            .and_then(|limit| usize::try_from(limit).ok())
    };
    if let Some(least) = limit(least).filter(|&least| count < least) {
        causes.push(Cause::invalid(
            path,
            value,
            format!("{path} in body should have at least {least} items or characters"),
        ));
    }
    if let Some(most) = limit(most).filter(|&most| count > most) {
        let message = format!("Too long: may not be more than {most} items or characters");
        causes.push(Cause {
            reason: "FieldValueTooLong",
            field: path.into(),
            message,
        });
    }
}

fn range(schema: &Value, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (Some(number), limit) = (value.as_f64(), |name: &str| {
        schema.get(name).and_then(Value::as_f64)
    }) else {
        return;
    };
    let (open_low, open_high) = (
        flag(schema, "exclusiveMinimum"),
        flag(schema, "exclusiveMaximum"),
    );
    if let Some(least) =
        limit("minimum").filter(|&least| number < least || open_low && number <= least)
    {
        let word = if open_low {
            "greater than"
        } else {
            "greater than or equal to"
        };
        causes.push(Cause::invalid(
            path,
            value,
            format!("{path} in body should be {word} {least}"),
        ));
    }
    if let Some(most) =
        limit("maximum").filter(|&most| number > most || open_high && number >= most)
    {
        let word = if open_high {
            "less than"
        } else {
            "less than or equal to"
        };
        causes.push(Cause::invalid(
            path,
            value,
            format!("{path} in body should be {word} {most}"),
        ));
    }
}

fn unique(schema: &Value, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
    let key = |item: &Value| match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => Some(item.clone()),
        Some("map") => {
            let keys = schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)?;
            Some(
                keys.iter()
                    .filter_map(Value::as_str)
                    .map(|key| (key.to_owned(), item.get(key).cloned().unwrap_or_default()))
                    .collect(),
            )
        }
        _ => None,
    };
    let mut seen: Vec<Value> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let Some(key) = key(item) else { return };
        if seen.contains(&key) {
            causes.push(Cause::duplicate(format!("{path}[{index}]"), &json!(key)));
        } else {
            seen.push(key);
        }
    }
}
