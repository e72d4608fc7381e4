//! One Service followed through every room, as data: what goes in and what comes out, printed as a table.
//!
//! The API server and its watch are real (TLS on loopback); from there on the cores are driven by hand, in the order in
//! which the shells drive them. Everything is a function of the seed, so the table is golden: `followed.txt`, rewritten by
//! `UPDATE_GOLDEN=1`. Packets and shells are the demo's part.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, TcpListener},
    sync::Arc,
    time::Duration,
};

use allocator_core::{
    Allocator, IngressChange, Input, Output, Record, RecordAnswer, StatusWrite, Stored,
};
use api_client::Change as Told;
use api_controllers::slices::Write;
use api_model::{NodeName, Port, Protocol, ServiceKey, Time};
use api_server::{Config, Identity, Server};
use futures::{Stream, StreamExt as _};
use k8s_openapi::api::{
    core::v1::{Namespace, Node, Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    runtime::watcher,
};
use lab::objects;
use serde_json::json;
use speaker::ingest::{self, Change, Fact, Facts, Networks, NodeViews};
use speaker_l2::candidate::{self, Gate};
use speaker_proxier::{
    Planner,
    nft::Operation,
    node_view::NodeView,
    rules::{self, Frontend, Packet, Verdict},
};

/// Seed of the API server's picks.
const SEED: u64 = 7;

#[tokio::test]
async fn a_service_is_followed_through_every_room() {
    let mut table = Table::default();
    let mut world = World::start().await;
    let service = world.create(&mut table).await;
    let (record, addresses) = world.allocate(&mut table, &service);
    let shown = world.show(&addresses).await;
    let view = world.speak(&mut table, &shown, addresses[0]);
    World::send(&mut table, &view, addresses[0]);
    world.delete(&mut table, &record);
    table.compare();
}

/// Rows as they come: number, where, what.
#[derive(Default)]
struct Table(Vec<[String; 3]>);

impl Table {
    fn row(&mut self, number: &str, place: &str, what: impl Into<String>) {
        self.0
            .push([number.to_owned(), place.to_owned(), what.into()]);
    }

    fn text(&self) -> String {
        let line = |[number, place, what]: &[String; 3]| format!("{number:<4}{place:<36}{what}\n");
        self.0.iter().map(line).collect()
    }

    /// Holds the table against the golden file, or rewrites it.
    fn compare(&self) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/followed.txt");
        let text = self.text();
        println!("{text}");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &text).expect("the golden file can be written");
        }
        let golden = std::fs::read_to_string(path).expect("the golden file is there");
        assert_eq!(
            text, golden,
            "run with UPDATE_GOLDEN=1 if the change is meant"
        );
    }
}

struct World {
    client: Client,
    services: Box<dyn Stream<Item = Told<Service>> + Unpin>,
    allocator: Allocator,
    facts: Facts,
    planner: Planner,
    views: NodeViews,
}

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Objects of the demo's manifests, by kind
fn of_kind<K: serde::de::DeserializeOwned>(files: &[&str], kind: &str) -> Vec<K> {
    let texts = objects::MANIFESTS
        .iter()
        .filter(|(file, _)| files.contains(file));
    let objects =
        texts.flat_map(|(_, text)| objects::read(text).expect("the manifest can be read"));
    let of_kind = objects.filter(|object| {
        object
            .types
            .as_ref()
            .is_some_and(|types| types.kind == kind)
    });
    of_kind
        .map(|object| {
            serde_json::to_value(object)
                .and_then(serde_json::from_value)
                .expect("the kind's shape")
        })
        .collect()
}

fn node(name: &str) -> Node {
    let number = name.trim_start_matches('n');
    let object = json!({"metadata": {"name": name}, "status": {"addresses": [
        {"type": "InternalIP", "address": format!("192.0.2.{number}")}]}});
    serde_json::from_value(object).expect("a Node")
}

impl World {
    async fn start() -> Self {
        let identity = Identity::generate(&["127.0.0.1"]).expect("an identity");
        let namespaces = ["default", "demo", "metallb-system"]
            .map(str::to_owned)
            .to_vec();
        let config = Config {
            seed: Some(SEED),
            namespaces,
            ..Config::default()
        };
        let server = Server::new(&config, &identity).expect("a server");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("an address");
        let file = std::env::temp_dir().join(format!("roadstead-followed-{}", std::process::id()));
        std::fs::write(
            &file,
            identity.kubeconfig(&Identity::url(address.ip(), address.port())),
        )
        .expect("a kubeconfig");
        tokio::spawn(async move { server.serve(vec![listener], std::future::pending()).await });
        let client = api_client::connect(Some(&file)).await.expect("a client");
        std::fs::remove_file(&file).expect("the kubeconfig can be removed");
        let api: Api<Service> = Api::namespaced(client.clone(), "demo");
        let mut services = api_client::informer(api, watcher::Config::default());
        let first = next(&mut services).await;
        assert!(matches!(first, Told::Synced), "{first:?}");
        Self {
            client,
            services: Box::new(services),
            allocator: Allocator::new(allocator_core::Config::default()),
            facts: Facts::default(),
            planner: Planner::default(),
            views: NodeViews::default(),
        }
    }

    /// Rows 1 to 4: created, admitted, stored, watched.
    async fn create(&mut self, table: &mut Table) -> Arc<Service> {
        let wanted: Vec<Service> = of_kind(&["42-web-load-balancer.yaml"], "Service");
        let mut wanted = wanted.into_iter().next().expect("the manifest of web");
        // the table follows one port
        let spec = wanted.spec.as_mut().expect("a spec");
        spec.ports.as_mut().expect("ports").truncate(1);
        let api: Api<Service> = Api::namespaced(self.client.clone(), "demo");
        api.create(&PostParams::default(), &wanted)
            .await
            .expect("the API server takes it");
        let Told::Apply(service) = next(&mut self.services).await else {
            panic!("not what was created")
        };
        let spec = service.spec.as_ref().expect("a spec");
        let cluster_ip: Ipv4Addr = spec
            .cluster_ip
            .as_deref()
            .and_then(|ip| ip.parse().ok())
            .expect("a ClusterIP");
        let port = spec
            .ports
            .iter()
            .flatten()
            .next()
            .and_then(|port| port.node_port)
            .expect("a node port");
        let offset = u32::from(cluster_ip) - u32::from(Ipv4Addr::new(10, 96, 0, 0));
        let bit = port - 30_000;
        assert!(offset >= 256, "from the dynamic band: {offset}");
        table.row(
            "1",
            "api/server/http",
            "POST /api/v1/namespaces/demo/services -> 201",
        );
        table.row(
            "2",
            "api/server -> allocator/core",
            format!("offset {offset} = {cluster_ip}; port bit {bit} = {port}"),
        );
        let version = service
            .metadata
            .resource_version
            .clone()
            .unwrap_or_default();
        table.row(
            "3",
            "api/server/store, watch",
            format!("stored at resourceVersion {version}; ADDED"),
        );
        table.row("4", "api/client/informer", "Apply(demo/web), after Synced");
        service
    }

    /// Rows 5 to 8: claim, pool, ledger, record.
    fn allocate(&mut self, table: &mut Table, service: &Service) -> (Record, Vec<IpAddr>) {
        let claim = allocator::ingest::service(service, None).input;
        let Input::Service(ref asked) = claim else {
            panic!("not ours: {claim:?}")
        };
        let ports: Vec<String> = asked.ports.iter().map(ToString::to_string).collect();
        let families: Vec<String> = asked.families.iter().map(ToString::to_string).collect();
        let text = format!(
            "ServiceClaim {{ {}, {}, {} }}",
            asked.key,
            families.join("+"),
            ports.join(" ")
        );
        table.row("5", "allocator/src/ingest", text);
        let mut out = Vec::new();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": "demo"}})).expect("a Namespace");
        let pool = pool();
        let mut inputs = vec![
            allocator::ingest::namespace(&namespace),
            Input::Pool(allocator::ingest::pool(&pool)),
        ];
        inputs.extend(NODES.map(|name| allocator::ingest::node(&node(name))));
        inputs.extend([claim, Input::Synced]);
        for input in inputs {
            self.allocator.handle(Time::ZERO, input, &mut out);
        }
        let record = out.iter().find_map(|output| {
            if let Output::CreateRecord(record) = output {
                Some(record.clone())
            } else {
                None
            }
        });
        let record = record.unwrap_or_else(|| panic!("no record is made: {out:#?}"));
        let stored = Record {
            stored: Some(Stored {
                uid: "u1".into(),
                version: "813".into(),
            }),
            ..record
        };
        out.clear();
        let answer = Input::RecordAnswer {
            address: stored.address,
            answer: RecordAnswer::Stored(stored.clone()),
        };
        self.allocator.handle(Time::ZERO, answer, &mut out);
        let (addresses, pool) = given(&out);
        table.row("6", "allocator/core/selection", format!("from pool {pool}"));
        let held: Vec<String> = self
            .allocator
            .holders()
            .iter()
            .map(|(address, keys)| holders(*address, keys))
            .collect();
        table.row("7", "allocator/core/ledger", held.join(", "));
        let object = allocator::write_record(&stored);
        let name = object.metadata.name.unwrap_or_default();
        table.row(
            "8",
            "allocator/core/machine -> outbox",
            format!("AddressRecord {name}, then {}", status_text(&out)),
        );
        (stored, addresses)
    }

    /// The status as the outbox writes it, and the Service as the speakers then see it.
    async fn show(&mut self, addresses: &[IpAddr]) -> Arc<Service> {
        let ingress: Vec<_> = addresses
            .iter()
            .map(|ip| json!({"ip": ip, "ipMode": "VIP"}))
            .collect();
        let status = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": ingress}}}));
        let api: Api<Service> = Api::namespaced(self.client.clone(), "demo");
        api.patch_status("web", &PatchParams::default(), &status)
            .await
            .expect("the API server takes it");
        let Told::Apply(service) = next(&mut self.services).await else {
            panic!("not what was written")
        };
        service
    }

    /// Rows 9 to 12: the speakers' views, rules, elements, holder, routes.
    fn speak(&mut self, table: &mut Table, service: &Arc<Service>, vip: IpAddr) -> NodeView {
        let slices = slices(service);
        for fact in facts(service, &slices) {
            self.facts.take(fact);
        }
        let findings = self.facts.check();
        assert!(findings.is_empty(), "{findings:?}");
        let view = self.view("n3");
        table.row(
            "9",
            "speaker/src/ingest (n3)",
            format!(
                "NodeView: {} Service, {} slice",
                view.services.len(),
                slices.len()
            ),
        );
        let desired = rules::desired(&view);
        let service = desired.services.values().next().expect("one Service");
        let port = service.ports.values().next().expect("one port");
        let usable: Vec<String> = port
            .endpoints
            .whole
            .iter()
            .map(ToString::to_string)
            .collect();
        let frontends: Vec<String> = port
            .frontends
            .iter()
            .map(|(at, rule)| format!("{:?} {}:{}", rule.kind, at.address, at.port))
            .collect();
        table.row(
            "10",
            "speaker/proxier/{endpoints,rules}",
            format!("{} -> {}", frontends.join(", "), usable.join(", ")),
        );
        let change = self.planner.update(&view);
        table.row(
            "11",
            "speaker/proxier/planner -> nft_io",
            elements(&change.transaction.operations),
        );
        let vips = ingest::vips(&self.facts, None);
        let mut gate = Gate::default();
        gate.programmed(vip);
        let alive: BTreeSet<NodeName> = NODES.map(NodeName::from).into();
        let words: Vec<String> = NODES
            .iter()
            .map(|name| {
                let view = ingest::l2_view(&self.facts, &vips, &(*name).into(), &alive, false);
                format!(
                    "{name} {}",
                    candidate::decide(&view, &gate)[&vip].reason.as_str()
                )
            })
            .collect();
        table.row("12a", "speaker/l2/{candidate,election}", words.join(", "));
        let bgp = ingest::bgp_view(&self.facts, &vips, &"n3".into(), &|_| true, false);
        let wanted = speaker_bgp::wanted(&bgp.view);
        let routes: Vec<String> = wanted
            .routes
            .iter()
            .flat_map(|(peer, routes)| {
                routes
                    .keys()
                    .map(move |prefix| format!("{prefix} to peer {}", peer.as_str()))
            })
            .collect();
        table.row("12b", "speaker/bgp/advertisement (n3)", routes.join(", "));
        view
    }

    fn view(&mut self, name: &str) -> NodeView {
        let networks = Networks {
            pods: vec!["10.244.0.0/16".parse().expect("a network")],
            services: vec!["10.96.0.0/16".parse().expect("a network")],
        };
        let me = NodeName::from(name);
        let this = ingest::this_node(
            &me,
            self.facts.nodes.get(&me).map(|node| &**node),
            &networks,
        );
        let facts = &self.facts;
        let (view, refusals) = self.views.build(this, &facts.services, |key| {
            facts.slices.get(key).into_iter().flat_map(BTreeMap::values)
        });
        assert!(refusals.is_empty(), "{refusals:?}");
        view
    }

    /// Row 13: what the node does with a client's first packet.
    fn send(table: &mut Table, view: &NodeView, vip: IpAddr) {
        let port = Port::new(80).expect("not 0");
        let to = Frontend {
            address: vip,
            protocol: Protocol::Tcp,
            port,
        };
        let packet = Packet {
            source: Ipv4Addr::new(192, 0, 2, 200).into(),
            to,
        };
        let verdict = rules::desired(view).verdict(&packet);
        let Verdict::Deliver { to, masquerade, .. } = verdict else {
            panic!(
                "{verdict:?}
{view:#?}"
            )
        };
        let to: Vec<String> = to.iter().map(ToString::to_string).collect();
        let text = format!(
            "192.0.2.200 -> {vip}:80 -> one of {}, masquerade {masquerade}",
            to.join(", ")
        );
        table.row("13", "kernel (n3)", text);
    }

    /// Rows 14 and 15: the same way back, the record last.
    fn delete(&mut self, table: &mut Table, record: &Record) {
        let service = self
            .facts
            .services
            .values()
            .next()
            .cloned()
            .expect("one Service");
        for slice in slices(&service) {
            self.facts.take(Fact::Slice(Change::Delete(slice)));
        }
        self.facts.take(Fact::Service(Change::Delete(service)));
        assert!(
            ingest::vips(&self.facts, None).is_empty(),
            "nothing is announced any more"
        );
        let view = self.view("n3");
        let change = self.planner.update(&view);
        table.row(
            "14",
            "delete: speaker",
            format!(
                "withdrawn; then {}",
                elements(&change.transaction.operations)
            ),
        );
        let mut out = Vec::new();
        self.allocator.handle(
            Time::ZERO,
            Input::ServiceGone(ServiceKey::new("demo", "web")),
            &mut out,
        );
        let early = out
            .iter()
            .any(|output| matches!(output, Output::DeleteRecord { .. }));
        assert!(!early, "the record outlives the drain time: {out:?}");
        let due = self.allocator.next_deadline().expect("a drain time runs");
        self.allocator.handle(due, Input::Tick, &mut out);
        let gone = out.iter().any(|output| matches!(output, Output::DeleteRecord { address, .. } if *address == record.address));
        assert!(gone, "{out:?}");
        let text = format!(
            "AddressRecord {} deleted after {} ms",
            record.address,
            due.since(Time::ZERO).as_millis()
        );
        table.row("15", "delete: allocator", text);
    }
}

/// The next news of a watch; fails after ten seconds.
async fn next<S: Stream + Unpin>(stream: &mut S) -> S::Item {
    let item = tokio::time::timeout(Duration::from_secs(10), stream.next()).await;
    item.expect("news within 10 s").expect("the watch goes on")
}

fn pool() -> api_types::IPAddressPool {
    let object = json!({"apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": "lan", "namespace": "metallb-system"}, "spec": {"addresses": ["192.0.2.10-192.0.2.99"]}});
    serde_json::from_value(object).expect("a pool")
}

fn holders(address: IpAddr, keys: &BTreeSet<ServiceKey>) -> String {
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    format!("{} <-> {address}", keys.join(" "))
}

fn written(out: &[Output]) -> &StatusWrite {
    let written = out.iter().find_map(|output| {
        if let Output::Status(write) = output {
            Some(write)
        } else {
            None
        }
    });
    written.unwrap_or_else(|| panic!("no status is written: {out:#?}"))
}

fn given(out: &[Output]) -> (Vec<IpAddr>, String) {
    match &written(out).ingress {
        IngressChange::Set { addresses, pool } => (addresses.clone(), pool.to_string()),
        other @ (IngressChange::Clear | IngressChange::Keep) => panic!("no address: {other:?}"),
    }
}

fn status_text(out: &[Output]) -> String {
    let (addresses, _) = given(out);
    let condition = &written(out).condition;
    format!(
        "ingress {addresses:?}, Allocated={} {}",
        condition.allocated, condition.reason
    )
}

fn slices(service: &Service) -> Vec<Arc<EndpointSlice>> {
    let pod = |(name, node, ip): (&str, &str, &str)| -> Pod {
        let object = json!({
            "metadata": {"name": name, "namespace": "demo", "labels": {"app": "web"}, "uid": name},
            "spec": {"nodeName": node, "containers": [{"name": "web", "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}]}]},
            "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": "True"}]},
        });
        serde_json::from_value(object).expect("a Pod")
    };
    let pods = [("web-a", "n1", "10.244.1.2"), ("web-b", "n2", "10.244.2.2")].map(pod);
    let pods: Vec<&Pod> = pods.iter().collect();
    let nodes: BTreeMap<_, _> = NODES
        .iter()
        .map(|name| ((*name).to_owned(), None))
        .collect();
    let writes = api_controllers::slices::plan(service, &pods, &nodes, &[]);
    let named = writes
        .into_iter()
        .enumerate()
        .map(|(number, write)| match write {
            Write::Create(mut slice) => {
                slice.metadata.name = Some(format!("web-{number}"));
                Arc::new(slice)
            }
            other @ (Write::Update(_) | Write::Delete(_)) => panic!("not a new slice: {other:?}"),
        });
    named.collect()
}

fn facts(service: &Arc<Service>, slices: &[Arc<EndpointSlice>]) -> Vec<Fact> {
    let parse = |object| serde_json::from_value(object);
    let l2 = json!({"apiVersion": "metallb.io/v1beta1", "kind": "L2Advertisement",
        "metadata": {"name": "lan", "namespace": "metallb-system"}, "spec": {"ipAddressPools": ["lan"]}});
    let mut facts = vec![
        Fact::Service(Change::Apply(Arc::clone(service))),
        Fact::Pool(Change::Apply(Arc::new(pool()))),
        Fact::L2Advertisement(Change::Apply(Arc::new(
            parse(l2).expect("an advertisement"),
        ))),
    ];
    facts.extend(
        slices
            .iter()
            .map(|slice| Fact::Slice(Change::Apply(Arc::clone(slice)))),
    );
    facts.extend(NODES.map(|name| Fact::Node(Change::Apply(Arc::new(node(name))))));
    let bgp = objects::MANIFESTS
        .iter()
        .find(|(file, _)| *file == "31-bgp.yaml")
        .expect("the manifest")
        .1;
    for object in objects::read(bgp).expect("the manifest can be read") {
        let kind = object
            .types
            .clone()
            .map(|types| types.kind)
            .unwrap_or_default();
        let value = serde_json::to_value(object).expect("JSON");
        facts.push(if kind == "BGPPeer" {
            Fact::BgpPeer(Change::Apply(Arc::new(
                serde_json::from_value(value).expect("a peer"),
            )))
        } else {
            Fact::BgpAdvertisement(Change::Apply(Arc::new(
                serde_json::from_value(value).expect("an advertisement"),
            )))
        });
    }
    facts
}

fn elements(operations: &[Operation]) -> String {
    let (mut added, mut replaced, mut deleted) = (0, 0, 0);
    for operation in operations {
        match operation {
            Operation::Add(..) => added += 1,
            Operation::Replace(..) => replaced += 1,
            Operation::Delete(..) => deleted += 1,
        }
    }
    format!("{added} elements added, {replaced} replaced, {deleted} deleted, in one transaction")
}
