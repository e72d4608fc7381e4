//! Columns and cells of the built-in kinds. Source: `pkg/printers/internalversion` of Kubernetes 1.37.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, count, list, name, or, since, text};
use crate::crud::meta;

/// Name, and whether it shows with `-o wide` only.
pub(super) type Column = (&'static str, bool);

/// The cells of an object at a time.
type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// Columns and cells of one built-in kind.
pub(super) struct Printer {
    storage: &'static str,
    pub(super) columns: &'static [Column],
    pub(super) cells: Cells,
}

/// By storage name; kinds without an own one show name and age.
pub(super) fn printer(storage: &str) -> &'static Printer {
    static PLAIN: Printer = row("", &[("Name", false), ("Age", false)], |object, now| {
        vec![name(object), age(object, now)]
    });
    PRINTERS
        .iter()
        .find(|printer| printer.storage == storage)
        .unwrap_or(&PLAIN)
}

const fn row(storage: &'static str, columns: &'static [Column], cells: Cells) -> Printer {
    Printer {
        storage,
        columns,
        cells,
    }
}

const SERVICE: &[Column] = &[
    ("Name", false),
    ("Type", false),
    ("Cluster-IP", false),
    ("External-IP", false),
    ("Port(s)", false),
    ("Age", false),
    ("Selector", true),
];
const ENDPOINT_SLICE: &[Column] = &[
    ("Name", false),
    ("AddressType", false),
    ("Ports", false),
    ("Endpoints", false),
    ("Age", false),
];
const POD: &[Column] = &[
    ("Name", false),
    ("Ready", false),
    ("Status", false),
    ("Restarts", false),
    ("Age", false),
    ("IP", true),
    ("Node", true),
    ("Nominated Node", true),
    ("Readiness Gates", true),
];
const NODE: &[Column] = &[
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
];
const EVENT: &[Column] = &[
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
];
const CRD: &[Column] = &[
    ("Name", false),
    ("Scope", false),
    ("Versions", false),
    ("Created At", false),
];

static PRINTERS: &[Printer] = &[
    row("services", SERVICE, service),
    row(
        "endpoints",
        &[("Name", false), ("Endpoints", false), ("Age", false)],
        endpoints,
    ),
    row(
        "endpointslices.discovery.k8s.io",
        ENDPOINT_SLICE,
        endpoint_slice,
    ),
    row("pods", POD, pod),
    row("nodes", NODE, node),
    row("events", EVENT, event),
    row("customresourcedefinitions.apiextensions.k8s.io", CRD, crd),
    row(
        "namespaces",
        &[("Name", false), ("Status", false), ("Age", false)],
        |object, now| {
            vec![
                name(object),
                json!(text(object, "/status/phase")),
                age(object, now),
            ]
        },
    ),
    row(
        "configmaps",
        &[("Name", false), ("Data", false), ("Age", false)],
        |object, now| {
            vec![
                name(object),
                json!(count(object, "/data") + count(object, "/binaryData")),
                age(object, now),
            ]
        },
    ),
    row(
        "secrets",
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
    row(
        "leases.coordination.k8s.io",
        &[("Name", false), ("Holder", false), ("Age", false)],
        |object, now| {
            vec![
                name(object),
                json!(text(object, "/spec/holderIdentity")),
                age(object, now),
            ]
        },
    ),
];

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
    let containers = list(object, "/status/containerStatuses");
    let total = list(object, "/spec/containers").len();
    let running = |state: &&Value| {
        state.get("ready") == Some(&json!(true)) && state.pointer("/state/running").is_some()
    };
    let ready = containers.iter().filter(running).count();
    let restarts: i64 = containers
        .iter()
        .filter_map(|state| state.get("restartCount").and_then(Value::as_i64))
        .sum();
    let waiting = containers.iter().map(|state| {
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

fn crd(object: &Value, _now: Timestamp) -> Vec<Value> {
    let version = |version: &Value| {
        let storage = version.get("storage") == Some(&json!(true));
        format!(
            "{}{}",
            text(version, "/name"),
            if storage { "(storage)" } else { "" }
        )
    };
    let versions: Vec<String> = list(object, "/spec/versions").iter().map(version).collect();
    vec![
        name(object),
        json!(text(object, "/spec/scope")),
        json!(versions.join(",")),
        json!(meta(object, "creationTimestamp")),
    ]
}
