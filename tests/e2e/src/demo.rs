//! `roadstead demo` as a user runs it, in a process of its own.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use crate::roadstead;

/// A running demo; dropping it kills it.
#[derive(Debug)]
pub struct Demo {
    /// The outer process.
    pub process: Child,
    /// The file that it tells the user to take.
    pub kubeconfig: PathBuf,
}

impl Demo {
    /// Starts it with these flags and waits until it names its kubeconfig.
    pub fn start(flags: &[&str]) -> Self {
        let mut command = Command::new(roadstead());
        command
            .arg("demo")
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("roadstead starts");
        let output = process.stdout.take().expect("its output is a pipe");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let named = lines.find_map(|line| {
            let path = line
                .trim()
                .strip_prefix("export KUBECONFIG=")?
                .split(';')
                .next()?;
            Some(PathBuf::from(path))
        });
        let kubeconfig = named.expect("the demo names its kubeconfig before it ends");
        // read on, so that it never waits for a reader
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            kubeconfig,
        }
    }

    /// Waits for its end; fails after ten seconds.
    pub fn ended(&mut self) -> std::process::ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(status) = self.process.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(Instant::now() < deadline, "the demo has not ended in 10 s");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // it may have ended by itself; then there is nothing to end
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(folder) = self.kubeconfig.parent() {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
