//! Clients of the lab: connections and datagrams that ask who answers, and what comes back, counted.
//!
//! Each attempt is a new connection from a new port. Never retries: what failed is part of the answer.

use std::{
    collections::BTreeMap,
    fmt,
    io::{ErrorKind, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use api_model::Protocol;

use crate::{
    error::{Doing as _, Error, Result},
    netns::NetNs,
};

/// How long one attempt may take.
pub const PATIENCE: Duration = Duration::from_secs(1);

/// What a pod said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answer {
    /// The pod that answered.
    pub pod: String,
    /// The client address that it saw.
    pub source: IpAddr,
}

/// Why nothing came back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Failure {
    /// RST, or ICMP port unreachable.
    #[error("refused")]
    Refused,
    /// Nothing within [`PATIENCE`].
    #[error("no answer")]
    Silence,
    /// Another error of the socket.
    #[error("{0}")]
    Socket(ErrorKind),
    /// Something answered that is not a pod of the lab.
    #[error("a strange answer: {0:?}")]
    Strange(String),
}

/// One question to `target`; the calling thread's namespace is where it comes from.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the standard library's list of kinds is open"
)]
pub fn ask(protocol: Protocol, target: SocketAddr) -> Result<Answer, Failure> {
    let text = match protocol {
        Protocol::Tcp => ask_tcp(target),
        Protocol::Udp => ask_udp(target),
        Protocol::Sctp => return Err(Failure::Socket(ErrorKind::Unsupported)),
    };
    let text = text.map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => Failure::Refused,
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Failure::Silence,
        kind => Failure::Socket(kind),
    })?;
    read_answer(&text).ok_or(Failure::Strange(text))
}

fn read_answer(text: &str) -> Option<Answer> {
    let (pod, source) = text.trim_end().split_once('|')?;
    Some(Answer {
        pod: pod.to_owned(),
        source: source.parse().ok()?,
    })
}

fn ask_tcp(target: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&target, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    stream.by_ref().take(512).read_to_string(&mut text)?;
    Ok(text)
}

fn ask_udp(target: SocketAddr) -> std::io::Result<String> {
    let socket = UdpSocket::bind(any(target))?;
    socket.connect(target)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(b"who?\n")?;
    let mut text = [0; 512];
    let length = socket.recv(&mut text)?;
    Ok(String::from_utf8_lossy(text.get(..length).unwrap_or_default()).into_owned())
}

fn any(target: SocketAddr) -> SocketAddr {
    let any: IpAddr = if target.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    SocketAddr::new(any, 0)
}

/// What many questions brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Answers by pod.
    pub pods: BTreeMap<String, usize>,
    /// Answers by the client address that the pod saw.
    pub sources: BTreeMap<IpAddr, usize>,
    /// Attempts without an answer, by cause.
    pub failures: BTreeMap<Failure, usize>,
}

impl Tally {
    /// Attempts that were answered.
    pub fn answered(&self) -> usize {
        self.pods.values().sum()
    }

    /// Attempts that were not.
    pub fn failed(&self) -> usize {
        self.failures.values().sum()
    }

    /// The pods that answered.
    pub fn pod_names(&self) -> Vec<&str> {
        self.pods.keys().map(String::as_str).collect()
    }

    fn count(&mut self, outcome: Result<Answer, Failure>) {
        match outcome {
            Ok(answer) => {
                *self.pods.entry(answer.pod).or_default() += 1;
                *self.sources.entry(answer.source).or_default() += 1;
            }
            Err(failure) => *self.failures.entry(failure).or_default() += 1,
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        words.extend(
            self.pods
                .iter()
                .map(|(pod, count)| format!("{pod} ×{count}")),
        );
        words.extend(
            self.failures
                .iter()
                .map(|(why, count)| format!("{why} ×{count}")),
        );
        write!(f, "{}", words.join(", "))
    }
}

/// Asks `count` times from a namespace, one after the other. Gives up after three silent attempts in a row, so that a dead
/// address costs seconds and not minutes.
pub fn ask_many(from: &NetNs, protocol: Protocol, target: SocketAddr, count: usize) -> Tally {
    from.run(|| {
        let mut tally = Tally::default();
        let mut silent = 0;
        for _ in 0..count {
            let outcome = ask(protocol, target);
            silent = if outcome == Err(Failure::Silence) {
                silent + 1
            } else {
                0
            };
            tally.count(outcome);
            if silent == 3 {
                break;
            }
        }
        tally
    })
}

/// A stream of datagrams, one a millisecond, each from the next of a ring of ports, that notes when answers come.
#[derive(Debug)]
pub struct Stream {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<std::io::Result<Heard>>,
}

/// What a [`Stream`] heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Datagrams sent.
    pub sent: usize,
    /// Answers.
    pub answers: usize,
    /// Longest time between two answers.
    pub longest_gap: Duration,
}

impl Stream {
    /// Begins to ask `target` from a namespace.
    pub fn start(from: &NetNs, target: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = from.spawn(move || stream(target, &seen));
        Self { stop, thread }
    }

    /// Ends it and says what it heard.
    pub fn stop(self) -> Result<Heard> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(heard) => heard.doing("asking in a stream"),
            Err(_) => Err(Error::because("asking in a stream", "its thread panicked")),
        }
    }
}

fn stream(target: SocketAddr, stop: &AtomicBool) -> std::io::Result<Heard> {
    const PORTS: usize = 64;
    const PERIOD: Duration = Duration::from_millis(1);
    let sockets = (0..PORTS)
        .map(|_| {
            let socket = UdpSocket::bind(any(target))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        })
        .collect::<std::io::Result<Vec<_>>>()?;
    let mut heard = Heard::default();
    let mut last: Option<Instant> = None;
    for socket in sockets.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // unreachable for now is what this is here to see
        heard.sent += usize::from(socket.send_to(b"who?\n", target).is_ok());
        thread::sleep(PERIOD);
        let answers = sockets.iter().filter(|socket| was_answered(socket)).count();
        if answers > 0 {
            let now = Instant::now();
            heard.answers += answers;
            let gap = last.map_or(Duration::ZERO, |last| now - last);
            heard.longest_gap = heard.longest_gap.max(gap);
            last = Some(now);
        }
    }
    Ok(heard)
}

fn was_answered(socket: &UdpSocket) -> bool {
    let mut text = [0; 64];
    let mut answered = false;
    while socket.recv_from(&mut text).is_ok() {
        answered = true;
    }
    answered
}
