//! `oracle DIR [SCENARIO…]`: replays a folder of recorded rows through our proxier. Exit status 1 when a row fails.
#![forbid(unsafe_code)]

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use lab::{Error, Result, error::Doing as _, sandbox};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use oracle::{
    differences::{self, Differences},
    facts::{self, HealthRow},
    network::Network,
    probe::Prober,
    proxier::Roadstead,
    replay::{self, Replay},
    report::Counts,
    script, server,
    topology::{self, Topology},
};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!(
            "usage: oracle DIR [SCENARIO | facts …]   (DIR has rows/ and objects/, perhaps topology.yaml)"
        );
        return ExitCode::from(2);
    };
    let only: Vec<String> = arguments.collect();
    let done = if sandbox::is_inside() {
        inside(&folder, &only)
    } else {
        outside()
    };
    done.unwrap_or_else(|error| {
        eprintln!("oracle: {error}");
        ExitCode::FAILURE
    })
}

/// Starts itself again in namespaces of its own. Where that isn't allowed, nothing can be replayed: under `make test` that
/// is a skip to be judged there, else a failure.
fn outside() -> Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0").doing("taking a port of loopback")?;
    sandbox::enter(listener).or_else(|error| {
        skips::skip("net-admin", &error.to_string());
        let counted = std::env::var_os("ROADSTEAD_SKIPS").is_some();
        Ok(if counted {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    })
}

fn inside(folder: &Path, only: &[String]) -> Result<ExitCode> {
    sandbox::settle()?;
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).doing("reading the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).doing("raising the limit of open files")?;
    let began = Instant::now();
    let chapters = replay::read(folder, only)?;
    let mut facts = facts::read(folder)?;
    if !only.is_empty() {
        let all = only.iter().any(|it| it == "facts");
        facts.timed.retain(|fact| all || only.contains(&fact.id));
        let asked = |row: &HealthRow| only.contains(&row.scenario);
        facts
            .health
            .retain(|(_, row)| row.as_ref().is_ok_and(asked));
    }
    let topology = topology(folder)?;
    let differences =
        Differences::read(differences::OWN).doing("reading the wanted differences")?;
    let runtime = tokio::runtime::Runtime::new().doing("starting a run time")?;
    let network = Network::build(&topology)?;
    server::start(&topology, &network, runtime.handle())?;
    let mut replay = Replay {
        prober: Prober {
            topology: &topology,
            network: &network,
            runtime: runtime.handle(),
        },
        proxier: Roadstead::start(&topology, &network, runtime.handle())?,
        differences: &differences,
        health: &facts.health,
    };
    let mut counts = Counts::default();
    let mut report = |line| {
        println!("{line}");
        counts.add(&line);
    };
    replay.run(&chapters, &mut report)?;
    let Replay {
        prober, proxier, ..
    } = &mut replay;
    script::run(&facts.timed, prober, proxier, &differences, report)?;
    if counts == Counts::default() {
        let why = "it has no rows to replay";
        return Err(Error::because(
            format!("replaying {}", folder.display()),
            why,
        ));
    }
    println!("\n{counts}\nin {:.0} s", began.elapsed().as_secs_f64());
    Ok(if counts.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn topology(folder: &Path) -> Result<Topology> {
    let path = folder.join("topology.yaml");
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => topology::OWN.to_owned(),
        Err(error) => return Err(error).doing(format!("reading {}", path.display())),
    };
    Topology::read(&text).doing(format!("reading {}", path.display()))
}
