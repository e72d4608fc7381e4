//! `roadstead standalone`: everything in one process, on this machine's own interfaces, for a machine without Kubernetes.
//!
//! Endpoints come from `EndpointSlice`s that the user writes, or from Pods that someone else runs.

use std::{net::IpAddr, process::ExitCode};

use ipnet::IpNet;
use lab::kubelet;

use crate::{
    Failure, allocator, api_server,
    connect::{Scope, host_name, stop_signal},
    speaker,
};

/// Flags of `roadstead standalone`.
#[derive(Debug, clap::Args)]
pub(crate) struct Flags {
    #[command(flatten)]
    api_server: api_server::Flags,
    #[command(flatten)]
    scope: Scope,
    #[command(flatten)]
    network: speaker::Network,
    /// Name of this machine's Node object; without it the host's name
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Addresses of this machine; without it every global address of its interfaces
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    node_address: Vec<IpAddr>,
}

pub(crate) async fn main(flags: Flags) -> Result<ExitCode, Failure> {
    let node = flags.node_name.map_or_else(host_name, Ok)?;
    let addresses = if flags.node_address.is_empty() {
        own_addresses()?
    } else {
        flags.node_address
    };
    let mut tasks = tokio::task::JoinSet::new();
    let running = flags.api_server.start(&mut tasks).await?;
    let cidrs: Vec<IpNet> = flags
        .api_server
        .service_cidr
        .iter()
        .map(|cidr| cidr.parse())
        .collect::<Result<_, _>>()?;
    kubelet::register_node(&running.client, &node, &addresses, &[]).await?;
    let allocator = ::allocator::run(
        running.client.clone(),
        allocator::config(&flags.scope, &node),
        stop_signal()?,
    );
    let network = flags.network.with_cluster_ips(cidrs);
    let speaker = ::speaker::run(
        running.client.clone(),
        speaker::config(&flags.scope, network, &node),
        stop_signal()?,
    );
    let (allocator, speaker) = tokio::join!(allocator, speaker);
    allocator?;
    speaker?;
    Ok(ExitCode::SUCCESS)
}

/// Global addresses of the interfaces that are up.
fn own_addresses() -> Result<Vec<IpAddr>, Failure> {
    let is_global = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    };
    let found = nix::ifaddrs::getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    });
    let addresses: Vec<IpAddr> = found.filter(is_global).collect();
    if addresses.is_empty() {
        return Err("this machine has no global address: give --node-address".into());
    }
    Ok(addresses)
}
