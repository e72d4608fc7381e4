//! What many connections of one combination came to, counted.
//!
//! Owns the sums; compares nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{attempt::Reply, expectation::How, topology::Topology};

/// Connections from one host to one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Sources that each pod saw.
    pub pods: BTreeMap<String, BTreeSet<String>>,
    /// Ports of the pods.
    pub ports: BTreeSet<u16>,
    /// Answers of pods.
    pub served: usize,
    /// Sources that the upstream router saw, with their number.
    pub passed: BTreeMap<String, usize>,
    /// Refusals.
    pub rejected: BTreeMap<How, usize>,
    /// Lost.
    pub dropped: usize,
    /// Anything else.
    pub odd: BTreeMap<String, usize>,
    /// Rounds of one source in which more than one endpoint answered; only counted where it should not be.
    pub unsteady: usize,
}

impl Observation {
    /// Connections together.
    pub fn total(&self) -> usize {
        let of = |counts: &mut dyn Iterator<Item = &usize>| counts.sum::<usize>();
        self.served
            + self.dropped
            + of(&mut self.passed.values())
            + of(&mut self.rejected.values())
            + of(&mut self.odd.values())
    }

    /// Adds one.
    pub fn count(&mut self, reply: Reply, topology: &Topology) {
        match reply {
            Reply::Served { pod, port, source } => {
                self.served += 1;
                self.ports.insert(port);
                let sources = self.pods.entry(pod).or_default();
                sources.insert(topology.name_of(source));
            }
            Reply::Passed { source } => {
                *self.passed.entry(topology.name_of(source)).or_default() += 1;
            }
            Reply::Rejected(how) => *self.rejected.entry(how).or_default() += 1,
            Reply::Dropped => self.dropped += 1,
            Reply::Odd(word) => *self.odd.entry(word).or_default() += 1,
        }
    }

    /// Adds a round that should have one endpoint: with affinity.
    pub fn add_round(&mut self, round: &Self) {
        self.unsteady += usize::from(round.pods.len() > 1);
        self.add(round);
    }

    /// Adds another one's connections.
    pub fn add(&mut self, other: &Self) {
        for (pod, sources) in &other.pods {
            let mine = self.pods.entry(pod.clone()).or_default();
            mine.extend(sources.iter().cloned());
        }
        self.ports.extend(&other.ports);
        self.served += other.served;
        self.dropped += other.dropped;
        for (source, count) in &other.passed {
            *self.passed.entry(source.clone()).or_default() += count;
        }
        for (how, count) in &other.rejected {
            *self.rejected.entry(how.clone()).or_default() += count;
        }
        for (word, count) in &other.odd {
            *self.odd.entry(word.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if self.served > 0 {
            let pods = self.pods.iter().map(|(pod, sources)| {
                let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
                format!("{pod}(source {})", sources.join("+"))
            });
            let pods: Vec<String> = pods.collect();
            let ports: Vec<String> = self.ports.iter().map(u16::to_string).collect();
            let (pods, ports) = (pods.join("+"), ports.join("+"));
            words.push(format!("{}× served by {pods} ports {ports}", self.served));
        }
        for (source, count) in &self.passed {
            words.push(format!("{count}× passed source {source}"));
        }
        for (how, count) in &self.rejected {
            words.push(format!("{count}× rejected {how}"));
        }
        if self.dropped > 0 {
            words.push(format!("{}× dropped", self.dropped));
        }
        for (word, count) in &self.odd {
            words.push(format!("{count}× {word}"));
        }
        if self.unsteady > 0 {
            words.push(format!("{} rounds not sticky", self.unsteady));
        }
        if words.is_empty() {
            words.push("nothing asked".to_owned());
        }
        f.write_str(&words.join(", "))
    }
}
