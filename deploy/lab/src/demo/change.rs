//! Steps in which something changes: a local policy, readiness, affinity, deletion, a dead holder.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use api_model::Protocol;
use api_types::names::annotation;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::reach::{WEB, await_route, every_node, holder, served};
use crate::{
    cluster::Cluster,
    kubelet, look, objects,
    outcome::{Outcome, PATIENCE, eventually, expect, time},
    probe::{self, Stream},
    topology,
};

fn silent(cluster: &Cluster, target: SocketAddr) -> Outcome<()> {
    let client = &cluster.topology.client;
    // what the client remembers from before would only measure its memory
    client.ip("neigh flush dev eth0")?;
    let tally = probe::ask_many(client, Protocol::Tcp, target, 1);
    expect(
        tally.answered() == 0,
        format!("no answer from {target}"),
        tally,
    )
}

/// `externalTrafficPolicy: Local`: the pod sees the client; a node without a pod neither attracts nor serves.
pub(super) async fn local_policy(cluster: &Cluster) -> Outcome {
    let vip = look::vip(&cluster.client, "web-local").await?;
    let client = &cluster.topology.client;
    eventually(&format!("an answer from {vip}"), || async {
        let tally = probe::ask_many(client, Protocol::Tcp, vip, 1);
        if tally.answered() == 1 {
            Ok(())
        } else {
            Err(tally.to_string())
        }
    })
    .await?;
    let tally = probe::ask_many(client, Protocol::Tcp, vip, 30);
    let own: IpAddr = topology::CLIENT_V4.into();
    let sources: Vec<&IpAddr> = tally.sources.keys().collect();
    expect(
        tally.answered() == 30 && sources == [&own],
        format!("30 pods that see {own}"),
        format!("{tally}, from {sources:?}"),
    )?;
    let holder = holder(cluster, vip.ip())?;
    expect(holder != "n3", "a holder with a pod", &holder)?;
    let service = look::service(&cluster.client, "web-local").await?;
    let port = look::node_port(&service).unwrap_or_default();
    silent(cluster, SocketAddr::new(topology::node_v4(3).into(), port))?;
    let mut line = format!(
        "{vip}, held by {holder}: {tally}, who see {own}; n3, without a pod, serves nothing on {port}"
    );
    if cluster.router.is_some() {
        line = format!("{line}\n{}", local_by_router(cluster, vip).await?);
    }
    Ok(line)
}

async fn local_by_router(cluster: &Cluster, vip: SocketAddr) -> Outcome {
    let with_pod: BTreeSet<IpAddr> = [1, 2].map(|number| topology::node_v4(number).into()).into();
    await_route(cluster, vip.ip(), &with_pod).await?;
    let tally = served(&cluster.topology.outside, vip, 100, &WEB)?;
    let own: IpAddr = topology::OUTSIDE_V4.into();
    let sources: Vec<&IpAddr> = tally.sources.keys().collect();
    expect(
        sources == [&own],
        format!("pods that see {own}"),
        format!("{sources:?}"),
    )?;
    Ok(format!(
        "behind the router: next hops n1 and n2 only, both used: {tally}, who see {own}"
    ))
}

/// All of one client's connections go to one pod.
pub(super) async fn affinity(cluster: &Cluster) -> Outcome {
    let vip = look::vip(&cluster.client, "web-sticky").await?;
    let client = &cluster.topology.client;
    eventually(&format!("an answer from {vip}"), || async {
        let tally = probe::ask_many(client, Protocol::Tcp, vip, 1);
        if tally.answered() == 1 {
            Ok(())
        } else {
            Err(tally.to_string())
        }
    })
    .await?;
    let tally = probe::ask_many(client, Protocol::Tcp, vip, 40);
    expect(
        tally.answered() == 40 && tally.pods.len() == 1,
        "40 answers by one pod",
        &tally,
    )?;
    Ok(format!("{vip}, one client: {tally}"))
}

async fn set_ready(cluster: &Cluster, pod: &str, ready: bool) -> Outcome<()> {
    let value = (!ready).then_some("false");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {kubelet::READY: value}}}));
    look::pods(&cluster.client)
        .patch(pod, &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// A pod that turned unready gets no new connection, and gets some again when it is back.
pub(super) async fn unready(cluster: &Cluster) -> Outcome {
    /// With two pods, this many in a row without the other are chance once in 10^18
    const IN_A_ROW: usize = 60;
    let vip = look::vip(&cluster.client, "web").await?;
    let client = &cluster.topology.client;
    set_ready(cluster, "web-a", false).await?;
    let began = Instant::now();
    let (mut last, mut without) = (Duration::ZERO, 0);
    while without < IN_A_ROW {
        let tally = probe::ask_many(client, Protocol::Tcp, vip, 1);
        expect(tally.failed() == 0, "every connection answered", &tally)?;
        if tally.pods.contains_key("web-a") {
            (last, without) = (began.elapsed(), 0);
        } else {
            without += 1;
        }
        expect(
            began.elapsed() < PATIENCE,
            "no more connections to web-a",
            format!("one after {}", time(last)),
        )?;
        tokio::task::yield_now().await;
    }
    set_ready(cluster, "web-a", true).await?;
    let ((), back) = eventually("web-a to answer again", || async {
        let tally = probe::ask_many(client, Protocol::Tcp, vip, 8);
        if tally.pods.contains_key("web-a") {
            Ok(())
        } else {
            Err(tally.to_string())
        }
    })
    .await?;
    Ok(format!(
        "last connection to web-a {} after it turned unready, then {IN_A_ROW} by web-b; back after {}",
        time(last),
        time(back)
    ))
}

/// Deleting a Service withdraws its address and frees it for the next one.
pub(super) async fn deletion(cluster: &Cluster) -> Outcome {
    let vip = look::vip(&cluster.client, "web-local").await?;
    let text = vip.ip().to_string();
    look::services(&cluster.client)
        .delete("web-local", &DeleteParams::default())
        .await?;
    let mut line = String::new();
    if cluster.router.is_some() {
        let gone = await_route(cluster, vip.ip(), &BTreeSet::new()).await?;
        line = format!("route withdrawn after {}, ", time(gone));
    }
    let ((), quiet) = eventually("no answer on the LAN", || async {
        silent(cluster, vip).map_err(|unmet| unmet.seen)
    })
    .await?;
    let ((), freed) = eventually(&format!("{text} to be free"), || async {
        let records = look::records(&cluster.client)
            .await
            .map_err(|error| error.to_string())?;
        records
            .get(&text)
            .map_or(Ok(()), |holders| Err(format!("held by {holders:?}")))
    })
    .await?;
    create_again(cluster, &text).await?;
    let again = look::vip(&cluster.client, "web-local").await?;
    expect(again == vip, format!("{text}, asked for anew"), again)?;
    Ok(format!(
        "{line}silent on the LAN (looked for {}), free {} later; created again and asking for it, it has {text}",
        time(quiet),
        time(freed)
    ))
}

/// The Service from its manifest, with a wish for one address
async fn create_again(cluster: &Cluster, address: &str) -> Outcome<()> {
    let manifest = objects::MANIFESTS
        .iter()
        .find(|(file, _)| *file == "43-web-local.yaml");
    for mut object in objects::read(manifest.map_or("", |(_, text)| text))? {
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(annotation::LOAD_BALANCER_IPS.to_owned(), address.to_owned());
        objects::apply(&cluster.client, &object).await?;
    }
    Ok(())
}

/// The node that holds the address dies: cable out, speaker killed. Another one answers.
pub(super) async fn failover(cluster: &mut Cluster) -> Outcome {
    let vip = look::vip(&cluster.client, "web").await?;
    served(&cluster.topology.client, vip, 20, &WEB)?;
    let old = holder(cluster, vip.ip())?;
    // its pods would die with it, and nobody notices that in a lab without a node controller
    let spared: Vec<&str> = WEB.into_iter().filter(|pod| node_of(pod) != old).collect();
    let doomed: Vec<&str> = WEB.into_iter().filter(|pod| node_of(pod) == old).collect();
    for pod in &doomed {
        set_ready(cluster, pod, false).await?;
    }
    await_only(cluster, vip, &spared).await?;
    let stream = Stream::start(&cluster.topology.client, vip);
    tokio::time::sleep(Duration::from_millis(500)).await;
    cluster.power_off(&old)?;
    let outcome = eventually("another node to answer", || async {
        match holder(cluster, vip.ip()) {
            Ok(new) if new != old => Ok(new),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    let served_by_new = await_only(cluster, vip, &spared).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let heard = stream.stop()?;
    let (new, _) = outcome?;
    served_by_new?;
    let gap = heard.longest_gap;
    expect(
        gap < Duration::from_secs(5),
        "an answer again within 5 s",
        time(gap),
    )?;
    let line = format!(
        "{old} died, {new} answers for {}; without an answer for {} ({} answers to {} datagrams, one a millisecond)",
        vip.ip(),
        time(gap),
        heard.answers,
        heard.sent
    );
    if cluster.router.is_none() {
        return Ok(line);
    }
    let dead: Option<IpAddr> = cluster
        .topology
        .node(&old)
        .map(|node| topology::node_v4(node.number).into());
    let others = every_node(true)
        .into_iter()
        .filter(|hop| Some(*hop) != dead)
        .collect();
    let gone = await_route(cluster, vip.ip(), &others).await?;
    Ok(format!(
        "{line}\nbehind the router: {old} is no next hop any more {} later (hold time 3 s)",
        time(gone)
    ))
}

fn node_of(pod: &str) -> &'static str {
    if pod == "web-a" { "n1" } else { "n2" }
}

async fn await_only(cluster: &Cluster, vip: SocketAddr, pods: &[&str]) -> Outcome<()> {
    eventually(&format!("only {pods:?} to answer"), || async {
        let tally = probe::ask_many(&cluster.topology.client, Protocol::Tcp, vip, 20);
        if tally.failed() == 0 && tally.pod_names() == pods {
            Ok(())
        } else {
            Err(tally.to_string())
        }
    })
    .await
    .map(drop)
}

/// The dead node is back: it announces again where it should, and nobody notices.
pub(super) async fn comeback(cluster: &mut Cluster) -> Outcome {
    let vip = look::vip(&cluster.client, "web").await?;
    let stream = Stream::start(&cluster.topology.client, vip);
    let back = cluster.power_on()?;
    let outcome = everything_as_before(cluster, vip).await;
    let heard = stream.stop()?;
    outcome?;
    let gap = heard.longest_gap;
    expect(
        gap < Duration::from_secs(1),
        "never more than a second without an answer",
        time(gap),
    )?;
    let tally = served(&cluster.topology.client, vip, 40, &WEB)?;
    let holder = holder(cluster, vip.ip())?;
    Ok(format!(
        "{back} is back: {tally}; {holder} holds {}; longest time without an answer {}",
        vip.ip(),
        time(gap)
    ))
}

/// Both pods answer, and every node is a next hop; then two seconds more, in which the holder may change
async fn everything_as_before(cluster: &Cluster, vip: SocketAddr) -> Outcome<()> {
    for pod in WEB {
        set_ready(cluster, pod, true).await?;
    }
    await_only(cluster, vip, &WEB).await?;
    if cluster.router.is_some() {
        await_route(cluster, vip.ip(), &every_node(true)).await?;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}
