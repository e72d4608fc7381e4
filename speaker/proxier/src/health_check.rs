//! What the health ports answer: the health check node port of each Service, and the proxier's own `/healthz`, `/livez`.
//!
//! Owns codes, headers' values and bodies. Never listens. Source: Service API (externalTrafficPolicy Local), KEP-3836.

use std::collections::BTreeMap;

use api_model::{IpFamily, Port, ServiceKey};

use crate::{
    endpoints::local_ready_addresses,
    node_view::{NodeView, Policy},
};

/// One health check node port: its Service and how many Ready addresses of each family this node has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthPort {
    /// The Service.
    pub service: ServiceKey,
    /// Distinct Ready IPv4 addresses on this node.
    pub local_v4: usize,
    /// Distinct Ready IPv6 addresses on this node.
    pub local_v6: usize,
}

/// All health check node ports of a snapshot. Of two Services with one port the first by name answers.
pub fn ports(view: &NodeView) -> BTreeMap<Port, HealthPort> {
    let mut ports = BTreeMap::new();
    for (key, view_of) in &view.services {
        let service = &view_of.service;
        if service.external_policy != Policy::Local {
            continue;
        }
        if let Some(port) = service.health_check_node_port {
            ports.entry(port).or_insert_with(|| HealthPort {
                service: key.clone(),
                local_v4: local_ready_addresses(&view.node, IpFamily::V4, &view_of.slices),
                local_v6: local_ready_addresses(&view.node, IpFamily::V6, &view_of.slices),
            });
        }
    }
    ports
}

/// An answer to `GET`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// 200 or 503, or 404 for a path that is not there.
    pub code: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// Header `X-Load-Balancing-Endpoint-Weight`.
    pub weight: Option<usize>,
    /// Body.
    pub body: String,
}

impl HealthPort {
    /// The answer on the address of a family: 200 when there is a Ready address here and the proxier is healthy.
    pub fn answer(&self, family: IpFamily, proxier_healthy: bool) -> Answer {
        let local = match family {
            IpFamily::V4 => self.local_v4,
            IpFamily::V6 => self.local_v6,
        };
        let body = format!(
            "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{}\",\n\t\t\"name\": \"{}\"\n\t}},\n\t\"localEndpoints\": {local},\n\t\
             \"serviceProxyHealthy\": {proxier_healthy}\n}}",
            self.service.namespace, self.service.name
        );
        Answer {
            code: if local > 0 && proxier_healthy {
                200
            } else {
                503
            },
            content_type: "application/json",
            weight: Some(local),
            body,
        }
    }
}

/// How the proxier itself is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxierHealth {
    /// No update has been waiting for longer than the limit.
    pub healthy: bool,
    /// The node is neither being deleted nor about to be.
    pub node_eligible: bool,
    /// When rules were last in step, RFC 3339.
    pub last_updated: String,
    /// Now, RFC 3339.
    pub current_time: String,
}

impl ProxierHealth {
    /// The answer for a path of port 10256: `/healthz` (with the node's own state) and `/livez` (without).
    pub fn answer(&self, path: &str) -> Answer {
        let (eligible, word) = match path {
            "/healthz" => (
                self.node_eligible,
                format!("\"nodeEligible\":{},", self.node_eligible),
            ),
            "/livez" => (true, String::new()),
            _ => {
                return Answer {
                    code: 404,
                    content_type: "text/plain; charset=utf-8",
                    weight: None,
                    body: "404 page not found\n".to_owned(),
                };
            }
        };
        let (updated, healthy) = (&self.last_updated, self.healthy);
        let family =
            |name| format!("\"{name}\":{{\"lastUpdated\":\"{updated}\",\"healthy\":{healthy}}}");
        let body = format!(
            "{{\"lastUpdated\":\"{updated}\",\"currentTime\":\"{}\",{word}\"healthy\":{healthy},\"status\":{{{},{}}}}}",
            self.current_time,
            family("IPv4"),
            family("IPv6"),
        );
        Answer {
            code: if healthy && eligible { 200 } else { 503 },
            content_type: "application/json",
            weight: None,
            body,
        }
    }
}
