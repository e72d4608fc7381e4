//! Service → [`ServiceClaim`].

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use allocator_core::{
    FamilyPolicy, IdleService, Input, PortUse, Reason, Refusal, ServiceClaim, Shown,
    ShownCondition, Wanted,
};
use api_model::{IpFamily, Port, Protocol, ServiceKey};
use api_types::names::{annotation, condition};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, Service, ServicePort, ServiceSpec};
use kube::ResourceExt;

use super::labels;

/// What a Service object says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The fact for the core.
    pub input: Input,
    /// Annotations that were read under their deprecated name.
    pub deprecated: Vec<&'static str>,
}

/// Reads a Service. `class` is `--lb-class`: exactly the Services of that class are ours, without it those of none.
pub fn service(object: &Service, class: Option<&str>) -> Read {
    let nothing = ServiceSpec::default();
    let spec = object.spec.as_ref().unwrap_or(&nothing);
    let key = ServiceKey::new(&object.namespace().unwrap_or_default(), &object.name_any());
    let uid: Arc<str> = object.uid().unwrap_or_default().into();
    let shown = shown(object);
    if let Err(reason) = is_ours(spec, class) {
        let any = !shown.addresses.is_empty() || shown.other || shown.pool.is_some();
        let idle = IdleService {
            key,
            uid,
            reason,
            shows: any,
        };
        return Read {
            input: Input::ServiceIdle(idle),
            deprecated: Vec::new(),
        };
    }
    let mut deprecated = Vec::new();
    let mut annotations = Annotations {
        all: object.annotations(),
        deprecated: &mut deprecated,
    };
    let wanted = wanted(spec, &mut annotations);
    let sharing_key = annotations.read(
        annotation::ALLOW_SHARED_IP,
        annotation::DEPRECATED_ALLOW_SHARED_IP,
    );
    let created = object.metadata.creation_timestamp.as_ref();
    let claim = ServiceClaim {
        key,
        uid,
        created: created.map_or(0, |time| time.0.as_second()),
        labels: labels(&object.metadata),
        families: families(spec),
        policy: policy(spec),
        ports: spec
            .ports
            .iter()
            .flatten()
            .filter_map(port)
            .collect::<BTreeSet<_>>(),
        sharing_key: sharing_key.map(Into::into),
        backend: backend(spec),
        wanted,
        shown,
    };
    Read {
        input: Input::Service(Box::new(claim)),
        deprecated,
    }
}

fn is_ours(spec: &ServiceSpec, class: Option<&str>) -> Result<(), Reason> {
    if spec.type_.as_deref() != Some("LoadBalancer") {
        return Err(Reason::NotLoadBalancer);
    }
    if spec.load_balancer_class.as_deref() != class {
        return Err(Reason::ClassNotOurs);
    }
    if spec.cluster_ip.as_deref() == Some("None") {
        return Err(Reason::Headless);
    }
    Ok(())
}

/// Annotations, read under both names.
struct Annotations<'a> {
    all: &'a BTreeMap<String, String>,
    deprecated: &'a mut Vec<&'static str>,
}

impl<'a> Annotations<'a> {
    /// The value without blanks around it; an empty one counts as not set.
    fn read(&mut self, current: &str, deprecated: &'static str) -> Option<&'a str> {
        let read = annotation::read(self.all, current, deprecated)?;
        if read.deprecated {
            self.deprecated.push(deprecated);
        }
        Some(read.value.trim()).filter(|value| !value.is_empty())
    }
}

fn wanted(spec: &ServiceSpec, annotations: &mut Annotations<'_>) -> Result<Wanted, Refusal> {
    let pool = annotations.read(
        annotation::ADDRESS_POOL,
        annotation::DEPRECATED_ADDRESS_POOL,
    );
    let listed = annotations.read(
        annotation::LOAD_BALANCER_IPS,
        annotation::DEPRECATED_LOAD_BALANCER_IPS,
    );
    let field = spec
        .load_balancer_ip
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty());
    let by_annotation = listed
        .map(|text| addresses(annotation::LOAD_BALANCER_IPS, text))
        .transpose()?;
    let by_field = field
        .map(|text| addresses("spec.loadBalancerIP", text))
        .transpose()?;
    let addresses = match (by_annotation, by_field) {
        (Some(annotation), Some(field)) if annotation != field => {
            let message = format!(
                "{} is {:?} but spec.loadBalancerIP is {:?}; write one of them",
                annotation::LOAD_BALANCER_IPS,
                listed.unwrap_or_default(),
                spec.load_balancer_ip.as_deref().unwrap_or_default(),
            );
            return Err(Refusal::new(Reason::ConflictingRequest, message));
        }
        (Some(addresses), _) | (None, Some(addresses)) => addresses,
        (None, None) => Vec::new(),
    };
    Ok(Wanted {
        addresses,
        pool: pool.map(Into::into),
    })
}

/// Reads a list of addresses; one written twice counts once.
fn addresses(place: &str, text: &str) -> Result<Vec<IpAddr>, Refusal> {
    let mut addresses = Vec::new();
    for part in text.split(',').map(str::trim) {
        let invalid =
            |why: &str| Refusal::new(Reason::InvalidRequest, format!("{place}: {part:?} {why}"));
        let address: IpAddr = part.parse().map_err(|_| invalid("is not an IP address"))?;
        if let IpAddr::V6(v6) = address
            && v6.to_ipv4_mapped().is_some()
        {
            return Err(invalid("is IPv4 mapped into IPv6, write it as IPv4"));
        }
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

/// Families of the cluster addresses; before they are there, those that are asked for.
fn families(spec: &ServiceSpec) -> Vec<IpFamily> {
    let single = spec.cluster_ip.iter();
    let listed: Vec<&String> = match &spec.cluster_ips {
        Some(listed) if !listed.is_empty() => listed.iter().collect(),
        Some(_) | None => single.collect(),
    };
    let families: Vec<IpFamily> = listed
        .into_iter()
        .filter_map(|text| text.parse().ok())
        .map(IpFamily::of)
        .collect();
    if families.is_empty() {
        return spec
            .ip_families
            .iter()
            .flatten()
            .filter_map(|text| text.parse().ok())
            .collect();
    }
    families
}

fn policy(spec: &ServiceSpec) -> FamilyPolicy {
    match spec.ip_family_policy.as_deref() {
        Some("RequireDualStack") => FamilyPolicy::RequireDualStack,
        Some("PreferDualStack") => FamilyPolicy::PreferDualStack,
        Some(_) | None => FamilyPolicy::SingleStack,
    }
}

fn port(port: &ServicePort) -> Option<PortUse> {
    Some(PortUse {
        protocol: port
            .protocol
            .as_deref()
            .unwrap_or("TCP")
            .parse::<Protocol>()
            .ok()?,
        port: Port::try_from(i64::from(port.port)).ok()?,
    })
}

/// What traffic to the Service depends on: with `externalTrafficPolicy: Local` it can go to the selected pods alone.
fn backend(spec: &ServiceSpec) -> Arc<str> {
    if spec.external_traffic_policy.as_deref() != Some("Local") {
        return "".into();
    }
    let selector = spec.selector.iter().flatten();
    let pairs: Vec<String> = selector
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    format!("Local:{}", pairs.join(",")).into()
}

fn shown(object: &Service) -> Shown {
    let status = object.status.as_ref();
    let balancer = status.and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.and_then(|balancer| balancer.ingress.as_ref());
    let mut shown = Shown {
        pool: object
            .annotations()
            .get(annotation::ALLOCATED_FROM_POOL)
            .map(|name| name.as_str().into()),
        ..Shown::default()
    };
    for entry in ingress.into_iter().flatten() {
        let address = entry
            .ip
            .as_ref()
            .and_then(|text| text.parse::<IpAddr>().ok());
        shown.addresses.extend(address);
        shown.other |= address.is_none() || !is_plain(entry);
    }
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ours = conditions
        .into_iter()
        .flatten()
        .find(|found| found.type_ == condition::ALLOCATED);
    shown.condition = ours.map(|found| ShownCondition {
        allocated: found.status == "True",
        reason: found.reason.clone(),
        message: found.message.clone(),
    });
    shown
}

/// Whether an entry holds an address to be reached as it is (`ipMode` VIP, KEP-1860) and nothing else.
fn is_plain(entry: &LoadBalancerIngress) -> bool {
    entry.hostname.as_ref().is_none_or(String::is_empty)
        && entry.ip_mode.as_deref().is_none_or(|mode| mode == "VIP")
        && entry.ports.as_ref().is_none_or(Vec::is_empty)
}
