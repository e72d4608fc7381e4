//! Acceptance cases of the allocator, against its core: objects as users write them, read by `ingest`, in a cluster whose
//! API server is `world`. What needs a real API server is in `allocator_shell.rs`.

#![expect(
    clippy::too_many_lines,
    reason = "a case is a table or a story that reads from top to bottom"
)]

#[path = "../../../allocator/core/tests/world/mod.rs"]
mod world;

#[path = "allocator/families.rs"]
mod families;
#[path = "allocator/pools.rs"]
mod pools;
#[path = "allocator/ports.rs"]
mod ports;
#[path = "allocator/requests.rs"]
mod requests;
#[path = "allocator/restart.rs"]
mod restart;
#[path = "allocator/sharing.rs"]
mod sharing;

use std::time::Duration;

use allocator::ingest;
use allocator_core::{EventReason, IdleService, Input, Pool, Reason, ServiceClaim};
use k8s_openapi::api::core::v1::Service;
use serde_json::Value;
use world::World;

/// A Service of type `LoadBalancer` with port 80, one IPv4 cluster address, and whatever else the test adds.
fn written(name: &str, more: Value) -> Service {
    let mut service = serde_json::json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "198.51.100.130", "clusterIPs": ["198.51.100.130"],
            "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080}],
        },
    });
    merge(&mut service, more);
    serde_json::from_value(service).expect("a Service")
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The claim of a Service that is ours.
fn claim_of(service: &Service) -> ServiceClaim {
    let input = ingest::service(service, None).input;
    let Input::Service(claim) = input else {
        panic!("not served: {input:?}")
    };
    *claim
}

/// The claim of [`written`].
fn user(name: &str, more: Value) -> ServiceClaim {
    claim_of(&written(name, more))
}

/// Annotations of a Service.
fn annotated(annotations: &[(&str, &str)]) -> Value {
    let pairs = annotations
        .iter()
        .map(|(key, value)| ((*key).to_owned(), Value::from(*value)));
    serde_json::json!({"metadata": {"annotations": pairs.collect::<serde_json::Map<_, _>>()}})
}

/// A synced world with these pools.
fn with_pools(pools: Vec<Pool>) -> World {
    let mut world = World::new();
    for pool in pools {
        world.pool(pool);
    }
    world.run();
    world
}

/// The type is changed to `ClusterIP`.
fn to_cluster_ip(world: &mut World, name: &str) {
    let claim = world
        .services
        .get(&world::key(name))
        .cloned()
        .expect("a Service of type LoadBalancer");
    let shows = !claim.shown.addresses.is_empty() || claim.shown.pool.is_some();
    world.idle(IdleService {
        key: claim.key,
        uid: claim.uid,
        reason: Reason::NotLoadBalancer,
        shows,
    });
}

/// The warnings of a Service.
fn warnings(world: &World, name: &str) -> Vec<String> {
    let warnings = world
        .events_of(name)
        .into_iter()
        .filter(|(reason, _)| reason.is_warning());
    warnings.map(|(_, message)| message.to_owned()).collect()
}

/// That a Service has no address and one warning that holds the text.
fn assert_refused(world: &World, name: &str, text: &str) {
    assert_eq!(world.shows(name), Vec::<String>::new(), "{name}");
    let warnings = warnings(world, name);
    assert!(
        warnings.iter().any(|warning| warning.contains(text)),
        "{name}: no {text:?} in {warnings:?}"
    );
}

const SECONDS_10: Duration = Duration::from_secs(10);

fn failed(world: &World, name: &str) -> bool {
    world
        .events_of(name)
        .iter()
        .any(|(reason, _)| *reason == EventReason::AllocationFailed)
}
