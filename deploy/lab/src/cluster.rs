//! The whole cluster of the lab: control plane in this process, an allocator and a speaker per node as children.
//!
//! Owns what is started and in which order. Never writes a Service's status nor a slice.

use std::{net::TcpListener, path::PathBuf};

use kube::Client;
use tokio::task::JoinSet;

use crate::{
    control_plane::{ControlPlane, Settings},
    error::{Doing as _, Error, Result},
    kubelet,
    look::NAMESPACE,
    processes::Processes,
    router::Router,
    sandbox::Inside,
    topology::{API, Node, Topology},
};

/// Port of the API server on the lab's LAN.
const API_PORT: u16 = 6443;

/// How the cluster is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `roadstead` program.
    pub binary: PathBuf,
    /// Run gobgpd as the router.
    pub with_bgp: bool,
    /// Whether the API server checks configuration beyond its CRDs.
    pub check_configuration: bool,
}

/// A running cluster; dropping it ends it.
pub struct Cluster {
    /// Its network.
    pub topology: Topology,
    /// A client with all rights.
    pub client: Client,
    /// The router's BGP daemon, where the machine has one.
    pub router: Option<Router>,
    /// For the user's shell.
    pub kubeconfig: PathBuf,
    processes: Processes,
    /// The node that is powered off.
    off: Option<String>,
    kubeconfig_on_the_lan: PathBuf,
    _tasks: JoinSet<()>,
}

impl Cluster {
    /// Builds the network and starts everything in it.
    pub async fn start(inside: Inside, options: Options) -> Result<Self> {
        let topology = Topology::build()?;
        let folder = inside.folder;
        let lan = TcpListener::bind((API, API_PORT)).doing("listening on the lab's LAN")?;
        let mut tasks = JoinSet::new();
        let settings = Settings {
            folder: folder.clone(),
            namespace: NAMESPACE.to_owned(),
            service_cidrs: Vec::new(),
            check_configuration: options.check_configuration,
        };
        let listeners = vec![inside.listener, lan];
        let control_plane = ControlPlane::start(listeners, &settings, &mut tasks).await?;
        let ControlPlane {
            client,
            kubeconfigs,
        } = control_plane;
        let [kubeconfig, kubeconfig_on_the_lan] = <[PathBuf; 2]>::try_from(kubeconfigs)
            .map_err(|_| Error::because("starting the API server", "not two kubeconfig files"))?;
        kubelet::register(&client, &topology).await?;
        tasks.spawn(kubelet::run(client.clone(), topology.nodes.clone()));
        let router = options
            .with_bgp
            .then(|| Router::start(&topology.router, &folder))
            .transpose()?;
        let mut cluster = Self {
            topology,
            client,
            router,
            kubeconfig,
            processes: Processes::new(options.binary, folder),
            off: None,
            kubeconfig_on_the_lan,
            _tasks: tasks,
        };
        cluster.start_allocator()?;
        for node in cluster.topology.nodes.clone() {
            cluster.start_speaker(&node)?;
        }
        Ok(cluster)
    }

    /// Starts the allocator, beside the API server.
    pub fn start_allocator(&mut self) -> Result<()> {
        let kubeconfig = self.kubeconfig_on_the_lan.display().to_string();
        let arguments = ["allocator", "--kubeconfig", &kubeconfig];
        self.processes
            .start("allocator", &self.topology.lan, &arguments)
    }

    /// Kills the allocator.
    pub fn kill_allocator(&mut self) -> Result<()> {
        self.processes.kill("allocator")
    }

    /// Starts a node's speaker.
    pub fn start_speaker(&mut self, node: &Node) -> Result<()> {
        let (name, kubeconfig) = (
            node.name(),
            self.kubeconfig_on_the_lan.display().to_string(),
        );
        let arguments = [
            "speaker",
            "--kubeconfig",
            &kubeconfig,
            "--node-name",
            &name,
            "--service-cluster-ip-range",
            "10.96.0.0/16,fd00:10:96::/112",
            "--exclude-interfaces",
            "pod*",
        ];
        self.processes
            .start(&format!("speaker-{name}"), &node.ns, &arguments)
    }

    /// Kills a node's speaker.
    pub fn kill_speaker(&mut self, name: &str) -> Result<()> {
        self.processes.kill(&format!("speaker-{name}"))
    }

    /// A node dies: its speaker is killed and its cable is out, at once.
    pub fn power_off(&mut self, name: &str) -> Result<()> {
        if let Some(node) = self.topology.node(name) {
            node.cable(&self.topology.lan, false)?;
        }
        self.off = Some(name.to_owned());
        self.kill_speaker(name)
    }

    /// The node that died is back, and its speaker starts anew; returns its name.
    pub fn power_on(&mut self) -> Result<String> {
        let name = self.off.take().unwrap_or_default();
        let node = self.topology.node(&name).cloned();
        let node = node.ok_or_else(|| Error::because("powering a node on", "none is off"))?;
        node.cable(&self.topology.lan, true)?;
        self.start_speaker(&node)?;
        Ok(name)
    }

    /// Children that have ended by themselves, and the end of their logs.
    pub fn ended(&mut self) -> Vec<String> {
        self.processes.ended()
    }

    /// The end of every child's log.
    pub fn logs(&self) -> String {
        self.processes.troubles()
    }
}
