//! Health check node ports, asked from the client while their scenario is loaded.
//!
//! Owns the comparison: code, headers and body to the letter, both families.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use api_model::IpFamily;

use crate::{
    facts::HealthRow,
    http::{Answer, get},
    probe::Prober,
    report::Verdict,
    scenario::Scenario,
};

/// How long an answer may take to become the expected one.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks for one row.
pub fn ask(row: &HealthRow, scenario: &Scenario, prober: &Prober<'_>) -> Verdict {
    let unsupported = |why: &str| Verdict::Unsupported(why.to_owned());
    let Some(port) = scenario.health_check_node_port() else {
        return unsupported("the Service has no healthCheckNodePort");
    };
    let node = prober.topology.members.get(&row.node);
    let Some(node) = node.filter(|_| prober.topology.nodes.contains_key(&row.node)) else {
        return unsupported("no such node");
    };
    let expected = expected(row, &scenario.asked_key().to_string());
    for family in [IpFamily::V4, IpFamily::V6] {
        let at = SocketAddr::new(node.of(family), port);
        // the listeners follow on a thread of their own
        let deadline = Instant::now() + PATIENCE;
        let mut got = asked(prober, at);
        while got != expected && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            got = asked(prober, at);
        }
        if got != expected {
            let got = format!("{family}: {got}");
            return Verdict::Fail { expected, got };
        }
    }
    Verdict::Pass
}

fn asked(prober: &Prober<'_>, at: SocketAddr) -> String {
    let got = prober.network.space("client").run(|| get(at, "/"));
    got.map_or_else(|error| error.to_string(), |answer| said(&answer))
}

/// What counts of an answer, as one text.
fn said(answer: &Answer) -> String {
    let names = [
        "content-type",
        "x-content-type-options",
        "x-load-balancing-endpoint-weight",
    ];
    let headers = names.map(|name| answer.headers.get(name).map_or("-", String::as_str));
    format!("{} [{}] {:?}", answer.code, headers.join(", "), answer.body)
}

fn expected(row: &HealthRow, service: &str) -> String {
    let HealthRow {
        code,
        weight,
        local_endpoints,
        service_proxy_healthy,
        ..
    } = row;
    let (namespace, name) = service.split_once('/').unwrap_or(("default", service));
    let body = format!(
        "{{\n\t\"service\": {{\n\t\t\"namespace\": \"{namespace}\",\n\t\t\"name\": \"{name}\"\n\t}},\n\t\
         \"localEndpoints\": {local_endpoints},\n\t\"serviceProxyHealthy\": {service_proxy_healthy}\n}}"
    );
    format!("{code} [application/json, nosniff, {weight}] {body:?}")
}
