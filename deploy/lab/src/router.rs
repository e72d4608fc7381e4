//! The lab's BGP router: gobgpd in the router's namespace, its best paths copied into that namespace's routes.
//!
//! gobgpd alone puts nothing into the kernel. Equal paths become one route with several next hops, which the kernel uses by
//! connection (layer 4 hash). Never checks what the speakers say beyond what gobgpd does.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    net::IpAddr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    error::{Doing as _, Result},
    netns::NetNs,
    topology::{NODES, ROUTER_V4, node_v4},
};

/// AS number of the router.
pub const ROUTER_ASN: u32 = 64501;
/// AS number of the nodes.
pub const NODE_ASN: u32 = 64500;

/// How often the paths are copied.
const PERIOD: Duration = Duration::from_millis(200);
/// Mark of our routes (`bgp` in iproute2's list of protocols).
const ROUTE_PROTOCOL: u8 = 186;

/// Prefixes, each with its next hops.
pub type Routes = BTreeMap<String, BTreeSet<IpAddr>>;

/// A running router; dropping it ends gobgpd.
#[derive(Debug)]
pub struct Router {
    ns: NetNs,
    daemon: Child,
    routes: Arc<Mutex<Routes>>,
    stop: Arc<AtomicBool>,
}

impl Router {
    /// Starts gobgpd with the three nodes as neighbours, its files in `folder`. It waits for them to connect.
    pub fn start(ns: &NetNs, folder: &Path) -> Result<Self> {
        let file = folder.join("gobgpd.toml");
        fs::write(&file, configuration()).doing("writing gobgpd's configuration")?;
        let log = fs::File::create(folder.join("gobgpd.log")).doing("making gobgpd's log")?;
        let mut command = Command::new("gobgpd");
        command
            .arg("-f")
            .arg(&file)
            .args(["--api-hosts", "127.0.0.1:50051", "--log-plain"])
            .stdin(Stdio::null())
            .stderr(log.try_clone().doing("opening gobgpd's log")?)
            .stdout(log);
        let daemon = ns.start(&mut command)?;
        let routes = Arc::new(Mutex::new(Routes::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, stopped, inside) = (Arc::clone(&routes), Arc::clone(&stop), ns.clone());
        ns.spawn(move || copy_until(&stopped, &inside, &kept));
        Ok(Self {
            ns: ns.clone(),
            daemon,
            routes,
            stop,
        })
    }

    /// The routes as last copied into the kernel.
    pub fn routes(&self) -> Routes {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.clone()
    }

    /// Neighbours whose session is Established.
    pub fn established(&self) -> Vec<IpAddr> {
        const ESTABLISHED: u64 = 6;
        let neighbours = self.ns.run(|| gobgp(&["neighbor", "-j"]));
        let neighbours = neighbours.as_ref().and_then(Value::as_array);
        let state = |neighbour: &&Value| neighbour["state"]["session_state"] == ESTABLISHED;
        let address = |neighbour: &Value| {
            neighbour["state"]["neighbor_address"]
                .as_str()?
                .parse()
                .ok()
        };
        neighbours
            .into_iter()
            .flatten()
            .filter(state)
            .filter_map(address)
            .collect()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // it may have ended by itself; then there is nothing to end
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn configuration() -> String {
    let mut text = format!(
        "[global.config]\n  as = {ROUTER_ASN}\n  router-id = \"{ROUTER_V4}\"\n\
         [global.use-multiple-paths.config]\n  enabled = true\n"
    );
    for number in 1..=NODES {
        let address = node_v4(number);
        write!(
            text,
            "[[neighbors]]\n  [neighbors.config]\n    neighbor-address = \"{address}\"\n    peer-as = {NODE_ASN}\n  \
             [neighbors.transport.config]\n    passive-mode = true\n  \
             [neighbors.timers.config]\n    hold-time = 9\n    idle-hold-time-after-reset = 1\n"
        )
        .expect("a String takes all text");
        for family in ["ipv4-unicast", "ipv6-unicast"] {
            write!(
                text,
                "  [[neighbors.afi-safis]]\n    [neighbors.afi-safis.config]\n      afi-safi-name = \"{family}\"\n"
            )
            .expect("a String takes all text");
        }
    }
    text
}

/// Output of `gobgp`, or `None` while the daemon isn't there
fn gobgp(arguments: &[&str]) -> Option<Value> {
    let output = Command::new("gobgp")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

fn copy_until(stop: &AtomicBool, ns: &NetNs, kept: &Mutex<Routes>) {
    let mut copied = Routes::new();
    while !stop.load(Ordering::Relaxed) {
        if let Some(wanted) = paths() {
            let lines = changes(&copied, &wanted);
            match if lines.is_empty() {
                Ok(())
            } else {
                ns.ip(&lines)
            } {
                Ok(()) => copied = wanted,
                Err(error) => tracing::warn!(%error, "routes were not copied, trying again"),
            }
            kept.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone_from(&copied);
        }
        thread::sleep(PERIOD);
    }
}

/// Prefixes of both families with the next hops of their best paths; `None` while gobgpd doesn't answer
fn paths() -> Option<Routes> {
    let mut routes = Routes::new();
    for family in ["ipv4", "ipv6"] {
        let table = gobgp(&["global", "rib", "-j", "-a", family])?;
        routes.extend(read_table(&table));
    }
    Some(routes)
}

fn read_table(table: &Value) -> Routes {
    let prefixes = table.as_object().into_iter().flatten();
    let next_hops = |paths: &Value| -> BTreeSet<IpAddr> {
        let paths: Vec<&Value> = paths.as_array().into_iter().flatten().collect();
        let best = paths
            .iter()
            .find(|path| path["best"] == true)
            .map(|path| rank(path));
        let equal = paths.into_iter().filter(|path| Some(rank(path)) == best);
        equal
            .filter_map(next_hop)
            .filter(|hop| !hop.is_unspecified())
            .collect()
    };
    prefixes
        .map(|(prefix, paths)| (prefix.clone(), next_hops(paths)))
        .filter(|(_, next_hops)| !next_hops.is_empty())
        .collect()
}

fn attribute(path: &Value, number: u64) -> Option<&Value> {
    path["attrs"]
        .as_array()?
        .iter()
        .find(|attribute| attribute["type"] == number)
}

/// What makes one path better than another here (RFC 4271 §9.1): local preference, length of the AS path, MED
fn rank(path: &Value) -> (u64, usize, u64) {
    const AS_PATH: u64 = 2;
    const MED: u64 = 4;
    const LOCAL_PREF: u64 = 5;
    let number = |kind, key: &str| attribute(path, kind).and_then(|found| found[key].as_u64());
    let segments = attribute(path, AS_PATH).and_then(|found| found["as_paths"].as_array());
    let length = segments.into_iter().flatten();
    let length = length
        .filter_map(|segment| segment["asns"].as_array())
        .map(Vec::len)
        .sum();
    (
        number(LOCAL_PREF, "value").unwrap_or(100),
        length,
        number(MED, "metric").unwrap_or(0),
    )
}

fn next_hop(path: &Value) -> Option<IpAddr> {
    const NEXT_HOP: u64 = 3;
    const MP_REACH: u64 = 14;
    let found = attribute(path, NEXT_HOP).or_else(|| attribute(path, MP_REACH))?;
    found["nexthop"].as_str()?.parse().ok()
}

/// Lines for `ip -batch` that turn one set of routes into another
fn changes(from: &Routes, to: &Routes) -> String {
    let mut lines = String::new();
    for prefix in from.keys().filter(|prefix| !to.contains_key(*prefix)) {
        writeln!(lines, "route del {prefix} proto {ROUTE_PROTOCOL}")
            .expect("a String takes all text");
    }
    for (prefix, next_hops) in to
        .iter()
        .filter(|(prefix, hops)| from.get(*prefix) != Some(hops))
    {
        let hops: Vec<String> = next_hops
            .iter()
            .map(|hop| format!(" nexthop via {hop}"))
            .collect();
        writeln!(
            lines,
            "route replace {prefix} proto {ROUTE_PROTOCOL}{}",
            hops.concat()
        )
        .expect("a String takes all text");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_paths_are_one_route_and_worse_ones_are_left_out() {
        let path = |best: bool, asns: &[u32], hop: &str| {
            serde_json::json!({"best": best, "attrs": [
                {"type": 2, "as_paths": [{"segment_type": 2, "num": asns.len(), "asns": asns}]},
                {"type": 3, "nexthop": hop}]})
        };
        let table = serde_json::json!({"192.0.2.10/32": [
            path(true, &[64500], "192.0.2.1"),
            path(false, &[64500], "192.0.2.3"),
            path(false, &[64500, 64500], "192.0.2.2"),
        ]});
        let hops = ["192.0.2.1", "192.0.2.3"].map(|hop| hop.parse().expect("an address"));
        assert_eq!(
            read_table(&table),
            Routes::from([("192.0.2.10/32".to_owned(), hops.into())])
        );
    }

    #[test]
    fn only_what_differs_is_changed() {
        let hops = |hops: &[&str]| {
            hops.iter()
                .map(|hop| hop.parse().expect("an address"))
                .collect()
        };
        let from = Routes::from([
            ("192.0.2.10/32".to_owned(), hops(&["192.0.2.1"])),
            ("192.0.2.11/32".to_owned(), hops(&["192.0.2.1"])),
            ("192.0.2.12/32".to_owned(), hops(&["192.0.2.1"])),
        ]);
        let to = Routes::from([
            (
                "192.0.2.11/32".to_owned(),
                hops(&["192.0.2.1", "192.0.2.2"]),
            ),
            ("192.0.2.12/32".to_owned(), hops(&["192.0.2.1"])),
        ]);
        assert_eq!(
            changes(&from, &to),
            "route del 192.0.2.10/32 proto 186\n\
             route replace 192.0.2.11/32 proto 186 nexthop via 192.0.2.1 nexthop via 192.0.2.2\n"
        );
    }
}
