//! BGP sessions over TCP.
//!
//! Owns one task per peer with its sockets; feeds `speaker_bgp::Peer`, carries out its outputs, decides nothing. A peer that
//! is refused, slow or gone disturbs no other: they share nothing but the table of reports. Only dials; nothing listens on
//! port 179, so that another BGP daemon may.
//!
//! ```text
//! Bgp::start(config) -> (Handle, JoinHandle)      handle.update(Desired), the newest counts
//!                                                 handle.reports() is a watch of what every session is like
//! ```
//!
//! Dropping the handle sends every peer a NOTIFICATION Cease; the join handle ends when that is done (two seconds at most).

mod connection;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use api_model::{NodeName, Time};
use speaker_bgp::{
    Input, Notification, Output, Peer, PeerConfig, PeerName, Reason, Routes, SessionChange, Side,
    State,
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};
use tracing::{debug, info, warn};

use connection::{Connection, Happening};

/// Bytes taken from a socket at once.
const READ_BYTES: usize = 16 * 1024;
/// Most peers of one node; further ones, by name, are left out.
pub const MAX_PEERS: usize = 256;
/// How long the end of all sessions may take.
const STOP_TIME: Duration = Duration::from_secs(2);

/// Settings of the component.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Spreads timers: different on each node.
    pub seed: u64,
}

impl Config {
    /// A seed made of the node's name.
    pub fn for_node(node: &NodeName) -> Self {
        Self {
            seed: hash(node.as_str()),
        }
    }
}

/// Peers of this node and what each should hear.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Sessions to have, each name once. A changed field restarts that session and no other.
    pub peers: Vec<PeerConfig>,
    /// Routes by peer; a peer that isn't here hears nothing.
    pub routes: BTreeMap<PeerName, Arc<Routes>>,
}

/// What a session is like now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// State, and why it is so.
    pub change: SessionChange,
    /// Routes that the peer holds from us.
    pub routes_sent: usize,
    /// The last thing that the operator should know about although the session goes on.
    pub notice: Option<(Reason, String)>,
}

/// Reports of all peers.
pub type Reports = BTreeMap<PeerName, Report>;

/// Feeds the component. Dropping it ends all sessions.
#[derive(Debug)]
pub struct Handle {
    desired: watch::Sender<Desired>,
    reports: watch::Receiver<Reports>,
}

impl Handle {
    /// Says what is wanted from now on.
    pub fn update(&self, desired: Desired) {
        self.desired.send_if_modified(|current| {
            let changed = *current != desired;
            *current = desired;
            changed
        });
    }

    /// What every session is like; changes as they happen, the newest counts.
    pub fn reports(&self) -> watch::Receiver<Reports> {
        self.reports.clone()
    }
}

/// The component.
#[derive(Debug)]
pub struct Bgp {
    seed: u64,
    start: Instant,
    tasks: BTreeMap<PeerName, Task>,
    /// Tasks that were asked to end; a new one of the same name waits for them.
    ending: BTreeMap<PeerName, JoinHandle<()>>,
    reports: Arc<watch::Sender<Reports>>,
}

/// A peer's task, as its owner sees it.
#[derive(Debug)]
struct Task {
    config: PeerConfig,
    routes: watch::Sender<Arc<Routes>>,
    stop: oneshot::Sender<Notification>,
    join: JoinHandle<()>,
}

impl Bgp {
    /// Starts without peers. Must be called inside a tokio runtime.
    pub fn start(config: Config) -> (Handle, JoinHandle<()>) {
        let (desired, wanted) = watch::channel(Desired::default());
        let (sender, reports) = watch::channel(Reports::new());
        let bgp = Self {
            seed: config.seed,
            start: Instant::now(),
            tasks: BTreeMap::new(),
            ending: BTreeMap::new(),
            reports: Arc::new(sender),
        };
        let join = tokio::spawn(bgp.run(wanted));
        (Handle { desired, reports }, join)
    }

    async fn run(mut self, mut wanted: watch::Receiver<Desired>) {
        while wanted.changed().await.is_ok() {
            let desired = wanted.borrow_and_update().clone();
            self.apply(&desired);
        }
        let ends: Vec<JoinHandle<()>> = std::mem::take(&mut self.tasks)
            .into_values()
            .map(|task| task.end(Notification::administrative_shutdown("speaker stops")))
            .chain(std::mem::take(&mut self.ending).into_values())
            .collect();
        let all = async {
            for end in ends {
                // a task that panicked has been reported by the runtime
                drop(end.await);
            }
        };
        if timeout(STOP_TIME, all).await.is_err() {
            warn!("some peers did not take our last message in time");
        }
    }

    /// Ends what is no longer wanted, restarts what changed, passes routes on.
    fn apply(&mut self, desired: &Desired) {
        let mut peers: BTreeMap<&PeerName, &PeerConfig> = desired
            .peers
            .iter()
            .map(|peer| (&peer.name, peer))
            .collect();
        while peers.len() > MAX_PEERS {
            if let Some((name, _)) = peers.pop_last() {
                warn!(peer = %name, limit = MAX_PEERS, "too many peers, left out");
            }
        }
        self.ending.retain(|_, task| !task.is_finished());
        for (name, task) in std::mem::take(&mut self.tasks) {
            let notification = match peers.get(&name) {
                Some(&config) if *config == task.config => {
                    self.tasks.insert(name, task);
                    continue;
                }
                Some(_) => Notification::configuration_change(),
                None => Notification::peer_de_configured(),
            };
            info!(peer = %name, why = %notification, "session ends");
            self.ending.insert(name, task.end(notification));
        }
        for (name, config) in peers {
            let routes = desired.routes.get(name).cloned().unwrap_or_default();
            if let Some(task) = self.tasks.get(name) {
                task.routes.send_if_modified(|current| {
                    let changed = *current != routes;
                    *current = routes;
                    changed
                });
            } else {
                let before = self.ending.remove(name);
                let task = self.begin(config, routes, before);
                self.tasks.insert(name.clone(), task);
            }
        }
    }

    /// Starts a peer's task, which waits for its predecessor to have closed.
    fn begin(
        &self,
        config: &PeerConfig,
        routes: Arc<Routes>,
        before: Option<JoinHandle<()>>,
    ) -> Task {
        let (routes, wanted) = watch::channel(routes);
        let (stop, stopped) = oneshot::channel();
        let session = Session {
            peer: Peer::new(config.clone(), self.seed ^ hash(config.name.as_str())),
            start: self.start,
            dialled: Connection::Closed,
            wanted,
            reports: Arc::clone(&self.reports),
            lingering: None,
            notice: None,
        };
        let join = tokio::spawn(async move {
            if let Some(before) = before {
                drop(before.await);
            }
            session.run(stopped).await;
        });
        Task {
            config: config.clone(),
            routes,
            stop,
            join,
        }
    }
}

impl Task {
    /// Asks the task to end with this message; the returned handle is done when it has.
    fn end(self, notification: Notification) -> JoinHandle<()> {
        // if the task is gone already, there is nobody to tell
        drop(self.stop.send(notification));
        self.join
    }
}

/// A peer's task from inside.
struct Session {
    peer: Peer,
    start: Instant,
    dialled: Connection,
    wanted: watch::Receiver<Arc<Routes>>,
    reports: Arc<watch::Sender<Reports>>,
    /// The connection that was closed last, while its last bytes leave.
    lingering: Option<JoinHandle<()>>,
    notice: Option<(Reason, String)>,
}

/// What woke a session.
enum Wake {
    Stop(Notification),
    Routes,
    Io(Happening),
    Deadline,
}

impl Session {
    async fn run(mut self, mut stopped: oneshot::Receiver<Notification>) {
        let mut buffer = vec![0; READ_BYTES];
        self.input(Input::Start);
        let routes = self.wanted.borrow_and_update().clone();
        self.input(Input::Routes(routes));
        loop {
            match self.wake(&mut stopped, &mut buffer).await {
                Wake::Stop(notification) => {
                    self.input(Input::Stop(notification));
                    break;
                }
                Wake::Routes => {
                    let routes = self.wanted.borrow_and_update().clone();
                    self.input(Input::Routes(routes));
                }
                Wake::Deadline => self.input(Input::Tick),
                Wake::Io(happening) => self.happened(happening, &buffer),
            }
        }
        self.reports
            .send_modify(|reports| drop(reports.remove(&self.peer.config().name)));
        if let Some(lingering) = self.lingering.take() {
            drop(lingering.await);
        }
    }

    async fn wake(
        &mut self,
        stopped: &mut oneshot::Receiver<Notification>,
        buffer: &mut [u8],
    ) -> Wake {
        let deadline = self
            .peer
            .next_deadline()
            .map(|deadline| self.start + deadline.since_start());
        let sleep = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // the owner never drops the sender without a word, but if it did, the session should end
            notification = &mut *stopped => Wake::Stop(
                notification.unwrap_or_else(|_| Notification::administrative_shutdown("")),
            ),
            Ok(()) = self.wanted.changed() => Wake::Routes,
            happening = self.dialled.next(buffer) => Wake::Io(happening),
            () = sleep => Wake::Deadline,
        }
    }

    fn happened(&mut self, happening: Happening, buffer: &[u8]) {
        let side = Side::Dialled;
        match happening {
            Happening::Connected { local } => {
                debug!(peer = %self.peer.config().name, %local, "connected");
                self.input(Input::Connected { side, local });
            }
            Happening::Read(octets) => {
                let bytes = buffer.get(..octets).unwrap_or_default();
                self.input(Input::Bytes { side, bytes });
            }
            Happening::Drained => self.input(Input::Drained(side)),
            Happening::Ended(detail) => {
                self.dialled = Connection::Closed;
                self.input(Input::Failed { side, detail });
            }
        }
    }

    fn input(&mut self, input: Input<'_>) {
        let mut outputs = Vec::new();
        let now = Time::from_start(self.start.elapsed());
        let sent = self.peer.routes_sent();
        self.peer.handle(now, input, &mut outputs);
        let mut changed = self.peer.routes_sent() != sent;
        for output in outputs {
            changed |= self.carry_out(output);
        }
        if changed {
            let routes_sent = self.peer.routes_sent();
            let notice = self.notice.clone();
            self.reports.send_if_modified(|reports| {
                let Some(report) = reports.get_mut(&self.peer.config().name) else {
                    return false;
                };
                report.routes_sent = routes_sent;
                report.notice = notice;
                true
            });
        }
    }

    /// Whether the report changed.
    fn carry_out(&mut self, output: Output) -> bool {
        match output {
            Output::Dial => self.dialled = Connection::dial(self.peer.config()),
            Output::Send { bytes, .. } => self.dialled.send(&bytes),
            Output::Close(Side::Dialled) => {
                let closed = std::mem::replace(&mut self.dialled, Connection::Closed);
                self.lingering = closed.linger().or(self.lingering.take());
            }
            Output::Close(Side::Accepted) => {}
            Output::Changed(change) => {
                self.log(&change);
                if change.state != State::Established {
                    self.notice = None;
                }
                let name = self.peer.config().name.clone();
                let notice = self.notice.clone();
                self.reports.send_modify(|reports| {
                    reports.insert(
                        name,
                        Report {
                            change,
                            routes_sent: 0,
                            notice,
                        },
                    );
                });
                return true;
            }
            Output::Notice(reason, detail) => {
                warn!(peer = %self.peer.config().name, %reason, detail, "session is up, but not complete");
                self.notice = Some((reason, detail));
                return true;
            }
        }
        false
    }

    fn log(&self, change: &SessionChange) {
        let config = self.peer.config();
        let SessionChange {
            state,
            reason,
            detail,
        } = change;
        match (state, reason) {
            (State::Established, _) => {
                info!(peer = %config.name, addr = %config.address, "session established");
            }
            (_, Reason::Progress) => debug!(peer = %config.name, %state, "session state"),
            (_, Reason::AdministrativeShutdown) => {
                info!(peer = %config.name, addr = %config.address, detail, "session ended");
            }
            (_, _) => {
                warn!(peer = %config.name, addr = %config.address, %reason, detail, "session is down");
            }
        }
    }
}

/// FNV-1a, the same on every run.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
