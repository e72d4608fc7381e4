//! The control plane in this process: the API server on the listeners it is given, and the controllers.
//!
//! Never decides what runs on nodes; a kubelet, played or real, does.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
};

use api_server::{Config, Identity, Server};
use kube::Client;
use serde_yaml_ng::Value;
use tokio::{sync::watch, task::JoinSet};

use crate::error::{Doing as _, Error, Result};

/// What the control plane is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For the kubeconfig files.
    pub folder: PathBuf,
    /// Default namespace in them.
    pub namespace: String,
    /// Ranges of cluster addresses, at most one of each family; none: the API server's own choice.
    pub service_cidrs: Vec<String>,
    /// Whether configuration is checked beyond its CRDs; without, as in a cluster whose webhook is down.
    pub check_configuration: bool,
}

/// A running control plane.
pub struct ControlPlane {
    /// A client with all rights.
    pub client: Client,
    /// One kubeconfig for each listener, in their order.
    pub kubeconfigs: Vec<PathBuf>,
}

impl ControlPlane {
    /// Starts the API server and the controllers as tasks of `tasks`. For each listener a kubeconfig is written,
    /// readable by its owner only. Our own client uses the last listener.
    pub async fn start(
        listeners: Vec<TcpListener>,
        settings: &Settings,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self> {
        const DOING: &str = "starting the API server";
        let addresses: Vec<SocketAddr> = listeners
            .iter()
            .map(TcpListener::local_addr)
            .collect::<Result<_, _>>()
            .doing(DOING)?;
        let names: Vec<String> = addresses
            .iter()
            .map(|address| address.ip().to_string())
            .collect();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.extend(["localhost", "127.0.0.1"]);
        names.dedup();
        let identity = Identity::generate(&names).doing(DOING)?;
        let server = Server::new(&config(settings)?, &identity).doing(DOING)?;
        let crds = api_types::crds().into_iter().map(serde_json::to_value);
        let crds = crds.collect::<Result<Vec<_>, _>>().doing(DOING)?;
        server.install_crds(crds).doing(DOING)?;
        tasks.spawn(async move {
            if let Err(error) = server.serve(listeners, std::future::pending()).await {
                tracing::error!(%error, "API server ended");
            }
        });
        let kubeconfigs = write_kubeconfigs(&identity, &addresses, settings)?;
        let ours = kubeconfigs.last().map(PathBuf::as_path);
        let client = api_client::connect(ours).await.doing(DOING)?;
        let controllers = client.clone();
        tasks.spawn(async move {
            // they end with this task: nobody else holds the sender
            let (_running, shutdown) = watch::channel(false);
            api_controllers::run(controllers, shutdown).await;
        });
        Ok(Self {
            client,
            kubeconfigs,
        })
    }
}

fn config(settings: &Settings) -> Result<Config> {
    let mut config = Config {
        check_configuration: settings.check_configuration,
        ..Config::default()
    };
    if !settings.service_cidrs.is_empty() {
        let cidrs = settings.service_cidrs.iter().map(|cidr| cidr.parse());
        config.service_cidrs = cidrs
            .collect::<std::result::Result<_, _>>()
            .doing("reading the ranges of cluster addresses")?;
    }
    Ok(config)
}

fn write_kubeconfigs(
    identity: &Identity,
    addresses: &[SocketAddr],
    settings: &Settings,
) -> Result<Vec<PathBuf>> {
    let write = |(number, address): (usize, &SocketAddr)| {
        let name = if number == 0 {
            "kubeconfig".to_owned()
        } else {
            format!("kubeconfig-{number}")
        };
        let path = settings.folder.join(name);
        let text = identity.kubeconfig(&Identity::url(address.ip(), address.port()));
        let text = with_namespace(&text, &settings.namespace)?;
        fs::write(&path, text).doing(format!("writing {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .doing(format!("closing {}", path.display()))?;
        Ok(path)
    };
    addresses.iter().enumerate().map(write).collect()
}

/// The kubeconfig with this default namespace in its context
fn with_namespace(kubeconfig: &str, namespace: &str) -> Result<String> {
    const DOING: &str = "writing a kubeconfig";
    let mut config: Value = serde_yaml_ng::from_str(kubeconfig).doing(DOING)?;
    let context = config
        .get_mut("contexts")
        .and_then(|contexts| contexts.get_mut(0));
    let context = context
        .and_then(|named| named.get_mut("context"))
        .and_then(Value::as_mapping_mut);
    let context = context
        .ok_or_else(|| Error::because(DOING, "the API server wrote one without a context"))?;
    context.insert("namespace".into(), namespace.into());
    serde_yaml_ng::to_string(&config).doing(DOING)
}
