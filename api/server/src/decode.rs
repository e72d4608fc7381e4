//! From the bytes of a body to an object of its kind: JSON or YAML, kind and version checked, types checked, unknown
//! fields named.
//!
//! Pure. What a body holds beyond its type never reaches the store.

use serde_json::{Value, json};

use crate::registry::{self, Kind, Rules};
use crate::schema;
use crate::status_error::{ApiError, Cause};

/// What to do with fields that the type does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// Drop silently.
    Ignore,
    /// Drop and warn.
    #[default]
    Warn,
    /// Refuse.
    Strict,
}

/// JSON or YAML by content type. Errors: 400 what does not parse, 415 another type.
pub(crate) fn parse(content_type: &str, body: &[u8], kind: &str) -> Result<Value, ApiError> {
    let fail = |what: String| {
        let message = format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; {what}"
        );
        ApiError::bad_request(message)
    };
    let value: Value = match content_type {
        "" | "application/json" | "*/*" => {
            serde_json::from_slice(body).map_err(|e| fail(format!("json parse error: {e}")))?
        }
        "application/yaml" | "application/x-yaml" | "text/yaml" => {
            serde_yaml_ng::from_slice(body).map_err(|e| fail(format!("yaml: {e}")))?
        }
        "application/vnd.kubernetes.protobuf" => {
            let mut error = ApiError::unsupported_media("");
            error.message =
                "this embedded API server does not read protobuf: send application/json".into();
            return Err(error);
        }
        _ => {
            return Err(ApiError::unsupported_media(
                "application/json, application/yaml",
            ));
        }
    };
    if value.is_object() {
        Ok(value)
    } else {
        Err(fail("json parse error: the body is not an object".into()))
    }
}

/// Fills `apiVersion` and `kind`, or refuses another kind.
pub(crate) fn check_kind(kind: &Kind, object: &mut Value) -> Result<(), ApiError> {
    let said = |field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (api_version, said_kind) = (said("apiVersion"), said("kind"));
    let wrong = (!api_version.is_empty() && api_version != kind.api_version())
        || (!said_kind.is_empty() && said_kind != kind.kind);
    if wrong {
        let said_kind = if said_kind.is_empty() {
            kind.kind.clone()
        } else {
            said_kind
        };
        let message = format!(
            "{said_kind} in version \"{}\" cannot be handled as a {}: the path is for kind {} of {}, the body says {said_kind} of {api_version}",
            kind.version,
            kind.kind,
            kind.kind,
            kind.api_version()
        );
        return Err(ApiError::bad_request(message));
    }
    object["apiVersion"] = json!(kind.api_version());
    object["kind"] = json!(kind.kind);
    Ok(())
}

/// The object with its types checked and unknown fields dropped, and the names of those fields. The error text names the field.
pub(crate) fn normalize(kind: &Kind, object: &Value) -> Result<(Value, Vec<String>), String> {
    let mut unknown = Vec::new();
    let normal = match &kind.rules {
        Rules::Builtin(builtin) => {
            let mut normal = (builtin.normalize)(object)?;
            unknown_fields(object, &normal, "", &mut unknown);
            // null is how Go shows the missing lists of a slice
            if kind.is("endpointslices.discovery.k8s.io") {
                for list in ["endpoints", "ports"] {
                    if normal.get(list).is_none() {
                        normal[list] = Value::Null;
                    }
                }
            }
            normal
        }
        Rules::Custom(custom) => {
            let mut normal = object.clone();
            if let Some(metadata) = object.get("metadata") {
                normal["metadata"] = registry::normalize_metadata(metadata)?;
                unknown_fields(metadata, &normal["metadata"], "metadata", &mut unknown);
            }
            schema::prune(&custom.schema, &mut normal, &mut unknown);
            schema::default(&custom.schema, &mut normal);
            normal
        }
    };
    Ok((normal, unknown))
}

/// [`normalize`] for the body of a create or PUT.
pub(crate) fn decode(
    kind: &Kind,
    mut object: Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    check_kind(kind, &mut object)?;
    let refuse = |what: &str| {
        let (name, version) = (&kind.kind, &kind.version);
        ApiError::bad_request(format!(
            "{name} in version \"{version}\" cannot be handled as a {name}: {what}"
        ))
    };
    let (normal, unknown) = normalize(kind, &object).map_err(|what| refuse(&what))?;
    match strict_text(&unknown) {
        Some(text) if validation == FieldValidation::Strict => Err(refuse(&text)),
        _ => {
            warn(validation, &unknown, warnings);
            Ok(normal)
        }
    }
}

/// [`normalize`] for a patched object.
pub(crate) fn decode_patched(
    kind: &Kind,
    object: &Value,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, ApiError> {
    let refuse = |what: &str| {
        let cause = Cause::invalid("patch", &json!("the patched object"), what);
        ApiError::invalid("", "", "", vec![cause])
    };
    let mut object = object.clone();
    check_kind(kind, &mut object).map_err(|error| refuse(&error.message))?;
    let (normal, unknown) = normalize(kind, &object).map_err(|what| refuse(&what))?;
    match strict_text(&unknown) {
        Some(text) if validation == FieldValidation::Strict => Err(refuse(&text)),
        _ => {
            warn(validation, &unknown, warnings);
            Ok(normal)
        }
    }
}

fn strict_text(unknown: &[String]) -> Option<String> {
    let texts: Vec<String> = unknown
        .iter()
        .map(|field| format!("unknown field \"{field}\""))
        .collect();
    (!texts.is_empty()).then(|| format!("strict decoding error: {}", texts.join(", ")))
}

fn warn(validation: FieldValidation, unknown: &[String], warnings: &mut Vec<String>) {
    if validation == FieldValidation::Warn {
        warnings.extend(
            unknown
                .iter()
                .map(|field| format!("unknown field \"{field}\"")),
        );
    }
}

fn unknown_fields(raw: &Value, normal: &Value, path: &str, unknown: &mut Vec<String>) {
    match (raw, normal) {
        (Value::Object(raw), Value::Object(normal)) => {
            for (key, value) in raw {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                match normal.get(key) {
                    Some(normal) => unknown_fields(value, normal, &path, unknown),
                    None if is_empty(value) => {}
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(raw), Value::Array(normal)) => {
            for (index, (raw, normal)) in raw.iter().zip(normal).enumerate() {
                unknown_fields(raw, normal, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Whether Go leaves such a value out, so that its absence says nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
