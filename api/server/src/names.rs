//! What names, labels, annotations and addresses may look like, and the sentence that says why not.
//!
//! Pure. Source: RFC 1123 names and qualified names of `k8s.io/apimachinery/pkg/util/validation`.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::registry::NameRule;
use crate::status_error::Cause;

const ANNOTATION_BYTES: usize = 256 * 1024;

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

fn lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn framed(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    ends.iter().all(|end| end.is_some_and(|&byte| edge(byte)))
        && bytes.iter().all(|&byte| inner(byte))
}

/// RFC 1123 label of at most 63 characters.
pub(crate) fn label_problem(name: &str) -> Option<String> {
    if name.len() > 63 {
        return Some("must be no more than 63 characters".into());
    }
    if name.contains('.') && subdomain_problem(name).is_none() {
        return Some("must not contain dots".into());
    }
    (!framed(name, lower, |byte| lower(byte) || byte == b'-')).then(|| LABEL.into())
}

/// RFC 1123 subdomain of at most 253 characters.
pub(crate) fn subdomain_problem(name: &str) -> Option<String> {
    if name.len() > 253 {
        return Some("must be no more than 253 characters".into());
    }
    let good = name
        .split('.')
        .all(|part| framed(part, lower, |byte| lower(byte) || byte == b'-'));
    (!good).then(|| SUBDOMAIN.into())
}

fn qualified_part(text: &str) -> bool {
    framed(
        text,
        |byte| byte.is_ascii_alphanumeric(),
        |byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte),
    )
}

/// `name` or `prefix/name`, for label keys, annotation keys and finalizers.
pub(crate) fn label_key_problem(key: &str) -> Option<String> {
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if let Some(problem) = subdomain_problem(prefix) {
                return Some(format!("prefix part {problem}"));
            }
            name
        }
        _ => {
            let what = QUALIFIED.replacen("must consist", "a valid label key must consist", 1);
            return Some(format!(
                "{what} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
    };
    if name.is_empty() {
        return Some("name part must be non-empty".into());
    }
    if name.len() > 63 {
        return Some("name part must be no more than 63 bytes".into());
    }
    (!qualified_part(name)).then(|| format!("name part {QUALIFIED}"))
}

/// Empty, or at most 63 qualified characters.
pub(crate) fn label_value_problem(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    (!value.is_empty() && !qualified_part(value)).then(|| LABEL_VALUE.into())
}

/// Key of a `ConfigMap` or Secret.
pub(crate) fn config_key_problem(key: &str) -> Option<String> {
    let good = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    (!good).then(|| CONFIG_KEY.into())
}

/// What is wrong with an IANA service name: 1 to 15 lower-case characters, at least one letter (RFC 6335 §5.1).
pub(crate) fn port_name_problems(name: &str) -> Vec<&'static str> {
    let allowed = |byte: u8| lower(byte) || byte == b'-';
    let checks = [
        (name.len() > 15, "must be no more than 15 characters"),
        (
            !name.bytes().all(allowed),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        (
            !name.bytes().any(|byte| byte.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        (name.contains("--"), "must not contain consecutive hyphens"),
        (
            name.starts_with('-') || name.ends_with('-'),
            "must not begin or end with a hyphen",
        ),
    ];
    checks
        .into_iter()
        .filter(|(wrong, _)| *wrong)
        .map(|(_, what)| what)
        .collect()
}

/// What is wrong with a qualified name; an empty one breaks two rules.
pub(crate) fn qualified_problems(text: &str) -> Vec<String> {
    let mut problems: Vec<String> = label_key_problem(text).into_iter().collect();
    if text.is_empty() {
        problems.push(format!("name part {QUALIFIED}"));
    }
    problems
}

const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

/// Why a text is no good address, if it is none.
pub(crate) fn ip_problem(text: &str) -> Option<&'static str> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            Some("must not be an IPv4-mapped IPv6 address")
        }
        Ok(_) => None,
        Err(_) => {
            let octets: Vec<&str> = text.split('.').collect();
            let number =
                |octet: &&str| octet.len() <= 3 && !octet.is_empty() && octet.parse::<u8>().is_ok();
            let zeros = octets.len() == 4 && octets.iter().all(number);
            Some(if zeros {
                "must not have leading 0s"
            } else {
                NOT_AN_IP
            })
        }
    }
}

/// Addresses that nobody outside of a host can send to.
pub(crate) fn special_address(ip: IpAddr) -> Option<String> {
    let (link_local, link_multicast) = match ip {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(ip) => (
            ip.is_unicast_link_local(),
            ip.octets().starts_with(&[0xff, 0x02]),
        ),
    };
    if ip.is_unspecified() {
        Some(format!("may not be unspecified ({ip})"))
    } else if ip.is_loopback() {
        Some("may not be in the loopback range (127.0.0.0/8, ::1/128)".into())
    } else if link_local {
        Some("may not be in the link-local range (169.254.0.0/16, fe80::/10)".into())
    } else {
        link_multicast.then(|| {
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".into()
        })
    }
}

/// Everything about `metadata` that the server checks for all kinds.
pub(crate) fn metadata_causes(metadata: &Value, rule: NameRule) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = metadata
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let problem = match rule {
        _ if name.is_empty() => Some(Cause::required(
            "metadata.name",
            "name or generateName is required",
        )),
        NameRule::Label => label_problem(name)
            .map(|problem| Cause::invalid("metadata.name", &json!(name), problem)),
        NameRule::Subdomain => subdomain_problem(name)
            .map(|problem| Cause::invalid("metadata.name", &json!(name), problem)),
    };
    causes.extend(problem);
    causes.extend(labels_causes(metadata.get("labels"), "metadata.labels"));
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    for key in annotations.into_iter().flat_map(serde_json::Map::keys) {
        // unlike label keys, annotation keys are compared in lower case
        if let Some(problem) = label_key_problem(&key.to_lowercase()) {
            causes.push(Cause::invalid("metadata.annotations", &json!(key), problem));
        }
    }
    let bytes = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    if annotations.is_some_and(|map| map.iter().map(bytes).sum::<usize>() > ANNOTATION_BYTES) {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATION_BYTES));
    }
    for (index, finalizer) in metadata
        .get("finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let text = finalizer.as_str().unwrap_or_default();
        let field = format!("metadata.finalizers[{index}]");
        if let Some(problem) = label_key_problem(text) {
            causes.push(Cause::invalid(field, finalizer, problem));
        } else if !text.contains('/')
            && !["orphan", "foregroundDeletion", "kubernetes"].contains(&text)
            && !text.contains('.')
        {
            let problem = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(field, finalizer, problem));
        }
    }
    for (index, owner) in metadata
        .get("ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                causes.push(Cause::required(
                    format!("metadata.ownerReferences[{index}].{field}"),
                    "must not be empty",
                ));
            }
        }
    }
    causes
}

/// Keys and values of a map of labels.
pub(crate) fn labels_causes(labels: Option<&Value>, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        if let Some(problem) = label_key_problem(key) {
            causes.push(Cause::invalid(field, &json!(key), problem));
        }
        if let Some(problem) = label_value_problem(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(field, value, problem));
        }
    }
    causes
}
