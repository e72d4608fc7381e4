//! What is in a URL: the resource that a path names, and the parameters behind the question mark. Pure.

use crate::status_error::{ApiError, Cause};

/// A path below `/api` or `/apis`, split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// Empty for core.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Namespace, if the path has one.
    pub(crate) namespace: Option<String>,
    /// Resource.
    pub(crate) plural: String,
    /// Object.
    pub(crate) name: Option<String>,
    /// `status`, `finalize` or something that is not served.
    pub(crate) subresource: Option<String>,
    /// The old `/watch/` form.
    pub(crate) watch: bool,
}

impl Path {
    /// Splits a path with at least a resource in it; nothing for any other path.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<String> = path.strip_prefix('/')?.split('/').map(decode).collect();
        let mut parts: &[String] = &parts;
        let mut result = Self::default();
        match parts {
            [root, version, rest @ ..] if root == "api" => {
                (result.version, parts) = (version.clone(), rest);
            }
            [root, group, version, rest @ ..] if root == "apis" => {
                (result.group, result.version, parts) = (group.clone(), version.clone(), rest);
            }
            _ => return None,
        }
        if let [first, rest @ ..] = parts
            && first == "watch"
        {
            (result.watch, parts) = (true, rest);
        }
        // `namespaces/x`, `namespaces/x/status` and `namespaces/x/finalize` are the Namespace itself
        if let [first, namespace, resource, rest @ ..] = parts
            && first == "namespaces"
            && !(rest.is_empty() && (resource == "status" || resource == "finalize"))
        {
            result.namespace = Some(namespace.clone());
            result.plural.clone_from(resource);
            parts = rest;
        } else if let [plural, rest @ ..] = parts {
            result.plural.clone_from(plural);
            parts = rest;
        }
        match parts {
            [] => {}
            [name] => result.name = Some(name.clone()),
            [name, subresource] => {
                (result.name, result.subresource) = (Some(name.clone()), Some(subresource.clone()));
            }
            _ => return None,
        }
        let named = !result.version.is_empty()
            && !result.plural.is_empty()
            && result.name.as_deref() != Some("")
            && result.namespace.as_deref() != Some("");
        named.then_some(result)
    }
}

/// The parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// From what stands behind the question mark.
    pub(crate) fn parse(query: &str) -> Self {
        let pair = |part: &str| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (
                decode(&key.replace('+', " ")),
                decode(&value.replace('+', " ")),
            )
        };
        Self(
            query
                .split('&')
                .filter(|part| !part.is_empty())
                .map(pair)
                .collect(),
        )
    }

    /// A parameter, empty when missing.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| value)
    }

    /// A switch as Go reads it: `1`, `t`, `true`; missing and anything else is no.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        match self.get(name) {
            "" => None,
            value => Some(["1", "t", "T", "true", "TRUE", "True"].contains(&value)),
        }
    }

    /// A whole number. Errors: 400 with the text.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let text = self.get(name);
        if text.is_empty() {
            return Ok(None);
        }
        let wrong = |_| {
            ApiError::bad_request(format!(
                "strconv.ParseInt: parsing \"{text}\": invalid syntax"
            ))
        };
        text.parse().map(Some).map_err(wrong)
    }

    /// `dryRun`. Errors: 422 for any value but `All`; `options` is the kind named in the answer.
    pub(crate) fn dry_run(&self, options: &str) -> Result<bool, ApiError> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => {
                let cause = Cause::not_supported("dryRun", &serde_json::json!([other]), &["All"]);
                Err(ApiError::invalid("meta.k8s.io", options, "", vec![cause]))
            }
        }
    }
}

/// `%41` to `A`; what is no escape stays as it is.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escaped = match after {
            [high, low, ..] if *first == b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                digit(*high)
                    .zip(digit(*low))
                    .and_then(|(high, low)| u8::try_from(high * 16 + low).ok())
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() {
            after.get(2..).unwrap_or_default()
        } else {
            after
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_their_resource() {
        let path = |group: &str,
                    version: &str,
                    namespace: Option<&str>,
                    plural: &str,
                    name: Option<&str>,
                    sub: Option<&str>| {
            let owned = |text: Option<&str>| text.map(str::to_owned);
            Some(Path {
                group: group.into(),
                version: version.into(),
                namespace: owned(namespace),
                plural: plural.into(),
                name: owned(name),
                subresource: owned(sub),
                watch: false,
            })
        };
        let table = [
            (
                "/api/v1/services",
                path("", "v1", None, "services", None, None),
            ),
            (
                "/api/v1/namespaces/a",
                path("", "v1", None, "namespaces", Some("a"), None),
            ),
            (
                "/api/v1/namespaces/a/status",
                path("", "v1", None, "namespaces", Some("a"), Some("status")),
            ),
            (
                "/api/v1/namespaces/a/services/b/status",
                path("", "v1", Some("a"), "services", Some("b"), Some("status")),
            ),
            (
                "/apis/x.io/v2/namespaces/a/things/b%20c",
                path("x.io", "v2", Some("a"), "things", Some("b c"), None),
            ),
            ("/api/v1/namespaces/a/services/b/c/d", None),
            ("/api//v1/namespaces", None),
            ("/api/v1", None),
            ("/other", None),
        ];
        for (text, expected) in table {
            assert_eq!(Path::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=a+in%20%28b%29&watch=1&limit=x%zz&limit=2");
        assert_eq!(query.get("labelSelector"), "a in (b)");
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(
            query.number("limit").unwrap_err().message,
            "strconv.ParseInt: parsing \"x%zz\": invalid syntax"
        );
        assert!(query.dry_run("CreateOptions").is_ok_and(|dry| !dry));
    }
}
