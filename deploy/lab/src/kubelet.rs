//! Plays the kubelet of every node: runs the pods that are bound to one, reports their status, finishes their deletion.
//!
//! A pod serves `name|client-address` on its container ports. The annotation `lab.roadstead.io/ready: "false"` turns it
//! unready while it goes on serving, so that who still sends to it is seen. Never schedules: pods name their node.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod as PodObject};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::{Value, json};

use crate::{
    error::{Doing as _, Result},
    pod::Pod,
    topology::{Node, Topology},
};

/// Annotation that turns a pod unready.
pub const READY: &str = "lab.roadstead.io/ready";

/// Longest time that a pod goes on serving after its deletion was asked for.
const LONGEST_GRACE: Duration = Duration::from_secs(5);

/// Creates the Node objects of the lab.
pub async fn register(client: &Client, topology: &Topology) -> Result<()> {
    for node in &topology.nodes {
        let n = node.number;
        let pods = [format!("10.244.{n}.0/24"), format!("fd00:10:244:{n}::/64")];
        register_node(client, &node.name(), &node.addresses(), &pods).await?;
    }
    Ok(())
}

/// Creates one Node object, `Ready`, with these addresses and networks of pods; or renews the one that is there.
pub async fn register_node(
    client: &Client,
    name: &str,
    addresses: &[IpAddr],
    pods: &[String],
) -> Result<()> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let object = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "spec": {"podCIDR": pods.first(), "podCIDRs": pods},
    });
    let object = serde_json::from_value(object).doing("writing a Node")?;
    match nodes.create(&PostParams::default(), &object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        created => drop(created.doing(format!("creating node {name}"))?),
    }
    let mut reported = vec![json!({"type": "Hostname", "address": name})];
    reported.extend(
        addresses
            .iter()
            .map(|address| json!({"type": "InternalIP", "address": address})),
    );
    let status =
        json!({"status": {"addresses": reported, "conditions": [ready("KubeletReady", true)]}});
    let patched = nodes
        .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
        .await;
    patched.map(drop).doing(format!("reporting node {name}"))
}

/// Runs pods until the watch ends, which it never does by itself; drop it to stop every pod.
pub async fn run(client: Client, nodes: Vec<Node>) {
    let mut kubelet = Kubelet {
        client: client.clone(),
        nodes,
        pods: BTreeMap::new(),
        last_host: BTreeMap::new(),
    };
    let pods: Api<PodObject> = Api::all(client);
    let mut events = watcher(pods, watcher::Config::default())
        .default_backoff()
        .boxed();
    while let Some(event) = events.next().await {
        let outcome = match event {
            Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                kubelet.see(&pod).await
            }
            Ok(watcher::Event::Delete(pod)) => {
                kubelet.forget(&pod);
                Ok(())
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone) => Ok(()),
            Err(error) => Err(error).doing("watching pods"),
        };
        if let Err(error) = outcome {
            tracing::warn!(%error, "pod was not brought up to date");
        }
    }
}

struct Kubelet {
    client: Client,
    nodes: Vec<Node>,
    /// Running pods by uid.
    pods: BTreeMap<String, Pod>,
    /// Last part of the address that was given last, by node.
    last_host: BTreeMap<u8, u8>,
}

impl Kubelet {
    async fn see(&mut self, object: &PodObject) -> Result<()> {
        let bound = object
            .spec
            .as_ref()
            .and_then(|spec| spec.node_name.as_deref());
        let Some(node) = self
            .nodes
            .iter()
            .find(|node| Some(node.name().as_str()) == bound)
        else {
            return Ok(());
        };
        let node = node.clone();
        if object.metadata.deletion_timestamp.is_some() {
            return self.finish(object);
        }
        let uid = object.uid().unwrap_or_default();
        if !self.pods.contains_key(&uid) {
            let host = self.next_host(node.number);
            let ports = ports(object);
            let pod = tokio::task::block_in_place(|| {
                Pod::start(&node, &object.name_any(), host, &ports)
            })?;
            self.pods.insert(uid.clone(), pod);
        }
        let Some(pod) = self.pods.get(&uid) else {
            return Ok(());
        };
        self.report(object, &node, pod).await
    }

    /// Addresses are given in turn, so that a new pod doesn't get the address of one that has just gone.
    fn next_host(&mut self, node: u8) -> u8 {
        const FIRST: u8 = 2;
        const LAST: u8 = 254;
        let last = self.last_host.entry(node).or_insert(1);
        *last = if *last >= LAST { FIRST } else { *last + 1 };
        *last
    }

    /// Writes the status, if it isn't there already.
    async fn report(&self, object: &PodObject, node: &Node, pod: &Pod) -> Result<()> {
        let wanted = is_wanted_ready(object);
        let conditions = object
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_ref());
        let condition = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.type_ == "Ready");
        let said = condition.map(|condition| condition.status == "True");
        if said == Some(wanted) {
            return Ok(());
        }
        let pods: Api<PodObject> =
            Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default());
        let status = Patch::Merge(json!({"status": status(object, node, pod, wanted)}));
        let name = object.name_any();
        let patched = pods
            .patch_status(&name, &PatchParams::default(), &status)
            .await;
        patched.map(drop).doing(format!("reporting pod {name}"))
    }

    /// Serves on for the grace period, then stops the pod and takes the object away, by a task of its own.
    fn finish(&mut self, object: &PodObject) -> Result<()> {
        let Some(pod) = object.uid().and_then(|uid| self.pods.remove(&uid)) else {
            return Ok(());
        };
        let asked = object.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let grace = Duration::from_secs(u64::try_from(asked).doing("reading a grace period")?);
        let pods: Api<PodObject> =
            Api::namespaced(self.client.clone(), &object.namespace().unwrap_or_default());
        let (name, uid) = (object.name_any(), object.uid());
        tokio::spawn(async move {
            tokio::time::sleep(grace.min(LONGEST_GRACE)).await;
            tokio::task::block_in_place(|| pod.stop());
            let at_once = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions {
                    uid,
                    resource_version: None,
                }),
                ..DeleteParams::default()
            };
            if let Err(error) = pods.delete(&name, &at_once).await {
                tracing::debug!(%error, name, "pod had gone already");
            }
        });
        Ok(())
    }

    /// A pod that was deleted without grace
    fn forget(&mut self, object: &PodObject) {
        if let Some(pod) = object.uid().and_then(|uid| self.pods.remove(&uid)) {
            tokio::task::block_in_place(|| pod.stop());
        }
    }
}

fn is_wanted_ready(object: &PodObject) -> bool {
    object.annotations().get(READY).map(String::as_str) != Some("false")
}

fn ports(object: &PodObject) -> Vec<u16> {
    let containers = object.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let mut ports: Vec<u16> = ports
        .filter_map(|port| u16::try_from(port.container_port).ok())
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn ready(reason: &str, is: bool) -> Value {
    json!({"type": "Ready", "status": if is { "True" } else { "False" }, "reason": reason})
}

fn status(object: &PodObject, node: &Node, pod: &Pod, is_ready: bool) -> Value {
    let condition =
        |kind: &str| json!({"type": kind, "status": if is_ready { "True" } else { "False" }});
    let containers = object.spec.iter().flat_map(|spec| &spec.containers);
    let containers: Vec<Value> = containers
        .map(|container| {
            json!({"name": container.name, "image": container.image, "imageID": "", "ready": is_ready,
                "restartCount": 0, "started": true, "state": {"running": {}}})
        })
        .collect();
    let ips = |addresses: &[_]| {
        addresses
            .iter()
            .map(|ip| json!({"ip": ip}))
            .collect::<Vec<Value>>()
    };
    json!({
        "phase": "Running",
        "podIP": pod.addresses[0], "podIPs": ips(&pod.addresses),
        "hostIP": node.addresses()[0], "hostIPs": ips(&node.addresses()),
        "conditions": [{"type": "Initialized", "status": "True"}, {"type": "PodScheduled", "status": "True"},
            condition("ContainersReady"), condition("Ready")],
        "containerStatuses": containers,
    })
}
