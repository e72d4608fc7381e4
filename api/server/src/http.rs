//! HTTP: who may ask, what is asked, and the answer's bytes. Decides nothing about objects.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::Shared;
use crate::crud::{Call, DeleteOptions, Part, Written};
use crate::decode::{self, FieldValidation};
use crate::discovery;
use crate::list::{self, Selection};
use crate::output::{Form, Writer, bytes};
use crate::patch::PatchType;
use crate::query::{Path, Query};
use crate::registry::{Kind, Registry};
use crate::status_error::{ApiError, Cause};
use crate::table::Include;
use crate::watch::{Watch, WatchOptions};

/// As large as kube-apiserver takes them.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
const DEFAULT_WATCH: Duration = Duration::from_secs(30 * 60);

/// Body of every answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Answers one request.
pub(crate) async fn handle(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let answer = respond(&shared, &parts, body)
        .await
        .unwrap_or_else(|error| refusal(&error));
    tracing::debug!(method = %parts.method, uri = %parts.uri, code = answer.status().as_u16(), "request");
    Ok(answer)
}

async fn respond(
    shared: &Arc<Shared>,
    parts: &Parts,
    body: Incoming,
) -> Result<Response<Body>, ApiError> {
    let path = parts.uri.path();
    let public = ["/healthz", "/livez", "/readyz", "/version"]
        .iter()
        .any(|p| {
            path == *p
                || path
                    .strip_prefix(p)
                    .is_some_and(|rest| rest.starts_with('/'))
        });
    if !public && !authorized(shared, &parts.headers) {
        return Err(ApiError::unauthorized());
    }
    if parts.headers.contains_key("impersonate-user") {
        return Err(ApiError::not_implemented(
            "impersonation (there is one user, an administrator)",
        ));
    }
    let limited = Limited::new(body, MAX_BODY_BYTES);
    let collected = tokio::time::timeout(BODY_TIMEOUT, limited.collect()).await;
    let late = |_| ApiError::bad_request("the body did not arrive in time");
    let body = collected.map_err(late)?.map_err(|error| {
        if error.is::<LengthLimitError>() {
            ApiError::too_large(MAX_BODY_BYTES)
        } else {
            ApiError::bad_request("the body broke off")
        }
    })?;
    let registry = shared.lock().registry.clone();
    if let Some(answer) = fixed(&registry, parts)? {
        return Ok(answer);
    }
    let path = Path::parse(path).ok_or_else(ApiError::no_such_path)?;
    if path.group == "authorization.k8s.io" || path.group == "authentication.k8s.io" {
        return Err(ApiError::not_implemented(
            "access and token reviews (whoever holds the token may do everything)",
        ));
    }
    let kind = registry
        .find(&path.group, &path.version, &path.plural)
        .ok_or_else(ApiError::no_such_path)?;
    let request = ApiRequest {
        shared,
        parts,
        path: &path,
        kind,
        query: Query::parse(parts.uri.query().unwrap_or("")),
        body: body.to_bytes(),
    };
    request.answer()
}

/// Equal length and bytes, in a time that does not depend on where they differ.
fn authorized(shared: &Shared, headers: &HeaderMap) -> bool {
    let given = headers
        .get(header::AUTHORIZATION)
        .map_or(&b""[..], |value| value.as_bytes());
    let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
    let wanted = shared.token.as_bytes();
    given.len() == wanted.len()
        && given
            .iter()
            .zip(wanted)
            .fold(0, |differ, (a, b)| differ | (a ^ b))
            == 0
}

/// Paths that are no resources.
fn fixed(registry: &Registry, parts: &Parts) -> Result<Option<Response<Body>>, ApiError> {
    let path = parts.uri.path();
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let value = match segments.as_slice() {
        [""] => Some(
            json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v3", "/readyz", "/version"]}),
        ),
        ["healthz" | "livez" | "readyz"] | ["healthz" | "livez" | "readyz", "ping"] => {
            return Ok(Some(answer(
                200,
                "text/plain; charset=utf-8",
                b"ok".to_vec(),
                &[],
            )));
        }
        ["version"] => Some(discovery::version()),
        ["api" | "apis"] => {
            let form = Form::from_accept(accept(parts))?;
            let value = match (form, segments == ["api"]) {
                (Form::Discovery, core) => discovery::aggregated(registry, core),
                (_, true) => discovery::api_versions(),
                (_, false) => discovery::group_list(registry),
            };
            return encode(form, 200, &value, &[]).map(Some);
        }
        ["api", version] => discovery::resource_list(registry, "", version),
        ["apis", group] => discovery::group(registry, group),
        ["apis", group, version] => discovery::resource_list(registry, group, version),
        ["openapi", "v3"] => Some(discovery::openapi_index(registry)),
        ["openapi", "v3", "api", version] => discovery::openapi(registry, "", version),
        ["openapi", "v3", "apis", group, version] => discovery::openapi(registry, group, version),
        ["openapi", "v2"] => return Err(ApiError::not_implemented("OpenAPI v2 (ask /openapi/v3)")),
        _ => return Ok(None),
    };
    let value = value.ok_or_else(ApiError::no_such_path)?;
    if parts.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    Ok(Some(answer(200, "application/json", bytes(&value), &[])))
}

fn header_text<'a>(parts: &'a Parts, name: &header::HeaderName) -> &'a str {
    parts
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn accept(parts: &Parts) -> &str {
    header_text(parts, &header::ACCEPT)
}

fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = answer(
        error.code,
        "application/json",
        bytes(&error.to_status()),
        &[],
    );
    if let Some(seconds) = error.retry_after_seconds {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn answer(
    code: u16,
    content_type: &'static str,
    body: Vec<u8>,
    warnings: &[String],
) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *response.status_mut() =
        StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static(content_type),
    );
    headers.insert(
        header::CACHE_CONTROL,
        header::HeaderValue::from_static("no-cache, private"),
    );
    headers.insert(header::VARY, header::HeaderValue::from_static("Accept"));
    for warning in warnings {
        let text = format!(
            "299 - \"{}\"",
            warning.replace('\\', "\\\\").replace('"', "\\\"")
        );
        if let Ok(value) = header::HeaderValue::from_str(&text) {
            headers.append(header::WARNING, value);
        }
    }
    response
}

fn encode(
    form: Form,
    code: u16,
    value: &Value,
    warnings: &[String],
) -> Result<Response<Body>, ApiError> {
    let body = match form {
        Form::Yaml => {
            let text = serde_yaml_ng::to_string(value)
                .map_err(|error| ApiError::internal(error.to_string()))?;
            text.into_bytes()
        }
        Form::Json | Form::Table | Form::Partial | Form::Discovery => bytes(value),
    };
    Ok(answer(code, form.content_type(), body, warnings))
}

/// One request for a resource.
struct ApiRequest<'a> {
    shared: &'a Arc<Shared>,
    parts: &'a Parts,
    path: &'a Path,
    kind: &'a Arc<Kind>,
    query: Query,
    body: Bytes,
}

impl ApiRequest<'_> {
    fn answer(&self) -> Result<Response<Body>, ApiError> {
        let namespaced = self.path.namespace.is_some();
        if self.path.name.is_some() && namespaced != self.kind.namespaced
            || namespaced && !self.kind.namespaced
        {
            return Err(ApiError::no_such_path());
        }
        let part = self.part()?;
        let method = self.parts.method.as_str();
        match (method, self.path.name.as_deref()) {
            ("GET", None) if self.path.watch || self.query.flag("watch") == Some(true) => {
                self.watch()
            }
            ("GET", None) => self.list(),
            ("GET", Some(name)) => self.get(name),
            ("POST", None) if namespaced == self.kind.namespaced => self.create(),
            ("PUT", Some(name)) => self.put(name, part),
            ("PATCH", Some(name)) if part != Part::Finalize => self.patch(name, part),
            ("DELETE", Some(name)) if part == Part::Main => self.delete(name),
            ("DELETE", None) if !self.kind.is("namespaces") => self.delete_collection(),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn part(&self) -> Result<Part, ApiError> {
        match self.path.subresource.as_deref() {
            None => Ok(Part::Main),
            Some("status") if self.kind.status => Ok(Part::Status),
            Some("finalize") if self.kind.is("namespaces") => Ok(Part::Finalize),
            Some(
                sub @ ("log"
                | "exec"
                | "attach"
                | "portforward"
                | "proxy"
                | "eviction"
                | "binding"
                | "ephemeralcontainers"
                | "scale"
                | "token"),
            ) => Err(ApiError::not_implemented(&format!(
                "the subresource {}/{sub}",
                self.kind.plural
            ))),
            Some(_) => Err(ApiError::no_such_path()),
        }
    }

    fn writer(&self) -> Result<Writer, ApiError> {
        let include = match self.query.get("includeObject") {
            "" | "Metadata" => Include::Metadata,
            "Object" => Include::Object,
            "None" => Include::Nothing,
            other => {
                let what = "must be 'Metadata', 'Object', 'None', or empty";
                let message = format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": {what}"
                );
                return Err(ApiError::bad_request(message));
            }
        };
        Ok(Writer {
            kind: self.kind.clone(),
            form: Form::from_accept(accept(self.parts))?,
            include,
        })
    }

    fn call(&self, options: &str) -> Result<Call<'_>, ApiError> {
        let validation = match self.query.get("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = &["", "Ignore", "Strict", "Warn"];
                let cause = Cause::not_supported("fieldValidation", &json!(other), supported);
                return Err(ApiError::invalid("meta.k8s.io", options, "", vec![cause]));
            }
        };
        Ok(Call {
            kind: self.kind,
            namespace: self.path.namespace.as_deref().unwrap_or_default(),
            now: Timestamp::now(),
            dry_run: self.query.dry_run(options)?,
            validation,
            warnings: self.kind.warnings(),
        })
    }

    fn media_type(&self) -> &str {
        let whole = header_text(self.parts, &header::CONTENT_TYPE);
        whole.split(';').next().unwrap_or_default().trim()
    }

    fn get(&self, name: &str) -> Result<Response<Body>, ApiError> {
        let writer = self.writer()?;
        let call = self.call("GetOptions")?;
        let object = self.shared.lock().get(&call, name)?;
        encode(
            writer.form,
            200,
            &writer.object(&object, call.now, true),
            &self.kind.warnings(),
        )
    }

    fn list(&self) -> Result<Response<Body>, ApiError> {
        let writer = self.writer()?;
        let selection = Selection::parse(&self.query, self.kind, self.path.namespace.clone())?;
        let (objects, metadata) =
            list::list(&self.shared.lock(), self.kind, &selection, &self.query)?;
        let body = writer.list(&objects, &metadata, Timestamp::now());
        if writer.form == Form::Yaml {
            let value: Value = serde_json::from_slice(&body)
                .map_err(|error| ApiError::internal(error.to_string()))?;
            return encode(writer.form, 200, &value, &self.kind.warnings());
        }
        Ok(answer(
            200,
            writer.form.content_type(),
            body,
            &self.kind.warnings(),
        ))
    }

    fn watch(&self) -> Result<Response<Body>, ApiError> {
        let writer = self.writer()?;
        let selection = Selection::parse(&self.query, self.kind, self.path.namespace.clone())?;
        let from = list::watch_start(&self.query)?.map(|from| {
            if from == u64::MAX {
                self.shared.lock().store.revision()
            } else {
                from
            }
        });
        let timeout = self
            .query
            .number("timeoutSeconds")?
            .and_then(|seconds| u64::try_from(seconds).ok())
            .filter(|&seconds| seconds > 0);
        let watch = Watch::open(
            self.shared.clone(),
            WatchOptions {
                writer,
                namespace: selection.namespace,
                labels: selection.labels,
                fields: selection.fields,
                bookmarks: self.query.flag("allowWatchBookmarks") == Some(true),
                from,
                mark_initial: self.query.flag("sendInitialEvents") == Some(true),
                timeout: timeout.map_or(DEFAULT_WATCH, Duration::from_secs),
            },
        );
        let frames = futures::stream::unfold(watch, Watch::next)
            .map(|frame| Ok::<_, Infallible>(Frame::data(frame)));
        let mut response = answer(200, "application/json", Vec::new(), &self.kind.warnings());
        *response.body_mut() = BodyExt::boxed_unsync(StreamBody::new(frames));
        Ok(response)
    }

    fn create(&self) -> Result<Response<Body>, ApiError> {
        let mut call = self.call("CreateOptions")?;
        let body = decode::parse(self.media_type(), &self.body, &self.kind.kind)?;
        let written = self.shared.write(|state| state.create(&mut call, body))?;
        self.written(&written, &call)
    }

    fn put(&self, name: &str, part: Part) -> Result<Response<Body>, ApiError> {
        let mut call = self.call("UpdateOptions")?;
        let body = decode::parse(self.media_type(), &self.body, &self.kind.kind)?;
        let written = self
            .shared
            .write(|state| state.put(&mut call, name, part, body))?;
        self.written(&written, &call)
    }

    fn patch(&self, name: &str, part: Part) -> Result<Response<Body>, ApiError> {
        let mut call = self.call("PatchOptions")?;
        let patch_type =
            PatchType::from_content_type(self.media_type(), self.kind.custom().is_none())?;
        let written = self
            .shared
            .write(|state| state.patch(&mut call, name, part, (patch_type, &self.body)))?;
        self.written(&written, &call)
    }

    fn delete(&self, name: &str) -> Result<Response<Body>, ApiError> {
        let (options, mut call) = self.delete_options()?;
        let written = self
            .shared
            .write(|state| state.delete(&mut call, name, &options))?;
        self.written(&written, &call)
    }

    fn delete_collection(&self) -> Result<Response<Body>, ApiError> {
        let (options, mut call) = self.delete_options()?;
        let selection = Selection::parse(&self.query, self.kind, self.path.namespace.clone())?;
        let selectors = (&selection.labels, &selection.fields);
        let gone = self
            .shared
            .write(|state| state.delete_collection(&mut call, selectors, &options))?;
        let writer = self.writer()?;
        let metadata = json!({"resourceVersion": self.shared.lock().store.revision().to_string()});
        Ok(answer(
            200,
            writer.form.content_type(),
            writer.list(&gone, &metadata, call.now),
            &call.warnings,
        ))
    }

    fn delete_options(&self) -> Result<(DeleteOptions, Call<'_>), ApiError> {
        let body = if self.body.is_empty() {
            json!({})
        } else {
            decode::parse(self.media_type(), &self.body, "DeleteOptions")?
        };
        let text = |pointer: &str| {
            body.pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let mut call = self.call("DeleteOptions")?;
        call.dry_run |= body
            .get("dryRun")
            .and_then(Value::as_array)
            .is_some_and(|list| list.contains(&json!("All")));
        let from_query = Some(self.query.get("propagationPolicy").to_owned())
            .filter(|policy| !policy.is_empty());
        let propagation = from_query.or_else(|| text("/propagationPolicy"));
        let refuse = |cause| {
            Err(ApiError::invalid(
                "meta.k8s.io",
                "DeleteOptions",
                "",
                vec![cause],
            ))
        };
        match propagation.as_deref() {
            None | Some("Foreground" | "Background" | "Orphan") => {}
            Some(other) => {
                let supported = &["Foreground", "Background", "Orphan", "nil"];
                return refuse(Cause::not_supported(
                    "propagationPolicy",
                    &json!(other),
                    supported,
                ));
            }
        }
        if propagation.is_some() && body.get("orphanDependents").is_some_and(Value::is_boolean) {
            let what = "orphanDependents and deletionPropagation cannot be both set";
            return refuse(Cause::invalid(
                "propagationPolicy",
                &json!(propagation),
                what,
            ));
        }
        let grace_period_seconds = self
            .query
            .number("gracePeriodSeconds")?
            .or_else(|| body.get("gracePeriodSeconds").and_then(Value::as_i64));
        let options = DeleteOptions {
            grace_period_seconds,
            propagation,
            uid: text("/preconditions/uid"),
            resource_version: text("/preconditions/resourceVersion"),
            cascades: false,
        };
        Ok((options, call))
    }

    fn written(&self, written: &Written, call: &Call<'_>) -> Result<Response<Body>, ApiError> {
        let writer = self.writer()?;
        let (code, value) = match written {
            Written::Created(object) => (201, writer.object(object, call.now, true)),
            Written::Updated(object) => (200, writer.object(object, call.now, true)),
            Written::Status(status) => (200, status.clone()),
        };
        encode(writer.form, code, &value, &call.warnings)
    }
}
