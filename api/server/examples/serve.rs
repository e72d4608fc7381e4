//! Serves an API with the product's kinds and nothing else in it on a loopback port and writes its kubeconfig: `serve KUBECONFIG [PORT]`.

use std::net::{Ipv4Addr, TcpListener};

use api_server::{Config, Identity, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: serve KUBECONFIG [PORT]")?;
    let port: u16 = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let identity = Identity::generate(&["127.0.0.1", "localhost"])?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let address = listener.local_addr()?;
    let kubeconfig = identity.kubeconfig(&Identity::url(address.ip(), address.port()));
    std::fs::write(&path, kubeconfig)?;
    let config = Config {
        kubernetes_service: Some(address.port()),
        ..Config::default()
    };
    let server = Server::new(&config, &identity)?;
    server.install_crds(api_types::crds())?;
    server.serve(vec![listener], std::future::pending()).await?;
    Ok(())
}
