//! A node's kernel in a network namespace of its own: everything lives on its loopback, gone with the thread.

use std::{
    io::Read,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use api_model::Port;
use nix::sched::{CloneFlags, unshare};
use speaker::proxier_io::{self, Programmed};
use speaker_proxier::{nft::compile::Settings, node_view::NodeView};

/// Runs `body` in a fresh network namespace; says that it can't where that isn't allowed.
pub(crate) fn in_namespace(body: impl FnOnce() + Send + 'static) {
    let ran = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        run("ip", &["link", "set", "lo", "up"]);
        for address in [
            "192.0.2.11/32",
            "198.51.100.201/32",
            "198.51.100.202/32",
            "192.0.2.200/32",
        ] {
            run("ip", &["address", "add", address, "dev", "lo"]);
        }
        run("ip", &["route", "add", "default", "dev", "lo"]);
        body();
        nix::Result::Ok(())
    });
    match ran.join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => skips::skip("net-admin", &format!("no network namespace: {error}")),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Our proxier over this kernel.
pub(crate) struct Proxier {
    pub(crate) handle: proxier_io::Handle,
    programmed: tokio::sync::watch::Receiver<Programmed>,
}

impl Proxier {
    pub(crate) fn start() -> Self {
        let (handle, programmed) =
            proxier_io::start(Settings::default(), Port::new(10_256)).expect("it starts");
        Self { handle, programmed }
    }

    /// Hands a view over and waits until the kernel follows it.
    pub(crate) fn follow(&self, view: NodeView) {
        let generation = view.generation;
        self.handle.update(Arc::new(view));
        eventually("the view is programmed", || {
            let shown = self.programmed.borrow().clone();
            (shown.generation == generation && !shown.failing)
                .then_some(())
                .ok_or(shown)
        });
    }
}

impl Proxier {
    /// What is not as asked.
    pub(crate) fn refusals(&self) -> Vec<speaker_proxier::Refusal> {
        self.programmed
            .borrow()
            .refusals
            .values()
            .flatten()
            .cloned()
            .collect()
    }
}

/// Polls for up to 60 s; the last observation stands in the message.
pub(crate) fn eventually<T, E: std::fmt::Debug>(
    what: &str,
    mut look: impl FnMut() -> Result<T, E>,
) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) if Instant::now() > deadline => panic!("{what}: last seen {seen:?}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A pod on the loopback: says its own address to whoever connects, and keeps the connection open.
pub(crate) fn pod(address: &str) {
    let at: SocketAddr = format!("{address}:8080").parse().expect("an address");
    let listener = TcpListener::bind(at).expect("the pod listens");
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = std::io::Write::write_all(&mut stream, format!("{}\n", at.ip()).as_bytes());
            open.push(stream);
        }
    });
}

/// Connects from an address; who answered, and the open connection.
pub(crate) fn connect(source: &str, to: &str) -> std::io::Result<(IpAddr, TcpStream)> {
    use std::os::fd::AsFd as _;
    let to: SocketAddr = to.parse().expect("an address");
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Stream,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    let from: SocketAddr = format!("{source}:0").parse().expect("an address");
    let timeout = nix::sys::time::TimeVal::new(2, 0);
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::SendTimeout, &timeout)?;
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::ReceiveTimeout, &timeout)?;
    let raw = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
    nix::sys::socket::bind(raw, &nix::sys::socket::SockaddrStorage::from(from))?;
    nix::sys::socket::connect(raw, &nix::sys::socket::SockaddrStorage::from(to))?;
    let mut stream = TcpStream::from(socket);
    let mut line = String::new();
    let mut byte = [0];
    while stream.read(&mut byte)? == 1 && byte != [b'\n'] {
        line.push(char::from(byte[0]));
    }
    let who = line.parse().map_err(std::io::Error::other)?;
    Ok((who, stream))
}
