//! Our BGP speaker against gobgpd, each in a network namespace of its own, joined by a veth pair.
//!
//! Owns the two namespaces, gobgpd and its configuration, and looking into its table. Never checks anything: that is what
//! `tests/` is for. What is made here lives only as long as its processes, so nothing is left behind.
#![forbid(unsafe_code)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    net::IpAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use api_model::{Asn, IpFamily, Port};
use nix::{
    sched::{CloneFlags, unshare},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use speaker::bgp_io::{Bgp, Config, Desired, Handle, Report};
use speaker_bgp::{NodeAddresses, PeerConfig, RemoteAsn, Route, Routes, State, Timers};
use tokio::{runtime::Runtime, task::JoinHandle};

/// Our address on the link.
pub const OURS_V4: &str = "203.0.113.11";
/// gobgpd's address on the link.
pub const THEIRS_V4: &str = "203.0.113.1";
/// Our IPv6 address on the link.
pub const OURS_V6: &str = "2001:db8:0:1::11";
/// gobgpd's IPv6 address on the link.
pub const THEIRS_V6: &str = "2001:db8:0:1::1";
/// How long anything may take.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// How gobgpd is set up.
#[derive(Clone, Debug)]
pub struct Router {
    /// Its AS number.
    pub asn: u32,
    /// Our address as it knows it.
    pub neighbour: &'static str,
    /// The AS that it expects of us.
    pub neighbour_asn: u32,
    /// Its TCP MD5 key.
    pub password: Option<&'static str>,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            asn: 64513,
            neighbour: OURS_V4,
            neighbour_asn: 64512,
            password: None,
        }
    }
}

impl Router {
    fn configuration(&self) -> String {
        let Self {
            asn,
            neighbour,
            neighbour_asn,
            password,
        } = self;
        let password = password.map_or(String::new(), |key| {
            format!("    auth-password = \"{key}\"\n")
        });
        let mut text = format!(
            "[global.config]\n  as = {asn}\n  router-id = \"{THEIRS_V4}\"\n\
             [[neighbors]]\n  [neighbors.config]\n    neighbor-address = \"{neighbour}\"\n    \
             peer-as = {neighbour_asn}\n{password}  \
             [neighbors.transport.config]\n    passive-mode = true\n  \
             [neighbors.timers.config]\n    hold-time = 9\n    idle-hold-time-after-reset = 1\n"
        );
        for family in ["ipv4-unicast", "ipv6-unicast"] {
            text += "  [[neighbors.afi-safis]]\n    [neighbors.afi-safis.config]\n";
            text += "      afi-safi-name = \"";
            text += family;
            text += "\"\n";
        }
        text
    }
}

/// A process that ends with its handle.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).spawn().map(Self)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).expect("process ids are 31 bits"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // it may have ended by itself
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Our speaker, gobgpd, and the link between them.
pub struct Bench {
    router: Router,
    folder: PathBuf,
    gobgpd: Option<Process>,
    /// Keeps gobgpd's namespace while gobgpd is not there.
    place: Process,
    runtime: Runtime,
    speaker: Option<(Handle, JoinHandle<()>)>,
}

/// Runs `test` in fresh namespaces, or says why that can't be done here.
pub fn with_gobgpd(router: Router, test: impl FnOnce(&mut Bench) + Send + 'static) {
    if !skips::have("gobgpd") || !skips::have("gobgp") {
        return skips::skip("gobgpd", "no gobgpd or gobgp on this machine");
    }
    let inside = thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skips::skip("net-admin", &format!("making a network namespace: {error}"));
        }
        test(&mut Bench::new(router).expect("the namespaces are made"));
    });
    if let Err(panic) = inside.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Polls until something is there; panics with what was last seen.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        match look() {
            Ok(found) => return found,
            Err(seen) => assert!(
                Instant::now() < end,
                "not in {DEADLINE:?}: {what}; last: {seen}"
            ),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(format!("{command:?}: {said}")))
}

fn words(program: &str, line: &str) -> Command {
    let mut command = Command::new(program);
    command.args(line.split_whitespace());
    command
}

impl Bench {
    fn new(router: Router) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("bgp-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let place = Process::start(&mut words("unshare", "--net sleep 600"))?;
        let bench = Self {
            router,
            folder,
            gobgpd: None,
            place,
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()?,
            speaker: None,
        };
        bench.link()?;
        Ok(bench)
    }

    /// A command in gobgpd's namespace.
    fn there(&self, line: &str) -> Command {
        words(
            "nsenter",
            &format!("--net=/proc/{}/ns/net {line}", self.place.pid()),
        )
    }

    fn link(&self) -> io::Result<()> {
        let place = self.place.pid();
        let ours = fs::read_link("/proc/thread-self/ns/net")?;
        eventually("unshare made its namespace", || {
            let theirs = fs::read_link(format!("/proc/{place}/ns/net"));
            let theirs = theirs.map_err(|error| error.to_string())?;
            if theirs == ours {
                Err("still ours".to_owned())
            } else {
                Ok(())
            }
        });
        for line in [
            "link set lo up",
            &format!("link add bgp-here type veth peer name bgp-there netns {place}"),
            &format!("addr add {OURS_V4}/24 dev bgp-here"),
            &format!("addr add {OURS_V6}/64 dev bgp-here nodad"),
            "link set bgp-here up",
        ] {
            run(&mut words("ip", line))?;
        }
        for line in [
            "ip link set lo up".to_owned(),
            format!("ip addr add {THEIRS_V4}/24 dev bgp-there"),
            format!("ip addr add {THEIRS_V6}/64 dev bgp-there nodad"),
            "ip link set bgp-there up".to_owned(),
        ] {
            run(&mut self.there(&line))?;
        }
        Ok(())
    }

    /// Starts gobgpd, or starts it again.
    pub fn start_gobgpd(&mut self) {
        let file = self.folder.join("gobgpd.toml");
        fs::write(&file, self.router.configuration()).expect("the configuration is written");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file());
        let log = log.expect("the log is opened");
        let mut command =
            self.there("gobgpd --api-hosts 127.0.0.1:50051 --log-plain --log-level debug -f");
        command
            .arg(file)
            .stderr(log.try_clone().expect("a file can be shared"))
            .stdout(log);
        self.gobgpd = Some(Process::start(&mut command).expect("gobgpd starts"));
        eventually("gobgpd answers", || self.gobgp("neighbor -j").map(drop));
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("gobgpd.log")
    }

    /// Everything that gobgpd has logged.
    pub fn gobgpd_log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Ends gobgpd as a power failure would.
    pub fn kill_gobgpd(&mut self) {
        drop(self.gobgpd.take());
    }

    /// Stops or continues gobgpd, whose sockets stay open.
    pub fn signal_gobgpd(&self, signal: Signal) {
        let gobgpd = self.gobgpd.as_ref().expect("gobgpd runs");
        kill(gobgpd.pid(), signal).expect("gobgpd is ours");
    }

    /// What the program gobgp answers.
    pub fn gobgp(&self, line: &str) -> Result<Value, String> {
        let answer =
            run(&mut self.there(&format!("gobgp {line}"))).map_err(|error| error.to_string())?;
        serde_json::from_str(&answer).map_err(|error| format!("{error}: {answer}"))
    }

    /// gobgpd's table of a family (`ipv4` or `ipv6`): prefix → the attributes of its best path by type.
    pub fn table(&self, family: &str) -> Result<BTreeMap<String, BTreeMap<u64, Value>>, String> {
        let table = self.gobgp(&format!("global rib -j -a {family}"))?;
        let paths = table
            .as_object()
            .into_iter()
            .flatten()
            .map(|(prefix, paths)| {
                let attributes = paths[0]["attrs"].as_array().cloned().unwrap_or_default();
                let by_type = attributes
                    .into_iter()
                    .filter_map(|attribute| Some((attribute["type"].as_u64()?, attribute)));
                (prefix.clone(), by_type.collect())
            });
        Ok(paths.collect())
    }

    /// Starts our speaker, if it isn't there, and says what it should do.
    pub fn speak(&mut self, desired: Desired) {
        let _inside = self.runtime.enter();
        let (handle, _) = self
            .speaker
            .get_or_insert_with(|| Bgp::start(Config::for_node(&"bgp-node".into())));
        handle.update(desired);
    }

    /// Ends our speaker and waits until it has.
    pub fn fall_silent(&mut self) {
        if let Some((handle, join)) = self.speaker.take() {
            drop(handle);
            self.runtime
                .block_on(join)
                .expect("the component ends well");
        }
    }

    /// What our speaker says of its session.
    pub fn report(&self) -> Option<Report> {
        let (handle, _) = self.speaker.as_ref()?;
        handle.reports().borrow().get(&"router".into()).cloned()
    }

    /// Waits until our speaker says that the session is in this state, and gives its report.
    pub fn wait_for(&self, state: State) -> Report {
        eventually(&format!("session is {state}"), || match self.report() {
            Some(report) if report.change.state == state => Ok(report),
            other => Err(format!("{other:?}")),
        })
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.fall_silent();
        // left behind it would only cost space
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The session as the tests want it: eBGP, both families, hold time 9 s.
pub fn peer(address: &str) -> PeerConfig {
    let address: IpAddr = address.parse().expect("an address");
    PeerConfig {
        name: "router".into(),
        local_asn: Asn(64512),
        remote_asn: RemoteAsn::Exactly(Asn(64513)),
        address,
        port: Port::new(179).expect("not 0"),
        source_address: None,
        router_id: OURS_V4.parse().expect("an address"),
        timers: Timers::new(Some(Duration::from_secs(9)), None).expect("9 s are allowed"),
        connect_time: Some(Duration::from_secs(1)),
        ebgp_multi_hop: false,
        families: BTreeSet::from([IpFamily::V4, IpFamily::V6]),
        node_addresses: NodeAddresses {
            v4: OURS_V4.parse().ok(),
            v6: OURS_V6.parse().ok(),
        },
        password: None,
    }
}

/// One peer that should hear these routes.
pub fn desired(peer: PeerConfig, routes: &[(&str, Route)]) -> Desired {
    let routes: Routes = routes
        .iter()
        .map(|(prefix, route)| (prefix.parse().expect("a prefix"), route.clone()))
        .collect();
    Desired {
        routes: BTreeMap::from([(peer.name.clone(), Arc::new(routes))]),
        peers: vec![peer],
    }
}
