//! Finds the API server.
//!
//! Owns the choice of address and credentials. A kubeconfig that is named is the only one looked at; without one the usual
//! order holds: `KUBECONFIG`, `~/.kube/config`, then the service account of the pod.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

/// How long a TCP and TLS handshake may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The named file cannot be used.
    #[error("kubeconfig {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// Neither a kubeconfig nor a service account was found.
    #[error("no API server is known: give --kubeconfig, set KUBECONFIG, or run in a pod: {0}")]
    NotFound(#[from] kube::config::InferConfigError),
    /// Certificates or addresses in the configuration are unusable.
    #[error("the configuration cannot be used: {0}")]
    Client(#[from] kube::Error),
}

/// A client for the API server that the kubeconfig names, or that the surroundings name.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client, ConnectError> {
    let mut config = match kubeconfig {
        None => Config::infer().await?,
        Some(path) => {
            let wrong = |source| ConnectError::Kubeconfig {
                path: path.to_owned(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(wrong)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .map_err(wrong)?
        }
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // hidden retries begin after 5 ms and ignore the gaps that our own retries keep
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}
