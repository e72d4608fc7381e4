//! UDP flows of one client through n1 while the Service changes: is the flow kept, who answers the same socket then.

use std::{fs, thread, time::Duration};

use api_model::IpFamily;
use lab::{Error, Result, error::Doing as _};
use serde_json::{Map, Value, json};

use crate::{
    facts::Fact,
    flows,
    probe::Prober,
    proxier::Proxier,
    world::{Endpoint, Flow, READY, World, ask_again},
};

/// The node that the client's packets go through.
const GATEWAY: &str = "n1";
/// Time for a forgetting that comes late.
const SETTLE: Duration = Duration::from_millis(50);
const PODS: [&str; 2] = ["p1a", "p2a"];

/// Performs a fact in both families, which must agree. `None`: not known.
pub(super) fn perform<P: Proxier>(
    group: &str,
    fact: &Fact,
    prober: &Prober<'_>,
    proxier: &mut P,
) -> Result<Option<Value>> {
    keep_flows(prober)?;
    let mut seen = Vec::new();
    for family in [IpFamily::V4, IpFamily::V6] {
        let mut world = World::new(prober, proxier, &PODS);
        let one = match (group, group.strip_prefix("udp ")) {
            ("udp other", _) => other(&mut world, fact, family)?,
            (_, Some(kind)) => change(&mut world, kind, &fact.when, family)?.map(|it| it.json()),
            ("tcp", _) => established(&mut world, &fact.when, family)?,
            _ => table(&mut world, fact, family)?,
        };
        let Some(one) = one else { return Ok(None) };
        seen.push(only(one, &fact.observed));
    }
    seen.dedup();
    Ok(if seen.len() == 1 {
        seen.pop()
    } else {
        Some(json!({"IPv4 and IPv6": seen}))
    })
}

/// Flows of few packets would end by themselves after 30 s.
fn keep_flows(prober: &Prober<'_>) -> Result<()> {
    prober.network.space(GATEWAY).run(|| {
        fs::write("/proc/sys/net/netfilter/nf_conntrack_udp_timeout", "900")
            .doing("setting the timeout of UDP flows")
    })
}

/// The fields that were recorded.
fn only(mut seen: Value, recorded: &Value) -> Value {
    if let (Some(seen), Some(recorded)) = (seen.as_object_mut(), recorded.as_object()) {
        seen.retain(|key, _| recorded.contains_key(key));
    }
    seen
}

struct Seen {
    entry: &'static str,
    next: String,
}

impl Seen {
    fn json(&self) -> Value {
        json!({"entry": self.entry, "next": self.next})
    }
}

/// A flow, and the pod that answered it first.
struct Began {
    flow: Flow,
    first: &'static str,
    other: &'static str,
}

fn begin<P: Proxier>(
    world: &mut World<'_, P>,
    kind: &str,
    family: IpFamily,
) -> Result<Option<Began>> {
    let Some(target) = world.target(kind, family) else {
        return Ok(None);
    };
    world.begin()?;
    let flow = world.flow("client", target)?;
    let answer = flow.ask();
    let [a, b] = PODS;
    let (first, other) = match answer.as_str() {
        "p1a" => (a, b),
        "p2a" => (b, a),
        _ => return Err(Error::because(format!("asking {target}"), answer)),
    };
    Ok(Some(Began { flow, first, other }))
}

fn change<P: Proxier>(
    world: &mut World<'_, P>,
    kind: &str,
    when: &str,
    family: IpFamily,
) -> Result<Option<Seen>> {
    let Some(began) = begin(world, kind, family)? else {
        return Ok(None);
    };
    if !make(world, when, &began)? {
        return Ok(None);
    }
    let entry = entry(world, &began.flow)?;
    let next = began.flow.ask();
    let next = match next.as_str() {
        pod if when.starts_with("from zero") && pod == began.other => "the endpoint",
        pod if pod == began.first => "same",
        pod if pod == began.other => "the other endpoint",
        other => other,
    };
    let next = next.to_owned();
    Ok(Some(Seen { entry, next }))
}

/// Makes the change; false when it isn't known.
fn make<P: Proxier>(world: &mut World<'_, P>, when: &str, began: &Began) -> Result<bool> {
    match when {
        "endpoint turns terminating but serving" => set(world, began.first, [false, true, true]),
        "then stops serving" => {
            set(world, began.first, [false, true, true]);
            world.apply()?;
            set(world, began.first, [false, false, true]);
        }
        "endpoint turns not ready but serving" => set(world, began.first, [false, true, false]),
        "endpoint removed, another remains" => world.endpoints.retain(|it| it.pod != began.first),
        "scaled to zero" => world.endpoints.clear(),
        "scaled to zero, then Service deleted" => {
            world.endpoints.clear();
            world.apply()?;
            world.service = false;
        }
        "from zero to one, same socket" => {
            world.endpoints.clear();
            world.apply()?;
            let (pod, conditions) = (began.other, READY);
            world.endpoints = vec![Endpoint { pod, conditions }];
        }
        "only the target port changes" => world.target_port = 8081,
        "address leaves status" => world.balancer = false,
        "externalIP leaves spec" => world.external = false,
        "type NodePort -> ClusterIP (node port released)" | "type -> ClusterIP" => {
            world.node_port = false;
        }
        "slice deleted, then at once the Service" | "slice then Service deleted" => {
            world.slices = false;
            world.apply()?;
            world.service = false;
        }
        "Service deleted, slice still there" | "Service deleted, slice stays" => {
            world.service = false;
        }
        "slice deleted 2 s after its Service (the order of a real cluster)" => {
            world.service = false;
            world.apply()?;
            world.slices = false;
        }
        "Service deleted, its slice right after, in one sync" => {
            (world.service, world.slices) = (false, false);
        }
        _ => return Ok(false),
    }
    world.apply()?;
    Ok(true)
}

fn set<P: Proxier>(world: &mut World<'_, P>, pod: &str, conditions: [bool; 3]) {
    for endpoint in world.endpoints.iter_mut().filter(|it| it.pod == pod) {
        endpoint.conditions = conditions;
    }
}

fn entry<P: Proxier>(world: &World<'_, P>, flow: &Flow) -> Result<&'static str> {
    thread::sleep(SETTLE);
    let gateway = world.prober.network.space(GATEWAY);
    let known = flows::is_known(gateway, flow.source, flow.target)?;
    Ok(if known { "kept" } else { "deleted" })
}

/// Entries of several changes: `kind, change` or, where the change is the fact's own, `kind`.
fn table<P: Proxier>(
    world: &mut World<'_, P>,
    fact: &Fact,
    family: IpFamily,
) -> Result<Option<Value>> {
    let Some(recorded) = fact.observed.as_object() else {
        return Ok(None);
    };
    let endpoint_change = fact.when == "after the next endpoint change of the same Service";
    let of_keys = endpoint_change || fact.when == "2 s after";
    let mut seen = Map::new();
    for key in recorded.keys() {
        let (kind, change) = match key.split_once(", ") {
            Some((kind, change)) if of_keys => (kind, change),
            None if !of_keys => (key.as_str(), fact.when.as_str()),
            _ => return Ok(None),
        };
        let kind = if kind == "nodePort" {
            "nodePort@n1"
        } else {
            kind
        };
        let mut world = World::new(world.prober, &mut *world.proxier, &PODS);
        let Some(began) = begin(&mut world, kind, family)? else {
            return Ok(None);
        };
        if !make(&mut world, change, &began)? {
            return Ok(None);
        }
        if endpoint_change {
            let (pod, conditions) = ("p2b", READY);
            world.endpoints.push(Endpoint { pod, conditions });
            world.apply()?;
        }
        seen.insert(key.clone(), json!(entry(&world, &began.flow)?));
    }
    Ok(Some(Value::Object(seen)))
}

fn other<P: Proxier>(
    world: &mut World<'_, P>,
    fact: &Fact,
    family: IpFamily,
) -> Result<Option<Value>> {
    let Some(balancer) = world.target("lb", family) else {
        return Ok(None);
    };
    world.endpoints.truncate(1);
    match fact.when.as_str() {
        "flow opened before the LB address was programmed"
        | "the same after the next endpoint change" => {
            world.balancer = false;
            world.begin()?;
            let flow = world.flow("client", balancer)?;
            let before = flow.ask();
            world.balancer = true;
            world.apply()?;
            if fact.when.starts_with("the same") {
                let (pod, conditions) = ("p2a", [false, false, false]);
                world.endpoints.push(Endpoint { pod, conditions });
                world.apply()?;
            }
            let entry = entry(world, &flow)?;
            Ok(Some(
                json!({"before": before, "entry": entry, "next": flow.ask()}),
            ))
        }
        "restart of kube-proxy, nothing changed" => restarted(world, family).map(Some),
        when if when.starts_with("forwarded flow of a third party") => {
            world.begin()?;
            // an address behind n1 that is no node's, at the node port's number
            let port = world
                .target("nodePort@n1", family)
                .map_or(0, |at| at.port());
            let stranger = if family == IpFamily::V4 {
                "203.0.113.251"
            } else {
                "2001:db8:113::251"
            };
            let stranger = stranger.parse().doing("reading an address")?;
            let flow = world.flow("client", std::net::SocketAddr::new(stranger, port))?;
            flow.ask();
            let before = entry(world, &flow)? == "kept";
            world.endpoints.clear();
            world.apply()?;
            Ok(Some(
                json!({"entry_before": before, "entry_after": entry(world, &flow)?}),
            ))
        }
        _ => Ok(None),
    }
}

fn restarted<P: Proxier>(world: &mut World<'_, P>, family: IpFamily) -> Result<Value> {
    let Some(Began { flow, first, .. }) = begin(world, "lb", family)? else {
        return Ok(Value::Null);
    };
    let (mut stream, _) = world.connection("client", flow.target)?;
    world.proxier.restart()?;
    let stopped = entry(world, &flow)?;
    world.apply()?;
    let started = entry(world, &flow)?;
    Ok(json!({
        "entries_after_stop": stopped,
        "entries_after_start": started,
        "same_pod_after": flow.ask() == first,
        "tcp_goes_on": ask_again(&mut stream).is_ok(),
    }))
}

fn established<P: Proxier>(
    world: &mut World<'_, P>,
    when: &str,
    family: IpFamily,
) -> Result<Option<Value>> {
    let Some(target) = world.target("lb", family) else {
        return Ok(None);
    };
    world.begin()?;
    let (mut stream, pod) = world.connection("client", target)?;
    match when {
        "endpoint removed, established connection" => world.endpoints.retain(|it| it.pod != pod),
        "scaled to zero, established connection" => world.endpoints.clear(),
        "Service deleted, established connection" => world.service = false,
        _ => return Ok(None),
    }
    world.apply()?;
    let goes_on = ask_again(&mut stream).is_ok_and(|again| again == pod);
    Ok(Some(json!({"goes_on": goes_on})))
}
