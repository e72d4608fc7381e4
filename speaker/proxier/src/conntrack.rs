//! Which UDP flows must be forgotten, so that their next packet is looked up anew.
//!
//! Owns the decision per flow. Never touches TCP or SCTP: an open connection to an endpoint that left lives until it ends.
//! UDP has no end, so a flow goes when its endpoint stopped serving, when its frontend left the Service (also with the
//! Service, also while the node agent was down), or when it was opened before its frontend was programmed. Whole
//! addresses are compared, so a third party's flow to a port number that happens to be a node port stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// A UDP flow of the kernel's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Where it came from.
    pub source: SocketAddr,
    /// Where the first packet was sent.
    pub destination: SocketAddr,
    /// Who answers: the endpoint when the flow was translated, else the destination.
    pub answers_from: SocketAddr,
}

/// What to do with the flows to one frontend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The frontend is a Service's: keep those that one of these serving endpoints answers.
    AnsweredBy(BTreeSet<SocketAddr>),
    /// The frontend is nobody's any more: keep those that were never translated.
    Untranslated,
}

/// Frontends whose flows have to be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forget {
    frontends: BTreeMap<SocketAddr, Keep>,
}

impl Forget {
    /// Adds a frontend; a later word about it counts more than an earlier one.
    pub fn insert(&mut self, frontend: SocketAddr, keep: Keep) {
        self.frontends.insert(frontend, keep);
    }

    /// Adds all of a later one.
    pub fn merge(&mut self, later: Self) {
        self.frontends.extend(later.frontends);
    }

    /// Nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.frontends.is_empty()
    }

    /// Whether this flow has to go.
    pub fn must_go(&self, flow: &Flow) -> bool {
        match self.frontends.get(&flow.destination) {
            None => false,
            Some(Keep::AnsweredBy(serving)) => !serving.contains(&flow.answers_from),
            Some(Keep::Untranslated) => flow.answers_from != flow.destination,
        }
    }
}
