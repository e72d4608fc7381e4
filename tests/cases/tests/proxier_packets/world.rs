//! Node `node-a` of a small cluster, from API objects to packets: the speaker's own reading of the objects, its planner,
//! and a table in memory that carries packets as the ruleset does.

use std::{collections::BTreeMap, sync::Arc};

use api_model::ServiceKey;
use k8s_openapi::api::{
    core::v1::{Node, Service},
    discovery::v1::EndpointSlice,
};
use serde_json::{Value, json};
use speaker::ingest::{Networks, NodeViews, this_node};
use speaker_proxier::{
    Change, Planner, Refusal,
    nft::{compile::ready_made_classes, fake::FakeTable},
    node_view::NodeView,
};

/// Condition triples: ready, serving, terminating.
pub(crate) const READY: [bool; 3] = [true, true, false];
/// Not usable in any way.
pub(crate) const DEAD: [bool; 3] = [false, false, false];

/// API objects as they are stored.
pub(crate) struct Objects {
    pub(crate) node: Value,
    services: BTreeMap<ServiceKey, Arc<Service>>,
    slices: BTreeMap<ServiceKey, BTreeMap<String, Arc<EndpointSlice>>>,
    views: NodeViews,
}

impl Objects {
    pub(crate) fn new() -> Self {
        Self {
            node: json!({
                "metadata": {"name": "node-a", "labels": {"kubernetes.io/hostname": "node-a"}},
                "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
            }),
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            views: NodeViews::default(),
        }
    }

    /// Stores a Service of namespace `default`, with the load balancer status given.
    pub(crate) fn service(&mut self, name: &str, spec: Value, ingress: Value) {
        let object = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        let object = serde_json::from_value(object).expect("a Service");
        self.services.insert(key(name), Arc::new(object));
    }

    pub(crate) fn delete_service(&mut self, name: &str) {
        self.services.remove(&key(name));
    }

    /// Stores slice `name` of a Service, of the family of its first endpoint.
    pub(crate) fn slice(&mut self, service: &str, name: &str, ports: Value, endpoints: &[Value]) {
        let first = endpoints
            .first()
            .and_then(|endpoint| endpoint["addresses"][0].as_str());
        let six = first.is_some_and(|address| address.contains(':'));
        let object = json!({
            "metadata": {
                "name": name, "namespace": "default",
                "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": if six { "IPv6" } else { "IPv4" },
            "ports": ports,
            "endpoints": endpoints,
        });
        let object: EndpointSlice = serde_json::from_value(object).expect("an EndpointSlice");
        let slices = self.slices.entry(key(service)).or_default();
        slices.insert(name.to_owned(), Arc::new(object));
    }

    /// What the speaker reads of all this.
    pub(crate) fn view(&mut self) -> (NodeView, Vec<Refusal>) {
        let networks = |texts: &[&str]| {
            let texts = texts.iter();
            texts.map(|text| text.parse().expect("a network")).collect()
        };
        let networks = Networks {
            pods: networks(&["198.51.100.192/26", "2001:db8:0:a::/64"]),
            services: networks(&["198.51.100.128/26", "2001:db8:0:9::/112"]),
        };
        let node: Node = serde_json::from_value(self.node.clone()).expect("a Node");
        let this = this_node(&"node-a".into(), Some(&node), &networks);
        let slices = &self.slices;
        self.views.build(this, &self.services, |key| {
            slices.get(key).into_iter().flat_map(BTreeMap::values)
        })
    }
}

/// The objects, the planner and a table in memory.
pub(crate) struct World {
    pub(crate) objects: Objects,
    pub(crate) planner: Planner,
    pub(crate) kernel: FakeTable,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            objects: Objects::new(),
            planner: Planner::default(),
            kernel: FakeTable {
                elements: ready_made_classes(),
            },
        }
    }

    /// The speaker follows the objects; the kernel takes the change as a whole.
    pub(crate) fn step(&mut self) -> Change {
        let (view, refusals) = self.objects.view();
        assert_eq!(refusals, [], "everything can be read");
        let change = self.planner.update(&view);
        let applied = self.kernel.apply(&change.transaction);
        assert_eq!(applied, Ok(()), "the kernel takes the change");
        assert_eq!(change.refusals, [], "everything is done as asked");
        change
    }
}

pub(crate) fn key(name: &str) -> ServiceKey {
    ServiceKey::new("default", name)
}

/// One unnamed TCP port, as in most slices.
pub(crate) fn port_8080() -> Value {
    json!([{"name": "", "protocol": "TCP", "port": 8080}])
}

pub(crate) fn endpoint(
    address: &str,
    node: &str,
    [ready, serving, terminating]: [bool; 3],
) -> Value {
    json!({
        "addresses": [address],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "nodeName": node,
    })
}
