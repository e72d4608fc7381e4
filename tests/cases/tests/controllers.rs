//! The controllers beside the embedded API server: what `kubectl get endpointslices,endpoints` shows, and who is collected.
//!
//! The planners' tables are beside them in `api/controllers`; here the shells run against a server, over TLS.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use api_client::connect;
use api_server::{Config, Identity, Server};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Endpoints, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Nothing in these tests takes longer.
const LIMIT: Duration = Duration::from_secs(20);

struct Cluster {
    client: Client,
    _running: watch::Sender<bool>,
}

impl Cluster {
    async fn start() -> Self {
        let identity = Identity::generate(&["127.0.0.1"]).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::new(&Config::default(), &identity).unwrap();
        tokio::spawn(async move { server.serve(vec![listener], std::future::pending()).await });
        let kubeconfig = identity.kubeconfig(&Identity::url(address.ip(), address.port()));
        let path = std::env::temp_dir().join(format!(
            "roadstead-controllers-{}-{}",
            std::process::id(),
            address.port()
        ));
        std::fs::write(&path, kubeconfig).unwrap();
        let client = connect(Some(&path)).await.unwrap();
        std::fs::remove_file(&path).unwrap();
        let (running, shutdown) = watch::channel(false);
        tokio::spawn(api_controllers::run(client.clone(), shutdown));
        Self {
            client,
            _running: running,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    async fn create<K>(&self, object: Value) -> K
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + DeserializeOwned,
    {
        let object: K = serde_json::from_value(object).unwrap();
        self.api::<K>()
            .create(&PostParams::default(), &object)
            .await
            .unwrap()
    }

    async fn node(&self, name: &str) {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::<Node>::all(self.client.clone())
            .create(&PostParams::default(), &node)
            .await
            .unwrap();
    }

    /// A ready pod of app `web` on `n1`.
    async fn pod(&self, name: &str, ip: &str) {
        let spec =
            json!({"nodeName": "n1", "containers": [{"name": "c", "image": "example/image:1"}]});
        self.create::<Pod>(
            json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}),
        )
        .await;
        let status = json!({"status": {
            "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}],
        }});
        self.api::<Pod>()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    async fn ready(&self, pod: &str, ready: &str) {
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        self.api::<Pod>()
            .patch_status(pod, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// The endpoints in all slices of a Service, with their conditions, and the addresses in its Endpoints.
    async fn seen(&self, service: &str) -> (Vec<String>, Option<Vec<String>>) {
        let of = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        let slices = self.api::<EndpointSlice>().list(&of).await.unwrap().items;
        let mut lines: Vec<String> = slices
            .iter()
            .flat_map(|slice| slice.endpoints.iter().flatten())
            .map(|endpoint| {
                let is = endpoint.conditions.as_ref().unwrap();
                let flag = |value: Option<bool>, letter: char| {
                    if value == Some(true) { letter } else { '-' }
                };
                let state: String = [
                    flag(is.ready, 'r'),
                    flag(is.serving, 's'),
                    flag(is.terminating, 't'),
                ]
                .iter()
                .collect();
                format!("{} {state}", endpoint.addresses.join("+"))
            })
            .collect();
        lines.sort();
        let endpoints = self
            .api::<Endpoints>()
            .get_opt(service)
            .await
            .unwrap()
            .map(|endpoints| {
                let subsets = endpoints.subsets.into_iter().flatten();
                subsets
                    .flat_map(|subset| subset.addresses.into_iter().flatten())
                    .map(|address| address.ip)
                    .collect()
            });
        (lines, endpoints)
    }

    /// Waits until slices and Endpoints are these.
    async fn eventually(&self, service: &str, slices: &[&str], endpoints: Option<&[&str]>) {
        let wanted = (
            slices
                .iter()
                .map(|&line| line.to_owned())
                .collect::<Vec<_>>(),
            endpoints.map(|all| all.iter().map(|&ip| ip.to_owned()).collect::<Vec<_>>()),
        );
        let begun = Instant::now();
        loop {
            let seen = self.seen(service).await;
            if seen == wanted {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "wanted {wanted:?}, seen {seen:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn maps(&self) -> Vec<String> {
        let maps = self
            .api::<ConfigMap>()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items;
        maps.into_iter()
            .map(|map| map.metadata.name.unwrap())
            .collect()
    }

    async fn maps_are_eventually(&self, wanted: &[&str]) {
        let begun = Instant::now();
        loop {
            let seen = self.maps().await;
            if seen == wanted {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "wanted {wanted:?}, seen {seen:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_become_endpoints_and_leave_them() {
    let cluster = Cluster::start().await;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]});
    cluster
        .create::<Service>(json!({"metadata": {"name": "web"}, "spec": spec}))
        .await;
    cluster.eventually("web", &[], Some(&[])).await;
    // the pod comes before its node
    cluster.pod("a", "10.1.0.1").await;
    cluster.eventually("web", &[], Some(&["10.1.0.1"])).await;
    cluster.node("n1").await;
    cluster.pod("b", "10.1.0.2").await;
    cluster
        .eventually(
            "web",
            &["10.1.0.1 rs-", "10.1.0.2 rs-"],
            Some(&["10.1.0.1", "10.1.0.2"]),
        )
        .await;
    cluster.ready("a", "False").await;
    cluster
        .eventually(
            "web",
            &["10.1.0.1 ---", "10.1.0.2 rs-"],
            Some(&["10.1.0.2"]),
        )
        .await;
    cluster.ready("a", "True").await;
    cluster
        .eventually(
            "web",
            &["10.1.0.1 rs-", "10.1.0.2 rs-"],
            Some(&["10.1.0.1", "10.1.0.2"]),
        )
        .await;
    let pods = cluster.api::<Pod>();
    pods.delete("b", &DeleteParams::default()).await.unwrap();
    cluster
        .eventually(
            "web",
            &["10.1.0.1 rs-", "10.1.0.2 -st"],
            Some(&["10.1.0.1"]),
        )
        .await;
    pods.delete("b", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    cluster
        .eventually("web", &["10.1.0.1 rs-"], Some(&["10.1.0.1"]))
        .await;
    cluster
        .api::<Service>()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    cluster.eventually("web", &[], None).await;
    let slices = cluster.api::<EndpointSlice>();
    let begun = Instant::now();
    while !slices
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .is_empty()
    {
        assert!(begun.elapsed() < LIMIT, "the slice outlives its Service");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Somebody empties and deletes the slice: it is made right, by one write each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_that_somebody_spoils_is_made_right() {
    let cluster = Cluster::start().await;
    cluster.node("n1").await;
    cluster.pod("a", "10.1.0.1").await;
    let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
    cluster
        .create::<Service>(json!({"metadata": {"name": "web"}, "spec": spec}))
        .await;
    cluster
        .eventually("web", &["10.1.0.1 rs-"], Some(&["10.1.0.1"]))
        .await;
    let slices = cluster.api::<EndpointSlice>();
    let slice = slices
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .remove(0);
    let name = slice.metadata.name.clone().unwrap();
    let emptied = json!({"endpoints": []});
    slices
        .patch(&name, &PatchParams::default(), &Patch::Merge(emptied))
        .await
        .unwrap();
    cluster
        .eventually("web", &["10.1.0.1 rs-"], Some(&["10.1.0.1"]))
        .await;
    let restored = slices.get(&name).await.unwrap();
    // made, emptied, restored: nobody fights over it
    assert_eq!(
        restored.metadata.generation,
        slice.metadata.generation.map(|before| before + 2)
    );
    slices
        .delete(&name, &DeleteParams::default())
        .await
        .unwrap();
    cluster
        .eventually("web", &["10.1.0.1 rs-"], Some(&["10.1.0.1"]))
        .await;
    assert_eq!(slices.get_opt(&name).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_go_as_the_deletion_of_their_owner_says() {
    let cluster = Cluster::start().await;
    for (policy, left) in [
        (PropagationPolicy::Background, &[][..]),
        (PropagationPolicy::Foreground, &[]),
        (PropagationPolicy::Orphan, &["child", "grandchild"]),
    ] {
        let mut owner: ConfigMap = cluster.create(json!({"metadata": {"name": "owner"}})).await;
        for name in ["child", "grandchild"] {
            let reference = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": owner.metadata.name, "uid": owner.metadata.uid, "blockOwnerDeletion": true,
            });
            owner = cluster
                .create(json!({"metadata": {"name": name, "ownerReferences": [reference]}}))
                .await;
        }
        let params = DeleteParams {
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        cluster
            .api::<ConfigMap>()
            .delete("owner", &params)
            .await
            .unwrap();
        cluster.maps_are_eventually(left).await;
    }
    // the orphan has lost its reference, its own child has not
    let child = cluster.api::<ConfigMap>().get("child").await.unwrap();
    assert_eq!(child.metadata.owner_references.unwrap_or_default(), []);
    // an owner that never was
    let nobody = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "00000000-0000-4000-8000-000000000000"});
    cluster
        .create::<ConfigMap>(json!({"metadata": {"name": "ghost", "ownerReferences": [nobody]}}))
        .await;
    cluster.maps_are_eventually(&["child", "grandchild"]).await;
}
