//! The objects of a scenario, and what a target of a row means in them.
//!
//! Owns the resolution of `lb`, `nodePort@n1:81` … to an address and a port. What an object doesn't say can't be resolved.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use api_model::{IpFamily, Protocol, ServiceKey};
use k8s_openapi::api::{
    core::v1::{Service, ServicePort},
    discovery::v1::EndpointSlice,
};
use serde::Deserialize as _;
use serde_json::Value;

use crate::topology::Topology;

/// Addresses of the ClusterIP ranges that no Service holds.
const UNALLOCATED: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(10, 96, 200, 200),
    Ipv6Addr::new(0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0xffee),
);

/// Objects of one file.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name; the Service that rows are about has it too, or is the first of the file.
    pub name: String,
    /// Services in the order of the file.
    pub services: Vec<(ServiceKey, Arc<Service>)>,
    /// Their slices.
    pub slices: Vec<Arc<EndpointSlice>>,
}

/// What can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Not YAML, or not an object of its kind.
    #[error("{0}")]
    Format(String),
    /// A kind that this runner doesn't load.
    #[error("kind {0} is not known")]
    Kind(String),
    /// Nothing to ask.
    #[error("no Service in it")]
    NoService,
}

/// Why a target means nothing here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A word that isn't known.
    #[error("target {0:?} is not known")]
    Unknown(String),
    /// The Service or topology has no such address or port.
    #[error("target {0:?} has no {1}")]
    Absent(String, &'static str),
}

impl Scenario {
    /// Reads the documents of an objects file.
    pub fn read(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let (mut services, mut slices) = (Vec::new(), Vec::new());
        for document in serde_yaml_ng::Deserializer::from_str(text) {
            let value = Value::deserialize(document).map_err(format)?;
            match value["kind"].as_str() {
                Some("Service") => {
                    let service: Service = serde_json::from_value(value).map_err(format)?;
                    let space = service.metadata.namespace.as_deref().unwrap_or("default");
                    let own = service.metadata.name.as_deref().unwrap_or_default();
                    services.push((ServiceKey::new(space, own), Arc::new(service)));
                }
                Some("EndpointSlice") => {
                    slices.push(Arc::new(serde_json::from_value(value).map_err(format)?));
                }
                None if value.is_null() => {}
                other => return Err(ScenarioError::Kind(format!("{other:?}"))),
            }
        }
        if services.is_empty() {
            return Err(ScenarioError::NoService);
        }
        Ok(Self {
            name: name.to_owned(),
            services,
            slices,
        })
    }

    /// What must not be loaded twice at a time: addresses, node ports and names.
    pub fn claims(&self) -> BTreeSet<String> {
        let mut claims = BTreeSet::new();
        for (key, service) in &self.services {
            claims.insert(key.to_string());
            claims.extend(cluster_ips(service).map(|ip| ip.to_string()));
            claims.extend(ingress(service).map(|ip| ip.to_string()));
            claims.extend(external_ips(service).map(|ip| ip.to_string()));
            let ports = ports(service).iter();
            claims.extend(ports.filter_map(|port| Some(format!("port {}", port.node_port?))));
            let health = service
                .spec
                .as_ref()
                .and_then(|it| it.health_check_node_port);
            claims.extend(health.map(|port| format!("port {port}")));
            for place in ["clusterIP", "lb", "ext"] {
                let both = [IpFamily::V4, IpFamily::V6].into_iter();
                let numbered = both.filter_map(|family| numbered_address(service, place, family));
                claims.extend(numbered.map(|ip| ip.to_string()));
            }
        }
        claims
    }

    /// The Service that rows ask.
    fn asked(&self) -> &(ServiceKey, Arc<Service>) {
        let named = self
            .services
            .iter()
            .find(|(_, service)| service.metadata.name.as_deref() == Some(&self.name));
        named
            .or(self.services.first())
            .expect("a scenario has a Service")
    }

    /// Its key.
    pub fn asked_key(&self) -> &ServiceKey {
        &self.asked().0
    }

    /// Its `healthCheckNodePort`.
    pub fn health_check_node_port(&self) -> Option<u16> {
        let spec = self.asked().1.spec.as_ref()?;
        u16::try_from(spec.health_check_node_port?).ok()
    }

    /// Where a target is.
    pub fn resolve(
        &self,
        topology: &Topology,
        target: &str,
        protocol: Protocol,
        family: IpFamily,
    ) -> Result<SocketAddr, TargetError> {
        let absent = |what| TargetError::Absent(target.to_owned(), what);
        let unknown = || TargetError::Unknown(target.to_owned());
        let (place, port) = match target.split_once(':') {
            Some((place, port)) => (place, Some(port.parse::<u16>().map_err(|_| unknown())?)),
            None => (target, None),
        };
        let (_, service) = self.asked();
        let port = match port {
            Some(port) => port,
            None => first_port(service).ok_or_else(|| absent("port"))?,
        };
        if let Some(node) = place.strip_prefix("nodePort@") {
            let address = match (node, family) {
                ("loopback", IpFamily::V4) => Ipv4Addr::LOCALHOST.into(),
                ("loopback", IpFamily::V6) => Ipv6Addr::LOCALHOST.into(),
                _ => topology.members.get(node).ok_or_else(unknown)?.of(family),
            };
            let number = node_port(service, port, protocol).ok_or_else(|| absent("node port"))?;
            return Ok(SocketAddr::new(address, number));
        }
        let address = match (place, family) {
            ("unallocated", IpFamily::V4) => Some(UNALLOCATED.0.into()),
            ("unallocated", IpFamily::V6) => Some(UNALLOCATED.1.into()),
            ("clusterIP", _) => nth(cluster_ips(service), family, 1),
            _ => match numbered(place).ok_or_else(unknown)? {
                ("lb", n) => nth(ingress(service), family, n),
                ("ext", n) => nth(external_ips(service), family, n),
                _ => return Err(unknown()),
            },
        };
        let address = address.or_else(|| numbered_address(service, place, family));
        let address = address.ok_or_else(|| absent("address of this family"))?;
        Ok(SocketAddr::new(address, port))
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err takes"
)]
fn format(error: impl ToString) -> ScenarioError {
    ScenarioError::Format(error.to_string())
}

/// `lb` is the first, `lb2` the second.
fn numbered(place: &str) -> Option<(&str, usize)> {
    let word = place.trim_end_matches(|c: char| c.is_ascii_digit());
    match place.strip_prefix(word)? {
        "" => Some((word, 1)),
        digits => digits.parse().ok().filter(|n| *n > 0).map(|n| (word, n)),
    }
}

fn nth(addresses: impl Iterator<Item = IpAddr>, family: IpFamily, number: usize) -> Option<IpAddr> {
    let mut of_family = addresses.filter(|address| IpFamily::of(*address) == family);
    of_family.nth(number.checked_sub(1)?)
}

/// The address that the recording's numbering has for a Service that holds none of this kind: there, nobody holds it.
fn numbered_address(service: &Service, place: &str, family: IpFamily) -> Option<IpAddr> {
    let own = nth(cluster_ips(service), IpFamily::V4, 1)?.to_string();
    let number: u8 = own.strip_prefix("10.96.1.")?.parse().ok()?;
    let text = match (place, family) {
        ("clusterIP", IpFamily::V6) => format!("fd00:10:96::a{number}"),
        ("lb", IpFamily::V4) => format!("203.0.113.{number}"),
        ("lb", IpFamily::V6) => format!("2001:db8:113::{number}"),
        ("ext", IpFamily::V4) => format!("198.51.100.{number}"),
        ("ext", IpFamily::V6) => format!("2001:db8:51::{number}"),
        _ => return None,
    };
    text.parse().ok()
}

fn ports(service: &Service) -> &[ServicePort] {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref());
    ports.unwrap_or_default()
}

fn first_port(service: &Service) -> Option<u16> {
    u16::try_from(ports(service).first()?.port).ok()
}

/// The node port of this Service port; of the other protocol's when this one has none.
fn node_port(service: &Service, port: u16, protocol: Protocol) -> Option<u16> {
    let of_port = |it: &&ServicePort| it.port == i32::from(port) && it.node_port.is_some();
    let speaks = |it: &&ServicePort| it.protocol.as_deref().unwrap_or("TCP") == protocol.as_str();
    let mut all = ports(service).iter().filter(of_port);
    let found = all.clone().find(speaks).or_else(|| all.next())?;
    u16::try_from(found.node_port?).ok()
}

fn addresses<'a>(texts: impl Iterator<Item = &'a String>) -> impl Iterator<Item = IpAddr> {
    texts.filter_map(|text| text.parse().ok())
}

fn cluster_ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    let spec = service.spec.iter();
    let several = spec.flat_map(|spec| spec.cluster_ips.iter().flatten().chain(&spec.cluster_ip));
    let mut seen = BTreeSet::new();
    addresses(several).filter(move |address| seen.insert(*address))
}

fn external_ips(service: &Service) -> impl Iterator<Item = IpAddr> {
    let spec = service.spec.iter();
    addresses(spec.flat_map(|spec| spec.external_ips.iter().flatten()))
}

fn ingress(service: &Service) -> impl Iterator<Item = IpAddr> {
    let balancer = service
        .status
        .iter()
        .filter_map(|status| status.load_balancer.as_ref());
    let points = balancer.flat_map(|balancer| balancer.ingress.iter().flatten());
    addresses(points.filter_map(|point| point.ip.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::OWN;

    fn scenario(name: &str) -> Scenario {
        let path = format!("{}/proxier/objects/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("objects");
        Scenario::read(name, &text).expect("readable")
    }

    #[test]
    fn targets_mean_addresses_and_ports_of_the_objects() {
        let topology = Topology::read(OWN).expect("ours");
        let resolve = |name: &str, target: &str, family| {
            let found = scenario(name).resolve(&topology, target, Protocol::Udp, family);
            found.map_or_else(|error| error.to_string(), |at| at.to_string())
        };
        let (v4, v6) = (IpFamily::V4, IpFamily::V6);
        assert_eq!(resolve("l-two", "lb", v4), "203.0.113.71:80");
        assert_eq!(resolve("l-two", "lb2", v6), "[2001:db8:113::199]:80");
        assert_eq!(resolve("l-two", "ext:443", v4), "198.51.100.71:443");
        assert_eq!(
            resolve("t-multiport", "nodePort@n2:81", v4),
            "172.31.0.12:30301"
        );
        assert_eq!(
            resolve("t-multiport", "nodePort@n1-second", v6),
            "[fd31:1::11]:30101"
        );
        assert_eq!(
            resolve("t-multiport", "nodePort@loopback", v6),
            "[::1]:30101"
        );
        assert_eq!(
            resolve("t-multiport", "unallocated", v4),
            "10.96.200.200:80"
        );
        let absent = "target \"lb3\" has no address of this family";
        assert_eq!(resolve("l-two", "lb3", v4), absent);
        assert_eq!(resolve("l-two", "lb0", v4), "target \"lb0\" is not known");
        assert_eq!(resolve("l-two", "moon", v4), "target \"moon\" is not known");
        assert_eq!(resolve("t-v4only", "clusterIP", v6), "[fd00:10:96::a99]:80");
        assert_eq!(resolve("l-hostname", "lb", v4), "203.0.113.73:80");
        let absent = "target \"nodePort@n1:443\" has no node port";
        assert_eq!(resolve("l-two", "nodePort@n1:443", v4), absent);
        let unknown = "target \"nodePort@n9\" is not known";
        assert_eq!(resolve("l-two", "nodePort@n9", v4), unknown);
    }

    #[test]
    fn scenarios_that_share_an_address_claim_it_both() {
        let (a, b) = (
            scenario("l-share-a").claims(),
            scenario("l-share-b").claims(),
        );
        let shared: Vec<&String> = a.intersection(&b).collect();
        assert_eq!(shared, ["2001:db8:113::80", "203.0.113.80"]);
    }
}
