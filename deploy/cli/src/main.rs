//! The `roadstead` program: every role of it is a subcommand.
//!
//! Owns flags, logging and exit codes; this is the one place where errors become text. Never decides anything else.
#![forbid(unsafe_code)]

mod allocator;
mod api_server;
mod connect;
mod demo;
mod speaker;
mod standalone;

use std::{io::IsTerminal as _, process::ExitCode};

use clap::{Parser, Subcommand};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

/// Gives Kubernetes Services their addresses, tells the network where they live, and carries their packets.
#[derive(Debug, Parser)]
#[command(name = "roadstead", version, about)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Shows a whole cluster on this machine, in namespaces of its own: nodes, pods, a LAN, a BGP router, clients
    Demo(demo::Flags),
    /// Gives Services their addresses; runs once for a cluster, more than one wait for the leader's end
    Allocator(allocator::Flags),
    /// Announces addresses from this node and maps them to endpoints; runs on every node
    Speaker(speaker::Flags),
    /// Everything in one process on this machine's own interfaces, without Kubernetes
    Standalone(standalone::Flags),
    /// The embedded API server by itself, with its controllers: in memory, for machines without a cluster
    ApiServer(api_server::Flags),
}

/// What ends a role too early.
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.role {
        Role::Demo(flags) => demo::main(&flags),
        Role::Allocator(flags) => serve(allocator::main(flags)),
        Role::Speaker(flags) => serve(speaker::main(flags)),
        Role::Standalone(flags) => serve(standalone::main(flags)),
        Role::ApiServer(flags) => serve(api_server::main(flags)),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("roadstead: {error}");
        ExitCode::FAILURE
    })
}

/// Runs a role until it ends, its log on standard error.
fn serve(role: impl Future<Output = Result<ExitCode, Failure>>) -> Result<ExitCode, Failure> {
    log(std::io::stderr, std::io::stderr().is_terminal());
    tokio::runtime::Runtime::new()?.block_on(role)
}

/// What is logged unless `RUST_LOG` says otherwise.
const DEFAULT_LOG: &str = "info,kube_client=error,tower=error";

/// Logs go to a writer such as standard error; `RUST_LOG` says how much.
fn log(writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static, colours: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG));
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    builder.with_ansi(colours).with_writer(writer).init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn flags_of_all_roles_fit_together() {
        super::Arguments::command().debug_assert();
    }
}
