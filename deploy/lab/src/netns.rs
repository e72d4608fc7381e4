//! A network namespace: made, entered by threads of its own, named below the lab's `/run/netns`.
//!
//! Never moves a thread of the run time: whoever has to be inside gets a thread for it.

use std::{
    fs::{self, File},
    io::Write as _,
    net::IpAddr,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
};

use serde_json::Value;

use crate::error::{Doing as _, Error, Result};

/// A network namespace that lives as long as a handle, a process or its name does.
#[derive(Clone, Debug)]
pub struct NetNs {
    name: Arc<str>,
    handle: Arc<File>,
}

impl NetNs {
    /// A new namespace with loopback up, known to `ip` by this name inside the lab.
    pub fn create(name: &str) -> Result<Self> {
        let made = thread::scope(|scope| {
            let make = || {
                unshare(CloneFlags::CLONE_NEWNET).doing("making a network namespace")?;
                Self::of_this_thread(name)
            };
            scope
                .spawn(make)
                .join()
                .expect("the thread only makes a namespace")
        })?;
        // link-local addresses of new links are usable at once, not after a second of duplicate detection
        made.sysctl(&[
            ("ipv6/conf/all/accept_dad", "0"),
            ("ipv6/conf/default/accept_dad", "0"),
        ])?;
        made.ip("link set lo up")?;
        Ok(made)
    }

    /// The namespace that the calling thread is in, under this name.
    pub fn of_this_thread(name: &str) -> Result<Self> {
        let source = "/proc/thread-self/ns/net";
        let handle = File::open(source).doing("opening a network namespace")?;
        let target = format!("/run/netns/{name}");
        File::create(&target).doing(format!("naming the namespace {name}"))?;
        let none: Option<&str> = None;
        mount(Some(source), target.as_str(), none, MsFlags::MS_BIND, none)
            .doing(format!("naming the namespace {name}"))?;
        Ok(Self {
            name: name.into(),
            handle: Arc::new(handle),
        })
    }

    /// The namespace that goes by this name in the lab.
    pub fn named(name: &str) -> Result<Self> {
        let handle = File::open(format!("/run/netns/{name}"));
        let handle = Arc::new(handle.doing(format!("looking for the namespace {name}"))?);
        Ok(Self {
            name: name.into(),
            handle,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a thread inside and waits for it; for what is quick or may block the caller.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                self.enter();
                work()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a thread inside that outlives the call.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> thread::JoinHandle<T> {
        let inside = self.clone();
        thread::spawn(move || {
            inside.enter();
            work()
        })
    }

    /// Starts a program inside.
    pub fn start(&self, command: &mut Command) -> Result<Child> {
        let what = format!(
            "starting {} in {}",
            command.get_program().display(),
            self.name
        );
        self.run(|| command.spawn()).doing(what)
    }

    /// Gives lines to `ip -batch`; fails with what `ip` says.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = self.start(&mut command)?;
        let doing = || format!("ip in {}", self.name);
        let mut input = child.stdin.take().expect("its input is a pipe");
        input.write_all(lines.as_bytes()).doing(doing())?;
        drop(input);
        let output = child.wait_with_output().doing(doing())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Error::because(format!("{}: {lines}", doing()), said))
    }

    /// What `ip -j` answers.
    pub fn ip_json(&self, arguments: &[&str]) -> Result<Value> {
        let mut command = Command::new("ip");
        command.arg("-j").args(arguments).stdin(Stdio::null());
        let output = self
            .run(|| command.output())
            .doing(format!("ip in {}", self.name))?;
        // nothing found is an empty answer, not an empty list
        if output.stdout.trim_ascii().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&output.stdout).doing(format!("ip in {}", self.name))
    }

    /// The hardware address that this host knows for a neighbour.
    pub fn neighbour(&self, address: IpAddr) -> Result<Option<String>> {
        let found = self.ip_json(&["neigh", "show", "to", &address.to_string()])?;
        Ok(found[0]["lladdr"].as_str().map(str::to_owned))
    }

    /// The hardware address of its `eth0`.
    pub fn hardware_address(&self) -> Result<String> {
        let link = self.ip_json(&["link", "show", "dev", "eth0"])?;
        let address = link[0]["address"].as_str().map(str::to_owned);
        address.ok_or_else(|| {
            Error::because(
                format!("looking at eth0 of {}", self.name),
                "it has no address",
            )
        })
    }

    /// Sets `net.…` sysctls, written `ipv4/ip_forward`.
    pub fn sysctl(&self, settings: &[(&str, &str)]) -> Result<()> {
        self.run(|| {
            settings.iter().try_for_each(|(key, value)| {
                fs::write(format!("/proc/sys/net/{key}"), value)
                    .doing(format!("setting net/{key} in {}", self.name))
            })
        })
    }

    /// Takes the name away; the namespace goes when its last process and handle have gone.
    pub fn forget_name(&self) {
        let path = format!("/run/netns/{}", self.name);
        let _ = nix::mount::umount2(path.as_str(), nix::mount::MntFlags::MNT_DETACH);
        let _ = fs::remove_file(path);
    }

    fn enter(&self) {
        setns(&*self.handle, CloneFlags::CLONE_NEWNET)
            .expect("a thread may enter a namespace that this process made");
    }
}
