//! Steps that reach a Service: from the LAN, from behind the router, by node port, from a pod.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use api_model::Protocol;

use crate::{
    cluster::Cluster,
    error::Error,
    look,
    netns::NetNs,
    outcome::{Outcome, Unmet, eventually, expect, time},
    probe::{self, Failure, Tally},
    topology::{self, NODES},
};

/// The pods behind every `web` Service.
pub(super) const WEB: [&str; 2] = ["web-a", "web-b"];

/// Asks over TCP; all attempts must be answered, and by exactly these pods.
pub(super) fn served(
    from: &NetNs,
    target: SocketAddr,
    count: usize,
    pods: &[&str],
) -> Outcome<Tally> {
    let tally = probe::ask_many(from, Protocol::Tcp, target, count);
    let expected = format!(
        "{count} answers from {target} by {}, asked by {}",
        pods.join(" and "),
        from.name()
    );
    expect(
        tally.answered() == count && tally.pod_names() == pods,
        expected,
        &tally,
    )?;
    Ok(tally)
}

/// The nodes whose hardware address the client knows for this address: the one that answered its question.
pub(super) fn holder(cluster: &Cluster, address: IpAddr) -> Outcome<String> {
    let topology = &cluster.topology;
    let found = topology
        .client
        .neighbour(address)?
        .unwrap_or_else(|| "nobody".to_owned());
    for node in &topology.nodes {
        if node.ns.hardware_address()? == found {
            return Ok(node.name());
        }
    }
    Err(Unmet {
        expected: format!("a node that answers for {address}"),
        seen: found,
    })
}

/// The node that a connection came in by, from the address that it was masqueraded to.
fn ingress_node(source: IpAddr) -> Option<String> {
    let is = |number: u8, address: IpAddr| {
        [
            topology::node_v4(number).into(),
            topology::node_v6(number).into(),
        ]
        .contains(&address)
            || [
                topology::pod_v4(number, 1).into(),
                topology::pod_v6(number, 1).into(),
            ]
            .contains(&address)
    };
    (1..=NODES)
        .find(|number| is(*number, source))
        .map(|number| format!("n{number}"))
}

fn words<K: std::fmt::Display, V: std::fmt::Display>(counts: &BTreeMap<K, V>) -> String {
    let words: Vec<String> = counts
        .iter()
        .map(|(key, count)| format!("{key} ×{count}"))
        .collect();
    words.join(", ")
}

/// The LAN client reaches the external address, over TCP and UDP.
pub(super) async fn layer_two(cluster: &Cluster) -> Outcome {
    let vip = look::vip(&cluster.client, "web").await?;
    let client = &cluster.topology.client;
    let ((), first) = eventually(&format!("an answer from {vip}"), || async {
        probe_once(client, vip).map_err(|failure| failure.to_string())
    })
    .await?;
    let tcp = served(client, vip, 60, &WEB)?;
    let udp = probe::ask_many(client, Protocol::Udp, vip, 60);
    expect(udp.answered() == 60, "60 answers over UDP", &udp)?;
    let holder = holder(cluster, vip.ip())?;
    Ok(format!(
        "{} answers ARP for {}; first connection after {}\nTCP {tcp}\nUDP {udp}",
        holder,
        vip.ip(),
        time(first)
    ))
}

fn probe_once(from: &NetNs, target: SocketAddr) -> Result<(), Failure> {
    from.run(|| probe::ask(Protocol::Tcp, target)).map(drop)
}

/// Both families of the dual-stack Service, on the LAN: ARP and NDP.
pub(super) async fn dual_stack(cluster: &Cluster) -> Outcome {
    let (addresses, took) = look::await_external_ips(&cluster.client, "web-dual").await?;
    let families: BTreeSet<bool> = addresses.iter().map(IpAddr::is_ipv4).collect();
    expect(
        families.len() == 2,
        "an address of each family",
        format!("{addresses:?}"),
    )?;
    let mut lines = vec![format!("{addresses:?} after {}", time(took))];
    for address in addresses {
        let target = SocketAddr::new(address, 80);
        eventually(&format!("an answer from {target}"), || async {
            probe_once(&cluster.topology.client, target).map_err(|failure| failure.to_string())
        })
        .await?;
        let tally = served(&cluster.topology.client, target, 30, &WEB)?;
        lines.push(format!(
            "{address}, held by {}: {tally}",
            holder(cluster, address)?
        ));
        if cluster.router.is_some() {
            await_route(cluster, address, &every_node(address.is_ipv4())).await?;
            let tally = served(&cluster.topology.outside, target, 60, &WEB)?;
            lines.push(format!(
                "{address} from behind the router, by n1, n2 and n3: {tally}"
            ));
        }
    }
    Ok(lines.join("\n"))
}

/// Sessions with the router, and the routes it made of them.
pub(super) async fn sessions(cluster: &Cluster) -> Outcome {
    let Some(router) = &cluster.router else {
        return Err(Error::because("looking at the router", "there is none").into());
    };
    let ((), up) = eventually("three Established sessions", || async {
        let established = router.established();
        if established.len() == usize::from(NODES) {
            Ok(())
        } else {
            Err(format!("{established:?}"))
        }
    })
    .await?;
    let vip = look::vip(&cluster.client, "web").await?.ip();
    let learnt = await_route(cluster, vip, &every_node(true)).await?;
    Ok(format!(
        "three sessions Established after {}; {vip}/32 by n1, n2 and n3 after {} more",
        time(up),
        time(learnt)
    ))
}

/// Every node as a next hop of one family.
pub(super) fn every_node(v4: bool) -> BTreeSet<IpAddr> {
    let next_hop = |number| {
        if v4 {
            topology::node_v4(number).into()
        } else {
            topology::node_v6(number).into()
        }
    };
    (1..=NODES).map(next_hop).collect()
}

/// Waits until the router's route has exactly these next hops; none means no route.
pub(super) async fn await_route(
    cluster: &Cluster,
    address: IpAddr,
    next_hops: &BTreeSet<IpAddr>,
) -> Outcome<std::time::Duration> {
    let Some(router) = &cluster.router else {
        return Err(Error::because("looking at the router", "there is none").into());
    };
    let prefix = format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 });
    let ((), took) = eventually(&format!("a route to {prefix} by {next_hops:?}"), || async {
        let seen = router.routes().remove(&prefix).unwrap_or_default();
        if seen == *next_hops {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    })
    .await?;
    Ok(took)
}

/// The client behind the router: many connections, every next hop used.
pub(super) async fn behind_the_router(cluster: &Cluster) -> Outcome {
    let vip = look::vip(&cluster.client, "web").await?;
    let tally = served(&cluster.topology.outside, vip, 120, &WEB)?;
    let mut by_node: BTreeMap<String, usize> = BTreeMap::new();
    for (source, count) in &tally.sources {
        let node = ingress_node(*source).unwrap_or_else(|| format!("{source}, no node"));
        *by_node.entry(node).or_default() += count;
    }
    let used: Vec<&str> = by_node.keys().map(String::as_str).collect();
    expect(
        used == ["n1", "n2", "n3"],
        "every next hop used: n1, n2, n3",
        words(&by_node),
    )?;
    Ok(format!(
        "120 of 120 answered: {tally}\nnext hops used: {}",
        words(&by_node)
    ))
}

/// The node port on every node, also on n3, which has no `web` pod.
pub(super) async fn node_ports(cluster: &Cluster) -> Outcome {
    let service = look::service(&cluster.client, "web-node").await?;
    expect(
        look::node_port(&service) == Some(30080),
        "node port 30080",
        format!("{:?}", look::node_port(&service)),
    )?;
    let mut lines = Vec::new();
    for node in &cluster.topology.nodes {
        let target = SocketAddr::new(topology::node_v4(node.number).into(), 30080);
        eventually(&format!("an answer from {target}"), || async {
            probe_once(&cluster.topology.client, target).map_err(|failure| failure.to_string())
        })
        .await?;
        let tally = served(&cluster.topology.client, target, 30, &WEB)?;
        lines.push(format!("{target} ({}): {tally}", node.name()));
    }
    Ok(lines.join("\n"))
}

/// The ClusterIP from a node and from a pod, which may be given itself (hairpin).
pub(super) async fn cluster_ip(cluster: &Cluster) -> Outcome {
    let service = look::service(&cluster.client, "web-internal").await?;
    let address = look::cluster_ips(&service).first().copied();
    let address = address.ok_or_else(|| Error::because("reading web-internal", "no ClusterIP"))?;
    let target = SocketAddr::new(address, 80);
    let (pod, own) = look::pod_network(&cluster.client, "web-a").await?;
    eventually(&format!("an answer from {target}"), || async {
        probe_once(&pod, target).map_err(|failure| failure.to_string())
    })
    .await?;
    let from_pod = served(&pod, target, 60, &WEB)?;
    let itself = from_pod.pods.get("web-a").copied().unwrap_or(0);
    let hairpin: usize = from_pod
        .sources
        .iter()
        .filter(|(source, _)| **source != own)
        .map(|(_, count)| count)
        .sum();
    let expected = "web-a to be masqueraded when it reaches itself, and only then";
    expect(itself == hairpin, expected, words(&from_pod.sources))?;
    let from_node = served(&cluster.topology.nodes[2].ns, target, 30, &WEB)?;
    Ok(format!(
        "{target} from pod web-a: {from_pod}; {itself} of them hairpin\n{target} from node n3: {from_node}"
    ))
}

/// A headless Service and an ExternalName: endpoints or a name, never an address.
pub(super) async fn without_address(cluster: &Cluster) -> Outcome {
    let wanted: BTreeMap<String, bool> =
        [("db-0".to_owned(), true), ("db-1".to_owned(), true)].into();
    eventually("db-0 and db-1 in the slices of db", || async {
        let seen = look::endpoints(&cluster.client, "db")
            .await
            .map_err(|error| error.to_string())?;
        if seen == wanted {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    })
    .await?;
    for name in ["db", "elsewhere"] {
        let service = look::service(&cluster.client, name).await?;
        let addresses = (look::cluster_ips(&service), look::external_ips(&service));
        expect(
            addresses == (vec![], vec![]),
            format!("no address on {name}"),
            format!("{addresses:?}"),
        )?;
    }
    Ok("db: endpoints db-0 and db-1, no address; elsewhere: a name only".to_owned())
}

/// What the API says of who announces `web` is what packets showed.
pub(super) async fn as_the_api_says(cluster: &Cluster) -> Outcome {
    let vip = look::vip(&cluster.client, "web").await?;
    let holder = holder(cluster, vip.ip())?;
    let mut wanted = vec![format!("L2 {holder}")];
    if cluster.router.is_some() {
        wanted.extend((1..=NODES).map(|number| format!("BGP n{number} to router")));
    }
    let ((), took) = eventually(&wanted.join(", "), || async {
        let said = look::announcers(&cluster.client, "web")
            .await
            .map_err(|error| error.to_string())?;
        if said == wanted {
            Ok(())
        } else {
            Err(said.join(", "))
        }
    })
    .await?;
    Ok(format!(
        "ServiceL2Status and ServiceBGPStatus: {} (looked for {})",
        wanted.join(", "),
        time(took)
    ))
}
