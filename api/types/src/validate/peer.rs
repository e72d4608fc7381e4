//! Rules of `BGPPeer` and `BFDProfile`.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use api_model::IpFamily;

use super::{Cause, FieldError, Others, finding, name, same, selectors};
use crate::{BFDProfile, BGPPeer, BGPPeerSpec, DynamicAsn, GoDuration, selector};

/// Longest time that fits into the 16 bits of a BGP timer.
const LONGEST: Duration = Duration::from_secs(65535);

/// What is wrong with a peer beside the others.
pub fn bgp_peer(peer: &BGPPeer, others: &Others) -> Vec<FieldError> {
    let spec = &peer.spec;
    let mut errors = as_numbers(spec);
    errors.extend(ends(spec));
    errors.extend(timers(spec));
    errors.extend(secret(peer));
    errors.extend(selectors("spec.nodeSelectors", &spec.node_selectors));
    let twin = others
        .peers
        .iter()
        .filter(|other| !same(&other.metadata, &peer.metadata))
        .find(|other| meets(&other.spec, spec));
    if let Some(other) = twin {
        let cause = Cause::PeerExists {
            other: name(&other.metadata).to_owned(),
        };
        let (path, value) = if spec.peer_address.is_empty() {
            ("spec.interface", &spec.interface)
        } else {
            ("spec.peerAddress", &spec.peer_address)
        };
        errors.push(finding(path, value, cause));
    }
    errors
}

fn as_numbers(spec: &BGPPeerSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let bounds = Cause::OutOfRange {
        min: 1,
        max: u32::MAX.into(),
    };
    if spec.my_asn == 0 {
        errors.push(finding("spec.myASN", "0", bounds.clone()));
    }
    if spec.local_asn == Some(0) {
        errors.push(finding("spec.localASN", "0", bounds));
    }
    if (spec.peer_asn == 0) == spec.dynamic_asn.is_none() {
        let cause = Cause::ExactlyOne {
            one: "peerASN",
            other: "dynamicASN",
        };
        errors.push(finding("spec.peerASN", spec.peer_asn.to_string(), cause));
    }
    let ours = spec.local_asn.unwrap_or(spec.my_asn);
    let inside = spec.peer_asn == ours || spec.dynamic_asn == Some(DynamicAsn::Internal);
    if inside && spec.ebgp_multi_hop == Some(true) {
        errors.push(finding("spec.ebgpMultiHop", "true", Cause::MultiHopInside));
    }
    errors
}

fn ends(spec: &BGPPeerSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if spec.peer_address.is_empty() == spec.interface.is_empty() {
        let cause = Cause::ExactlyOne {
            one: "peerAddress",
            other: "interface",
        };
        errors.push(finding("spec.peerAddress", &spec.peer_address, cause));
    }
    let peer = dialable(&spec.peer_address);
    if peer.is_none() && !spec.peer_address.is_empty() {
        let cause = Cause::PeerAddress(spec.peer_address.clone());
        errors.push(finding("spec.peerAddress", &spec.peer_address, cause));
    }
    let source = &spec.source_address;
    match (dialable(source), peer) {
        (None, _) if !source.is_empty() => {
            let cause = Cause::SourceAddress(source.clone());
            errors.push(finding("spec.sourceAddress", source, cause));
        }
        (Some(from), Some(to)) if IpFamily::of(from) != IpFamily::of(to) => {
            errors.push(finding(
                "spec.sourceAddress",
                source,
                Cause::SourceFamily(to),
            ));
        }
        _ => {}
    }
    if spec.peer_port() == 0 || spec.peer_port() > 16384 {
        let cause = Cause::OutOfRange { min: 1, max: 16384 };
        errors.push(finding(
            "spec.peerPort",
            spec.peer_port().to_string(),
            cause,
        ));
    }
    let good_id = |id: &str| id.parse::<Ipv4Addr>().is_ok_and(|id| !id.is_unspecified());
    if !spec.router_id.is_empty() && !good_id(&spec.router_id) {
        let cause = Cause::RouterId(spec.router_id.clone());
        errors.push(finding("spec.routerID", &spec.router_id, cause));
    }
    errors
}

/// An address that a session can run to or from.
fn dialable(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>()
        .ok()
        .filter(|address| !address.is_unspecified() && !address.is_multicast())
        .filter(|address| *address != IpAddr::V4(Ipv4Addr::BROADCAST))
}

fn timers(spec: &BGPPeerSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut read = |path: &str, time: &Option<GoDuration>| {
        let time = time.as_ref()?;
        match time.get() {
            Ok(read) => Some((time.as_str().to_owned(), read)),
            Err(error) => {
                errors.push(finding(path, time.as_str(), error));
                None
            }
        }
    };
    let hold = read("spec.holdTime", &spec.hold_time);
    let keepalive = read("spec.keepaliveTime", &spec.keepalive_time);
    let connect = read("spec.connectTime", &spec.connect_time);
    if let Some((text, time)) = &hold
        && !time.is_zero()
        && !(Duration::from_secs(3)..=LONGEST).contains(time)
    {
        errors.push(finding("spec.holdTime", text, Cause::HoldTime));
    }
    if let (Some((hold_text, hold)), Some((text, keepalive))) = (&hold, &keepalive)
        && keepalive > hold
    {
        let cause = Cause::KeepaliveTime(hold_text.clone());
        errors.push(finding("spec.keepaliveTime", text, cause));
    }
    if let Some((text, time)) = &connect
        && (time.subsec_nanos() != 0 || !(Duration::from_secs(1)..=LONGEST).contains(time))
    {
        errors.push(finding("spec.connectTime", text, Cause::ConnectTime));
    }
    errors
}

fn secret(peer: &BGPPeer) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(secret) = peer.spec.secret_name() else {
        return errors;
    };
    if !peer.spec.password.is_empty() {
        let cause = Cause::ExactlyOne {
            one: "password",
            other: "passwordSecret",
        };
        errors.push(finding("spec.passwordSecret.name", secret, cause));
    }
    let own = peer.metadata.namespace.as_deref().unwrap_or_default();
    let named = peer
        .spec
        .password_secret
        .as_ref()
        .and_then(|secret| secret.namespace.as_deref())
        .filter(|named| !named.is_empty() && !own.is_empty() && *named != own);
    if let Some(named) = named {
        let cause = Cause::SecretNamespace(own.to_owned());
        errors.push(finding("spec.passwordSecret.namespace", named, cause));
    }
    errors
}

/// Whether two peers would be one session on a common node.
fn meets(a: &BGPPeerSpec, b: &BGPPeerSpec) -> bool {
    let end = |spec: &BGPPeerSpec| {
        let address = spec.peer_address.parse::<IpAddr>().ok();
        (
            address,
            spec.interface.clone(),
            spec.peer_port(),
            spec.vrf.clone(),
        )
    };
    let there = a.peer_address.parse::<IpAddr>().is_ok() || !a.interface.is_empty();
    there && end(a) == end(b) && !selector::disjoint(&a.node_selectors, &b.node_selectors)
}

/// What is wrong with a BFD profile.
pub fn bfd_profile(profile: &BFDProfile, _others: &Others) -> Vec<FieldError> {
    let spec = &profile.spec;
    [
        ("spec.receiveInterval", spec.receive_interval, 10, 60000),
        ("spec.transmitInterval", spec.transmit_interval, 10, 60000),
        ("spec.detectMultiplier", spec.detect_multiplier, 2, 255),
        ("spec.echoInterval", spec.echo_interval, 10, 60000),
        ("spec.minimumTtl", spec.minimum_ttl, 1, 254),
    ]
    .into_iter()
    .filter_map(|(path, value, min, max)| Some((path, value?, min, max)))
    .filter(|&(_, value, min, max)| !(min..=max).contains(&value))
    .map(|(path, value, min, max)| {
        let cause = Cause::OutOfRange {
            min: min.into(),
            max: max.into(),
        };
        finding(path, value.to_string(), cause)
    })
    .collect()
}

/// Why a BFD profile cannot be deleted: peers use it.
pub fn bfd_profile_delete(profile: &str, others: &Others) -> Vec<FieldError> {
    others
        .peers
        .iter()
        .filter(|peer| !profile.is_empty() && peer.spec.bfd_profile == profile)
        .map(|peer| {
            let cause = Cause::ProfileInUse {
                profile: profile.to_owned(),
                peer: name(&peer.metadata).to_owned(),
            };
            finding("metadata.name", profile, cause)
        })
        .collect()
}
