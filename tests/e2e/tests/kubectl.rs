//! The API server under the real kubectl, from the user's own shell while the demo runs in its namespaces.

use std::{process::ExitCode, time::Duration};

use e2e::{
    demo::Demo,
    shell::{Kubectl, eventually},
};
use lab::{objects::MANIFESTS, trial::Runner};

const PATIENCE: Duration = Duration::from_secs(15);

/// Its name and its body.
type Test = (&'static str, fn(&Kubectl));

fn main() -> ExitCode {
    if !skips::have("kubectl") {
        skips::skip("kubectl", "no kubectl on this machine");
        return ExitCode::SUCCESS;
    }
    let runner = Runner::from_command_line();
    let demo = Demo::start(&["--bare"]);
    let kubectl = Kubectl::new(&demo.kubeconfig);
    let tests: &[Test] = &[
        (
            "create_makes_every_manifest_of_the_demo",
            create_makes_every_manifest,
        ),
        (
            "wait_ends_when_the_address_is_there",
            wait_ends_when_the_address_is_there,
        ),
        (
            "get_prints_the_columns_that_people_know",
            get_prints_the_columns,
        ),
        ("wide_output_names_selector_and_endpoints", wide_output),
        (
            "slices_are_found_by_the_name_of_their_service",
            slices_by_label,
        ),
        ("a_watch_shows_a_service_come_and_go", a_watch_shows),
        ("wrong_input_is_refused_with_the_field_named", wrong_input),
        (
            "a_changed_service_keeps_its_address",
            a_changed_service_keeps_its_address,
        ),
        (
            "delete_takes_a_service_and_its_slices_away",
            delete_takes_away,
        ),
    ];
    for (name, test) in tests {
        runner.run((name, Box::new(|| test(&kubectl))));
    }
    drop(demo);
    runner.run(("ctrl_c_and_kill_9_leave_nothing", Box::new(nothing_is_left)));
    runner.finish()
}

fn create_makes_every_manifest(kubectl: &Kubectl) {
    for (file, text) in MANIFESTS {
        // the namespace of the configuration is there from the start
        let verb = if file.starts_with("10-") {
            "apply"
        } else {
            "create"
        };
        kubectl.good(&format!("{verb} -f -"), text);
    }
    kubectl.good("wait --for=condition=Ready --timeout=15s pod --all", "");
}

fn wait_ends_when_the_address_is_there(kubectl: &Kubectl) {
    for name in ["web", "web-local", "web-dual", "web-sticky"] {
        kubectl.good(&format!("wait --for=jsonpath={{.status.loadBalancer.ingress[0].ip}} --timeout=15s svc/{name}"), "");
    }
    let address = kubectl.good(
        "get svc web -o jsonpath={.status.loadBalancer.ingress[0].ip}",
        "",
    );
    assert!(address.starts_with("192.0.2."), "{address}");
}

/// Cells of a table, the header first
fn cells(table: &str) -> Vec<Vec<String>> {
    table
        .lines()
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

fn field(kubectl: &Kubectl, service: &str, path: &str) -> String {
    kubectl.good(&format!("get svc {service} -o jsonpath={{{path}}}"), "")
}

fn get_prints_the_columns(kubectl: &Kubectl) {
    let table = cells(&kubectl.good("get svc web web-internal web-node db elsewhere", ""));
    let mut rows = table.iter();
    let header = rows.next().expect("a header");
    assert_eq!(
        header,
        &[
            "NAME",
            "TYPE",
            "CLUSTER-IP",
            "EXTERNAL-IP",
            "PORT(S)",
            "AGE"
        ]
    );
    let external = field(kubectl, "web", ".status.loadBalancer.ingress[0].ip");
    let (tcp, udp) = (
        field(kubectl, "web", ".spec.ports[0].nodePort"),
        field(kubectl, "web", ".spec.ports[1].nodePort"),
    );
    let ports = format!("80:{tcp}/TCP,80:{udp}/UDP");
    let ip = |name: &str| field(kubectl, name, ".spec.clusterIP");
    let (web, internal, node) = (ip("web"), ip("web-internal"), ip("web-node"));
    let wanted = [
        ["web", "LoadBalancer", &web, &external, &ports],
        ["web-internal", "ClusterIP", &internal, "<none>", "80/TCP"],
        ["web-node", "NodePort", &node, "<none>", "80:30080/TCP"],
        ["db", "ClusterIP", "None", "<none>", "5432/TCP"],
        [
            "elsewhere",
            "ExternalName",
            "<none>",
            "www.example.org",
            "<none>",
        ],
    ];
    let seen: Vec<&[String]> = rows
        .map(|row| row.split_last().expect("a row has an age").1)
        .collect();
    assert_eq!(seen, wanted);
}

fn wide_output(kubectl: &Kubectl) {
    let services = cells(&kubectl.good("get svc web -o wide", ""));
    assert_eq!(
        services
            .last()
            .and_then(|row| row.last())
            .map(String::as_str),
        Some("app=web")
    );
    let ips = |pod: &str| kubectl.good(&format!("get pod {pod} -o jsonpath={{.status.podIP}}"), "");
    let wanted = vec![vec![
        "db".to_owned(),
        format!("{}:8080,{}:8080", ips("db-0"), ips("db-1")),
    ]];
    eventually(PATIENCE, &wanted, || {
        let endpoints = cells(&kubectl.good("get endpoints db -o wide", ""));
        endpoints
            .into_iter()
            .skip(1)
            .map(|row| row.into_iter().take(2).collect())
            .collect::<Vec<Vec<String>>>()
    });
}

fn slices_by_label(kubectl: &Kubectl) {
    let pods = ["web-a", "web-b"]
        .map(|pod| kubectl.good(&format!("get pod {pod} -o jsonpath={{.status.podIP}}"), ""));
    eventually(PATIENCE, &pods.join(" "), || {
        let line = "get endpointslices -l kubernetes.io/service-name=web -o jsonpath={.items[*].endpoints[*].addresses[0]}";
        let said = kubectl.good(line, "");
        let mut addresses: Vec<&str> = said.split_whitespace().collect();
        addresses.sort_unstable();
        addresses.join(" ")
    });
}

const PASSING: &str =
    "apiVersion: v1\nkind: Service\nmetadata: {name: passing}\nspec:\n  ports: [{port: 80}]\n";

fn a_watch_shows(kubectl: &Kubectl) {
    let watch = kubectl.watch("get svc -w --output-watch-events --no-headers");
    // what is there is listed first: after that line the watch misses nothing
    let mut lines = watch.until(PATIENCE, |line| {
        line.split_whitespace().nth(1) == Some("web")
    });
    kubectl.good("create -f -", PASSING);
    kubectl.good("delete svc passing", "");
    lines.extend(watch.until(PATIENCE, |line| line.starts_with("DELETED")));
    let events: Vec<String> = lines
        .iter()
        .map(|line| {
            line.split_whitespace()
                .take(2)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .filter(|event| event.ends_with(" passing"))
        .collect();
    assert_eq!(events, ["ADDED passing", "DELETED passing"], "{lines:#?}");
}

fn wrong_input(kubectl: &Kubectl) {
    let service = |spec: &str| {
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: wrong}}\nspec: {spec}\n")
    };
    for (spec, named) in [
        ("{ports: [{port: 99999}]}", "spec.ports[0].port"),
        (
            "{ports: [{port: 80, nodePort: 80}], type: NodePort}",
            "spec.ports[0].nodePort",
        ),
        (
            "{ports: [{port: 80}], clusterIP: 192.0.2.1}",
            "spec.clusterIPs",
        ),
        (
            "{ports: [{port: 80}], clusterIP: nonsense}",
            "spec.clusterIPs",
        ),
        ("{ports: [{port: 80}], type: Balancer}", "spec.type"),
        (
            "{ports: [{port: 80}], sessionAffinity: Sometimes}",
            "spec.sessionAffinity",
        ),
        ("{ports: [{port: 80, protokol: TCP}]}", "protokol"),
        ("{ports: [{port: 80}, {port: 81}]}", "spec.ports[0].name"),
        ("{ports: []}", "spec.ports"),
    ] {
        let said = kubectl.run("create -f -", &service(spec));
        assert!(
            !said.good && said.complaint.contains(named),
            "{spec}: {said:?}"
        );
    }
    let pool = "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: wrong, namespace: metallb-system}\nspec: {addresses: 7}\n";
    let said = kubectl.run("create -f -", pool);
    assert!(
        !said.good && said.complaint.contains("spec.addresses"),
        "{said:?}"
    );
}

fn a_changed_service_keeps_its_address(kubectl: &Kubectl) {
    let before = field(kubectl, "web", ".status.loadBalancer.ingress[0].ip");
    kubectl.good("label svc web tier=front", "");
    kubectl.good(
        "patch svc web -p {\"spec\":{\"sessionAffinity\":\"ClientIP\"}}",
        "",
    );
    assert_eq!(field(kubectl, "web", ".spec.sessionAffinity"), "ClientIP");
    assert_eq!(
        field(kubectl, "web", ".status.loadBalancer.ingress[0].ip"),
        before
    );
}

fn delete_takes_away(kubectl: &Kubectl) {
    kubectl.good("delete svc web-node", "");
    let said = kubectl.run("get svc web-node", "");
    assert!(
        !said.good && said.complaint.contains("NotFound"),
        "{said:?}"
    );
    eventually(PATIENCE, &String::new(), || {
        kubectl.good(
            "get endpointslices -l kubernetes.io/service-name=web-node -o name",
            "",
        )
    });
}

/// Processes whose environment or arguments name the demo's folder
fn processes_of(folder: &str) -> Vec<String> {
    let numbers = std::fs::read_dir("/proc")
        .expect("/proc is there")
        .filter_map(Result::ok);
    numbers
        .filter_map(|entry| {
            let read = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
            let text = [read("environ"), read("cmdline")].concat();
            let text = String::from_utf8_lossy(&text).into_owned();
            text.contains(folder)
                .then(|| entry.file_name().to_string_lossy().into_owned())
        })
        .collect()
}

fn nothing_is_left() {
    for signal in ["-INT", "-KILL"] {
        let mut demo = Demo::start(&["--bare"]);
        let folder = demo
            .kubeconfig
            .parent()
            .expect("a file lies in a folder")
            .display()
            .to_string();
        assert!(!processes_of(&folder).is_empty(), "the demo runs");
        let number = demo.process.id().to_string();
        let killed = std::process::Command::new("kill")
            .args([signal, &number])
            .status();
        assert!(killed.expect("kill starts").success());
        let status = demo.ended();
        if signal == "-INT" {
            assert_eq!(status.code(), Some(130));
            assert!(
                !std::path::Path::new(&folder).exists(),
                "{folder} is still there"
            );
        }
        eventually(PATIENCE, &Vec::<String>::new(), || processes_of(&folder));
    }
}
