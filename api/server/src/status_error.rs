//! The one way this server says "no": a Kubernetes `Status` with code, reason, details and causes.
//!
//! Owns the words and their codes; never decides when to use them. Source: `k8s.io/apimachinery` `metav1.Status` and the
//! "Response Status Kind" section of the Kubernetes API conventions.

use serde_json::{Value, json};

/// What is wrong with one field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// Path as users write it: `spec.ports[0].port`.
    pub field: String,
    /// What is wrong, with the value.
    pub message: String,
}

impl Cause {
    /// The value is there but wrong.
    pub fn invalid(field: impl Into<String>, value: &Value, what: impl AsRef<str>) -> Self {
        let message = format!("Invalid value: {value}: {}", what.as_ref());
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message,
        }
    }

    /// The value is missing.
    pub fn required(field: impl Into<String>, what: &str) -> Self {
        let message = if what.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {what}")
        };
        Self {
            reason: "FieldValueRequired",
            field: field.into(),
            message,
        }
    }

    /// The field may not be set, or not be changed, here.
    pub fn forbidden(field: impl Into<String>, what: impl AsRef<str>) -> Self {
        Self {
            reason: "FieldValueForbidden",
            field: field.into(),
            message: format!("Forbidden: {}", what.as_ref()),
        }
    }

    /// The same value stands there twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            field: field.into(),
            message: format!("Duplicate value: {value}"),
        }
    }

    /// The value is none of a fixed set.
    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let list = supported
            .iter()
            .map(|s| format!("\"{s}\""))
            .collect::<Vec<_>>()
            .join(", ");
        let message = format!("Unsupported value: {value}: supported values: {list}");
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message,
        }
    }

    /// More than a limit.
    pub fn too_long(field: impl Into<String>, bytes: usize) -> Self {
        let message = format!("Too long: may not be more than {bytes} bytes");
        Self {
            reason: "FieldValueTooLong",
            field: field.into(),
            message,
        }
    }

    /// JSON of the wrong type where the schema says another.
    pub fn type_invalid(field: impl Into<String>, value: &str, what: impl AsRef<str>) -> Self {
        let message = format!("Invalid value: \"{value}\": {}", what.as_ref());
        Self {
            reason: "FieldValueTypeInvalid",
            field: field.into(),
            message,
        }
    }
}

/// What an error is about, for `details`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// API group, empty for core.
    pub group: String,
    /// Plural or kind, as the real server does it: plural for lookups, kind for validation.
    pub kind: String,
    /// Object name.
    pub name: String,
}

/// A refusal: everything that becomes the `Status` body and the HTTP code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} ({code}): {message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// CamelCase word clients test.
    pub reason: &'static str,
    /// Text for people: what, where, what to do.
    pub message: String,
    /// Object or resource concerned.
    pub about: Box<About>,
    /// Field by field, for `Invalid`.
    pub causes: Vec<Cause>,
    /// Seconds after which a retry makes sense.
    pub retry_after_seconds: Option<u32>,
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let (about, causes) = (Box::default(), Vec::new());
        Self {
            code,
            reason,
            message: message.into(),
            about,
            causes,
            retry_after_seconds: None,
        }
    }

    fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.about = Box::new(About {
            group: group.into(),
            kind: kind.into(),
            name: name.into(),
        });
        self
    }

    /// 404 for an object. `group` and `plural` name the resource.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(plural, group));
        Self::new(404, "NotFound", message).about(group, plural, name)
    }

    /// 404 for a path that this server does not have.
    pub fn no_such_path() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
    }

    /// 409 on create.
    pub fn already_exists(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", qualified(plural, group));
        Self::new(409, "AlreadyExists", message).about(group, plural, name)
    }

    /// 409 on a write based on something else than what is stored; `why` says on what.
    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            qualified(plural, group)
        );
        Self::new(409, "Conflict", message).about(group, plural, name)
    }

    /// 409 because the resourceVersion is not the stored one.
    pub fn modified(group: &str, plural: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(group, plural, name, why)
    }

    /// 422 with the fields named.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let mut texts: Vec<String> = causes
            .iter()
            .map(|c| format!("{}: {}", c.field, c.message))
            .collect();
        let text = if texts.len() == 1 {
            texts.remove(0)
        } else {
            format!("[{}]", texts.join(", "))
        };
        let message = format!("{} \"{name}\" is invalid: {text}", qualified(kind, group));
        let error = Self::new(422, "Invalid", message).about(group, kind, name);
        Self { causes, ..error }
    }

    /// 422 for a patch that does not apply.
    pub fn patch_rejected() -> Self {
        Self::new(
            422,
            "Invalid",
            "the server rejected our request due to an error in our request",
        )
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403.
    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message = format!(
            "{} \"{name}\" is forbidden: {why}",
            qualified(plural, group)
        );
        Self::new(403, "Forbidden", message).about(group, plural, name)
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 406: none of the asked media types can be made.
    pub fn not_acceptable() -> Self {
        let accepted = "application/json, application/yaml";
        Self::new(
            406,
            "NotAcceptable",
            format!("only the following media types are accepted: {accepted}"),
        )
    }

    /// 415 with what would be accepted instead.
    pub fn unsupported_media(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 413.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("the request body is larger than the limit of {limit} bytes"),
        )
    }

    /// 410: older than the change log.
    pub fn expired(message: &str) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 500 without a reason word, as the real server answers what its own code did not foresee.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 500 with the cause in the details.
    pub fn internal_error(what: &str) -> Self {
        let message = format!("Internal error occurred: {what}");
        let cause = Cause {
            reason: "",
            field: String::new(),
            message: what.to_owned(),
        };
        Self {
            causes: vec![cause],
            ..Self::new(500, "InternalError", message)
        }
    }

    /// 501: a known part of Kubernetes that this server leaves out; `what` says which and what to use instead.
    pub fn not_implemented(what: &str) -> Self {
        Self::new(
            501,
            "NotImplemented",
            format!("this embedded API server does not do that: {what}"),
        )
    }

    /// 504: a resourceVersion from the future.
    pub fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            field: String::new(),
            message: "Too large resource version".into(),
        };
        let error = Self::new(504, "Timeout", message);
        Self {
            causes: vec![cause],
            retry_after_seconds: Some(1),
            ..error
        }
    }

    /// The `Status` object.
    pub fn to_status(&self) -> Value {
        let mut details = serde_json::Map::new();
        for (key, value) in [
            ("name", &self.about.name),
            ("group", &self.about.group),
            ("kind", &self.about.kind),
        ] {
            if !value.is_empty() {
                details.insert(key.into(), json!(value));
            }
        }
        if !self.causes.is_empty() {
            details.insert(
                "causes".into(),
                self.causes.iter().map(cause_json).collect(),
            );
        }
        if let Some(seconds) = self.retry_after_seconds {
            details.insert("retryAfterSeconds".into(), json!(seconds));
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !details.is_empty() {
            status["details"] = Value::Object(details);
        }
        status
    }
}

fn cause_json(cause: &Cause) -> Value {
    let mut value = json!({"message": cause.message});
    for (key, text) in [("reason", cause.reason), ("field", &cause.field)] {
        if !text.is_empty() {
            value[key] = json!(text);
        }
    }
    value
}

fn qualified(word: &str, group: &str) -> String {
    if group.is_empty() {
        word.to_owned()
    } else {
        format!("{word}.{group}")
    }
}
