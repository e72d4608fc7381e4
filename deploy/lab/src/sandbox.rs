//! Namespaces of the lab's own: network, mount, PID and, for a user who is not root, user.
//!
//! The program starts itself a second time inside them. The inner one is the first process of the PID namespace: when it
//! ends, for whatever reason, the kernel ends all others and takes the network down with them; and it is killed when the
//! outer one dies. So nothing is left, also after kill -9. Never touches the machine's interfaces, routes or rules.

use std::{
    fs,
    net::TcpListener,
    os::fd::{AsFd as _, OwnedFd},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill},
    },
    unistd::{Pid, getgid, getuid, mkdtemp},
};

use crate::error::{Doing as _, Error, Result};

/// Set in the inner process, to the folder that the outer one made for it.
const FOLDER: &str = "ROADSTEAD_LAB_FOLDER";

/// What the inner process gets from the outer one.
#[derive(Debug)]
pub struct Inside {
    /// Listens in the namespace that the outer process was started in, so that the user's shell reaches it.
    pub listener: TcpListener,
    /// For files that the user's shell may read; the outer process removes it at the end.
    pub folder: PathBuf,
}

/// Whether this process is the inner one.
pub fn is_inside() -> bool {
    std::env::var_os(FOLDER).is_some()
}

/// Starts this program again with the same arguments in new namespaces, with `listener` as its standard input, and waits
/// for it; passes on signals. Must be called before any thread is started. Fails where namespaces are not allowed.
pub fn enter(listener: TcpListener) -> Result<ExitCode> {
    let signals = block_signals()?;
    unshare_all()?;
    let folder = mkdtemp(&std::env::temp_dir().join("roadstead-XXXXXX"));
    let folder = folder.doing("making a folder for the lab")?;
    let status = run_inside(listener, &folder, &signals);
    fs::remove_dir_all(&folder).doing("removing the lab's folder")?;
    Ok(exit_code(status?))
}

fn run_inside(listener: TcpListener, folder: &Path, signals: &SigSet) -> Result<ExitStatus> {
    let mut child = Command::new("/proc/self/exe")
        .arg0(std::env::args_os().next().unwrap_or_default())
        .args(std::env::args_os().skip(1))
        .env(FOLDER, folder)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .spawn()
        .doing("starting the lab in its namespaces")?;
    wait(&mut child, signals)
}

/// What the inner process does first: ties its life to the outer one, makes its mounts private, gets a `/proc` of its own
/// and an empty `/run` for names of namespaces.
pub fn settle() -> Result<Inside> {
    let folder = std::env::var_os(FOLDER);
    let folder = folder.ok_or_else(|| {
        Error::because(
            "settling in the lab",
            "it was not started by its outer process",
        )
    })?;
    SigSet::empty()
        .thread_set_mask()
        .doing("unblocking signals")?;
    prctl::set_pdeathsig(Signal::SIGKILL).doing("tying the lab to its starter")?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .doing("making the lab's mounts private")?;
    mount(Some("proc"), "/proc", Some("proc"), MsFlags::empty(), none)
        .doing("mounting the lab's /proc")?;
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), none)
        .doing("mounting the lab's /run")?;
    fs::create_dir("/run/netns").doing("making /run/netns")?;
    let listener = std::io::stdin().as_fd().try_clone_to_owned();
    let listener = TcpListener::from(listener.doing("taking over the listener")?);
    Ok(Inside {
        listener,
        folder: folder.into(),
    })
}

fn unshare_all() -> Result<()> {
    let ours = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNET;
    let (user, group) = (getuid(), getgid());
    if user.is_root() && unshare(ours).is_ok() {
        return Ok(());
    }
    unshare(ours | CloneFlags::CLONE_NEWUSER).map_err(|errno| {
        Error::because(
            "making namespaces for the lab",
            format!("{errno}; user namespaces are not allowed here, so run it as root (sudo)"),
        )
    })?;
    fs::write("/proc/self/setgroups", "deny").doing("writing setgroups")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).doing("writing uid_map")?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).doing("writing gid_map")
}

/// Signals that the outer process waits for instead of dying by them; the inner one inherits the mask and empties it.
fn block_signals() -> Result<SigSet> {
    let mut signals = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGCHLD,
    ] {
        signals.add(signal);
    }
    signals.thread_block().doing("blocking signals")?;
    Ok(signals)
}

fn wait(child: &mut Child, signals: &SigSet) -> Result<ExitStatus> {
    let pid = Pid::from_raw(i32::try_from(child.id()).doing("reading a process id")?);
    loop {
        if let Some(status) = child.try_wait().doing("waiting for the lab")? {
            return Ok(status);
        }
        let signal = signals.wait().doing("waiting for a signal")?;
        if signal != Signal::SIGCHLD {
            // ESRCH: it has just ended, the next round sees it
            let _ = kill(pid, signal);
        }
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}
