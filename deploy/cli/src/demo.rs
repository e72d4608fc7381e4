//! `roadstead demo`: the lab, the steps, and then the cluster for the user's own `kubectl`.

use std::{net::TcpListener, path::Path, process::ExitCode};

use lab::{
    cluster::{Cluster, Options},
    demo, sandbox,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{Failure, log};

/// Flags of `roadstead demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    /// End after the steps, with exit code 0 if all held and 1 otherwise
    #[arg(long)]
    once: bool,
    /// Only build the cluster, apply nothing, and stay up
    #[arg(long, conflicts_with = "once")]
    bare: bool,
    /// Leave out BGP, as if gobgpd were missing
    #[arg(long)]
    without_bgp: bool,
}

pub(crate) fn main(flags: &Flags) -> Result<ExitCode, Failure> {
    if !sandbox::is_inside() {
        // opened before anything else, so that it is in the user's own network
        let listener = TcpListener::bind("127.0.0.1:0")?;
        return Ok(sandbox::enter(listener)?);
    }
    let inside = sandbox::settle()?;
    // the terminal is for the steps
    log(
        std::fs::File::create(inside.folder.join("demo.log"))?,
        false,
    );
    let run_time = tokio::runtime::Runtime::new()?;
    run_time.block_on(show(flags, inside))
}

async fn show(flags: &Flags, inside: sandbox::Inside) -> Result<ExitCode, Failure> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let with_bgp = !flags.without_bgp && has_gobgpd();
    let work = async {
        println!(
            "Building a cluster on this machine: nodes n1, n2 and n3, a LAN, a router, two clients."
        );
        let binary = std::env::current_exe()?;
        let options = Options {
            binary,
            with_bgp,
            check_configuration: true,
        };
        let mut cluster = Cluster::start(inside, options).await?;
        kubectl_line(&cluster.kubeconfig);
        if flags.bare {
            std::future::pending::<()>().await;
        }
        let score = demo::run(&mut cluster).await;
        println!(
            "\n{} passed, {} failed, {} skipped",
            score.passed, score.failed, score.skipped
        );
        if score.failed > 0 {
            eprintln!("\nThe ends of the logs:\n{}", cluster.logs());
        }
        if flags.once {
            return Ok(if score.failed == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        println!("\nThe cluster stays up until Ctrl-C. From another shell:");
        kubectl_line(&cluster.kubeconfig);
        std::future::pending::<()>().await;
        Ok(ExitCode::SUCCESS)
    };
    tokio::select! {
        code = work => code,
        _ = interrupted.recv() => Ok(ExitCode::from(130)),
        _ = terminated.recv() => Ok(ExitCode::from(143)),
    }
}

fn kubectl_line(kubeconfig: &Path) {
    println!(
        "    export KUBECONFIG={}; kubectl get svc,endpoints,endpointslices -o wide\n",
        kubeconfig.display()
    );
}

fn has_gobgpd() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join("gobgpd").is_file())
}
