//! Acceptance cases of the allocator as it runs: its client, lease, watches and outbox against the embedded API server.

#![expect(
    clippy::too_many_lines,
    reason = "a case is a story that reads from top to bottom"
)]

use std::{
    collections::BTreeMap,
    fmt::Debug,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use allocator::Config;
use api_server::{Identity, ObjectRef, Server};
use api_types::{AddressRecord, ConfigurationState, IPAddressPool};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

/// Nothing that is waited for takes longer.
const LIMIT: Duration = Duration::from_secs(40);

/// A request as the allocator sent it.
#[derive(Clone, Debug)]
struct Sent {
    at: Instant,
    method: String,
    path: String,
    body: String,
}

/// What stands between the allocator and the server: keeps what is written, refuses some of it.
#[derive(Clone, Default)]
struct Faults {
    /// Writes of a Service's status that are still answered with 409.
    conflicts: Arc<AtomicUsize>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Faults {
    /// Writes to this path so far.
    fn writes(&self, path: &str) -> Vec<Sent> {
        let sent = self.sent.lock().expect("no panic under the lock");
        sent.iter()
            .filter(|sent| sent.method != "GET" && sent.path.contains(path))
            .cloned()
            .collect()
    }
}

/// The allocator's client, seen from inside.
#[derive(Clone)]
struct Between {
    inner: Client,
    faults: Faults,
}

type Answer = Result<http::Response<Body>, kube::Error>;

impl tower::Service<http::Request<Body>> for Between {
    type Response = http::Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let inner = self.inner.clone();
        let faults = self.faults.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect().await.expect("a body in memory").to_bytes();
            let sent = Sent {
                at: Instant::now(),
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
                body: String::from_utf8_lossy(&bytes).into_owned(),
            };
            let is_status = sent.method == "PATCH"
                && sent.path.contains("/services/")
                && sent.path.ends_with("/status");
            faults
                .sent
                .lock()
                .expect("no panic under the lock")
                .push(sent);
            let one_less = |left: usize| left.checked_sub(1);
            let refuse = is_status
                && faults
                    .conflicts
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
                    .is_ok();
            if refuse {
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Conflict", "code": 409,
                    "message": "the object has been modified", "metadata": {},
                });
                let answer = http::Response::builder()
                    .status(409)
                    .header("content-type", "application/json");
                return Ok(answer
                    .body(Body::from(status.to_string().into_bytes()))
                    .expect("a response"));
            }
            inner
                .send(http::Request::from_parts(parts, Body::from(bytes.to_vec())))
                .await
        })
    }
}

/// An embedded API server and a client for the test itself.
struct Cluster {
    server: Server,
    client: Client,
    config: kube::Config,
}

/// A running allocator.
struct Running {
    task: JoinHandle<Result<(), allocator::Error>>,
    stop: oneshot::Sender<()>,
    faults: Faults,
}

impl Running {
    /// Stops it, giving its Lease back.
    async fn stop(self) {
        let _ended_already = self.stop.send(());
        let ended = tokio::time::timeout(LIMIT, self.task)
            .await
            .expect("it stops in time");
        ended.expect("no panic").expect("no error");
    }
}

impl Cluster {
    async fn start() -> Self {
        let identity = Identity::generate(&["127.0.0.1"]).expect("an identity");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = Server::new(&api_server::Config::default(), &identity).expect("a server");
        server.install_crds(api_types::crds()).expect("CRDs");
        let serving = server.clone();
        tokio::spawn(async move { serving.serve(vec![listener], std::future::pending()).await });
        let text = identity.kubeconfig(&Identity::url(address.ip(), address.port()));
        let kubeconfig = Kubeconfig::from_yaml(&text).expect("a kubeconfig");
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.expect("a configuration");
        let client = Client::try_from(config.clone()).expect("a client");
        Self {
            server,
            client,
            config,
        }
    }

    /// Starts an allocator with a client of its own.
    fn allocator(&self, identity: &str, class: Option<&str>) -> Running {
        let faults = Faults::default();
        let inner = Client::try_from(self.config.clone()).expect("a client");
        let between = Between {
            inner,
            faults: faults.clone(),
        };
        let client = Client::new(between, "default");
        let mut config = Config::new("metallb-system", identity);
        config.class = class.map(str::to_owned);
        config.lease.duration = Duration::from_secs(3);
        config.lease.renew_deadline = Duration::from_secs(2);
        config.lease.retry_period = Duration::from_millis(300);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(allocator::run(client, config, async move {
            let _dropped = stopped.await;
        }));
        Running { task, stop, faults }
    }

    fn pool(&self, name: &str, addresses: &[&str]) {
        let object = json!({
            "apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
            "metadata": {"name": name, "namespace": "metallb-system"}, "spec": {"addresses": addresses},
        });
        self.server.create(object).expect("a pool");
    }

    fn service(&self, name: &str, more: &Value) {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]},
        });
        if let (Some(spec), Some(more)) = (
            object.get_mut("spec").and_then(Value::as_object_mut),
            more.as_object(),
        ) {
            spec.extend(more.clone());
        }
        self.server.create(object).expect("a Service");
    }

    fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn get(&self, name: &str) -> Service {
        self.services()
            .get(name)
            .await
            .expect("the Service is there")
    }

    async fn shows(&self, name: &str) -> Vec<String> {
        shown(&self.get(name).await)
    }

    /// Waits until a Service shows an address.
    async fn address(&self, name: &str) -> String {
        let shows = eventually(name, || self.shows(name), |shows| shows.len() == 1).await;
        shows.into_iter().next().unwrap_or_default()
    }

    async fn patch_status(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.services()
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .expect("a patch");
    }

    async fn records(&self) -> BTreeMap<String, Vec<String>> {
        let api: Api<AddressRecord> = Api::all(self.client.clone());
        let records = api.list(&ListParams::default()).await.expect("a list");
        let holders = |record: &AddressRecord| {
            record
                .spec
                .holders
                .iter()
                .map(|holder| holder.name.clone())
                .collect()
        };
        records
            .iter()
            .map(|record| (record.name_any(), holders(record)))
            .collect()
    }

    /// Reasons and messages of the events on a Service.
    async fn events(&self, name: &str) -> Vec<(String, String)> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let events = api.list(&ListParams::default()).await.expect("a list");
        let mine = events
            .into_iter()
            .filter(|event| event.involved_object.name.as_deref() == Some(name));
        mine.map(|event| {
            (
                event.reason.unwrap_or_default(),
                event.message.unwrap_or_default(),
            )
        })
        .collect()
    }
}

fn shown(service: &Service) -> Vec<String> {
    let balancer = service
        .status
        .as_ref()
        .and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer
        .and_then(|balancer| balancer.ingress.clone())
        .unwrap_or_default();
    ingress.into_iter().filter_map(|entry| entry.ip).collect()
}

/// Looks until it is as wanted; the last look is in the message.
async fn eventually<T: Debug, F: Future<Output = T>>(
    what: &str,
    mut look: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        let seen = look().await;
        if wanted(&seen) {
            return seen;
        }
        assert!(
            Instant::now() < end,
            "{what}: not within {LIMIT:?}, last seen: {seen:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b144_conflict_keeps_the_choice() {
    let cluster = Cluster::start().await;
    cluster.pool("p", &["203.0.113.0/24"]);
    let allocator = cluster.allocator("a", None);
    allocator.faults.conflicts.store(8, Ordering::SeqCst);
    cluster.service("web", &json!({}));
    let mut edits = 0;
    let start = Instant::now();
    while cluster.shows("web").await.is_empty() {
        assert!(
            start.elapsed() < LIMIT,
            "not served: {:?}",
            allocator.faults.writes("/web")
        );
        edits += 1;
        let patch = Patch::Merge(
            json!({"metadata": {"annotations": {"example.com/rev": edits.to_string()}}}),
        );
        cluster
            .services()
            .patch("web", &PatchParams::default(), &patch)
            .await
            .expect("an edit");
        let records = cluster.records().await;
        assert!(
            records.len() <= 1,
            "more than one address at one moment: {records:?}"
        );
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let web = cluster.get("web").await;
    let tries = allocator.faults.writes("/services/web/status");
    assert!((9..=11).contains(&tries.len()), "{} tries", tries.len());
    let address = shown(&web).join(",");
    for sent in &tries {
        assert!(
            sent.body.contains(&format!("\"ip\":\"{address}\"")),
            "another address: {}",
            sent.body
        );
        assert!(sent.body.contains("resourceVersion"), "{}", sent.body);
    }
    let writes = allocator.faults.writes("/services/web");
    assert!(writes.len() <= 12, "{} writes", writes.len());
    let gaps: Vec<Duration> = tries
        .windows(2)
        .map(|pair| pair[1].at - pair[0].at)
        .collect();
    assert!(
        gaps.iter().all(|gap| *gap >= Duration::from_millis(40)),
        "spaced by back-off: {gaps:?}"
    );
    assert_eq!(
        web.annotations().get("example.com/rev"),
        Some(&edits.to_string())
    );
    assert_eq!(
        web.annotations()
            .get("metallb.io/ip-allocated-from-pool")
            .map(String::as_str),
        Some("p")
    );
    let pools: Api<IPAddressPool> = Api::namespaced(cluster.client.clone(), "metallb-system");
    let assigned = || async {
        pools
            .get("p")
            .await
            .expect("p")
            .status
            .unwrap_or_default()
            .assigned_ipv4
    };
    eventually("assigned", assigned, |assigned| *assigned == 1).await;
    allocator.stop().await;
}

/// The documented choice of the last step: the records bring both back to their addresses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b146_cleared_status_is_restored() {
    let cluster = Cluster::start().await;
    cluster.pool("p", &["203.0.113.0/28"]);
    let allocator = cluster.allocator("a", None);
    cluster.service("a", &json!({}));
    cluster.service("b", &json!({}));
    let (of_a, of_b) = (cluster.address("a").await, cluster.address("b").await);
    assert_ne!(of_a, of_b);
    let ingress = |ip: &str| json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
    let clear = json!({"loadBalancer": {"ingress": null}});
    cluster.patch_status("a", clear.clone()).await;
    eventually(
        "cleared",
        || cluster.shows("a"),
        |shows| *shows == [of_a.clone()],
    )
    .await;
    cluster.patch_status("a", ingress(&of_b)).await;
    eventually(
        "damaged",
        || cluster.shows("a"),
        |shows| *shows == [of_a.clone()],
    )
    .await;
    assert_eq!(cluster.shows("b").await, std::slice::from_ref(&of_b));

    allocator.stop().await;
    cluster.patch_status("a", clear.clone()).await;
    cluster.patch_status("b", clear).await;
    cluster.service("c", &json!({}));
    let allocator = cluster.allocator("b", None);
    let all = (
        cluster.address("a").await,
        cluster.address("b").await,
        cluster.address("c").await,
    );
    assert_eq!((&all.0, &all.1), (&of_a, &of_b));
    assert!(all.2 != of_a && all.2 != of_b, "{all:?}");
    let held: Vec<String> = cluster.records().await.into_values().flatten().collect();
    assert_eq!(held, ["a", "b", "c"]);
    allocator.stop().await;
}

/// Also the waiter's part of B007: `next` is served without an edit of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b008_lb_to_cluster_ip_releases() {
    let cluster = Cluster::start().await;
    cluster.pool("p", &["192.0.2.240/32"]);
    let allocator = cluster.allocator("a", None);
    cluster.service("web", &json!({"externalTrafficPolicy": "Local"}));
    assert_eq!(cluster.address("web").await, "192.0.2.240");
    cluster.service("next", &json!({}));
    let warned = |events: &Vec<(String, String)>| {
        events.iter().any(|(reason, message)| {
            reason == "AllocationFailed" && message.starts_with("PoolsFull: ")
        })
    };
    eventually("a warning", || cluster.events("next"), warned).await;
    let condition = |service: &Service| {
        let conditions = service
            .status
            .clone()
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        conditions
            .into_iter()
            .map(|found| (found.type_, found.status, found.reason))
            .collect::<Vec<_>>()
    };
    let pending = eventually(
        "a condition",
        || cluster.get("next"),
        |next| !condition(next).is_empty(),
    )
    .await;
    let words = |status: &str, reason: &str| {
        vec![(
            "roadstead.io/Allocated".to_owned(),
            status.to_owned(),
            reason.to_owned(),
        )]
    };
    assert_eq!(condition(&pending), words("False", "PoolsFull"));

    let web = ObjectRef {
        api_version: "v1".into(),
        kind: "Service".into(),
        namespace: "default".into(),
        name: "web".into(),
    };
    let patch = json!({"spec": {"type": "ClusterIP", "externalTrafficPolicy": null, "healthCheckNodePort": null,
        "ports": [{"port": 80, "targetPort": 8080}]}});
    cluster
        .server
        .merge_patch(&web, &patch)
        .expect("the type is changed");
    assert_eq!(cluster.address("next").await, "192.0.2.240");
    let next = cluster.get("next").await;
    assert_eq!(condition(&next), words("True", "Allocated"));
    let web = eventually(
        "cleared",
        || cluster.get("web"),
        |web| web.annotations().is_empty(),
    )
    .await;
    assert_eq!(shown(&web), Vec::<String>::new());
    let allocated =
        |events: &Vec<(String, String)>| events.iter().any(|(reason, _)| reason == "IPAllocated");
    eventually("an event", || cluster.events("next"), allocated).await;
    allocator.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b148_services_of_another_class_are_not_touched() {
    let cluster = Cluster::start().await;
    cluster.pool("p", &["203.0.113.0/28"]);
    let class = |class: &str| json!({ "loadBalancerClass": class });
    cluster.service("none", &json!({}));
    cluster.service("ours", &class("example.com/lb"));
    cluster.service("theirs", &class("example.net/other"));
    cluster.service("empty-theirs", &class("example.net/other"));
    cluster
        .patch_status(
            "theirs",
            json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.7"}]}}),
        )
        .await;
    let mut before = Vec::new();
    for name in ["theirs", "empty-theirs"] {
        before.push(cluster.get(name).await);
    }

    let allocator = cluster.allocator("a", None);
    let of_none = cluster.address("none").await;
    assert_eq!(cluster.shows("ours").await, Vec::<String>::new());
    allocator.stop().await;

    // the flag is changed: what `none` has is given back, with an event
    let allocator = cluster.allocator("b", Some("example.com/lb"));
    let of_ours = cluster.address("ours").await;
    assert_ne!(of_ours, of_none, "not while it is being given back");
    eventually("none", || cluster.shows("none"), Vec::is_empty).await;
    let told = |events: &Vec<(String, String)>| {
        events.iter().any(|(reason, message)| {
            reason == "ClearAssignment" && message.starts_with("ClassNotOurs: ")
        })
    };
    eventually("an event", || cluster.events("none"), told).await;
    eventually(
        "records",
        || cluster.records(),
        |records| records.len() == 1,
    )
    .await;
    for (name, before) in ["theirs", "empty-theirs"].into_iter().zip(before) {
        assert_eq!(cluster.get(name).await, before, "{name} was written");
        assert_eq!(cluster.events(name).await, [], "{name}");
    }
    allocator.stop().await;
}

/// What it says of a bad pool is tested beside the code: the embedded server lets none in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_configuration_state_says_that_all_is_well() {
    let cluster = Cluster::start().await;
    cluster.pool("good", &["203.0.113.200/30"]);
    let allocator = cluster.allocator("a", None);
    cluster.service("keeper", &json!({}));
    assert_eq!(cluster.address("keeper").await, "203.0.113.200");
    let states: Api<ConfigurationState> = Api::namespaced(cluster.client.clone(), "metallb-system");
    let state = || async {
        states
            .get_opt("controller")
            .await
            .expect("an answer")
            .and_then(|state| state.status)
    };
    let is_valid = |state: &Option<api_types::ConfigurationStateStatus>| {
        state
            .as_ref()
            .is_some_and(|state| state.result == Some(api_types::ConfigurationResult::Valid))
    };
    eventually("a state", state, is_valid).await;
    allocator.stop().await;
}

/// B154's second half, in short: both lead by turns, and a stopped leader's place is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b154_a_second_allocator_takes_over() {
    let cluster = Cluster::start().await;
    cluster.pool("p", &["203.0.113.0/26"]);
    let first = cluster.allocator("a", None);
    for n in 0..20 {
        cluster.service(&format!("s{n:02}"), &json!({}));
    }
    let mut addresses = std::collections::BTreeSet::new();
    for n in 0..20 {
        addresses.insert(cluster.address(&format!("s{n:02}")).await);
    }
    let second = cluster.allocator("b", None);
    first.task.abort(); // as if killed: the Lease runs out
    for n in 20..40 {
        cluster.service(&format!("s{n:02}"), &json!({}));
    }
    for n in 20..40 {
        addresses.insert(cluster.address(&format!("s{n:02}")).await);
    }
    assert_eq!(addresses.len(), 40, "all different");
    assert_eq!(cluster.records().await.len(), 40, "nothing leaked");
    second.stop().await;
}
