//! The layer 2 responder against real kernels: two nodes and a client on one bridge, in network namespaces of their own.
//!
//! The client is the Linux kernel: it resolves, probes and believes, or not. Needs root; skipped as `net-admin` otherwise.
#![expect(
    clippy::unwrap_used,
    reason = "a test that can't build its network should say where"
)]

use std::{
    collections::BTreeMap,
    fs::File,
    net::{IpAddr, UdpSocket},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, setns};
use speaker::l2_io::{self, Config, Event, Handle, Snapshot};
use speaker_l2::{announcer::VipSpec, candidate::Selection};
use tokio::sync::mpsc::Receiver;

const VIP4: &str = "192.0.2.240";
const VIP6: &str = "2001:db8:2::240";
const DEADLINE: Duration = Duration::from_secs(20);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A bridge with `a`, `b` (nodes) and `c` (client), removed when dropped.
struct Lan {
    prefix: String,
}

fn run(program: &str, arguments: &str) -> Result<String, String> {
    let words = arguments.split_whitespace();
    let output = Command::new(program)
        .args(words)
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!(
            "{program} {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

fn ip(arguments: &str) -> String {
    run("ip", arguments).unwrap()
}

impl Lan {
    /// `None` where namespaces can't be made.
    fn new() -> Option<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let lan = Self {
            prefix: format!("l2-{}-{number}", std::process::id()),
        };
        if let Err(why) = run("ip", &format!("netns add {}", lan.name("sw"))) {
            skips::skip("net-admin", &why);
            return None;
        }
        let switch = lan.name("sw");
        ip(&format!("-n {switch} link add name br0 type bridge"));
        ip(&format!("-n {switch} link set br0 up"));
        for (name, last) in [("a", 11), ("b", 12), ("c", 200)] {
            let own = lan.name(name);
            ip(&format!("netns add {own}"));
            ip(&format!(
                "-n {own} link add name eth0 type veth peer name p{name} netns {switch}"
            ));
            ip(&format!("-n {own} address add 192.0.2.{last}/24 dev eth0"));
            ip(&format!(
                "-n {own} address add 2001:db8:2::{last}/64 dev eth0 nodad"
            ));
            ip(&format!("-n {own} link set eth0 up"));
            ip(&format!("-n {switch} link set p{name} master br0 up"));
        }
        Some(lan)
    }

    fn name(&self, of: &str) -> String {
        format!("{}-{of}", self.prefix)
    }

    /// Runs on a thread of its own inside a namespace.
    fn inside<T: Send>(&self, of: &str, what: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name(of));
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(File::open(path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
                what()
            });
            thread.join().expect("it ran")
        })
    }

    fn speaker(&self, of: &str) -> (Handle, Receiver<Event>) {
        self.inside(of, || l2_io::start(Config::default()).unwrap())
    }

    fn mac(&self, of: &str) -> String {
        let text = ip(&format!("-n {} -o link show dev eth0", self.name(of)));
        let mut words = text
            .split_whitespace()
            .skip_while(|word| *word != "link/ether");
        words.nth(1).expect("an address").to_owned()
    }

    /// Makes the client's kernel want to know where the VIP is.
    fn ask(&self, vip: &str) {
        let to: IpAddr = vip.parse().unwrap();
        let from = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        self.inside("c", || {
            let socket = UdpSocket::bind(from).unwrap();
            // While resolving fails the kernel may refuse; the next question asks again.
            drop(socket.send_to(b"?", (to, 9)));
        });
    }

    /// The client's neighbour entry, such as `dev eth0 lladdr … REACHABLE`.
    fn entry(&self, vip: &str) -> String {
        ip(&format!("-n {} neigh show {vip}", self.name("c")))
            .trim()
            .to_owned()
    }

    /// Waits for an entry; asks again now and then when `asks`.
    fn until(&self, vip: &str, asks: bool, right: impl Fn(&str) -> bool) -> Duration {
        let started = Instant::now();
        let mut asked: Option<Instant> = None;
        loop {
            let entry = self.entry(vip);
            if right(&entry) {
                return started.elapsed();
            }
            assert!(started.elapsed() < DEADLINE, "{vip}: {entry:?}");
            if asks && asked.is_none_or(|asked| asked.elapsed() > Duration::from_millis(500)) {
                self.ask(vip);
                asked = Some(Instant::now());
            }
        }
    }
}

impl Drop for Lan {
    fn drop(&mut self) {
        for of in ["a", "b", "c", "sw"] {
            drop(run("ip", &format!("netns delete {}", self.name(of))));
        }
    }
}

fn snapshot(vips: &[&str]) -> Snapshot {
    let spec = VipSpec {
        interfaces: Selection::All,
        announce: true,
    };
    let vips: BTreeMap<_, _> = vips
        .iter()
        .map(|vip| (vip.parse().unwrap(), spec.clone()))
        .collect();
    Snapshot {
        vips,
        ..Snapshot::default()
    }
}

/// The next event that is not about the interfaces.
fn next(events: &mut Receiver<Event>) -> Event {
    loop {
        match events.blocking_recv().expect("the thread runs") {
            Event::Interfaces(_) => {}
            event @ (Event::Announced(..) | Event::Withdrawn(..) | Event::Conflict(..)) => {
                return event;
            }
        }
    }
}

#[test]
fn a_kernel_resolves_a_vip_probes_it_and_gets_no_answer_once_it_is_withdrawn() {
    let Some(lan) = Lan::new() else { return };
    let (speaker, mut events) = lan.speaker("a");
    speaker.update(snapshot(&[VIP4, VIP6]));
    for vip in [VIP4, VIP6] {
        assert_eq!(
            next(&mut events),
            Event::Announced(vip.parse().unwrap(), "eth0".into())
        );
    }
    let (client, mac) = (lan.name("c"), lan.mac("a"));
    for vip in [VIP4, VIP6] {
        let at_node = |entry: &str| entry.contains(&mac) && entry.contains("REACHABLE");
        let took = lan.until(vip, true, at_node);
        eprintln!("{vip} was resolved in {took:?}");
        // In PROBE the kernel asks by unicast only (RFC 4861 §7.3.3, RFC 1122 §2.3.2.1): REACHABLE proves an answer.
        ip(&format!(
            "-n {client} neigh change {vip} lladdr {mac} dev eth0 nud probe"
        ));
        lan.until(vip, false, at_node);
    }
    let group = "ff02::1:ff00:240";
    let groups = || ip(&format!("-n {} -6 maddress show dev eth0", lan.name("a")));
    assert!(groups().contains(group), "{}", groups());

    speaker.update(Snapshot::default());
    for vip in [VIP4, VIP6] {
        assert_eq!(
            next(&mut events),
            Event::Withdrawn(vip.parse().unwrap(), "eth0".into())
        );
        ip(&format!("-n {client} neigh flush to {vip}"));
        lan.until(vip, true, |entry| entry.contains("FAILED"));
    }
    let left = Instant::now();
    while groups().contains(group) {
        assert!(left.elapsed() < DEADLINE, "still a member: {}", groups());
    }
}

#[test]
fn an_announcement_moves_the_neighbours_entry_to_the_new_holder() {
    let Some(lan) = Lan::new() else { return };
    let ((first, _first), (second, _second)) = (lan.speaker("a"), lan.speaker("b"));
    let (mac_a, mac_b) = (lan.mac("a"), lan.mac("b"));
    first.update(snapshot(&[VIP4, VIP6]));
    for vip in [VIP4, VIP6] {
        lan.until(vip, true, |entry| entry.contains(&mac_a));
    }
    first.update(Snapshot::default());
    second.update(snapshot(&[VIP4, VIP6]));
    for vip in [VIP4, VIP6] {
        // Nobody asks: only an announcement can move the entry.
        let took = lan.until(vip, false, |entry| entry.contains(&mac_b));
        eprintln!("the entry for {vip} moved after {took:?}");
        assert!(
            took < Duration::from_secs(1),
            "not by the first announcement: {took:?}"
        );
    }
}
