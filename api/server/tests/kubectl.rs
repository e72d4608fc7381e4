//! The server under the real kubectl: what a user types, and what comes back.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Write;
use std::process::{Command, Output, Stdio};

use api_server::Config;
use common::{Served, serve};

const MANIFEST: &str = "
apiVersion: v1
kind: Service
metadata:
  name: web
  labels: {app: web}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.80
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 8080, nodePort: 30080}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
endpoints:
- addresses: [10.244.1.7]
ports:
- {name: http, port: 8080, protocol: TCP}
";

struct Kubectl {
    kubeconfig: std::path::PathBuf,
}

impl Kubectl {
    /// Nothing where kubectl is not installed; the skip is listed.
    fn new(served: &Served, name: &str) -> Option<Self> {
        if Command::new("kubectl")
            .arg("version")
            .arg("--client")
            .output()
            .is_err()
        {
            skips::skip("kubectl", "no kubectl on this machine");
            return None;
        }
        let kubeconfig =
            std::env::temp_dir().join(format!("api-server-{name}-{}", std::process::id()));
        std::fs::write(&kubeconfig, &served.kubeconfig).unwrap();
        Some(Self { kubeconfig })
    }

    fn run(&self, line: &str, stdin: &str) -> Output {
        let mut child = Command::new("kubectl")
            .args(line.split(' '))
            .arg(format!("--cache-dir={}-cache", self.kubeconfig.display()))
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(stdin.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    /// Standard output of a command that must succeed, its columns separated by one blank and ages left out.
    fn ok(&self, line: &str, stdin: &str) -> String {
        let output = self.run(line, stdin);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {line}: {error}");
        let text = String::from_utf8(output.stdout).unwrap();
        let words = |line: &str| {
            let words = line.split_whitespace();
            let age = |word: &&str| {
                word.len() < 5
                    && word.ends_with('s')
                    && word.starts_with(|first: char| first.is_ascii_digit())
            };
            words
                .map(|word| if age(&word) { "AGO" } else { word })
                .collect::<Vec<_>>()
                .join(" ")
        };
        text.lines().map(words).collect::<Vec<_>>().join("\n")
    }

    fn refused(&self, line: &str, stdin: &str) -> String {
        let output = self.run(line, stdin);
        assert!(!output.status.success(), "kubectl {line} was not refused");
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Kubectl {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
        let _ = std::fs::remove_dir_all(format!("{}-cache", self.kubeconfig.display()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_creates_looks_changes_waits_and_deletes() {
    let served = serve(&Config::default());
    let Some(kubectl) = Kubectl::new(&served, "user") else {
        return;
    };
    assert_eq!(
        kubectl.ok("create -f -", MANIFEST),
        "service/web created\nendpointslice.discovery.k8s.io/web-1 created"
    );
    assert_eq!(
        kubectl.ok("get svc -o wide", ""),
        "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE SELECTOR\nweb LoadBalancer 10.96.0.80 <pending> 80:30080/TCP AGO app=web"
    );
    assert_eq!(
        kubectl.ok("get endpointslices -l kubernetes.io/service-name=web", ""),
        "NAME ADDRESSTYPE PORTS ENDPOINTS AGE\nweb-1 IPv4 8080 10.244.1.7 AGO"
    );
    assert_eq!(
        kubectl.ok("label svc web tier=front", ""),
        "service/web labeled"
    );
    assert_eq!(
        kubectl.ok("annotate svc web note=x", ""),
        "service/web annotated"
    );
    assert_eq!(
        kubectl
            .ok(
                "apply -f -",
                &MANIFEST.replace("targetPort: 8080", "targetPort: http")
            )
            .lines()
            .next(),
        Some("service/web configured")
    );
    let patch = "patch svc web --subresource=status --type=merge -p {\"status\":{\"loadBalancer\":{\"ingress\":[{\"ip\":\"192.0.2.10\"}]}}}";
    assert_eq!(kubectl.ok(patch, ""), "service/web patched");
    let wait =
        "wait svc/web --for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.0.2.10 --timeout=10s";
    assert_eq!(kubectl.ok(wait, ""), "service/web condition met");
    assert_eq!(
        kubectl.ok("get svc", ""),
        "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE\nweb LoadBalancer 10.96.0.80 192.0.2.10 80:30080/TCP AGO"
    );
    let described = kubectl.ok("describe svc web", "");
    assert!(
        described.contains("\nLoadBalancer Ingress: 192.0.2.10 (VIP)\n"),
        "{described}"
    );
    assert!(
        described.contains("\nEndpoints: 10.244.1.7:8080\n"),
        "{described}"
    );
    assert_eq!(
        kubectl.ok("delete svc web", "").split(" from ").next(),
        Some("service \"web\" deleted")
    );
    assert!(
        kubectl
            .refused("get svc web", "")
            .contains("services \"web\" not found")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_user_sees_the_change_as_a_row() {
    let served = serve(&Config::default());
    let Some(kubectl) = Kubectl::new(&served, "watch") else {
        return;
    };
    kubectl.ok("create -f -", MANIFEST);
    let mut watch = Command::new("kubectl")
        .args([
            "get",
            "svc",
            "-w",
            "--no-headers",
            "-o",
            "custom-columns=N:.metadata.name,A:.metadata.annotations.a",
        ])
        .env("KUBECONFIG", &kubectl.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    let mut next = || {
        lines
            .next()
            .unwrap()
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(next(), "web <none>");
    kubectl.ok("annotate svc web a=b", "");
    assert_eq!(next(), "web b");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_input_is_refused_with_the_field_named() {
    let served = serve(&Config::default());
    let Some(kubectl) = Kubectl::new(&served, "wrong") else {
        return;
    };
    served.server.install_crds(api_types::crds()).unwrap();
    let pool = "apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: p, namespace: metallb-system}
spec: {addresses: [192.0.2.9-192.0.2.1]}";
    let error = kubectl.refused("create -f -", pool);
    assert!(
        error.contains("spec.addresses[0]: Invalid value: \"192.0.2.9-192.0.2.1\""),
        "{error}"
    );
    let table = [
        (
            "port: 80,",
            "port: 80000,",
            "spec.ports[0].port: Invalid value: 80000: must be between 1 and 65535, inclusive",
        ),
        ("port: 80,", "port: eighty,", "spec.ports[0].port"),
        (
            "nodePort: 30080",
            "nodePort: 80",
            "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range",
        ),
        (
            "type: LoadBalancer",
            "typ: LoadBalancer",
            "unknown field \"spec.typ\"",
        ),
        (
            "10.96.0.80",
            "10.97.0.1",
            "spec.clusterIPs: Invalid value: [\"10.97.0.1\"]: failed to allocate IP 10.97.0.1",
        ),
        (
            "10.244.1.7",
            "10.244.1.700",
            "endpoints[0].addresses[0]: Invalid value: \"10.244.1.700\"",
        ),
    ];
    for (good, bad, said) in table {
        let error = kubectl.refused("create -f -", &MANIFEST.replacen(good, bad, 1));
        assert!(error.contains(said), "{bad}: {error}");
        kubectl.run("delete svc web --ignore-not-found", "");
    }
}
