//! What a Service gets that its writer left out: defaults, values carried over from before, and what goes with a type.
//!
//! Pure. Wiping happens only where the writer did not touch the field; what was touched is left for validation to refuse.

use std::net::IpAddr;

use api_model::IpFamily;
use k8s_openapi::api::core::v1::{ClientIPConfig, ServiceSpec, SessionAffinityConfig};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::{
    NONE, REQUIRE_DUAL_STACK, SINGLE_STACK, Type, allocates_node_ports, cluster_ips,
    has_health_port, is_headless, ports, set_spec, spec_of,
};
use crate::crud::Part;
use crate::status_error::Cause;

const AFFINITY_SECONDS: i32 = 10_800;

/// A new Service before validation.
pub(crate) fn on_create(object: &mut Value, warnings: &mut Vec<String>) {
    object["status"] = json!({"loadBalancer": {}});
    let mut spec = spec_of(object);
    plain(&mut spec);
    let first = spec.cluster_ip.clone().filter(|ip| !ip.is_empty());
    if cluster_ips(&spec).is_empty() {
        spec.cluster_ips = first.map(|ip| vec![ip]);
    }
    warn(&spec, warnings);
    set_spec(object, &spec);
}

/// A changed Service before validation.
pub(crate) fn on_update(old: &Value, new: &mut Value, part: Part, warnings: &mut Vec<String>) {
    if part != Part::Main {
        ingress_mode(new);
        return;
    }
    let (old, mut spec) = (spec_of(old), spec_of(new));
    plain(&mut spec);
    carry_over(&old, &mut spec);
    match_singular(&old, &mut spec);
    trim_second_family(&old, &mut spec);
    wipe(&old, &mut spec);
    if Type::of(&spec) != Type::LoadBalancer {
        new["status"]["loadBalancer"] = json!({});
    }
    warn(&spec, warnings);
    set_spec(new, &spec);
}

fn plain(spec: &mut ServiceSpec) {
    let empty = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
    if empty(&spec.type_) {
        spec.type_ = Some("ClusterIP".into());
    }
    for text in [
        &mut spec.cluster_ip,
        &mut spec.external_name,
        &mut spec.load_balancer_ip,
        &mut spec.external_traffic_policy,
    ] {
        text.take_if(|text| text.is_empty());
    }
    affinity(spec);
    for port in spec.ports.iter_mut().flatten() {
        if empty(&port.protocol) {
            port.protocol = Some("TCP".into());
        }
        let unset = match &port.target_port {
            None | Some(IntOrString::Int(0)) => true,
            Some(IntOrString::String(name)) => name.is_empty(),
            Some(IntOrString::Int(_)) => false,
        };
        if unset {
            port.target_port = Some(IntOrString::Int(port.port));
        }
        port.node_port.take_if(|number| *number == 0);
    }
    let kind = Type::of(spec);
    if is_reachable_from_outside(spec) && spec.external_traffic_policy.is_none() {
        spec.external_traffic_policy = Some("Cluster".into());
    }
    if kind.has_cluster_ip() && spec.internal_traffic_policy.is_none() {
        spec.internal_traffic_policy = Some("Cluster".into());
    }
    if kind == Type::ExternalName {
        spec.internal_traffic_policy = None;
    }
    if kind == Type::LoadBalancer && spec.allocate_load_balancer_node_ports.is_none() {
        spec.allocate_load_balancer_node_ports = Some(true);
    }
    spec.health_check_node_port.take_if(|number| *number == 0);
    spec.publish_not_ready_addresses
        .take_if(|publish| !*publish);
}

fn affinity(spec: &mut ServiceSpec) {
    match spec.session_affinity.as_deref() {
        None | Some("" | NONE) => {
            spec.session_affinity = Some(NONE.into());
            spec.session_affinity_config = None;
        }
        Some("ClientIP") => {
            let config = spec
                .session_affinity_config
                .take()
                .and_then(|config| config.client_ip);
            let timeout_seconds = config
                .and_then(|config| config.timeout_seconds)
                .or(Some(AFFINITY_SECONDS));
            let client_ip = Some(ClientIPConfig { timeout_seconds });
            spec.session_affinity_config = Some(SessionAffinityConfig { client_ip });
        }
        Some(_) => {}
    }
}

/// Has traffic that `externalTrafficPolicy` speaks about.
pub(crate) fn is_reachable_from_outside(spec: &ServiceSpec) -> bool {
    let external = spec
        .external_ips
        .as_ref()
        .is_some_and(|ips| !ips.is_empty());
    Type::of(spec).opens_node_ports() || Type::of(spec) == Type::ClusterIp && external
}

fn ingress_mode(object: &mut Value) {
    let ingress = object
        .pointer_mut("/status/loadBalancer/ingress")
        .and_then(Value::as_array_mut);
    for entry in ingress.into_iter().flatten() {
        if entry.get("ip").is_some() && entry.get("ipMode").is_none() {
            entry["ipMode"] = json!("VIP");
        }
    }
}

/// Allocated values that the writer left out stay.
fn carry_over(old: &ServiceSpec, new: &mut ServiceSpec) {
    if Type::of(old).has_cluster_ip() && Type::of(new).has_cluster_ip() {
        if new.cluster_ip.is_none()
            && cluster_ips(new)
                .first()
                .is_none_or(|first| cluster_ips(old).first() == Some(first))
        {
            new.cluster_ip.clone_from(&old.cluster_ip);
        }
        if cluster_ips(new).is_empty() && new.cluster_ip == old.cluster_ip {
            new.cluster_ips.clone_from(&old.cluster_ips);
        }
        new.ip_family_policy = new
            .ip_family_policy
            .take()
            .or_else(|| old.ip_family_policy.clone());
        if is_headless(new) && super::families(new).is_empty() {
            new.ip_families.clone_from(&old.ip_families);
        }
    }
    if allocates_node_ports(old) && allocates_node_ports(new) {
        let written: Vec<i32> = ports(new)
            .iter()
            .filter_map(|port| port.node_port)
            .collect();
        let mut used: Vec<i32> = ports(old)
            .iter()
            .filter_map(|port| port.node_port)
            .filter(|number| written.contains(number))
            .collect();
        for port in new
            .ports
            .iter_mut()
            .flatten()
            .filter(|port| port.node_port.is_none())
        {
            let before = ports(old).iter().find(|before| before.name == port.name);
            let number = before
                .and_then(|before| before.node_port)
                .filter(|number| !used.contains(number));
            used.extend(number);
            port.node_port = number;
        }
    }
    if has_health_port(old) && has_health_port(new) && new.health_check_node_port.is_none() {
        new.health_check_node_port = old.health_check_node_port;
    }
}

/// `clusterIP` and `clusterIPs` say the same; whoever changed one of them meant both.
fn match_singular(old: &ServiceSpec, new: &mut ServiceSpec) {
    if old.cluster_ip != new.cluster_ip && old.cluster_ips == new.cluster_ips {
        new.cluster_ips = new.cluster_ip.clone().map(|ip| vec![ip]);
    }
}

/// `SingleStack` alone is enough to give up the second family.
fn trim_second_family(old: &ServiceSpec, new: &mut ServiceSpec) {
    let single = |spec: &ServiceSpec| spec.ip_family_policy.as_deref() == Some(SINGLE_STACK);
    if !single(new) || single(old) {
        return;
    }
    if new.cluster_ips == old.cluster_ips {
        new.cluster_ips.iter_mut().for_each(|ips| ips.truncate(1));
    }
    if new.ip_families == old.ip_families {
        new.ip_families
            .iter_mut()
            .for_each(|families| families.truncate(1));
    }
}

/// What the new type has no use for goes, if the writer left it as it was.
fn wipe(old: &ServiceSpec, new: &mut ServiceSpec) {
    let (was, is) = (Type::of(old), Type::of(new));
    if was.has_cluster_ip() && !is.has_cluster_ip() {
        if new.cluster_ips == old.cluster_ips || cluster_ips(new).is_empty() {
            (new.cluster_ip, new.cluster_ips) = (None, None);
        }
        new.ip_families
            .take_if(|families| Some(&*families) == old.ip_families.as_ref());
        new.ip_family_policy
            .take_if(|policy| Some(&*policy) == old.ip_family_policy.as_ref());
    }
    if was.opens_node_ports() && !is.opens_node_ports() {
        let before: Vec<Option<i32>> = ports(old).iter().map(|port| port.node_port).collect();
        let untouched = ports(new)
            .iter()
            .all(|port| port.node_port.is_none() || before.contains(&port.node_port));
        let all = new.ports.iter_mut().flatten();
        all.filter(|_| untouched)
            .for_each(|port| port.node_port = None);
    }
    if has_health_port(old) && !has_health_port(new) {
        new.health_check_node_port
            .take_if(|port| Some(*port) == old.health_check_node_port);
    }
    if was == Type::LoadBalancer && is != Type::LoadBalancer {
        new.allocate_load_balancer_node_ports
            .take_if(|flag| Some(*flag) == old.allocate_load_balancer_node_ports);
        new.load_balancer_class
            .take_if(|class| Some(&*class) == old.load_balancer_class.as_ref());
    }
    if is_reachable_from_outside(old) && !is_reachable_from_outside(new) {
        new.external_traffic_policy
            .take_if(|policy| Some(&*policy) == old.external_traffic_policy.as_ref());
    }
}

fn family_of(ip: &str) -> Option<&'static str> {
    ip.parse::<IpAddr>()
        .ok()
        .map(|ip| IpFamily::of(ip).as_str())
}

/// Decides families and policy (KEP-563). Errors: what contradicts itself or the cluster.
pub(crate) fn families(
    old: &ServiceSpec,
    spec: &mut ServiceSpec,
    cluster: &[IpFamily],
) -> Result<(), Vec<Cause>> {
    if !Type::of(spec).has_cluster_ip() {
        return Ok(());
    }
    let given = cluster_ips(spec).to_vec();
    let mut chosen = super::families(spec).to_vec();
    let mut causes = Vec::new();
    for (index, ip) in given.iter().enumerate() {
        let Some(family) = family_of(ip) else { break };
        match chosen.get(index) {
            None => chosen.push(family.to_owned()),
            Some(wanted) if wanted != family => {
                let what =
                    format!("expected an {wanted} value as indicated by `ipFamilies[{index}]`");
                causes.push(Cause::invalid(
                    format!("spec.clusterIPs[{index}]"),
                    &json!(ip),
                    what,
                ));
            }
            Some(_) => {}
        }
    }
    let selectorless = is_headless(spec)
        && spec
            .selector
            .as_ref()
            .is_none_or(std::collections::BTreeMap::is_empty);
    let policy = spec.ip_family_policy.clone().unwrap_or_else(|| {
        let default = if selectorless && !Type::of(old).has_cluster_ip() {
            REQUIRE_DUAL_STACK
        } else {
            SINGLE_STACK
        };
        default.to_owned()
    });
    if chosen.is_empty() {
        chosen.extend(cluster.first().map(|family| family.as_str().to_owned()));
    }
    let single = policy == SINGLE_STACK;
    if !selectorless {
        cluster_causes(&chosen, &policy, cluster, &mut causes);
    }
    let refuse = |what: &str| Cause::invalid("spec.ipFamilyPolicy", &json!(policy), what);
    let dual = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";
    if single && given.len() == 2 {
        causes.push(refuse(&format!("{dual} cluster IPs are specified")));
    } else if single && chosen.len() == 2 {
        causes.push(refuse(&format!("{dual} IP families are specified")));
    }
    if !causes.is_empty() {
        return Err(causes);
    }
    if !single && chosen.len() == 1 {
        let both = [IpFamily::V4, IpFamily::V6];
        let second = both.iter().find(|family| {
            family.as_str() != chosen[0] && (selectorless || cluster.contains(family))
        });
        chosen.extend(second.map(|family| family.as_str().to_owned()));
    }
    (spec.ip_families, spec.ip_family_policy) = (Some(chosen), Some(policy));
    Ok(())
}

/// What the cluster's ranges cannot give.
fn cluster_causes(chosen: &[String], policy: &str, cluster: &[IpFamily], causes: &mut Vec<Cause>) {
    for (index, family) in chosen.iter().enumerate() {
        if !cluster.iter().any(|known| known.as_str() == family) {
            let what = "not configured on this cluster";
            causes.push(Cause::invalid(
                format!("spec.ipFamilies[{index}]"),
                &json!(family),
                what,
            ));
        }
    }
    if policy == REQUIRE_DUAL_STACK && cluster.len() < 2 {
        let what = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", &json!(policy), what));
    }
}

fn warn(spec: &ServiceSpec, warnings: &mut Vec<String>) {
    let external = spec
        .external_ips
        .as_ref()
        .is_some_and(|ips| !ips.is_empty());
    let headless = spec.cluster_ip.as_deref() == Some(NONE);
    let checks = [
        (
            headless && external,
            "spec.externalIPs is ignored for headless services",
        ),
        (
            !headless && external,
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ),
        (
            headless && spec.session_affinity.as_deref() != Some(NONE),
            "spec.SessionAffinity is ignored for headless services",
        ),
        (
            headless && spec.load_balancer_ip.is_some(),
            "spec.loadBalancerIP is ignored for headless services",
        ),
        (
            Type::of(spec) != Type::ExternalName && spec.external_name.is_some(),
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ),
        (
            spec.traffic_distribution.as_deref() == Some("PreferClose"),
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ),
    ];
    warnings.extend(
        checks
            .iter()
            .filter(|(applies, _)| *applies)
            .map(|(_, text)| (*text).to_owned()),
    );
}
