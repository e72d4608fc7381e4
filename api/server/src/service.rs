//! Services: who holds which cluster address and node port, and what a write changes of that.
//!
//! Allocation is `allocator-core`'s; this module decides what is asked of it, gives back what a refused write had taken, and hands
//! out for release only after the write is stored. Defaults are in [`defaults`], refusals in [`validate`].
//! Source: KEP-563 (dual stack), KEP-3070 and KEP-3668 (bands), the Service registry of Kubernetes 1.37.

use std::net::IpAddr;

use allocator_core::{AllocateError, ClusterIpAllocator, NodePortAllocator};
use api_model::{AddressRange, IpFamily, Port};
use k8s_openapi::api::core::v1::{ServicePort, ServiceSpec};
use serde_json::{Value, json};

use crate::crud::{Call, Random, meta};
use crate::registry;
use crate::status_error::{ApiError, Cause};

pub(crate) mod defaults;
pub(crate) mod validate;

/// `spec.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
    /// Refused by validation.
    Unknown,
}

impl Type {
    pub(crate) fn of(spec: &ServiceSpec) -> Self {
        match spec.type_.as_deref() {
            Some("ClusterIP") => Self::ClusterIp,
            Some("NodePort") => Self::NodePort,
            Some("LoadBalancer") => Self::LoadBalancer,
            Some("ExternalName") => Self::ExternalName,
            _ => Self::Unknown,
        }
    }

    /// Types whose ports are open on nodes.
    pub(crate) fn opens_node_ports(self) -> bool {
        matches!(self, Self::NodePort | Self::LoadBalancer)
    }

    /// Types that have a cluster address, even if it is `None`.
    pub(crate) fn has_cluster_ip(self) -> bool {
        self == Self::ClusterIp || self.opens_node_ports()
    }
}

/// Node ports are given to ports that lack one.
pub(crate) fn allocates_node_ports(spec: &ServiceSpec) -> bool {
    match Type::of(spec) {
        Type::NodePort => true,
        Type::LoadBalancer => spec.allocate_load_balancer_node_ports != Some(false),
        Type::ClusterIp | Type::ExternalName | Type::Unknown => false,
    }
}

/// Has a health check node port.
pub(crate) fn has_health_port(spec: &ServiceSpec) -> bool {
    Type::of(spec) == Type::LoadBalancer && spec.external_traffic_policy.as_deref() == Some("Local")
}

pub(crate) fn is_headless(spec: &ServiceSpec) -> bool {
    cluster_ips(spec).first().is_some_and(|first| first == NONE)
}

pub(crate) fn cluster_ips(spec: &ServiceSpec) -> &[String] {
    spec.cluster_ips.as_deref().unwrap_or_default()
}

pub(crate) fn families(spec: &ServiceSpec) -> &[String] {
    spec.ip_families.as_deref().unwrap_or_default()
}

pub(crate) fn ports(spec: &ServiceSpec) -> &[ServicePort] {
    spec.ports.as_deref().unwrap_or_default()
}

pub(crate) const NONE: &str = "None";
pub(crate) const SINGLE_STACK: &str = "SingleStack";
const REQUIRE_DUAL_STACK: &str = "RequireDualStack";

/// The spec of a Service that went through its type before, so it cannot fail; a bare spec stands in should it.
pub(crate) fn spec_of(object: &Value) -> ServiceSpec {
    object
        .get("spec")
        .and_then(|spec| serde_json::from_value(spec.clone()).ok())
        .unwrap_or_default()
}

pub(crate) fn set_spec(object: &mut Value, spec: &ServiceSpec) {
    let mut value = serde_json::to_value(spec).unwrap_or_default();
    registry::drop_empty(&mut value);
    object["spec"] = value;
}

/// Something taken from a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Address(IpAddr),
    NodePort(Port),
}

/// Cluster addresses and node ports in use.
#[derive(Debug)]
pub(crate) struct Services {
    addresses: Vec<ClusterIpAllocator>,
    ports: NodePortAllocator,
}

/// Why the ranges of a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeConfigError {
    /// Too large, none, or two of one family.
    #[error(
        "service CIDRs {0:?} cannot be used: give one or two, of different families, IPv6 with a prefix of 64 or longer"
    )]
    Cidrs(Vec<ipnet::IpNet>),
    /// Empty, or port 0.
    #[error(
        "node port range {0}-{1} cannot be used: give the first and the last port, from 1 to 65535"
    )]
    NodePorts(u16, u16),
}

impl Services {
    /// Everything free.
    pub(crate) fn new(cidrs: &[ipnet::IpNet], ports: (u16, u16)) -> Result<Self, RangeConfigError> {
        let bad = || RangeConfigError::Cidrs(cidrs.to_vec());
        let addresses = cidrs
            .iter()
            .map(|cidr| {
                let range = AddressRange::from_prefix(cidr.network(), cidr.prefix_len()).ok()?;
                ClusterIpAllocator::new(range).ok()
            })
            .collect::<Option<Vec<_>>>()
            .ok_or_else(bad)?;
        let distinct = match addresses.as_slice() {
            [_] => true,
            [one, other] => one.range().family() != other.range().family(),
            _ => false,
        };
        let range = Port::new(ports.0)
            .zip(Port::new(ports.1))
            .and_then(|(first, last)| NodePortAllocator::new(first, last));
        let ports = range.ok_or(RangeConfigError::NodePorts(ports.0, ports.1))?;
        if distinct {
            Ok(Self { addresses, ports })
        } else {
            Err(bad())
        }
    }

    /// Families of the cluster, the default one first.
    fn cluster_families(&self) -> Vec<IpFamily> {
        self.addresses
            .iter()
            .map(|range| range.range().family())
            .collect()
    }

    /// Completes a new Service. A dry run holds nothing afterwards.
    pub(crate) fn create(
        &mut self,
        call: &Call<'_>,
        object: &mut Value,
        random: &mut Random,
    ) -> Result<(), ApiError> {
        let none = ServiceSpec::default();
        self.change(call, (&none, object), random).map(drop)
    }

    /// Completes a changed Service. What comes back is to be released once the write is stored.
    pub(crate) fn update(
        &mut self,
        call: &Call<'_>,
        old: &Value,
        new: &mut Value,
        random: &mut Random,
    ) -> Result<Vec<Held>, ApiError> {
        self.change(call, (&spec_of(old), new), random)
    }

    /// Gives back.
    pub(crate) fn release(&mut self, held: &[Held]) {
        for held in held {
            match held {
                Held::Address(address) => {
                    for range in &mut self.addresses {
                        range.release(*address);
                    }
                }
                Held::NodePort(port) => {
                    self.ports.release(*port);
                }
            }
        }
    }

    /// Gives back everything that a deleted Service held.
    pub(crate) fn forget(&mut self, object: &Value) {
        self.release(&held_by(&spec_of(object)));
    }

    fn change(
        &mut self,
        call: &Call<'_>,
        (old, object): (&ServiceSpec, &mut Value),
        random: &mut Random,
    ) -> Result<Vec<Held>, ApiError> {
        let name = meta(object, "name").to_owned();
        let mut spec = spec_of(object);
        let invalid = |causes| ApiError::invalid("", "Service", &name, causes);
        defaults::families(old, &mut spec, &self.cluster_families()).map_err(invalid)?;
        let mut taking = Taking {
            services: self,
            random,
            taken: Vec::new(),
            dry_run: call.dry_run,
        };
        let result = taking.everything(old, &mut spec);
        let taken = taking.taken;
        if let Err(refusal) = result {
            self.release(&taken);
            Err(match refusal {
                Refusal::Invalid(cause) => invalid(vec![*cause]),
                Refusal::Internal(message) => ApiError::internal_error(&message),
            })
        } else {
            if call.dry_run {
                self.release(&taken);
            }
            let kept = held_by(&spec);
            let released = held_by(old)
                .into_iter()
                .filter(|held| !kept.contains(held))
                .collect();
            set_spec(object, &spec);
            Ok(if call.dry_run { Vec::new() } else { released })
        }
    }
}

/// Addresses and ports that stand in a spec.
fn held_by(spec: &ServiceSpec) -> Vec<Held> {
    let addresses = cluster_ips(spec)
        .iter()
        .filter_map(|ip| ip.parse().ok())
        .map(Held::Address);
    let numbers = ports(spec)
        .iter()
        .filter_map(|port| port.node_port)
        .chain(spec.health_check_node_port);
    let numbers = numbers
        .filter_map(|number| Port::try_from(i64::from(number)).ok())
        .map(Held::NodePort);
    addresses.chain(numbers).collect()
}

enum Refusal {
    Invalid(Box<Cause>),
    Internal(String),
}

/// One write's allocations.
struct Taking<'a> {
    services: &'a mut Services,
    random: &'a mut Random,
    taken: Vec<Held>,
    dry_run: bool,
}

impl Taking<'_> {
    fn everything(&mut self, old: &ServiceSpec, spec: &mut ServiceSpec) -> Result<(), Refusal> {
        if Type::of(spec).has_cluster_ip() && !is_headless(spec) {
            self.cluster_ips(old, spec)?;
        }
        if Type::of(spec).opens_node_ports() {
            if Type::of(old).opens_node_ports() {
                self.changed_ports(old, spec)?;
            } else {
                self.new_ports(spec)?;
            }
        }
        if has_health_port(spec) {
            self.health_port(old, spec)?;
        }
        Ok(())
    }

    fn cluster_ips(&mut self, old: &ServiceSpec, spec: &mut ServiceSpec) -> Result<(), Refusal> {
        let given = cluster_ips(spec).to_vec();
        let mut addresses = Vec::new();
        for (index, family) in families(spec).iter().enumerate() {
            let address = match given.get(index) {
                Some(ip) if cluster_ips(old).contains(ip) => ip.clone(),
                Some(ip) => self.address(ip, &given)?,
                None => self.next_address(family)?,
            };
            addresses.push(address);
        }
        spec.cluster_ip = addresses.first().cloned();
        spec.cluster_ips = Some(addresses);
        Ok(())
    }

    fn address(&mut self, text: &str, all: &[String]) -> Result<String, Refusal> {
        let Ok(address) = text.parse::<IpAddr>() else {
            return Ok(text.to_owned());
        };
        let family = IpFamily::of(address);
        let range = self
            .services
            .addresses
            .iter_mut()
            .find(|range| range.range().family() == family);
        let problem = match range.map(|range| range.allocate(address)) {
            Some(Ok(())) => {
                self.taken.push(Held::Address(address));
                return Ok(text.to_owned());
            }
            // the real server does not look whether it is taken, when nothing will be stored
            Some(Err(AllocateError::InUse(_))) if self.dry_run => return Ok(text.to_owned()),
            Some(Err(AllocateError::InUse(_))) => "provided IP is already allocated",
            Some(Err(AllocateError::NotInRange { .. } | AllocateError::Exhausted { .. }))
            | None => "the provided network does not match the current range",
        };
        let what = format!("failed to allocate IP {text}: {problem}");
        Err(Refusal::Invalid(Box::new(Cause::invalid(
            "spec.clusterIPs",
            &json!(all),
            what,
        ))))
    }

    fn next_address(&mut self, family: &str) -> Result<String, Refusal> {
        let mut ranges = self.services.addresses.iter_mut();
        let range = ranges.find(|range| range.range().family().as_str() == family);
        let range = range
            .ok_or_else(|| Refusal::Internal(format!("no service CIDR of family {family}")))?;
        let address = range.allocate_next(self.random.next());
        let address = address.map_err(|error| {
            Refusal::Internal(format!("failed to allocate a serviceIP: {error}"))
        })?;
        self.taken.push(Held::Address(address));
        Ok(address.to_string())
    }

    fn port(&mut self, number: i32) -> Result<(), String> {
        let (first, last) = self.services.ports.range();
        let outside = format!(
            "provided port is not in the valid range. The range of valid ports is {first}-{last}"
        );
        let port = Port::try_from(i64::from(number)).map_err(|_| outside.clone())?;
        match self.services.ports.allocate(port) {
            Ok(()) => {
                self.taken.push(Held::NodePort(port));
                Ok(())
            }
            Err(AllocateError::InUse(_)) if self.dry_run => Ok(()),
            Err(AllocateError::InUse(_)) => Err("provided port is already allocated".into()),
            Err(AllocateError::NotInRange { .. } | AllocateError::Exhausted { .. }) => Err(outside),
        }
    }

    fn next_port(&mut self) -> Result<i32, Refusal> {
        if self.dry_run {
            // outside of the range, as the real server shows it: nobody can mistake it for a promise
            return Ok(i32::from(self.services.ports.range().1.get()) + 2);
        }
        let port = self.services.ports.allocate_next(self.random.next());
        let port = port.map_err(|error| {
            Refusal::Internal(format!("failed to allocate a nodePort: {error}"))
        })?;
        self.taken.push(Held::NodePort(port));
        Ok(i32::from(port.get()))
    }

    fn port_at(&mut self, index: usize, number: i32) -> Result<(), Refusal> {
        self.port(number).map_err(|what| {
            let cause = Cause::invalid(
                format!("spec.ports[{index}].nodePort"),
                &json!(number),
                what,
            );
            Refusal::Invalid(Box::new(cause))
        })
    }

    /// Ports of one number in several protocols share a node port, whoever of them names it.
    fn new_ports(&mut self, spec: &mut ServiceSpec) -> Result<(), Refusal> {
        let allocates = allocates_node_ports(spec);
        let mut list = spec.ports.take().unwrap_or_default();
        let named: Vec<(i32, i32)> = list
            .iter()
            .filter_map(|port| Some((port.port, port.node_port.filter(|&n| n != 0)?)))
            .collect();
        let mut given: Vec<(i32, i32)> = Vec::new();
        let find = |pairs: &[(i32, i32)], port: i32| {
            pairs
                .iter()
                .find(|(p, _)| *p == port)
                .map(|(_, number)| *number)
        };
        for (index, port) in list.iter_mut().enumerate() {
            let own = port.node_port.filter(|&number| number != 0);
            if own.is_none() && !allocates {
                continue;
            }
            port.node_port = Some(match (find(&given, port.port), own) {
                (Some(shared), None) => shared,
                (Some(shared), Some(own)) if shared == own => own,
                (Some(_), Some(own)) => {
                    self.port_at(index, own)?;
                    own
                }
                (None, _) => {
                    let number = match find(&named, port.port) {
                        Some(number) => {
                            self.port_at(index, number)?;
                            number
                        }
                        None => self.next_port()?,
                    };
                    given.push((port.port, number));
                    number
                }
            });
        }
        spec.ports = Some(list);
        Ok(())
    }

    fn changed_ports(&mut self, old: &ServiceSpec, spec: &mut ServiceSpec) -> Result<(), Refusal> {
        let mut mine: Vec<i32> = ports(old)
            .iter()
            .filter_map(|port| port.node_port)
            .collect();
        let allocates = allocates_node_ports(spec);
        for (index, port) in spec.ports.iter_mut().flatten().enumerate() {
            match port.node_port.filter(|&number| number != 0) {
                Some(number) if mine.contains(&number) => {}
                Some(number) => {
                    self.port_at(index, number)?;
                    mine.push(number);
                }
                None if allocates => port.node_port = Some(self.next_port()?),
                None => port.node_port = None,
            }
        }
        Ok(())
    }

    fn health_port(&mut self, old: &ServiceSpec, spec: &mut ServiceSpec) -> Result<(), Refusal> {
        match spec.health_check_node_port.filter(|&number| number != 0) {
            Some(number) if has_health_port(old) && old.health_check_node_port == Some(number) => {
                Ok(())
            }
            Some(number) => self.port(number).map_err(|what| {
                Refusal::Internal(format!(
                    "failed to allocate requested HealthCheck NodePort {number}: {what}"
                ))
            }),
            None => {
                spec.health_check_node_port = Some(self.next_port()?);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
