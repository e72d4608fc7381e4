//! What a Service may not say, by field. Pure. Source: `ValidateService` and `ValidateServiceUpdate` of Kubernetes 1.37.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::defaults::is_reachable_from_outside;
use super::{NONE, Type, cluster_ips, families, has_health_port, is_headless, ports, spec_of};
use crate::crud::Part;
use crate::names::{self, ip_problem, special_address};
use crate::status_error::Cause;

const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";
const RANGES_ANNOTATION: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

/// Everything that is wrong with a Service as a whole.
pub(crate) fn causes(old: Option<&Value>, object: &Value, part: Part) -> Vec<Cause> {
    let spec = spec_of(object);
    if part != Part::Main {
        return status(&spec, object);
    }
    let mut causes = Vec::new();
    kind_and_policies(&spec, &mut causes);
    all_ports(&spec, &mut causes);
    let selector = object.pointer("/spec/selector");
    causes.extend(names::labels_causes(selector, "spec.selector"));
    cluster_addresses(&spec, &mut causes);
    external_addresses(&spec, &mut causes);
    load_balancer(&spec, object, &mut causes);
    if let Some(old) = old {
        changes(&spec_of(old), &spec, &mut causes);
    }
    causes
}

fn one_of(field: &str, value: Option<&str>, allowed: &[&str], causes: &mut Vec<Cause>) {
    if let Some(value) = value.filter(|value| !allowed.contains(value)) {
        causes.push(Cause::not_supported(
            format!("spec.{field}"),
            &json!(value),
            allowed,
        ));
    }
}

fn kind_and_policies(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    one_of(
        "type",
        spec.type_.as_deref(),
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        causes,
    );
    one_of(
        "sessionAffinity",
        spec.session_affinity.as_deref(),
        &["ClientIP", NONE],
        causes,
    );
    one_of(
        "internalTrafficPolicy",
        spec.internal_traffic_policy.as_deref(),
        &["Cluster", "Local"],
        causes,
    );
    let distribution = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    one_of(
        "trafficDistribution",
        spec.traffic_distribution.as_deref(),
        distribution,
        causes,
    );
    one_of(
        "ipFamilyPolicy",
        spec.ip_family_policy.as_deref(),
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
        causes,
    );
    let policy = spec.external_traffic_policy.as_deref();
    if is_reachable_from_outside(spec) {
        one_of(
            "externalTrafficPolicy",
            policy,
            &["Cluster", "Local"],
            causes,
        );
    } else if let Some(policy) = policy {
        let what = "may only be set for externally-accessible services";
        causes.push(Cause::invalid(
            "spec.externalTrafficPolicy",
            &json!(policy),
            what,
        ));
    }
    affinity_and_name(spec, causes);
}

fn affinity_and_name(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    let affinity = spec
        .session_affinity_config
        .as_ref()
        .and_then(|config| config.client_ip.as_ref());
    if let Some(seconds) = affinity
        .and_then(|config| config.timeout_seconds)
        .filter(|seconds| !(1..=86_400).contains(seconds))
    {
        let field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
        causes.push(Cause::invalid(
            field,
            &json!(seconds),
            "must be greater than 0 and less than 86400",
        ));
    }
    if let Some(port) = spec
        .health_check_node_port
        .filter(|_| !has_health_port(spec))
    {
        let what =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        causes.push(Cause::invalid(
            "spec.healthCheckNodePort",
            &json!(port),
            what,
        ));
    }
    if Type::of(spec) == Type::ExternalName {
        match spec.external_name.as_deref() {
            None => causes.push(Cause::required("spec.externalName", "")),
            Some(name) => {
                let problem = names::subdomain_problem(name.strip_suffix('.').unwrap_or(name));
                causes.extend(
                    problem
                        .map(|problem| Cause::invalid("spec.externalName", &json!(name), problem)),
                );
            }
        }
    }
}

fn all_ports(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    if ports(spec).is_empty() && !is_headless(spec) && Type::of(spec) != Type::ExternalName {
        causes.push(Cause::required("spec.ports", ""));
    }
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports(spec).iter().enumerate() {
        let field = |name: &str| format!("spec.ports[{index}].{name}");
        one_port(spec, port, &field, causes);
        let name = port.name.as_deref().unwrap_or_default();
        if !name.is_empty() && !names.insert(name) {
            causes.push(Cause::duplicate(field("name"), &json!(name)));
        }
        let protocol = port.protocol.as_deref().unwrap_or_default();
        if !numbers.insert((port.port, protocol)) {
            let shown = json!({"Name": "", "Protocol": protocol, "AppProtocol": null, "Port": port.port, "TargetPort": 0, "NodePort": 0});
            causes.push(Cause::duplicate(format!("spec.ports[{index}]"), &shown));
        }
    }
}

fn one_port(
    spec: &ServiceSpec,
    port: &ServicePort,
    field: &dyn Fn(&str) -> String,
    causes: &mut Vec<Cause>,
) {
    let in_range = |number: i32| (1..=65_535).contains(&number);
    match port.name.as_deref().unwrap_or_default() {
        "" if ports(spec).len() > 1 => causes.push(Cause::required(field("name"), "")),
        "" => {}
        name => causes.extend(
            names::label_problem(name)
                .map(|problem| Cause::invalid(field("name"), &json!(name), problem)),
        ),
    }
    if !in_range(port.port) {
        causes.push(Cause::invalid(field("port"), &json!(port.port), PORT_RANGE));
    }
    let protocol = port.protocol.as_deref().unwrap_or_default();
    if !["SCTP", "TCP", "UDP"].contains(&protocol) {
        causes.push(Cause::not_supported(
            field("protocol"),
            &json!(protocol),
            &["SCTP", "TCP", "UDP"],
        ));
    }
    match &port.target_port {
        Some(IntOrString::Int(number)) if !in_range(*number) => {
            causes.push(Cause::invalid(
                field("targetPort"),
                &json!(number),
                PORT_RANGE,
            ));
        }
        Some(IntOrString::String(name)) => {
            let problems = names::port_name_problems(name).into_iter();
            causes.extend(
                problems.map(|problem| Cause::invalid(field("targetPort"), &json!(name), problem)),
            );
        }
        Some(IntOrString::Int(_)) | None => {}
    }
    if let Some(protocol) = port.app_protocol.as_deref() {
        qualified(&field("appProtocol"), protocol, causes);
    }
    if let Some(number) = port
        .node_port
        .filter(|_| !Type::of(spec).opens_node_ports())
    {
        let kind = spec.type_.as_deref().unwrap_or_default();
        let _ = number;
        causes.push(Cause::forbidden(
            field("nodePort"),
            format!("may not be used when `type` is '{kind}'"),
        ));
    }
}

fn qualified(field: &str, text: &str, causes: &mut Vec<Cause>) {
    let problems = names::qualified_problems(text).into_iter();
    causes.extend(problems.map(|problem| Cause::invalid(field, &json!(text), problem)));
}

fn cluster_addresses(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    const FIELD: &str = "spec.clusterIPs";
    let ips = cluster_ips(spec);
    let whole = json!(ips);
    family_names(spec, causes);
    if Type::of(spec) == Type::ExternalName {
        no_addresses(spec, causes);
        return;
    }
    match &spec.cluster_ip {
        None if !ips.is_empty() => causes.push(Cause::invalid(
            FIELD,
            &whole,
            "must be empty when `clusterIP` is not specified",
        )),
        Some(first) if ips.first() != Some(first) => causes.push(Cause::invalid(
            FIELD,
            &whole,
            "first value must match `clusterIP`",
        )),
        _ => {}
    }
    if ips.len() > 2 {
        causes.push(Cause::invalid(
            FIELD,
            &whole,
            "may only hold up to 2 values",
        ));
    }
    if is_headless(spec) {
        if ips.len() > 1 {
            causes.push(Cause::invalid(
                FIELD,
                &whole,
                "'None' must be the first and only value",
            ));
        }
        if Type::of(spec).opens_node_ports() {
            let what = format!(
                "may not be set to 'None' for {} services",
                spec.type_.as_deref().unwrap_or_default()
            );
            causes.push(Cause::invalid("spec.clusterIPs[0]", &json!(NONE), what));
        }
    }
    for (index, ip) in ips
        .iter()
        .enumerate()
        .filter(|(index, ip)| *index > 0 || *ip != NONE)
    {
        causes.extend(ip_problem(ip).map(|problem| {
            Cause::invalid(format!("spec.clusterIPs[{index}]"), &json!(ip), problem)
        }));
    }
    if let [one, other] = ips
        && let (Ok(one), Ok(other)) = (one.parse::<IpAddr>(), other.parse::<IpAddr>())
        && one.is_ipv4() == other.is_ipv4()
    {
        causes.push(Cause::invalid(
            FIELD,
            &whole,
            "may specify no more than one IP for each IP family",
        ));
    }
}

fn family_names(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    for (index, family) in families(spec).iter().enumerate() {
        let field = format!("spec.ipFamilies[{index}]");
        if !["IPv4", "IPv6"].contains(&family.as_str()) {
            causes.push(Cause::not_supported(
                field,
                &json!(family),
                &["IPv4", "IPv6"],
            ));
        } else if families(spec)
            .iter()
            .take(index)
            .any(|before| before == family)
        {
            causes.push(Cause::duplicate(field, &json!(family)));
        }
    }
}

fn no_addresses(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    if !cluster_ips(spec).is_empty() || spec.cluster_ip.is_some() {
        causes.push(Cause::forbidden(
            "spec.clusterIPs",
            "may not be set for ExternalName services",
        ));
    }
    for (field, set) in [
        ("ipFamilies", !families(spec).is_empty()),
        ("ipFamilyPolicy", spec.ip_family_policy.is_some()),
    ] {
        if set {
            causes.push(Cause::forbidden(
                format!("spec.{field}"),
                "may not be set for ExternalName services",
            ));
        }
    }
}

fn external_addresses(spec: &ServiceSpec, causes: &mut Vec<Cause>) {
    for (index, text) in spec.external_ips.iter().flatten().enumerate() {
        let problem = match (ip_problem(text), text.parse::<IpAddr>()) {
            (Some(problem), _) => Some(problem.to_owned()),
            (None, Ok(ip)) => special_address(ip),
            (None, Err(_)) => None,
        };
        causes.extend(problem.map(|problem| {
            Cause::invalid(format!("spec.externalIPs[{index}]"), &json!(text), problem)
        }));
    }
}

fn load_balancer(spec: &ServiceSpec, object: &Value, causes: &mut Vec<Cause>) {
    let balanced = Type::of(spec) == Type::LoadBalancer;
    if let Some(class) = &spec.load_balancer_class {
        if balanced {
            qualified("spec.loadBalancerClass", class, causes);
        } else {
            causes.push(Cause::forbidden(
                "spec.loadBalancerClass",
                ONLY_LOAD_BALANCER,
            ));
        }
    }
    if spec.allocate_load_balancer_node_ports.is_some() && !balanced {
        causes.push(Cause::forbidden(
            "spec.allocateLoadBalancerNodePorts",
            ONLY_LOAD_BALANCER,
        ));
    }
    // the capital L is the real server's
    let ranges = spec
        .load_balancer_source_ranges
        .as_deref()
        .unwrap_or_default();
    if !ranges.is_empty() {
        if !balanced {
            causes.push(Cause::forbidden(
                "spec.LoadBalancerSourceRanges",
                ONLY_LOAD_BALANCER,
            ));
        }
        for (index, range) in ranges.iter().enumerate() {
            let field = format!("spec.LoadBalancerSourceRanges[{index}]");
            causes.extend(
                cidr_problem(range.trim())
                    .map(|problem| Cause::invalid(field, &json!(range), problem)),
            );
        }
        return;
    }
    let annotation = object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(RANGES_ANNOTATION));
    let Some(text) = annotation
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
    else {
        return;
    };
    let field = format!("metadata.annotations[{RANGES_ANNOTATION}]");
    if !balanced {
        causes.push(Cause::forbidden(&field, ONLY_LOAD_BALANCER));
    }
    for range in text.split(',').map(str::trim) {
        causes.extend(
            cidr_problem(range).map(|problem| Cause::invalid(&field, &json!(range), problem)),
        );
    }
}

fn cidr_problem(text: &str) -> Option<&'static str> {
    const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let Some((address, length)) = text.split_once('/') else {
        return Some(NOT_A_CIDR);
    };
    let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
    if ip_problem(address) == Some("must not have leading 0s")
        || digits && length.len() > 1 && length.starts_with('0')
    {
        return Some("must not have leading 0s in IP or prefix length");
    }
    match text.parse::<ipnet::IpNet>() {
        Err(_) => Some(NOT_A_CIDR),
        Ok(net) if net.addr() != net.network() => {
            Some("must not have bits set beyond the prefix length")
        }
        Ok(_) => None,
    }
}

fn changes(old: &ServiceSpec, new: &ServiceSpec, causes: &mut Vec<Cause>) {
    const FIXED: &str = "may not change once set";
    let (was, is) = (Type::of(old), Type::of(new));
    let first_matches = new.cluster_ip.as_ref() == cluster_ips(new).first();
    if was.has_cluster_ip() && is.has_cluster_ip() && first_matches {
        let (before, after) = (cluster_ips(old), cluster_ips(new));
        for index in 0..before.len().min(after.len()) {
            if before.get(index) != after.get(index) {
                causes.push(Cause::invalid(
                    format!("spec.clusterIPs[{index}]"),
                    &json!(after),
                    FIXED,
                ));
            }
        }
    }
    if was == Type::LoadBalancer
        && is == Type::LoadBalancer
        && old.load_balancer_class != new.load_balancer_class
    {
        causes.push(Cause::invalid(
            "spec.loadBalancerClass",
            &json!(new.load_balancer_class),
            FIXED,
        ));
    }
    if has_health_port(old)
        && has_health_port(new)
        && old.health_check_node_port != new.health_check_node_port
    {
        causes.push(Cause::forbidden(
            "spec.healthCheckNodePort",
            "field is immutable",
        ));
    }
}

fn status(spec: &ServiceSpec, object: &Value) -> Vec<Cause> {
    let ingress = object
        .pointer("/status/loadBalancer/ingress")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    if !ingress.is_empty() && Type::of(spec) != Type::LoadBalancer {
        let what = "may only be used when `spec.type` is 'LoadBalancer'";
        return vec![Cause::forbidden("status.loadBalancer.ingress", what)];
    }
    let mut causes = Vec::new();
    for (index, entry) in ingress.iter().enumerate() {
        let field = |name: &str| format!("status.loadBalancer.ingress[{index}].{name}");
        let ip = entry
            .get("ip")
            .and_then(Value::as_str)
            .filter(|ip| !ip.is_empty());
        if let Some(problem) = ip.and_then(ip_problem) {
            causes.push(Cause::invalid(field("ip"), &entry["ip"], problem));
        }
        match (entry.get("ipMode").and_then(Value::as_str), ip) {
            (Some(_), None) => causes.push(Cause::forbidden(
                field("ipMode"),
                "may not be specified when `ip` is not set",
            )),
            (Some(mode), Some(_)) if !["Proxy", "VIP"].contains(&mode) => {
                causes.push(Cause::not_supported(
                    field("ipMode"),
                    &json!(mode),
                    &["Proxy", "VIP"],
                ));
            }
            _ => {}
        }
        let Some(host) = entry
            .get("hostname")
            .and_then(Value::as_str)
            .filter(|host| !host.is_empty())
        else {
            continue;
        };
        let problem = if host.parse::<IpAddr>().is_ok() {
            Some("must be a DNS name, not an IP address".to_owned())
        } else {
            names::subdomain_problem(host)
        };
        causes.extend(
            problem.map(|problem| Cause::invalid(field("hostname"), &json!(host), problem)),
        );
    }
    causes
}
