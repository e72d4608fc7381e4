//! Objects as `Table` (`meta.k8s.io/v1`): the columns that people know from `kubectl get`.
//!
//! Pure; the time is a value. Source: the printers of Kubernetes 1.37 and `additionalPrinterColumns`.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::crud::meta;
use crate::registry::Kind;

/// Which object a row carries (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    /// `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The whole object.
    Object,
    /// null.
    Nothing,
}

/// Name, and whether it shows with `-o wide` only.
type Column = (&'static str, bool);

/// Columns and cells of one built-in kind.
struct Printer {
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

fn printer(storage: &str) -> Printer {
    let (columns, cells): (&'static [Column], fn(&Value, Timestamp) -> Vec<Value>) = match storage {
        "services" => (
            &[
                ("Name", false),
                ("Type", false),
                ("Cluster-IP", false),
                ("External-IP", false),
                ("Port(s)", false),
                ("Age", false),
                ("Selector", true),
            ],
            service,
        ),
        "endpoints" => (
            &[("Name", false), ("Endpoints", false), ("Age", false)],
            endpoints,
        ),
        "endpointslices.discovery.k8s.io" => (
            &[
                ("Name", false),
                ("AddressType", false),
                ("Ports", false),
                ("Endpoints", false),
                ("Age", false),
            ],
            endpoint_slice,
        ),
        "pods" => (
            &[
                ("Name", false),
                ("Ready", false),
                ("Status", false),
                ("Restarts", false),
                ("Age", false),
                ("IP", true),
                ("Node", true),
                ("Nominated Node", true),
                ("Readiness Gates", true),
            ],
            pod,
        ),
        "nodes" => (
            &[
                ("Name", false),
                ("Status", false),
                ("Roles", false),
                ("Age", false),
                ("Version", false),
                ("Internal-IP", true),
                ("External-IP", true),
                ("OS-Image", true),
                ("Kernel-Version", true),
                ("Container-Runtime", true),
            ],
            node,
        ),
        "namespaces" => (
            &[("Name", false), ("Status", false), ("Age", false)],
            |object, now| {
                vec![
                    name(object),
                    json!(text(object, "/status/phase")),
                    age(object, now),
                ]
            },
        ),
        "configmaps" => (
            &[("Name", false), ("Data", false), ("Age", false)],
            |object, now| {
                vec![
                    name(object),
                    json!(count(object, "/data") + count(object, "/binaryData")),
                    age(object, now),
                ]
            },
        ),
        "secrets" => (
            &[
                ("Name", false),
                ("Type", false),
                ("Data", false),
                ("Age", false),
            ],
            |object, now| {
                vec![
                    name(object),
                    json!(text(object, "/type")),
                    json!(count(object, "/data")),
                    age(object, now),
                ]
            },
        ),
        "leases.coordination.k8s.io" => (
            &[("Name", false), ("Holder", false), ("Age", false)],
            |object, now| {
                vec![
                    name(object),
                    json!(text(object, "/spec/holderIdentity")),
                    age(object, now),
                ]
            },
        ),
        "events" => (
            &[
                ("Last Seen", false),
                ("Type", false),
                ("Reason", false),
                ("Object", false),
                ("Subobject", true),
                ("Source", true),
                ("Message", false),
                ("First Seen", true),
                ("Count", true),
                ("Name", true),
            ],
            event,
        ),
        "customresourcedefinitions.apiextensions.k8s.io" => {
            (&[("Name", false), ("Created At", false)], |object, _| {
                vec![name(object), json!(meta(object, "creationTimestamp"))]
            })
        }
        _ => (&[("Name", false), ("Age", false)], |object, now| {
            vec![name(object), age(object, now)]
        }),
    };
    Printer { columns, cells }
}

/// Column definitions of a kind.
pub(crate) fn columns(kind: &Kind) -> Value {
    let definition = |name: &str, kind: &str, format: &str, priority: i64, description: &str| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
    let own: Vec<Value> = match kind.custom() {
        Some(custom) => {
            let first = definition("Name", "string", "name", 0, "Name within its namespace");
            let text = |column: &Value, field: &str| {
                column
                    .get(field)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            let rest = custom.columns.iter().map(|column| {
                let priority = column.get("priority").and_then(Value::as_i64).unwrap_or(0);
                let (name, kind, format) = (
                    text(column, "name"),
                    text(column, "type"),
                    text(column, "format"),
                );
                definition(
                    &name,
                    &kind,
                    &format,
                    priority,
                    &text(column, "description"),
                )
            });
            let age = custom
                .columns
                .is_empty()
                .then(|| definition("Age", "date", "", 0, "Time since creation"));
            std::iter::once(first).chain(rest).chain(age).collect()
        }
        None => {
            let column = |&(name, wide): &Column| {
                let format = if name == "Name" { "name" } else { "" };
                definition(name, "string", format, i64::from(wide), name)
            };
            printer(&kind.storage).columns.iter().map(column).collect()
        }
    };
    Value::Array(own)
}

/// One row.
pub(crate) fn row(kind: &Kind, object: &Value, now: Timestamp, include: Include) -> Value {
    let cells = match kind.custom() {
        Some(custom) => {
            let rest = custom
                .columns
                .iter()
                .map(|column| custom_cell(column, object, now));
            let age = custom.columns.is_empty().then(|| age(object, now));
            std::iter::once(name(object))
                .chain(rest)
                .chain(age)
                .collect()
        }
        None => (printer(&kind.storage).cells)(object, now),
    };
    let object = match include {
        Include::Metadata => partial(object),
        Include::Object => object.clone(),
        Include::Nothing => Value::Null,
    };
    json!({"cells": cells, "object": object})
}

/// A whole table.
pub(crate) fn table(columns: Value, rows: Vec<Value>, metadata: &Value) -> Value {
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows})
}

/// `PartialObjectMetadata` of an object.
pub(crate) fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.get("metadata")})
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn count(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

fn name(object: &Value) -> Value {
    json!(meta(object, "name"))
}

fn or(text: &str, fallback: &str) -> Value {
    json!(if text.is_empty() { fallback } else { text })
}

fn since(time: &str, now: Timestamp) -> Value {
    match time.parse::<Timestamp>() {
        Ok(then) => json!(human(now.duration_since(then).as_secs())),
        Err(_) => json!("<unknown>"),
    }
}

fn age(object: &Value, now: Timestamp) -> Value {
    since(meta(object, "creationTimestamp"), now)
}

/// Seconds the way kubectl writes them: two units while the larger one is small.
fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1..0 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => pair(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn service(object: &Value, now: Timestamp) -> Vec<Value> {
    let strings = |pointer: &str| {
        list(object, pointer)
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
    };
    let kind = text(object, "/spec/type");
    let ingress = list(object, "/status/loadBalancer/ingress").iter();
    let mut outside: Vec<&str> = ingress
        .map(|i| {
            if text(i, "/ip").is_empty() {
                text(i, "/hostname")
            } else {
                text(i, "/ip")
            }
        })
        .collect();
    outside.extend(strings("/spec/externalIPs"));
    let external = match kind {
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        _ if !outside.is_empty() => outside.join(","),
        "LoadBalancer" => "<pending>".to_owned(),
        _ => "<none>".to_owned(),
    };
    let port = |port: &Value| {
        let number = |field: &str| port.get(field).and_then(Value::as_i64).unwrap_or(0);
        let node_port = if number("nodePort") > 0 {
            format!(":{}", number("nodePort"))
        } else {
            String::new()
        };
        format!("{}{node_port}/{}", number("port"), text(port, "/protocol"))
    };
    let ports = list(object, "/spec/ports")
        .iter()
        .map(port)
        .collect::<Vec<_>>()
        .join(",");
    let selector = object.pointer("/spec/selector").and_then(Value::as_object);
    let selector: Vec<String> = selector
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    vec![
        name(object),
        json!(kind),
        or(text(object, "/spec/clusterIP"), "<none>"),
        json!(external),
        or(&ports, "<none>"),
        age(object, now),
        or(&selector.join(","), "<none>"),
    ]
}

/// At most three, and how many more.
fn three(items: &[String], none: &str) -> Value {
    match items {
        [] => json!(none),
        [a, b, c, _, ..] => json!(format!("{a},{b},{c} + {} more...", items.len() - 3)),
        few => json!(few.join(",")),
    }
}

fn endpoints(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(object, "/subsets") {
        let ports = list(subset, "/ports");
        for address in list(subset, "/addresses") {
            let ip = text(address, "/ip");
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            for port in ports {
                let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
                all.push(if ip.contains(':') {
                    format!("[{ip}]:{number}")
                } else {
                    format!("{ip}:{number}")
                });
            }
        }
    }
    vec![name(object), three(&all, "<none>"), age(object, now)]
}

fn endpoint_slice(object: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| {
        port.get("port")
            .and_then(Value::as_i64)
            .map_or_else(|| text(port, "/name").to_owned(), |n| n.to_string())
    };
    let ports: Vec<String> = list(object, "/ports").iter().map(port).collect();
    let addresses = list(object, "/endpoints")
        .iter()
        .flat_map(|endpoint| list(endpoint, "/addresses"));
    let addresses: Vec<String> = addresses
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    vec![
        name(object),
        json!(text(object, "/addressType")),
        three(&ports, "<unset>"),
        three(&addresses, "<unset>"),
        age(object, now),
    ]
}

fn pod(object: &Value, now: Timestamp) -> Vec<Value> {
    let states = list(object, "/status/containerStatuses");
    let total = list(object, "/spec/containers").len();
    let running = |state: &&Value| {
        state.get("ready") == Some(&json!(true)) && state.pointer("/state/running").is_some()
    };
    let ready = states.iter().filter(running).count();
    let restarts: i64 = states
        .iter()
        .filter_map(|state| state.get("restartCount").and_then(Value::as_i64))
        .sum();
    let waiting = states.iter().map(|state| {
        let waiting = text(state, "/state/waiting/reason");
        if waiting.is_empty() {
            text(state, "/state/terminated/reason")
        } else {
            waiting
        }
    });
    let reason = waiting
        .into_iter()
        .find(|reason| !reason.is_empty())
        .unwrap_or_default();
    let status = if !meta(object, "deletionTimestamp").is_empty() {
        "Terminating"
    } else if !reason.is_empty() {
        reason
    } else {
        text(object, "/status/phase")
    };
    let gates = list(object, "/spec/readinessGates");
    let met = gates.iter().filter(|gate| {
        let wanted = text(gate, "/conditionType");
        list(object, "/status/conditions")
            .iter()
            .any(|c| text(c, "/type") == wanted && text(c, "/status") == "True")
    });
    let gates = if gates.is_empty() {
        json!("<none>")
    } else {
        json!(format!("{}/{}", met.count(), gates.len()))
    };
    vec![
        name(object),
        json!(format!("{ready}/{total}")),
        json!(status),
        json!(restarts.to_string()),
        age(object, now),
        or(text(object, "/status/podIP"), "<none>"),
        or(text(object, "/spec/nodeName"), "<none>"),
        or(text(object, "/status/nominatedNodeName"), "<none>"),
        gates,
    ]
}

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(object, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if object.pointer("/spec/unschedulable") == Some(&json!(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let address = |kind: &str| {
        list(object, "/status/addresses")
            .iter()
            .find(|a| text(a, "/type") == kind)
            .map_or("", |a| text(a, "/address"))
    };
    let info = |field: &str| text(object, &format!("/status/nodeInfo/{field}"));
    vec![
        name(object),
        json!(status),
        or(&roles.join(","), "<none>"),
        age(object, now),
        json!(info("kubeletVersion")),
        or(address("InternalIP"), "<none>"),
        or(address("ExternalIP"), "<none>"),
        or(info("osImage"), "<unknown>"),
        or(info("kernelVersion"), "<unknown>"),
        or(info("containerRuntimeVersion"), "<unknown>"),
    ]
}

fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let first_of = |pointers: &[&str]| {
        pointers
            .iter()
            .map(|pointer| text(object, pointer))
            .find(|time| !time.is_empty())
            .unwrap_or_default()
            .to_owned()
    };
    let first = first_of(&["/firstTimestamp", "/eventTime"]);
    let last = first_of(&["/series/lastObservedTime", "/lastTimestamp", "/eventTime"]);
    let series = object
        .pointer("/series/count")
        .or_else(|| object.get("count"))
        .and_then(Value::as_i64)
        .unwrap_or(1);
    let about = format!(
        "{}/{}",
        text(object, "/involvedObject/kind").to_lowercase(),
        text(object, "/involvedObject/name")
    );
    let source = match (
        text(object, "/source/component"),
        text(object, "/reportingComponent"),
    ) {
        ("", reporter) => reporter.to_owned(),
        (component, _) => [component, text(object, "/source/host")]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(", "),
    };
    vec![
        since(&last, now),
        json!(text(object, "/type")),
        json!(text(object, "/reason")),
        json!(about),
        json!(text(object, "/involvedObject/fieldPath")),
        json!(source),
        json!(text(object, "/message").trim()),
        since(&first, now),
        json!(series),
        name(object),
    ]
}

fn custom_cell(column: &Value, object: &Value, now: Timestamp) -> Value {
    let path = column
        .get("jsonPath")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let found = json_path(object, path);
    let kind = column
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("string");
    match (found, kind) {
        (None | Some(Value::Null), _) => Value::Null,
        (Some(Value::String(time)), "date") => since(time, now),
        (Some(value @ Value::String(_)), "string") => value.clone(),
        (Some(value), "string") => json!(value.to_string()),
        (Some(value), _) => value.clone(),
    }
}

/// `.spec.a.b[0]`, `.status.conditions[?(@.type=="Ready")].status`: what printer columns use.
fn json_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut value = object;
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (key, next) = after.split_at(end);
            (value, rest) = (value.get(key)?, next);
        } else if let Some(after) = rest.strip_prefix('[') {
            let (inner, next) = after.split_once(']')?;
            rest = next;
            value = match inner
                .strip_prefix("?(@.")
                .and_then(|filter| filter.strip_suffix(')'))
            {
                Some(filter) => {
                    let (key, wanted) = filter.split_once("==")?;
                    let wanted = wanted.trim().trim_matches(['"', '\'']);
                    value
                        .as_array()?
                        .iter()
                        .find(|item| item.get(key.trim()).and_then(Value::as_str) == Some(wanted))?
                }
                None if inner.starts_with(['"', '\'']) => {
                    value.get(inner.trim_matches(['"', '\'']))?
                }
                None => value.get(inner.parse::<usize>().ok()?)?,
            };
        } else {
            return None;
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let table = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (600, "10m"),
            (10_860, "3h1m"),
            (30_000, "8h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (70_000_000, "2y80d"),
            (-5, "<invalid>"),
        ];
        assert_eq!(
            table.map(|(seconds, _)| human(seconds)),
            table.map(|(_, text)| text.to_owned())
        );
    }

    #[test]
    fn printer_column_paths_find_what_they_name() {
        let object = json!({"spec": {"a": [1, 2]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(json_path(&object, ".spec.a[1]"), Some(&json!(2)));
        assert_eq!(
            json_path(&object, ".status.conditions[?(@.type==\"Ready\")].status"),
            Some(&json!("True"))
        );
        assert_eq!(json_path(&object, ".spec.none.x"), None);
    }
}
