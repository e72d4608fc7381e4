//! The programs of the lab: `roadstead` children in the nodes' networks, with a log each.
//!
//! Never restarts one: what ends stays ended until it is started again.

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    error::{Doing as _, Error, Result},
    netns::NetNs,
};

/// How many lines of a log are shown after a failure.
const LAST_LINES: usize = 15;

/// Running children by name.
#[derive(Debug)]
pub struct Processes {
    binary: PathBuf,
    logs: PathBuf,
    children: BTreeMap<String, Child>,
}

impl Processes {
    /// Children of this program, their logs in `logs`.
    pub fn new(binary: PathBuf, logs: PathBuf) -> Self {
        Self {
            binary,
            logs,
            children: BTreeMap::new(),
        }
    }

    /// Starts `roadstead` with these arguments in a namespace; its output is appended to `<name>.log`.
    pub fn start(&mut self, name: &str, ns: &NetNs, arguments: &[&str]) -> Result<()> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log(name));
        let log = log.doing(format!("opening the log of {name}"))?;
        let mut command = Command::new(&self.binary);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(
                log.try_clone()
                    .doing(format!("opening the log of {name}"))?,
            )
            .stderr(log);
        let child = ns.start(&mut command)?;
        self.children.insert(name.to_owned(), child);
        Ok(())
    }

    /// Ends one with SIGKILL, as a crash would.
    pub fn kill(&mut self, name: &str) -> Result<()> {
        let child = self.children.remove(name);
        let mut child =
            child.ok_or_else(|| Error::because(format!("killing {name}"), "it does not run"))?;
        child.kill().doing(format!("killing {name}"))?;
        child.wait().map(drop).doing(format!("killing {name}"))
    }

    /// Those that have ended without being killed, and the end of their logs.
    pub fn ended(&mut self) -> Vec<String> {
        let logs = self.logs.clone();
        let ended = |(name, child): (&String, &mut Child)| {
            let status = child.try_wait().ok().flatten()?;
            Some(format!(
                "{name}: {status}\n{}",
                last_lines(&logs.join(format!("{name}.log")))
            ))
        };
        self.children.iter_mut().filter_map(ended).collect()
    }

    /// The end of every log that tells of trouble.
    pub fn troubles(&self) -> String {
        let names = self.children.keys();
        let logs = names.map(|name| format!("-- {name}\n{}", last_lines(&self.log(name))));
        logs.collect::<Vec<_>>().join("\n")
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            // it may have ended by itself; then there is nothing to end
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    lines.into_iter().skip(from).collect::<Vec<_>>().join("\n")
}
