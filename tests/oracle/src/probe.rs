//! Asks: many connections at a time, from many hosts, and counts what came of them.
//!
//! Owns the run time that follows the sockets, and the cutting into shares that the machine bears.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use api_model::Protocol;
use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use crate::{
    attempt::{self, Attempt, Opened, PATIENCE},
    network::Network,
    observation::Observation,
    topology::Topology,
};

/// Connections at a time: below the source ports of one host, and below what conntrack remembers.
const AT_A_TIME: usize = 8_000;

/// Who asks where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Namespace.
    pub space: String,
    /// Address to ask from, where it isn't the first of the host.
    pub source: Option<IpAddr>,
    /// Where to.
    pub target: SocketAddr,
    /// How.
    pub protocol: Protocol,
}

/// Asks in the recorded network.
#[derive(Debug)]
pub struct Prober<'a> {
    /// Names of addresses.
    pub topology: &'a Topology,
    /// Namespaces.
    pub network: &'a Network,
    /// Follows the sockets.
    pub runtime: &'a Handle,
}

impl Prober<'_> {
    /// Opens `count` connections for each question, all at once as far as the machine bears it.
    pub fn ask(&self, questions: &[&Question], count: usize) -> Vec<Observation> {
        let mut seen = vec![Observation::default(); questions.len()];
        let numbered: Vec<(usize, &Question)> = questions.iter().copied().enumerate().collect();
        for share in numbered.chunks((AT_A_TIME / count.max(1)).max(1)) {
            for (number, reply) in self.ask_share(share, count) {
                if let Some(observation) = seen.get_mut(number) {
                    observation.count(reply, self.topology);
                }
            }
        }
        seen
    }

    fn ask_share(
        &self,
        share: &[(usize, &Question)],
        count: usize,
    ) -> Vec<(usize, attempt::Reply)> {
        let mut by_space: BTreeMap<&str, Vec<(usize, Attempt)>> = BTreeMap::new();
        for (number, question) in share {
            let attempt = Attempt {
                source: question.source,
                target: question.target,
                protocol: question.protocol,
            };
            let attempts = by_space.entry(&question.space).or_default();
            attempts.extend(std::iter::repeat_n((*number, attempt), count));
        }
        let mut opened = Vec::new();
        for (space, attempts) in by_space {
            let open = || -> Vec<(usize, Opened)> {
                let open = attempts.iter();
                open.map(|(number, attempt)| (*number, attempt.open()))
                    .collect()
            };
            opened.extend(self.network.space(space).run(open));
        }
        self.runtime.block_on(follow(opened))
    }
}

async fn follow(opened: Vec<(usize, Opened)>) -> Vec<(usize, attempt::Reply)> {
    let deadline = Instant::now() + PATIENCE;
    let mut replies = Vec::with_capacity(opened.len());
    let mut waiting = JoinSet::new();
    for (number, one) in opened {
        match one {
            Opened::Done(reply) => replies.push((number, reply)),
            Opened::Waiting(socket) => {
                waiting.spawn(async move { (number, attempt::follow(socket, deadline).await) });
            }
        }
    }
    replies.extend(waiting.join_all().await);
    replies
}
