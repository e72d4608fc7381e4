//! From `BGPPeer`, `BGPAdvertisement` and `Community` objects to what the BGP core takes.
//!
//! Owns the resolution of selectors, addresses and aliases. The rules of aggregation, communities and preference are in
//! `speaker_bgp::wanted`. A peer that can't be used is left out with a [`Finding`]; the others go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use api_model::{AddressRange, Asn, NodeName, Port};
use api_types::{BGPAdvertisement, BGPPeer, BGPPeerSpec, GoDuration, names::label, selector};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use speaker_bgp::{
    Advertisement, AdvertisementView, AnnouncedAddress, NodeAddresses, Password, PeerConfig,
    PeerName, PoolSpan, RemoteAsn, Timers,
};
use speaker_l2::candidate::Selection;

use super::{
    Announceable, Facts, Finding,
    l2::{condition_is_true, select_nodes, select_pools, select_services},
};

/// What the BGP core is to be told, and what was wrong.
#[derive(Debug, Default)]
pub struct BgpIngest {
    /// Peers, advertisements and addresses of this node.
    pub view: AdvertisementView,
    /// Objects that were left out.
    pub findings: Vec<Finding>,
}

/// The view of this node. `programmed` says which addresses have their rules in this node's kernel: the others are not
/// announced yet.
pub fn bgp_view(
    facts: &Facts,
    vips: &BTreeMap<IpAddr, Announceable>,
    me: &NodeName,
    programmed: &dyn Fn(IpAddr) -> bool,
    ignore_exclude_label: bool,
) -> BgpIngest {
    let mut ingest = BgpIngest::default();
    let Some(node) = facts.nodes.get(me) else {
        return ingest;
    };
    for (name, peer) in &facts.config.bgp_peers {
        if !selector::matches_any_or_none_given(&peer.spec.node_selectors, node.labels()) {
            continue;
        }
        match peer_config(facts, name, peer, me, node) {
            Ok(config) => ingest.view.peers.push(config),
            Err(message) => ingest
                .findings
                .push(Finding::fatal("BGPPeer", name, message)),
        }
    }
    ingest.view.advertisements = facts
        .config
        .bgp_advertisements
        .values()
        .filter(|advertisement| applies_here(facts, advertisement, me))
        .map(|advertisement| resolve(facts, advertisement))
        .collect();
    let excluded = !ignore_exclude_label && node.labels().contains_key(label::NODE_EXCLUDE);
    if !excluded && !condition_is_true(node, "NetworkUnavailable") {
        ingest.view.announced = announced(vips, me, programmed);
    }
    ingest.view.pools = facts
        .config
        .pools
        .iter()
        .map(|(name, pool)| {
            let ranges = pool.spec.addresses.iter();
            let ranges = ranges.filter_map(|text| text.parse::<AddressRange>().ok());
            let spans = ranges.map(|range| PoolSpan {
                first: range.start(),
                last: range.end(),
            });
            (name.clone(), spans.collect())
        })
        .collect();
    ingest.view.aliases = facts
        .config
        .communities
        .values()
        .flat_map(|object| &object.spec.communities)
        .map(|alias| (alias.name.clone(), alias.value.clone()))
        .collect();
    ingest
}

/// `Cluster`: some endpoint anywhere is enough; `Local`: one on this node.
fn announced(
    vips: &BTreeMap<IpAddr, Announceable>,
    me: &NodeName,
    programmed: &dyn Fn(IpAddr) -> bool,
) -> Vec<AnnouncedAddress> {
    let mut announced = Vec::new();
    for (address, vip) in vips.iter().filter(|(address, _)| programmed(**address)) {
        for (service, user) in &vip.users {
            if user.has_endpoints && (!user.local_only || user.endpoints_on.contains(me)) {
                announced.push(AnnouncedAddress {
                    service: service.clone(),
                    address: *address,
                    pool: vip.pool.clone(),
                });
            }
        }
    }
    announced
}

fn applies_here(facts: &Facts, advertisement: &BGPAdvertisement, me: &NodeName) -> bool {
    select_nodes(facts, &advertisement.spec.node_selectors).has(me)
}

fn resolve(facts: &Facts, advertisement: &BGPAdvertisement) -> Advertisement {
    let spec = &advertisement.spec;
    let peers: BTreeSet<PeerName> = spec.peers.iter().map(|name| name.as_str().into()).collect();
    Advertisement {
        name: advertisement.name_any().as_str().into(),
        pools: only(select_pools(
            facts,
            &spec.ip_address_pools,
            &spec.ip_address_pool_selectors,
        )),
        peers: (!peers.is_empty()).then_some(peers),
        services: only(select_services(facts, &spec.service_selectors)),
        aggregation_length: length(spec.aggregation_length()),
        aggregation_length_v6: length(spec.aggregation_length_v6()),
        local_pref: (spec.local_pref != 0).then_some(spec.local_pref),
        communities: spec.communities.clone(),
    }
}

/// A length that does not fit a byte becomes 0, which the core refuses by name.
fn length(value: i32) -> u8 {
    u8::try_from(value).unwrap_or(0)
}

fn only<T>(selection: Selection<T>) -> Option<BTreeSet<T>> {
    match selection {
        Selection::All => None,
        Selection::These(items) => Some(items),
    }
}

fn peer_config(
    facts: &Facts,
    name: &str,
    peer: &BGPPeer,
    me: &NodeName,
    node: &Node,
) -> Result<PeerConfig, String> {
    let spec = &peer.spec;
    if !spec.interface.is_empty() {
        return Err("interface: sessions over an interface without address are not built yet; write peerAddress".into());
    }
    if !spec.vrf.is_empty() {
        return Err("vrf: sessions inside a VRF are not built yet".into());
    }
    let address: IpAddr = parse("peerAddress", &spec.peer_address)?;
    let source_address = non_empty(&spec.source_address)
        .map(|text| parse("sourceAddress", text))
        .transpose()?;
    let wanted_id: Option<Ipv4Addr> = non_empty(&spec.router_id)
        .map(|text| parse("routerID", text))
        .transpose()?;
    let addresses = internal_addresses(node);
    let config = PeerConfig {
        name: name.into(),
        local_asn: Asn(spec.local_asn.unwrap_or(spec.my_asn)),
        remote_asn: remote_asn(spec),
        address,
        port: Port::new(spec.peer_port()).ok_or("peerPort: must be 1-16384")?,
        source_address,
        router_id: speaker_bgp::router_id(wanted_id, &addresses, me),
        timers: Timers::new(
            duration("holdTime", spec.hold_time.as_ref())?,
            duration("keepaliveTime", spec.keepalive_time.as_ref())?,
        )
        .map_err(|error| error.to_string())?,
        connect_time: duration("connectTime", spec.connect_time.as_ref())?,
        ebgp_multi_hop: spec.ebgp_multi_hop.unwrap_or(false),
        families: PeerConfig::families(address, spec.dual_stack_address_family),
        node_addresses: node_addresses(&addresses),
        password: password(facts, spec)?,
    };
    config.check().map_err(|error| error.to_string())?;
    Ok(config)
}

/// `password`, or the key `password` of the Secret; a Secret that is not there leaves the peer out, since a session
/// without the password would not be what was asked for.
fn password(facts: &Facts, spec: &BGPPeerSpec) -> Result<Option<Password>, String> {
    let Some(name) = spec.secret_name() else {
        return Ok(non_empty(&spec.password).map(Password::from));
    };
    let fault = |what: &str| Err(format!("passwordSecret.name: Secret {name:?} {what}"));
    let Some(secret) = facts.config.secrets.get(name) else {
        return fault("is not in the configuration namespace");
    };
    if secret.type_.as_deref() != Some("kubernetes.io/basic-auth") {
        return fault("must be of type kubernetes.io/basic-auth");
    }
    let bytes = secret.data.as_ref().and_then(|data| data.get("password"));
    match bytes.and_then(|bytes| std::str::from_utf8(&bytes.0).ok()) {
        Some(text) => Ok(Some(text.into())),
        None => fault("has no text under the key password"),
    }
}

fn remote_asn(spec: &BGPPeerSpec) -> RemoteAsn {
    match spec.dynamic_asn {
        Some(api_types::DynamicAsn::Internal) => RemoteAsn::Internal,
        Some(api_types::DynamicAsn::External) => RemoteAsn::External,
        None => RemoteAsn::Exactly(Asn(spec.peer_asn)),
    }
}

fn duration(field: &str, value: Option<&GoDuration>) -> Result<Option<Duration>, String> {
    let read = |value: &GoDuration| value.get().map_err(|error| format!("{field}: {error}"));
    value.map(read).transpose()
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn parse<T: std::str::FromStr>(field: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{field}: {text:?} is not an IP address"))
}

/// The node's `InternalIP`s, in its own order.
pub fn internal_addresses(node: &Node) -> Vec<IpAddr> {
    node.status
        .iter()
        .flat_map(|status| status.addresses.iter().flatten())
        .filter(|address| address.type_ == "InternalIP")
        .filter_map(|address| address.address.parse().ok())
        .collect()
}

fn node_addresses(addresses: &[IpAddr]) -> NodeAddresses {
    let mut found = NodeAddresses::default();
    for address in addresses {
        match address {
            IpAddr::V4(v4) => found.v4 = found.v4.or(Some(*v4)),
            IpAddr::V6(v6) => found.v6 = found.v6.or(Some(*v6)),
        }
    }
    found
}
