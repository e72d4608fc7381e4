//! `roadstead api-server`: the embedded API server by itself, with its controllers.

use std::{
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    process::ExitCode,
};

use lab::control_plane::{ControlPlane, Settings};
use tokio::task::JoinSet;

use crate::{Failure, connect::stop_signal};

/// Flags of `roadstead api-server`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "api-server")]
pub(crate) struct Flags {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    pub(crate) listen: SocketAddr,
    /// Folder for the kubeconfig
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    pub(crate) folder: PathBuf,
    /// Ranges of cluster addresses, at most one of each family; the first one's family is the default
    #[arg(
        long,
        value_name = "CIDR",
        value_delimiter = ',',
        default_value = "10.96.0.0/16,fd00:10:96::/112"
    )]
    pub(crate) service_cidr: Vec<String>,
}

impl Flags {
    /// Starts it as tasks of `tasks`, and says where it is.
    pub(crate) async fn start(&self, tasks: &mut JoinSet<()>) -> Result<ControlPlane, Failure> {
        std::fs::create_dir_all(&self.folder)?;
        let listener = TcpListener::bind(self.listen)
            .map_err(|error| format!("listening on {}: {error}", self.listen))?;
        let settings = Settings {
            folder: self.folder.clone(),
            namespace: "default".to_owned(),
            service_cidrs: self.service_cidr.clone(),
            check_configuration: true,
        };
        let running = ControlPlane::start(vec![listener], &settings, tasks).await?;
        for kubeconfig in &running.kubeconfigs {
            println!("export KUBECONFIG={}", kubeconfig.display());
        }
        Ok(running)
    }
}

pub(crate) async fn main(flags: Flags) -> Result<ExitCode, Failure> {
    let mut tasks = JoinSet::new();
    let _running = flags.start(&mut tasks).await?;
    stop_signal()?.await;
    Ok(ExitCode::SUCCESS)
}
