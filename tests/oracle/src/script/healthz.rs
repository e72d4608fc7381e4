//! `/healthz` and `/livez` of the proxier on n3, and where the health check node port listens.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use api_model::IpFamily;
use k8s_openapi::{
    api::core::v1::{Node, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use lab::Result;
use serde_json::{Value, json};

use crate::{
    facts::Fact,
    http::{Answer, get},
    probe::Prober,
    proxier::{HEALTHZ, Proxier},
    world::{HEALTH_PORT, World},
};

const NODE: &str = "n3";
const PATIENCE: Duration = Duration::from_secs(3);

/// What is asked, and what the Node is like meanwhile.
struct Question {
    port: u16,
    path: &'static str,
    node: Option<Node>,
}

/// Performs a fact. `None`: not known.
pub(super) fn perform<P: Proxier>(
    fact: &Fact,
    prober: &Prober<'_>,
    proxier: &mut P,
) -> Result<Option<Value>> {
    let mut world = World::new(prober, proxier, &["p3a"]);
    world.local = true;
    if let Some(host) = fact.when.strip_prefix("healthCheckNodePort on ") {
        return listens(&mut world, host);
    }
    let Some(recorded) = world.node(NODE) else {
        return Ok(None);
    };
    if fact.when == "Node object gone: kube-proxy" {
        return without_node(&mut world, recorded).map(Some);
    }
    let Some(question) = question(&fact.when, &recorded) else {
        return Ok(None);
    };
    world.proxier.set_node(NODE, question.node);
    world.apply()?;
    let at = world
        .topology()
        .members
        .get(NODE)
        .map(|it| it.of(IpFamily::V4));
    let at = SocketAddr::new(at.unwrap_or(Ipv4Addr::LOCALHOST.into()), question.port);
    // the listeners follow on a thread of their own
    let deadline = Instant::now() + PATIENCE;
    let mut seen = seen(prober, at, question.path, &fact.observed);
    while seen != fact.observed && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        seen = self::seen(prober, at, question.path, &fact.observed);
    }
    world.proxier.set_node(NODE, Some(recorded));
    Ok(Some(seen))
}

/// Without its Node object, the proxier goes on and answers.
fn without_node<P: Proxier>(world: &mut World<'_, P>, recorded: Node) -> Result<Value> {
    world.proxier.set_node(NODE, None);
    world.apply()?;
    let at = world
        .topology()
        .members
        .get(NODE)
        .map(|it| it.of(IpFamily::V4));
    let at = SocketAddr::new(at.unwrap_or(Ipv4Addr::LOCALHOST.into()), HEALTHZ);
    let answer = world
        .prober
        .network
        .space("client")
        .run(|| get(at, "/livez"));
    world.proxier.set_node(NODE, Some(recorded));
    Ok(json!({"process_runs": answer.is_ok_and(|answer| answer.code == 200)}))
}

fn question(when: &str, node: &Node) -> Option<Question> {
    let ask = |port, path, node| {
        Some(Question {
            port,
            path,
            node: Some(node),
        })
    };
    let tainted = || {
        let mut node = node.clone();
        let taint = Taint {
            key: "ToBeDeletedByClusterAutoscaler".to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        };
        node.spec.get_or_insert_default().taints = Some(vec![taint]);
        node
    };
    let deleted = || {
        let mut node = node.clone();
        node.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        node
    };
    match when {
        "GET /healthz on n3, healthy" => ask(HEALTHZ, "/healthz", node.clone()),
        "GET /livez on n3, healthy" => ask(HEALTHZ, "/livez", node.clone()),
        "GET / on n3, healthy" => ask(HEALTHZ, "/", node.clone()),
        "GET /healthz with taint ToBeDeletedByClusterAutoscaler" => {
            ask(HEALTHZ, "/healthz", tainted())
        }
        "GET /livez with taint ToBeDeletedByClusterAutoscaler" => ask(HEALTHZ, "/livez", tainted()),
        "healthCheckNodePort of a Service (ETP Local, one Ready endpoint on n3), on n3, meanwhile" => {
            ask(HEALTH_PORT, "/", tainted())
        }
        "/healthz after the taint is gone" | "/healthz after the Node came back" => {
            ask(HEALTHZ, "/healthz", node.clone())
        }
        "GET /healthz while the Node has a deletionTimestamp" => {
            ask(HEALTHZ, "/healthz", deleted())
        }
        "GET /livez while the Node has a deletionTimestamp" => ask(HEALTHZ, "/livez", deleted()),
        "healthCheckNodePort of a Service (ETP Local, one Ready endpoint on n3), on n3, while the Node has a deletionTimestamp" => {
            ask(HEALTH_PORT, "/", deleted())
        }
        _ => None,
    }
}

/// The fields that were recorded, of the answer.
fn seen(prober: &Prober<'_>, at: SocketAddr, path: &str, recorded: &Value) -> Value {
    let answer = prober.network.space("client").run(|| get(at, path));
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return json!({"error": error.to_string()}),
    };
    let Answer {
        code,
        headers,
        body,
    } = answer;
    let length = body.len();
    let body = body.replace("\"name\": \"fact\"", "\"name\": \"<Service>\"");
    let mut seen = json!({"code": code, "body": without_times(&body)});
    if let Some(names) = recorded["headers"].as_object() {
        let own_length = Some(length.to_string());
        let header = |(name, recorded): (&String, &Value)| match headers.get(name) {
            // the length of times varies with their zeros; it has to be the body's own
            length if name == "content-length" && length == own_length.as_ref() => {
                (name.clone(), recorded.clone())
            }
            other => (name.clone(), json!(other)),
        };
        seen["headers"] = names.iter().map(header).collect();
    }
    if let (Some(seen), Some(recorded)) = (seen.as_object_mut(), recorded.as_object()) {
        seen.retain(|key, _| recorded.contains_key(key));
    }
    seen
}

/// `"2026-…Z"` is `"<time>"`.
fn without_times(body: &str) -> String {
    let is_time = |word: &str| {
        let parsed: std::result::Result<k8s_openapi::jiff::Timestamp, _> = word.parse();
        parsed.is_ok()
    };
    let words = body.split('"');
    let words = words.map(|word| if is_time(word) { "<time>" } else { word });
    words.collect::<Vec<_>>().join("\"")
}

fn listens<P: Proxier>(world: &mut World<'_, P>, host: &str) -> Result<Option<Value>> {
    let address: IpAddr = match host {
        "n1 second address" => match world.topology().members.get("n1-second") {
            Some(addresses) => addresses.of(IpFamily::V4),
            None => return Ok(None),
        },
        "loopback of n1" => Ipv4Addr::LOCALHOST.into(),
        _ => return Ok(None),
    };
    world.begin()?;
    let at = SocketAddr::new(address, HEALTH_PORT);
    let from_n1 = world.prober.network.space("n1").run(|| get(at, "/"));
    Ok(Some(match from_n1 {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            json!({"error": "ConnectionRefusedError"})
        }
        Err(error) => json!({"error": error.to_string()}),
        Ok(answer) => json!({"code": answer.code}),
    }))
}
