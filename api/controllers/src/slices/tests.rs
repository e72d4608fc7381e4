use serde_json::{Value, json};

use super::*;
use crate::testing::{nodes, patched, pod, service, terminating, unready};

/// A server that has only slices: writes go in, names come out.
#[derive(Default)]
struct Slices {
    stored: BTreeMap<String, EndpointSlice>,
    made: usize,
}

/// How many slices a plan created, updated and deleted.
type Count = (usize, usize, usize);

impl Slices {
    /// Plans, applies, and checks that a second plan has nothing to do and that no slice is too large.
    fn sync(&mut self, service: &Service, pods: &[Pod]) -> Count {
        let pods: Vec<&Pod> = pods.iter().collect();
        let existing: Vec<&EndpointSlice> = self.stored.values().collect();
        let writes = plan(service, &pods, &nodes(), &existing);
        let mut count = (0, 0, 0);
        for write in writes {
            match write {
                Write::Create(mut slice) => {
                    self.made += 1;
                    let name = format!(
                        "{}{:03}",
                        slice.metadata.generate_name.take().unwrap(),
                        self.made
                    );
                    slice.metadata.name = Some(name.clone());
                    self.stored.insert(name, slice);
                    count.0 += 1;
                }
                Write::Update(slice) => {
                    self.stored
                        .insert(slice.metadata.name.clone().unwrap(), slice);
                    count.1 += 1;
                }
                Write::Delete(slice) => {
                    self.stored
                        .remove(slice.metadata.name.as_ref().unwrap())
                        .unwrap();
                    count.2 += 1;
                }
            }
        }
        let existing: Vec<&EndpointSlice> = self.stored.values().collect();
        assert_eq!(
            plan(service, &pods, &nodes(), &existing),
            [],
            "a second plan has something to do"
        );
        assert!(self.sizes().iter().all(|size| *size <= MAX_ENDPOINTS));
        count
    }

    fn sizes(&self) -> Vec<usize> {
        let mut sizes: Vec<usize> = self
            .stored
            .values()
            .map(|slice| slice.endpoints.iter().flatten().count())
            .collect();
        sizes.sort_by(|a, b| b.cmp(a));
        sizes
    }

    /// The slices in a line each: family, ports, endpoints with their state.
    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .stored
            .values()
            .map(|slice| {
                let ports: Vec<String> = slice
                    .ports
                    .iter()
                    .flatten()
                    .map(|p| {
                        format!(
                            "{}:{}/{}",
                            p.name.as_deref().unwrap(),
                            p.port.unwrap(),
                            p.protocol.as_deref().unwrap()
                        )
                    })
                    .collect();
                let endpoints: Vec<String> = slice.endpoints.iter().flatten().map(line).collect();
                format!(
                    "{} [{}] {}",
                    slice.address_type,
                    ports.join(" "),
                    endpoints.join(", ")
                )
            })
            .collect();
        lines.sort();
        lines
    }
}

fn line(endpoint: &Endpoint) -> String {
    let conditions = endpoint.conditions.as_ref().unwrap();
    let flag = |value: Option<bool>, letter: char| if value.unwrap() { letter } else { '-' };
    let mut text = format!(
        "{} {}{}{}",
        endpoint.addresses.join("+"),
        flag(conditions.ready, 'r'),
        flag(conditions.serving, 's'),
        flag(conditions.terminating, 't')
    );
    for part in [&endpoint.hostname, &endpoint.zone].into_iter().flatten() {
        text = format!("{text} {part}");
    }
    if let Some(hints) = &endpoint.hints {
        let zones = hints
            .for_zones
            .iter()
            .flatten()
            .map(|zone| zone.name.clone());
        let nodes = hints
            .for_nodes
            .iter()
            .flatten()
            .map(|node| node.name.clone());
        text = format!(
            "{text} for {}",
            zones.chain(nodes).collect::<Vec<_>>().join("+")
        );
    }
    text
}

fn web(spec: &Value) -> Service {
    let mut all = json!({"ports": [{"port": 80, "targetPort": 8080}]});
    for (key, value) in spec.as_object().unwrap() {
        all[key] = value.clone();
    }
    service(&all)
}

#[test]
fn a_service_without_pods_has_one_empty_slice() {
    let mut slices = Slices::default();
    assert_eq!(slices.sync(&web(&json!({})), &[]), (1, 0, 0));
    let slice = slices.stored.values().next().unwrap();
    let wanted: EndpointSlice = serde_json::from_value(json!({
        "metadata": {
            "name": "web-001",
            "namespace": "demo",
            "labels": {
                "team": "x",
                "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
            },
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Service", "name": "web", "uid": "s1", "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "addressType": "IPv4",
        "endpoints": [],
        "ports": [],
    }))
    .unwrap();
    assert_eq!(*slice, wanted);
    // the first pod moves into it
    assert_eq!(slices.sync(&web(&json!({})), &[pod("a", 0)]), (0, 1, 0));
    assert_eq!(slices.lines(), ["IPv4 [:8080/TCP] 10.1.0.1 rs- a"]);
    // and back
    assert_eq!(slices.sync(&web(&json!({})), &[]), (0, 1, 0));
    assert_eq!(slices.lines(), ["IPv4 [] "]);
}

#[test]
fn conditions_follow_readiness_and_deletion() {
    let (a, b, c, d) = (pod("a", 0), pod("b", 1), pod("c", 2), pod("d", 3));
    let pods = [a, unready(&b), terminating(&c), terminating(&unready(&d))];
    let mut slices = Slices::default();
    slices.sync(&web(&json!({})), &pods);
    assert_eq!(
        slices.lines(),
        ["IPv4 [:8080/TCP] 10.1.0.1 rs- a, 10.1.0.2 --- a, 10.1.0.3 -st a, 10.1.0.4 --t a"]
    );
    let mut slices = Slices::default();
    slices.sync(&web(&json!({"publishNotReadyAddresses": true})), &pods);
    assert_eq!(
        slices.lines(),
        ["IPv4 [:8080/TCP] 10.1.0.1 rs- a, 10.1.0.2 r-- a, 10.1.0.3 rst a, 10.1.0.4 r-t a"]
    );
}

#[test]
fn pods_that_cannot_be_reached_are_left_out() {
    let pods = [
        patched(
            &pod("no-address", 0),
            &json!({"status": {"podIP": null, "podIPs": null}}),
        ),
        patched(&pod("ended", 1), &json!({"status": {"phase": "Succeeded"}})),
        patched(&pod("no-node", 2), &json!({"spec": {"nodeName": null}})),
        patched(
            &pod("unknown-node", 3),
            &json!({"spec": {"nodeName": "n9"}}),
        ),
        patched(
            &pod("other-app", 4),
            &json!({"metadata": {"labels": {"app": "other"}}}),
        ),
        patched(
            &pod("other-namespace", 5),
            &json!({"metadata": {"namespace": "prod"}}),
        ),
    ];
    let mut slices = Slices::default();
    slices.sync(&web(&json!({})), &pods);
    assert_eq!(slices.lines(), ["IPv4 [] "]);
}

#[test]
fn pods_with_another_number_behind_a_named_port_have_their_own_slice() {
    let ports = |list: Value| {
        patched(
            &pod("x", 0),
            &json!({"spec": {"containers": [{"name": "c", "ports": list}]}}),
        )
    };
    let named = |name: &str, number: u16, list: Value| {
        let mut new = ports(list);
        let base = pod(name, number);
        new.metadata = base.metadata;
        new.status = base.status;
        new
    };
    let pods = [
        pod("a", 0),
        named("b", 1, json!([{"name": "http", "containerPort": 9090}])),
        pod("c", 2),
        named("d", 3, json!([{"name": "other", "containerPort": 1}])),
        named(
            "e",
            4,
            json!([{"name": "http", "containerPort": 53, "protocol": "UDP"}]),
        ),
    ];
    let mut slices = Slices::default();
    let http = json!({"ports": [{"name": "h", "port": 80, "targetPort": "http"}]});
    slices.sync(&web(&http), &pods);
    assert_eq!(
        slices.lines(),
        [
            "IPv4 [] 10.1.0.4 rs- a, 10.1.0.5 rs- a",
            "IPv4 [h:8080/TCP] 10.1.0.1 rs- a, 10.1.0.3 rs- a",
            "IPv4 [h:9090/TCP] 10.1.0.2 rs- a",
        ]
    );
    let numbers = json!({"ports": [{"name": "h", "port": 80, "targetPort": 8080}, {"name": "u", "port": 80, "protocol": "UDP", "targetPort": 53}]});
    assert_eq!(slices.sync(&web(&numbers), &pods), (0, 1, 2));
    assert_eq!(
        slices.lines(),
        [
            "IPv4 [h:8080/TCP u:53/UDP] 10.1.0.1 rs- a, 10.1.0.2 rs- a, 10.1.0.3 rs- a, 10.1.0.4 rs- a, 10.1.0.5 rs- a"
        ]
    );
}

#[test]
fn each_family_has_slices_and_a_dropped_family_has_none() {
    let pods = [
        pod("a", 0),
        patched(
            &pod("b", 1),
            &json!({"status": {"podIPs": [{"ip": "10.1.0.2"}]}}),
        ),
        patched(
            &pod("c", 2),
            &json!({"status": {"podIP": "fd00:1::3", "podIPs": [{"ip": "fd00:1::3"}]}}),
        ),
    ];
    let mut slices = Slices::default();
    let both = json!({"ipFamilies": ["IPv4", "IPv6"]});
    assert_eq!(slices.sync(&web(&both), &pods), (2, 0, 0));
    assert_eq!(
        slices.lines(),
        [
            "IPv4 [:8080/TCP] 10.1.0.1 rs- a, 10.1.0.2 rs- a",
            "IPv6 [:8080/TCP] fd00:1::1 rs- a, fd00:1::3 rs- a",
        ]
    );
    assert_eq!(slices.sync(&web(&json!({})), &pods), (0, 0, 1));
    assert_eq!(
        slices.lines(),
        ["IPv4 [:8080/TCP] 10.1.0.1 rs- a, 10.1.0.2 rs- a"]
    );
}

#[test]
fn a_headless_service_says_so_and_names_its_pods() {
    let host =
        |name: &str, number, spec: Value| patched(&pod(name, number), &json!({"spec": spec}));
    let pods = [
        host("web-0", 0, json!({"hostname": "web-0", "subdomain": "web"})),
        host("b", 1, json!({"hostname": "b", "subdomain": "other"})),
        host("c", 2, json!({"hostname": "c"})),
        host("d", 3, json!({"subdomain": "web"})),
    ];
    let mut slices = Slices::default();
    let mut headless = web(&json!({"clusterIP": "None", "ports": null}));
    headless
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert(HEADLESS_LABEL.to_owned(), "lie".to_owned());
    slices.sync(&headless, &pods);
    assert_eq!(
        slices.lines(),
        ["IPv4 [] 10.1.0.2 rs- a, 10.1.0.3 rs- a, 10.1.0.4 rs- a, 10.1.0.1 rs- web-0 a"]
    );
    let slice = slices.stored.values().next().unwrap();
    let labels = slice.metadata.labels.as_ref().unwrap();
    assert_eq!(labels.get(HEADLESS_LABEL).map(String::as_str), Some(""));
}

const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

#[test]
fn traffic_distribution_becomes_hints_on_ready_endpoints() {
    let on = |name: &str, number, node: &str| {
        patched(&pod(name, number), &json!({"spec": {"nodeName": node}}))
    };
    let pods = [
        on("a", 0, "n1"),
        on("b", 1, "n2"),
        on("c", 2, "n3"),
        unready(&on("d", 3, "n1")),
    ];
    for (distribution, wanted) in [
        (
            json!(null),
            "10.1.0.1 rs- a, 10.1.0.2 rs- b, 10.1.0.3 rs-, 10.1.0.4 --- a",
        ),
        (
            json!("PreferClose"),
            "10.1.0.1 rs- a for a, 10.1.0.2 rs- b for b, 10.1.0.3 rs-, 10.1.0.4 --- a",
        ),
        (
            json!("PreferSameZone"),
            "10.1.0.1 rs- a for a, 10.1.0.2 rs- b for b, 10.1.0.3 rs-, 10.1.0.4 --- a",
        ),
        (
            json!("PreferSameNode"),
            "10.1.0.1 rs- a for a+n1, 10.1.0.2 rs- b for b+n2, 10.1.0.3 rs- for n3, 10.1.0.4 --- a",
        ),
    ] {
        let mut slices = Slices::default();
        slices.sync(&web(&json!({"trafficDistribution": distribution})), &pods);
        assert_eq!(slices.lines(), [format!("IPv4 [:8080/TCP] {wanted}")]);
    }
}

#[test]
fn one_pod_of_250_that_changes_writes_one_slice() {
    let mut pods: Vec<Pod> = (0..250).map(|n| pod(&format!("p{n}"), n)).collect();
    let mut slices = Slices::default();
    assert_eq!(slices.sync(&web(&json!({})), &pods), (3, 0, 0));
    assert_eq!(slices.sizes(), [100, 100, 50]);
    pods[7] = unready(&pods[7]);
    assert_eq!(slices.sync(&web(&json!({})), &pods), (0, 1, 0));
    pods.remove(8);
    assert_eq!(slices.sync(&web(&json!({})), &pods), (0, 1, 0));
    pods.push(pod("extra", 1000));
    assert_eq!(slices.sync(&web(&json!({})), &pods), (0, 1, 0));
    assert_eq!(slices.sizes().iter().sum::<usize>(), 250);
    // a replacement goes where the hole is
    pods[20] = pod("replacement", 1001);
    assert_eq!(slices.sync(&web(&json!({})), &pods), (0, 1, 0));
    // a label of the Service is on all of them
    let mut labelled = web(&json!({}));
    labelled
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert("x".to_owned(), "y".to_owned());
    assert_eq!(slices.sync(&labelled, &pods), (0, 3, 0));
}

#[test]
fn what_somebody_else_did_to_a_slice_is_undone() {
    let pods = [pod("a", 0)];
    let mut slices = Slices::default();
    slices.sync(&web(&json!({})), &pods);
    let before = slices.stored.clone();
    let slice = slices.stored.values_mut().next().unwrap();
    slice.endpoints = Some(Vec::new());
    slice
        .metadata
        .labels
        .as_mut()
        .unwrap()
        .insert("foreign".to_owned(), "1".to_owned());
    assert_eq!(slices.sync(&web(&json!({})), &pods), (0, 1, 0));
    assert_eq!(slices.stored, before);
    slices.stored.clear();
    assert_eq!(slices.sync(&web(&json!({})), &pods), (1, 0, 0));
}

#[test]
fn services_that_name_no_pods_are_left_alone() {
    let mut slices = Slices::default();
    slices.sync(&web(&json!({})), &[pod("a", 0)]);
    for spec in [
        json!({"selector": null}),
        json!({"selector": {}}),
        json!({"type": "ExternalName"}),
    ] {
        assert_eq!(
            slices.sync(&web(&spec), &[pod("b", 1)]),
            (0, 0, 0),
            "{spec}"
        );
    }
}

/// Pods come and go by a fixed pattern; after each step the slices hold exactly the pods there are.
#[test]
fn slices_hold_exactly_the_pods_after_any_sequence() {
    let mut random = 0x9e37_79b9_u32;
    let mut draw = |below: usize| {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        random as usize % below
    };
    let mut slices = Slices::default();
    let mut pods: Vec<Pod> = Vec::new();
    let mut next = 0_u16;
    for _ in 0..60 {
        if draw(3) == 0 && !pods.is_empty() {
            for _ in 0..draw(pods.len().min(90)) {
                pods.swap_remove(draw(pods.len()));
            }
        } else {
            for _ in 0..draw(80) {
                next += 1;
                pods.push(pod(&format!("p{next}"), next));
            }
        }
        slices.sync(&web(&json!({})), &pods);
        let held: BTreeSet<String> = slices
            .stored
            .values()
            .flat_map(|slice| slice.endpoints.iter().flatten())
            .map(|endpoint| endpoint.target_ref.as_ref().unwrap().name.clone().unwrap())
            .collect();
        let there: BTreeSet<String> = pods
            .iter()
            .map(|pod| pod.metadata.name.clone().unwrap())
            .collect();
        assert_eq!(held, there);
        assert_eq!(
            slices.sizes().iter().sum::<usize>(),
            pods.len(),
            "no pod stands twice"
        );
    }
}
