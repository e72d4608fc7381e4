//! `roadstead allocator`: gives Services their addresses; several may run, one leads.

use std::process::ExitCode;

use allocator::Config;

use crate::{
    Failure,
    connect::{Scope, Server, host_name, stop_signal},
};

/// Flags of `roadstead allocator`.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    server: Server,
    /// Tells this allocator from the others in the election; without it the host's name
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,
}

pub(crate) async fn main(flags: Flags) -> Result<ExitCode, Failure> {
    let identity = flags.identity.map_or_else(host_name, Ok)?;
    let client = flags.server.client().await?;
    allocator::run(
        client,
        config(&flags.server.scope, &identity),
        stop_signal()?,
    )
    .await?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn config(scope: &Scope, identity: &str) -> Config {
    let mut config = Config::new(&scope.config_namespace, identity);
    config.class.clone_from(&scope.lb_class);
    config
}
