//! Lists: selection, snapshots at a version, pages.
//!
//! A `continue` token holds the version of the first page and the last key given, so all pages show one snapshot, rebuilt from the
//! change log; when the log has forgotten it, the client gets 410 and starts again. Source: KEP-365 (paging).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::crud::State;
use crate::query::Query;
use crate::registry::Kind;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status_error::{ApiError, Cause};
use crate::store::{ObjectKey, StoreError, Stored};

/// What a list or watch selects.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// One namespace, or all.
    pub(crate) namespace: Option<String>,
    /// By label.
    pub(crate) labels: LabelSelector,
    /// By field.
    pub(crate) fields: FieldSelector,
}

impl Selection {
    /// From the query. Errors: 400.
    pub(crate) fn parse(
        query: &Query,
        kind: &Kind,
        namespace: Option<String>,
    ) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(query.get("labelSelector"))?;
        let fields = FieldSelector::parse(query.get("fieldSelector"), kind)?;
        Ok(Self {
            namespace,
            labels,
            fields,
        })
    }

    fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }
}

fn refuse(causes: Vec<Cause>) -> ApiError {
    ApiError::invalid("meta.k8s.io", "ListOptions", "", causes)
}

/// `resourceVersion` as a number; none when missing. Errors: 400.
fn version(query: &Query) -> Result<Option<u64>, ApiError> {
    let text = query.get("resourceVersion");
    if text.is_empty() {
        return Ok(None);
    }
    let what = format!(
        "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
    );
    text.parse()
        .map(Some)
        .map_err(|_| ApiError::bad_request(format!("invalid resource version: {what}")))
}

/// Where a watch starts: after a version, or (none) with what exists. Errors: 422, 500.
pub(crate) fn watch_start(query: &Query) -> Result<Option<u64>, ApiError> {
    let wanted = version(query).map_err(|error| {
        let message = error
            .message
            .trim_start_matches("invalid resource version: ")
            .to_owned();
        ApiError::internal(message)
    })?;
    let matched = query.get("resourceVersionMatch");
    let Some(initial) = query.flag("sendInitialEvents") else {
        if matched.is_empty() {
            return Ok(wanted.filter(|&wanted| wanted != 0));
        }
        let what =
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        return Err(refuse(vec![Cause::forbidden("resourceVersionMatch", what)]));
    };
    if matched != "NotOlderThan" {
        let what = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return Err(refuse(vec![Cause::forbidden("resourceVersionMatch", what)]));
    }
    if initial {
        Ok(None)
    } else {
        Ok(Some(wanted.unwrap_or(u64::MAX)))
    }
}

fn check_options(query: &Query, wanted: Option<u64>) -> Result<(), ApiError> {
    let matched = query.get("resourceVersionMatch");
    let forbidden = |field: &str, what: &str| Err(refuse(vec![Cause::forbidden(field, what)]));
    if query.flag("sendInitialEvents").is_some() {
        return forbidden(
            "sendInitialEvents",
            "sendInitialEvents is forbidden for list",
        );
    }
    match (matched, wanted) {
        ("", _) => Ok(()),
        (_, None) => forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        ("Exact", Some(0)) => forbidden(
            "resourceVersionMatch",
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        ("Exact" | "NotOlderThan", _) => Ok(()),
        (other, _) => {
            let supported = &["Exact", "NotOlderThan", ""];
            Err(refuse(vec![Cause::not_supported(
                "resourceVersionMatch",
                &json!(other),
                supported,
            )]))
        }
    }
}

/// Objects and the list's metadata. Errors: 400, 410, 422, 504.
pub(crate) fn list(
    state: &State,
    kind: &Kind,
    selection: &Selection,
    query: &Query,
) -> Result<(Vec<Arc<Value>>, Value), ApiError> {
    let limit = query
        .number("limit")?
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(0);
    let token = query.get("continue");
    let current = state.store.revision();
    let wanted = version(query)?;
    let (at, start) = if token.is_empty() {
        check_options(query, wanted)?;
        if let Some(wanted) = wanted.filter(|&wanted| wanted > current) {
            return Err(ApiError::version_too_large(wanted, current));
        }
        let exact = query.get("resourceVersionMatch") == "Exact"
            || (limit > 0
                && wanted.unwrap_or(0) > 0
                && query.get("resourceVersionMatch").is_empty());
        (wanted.filter(|_| exact).unwrap_or(current), None)
    } else {
        if wanted.is_some_and(|wanted| wanted > 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (at, key) = read_token(token)?;
        (at, Some(key))
    };
    let page = if at == current {
        let all = state.store.list(
            &kind.storage,
            selection.namespace.as_deref(),
            start.as_ref(),
        );
        take(all, selection, limit)
    } else {
        let snapshot = state
            .store
            .list_at(&kind.storage, at)
            .map_err(|error| expired(error, !token.is_empty()))?;
        let inside = |key: &ObjectKey| {
            selection
                .namespace
                .as_ref()
                .is_none_or(|namespace| *namespace == key.namespace)
        };
        let after = |key: &ObjectKey| start.as_ref().is_none_or(|start| key > start);
        take(
            snapshot.iter().filter(|(key, _)| inside(key) && after(key)),
            selection,
            limit,
        )
    };
    let mut metadata = json!({"resourceVersion": at.to_string()});
    if kind.custom().is_some() {
        metadata["continue"] = json!("");
    }
    if let Some(last) = page.last {
        metadata["continue"] = json!(write_token(at, &last));
        if selection.is_everything() {
            metadata["remainingItemCount"] = json!(page.remaining);
        }
    }
    Ok((page.objects, metadata))
}

#[derive(Default)]
struct Page {
    objects: Vec<Arc<Value>>,
    /// Key of the last object, when there is more.
    last: Option<ObjectKey>,
    remaining: usize,
}

fn take<'a>(
    all: impl Iterator<Item = (&'a ObjectKey, &'a Stored)>,
    selection: &Selection,
    limit: usize,
) -> Page {
    let mut matching = all.filter(|(_, stored)| selection.matches(&stored.object));
    let mut page = Page::default();
    let mut last = None;
    while limit == 0 || page.objects.len() < limit {
        let Some((key, stored)) = matching.next() else {
            return page;
        };
        page.objects.push(stored.object.clone());
        last = Some(key);
    }
    page.remaining = matching.count();
    page.last = last.filter(|_| page.remaining > 0).cloned();
    page
}

fn expired(error: StoreError, paging: bool) -> ApiError {
    match error {
        StoreError::Expired { .. } if paging => ApiError::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        ),
        StoreError::Expired { .. } => {
            ApiError::expired("The resourceVersion for the provided list is too old.")
        }
        StoreError::Future { .. }
        | StoreError::Exists
        | StoreError::NotFound
        | StoreError::Conflict { .. } => ApiError::expired(&error.to_string()),
    }
}

fn write_token(at: u64, key: &ObjectKey) -> String {
    URL_SAFE_NO_PAD.encode(json!([at, key.namespace, key.name]).to_string())
}

fn read_token(token: &str) -> Result<(u64, ObjectKey), ApiError> {
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?;
        let (at, namespace, name): (u64, String, String) = serde_json::from_slice(&bytes).ok()?;
        Some((at, ObjectKey::new(namespace, name)))
    };
    read().ok_or_else(|| {
        ApiError::bad_request(
            "invalid continue token: continue key is not valid: it was not given by this server",
        )
    })
}
