use serde_json::{Value, json};

use super::*;
use crate::testing::{patched, pod, service, terminating, unready};

fn made(service: &Service, pods: &[Pod]) -> Endpoints {
    let pods: Vec<&Pod> = pods.iter().collect();
    let Some(Write::Create(made)) = plan(service, &pods, None) else {
        panic!("an object is needed");
    };
    assert_eq!(
        plan(service, &pods, Some(&made)),
        None,
        "a second plan has something to do"
    );
    made
}

fn web(spec: &Value) -> Service {
    let mut all = json!({"ports": [{"port": 80, "targetPort": 8080}]});
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    service(&all)
}

/// The subsets in a line each: ports, ready addresses, others.
fn lines(endpoints: &Endpoints) -> Vec<String> {
    let names = |list: &Option<Vec<EndpointAddress>>| {
        let addresses = list.iter().flatten().map(|address| {
            let host = address
                .hostname
                .as_ref()
                .map_or(String::new(), |host| format!(" {host}"));
            format!("{}{host}", address.ip)
        });
        addresses.collect::<Vec<_>>().join(", ")
    };
    endpoints
        .subsets
        .iter()
        .flatten()
        .map(|subset| {
            let ports = subset.ports.iter().flatten().map(|port| {
                format!(
                    "{}:{}/{}",
                    port.name.as_deref().unwrap_or_default(),
                    port.port,
                    port.protocol.as_deref().unwrap()
                )
            });
            let ports = ports.collect::<Vec<_>>().join(" ");
            format!(
                "[{ports}] {} | {}",
                names(&subset.addresses),
                names(&subset.not_ready_addresses)
            )
        })
        .collect()
}

#[test]
fn a_service_whose_selector_matches_nothing_has_an_empty_object() {
    let wanted: Endpoints = serde_json::from_value(json!({
        "metadata": {
            "namespace": "demo",
            "name": "web",
            "labels": {"team": "x", "endpoints.kubernetes.io/managed-by": "endpoint-controller"},
        },
        "subsets": [],
    }))
    .unwrap();
    assert_eq!(made(&web(&json!({})), &[]), wanted);
}

#[test]
fn ready_and_other_pods_are_kept_apart_and_terminating_ones_out() {
    let pods = [
        pod("b", 1),
        pod("a", 0),
        unready(&pod("c", 2)),
        terminating(&pod("d", 3)),
    ];
    assert_eq!(
        lines(&made(&web(&json!({})), &pods)),
        ["[:8080/TCP] 10.1.0.1, 10.1.0.2 | 10.1.0.3"]
    );
    assert_eq!(
        lines(&made(
            &web(&json!({"publishNotReadyAddresses": true})),
            &pods
        )),
        ["[:8080/TCP] 10.1.0.1, 10.1.0.2, 10.1.0.3, 10.1.0.4 | "]
    );
}

#[test]
fn a_pod_whose_node_is_unknown_counts_and_one_without_a_node_does_not() {
    let pods = [
        patched(&pod("a", 0), &json!({"spec": {"nodeName": "n9"}})),
        patched(&pod("b", 1), &json!({"spec": {"nodeName": null}})),
    ];
    assert_eq!(
        lines(&made(&web(&json!({})), &pods)),
        ["[:8080/TCP] 10.1.0.1 | "]
    );
}

#[test]
fn addresses_are_grouped_by_the_ports_they_offer() {
    let other = patched(
        &pod("b", 1),
        &json!({"spec": {"containers": [{"name": "c", "ports": [{"name": "other", "containerPort": 1}]}]}}),
    );
    let pods = [pod("a", 0), other];
    let http = json!({"name": "h", "port": 80, "targetPort": "http"});
    assert_eq!(
        lines(&made(&web(&json!({"ports": [http]})), &pods)),
        ["[h:8080/TCP] 10.1.0.1 | "]
    );
    let both = json!({"ports": [http, {"name": "o", "port": 81, "targetPort": "other"}]});
    assert_eq!(
        lines(&made(&web(&both), &pods)),
        ["[h:8080/TCP] 10.1.0.1 | ", "[o:1/TCP] 10.1.0.2 | "]
    );
}

#[test]
fn a_headless_service_needs_no_ports_and_names_its_pods() {
    let pods = [patched(
        &pod("web-0", 0),
        &json!({"spec": {"hostname": "web-0", "subdomain": "web"}}),
    )];
    let endpoints = made(&web(&json!({"clusterIP": "None", "ports": null})), &pods);
    assert_eq!(lines(&endpoints), ["[] 10.1.0.1 web-0 | "]);
    let labels = endpoints.metadata.labels.unwrap();
    assert_eq!(
        labels
            .get("service.kubernetes.io/headless")
            .map(String::as_str),
        Some("")
    );
}

#[test]
fn only_the_first_family_counts() {
    let six = web(&json!({"ipFamilies": ["IPv6", "IPv4"]}));
    assert_eq!(
        lines(&made(&six, &[pod("a", 0)])),
        ["[:8080/TCP] fd00:1::1 | "]
    );
}

#[test]
fn more_than_a_thousand_addresses_are_cut_ready_ones_last() {
    let mut pods: Vec<Pod> = (0..1050).map(|n| pod(&format!("p{n}"), n)).collect();
    pods[3] = unready(&pods[3]);
    let endpoints = made(&web(&json!({})), &pods);
    let subset = &endpoints.subsets.as_ref().unwrap()[0];
    assert_eq!(subset.addresses.as_ref().unwrap().len(), 1000);
    assert_eq!(subset.not_ready_addresses, None);
    assert_eq!(endpoints.metadata.annotations, Some(over_capacity()));
    // fewer again: the annotation goes
    let few: Vec<&Pod> = pods.iter().take(2).collect();
    let Some(Write::Update(after)) = plan(&web(&json!({})), &few, Some(&endpoints)) else {
        panic!("the object changes");
    };
    assert_eq!(after.metadata.annotations, Some(BTreeMap::new()));
    assert_eq!(lines(&after), ["[:8080/TCP] 10.1.0.1, 10.1.0.2 | "]);
}

#[test]
fn services_that_name_no_pods_are_left_alone() {
    for spec in [json!({"selector": null}), json!({"type": "ExternalName"})] {
        assert_eq!(plan(&web(&spec), &[&pod("a", 0)], None), None, "{spec}");
    }
}
