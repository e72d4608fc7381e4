//! One Service that changes while clients talk to it: what facts are about.
//!
//! Owns the objects and the clients' sockets. Judges nothing.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream, UdpSocket},
    time::Duration,
};

use api_model::IpFamily;
use k8s_openapi::api::core::v1::Node;
use lab::{Result, error::Doing as _};
use serde_json::{Value, json};

use crate::{flows, probe::Prober, proxier::Proxier, scenario::Scenario, topology::Topology};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The Service's number in the numbering of the recording, above all recorded ones.
const NUMBER: u16 = 250;
/// Its health check node port.
pub const HEALTH_PORT: u16 = 31_250;

/// An endpoint: its pod and conditions.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// Name of the pod.
    pub pod: &'static str,
    /// Conditions ready, serving, terminating.
    pub conditions: [bool; 3],
}

/// Ready.
pub const READY: [bool; 3] = [true, true, false];

/// The Service, its slices, and the network that they are in.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a part of the Service that is there or not"
)]
pub struct World<'w, P> {
    /// Network and clients.
    pub prober: &'w Prober<'w>,
    /// What is tested.
    pub proxier: &'w mut P,
    /// Whether the Service is there.
    pub service: bool,
    /// Whether its slices are there.
    pub slices: bool,
    /// Whether it has its load balancer address.
    pub balancer: bool,
    /// Whether it has its external IP.
    pub external: bool,
    /// Whether it has a node port.
    pub node_port: bool,
    /// `externalTrafficPolicy: Local`.
    pub local: bool,
    /// Endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Their port.
    pub target_port: u16,
    /// Timeout of affinity, seconds.
    pub affinity: Option<u32>,
}

impl<'w, P: Proxier> World<'w, P> {
    /// With these pods Ready, all addresses, nothing programmed yet.
    pub fn new(prober: &'w Prober<'w>, proxier: &'w mut P, pods: &[&'static str]) -> Self {
        let ready = |pod: &&'static str| Endpoint {
            pod,
            conditions: READY,
        };
        Self {
            prober,
            proxier,
            service: true,
            slices: true,
            balancer: true,
            external: true,
            node_port: true,
            local: false,
            endpoints: pods.iter().map(ready).collect(),
            target_port: 8080,
            affinity: None,
        }
    }

    /// Programs what it is now, without flows and memory of before.
    pub fn begin(&mut self) -> Result<()> {
        self.proxier.program(&[])?;
        self.apply()?;
        self.proxier.forget_clients()?;
        let mut nodes = self.topology().nodes.keys();
        nodes.try_for_each(|node| flows::forget(self.prober.network.space(node)))
    }

    /// Programs what it is now.
    pub fn apply(&mut self) -> Result<()> {
        let doing = "making the objects of a fact";
        let mut services = Vec::new();
        if self.service {
            let service = serde_json::from_value(self.service_object()).doing(doing)?;
            let key = api_model::ServiceKey::new("default", "fact");
            services.push((key, std::sync::Arc::new(service)));
        }
        let mut slices = Vec::new();
        for family in [IpFamily::V4, IpFamily::V6].iter().filter(|_| self.slices) {
            let slice = serde_json::from_value(self.slice_object(*family)).doing(doing)?;
            slices.push(std::sync::Arc::new(slice));
        }
        let name = "fact".to_owned();
        let scenario = Scenario {
            name,
            services,
            slices,
        };
        self.proxier.program(&[&scenario])
    }

    /// Where a kind of address is.
    pub fn target(&self, kind: &str, family: IpFamily) -> Option<SocketAddr> {
        let text = match (kind, family) {
            ("clusterIP", IpFamily::V4) => format!("10.96.1.{NUMBER}:80"),
            ("clusterIP", IpFamily::V6) => format!("[fd00:10:96::a{NUMBER}]:80"),
            ("lb", IpFamily::V4) => format!("203.0.113.{NUMBER}:80"),
            ("lb", IpFamily::V6) => format!("[2001:db8:113::{NUMBER}]:80"),
            ("ext", IpFamily::V4) => format!("198.51.100.{NUMBER}:80"),
            ("ext", IpFamily::V6) => format!("[2001:db8:51::{NUMBER}]:80"),
            ("nodePort@n1", _) => {
                let node = self.topology().members.get("n1")?;
                return Some(SocketAddr::new(node.of(family), 30_000 + NUMBER));
            }
            _ => return None,
        };
        text.parse().ok()
    }

    /// The Node object of a name, as recorded.
    pub fn node(&self, name: &str) -> Option<Node> {
        self.topology().nodes.get(name).cloned()
    }

    /// The recorded names and addresses.
    pub fn topology(&self) -> &'w Topology {
        self.prober.topology
    }

    /// A UDP socket of a host that stays with one target.
    pub fn flow(&self, from: &str, target: SocketAddr) -> Result<Flow> {
        let open = || {
            let any = if target.is_ipv4() {
                "0.0.0.0:0"
            } else {
                "[::]:0"
            };
            let socket = UdpSocket::bind(any)?;
            socket.connect(target)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok::<_, io::Error>(socket)
        };
        let socket = self.prober.network.space(from).run(open);
        let socket = socket.doing(format!("asking {target} from {from}"))?;
        let source = socket.local_addr().doing("reading a socket's address")?;
        Ok(Flow {
            socket,
            source,
            target,
        })
    }

    /// A TCP connection of a host that stays open, with who answered.
    pub fn connection(&self, from: &str, target: SocketAddr) -> Result<(TcpStream, String)> {
        let open = || TcpStream::connect_timeout(&target, PATIENCE);
        let doing = format!("connecting to {target} from {from}");
        let mut stream = self
            .prober
            .network
            .space(from)
            .run(open)
            .doing(doing.clone())?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .doing(doing.clone())?;
        let answer = read(&mut stream).doing(doing)?;
        Ok((stream, answer))
    }

    fn service_object(&self) -> Value {
        let port = |name: &str, protocol: &str, port: u16| {
            let node_port = self.node_port.then_some(29_920 + port + NUMBER);
            json!({"name": name, "protocol": protocol, "port": port, "nodePort": node_port})
        };
        let external: Vec<String> = if self.external {
            vec![
                format!("198.51.100.{NUMBER}"),
                format!("2001:db8:51::{NUMBER}"),
            ]
        } else {
            Vec::new()
        };
        let ingress = if self.balancer {
            json!([{"ip": format!("203.0.113.{NUMBER}"), "ipMode": "VIP"},
                   {"ip": format!("2001:db8:113::{NUMBER}"), "ipMode": "VIP"}])
        } else {
            json!([])
        };
        let kind = match (self.balancer, self.node_port) {
            (_, false) => "ClusterIP",
            _ => "LoadBalancer",
        };
        json!({
            "metadata": {"name": "fact", "namespace": "default"},
            "spec": {
                "type": kind,
                "clusterIP": format!("10.96.1.{NUMBER}"),
                "clusterIPs": [format!("10.96.1.{NUMBER}"), format!("fd00:10:96::a{NUMBER}")],
                "ipFamilies": ["IPv4", "IPv6"],
                "ports": [port("tcp", "TCP", 80), port("udp", "UDP", 80), port("more", "TCP", 81)],
                "externalIPs": external,
                "internalTrafficPolicy": "Cluster",
                "externalTrafficPolicy": if self.local { "Local" } else { "Cluster" },
                "healthCheckNodePort": self.local.then_some(HEALTH_PORT),
                "sessionAffinity": if self.affinity.is_some() { "ClientIP" } else { "None" },
                "sessionAffinityConfig": self.affinity.map(|seconds| {
                    json!({"clientIP": {"timeoutSeconds": seconds}})
                }),
            },
            "status": {"loadBalancer": {"ingress": ingress}},
        })
    }

    fn slice_object(&self, family: IpFamily) -> Value {
        let endpoint = |endpoint: &Endpoint| {
            let pod = self.topology().pods.get(endpoint.pod)?;
            let [ready, serving, terminating] = endpoint.conditions;
            let conditions =
                json!({"ready": ready, "serving": serving, "terminating": terminating});
            let address = pod.addresses.of(family);
            Some(json!({"addresses": [address], "conditions": conditions, "nodeName": pod.node}))
        };
        let endpoints: Vec<Value> = self.endpoints.iter().filter_map(endpoint).collect();
        let port = |name: &str, protocol: &str| json!({"name": name, "protocol": protocol, "port": self.target_port});
        json!({
            "metadata": {
                "name": format!("fact-{}", family.as_str().to_lowercase()),
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "fact"},
            },
            "addressType": family.as_str(),
            "endpoints": endpoints,
            "ports": [port("tcp", "TCP"), port("udp", "UDP"), port("more", "TCP")],
        })
    }
}

/// A UDP socket that asks one target again and again.
#[derive(Debug)]
pub struct Flow {
    socket: UdpSocket,
    /// Its own address.
    pub source: SocketAddr,
    /// Whom it asks.
    pub target: SocketAddr,
}

impl Flow {
    /// Asks once: who answered, or `rejected`, or `dropped`.
    pub fn ask(&self) -> String {
        let mut text = [0; 256];
        let answer = self
            .socket
            .send(b"who?")
            .and_then(|_| self.socket.recv(&mut text));
        match answer {
            Ok(length) => name(text.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => "rejected".to_owned(),
            Err(_) => "dropped".to_owned(),
        }
    }
}

/// Asks again over an open connection: who answered.
pub fn ask_again(stream: &mut TcpStream) -> io::Result<String> {
    stream.write_all(b"P")?;
    read(stream)
}

fn read(stream: &mut TcpStream) -> io::Result<String> {
    let mut text = [0; 256];
    let length = stream.read(&mut text)?;
    Ok(name(text.get(..length).unwrap_or_default()))
}

fn name(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    text.split('|').next().unwrap_or_default().to_owned()
}
