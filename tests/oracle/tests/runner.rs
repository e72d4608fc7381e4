//! The runner itself, in namespaces: without a proxier the rows must fail, with one that is fed other objects too, and with
//! ours they pass. A runner that can't fail shows nothing.

use std::{path::Path, process::ExitCode};

use k8s_openapi::api::core::v1::Node;
use lab::{Result, trial};
use oracle::{
    differences::Differences,
    network::Network,
    probe::Prober,
    proxier::{Nobody, Proxier, Roadstead},
    replay::{self, Replay},
    report::{Line, Verdict},
    scenario::Scenario,
    server,
    topology::{OWN, Topology},
};
use tokio::runtime::Runtime;

/// Small, and with every outcome but `mixed`.
const SCENARIOS: [&str; 4] = ["t-proxyname", "r-none", "t-multiport", "s-both-cc"];

/// Ours, with the slices taken away.
struct WithoutSlices(Roadstead);

impl Proxier for WithoutSlices {
    fn program(&mut self, scenarios: &[&Scenario]) -> Result<()> {
        let bare = |scenario: &&Scenario| Scenario {
            slices: Vec::new(),
            ..(*scenario).clone()
        };
        let bare: Vec<Scenario> = scenarios.iter().map(bare).collect();
        self.0.program(&bare.iter().collect::<Vec<_>>())
    }

    fn forget_clients(&mut self) -> Result<()> {
        self.0.forget_clients()
    }

    fn set_node(&mut self, name: &str, object: Option<Node>) {
        self.0.set_node(name, object);
    }

    fn restart(&mut self) -> Result<()> {
        self.0.restart()
    }
}

struct Stage {
    topology: Topology,
    network: Network,
    runtime: Runtime,
}

impl Stage {
    fn set() -> Self {
        let topology = Topology::read(OWN).expect("it is ours");
        let network = Network::build(&topology).expect("the network can be built");
        let runtime = Runtime::new().expect("a run time");
        server::start(&topology, &network, runtime.handle()).expect("servers start");
        Self {
            topology,
            network,
            runtime,
        }
    }

    fn roadstead(&self) -> Roadstead {
        Roadstead::start(&self.topology, &self.network, self.runtime.handle())
            .expect("the proxier starts")
    }

    /// The rows' lines with this proxier.
    fn replay(&self, scenarios: &[&str], proxier: impl Proxier) -> Vec<Line> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("proxier");
        let names: Vec<String> = scenarios.iter().map(ToString::to_string).collect();
        let chapters = replay::read(&folder, &names).expect("the folder is ours");
        let mut lines = Vec::new();
        let mut replay = Replay {
            prober: Prober {
                topology: &self.topology,
                network: &self.network,
                runtime: self.runtime.handle(),
            },
            proxier,
            differences: &Differences::default(),
            health: &[],
        };
        let done = replay.run(&chapters, |line| lines.push(line));
        done.expect("the network stands");
        lines
    }
}

fn failing(lines: &[Line]) -> Vec<&str> {
    let failing = lines.iter().filter(|line| line.verdict != Verdict::Pass);
    failing.map(|line| line.id.as_str()).collect()
}

fn passing(lines: &[Line]) -> Vec<&str> {
    let passing = lines.iter().filter(|line| line.verdict == Verdict::Pass);
    passing.map(|line| line.id.as_str()).collect()
}

fn main() -> ExitCode {
    trial::main(|runner, _| {
        let stage = Stage::set();
        runner.run((
            "without_a_proxier_only_rows_of_untouched_packets_pass",
            Box::new(|| {
                let lines = stage.replay(&SCENARIOS, Nobody);
                // t-proxyname is a Service that a proxier leaves alone; all but its ClusterIP, which has to be dropped
                let left_alone = |line: &Line| line.id.starts_with("t-proxyname#");
                let (alone, others): (Vec<Line>, Vec<Line>) =
                    lines.into_iter().partition(left_alone);
                assert_eq!(passing(&others), Vec::<&str>::new());
                assert_eq!(
                    failing(&alone),
                    [
                        "t-proxyname#1 client",
                        "t-proxyname#5 p1c",
                        "t-proxyname#9 n1"
                    ]
                );
            }),
        ));
        runner.run((
            "with_ours_all_of_them_pass",
            Box::new(|| {
                let lines = stage.replay(&SCENARIOS, stage.roadstead());
                assert!(lines.len() > 30, "{} rows", lines.len());
                assert_eq!(failing(&lines), Vec::<&str>::new());
            }),
        ));
        runner.run((
            "without_endpoints_no_served_row_passes",
            Box::new(|| {
                let lines = stage.replay(&["t-multiport"], WithoutSlices(stage.roadstead()));
                assert_eq!(passing(&lines), Vec::<&str>::new());
            }),
        ));
    })
}
