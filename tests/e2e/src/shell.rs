//! The user's shell: `kubectl` with a kubeconfig, and what it prints.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

/// `kubectl` against one API server.
#[derive(Clone, Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
}

/// What a command printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Exit code 0.
    pub good: bool,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub complaint: String,
}

impl Kubectl {
    /// With this kubeconfig.
    pub fn new(kubeconfig: &Path) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
        }
    }

    /// Runs one command, given as a user types it; `input` is for `-f -`.
    pub fn run(&self, line: &str, input: &str) -> Said {
        let mut child = self.spawn(line);
        let mut pipe = child.stdin.take().expect("its input is a pipe");
        pipe.write_all(input.as_bytes())
            .expect("kubectl reads its input");
        drop(pipe);
        let output = child.wait_with_output().expect("kubectl ends");
        Said {
            good: output.status.success(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            complaint: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a command that has to succeed; returns what it printed.
    pub fn good(&self, line: &str, input: &str) -> String {
        let said = self.run(line, input);
        assert!(
            said.good,
            "kubectl {line}: {}{}",
            said.output, said.complaint
        );
        said.output
    }

    /// Starts a command that goes on, such as a watch.
    pub fn watch(&self, line: &str) -> Watch {
        let mut child = self.spawn(line);
        let output = child.stdout.take().expect("its output is a pipe");
        let (send, lines) = mpsc::sync_channel(1024);
        std::thread::spawn(move || {
            let mut read = BufReader::new(output).lines().map_while(Result::ok);
            // ends when the watch is dropped
            read.try_for_each(|line| send.send(line))
        });
        Watch { child, lines }
    }

    fn spawn(&self, line: &str) -> Child {
        Command::new("kubectl")
            .args(line.split_whitespace())
            .env("KUBECONFIG", &self.kubeconfig)
            .env(
                "KUBECACHEDIR",
                self.kubeconfig.with_file_name("kubectl-cache"),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts")
    }
}

/// A command that goes on until it is dropped.
#[derive(Debug)]
pub struct Watch {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Watch {
    /// Waits for a line that is the `last`; returns all lines up to it. Fails after `patience` with what it read.
    pub fn until(&self, patience: Duration, last: impl Fn(&str) -> bool) -> Vec<String> {
        let deadline = Instant::now() + patience;
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if last(&line) => {
                    lines.push(line);
                    return lines;
                }
                Ok(line) => lines.push(line),
                Err(error) => panic!("after {patience:?}, {error}, only: {lines:#?}"),
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // it may have ended by itself; then there is nothing to end
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks until `look` gives what is `wanted`; fails after `patience` with the last look.
pub fn eventually<T: PartialEq + std::fmt::Debug>(
    patience: Duration,
    wanted: &T,
    mut look: impl FnMut() -> T,
) {
    let deadline = Instant::now() + patience;
    loop {
        let seen = look();
        if seen == *wanted {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "after {patience:?}: {seen:#?}, wanted {wanted:#?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
