//! The demo: Services applied as a user would, each shown to work by real packets.
//!
//! Owns the order of the steps and what is printed. Never takes the API server's word for what packets can tell.

mod change;
mod reach;
mod show;
mod table;

use std::time::Duration;

use futures::future::BoxFuture;

use crate::{
    cluster::Cluster,
    kubelet::READY,
    look, objects,
    outcome::{Outcome, Unmet, eventually, expect, time},
};
use show::Show;

/// Longest time for one step.
const STEP: Duration = Duration::from_secs(90);

/// What a step needs beside the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    Router,
}

struct Step {
    title: &'static str,
    needs: Needs,
    run: for<'a> fn(&'a mut Cluster) -> BoxFuture<'a, Outcome>,
}

/// A step whose function takes the cluster
macro_rules! step {
    ($title:literal, $needs:ident, $run:path) => {
        Step {
            title: $title,
            needs: Needs::$needs,
            run: |cluster| Box::pin($run(cluster)),
        }
    };
}

const STEPS: &[Step] = &[
    step!("four web and db pods on three nodes", Nothing, pods),
    step!(
        "an address pool for the LAN; service web asks for an address",
        Nothing,
        first_address
    ),
    step!("EXTERNAL-IP of web from the LAN", Nothing, reach::layer_two),
    step!(
        "a BGP peer; the router learns the address of web",
        Router,
        bgp
    ),
    step!(
        "EXTERNAL-IP of web from behind the router",
        Router,
        reach::behind_the_router
    ),
    step!(
        "who announces web, as the API says",
        Nothing,
        reach::as_the_api_says
    ),
    step!("the other services", Nothing, other_services),
    step!(
        "node port of web-node on every node",
        Nothing,
        reach::node_ports
    ),
    step!(
        "ClusterIP of web-internal from a pod and a node",
        Nothing,
        reach::cluster_ip
    ),
    step!("both families of web-dual", Nothing, reach::dual_stack),
    step!(
        "headless db and ExternalName elsewhere",
        Nothing,
        reach::without_address
    ),
    step!(
        "externalTrafficPolicy Local keeps the client's address",
        Nothing,
        change::local_policy
    ),
    step!("session affinity of web-sticky", Nothing, change::affinity),
    step!(
        "a pod turns unready and comes back",
        Nothing,
        change::unready
    ),
    step!(
        "deleting web-local withdraws and frees its address",
        Nothing,
        change::deletion
    ),
    step!(
        "the node that holds the address dies",
        Nothing,
        change::failover
    ),
    step!("the dead node comes back", Nothing, change::comeback),
];

/// What a run of the demo came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Steps that held.
    pub passed: usize,
    /// Steps that did not.
    pub failed: usize,
    /// Steps that this machine can't take.
    pub skipped: usize,
}

/// Takes every step, prints each, then the table.
pub async fn run(cluster: &mut Cluster) -> Score {
    let mut show = Show::new(STEPS.len());
    let mut skipped = 0;
    for step in STEPS {
        if step.needs == Needs::Router && cluster.router.is_none() {
            skipped += 1;
            show.skip(step.title, "no gobgpd on this machine");
            continue;
        }
        let began = show.begin(step.title);
        let taken = tokio::time::timeout(STEP, (step.run)(cluster)).await;
        let outcome = taken.unwrap_or_else(|_| {
            let expected = format!("the step to end within {} s", STEP.as_secs());
            Err(Unmet {
                expected,
                seen: "it has not".to_owned(),
            })
        });
        show.end(step.title, began, &outcome);
    }
    match table::of_services(cluster).await {
        Ok(table) => println!("\n{table}"),
        Err(unmet) => println!("\nno table of services: {unmet}"),
    }
    let failed = show.failed();
    Score {
        passed: STEPS.len() - failed - skipped,
        failed,
        skipped,
    }
}

async fn apply(cluster: &Cluster, files: &[&str]) -> Outcome<()> {
    for file in files {
        objects::apply_manifest(&cluster.client, file).await?;
    }
    Ok(())
}

async fn pods(cluster: &mut Cluster) -> Outcome {
    apply(cluster, &["10-namespaces.yaml", "20-pods.yaml"]).await?;
    let (pods, took) = eventually("four pods Running", || async {
        let pods = look::pods(&cluster.client)
            .list(&kube::api::ListParams::default())
            .await;
        let pods = pods.map_err(|error| error.to_string())?.items;
        let running = |pod: &k8s_openapi::api::core::v1::Pod| {
            let address = pod
                .status
                .as_ref()
                .and_then(|status| status.pod_ip.clone())?;
            Some(format!("{} {address}", pod.metadata.name.clone()?))
        };
        let running: Vec<String> = pods.iter().filter_map(running).collect();
        if running.len() == 4 {
            Ok(running)
        } else {
            Err(format!("{running:?}"))
        }
    })
    .await?;
    Ok(format!(
        "{} after {}; annotate one with {READY}=false to turn it unready",
        pods.join(", "),
        time(took)
    ))
}

async fn first_address(cluster: &mut Cluster) -> Outcome {
    apply(cluster, &["30-pool-l2.yaml", "42-web-load-balancer.yaml"]).await?;
    let (addresses, took) = look::await_external_ips(&cluster.client, "web").await?;
    let seen: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    expect(
        seen == ["192.0.2.10"],
        "the pool's first address, 192.0.2.10",
        format!("{seen:?}"),
    )?;
    Ok(format!("192.0.2.10 after {}", time(took)))
}

async fn bgp(cluster: &mut Cluster) -> Outcome {
    apply(cluster, &["31-bgp.yaml"]).await?;
    reach::sessions(cluster).await
}

async fn other_services(cluster: &mut Cluster) -> Outcome {
    const WITH_ADDRESS: [&str; 3] = ["web-local", "web-dual", "web-sticky"];
    apply(
        cluster,
        &[
            "40-web-cluster-ip.yaml",
            "41-web-node-port.yaml",
            "43-web-local.yaml",
            "44-web-dual-stack.yaml",
            "45-web-sticky.yaml",
            "46-db-headless.yaml",
            "47-external-name.yaml",
        ],
    )
    .await?;
    let mut lines = Vec::new();
    for name in WITH_ADDRESS {
        let (addresses, _) = look::await_external_ips(&cluster.client, name).await?;
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        lines.push(format!("{name} {}", addresses.join(" ")));
    }
    Ok(lines.join(", "))
}
