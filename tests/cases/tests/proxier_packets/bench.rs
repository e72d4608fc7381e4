//! A node and its pods in network namespaces of their own, with the speaker's proxier on the node. Whatever is made here goes
//! with its last handle: nothing has a name outside.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use api_model::Port;
use nix::sched::{CloneFlags, setns, unshare};
use speaker::{
    nft_io::{Found, NftIo},
    proxier_io::{self, Programmed},
};
use speaker_proxier::nft::{Table, compile::Settings};
use tokio::sync::watch;

use crate::world::Objects;

/// How long anything may take: the longest time in which changed rules are put right.
const DEADLINE: Duration = Duration::from_secs(60);
const GATEWAY: &str = "198.51.100.193";
pub(crate) const NODE: &str = "192.0.2.11";

/// Runs a test on a thread in a fresh namespace, the node's; says so where that is not allowed.
pub(crate) fn inside(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skips::skip("net-admin", &format!("making a network namespace: {error}"));
        }
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Polls until something holds; panics with what was last seen.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < end, "not in time: {what}; last: {seen}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a program here; gives what it prints.
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    let output = Command::new(program)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Gives the node its addresses and lets it forward.
pub(crate) fn set_up_node() {
    run("ip link set lo up");
    run(&format!("ip addr add {NODE}/32 dev lo"));
    run(&format!("ip addr add {GATEWAY}/32 dev lo"));
    // a node has a way to everywhere; what goes there is seen by nobody
    run("ip link add outside type veth peer name nowhere");
    run("ip link set outside up");
    run("ip link set nowhere up");
    run("ip route add default dev outside");
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("the namespace is ours");
}

/// A host behind the node: a pod, or a client outside. Sockets that are made inside stay inside.
pub(crate) struct Host(File);

impl Host {
    /// Plugs it into the node under this interface name.
    pub(crate) fn plug(interface: &str, address: &str) -> Self {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).expect("the first namespace was allowed");
            File::open("/proc/thread-self/ns/net").expect("it is there")
        });
        let host = Self(made.join().expect("it only makes a namespace"));
        let place = format!("/proc/{}/fd/{}", std::process::id(), host.0.as_raw_fd());
        run(&format!(
            "ip link add {interface} type veth peer name eth0 netns {place}"
        ));
        run(&format!("ip link set {interface} up"));
        run(&format!("ip route add {address}/32 dev {interface}"));
        host.run(|| {
            run("ip link set lo up");
            run(&format!("ip addr add {address}/32 dev eth0"));
            run("ip link set eth0 up");
            run(&format!(
                "ip route add default via {GATEWAY} dev eth0 onlink"
            ));
        });
        host
    }

    /// Runs something inside.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(&self.0, CloneFlags::CLONE_NEWNET).expect("it was made here");
                work()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A server that says, line by line, which address the client has; until the test's process ends.
    pub(crate) fn serve(&self, port: u16) {
        let listener = self.run(|| TcpListener::bind(("0.0.0.0", port)));
        let listener = listener.expect("nobody else listens");
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    let (here, there) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
                    let mut answers = stream.try_clone().ok()?;
                    for _ in BufReader::new(stream).lines().map_while(Result::ok) {
                        writeln!(answers, "{} {}", here.ip(), there.ip()).ok()?;
                    }
                    Some(())
                });
            }
        });
    }

    /// Opens a connection.
    pub(crate) fn connect(&self, to: &str) -> Result<Connection, String> {
        let to: SocketAddr = to.parse().expect("address and port");
        let stream = self.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(3)));
        let stream = stream.map_err(|error| error.to_string())?;
        stream
            .set_read_timeout(Some(Duration::from_secs(3)))
            .expect("not zero");
        Ok(Connection(BufReader::new(stream)))
    }

    /// Server and client address of one new connection, as the server sees them.
    pub(crate) fn ask(&self, to: &str) -> Result<[IpAddr; 2], String> {
        self.connect(to)?.ask()
    }
}

/// An open connection.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Server and client address, as the server sees them.
    pub(crate) fn ask(&mut self) -> Result<[IpAddr; 2], String> {
        let failed = |error: std::io::Error| error.to_string();
        self.0.get_mut().write_all(b"\n").map_err(failed)?;
        let mut line = String::new();
        self.0.read_line(&mut line).map_err(failed)?;
        let parse = |text: &str| text.parse().map_err(|_| format!("{line:?}"));
        let (here, there) = line.trim().split_once(' ').ok_or("closed")?;
        Ok([parse(here)?, parse(there)?])
    }
}

/// The proxier of the node.
pub(crate) struct Proxier {
    handle: proxier_io::Handle,
    programmed: watch::Receiver<Programmed>,
}

impl Proxier {
    /// Starts it; it does nothing before the first snapshot.
    pub(crate) fn start() -> Self {
        let (handle, programmed) =
            proxier_io::start(Settings::default(), Port::new(10_256)).expect("the node is ours");
        Self { handle, programmed }
    }

    /// Starts it and lets it follow these objects.
    pub(crate) fn of(objects: &mut Objects) -> Self {
        let started = Self::start();
        started.follow(objects);
        started
    }

    /// Follows the objects, and waits until their rules are in the kernel.
    pub(crate) fn follow(&self, objects: &mut Objects) {
        let (view, _) = objects.view();
        let generation = view.generation;
        self.handle.update(Arc::new(view));
        eventually("rules are in step", || {
            let seen = self.programmed.borrow().clone();
            if seen.generation == generation && !seen.failing {
                Ok(())
            } else {
                Err(format!("{seen:?}"))
            }
        });
    }

    pub(crate) fn programmed(&self) -> Programmed {
        self.programmed.borrow().clone()
    }
}

/// The number of the kernel's ruleset: every change by anybody raises it.
pub(crate) fn ruleset() -> u32 {
    let mut nft = NftIo::open(Settings::default()).expect("the node is ours");
    nft.generation().expect("the kernel answers")
}

/// Our table as the kernel has it, if it is whole.
pub(crate) fn table() -> Result<Table, String> {
    let mut nft = NftIo::open(Settings::default()).expect("the node is ours");
    match nft.read().expect("the kernel answers") {
        Found::Table(table) => Ok(table),
        Found::Unusable(why) => Err(why.to_owned()),
    }
}

/// The whole answer to a GET, made from the node.
pub(crate) fn get(to: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| error.to_string();
    let to: SocketAddr = to.parse().expect("address and port");
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(3)).map_err(failed)?;
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: node-a\r\n\r\n")
        .map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    Ok(answer)
}
