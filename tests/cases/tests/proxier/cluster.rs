//! A cluster as one node's proxier sees it: objects in, a table in memory out.
#![expect(
    clippy::needless_pass_by_value,
    reason = "a json! literal is handed over as it stands"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use api_model::{Port, Protocol, ServiceKey};
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use serde_json::{Value, json};
use speaker::ingest::{Networks, NodeViews, this_node};
use speaker_proxier::{
    Change, Planner, Reason, Refusal,
    nft::{compile::ready_made_classes, fake::FakeTable},
    node_view::NodeView,
    rules::{Frontend, Packet, Verdict},
};

/// Objects, and the proxier of one node.
pub(crate) struct Cluster {
    node: &'static str,
    pub(crate) zone: Option<&'static str>,
    networks: Networks,
    services: BTreeMap<ServiceKey, Arc<Service>>,
    slices: BTreeMap<String, Arc<EndpointSlice>>,
    views: NodeViews,
    pub(crate) planner: Planner,
    pub(crate) kernel: FakeTable,
    pub(crate) refusals: Vec<Refusal>,
}

impl Cluster {
    /// A node of the cases: pods 198.51.100.192/26, ClusterIPs 198.51.100.128/26.
    pub(crate) fn on(node: &'static str) -> Self {
        Self {
            node,
            zone: None,
            networks: Networks {
                pods: vec!["198.51.100.192/26".parse().expect("a network")],
                services: vec!["198.51.100.128/26".parse().expect("a network")],
            },
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            views: NodeViews::default(),
            planner: Planner::default(),
            kernel: FakeTable {
                elements: ready_made_classes(),
            },
            refusals: Vec::new(),
        }
    }

    pub(crate) fn service(&mut self, name: &str, spec: Value, ingress: &[Value]) {
        let object = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        let service = serde_json::from_value(object).expect("a Service");
        self.services
            .insert(ServiceKey::new("default", name), Arc::new(service));
    }

    pub(crate) fn delete_service(&mut self, name: &str) {
        self.services.remove(&ServiceKey::new("default", name));
    }

    pub(crate) fn slice(&mut self, name: &str, service: &str, ports: Value, endpoints: Vec<Value>) {
        let v6 = endpoints.iter().any(|e| {
            e["addresses"][0]
                .as_str()
                .is_some_and(|at| at.contains(':'))
        });
        let object = json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
            "addressType": if v6 { "IPv6" } else { "IPv4" },
            "ports": ports,
            "endpoints": endpoints,
        });
        let slice = serde_json::from_value(object).expect("a slice");
        self.slices.insert(name.to_owned(), Arc::new(slice));
    }

    pub(crate) fn delete_slice(&mut self, name: &str) {
        self.slices.remove(name);
    }

    /// The snapshot as it is now.
    pub(crate) fn view(&mut self) -> NodeView {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": self.node, "labels": self.zone.map(|zone| json!({"topology.kubernetes.io/zone": zone}))},
            "status": {"addresses": [{"type": "InternalIP", "address": address_of(self.node)}]},
        }))
        .expect("a Node");
        let this = this_node(&self.node.into(), Some(&node), &self.networks);
        let slices = &self.slices;
        let of = |key: &ServiceKey| {
            let name = key.name.to_string();
            slices.values().filter(move |slice| {
                let labels = slice.metadata.labels.as_ref();
                labels.and_then(|it| it.get("kubernetes.io/service-name")) == Some(&name)
            })
        };
        let (view, refusals) = self.views.build(this, &self.services, of);
        self.refusals = refusals;
        view
    }

    /// Brings the table in step.
    pub(crate) fn sync(&mut self) -> Change {
        let view = self.view();
        let change = self.planner.update(&view);
        self.kernel
            .apply(&change.transaction)
            .expect("the kernel takes it");
        change
    }

    /// A new process over the same kernel.
    pub(crate) fn restart(&mut self) -> Change {
        self.views = NodeViews::default();
        self.planner = Planner::adopt(&self.kernel.elements);
        let view = self.view();
        let change = self.planner.resume(&self.kernel.elements, &view);
        self.kernel
            .apply(&change.transaction)
            .expect("the kernel takes it");
        change
    }

    /// What happens to a TCP packet.
    pub(crate) fn tcp(&self, source: &str, to: &str) -> Verdict {
        self.packet(Protocol::Tcp, source, to)
    }

    pub(crate) fn packet(&self, protocol: Protocol, source: &str, to: &str) -> Verdict {
        let source: IpAddr = source.parse().expect("an address");
        let to: SocketAddr = to.parse().expect("address and port");
        let own = source.to_string() == address_of(self.node);
        let port = Port::new(to.port()).expect("a port");
        let to = Frontend {
            address: to.ip(),
            protocol,
            port,
        };
        self.kernel.verdict(&Packet { source, to }, own)
    }

    pub(crate) fn reasons(&self, change: &Change) -> BTreeSet<Reason> {
        self.refusals
            .iter()
            .chain(&change.refusals)
            .map(|refusal| refusal.reason)
            .collect()
    }
}

fn address_of(node: &str) -> &'static str {
    match node {
        "node-a" => "192.0.2.11",
        "node-b" => "192.0.2.12",
        _ => "192.0.2.13",
    }
}

/// An endpoint that is ready, or neither ready nor serving.
pub(crate) fn endpoint(address: &str, node: &str, ready: bool) -> Value {
    json!({
        "addresses": [address],
        "conditions": {"ready": ready, "serving": ready, "terminating": false},
        "nodeName": node,
    })
}

/// The one unnamed port of the cases' slices.
pub(crate) fn port_8080() -> Value {
    json!([{"name": "", "protocol": "TCP", "port": 8080}])
}

/// A LoadBalancer on port 80 with ClusterIP 198.51.100.130.
pub(crate) fn web(extra: Value) -> Value {
    let mut spec = json!({
        "type": "LoadBalancer", "clusterIP": "198.51.100.130",
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 8080}],
    });
    let fields = spec.as_object_mut().expect("an object");
    fields.extend(extra.as_object().expect("an object").clone());
    spec
}

/// Delivered to one of these, with or without the node's address as source.
pub(crate) fn delivered(to: &[&str], masquerade: bool) -> Verdict {
    Verdict::Deliver {
        to: to
            .iter()
            .map(|at| at.parse().expect("address and port"))
            .collect(),
        masquerade,
        affinity: None,
    }
}
