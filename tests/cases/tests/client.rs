//! Acceptance cases of the client room: what our processes see of a server that fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;

use std::time::{Duration, Instant};

use api_client::{
    Backoff, Change, connect,
    events::{self, Severity},
    informer_of,
    lease::{self, LeaseConfig},
};
use api_server::{Identity, Server};
use fake::Fake;
use futures::{FutureExt, Stream, StreamExt};
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Service},
};
use kube::{Api, Client, Resource, api::ListParams, runtime::watcher::Config};
use serde_json::{Value, json};
use tokio::time::timeout;

/// One second of the case lasts this long here.
const SECOND: Duration = Duration::from_millis(50);
/// Nothing in these tests takes longer.
const LIMIT: Duration = Duration::from_secs(20);

fn service(name: &str, version: u64, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "default", "name": name, "uid": format!("u-{name}"), "resourceVersion": version.to_string()},
        "spec": spec,
    })
}

fn balancer(name: &str, version: u64) -> Value {
    service(
        name,
        version,
        &json!({"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80}]}),
    )
}

fn word(change: &Change<Service>) -> String {
    let named = |word: &str, service: &Service| {
        let kind = service
            .spec
            .as_ref()
            .and_then(|spec| spec.type_.clone())
            .unwrap();
        format!(
            "{word} {} {kind}",
            service.metadata.name.as_deref().unwrap()
        )
    };
    match change {
        Change::Apply(service) => named("apply", service),
        Change::Delete(service) => named("delete", service),
        Change::Invalid(invalid) => format!("invalid {}", invalid.name),
        Change::Synced => "synced".to_owned(),
    }
}

/// What the stream tells up to and including `Synced`.
async fn until_synced(changes: &mut (impl Stream<Item = Change<Service>> + Unpin)) -> Vec<String> {
    let mut words = Vec::new();
    loop {
        let change = timeout(LIMIT, changes.next())
            .await
            .unwrap_or_else(|_| panic!("no Synced after {words:?}"));
        let word = word(&change.unwrap());
        if word == "synced" {
            return words;
        }
        words.push(word);
    }
}

/// The part of the client: each of the five ways in which a watch says that it cannot go on leads to a fresh list, with
/// growing gaps while that does not help; the first list after healing tells what vanished, changed and came, and nothing of
/// what stayed. What allocator, speaker and proxier do with it is tested in their rooms. A second of the case lasts 50 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b151_a_410_leads_to_a_fresh_list_and_a_correct_diff() {
    let fake = Fake::start(
        1000,
        vec![balancer("s1", 11), balancer("s2", 12), balancer("s3", 13)],
    )
    .await;
    let api: Api<Service> = Api::all(fake.client());
    let pace = Backoff::new(SECOND, SECOND * 10);
    let mut changes = informer_of(api, "Service", Config::default(), pace);
    assert_eq!(
        until_synced(&mut changes).await,
        [
            "apply s1 LoadBalancer",
            "apply s2 LoadBalancer",
            "apply s3 LoadBalancer"
        ]
    );
    let before = fake.lists().len();
    fake.fail(1000);
    // each failure has been met at least once; the lists in between tell nothing new
    let begun = Instant::now();
    while fake.served().len() < 5 {
        assert!(begun.elapsed() < LIMIT, "served: {:?}", fake.served());
        if let Ok(change) = timeout(SECOND, changes.next()).await {
            assert_eq!(change, Some(Change::Synced));
        }
    }
    let gaps: Vec<Duration> = fake
        .lists()
        .windows(2)
        .skip(before - 1)
        .map(|pair| pair[1] - pair[0])
        .collect();
    // the first gap began before the failures; half of each later one is left for a slow machine
    assert!(gaps.len() >= 3, "{gaps:?}");
    for (gap, least) in gaps.iter().skip(1).zip([2, 4]) {
        assert!(*gap * 2 >= SECOND * least, "gaps do not grow: {gaps:?}");
    }
    assert!(
        gaps.iter().skip(1).all(|gap| *gap >= SECOND),
        "more than one list a second: {gaps:?}"
    );
    // lists that were made before healing may still be on their way
    while let Some(change) = changes.next().now_or_never() {
        assert_eq!(change, Some(Change::Synced));
    }
    let two = service(
        "s2",
        4001,
        &json!({"type": "ClusterIP", "ports": [{"port": 80}]}),
    );
    fake.heal(5000, vec![two, balancer("s3", 13), balancer("s4", 4002)]);
    let healed = Instant::now();
    let mut told = Vec::new();
    while told.is_empty() {
        told = until_synced(&mut changes).await;
    }
    assert_eq!(
        told,
        [
            "apply s2 ClusterIP",
            "apply s4 LoadBalancer",
            "delete s1 LoadBalancer"
        ]
    );
    assert!(
        healed.elapsed() <= SECOND * 30,
        "listed again {:?} after healing",
        healed.elapsed()
    );
    // the new watch holds: no further list
    let lists = fake.lists().len();
    assert_eq!(timeout(SECOND * 4, changes.next()).await.ok(), None);
    assert_eq!(fake.lists().len(), lists);
}

/// An embedded API server on loopback and a client for it.
async fn server() -> Client {
    let identity = Identity::generate(&["127.0.0.1"]).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new(&api_server::Config::default(), &identity).unwrap();
    tokio::spawn(async move { server.serve(vec![listener], std::future::pending()).await });
    let kubeconfig = identity.kubeconfig(&Identity::url(address.ip(), address.port()));
    let path = std::env::temp_dir().join(format!(
        "roadstead-cases-{}-{}",
        std::process::id(),
        address.port()
    ));
    std::fs::write(&path, kubeconfig).unwrap();
    let client = connect(Some(&path)).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    client
}

/// Both ways to list tell the same: pages and a list that is streamed (KEP-3157).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_in_pages_and_streamed_lists_tell_the_same() {
    let client = server().await;
    let api: Api<Service> = Api::namespaced(client.clone(), "default");
    for name in ["a", "b", "c"] {
        let object: Service = serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}),
        )
        .unwrap();
        api.create(&kube::api::PostParams::default(), &object)
            .await
            .unwrap();
    }
    for config in [
        Config::default().page_size(2),
        Config::default().streaming_lists(),
    ] {
        let mut changes = informer_of(api.clone(), "Service", config.clone(), api_client::PACE);
        assert_eq!(
            until_synced(&mut changes).await,
            [
                "apply a ClusterIP",
                "apply b ClusterIP",
                "apply c ClusterIP"
            ],
            "{config:?}"
        );
        api.delete("c", &kube::api::DeleteParams::default())
            .await
            .unwrap();
        let gone = timeout(LIMIT, changes.next()).await.unwrap().unwrap();
        assert_eq!(word(&gone), "delete c ClusterIP");
        let again: Service = serde_json::from_value(
            json!({"metadata": {"name": "c"}, "spec": {"ports": [{"port": 80}]}}),
        )
        .unwrap();
        api.create(&kube::api::PostParams::default(), &again)
            .await
            .unwrap();
    }
}

/// A leader that resigns is followed at once; one that merely vanishes, after the Lease has run out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_goes_from_one_process_to_the_next() {
    let client = server().await;
    let config = |identity: &str| LeaseConfig {
        duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(700),
        retry_period: Duration::from_millis(100),
        ..LeaseConfig::new("metallb-system", "allocator", identity)
    };
    let (mut a, task_a) = lease::start(client.clone(), config("a")).unwrap();
    assert_eq!(timeout(LIMIT, a.changed()).await.unwrap(), Some(true));
    let (mut b, task_b) = lease::start(client.clone(), config("b")).unwrap();
    assert!(a.may_act() && !b.may_act());
    a.resign();
    assert!(!a.may_act());
    assert_eq!(timeout(LIMIT, b.changed()).await.unwrap(), Some(true));
    task_a.await.unwrap();
    // b is killed: its right to act ends by itself, and before c has it
    let (mut c, _task_c) = lease::start(client.clone(), config("c")).unwrap();
    task_b.abort();
    let begun = Instant::now();
    while !c.may_act() {
        assert!(begun.elapsed() < LIMIT);
        let _led = timeout(Duration::from_millis(20), c.changed()).await;
        assert!(!(b.may_act() && c.may_act()), "two lead");
    }
    let lease: Lease = Api::namespaced(client, "metallb-system")
        .get("allocator")
        .await
        .unwrap();
    let spec = lease.spec.unwrap();
    assert_eq!(
        (spec.holder_identity.as_deref(), spec.lease_transitions),
        (Some("c"), Some(2))
    );
}

/// Repeats of an event raise its count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_repeat_are_one_object_with_a_count() {
    let client = server().await;
    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let web: Service = serde_json::from_value(
        json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}),
    )
    .unwrap();
    let web = services
        .create(&kube::api::PostParams::default(), &web)
        .await
        .unwrap();
    let (recorder, task) = events::start(client.clone(), "roadstead-allocator", "host-1");
    for _ in 0..7 {
        recorder.report(
            &web,
            Severity::Warning,
            "AllocationFailed",
            "no pool matches",
        );
    }
    recorder.report(
        &web,
        Severity::Normal,
        "IPAllocated",
        "192.0.2.10 from pool lan",
    );
    drop(recorder);
    timeout(LIMIT, task).await.unwrap().unwrap();
    let about = format!(
        "involvedObject.name=web,involvedObject.uid={}",
        web.meta().uid.as_deref().unwrap()
    );
    let listed: Vec<Event> = Api::namespaced(client, "default")
        .list(&ListParams::default().fields(&about))
        .await
        .unwrap()
        .items;
    let mut found: Vec<_> = listed
        .iter()
        .map(|event| {
            (
                event.type_.as_deref().unwrap(),
                event.reason.as_deref().unwrap(),
                event.message.as_deref().unwrap(),
                event.count.unwrap(),
                event.source.as_ref().unwrap().component.as_deref().unwrap(),
            )
        })
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            (
                "Normal",
                "IPAllocated",
                "192.0.2.10 from pool lan",
                1,
                "roadstead-allocator"
            ),
            (
                "Warning",
                "AllocationFailed",
                "no pool matches",
                7,
                "roadstead-allocator"
            ),
        ]
    );
}
