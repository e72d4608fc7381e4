//! Health check node ports and the proxier's own `/healthz` and `/livez`.
//!
//! Owns the listeners and a thread of its own, so that a load balancer's probe never waits for rules being loaded. What is
//! answered says `speaker_proxier::health_check`. A port that another process holds is reported and tried again; nothing
//! else waits for it.
//!
//! Limits: 64 connections at once (further ones wait in the backlog), 5 s and 8 KiB for a request, one answer each.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use api_model::{IpFamily, Port};
use k8s_openapi::jiff::Timestamp;
use speaker_proxier::{
    Reason, Refusal,
    health_check::{Answer, HealthPort, ProxierHealth, ports},
    node_view::NodeView,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, Semaphore},
    task::JoinSet,
};
use tracing::{debug, warn};

/// An update that waits longer than this makes the proxier unhealthy: twice kube-proxy's sync period.
const PENDING_LIMIT: Duration = Duration::from_secs(60);
/// A port that could not be bound is tried again so often.
const RETRY: Duration = Duration::from_secs(5);
const REQUEST_TIME: Duration = Duration::from_secs(5);
const REQUEST_BYTES: usize = 8 * 1024;
const CONNECTIONS: usize = 64;

/// What the listeners answer from; the proxier's thread writes it.
#[derive(Debug, Default)]
pub(crate) struct Board {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    ports: BTreeMap<Port, HealthPort>,
    addresses: Vec<IpAddr>,
    leaving: bool,
    /// Since when an update waits to be in the kernel.
    pending_since: Option<Instant>,
    last_updated: Option<Timestamp>,
    /// Addresses where another process holds the port.
    taken: BTreeMap<Endpoint, Refusal>,
    stop: bool,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An update has arrived and is not in the kernel yet.
    pub(crate) fn pending(&self) {
        self.state().pending_since.get_or_insert_with(Instant::now);
    }

    /// The rules of this view are in the kernel.
    pub(crate) fn in_step(&self) {
        let mut state = self.state();
        state.pending_since = None;
        state.last_updated = Some(Timestamp::now());
    }

    /// The ports that a view asks for, and who answers there.
    pub(crate) fn follow(&self, view: &NodeView) {
        let mut state = self.state();
        state.ports = ports(view);
        state.addresses.clone_from(&view.node.addresses);
        state.leaving = view.node.leaving;
        let State { ports, taken, .. } = &mut *state;
        taken.retain(|at, refusal| {
            let held = at.port().and_then(|port| ports.get(&port));
            held.is_some_and(|held| held.service == refusal.service)
        });
        drop(state);
        self.changed.notify_one();
    }

    /// Services whose health check node port another process holds.
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        self.state().taken.values().cloned().collect()
    }

    fn healthy(&self) -> bool {
        let pending = self.state().pending_since;
        pending.is_none_or(|since| since.elapsed() <= PENDING_LIMIT)
    }

    fn answer(&self, at: Endpoint, path: &str) -> Answer {
        let healthy = self.healthy();
        let state = self.state();
        match at {
            Endpoint::Service(address, port) => match state.ports.get(&port) {
                Some(held) => held.answer(IpFamily::of(address), healthy),
                None => self_health(&state, healthy).answer(""),
            },
            Endpoint::Proxier(_) => self_health(&state, healthy).answer(path),
        }
    }

    fn wanted(&self, healthz_port: Option<Port>) -> BTreeSet<Endpoint> {
        let state = self.state();
        let at = |port: &Port| {
            let port = *port;
            state
                .addresses
                .iter()
                .map(move |address| Endpoint::Service(*address, port))
        };
        let services = state.ports.keys().flat_map(at);
        let own = healthz_port.map(Endpoint::Proxier);
        services.chain(own).collect()
    }

    /// Notes whether a listener stands.
    fn note(&self, at: Endpoint, failure: Option<&io::Error>) {
        let mut state = self.state();
        state.taken.remove(&at);
        let Some(error) = failure.filter(|error| error.kind() == io::ErrorKind::AddrInUse) else {
            return;
        };
        let Endpoint::Service(address, port) = at else {
            return;
        };
        let Some(service) = state.ports.get(&port).map(|held| held.service.clone()) else {
            return;
        };
        let detail = format!(
            "healthCheckNodePort {port} on {address}: {error}; free it or choose another, it is tried again every {} s",
            RETRY.as_secs()
        );
        let refusal = Refusal::new(&service, Reason::HealthCheckPortTaken, detail);
        state.taken.insert(at, refusal);
    }
}

fn self_health(state: &State, healthy: bool) -> ProxierHealth {
    ProxierHealth {
        healthy,
        node_eligible: !state.leaving,
        last_updated: state.last_updated.unwrap_or_default().to_string(),
        current_time: Timestamp::now().to_string(),
    }
}

/// Where a listener stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Endpoint {
    Service(IpAddr, Port),
    Proxier(Port),
}

impl Endpoint {
    /// The port, if it is a Service's.
    fn port(self) -> Option<Port> {
        let Self::Service(_, port) = self else {
            return None;
        };
        Some(port)
    }
}

/// Ends the thread when dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.board.state().stop = true;
        self.board.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts the thread in the network namespace of the calling one; without `healthz_port` there is no `/healthz`.
pub(crate) fn start(board: Arc<Board>, healthz_port: Option<Port>) -> io::Result<Handle> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let served = board.clone();
    let thread = std::thread::Builder::new()
        .name("health".into())
        .spawn(move || runtime.block_on(serve(served, healthz_port)))?;
    Ok(Handle {
        board,
        thread: Some(thread),
    })
}

/// Keeps one listener for each wanted port.
async fn serve(board: Arc<Board>, healthz_port: Option<Port>) {
    let limit = Arc::new(Semaphore::new(CONNECTIONS));
    let mut listeners: BTreeMap<Endpoint, tokio::task::JoinHandle<()>> = BTreeMap::new();
    while !board.state().stop {
        let wanted = board.wanted(healthz_port);
        listeners.retain(|at, task| {
            let kept = wanted.contains(at);
            if !kept {
                task.abort();
            }
            kept
        });
        for at in wanted {
            listeners
                .entry(at)
                .or_insert_with(|| tokio::spawn(listen(board.clone(), at, limit.clone())));
        }
        board.changed.notified().await;
    }
}

async fn listen(board: Arc<Board>, at: Endpoint, limit: Arc<Semaphore>) {
    let mut told = None;
    let listener = loop {
        let bound = bind(at).await;
        board.note(at, bound.as_ref().err());
        match bound {
            Ok(listener) => break listener,
            // Each cause is told once, not every few seconds.
            Err(error) if told == Some(error.kind()) => {}
            Err(error) => {
                let reason = Reason::HealthCheckPortTaken.as_str();
                warn!(?at, reason, %error, "health port not open, trying again");
                told = Some(error.kind());
            }
        }
        tokio::time::sleep(RETRY).await;
    };
    let mut answering = JoinSet::new();
    loop {
        while answering.try_join_next().is_some() {}
        let Ok(permit) = limit.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let board = board.clone();
                answering.spawn(async move {
                    let _permit = permit;
                    let answered = tokio::time::timeout(REQUEST_TIME, answer(&board, at, stream));
                    if let Err(error) = answered
                        .await
                        .unwrap_or(Err(io::ErrorKind::TimedOut.into()))
                    {
                        debug!(%error, "health probe not answered");
                    }
                });
            }
            Err(error) => {
                debug!(%error, "health port: accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The proxier's own port listens on all addresses, IPv4 alone where there is no IPv6.
async fn bind(at: Endpoint) -> io::Result<TcpListener> {
    match at {
        Endpoint::Service(address, port) => TcpListener::bind((address, port.get())).await,
        Endpoint::Proxier(port) => {
            let all = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port.get())).await;
            match all {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port.get())).await
                }
                bound => bound,
            }
        }
    }
}

async fn answer(board: &Board, at: Endpoint, mut stream: TcpStream) -> io::Result<()> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut part).await?;
        if read == 0 || request.len() + read > REQUEST_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        request.extend_from_slice(part.get(..read).unwrap_or_default());
    }
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let path = line.split(' ').nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    stream
        .write_all(render(&board.answer(at, path)).as_bytes())
        .await?;
    stream.shutdown().await
}

fn render(answer: &Answer) -> String {
    let status = match answer.code {
        200 => "200 OK",
        404 => "404 Not Found",
        _ => "503 Service Unavailable",
    };
    let weight = answer.weight.map_or_else(String::new, |weight| {
        format!("X-Load-Balancing-Endpoint-Weight: {weight}\r\n")
    });
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nX-Content-Type-Options: nosniff\r\n{weight}Content-Length: {}\r\n\
         Connection: close\r\n\r\n{}",
        answer.content_type,
        answer.body.len(),
        answer.body
    )
}

#[cfg(test)]
mod tests;
