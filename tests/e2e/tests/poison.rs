//! One poisoned object of each kind disturbs nothing else: what was served is served on, and what comes new gets its address.
//!
//! The API server doesn't check configuration beyond the CRDs here, as a cluster whose webhook is down. In each test the poison is put in, `web` is
//! reached, a new Service gets an address and is reached, and the poison's own reason is looked for where it has one.

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use api_model::Protocol;
use api_types::ConfigurationState;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use lab::{
    cluster::{Cluster, Options},
    look, objects,
    outcome::{Outcome, eventually, expect},
    probe, trial,
};
use tokio::runtime::Runtime;

fn main() -> ExitCode {
    trial::main(|runner, inside| {
        let run_time = Runtime::new().expect("a run time starts");
        let options = Options {
            binary: e2e::roadstead(),
            with_bgp: skips::have("gobgpd"),
            check_configuration: false,
        };
        let mut cluster = run_time
            .block_on(Cluster::start(inside, options))
            .expect("the lab's cluster comes up");
        run_time
            .block_on(healthy(&cluster))
            .unwrap_or_else(|unmet| {
                panic!("before any poison: {unmet}\n{}", cluster.logs());
            });
        for (name, poison) in POISONS {
            runner.run((
                name,
                Box::new(|| {
                    let outcome = run_time.block_on(disturbs_nothing(&cluster, poison));
                    let ended = cluster.ended();
                    assert!(ended.is_empty(), "{ended:#?}");
                    if let Err(unmet) = outcome {
                        panic!("{unmet}\n{}", cluster.logs());
                    }
                }),
            ));
        }
        // the cluster's tasks end inside the run time
        let _inside = run_time.enter();
        drop(cluster);
    })
}

const POISONS: &[(&str, &str)] = &[
    ("a_pool_that_holds_nothing_that_can_be_read", POOL),
    ("an_advertisement_that_selects_by_nonsense", ADVERTISEMENT),
    ("a_peer_that_is_nobody", PEER),
    ("a_service_that_asks_for_nonsense", SERVICE),
    ("a_slice_with_endpoints_that_cannot_be", SLICE),
];

const POOL: &str = r"
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: poison, namespace: metallb-system}
spec:
  addresses: ['192.0.2.99-192.0.2.10', 'not an address', '300.1.2.3/24', '192.0.2.10/99']
";

const ADVERTISEMENT: &str = r"
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata: {name: poison, namespace: metallb-system}
spec:
  ipAddressPools: [lan, nowhere]
  nodeSelectors:
    - matchExpressions: [{key: 'a b', operator: Perhaps, values: ['']}]
  interfaces: ['../../eth0']
";

const PEER: &str = r"
apiVersion: metallb.io/v1beta2
kind: BGPPeer
metadata: {name: poison, namespace: metallb-system}
spec:
  myASN: 64500
  peerASN: 64502
  peerAddress: 192.0.2.999
";

const SERVICE: &str = r"
apiVersion: v1
kind: Service
metadata:
  name: poison
  namespace: demo
  annotations:
    metallb.io/loadBalancerIPs: 'nonsense,192.0.2.300'
    metallb.io/address-pool: 'no such pool'
    metallb.io/allow-shared-ip: ''
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80, targetPort: no-such-port}]
";

/// Belongs to `web-internal` itself, beside the slice of the controller; its port has no number
const SLICE: &str = r"
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: poison
  namespace: demo
  labels: {kubernetes.io/service-name: web-internal}
addressType: IPv4
ports: [{name: other, port: 1, protocol: SCTP}, {name: http, protocol: TCP}]
endpoints:
  - {addresses: ['203.0.113.1'], conditions: {ready: false}, nodeName: no-such-node}
  - {addresses: ['203.0.113.2']}
";

async fn healthy(cluster: &Cluster) -> Outcome<()> {
    for file in [
        "10-namespaces.yaml",
        "20-pods.yaml",
        "30-pool-l2.yaml",
        "40-web-cluster-ip.yaml",
        "42-web-load-balancer.yaml",
    ] {
        objects::apply_manifest(&cluster.client, file).await?;
    }
    if cluster.router.is_some() {
        objects::apply_manifest(&cluster.client, "31-bgp.yaml").await?;
    }
    reached(cluster, "web").await
}

/// The LAN client gets every connection answered, by both pods
async fn reached(cluster: &Cluster, service: &str) -> Outcome<()> {
    let vip = look::vip(&cluster.client, service).await?;
    let internal = look::service(&cluster.client, "web-internal").await?;
    let internal = look::cluster_ips(&internal)
        .into_iter()
        .map(|address| SocketAddr::new(address, 80));
    let node = &cluster.topology.nodes[2].ns;
    let targets = [(&cluster.topology.client, vip)]
        .into_iter()
        .chain(internal.map(|target| (node, target)));
    for (from, target) in targets {
        eventually(
            &format!("{service} to answer 30 of 30 at {target}"),
            || async {
                let tally = probe::ask_many(from, Protocol::Tcp, target, 30);
                let good = tally.answered() == 30 && tally.pod_names() == ["web-a", "web-b"];
                if good { Ok(()) } else { Err(tally.to_string()) }
            },
        )
        .await?;
    }
    Ok(())
}

fn newcomer(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  type: LoadBalancer\n  \
         selector: {{app: web}}\n  ports: [{{port: 80, targetPort: 8080}}]\n"
    )
}

/// What is wrong with the poison is said: in a `ConfigurationState` for configuration, in its condition for a Service.
/// Kubernetes has no place for what is wrong with a slice.
async fn said_of(cluster: &Cluster, kind: &str) -> Outcome<()> {
    let client = &cluster.client;
    let wanted = format!("a word about {kind} poison");
    match kind {
        "EndpointSlice" => {}
        "Service" => {
            eventually(&wanted, || async {
                let service = look::service(client, "poison")
                    .await
                    .map_err(|error| error.to_string())?;
                let conditions = service
                    .status
                    .and_then(|status| status.conditions)
                    .unwrap_or_default();
                let is_said = conditions
                    .iter()
                    .any(|said| said.status == "False" && said.reason == "InvalidRequest");
                if is_said {
                    Ok(())
                } else {
                    Err(format!("{conditions:?}"))
                }
            })
            .await?;
        }
        _ => {
            eventually(&wanted, || async {
                let said = states(cluster).await?;
                if said.contains(&format!("{kind} poison")) {
                    Ok(())
                } else {
                    Err(said)
                }
            })
            .await?;
        }
    }
    Ok(())
}

/// Every `ConfigurationState`, as text
async fn states(cluster: &Cluster) -> Result<String, String> {
    let states: Api<ConfigurationState> = Api::all(cluster.client.clone());
    let states = states
        .list(&ListParams::default())
        .await
        .map_err(|error| error.to_string())?;
    let texts: Vec<String> = states
        .items
        .iter()
        .map(|state| format!("{:?}", state.status))
        .collect();
    Ok(texts.join("\n"))
}

async fn disturbs_nothing(cluster: &Cluster, poison: &str) -> Outcome<()> {
    let before = look::vip(&cluster.client, "web").await?;
    let poisons = objects::read(poison)?;
    for object in &poisons {
        objects::apply(&cluster.client, object).await?;
    }
    // what would break does so by now, or at the next change, which comes below
    tokio::time::sleep(Duration::from_millis(500)).await;
    let outcome = async {
        for object in &poisons {
            said_of(
                cluster,
                object
                    .types
                    .as_ref()
                    .map_or("", |types| types.kind.as_str()),
            )
            .await?;
        }
        reached(cluster, "web").await?;
        objects::apply_text(&cluster.client, &newcomer("newcomer")).await?;
        reached(cluster, "newcomer").await?;
        let after = look::vip(&cluster.client, "web").await?;
        expect(after == before, format!("web to keep {before}"), after)
    }
    .await;
    let services = look::services(&cluster.client);
    let gone = services.delete("newcomer", &DeleteParams::default()).await;
    for object in &poisons {
        let api = objects::api_of(&cluster.client, object).await?;
        let name = object.metadata.name.clone().unwrap_or_default();
        api.delete(&name, &DeleteParams::default()).await?;
    }
    outcome?;
    gone?;
    eventually("no word about poison any more", || async {
        let said = states(cluster).await?;
        if said.contains("poison") {
            Err(said)
        } else {
            Ok(())
        }
    })
    .await?;
    reached(cluster, "web").await
}
