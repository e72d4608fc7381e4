//! A served API for tests: TLS on a loopback port that the kernel chose.

use std::net::{Ipv4Addr, TcpListener};

use api_server::{Config, Identity, Server};

/// A running server and its kubeconfig; it stops with the runtime of the test.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) kubeconfig: String,
}

/// Serves with this configuration.
pub(crate) fn serve(config: &Config) -> Served {
    let identity = Identity::generate(&["127.0.0.1"]).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let kubeconfig = identity.kubeconfig(&Identity::url(address.ip(), address.port()));
    let server = Server::new(config, &identity).unwrap();
    let serving = server.clone();
    tokio::spawn(async move { serving.serve(vec![listener], std::future::pending()).await });
    Served { server, kubeconfig }
}
