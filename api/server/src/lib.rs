//! The embedded API server: a Kubernetes API in memory, for the demo, for machines without a cluster, and for tests.
//!
//! Owns objects, versions, watches, discovery, tables and the admission of Services; kubectl and kube clients talk to it over
//! TLS with a bearer token. Never runs anything: pods wait for a kubelet ([`Server`] keeps a deleted pod that has a node until
//! someone deletes it with grace 0), `EndpointSlices` for a controller.
//!
//! It keeps nothing across a restart. What it leaves out it refuses with a `Status` that says so: server-side apply, protobuf
//! bodies, token and access reviews, impersonation, conversion webhooks, `log`, `exec` and `proxy`. Silently missing are
//! `managedFields`, RBAC (whoever holds the token is an administrator), admission webhooks, CEL rules, `pattern` and `format` of
//! custom resources, the check that a schema is structural, `OpenAPI` schemas of built-in kinds, and the notice of keys that stand twice
//! in a body. Other kinds than those in `registry` are 404.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use api_server::{Config, Identity, Server};
//! let identity = Identity::generate(&["127.0.0.1", "localhost"])?;
//! let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let kubeconfig = identity.kubeconfig(&Identity::url(listener.local_addr()?.ip(), listener.local_addr()?.port()));
//! let server = Server::new(&Config::default(), &identity)?;
//! server.serve(vec![listener], std::future::pending()).await?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

use std::future::Future;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

mod admission;
mod configuration;
mod convert;
mod crd;
mod crud;
mod decode;
mod discovery;
mod http;
mod identity;
mod inside;
mod list;
mod names;
mod output;
mod patch;
mod query;
mod registry;
mod schema;
mod selector;
mod service;
mod status_error;
mod store;
mod table;
mod watch;

#[cfg(test)]
mod poison_tests;

pub use identity::{Identity, IdentityError};
pub use inside::ObjectRef;
pub use service::RangeConfigError;
pub use status_error::{About, ApiError, Cause};

use crud::{Random, State};
use registry::Registry;
use service::Services;
use store::Store;

/// Connections beyond that wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 4096;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a server is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Ranges of cluster addresses, at most one of each family; the first one's family is the default.
    pub service_cidrs: Vec<ipnet::IpNet>,
    /// First and last node port.
    pub node_port_range: (u16, u16),
    /// Changes that watches can still ask for; older ones answer 410.
    pub log_limit: usize,
    /// Namespaces made at start.
    pub namespaces: Vec<String>,
    /// Port of this server; makes the Service `default/kubernetes` with the first cluster address, as a real cluster has it.
    pub kubernetes_service: Option<u16>,
    /// The namespace that `metallb.io` objects must be in.
    pub config_namespace: String,
    /// Whether `metallb.io` objects are checked beyond their CRD, as `MetalLB`'s webhooks do; a cluster may lack them.
    pub check_configuration: bool,
    /// Seed of uids and random picks; none: from the kernel.
    pub seed: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        let cidrs = ["10.96.0.0/16", "fd00:10:96::/112"];
        let namespaces = [
            "default",
            "kube-system",
            "kube-public",
            "kube-node-lease",
            "metallb-system",
        ];
        Self {
            service_cidrs: cidrs
                .iter()
                .map(|cidr| cidr.parse().expect("written above"))
                .collect(),
            node_port_range: (30_000, 32_767),
            log_limit: 65_536,
            namespaces: namespaces.map(str::to_owned).to_vec(),
            kubernetes_service: None,
            config_namespace: "metallb-system".into(),
            check_configuration: true,
            seed: None,
        }
    }
}

/// Why serving ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A listener cannot be used.
    #[error("cannot use a listener: {0}")]
    Listener(#[from] std::io::Error),
}

/// The server. Clones share one store.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
    tls: Arc<rustls::ServerConfig>,
}

/// What requests share: the state behind its lock, and the news that it changed.
pub(crate) struct Shared {
    state: Mutex<State>,
    revision: tokio::sync::watch::Sender<u64>,
    token: String,
}

impl Shared {
    /// The lock is never held across an await, and a panic under it leaves whole objects behind, so poison is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a write and wakes the watchers.
    fn write<T>(&self, write: impl FnOnce(&mut State) -> T) -> T {
        let (result, revision) = {
            let mut state = self.lock();
            let result = write(&mut state);
            (result, state.store.revision())
        };
        self.revision
            .send_if_modified(|known| std::mem::replace(known, revision) != revision);
        result
    }
}

impl Server {
    /// A server with the namespaces of `config` in it. Errors: ranges that cannot be used.
    pub fn new(config: &Config, identity: &Identity) -> Result<Self, RangeConfigError> {
        let seed = config
            .seed
            .or_else(|| identity::random_bytes().ok().map(u64::from_le_bytes))
            .unwrap_or(1);
        let state = State {
            store: Store::new(config.log_limit),
            registry: Arc::new(Registry::new()),
            services: Services::new(&config.service_cidrs, config.node_port_range)?,
            checked_namespace: config
                .check_configuration
                .then(|| config.config_namespace.clone()),
            random: Random::new(seed),
        };
        let (revision, _) = tokio::sync::watch::channel(state.store.revision());
        let shared = Shared {
            state: Mutex::new(state),
            revision,
            token: identity.token().to_owned(),
        };
        let server = Self {
            shared: Arc::new(shared),
            tls: identity.tls(),
        };
        let namespaces = config.namespaces.iter().map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        for object in namespaces.chain(kubernetes_service(config)) {
            if let Err(error) = server.create(object) {
                tracing::warn!(%error, "object of the start not made");
            }
        }
        Ok(server)
    }

    /// Makes custom resources known. Errors: the first CRD that is refused.
    pub fn install_crds(
        &self,
        crds: impl IntoIterator<Item = impl Serialize>,
    ) -> Result<(), ApiError> {
        for crd in crds {
            let crd =
                serde_json::to_value(crd).map_err(|error| ApiError::internal(error.to_string()))?;
            self.create(crd)?;
        }
        Ok(())
    }

    /// Serves on these listeners until `shutdown` resolves; open connections are then dropped.
    pub async fn serve(
        &self,
        listeners: Vec<TcpListener>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let mut tasks = tokio::task::JoinSet::new();
        let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        for listener in listeners {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tasks.spawn(accept(
                listener,
                self.shared.clone(),
                TlsAcceptor::from(self.tls.clone()),
                room.clone(),
            ));
        }
        shutdown.await;
        Ok(())
    }
}

fn kubernetes_service(config: &Config) -> Option<Value> {
    let first = config
        .service_cidrs
        .first()
        .and_then(|cidr| cidr.hosts().next())?;
    Some(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": first.to_string(), "ports": [{"name": "https", "port": 443, "targetPort": config.kubernetes_service?}]},
    }))
}

async fn accept(
    listener: tokio::net::TcpListener,
    shared: Arc<Shared>,
    tls: TlsAcceptor,
    room: Arc<Semaphore>,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(place) = room.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // out of file descriptors, most often: wait for connections to end
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        while connections.try_join_next().is_some() {}
        let (shared, tls) = (shared.clone(), tls.clone());
        connections.spawn(async move {
            let _place = place;
            let _ = stream.set_nodelay(true);
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await
            else {
                return;
            };
            let service =
                hyper::service::service_fn(move |request| http::handle(shared.clone(), request));
            let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(60));
            builder
                .http2()
                .timer(TokioTimer::new())
                .max_concurrent_streams(1000);
            if let Err(error) = builder
                .serve_connection(TokioIo::new(stream), service)
                .await
            {
                tracing::debug!(%error, "connection ended");
            }
        });
    }
}
