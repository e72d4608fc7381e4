//! The proxier under test: the speaker's own ingest, core and thread, one for each node.
//!
//! Owns their start in the nodes' networks and the wait until the kernel has what was asked for. Decides nothing.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use api_model::{NodeName, Port, ServiceKey};
use k8s_openapi::api::core::v1::Node;
use lab::{Error, Result, error::Doing as _, netns::NetNs};
use speaker::{
    ingest::{Change, Fact, Facts, Networks, NodeViews, this_node},
    proxier_io::{self, Handle, Programmed},
};
use speaker_proxier::nft::compile::{Settings, TABLE};
use tokio::{runtime::Handle as Runtime, sync::watch, time::timeout};

use crate::{network::Network, scenario::Scenario, topology::Topology};

/// How long the rules of a batch may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where `/healthz` and `/livez` are answered, as in the recording.
pub const HEALTHZ: u16 = 10256;

/// What is tested.
pub trait Proxier {
    /// Makes all nodes serve exactly these scenarios, and returns when they do.
    fn program(&mut self, scenarios: &[&Scenario]) -> Result<()>;

    /// Empties the affinity memory of all nodes.
    fn forget_clients(&mut self) -> Result<()>;

    /// Another Node object, or none, from the next programming on.
    fn set_node(&mut self, name: &str, object: Option<Node>);

    /// Ends it on all nodes and starts it again; it serves the same from the next programming on.
    fn restart(&mut self) -> Result<()>;
}

/// No proxier at all: what the runner must not take for one.
#[derive(Debug)]
pub struct Nobody;

impl Proxier for Nobody {
    fn program(&mut self, _: &[&Scenario]) -> Result<()> {
        Ok(())
    }

    fn forget_clients(&mut self) -> Result<()> {
        Ok(())
    }

    fn set_node(&mut self, _: &str, _: Option<Node>) {}

    fn restart(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Roadstead's.
#[derive(Debug)]
pub struct Roadstead {
    nodes: Vec<OnNode>,
    networks: Networks,
    runtime: Runtime,
}

#[derive(Debug)]
struct OnNode {
    name: NodeName,
    object: Option<Node>,
    space: NetNs,
    views: NodeViews,
    /// Nothing only while it is started again.
    handle: Option<Handle>,
    programmed: watch::Receiver<Programmed>,
}

impl Roadstead {
    /// Starts one for each node.
    pub fn start(topology: &Topology, network: &Network, runtime: &Runtime) -> Result<Self> {
        let start = |(name, object): (&String, &Node)| {
            let space = network.space(name).clone();
            let (handle, programmed) = start_in(&space)?;
            Ok(OnNode {
                name: name.as_str().into(),
                object: Some(object.clone()),
                space,
                views: NodeViews::default(),
                handle: Some(handle),
                programmed,
            })
        };
        Ok(Self {
            nodes: topology.nodes.iter().map(start).collect::<Result<_>>()?,
            networks: Networks {
                pods: topology.pod_networks.clone(),
                services: topology.service_networks.clone(),
            },
            runtime: runtime.clone(),
        })
    }
}

impl Proxier for Roadstead {
    fn program(&mut self, scenarios: &[&Scenario]) -> Result<()> {
        let facts = facts(scenarios);
        let mut generations = Vec::new();
        for node in &mut self.nodes {
            let this = this_node(&node.name, node.object.as_ref(), &self.networks);
            let slices_of = |key: &ServiceKey| {
                let slices = facts.slices.get(key).into_iter();
                slices.flat_map(BTreeMap::values)
            };
            let (view, _) = node.views.build(this, &facts.services, slices_of);
            generations.push(view.generation);
            if let Some(handle) = &node.handle {
                handle.update(Arc::new(view));
            }
        }
        for (node, generation) in self.nodes.iter_mut().zip(generations) {
            let in_step = |shown: &Programmed| shown.generation == generation && !shown.failing;
            let wait = async { timeout(PATIENCE, node.programmed.wait_for(in_step)).await };
            let waited = self
                .runtime
                .block_on(async { wait.await.map(|it| it.is_ok()) });
            if waited != Ok(true) {
                let seen = format!("{:?}", node.programmed.borrow());
                return Err(Error::because(format!("programming {}", node.name), seen));
            }
        }
        Ok(())
    }

    fn forget_clients(&mut self) -> Result<()> {
        let text = format!("flush map ip {TABLE} aff\nflush set ip6 {TABLE} aff\n");
        self.nodes
            .iter()
            .try_for_each(|node| nft(&node.space, &text))
    }

    fn set_node(&mut self, name: &str, object: Option<Node>) {
        if let Some(node) = self.nodes.iter_mut().find(|it| it.name.as_str() == name) {
            node.object = object;
        }
    }

    fn restart(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            // dropped, its thread has ended before the next begins
            node.handle = None;
            let (handle, programmed) = start_in(&node.space)?;
            (node.handle, node.programmed) = (Some(handle), programmed);
            node.views = NodeViews::default();
        }
        Ok(())
    }
}

fn start_in(space: &NetNs) -> Result<(Handle, watch::Receiver<Programmed>)> {
    let start = || proxier_io::start(Settings::default(), Port::new(HEALTHZ));
    let doing = format!("starting the proxier of {}", space.name());
    space.run(start).doing(doing)
}

fn nft(space: &NetNs, text: &str) -> Result<()> {
    use std::io::Write as _;
    let doing = || format!("nft in {}", space.name());
    let mut command = Command::new("nft");
    command
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = space.start(&mut command)?;
    let mut input = child.stdin.take().expect("its input is a pipe");
    input.write_all(text.as_bytes()).doing(doing())?;
    drop(input);
    let output = child.wait_with_output().doing(doing())?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::because(
        doing(),
        String::from_utf8_lossy(&output.stderr),
    ))
}

/// The objects as the watches would have told them.
fn facts(scenarios: &[&Scenario]) -> Facts {
    let mut facts = Facts::default();
    for scenario in scenarios {
        for (_, service) in &scenario.services {
            facts.take(Fact::Service(Change::Apply(service.clone())));
        }
        for slice in &scenario.slices {
            facts.take(Fact::Slice(Change::Apply(slice.clone())));
        }
    }
    facts
}
