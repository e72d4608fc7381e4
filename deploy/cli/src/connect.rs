//! Flags and steps that several roles share: which API server, which namespace, when to end.

use std::path::PathBuf;

use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

use crate::Failure;

/// Which API server, and where the configuration lies in it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Server {
    /// File that names the API server; without it KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) scope: Scope,
}

/// Which objects are ours.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scope {
    /// Namespace of pools, advertisements and peers
    #[arg(long, value_name = "NAME", default_value = api_types::names::DEFAULT_CONFIG_NAMESPACE)]
    pub(crate) config_namespace: String,
    /// Serve only Services of this loadBalancerClass; without it only those that have none
    #[arg(long, value_name = "NAME")]
    pub(crate) lb_class: Option<String>,
}

impl Server {
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        Ok(api_client::connect(self.kubeconfig.as_deref()).await?)
    }
}

/// Resolves at the first SIGINT or SIGTERM.
pub(crate) fn stop_signal() -> Result<impl Future<Output = ()> + Send, Failure> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
        }
    })
}

/// The name that this machine goes by.
pub(crate) fn host_name() -> Result<String, Failure> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    Ok(name.trim().to_owned())
}
