//! `roadstead standalone` inside a namespace that plays a machine without Kubernetes: its own interfaces, one process.

use std::{path::Path, process::ExitCode};

use api_model::Protocol;
use kube::Client;
use lab::{
    look,
    netns::NetNs,
    objects,
    outcome::{Outcome, eventually, expect},
    pod::Pod,
    probe,
    processes::Processes,
    topology::{self, Topology},
    trial,
};

fn main() -> ExitCode {
    trial::main(|runner, inside| {
        let run_time = tokio::runtime::Runtime::new().expect("a run time starts");
        let _inside = run_time.enter();
        let topology = Topology::build().expect("the lab's network comes up");
        let machine = &topology.nodes[0];
        // what runs on the machine, such as a virtual machine behind it
        let guest = Pod::start(machine, "guest", 2, &[8080]).expect("a guest starts");
        let folder = inside.folder;
        let mut processes = Processes::new(e2e::roadstead(), folder.clone());
        let listen = format!("{}:6443", topology::node_v4(1));
        let text = folder.display().to_string();
        let arguments = [
            "standalone",
            "--listen",
            &listen,
            "--folder",
            &text,
            "--node-name",
            "machine",
        ];
        processes
            .start("standalone", &machine.ns, &arguments)
            .expect("roadstead starts");
        runner.run((
            "a_machine_without_kubernetes_serves_an_address_to_its_network",
            Box::new(|| {
                let kubeconfig = folder.join("kubeconfig");
                let outcome = run_time.block_on(serves(&topology.client, &kubeconfig));
                let ended = processes.ended();
                if let Err(unmet) = outcome {
                    panic!("{unmet}\nended: {ended:#?}\n{}", processes.troubles());
                }
                assert!(ended.is_empty(), "{ended:#?}");
            }),
        ));
        guest.stop();
    })
}

/// The user's own objects: a Service without a selector, and the slice that names the guest
const WEB: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo}
spec:
  type: LoadBalancer
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-guest
  namespace: demo
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
  - {addresses: ['10.244.1.2'], conditions: {ready: true}, nodeName: machine}
";

async fn serves(from: &NetNs, kubeconfig: &Path) -> Outcome<()> {
    let (client, _) = eventually("the API server answers", || connect(kubeconfig)).await?;
    objects::apply_text(&client, WEB).await?;
    objects::apply_manifest(&client, "30-pool-l2.yaml").await?;
    let vip = look::vip(&client, "web").await?;
    let ask = |count| probe::ask_many(from, Protocol::Tcp, vip, count);
    eventually(&format!("an answer from {vip}"), || async {
        let tally = ask(1);
        if tally.answered() == 1 {
            Ok(())
        } else {
            Err(tally.to_string())
        }
    })
    .await?;
    let tally = ask(30);
    expect(
        tally.answered() == 30 && tally.pod_names() == ["guest"],
        "30 answers by guest",
        &tally,
    )
}

async fn connect(kubeconfig: &Path) -> Result<Client, String> {
    let client = api_client::connect(Some(kubeconfig))
        .await
        .map_err(|error| error.to_string())?;
    client
        .apiserver_version()
        .await
        .map_err(|error| error.to_string())?;
    Ok(client)
}
