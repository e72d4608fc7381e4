//! Which nodes may speak for a VIP, and what that means for this node.
//!
//! Owns the rules between an advertisement, a node, the Services on a VIP and their endpoints (`MetalLB`'s layer 2 rules,
//! KEP-2086 and the `exclude-from-external-load-balancers` label). Never resolves label selectors, never reads an object:
//! the ingest does both and hands over plain sets. Never knows which interfaces a node really has.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use api_model::{NodeName, PoolName, ServiceKey};

use crate::{Decision, InterfaceName, Reason, election, is_announceable};

#[cfg(test)]
mod tests;

/// Everything, or the members of a set. A list of selectors that is absent means [`Selection::All`]; selectors that
/// match nothing mean an empty set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection<T> {
    /// No restriction.
    All,
    /// Only these.
    These(BTreeSet<T>),
}

impl<T: Ord + Clone> Selection<T> {
    /// True when `item` is selected.
    pub fn has<Q: Ord + ?Sized>(&self, item: &Q) -> bool
    where
        T: std::borrow::Borrow<Q>,
    {
        match self {
            Self::All => true,
            Self::These(items) => items.contains(item),
        }
    }

    /// Selects nothing.
    pub const fn none() -> Self {
        Self::These(BTreeSet::new())
    }

    /// Adds what `other` selects.
    pub fn unite(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::All, _) => {}
            (_, Self::All) => *self = Self::All,
            (Self::These(mine), Self::These(theirs)) => mine.extend(theirs.iter().cloned()),
        }
    }
}

/// One `L2Advertisement` with its selectors resolved to names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Name of the object.
    pub name: Arc<str>,
    /// Pools from `ipAddressPools` and `ipAddressPoolSelectors` (union; all when neither is set).
    pub pools: Selection<PoolName>,
    /// Services from `serviceSelectors`. A restricted list never covers a VIP that several Services share.
    pub services: Selection<ServiceKey>,
    /// Nodes from `nodeSelectors`.
    pub nodes: Selection<NodeName>,
    /// `interfaces`; all when empty or absent.
    pub interfaces: Selection<InterfaceName>,
    /// Sum of the weights of the `preferredNodeSelectors` that match, per node; a node that none matches may be absent.
    pub preferences: BTreeMap<NodeName, u32>,
}

impl Advertisement {
    /// An advertisement that covers everything on every node and interface.
    pub fn everything(name: &str) -> Self {
        Self {
            name: name.into(),
            pools: Selection::All,
            services: Selection::All,
            nodes: Selection::All,
            interfaces: Selection::All,
            preferences: BTreeMap::new(),
        }
    }

    fn covers(&self, vip: &Vip) -> bool {
        let services = match &self.services {
            Selection::All => true,
            Selection::These(chosen) => {
                vip.users.len() == 1 && vip.users.keys().all(|key| chosen.contains(key))
            }
        };
        services && self.pools.has(&vip.pool)
    }
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its speaker's heartbeats arrive (always true for this node itself).
    pub alive: bool,
    /// It carries `node.kubernetes.io/exclude-from-external-load-balancers` and the label is honoured.
    pub excluded: bool,
    /// Its condition `NetworkUnavailable` is `True`.
    pub network_unavailable: bool,
}

impl Node {
    /// A node that nothing speaks against.
    pub const fn usable() -> Self {
        Self {
            alive: true,
            excluded: false,
            network_unavailable: false,
        }
    }
}

/// A Service that has the VIP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `externalTrafficPolicy: Local`: only nodes with an endpoint of their own may speak.
    pub local_only: bool,
    /// It has a usable endpoint anywhere (also one that names no node).
    pub has_endpoints: bool,
    /// Nodes that run a usable endpoint. Read only when `local_only`.
    pub endpoints_on: BTreeSet<NodeName>,
}

/// An address to announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vip {
    /// Pool that the address came from.
    pub pool: PoolName,
    /// Services that have it; several share it.
    pub users: BTreeMap<ServiceKey, User>,
}

/// Everything that the decision depends on. Equal views on two nodes (but for `me` and `programmed`) give one holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// This node.
    pub me: NodeName,
    /// Nodes of the cluster.
    pub nodes: BTreeMap<NodeName, Node>,
    /// `L2Advertisement` objects.
    pub advertisements: Vec<Advertisement>,
    /// Addresses that Services have.
    pub vips: BTreeMap<IpAddr, Vip>,
}

/// The candidates of one VIP, and why the other nodes are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    /// Nodes that may speak, with the sum of their preference weights (0 is the least).
    pub usable: BTreeMap<NodeName, u32>,
    /// Nodes that may not, and why.
    pub refused: BTreeMap<NodeName, Reason>,
}

/// Works out who may speak for `vip`. Local policy first asks for nodes with an endpoint of *every* Service that has
/// endpoints at all; when there is no such node, one with an endpoint of any of them will do.
pub fn candidates(view: &View, vip: &Vip) -> Candidates {
    let mut found = Candidates::default();
    let covering: Vec<_> = view
        .advertisements
        .iter()
        .filter(|ad| ad.covers(vip))
        .collect();
    let everywhere = |name: &NodeName| served_users(vip, name).0;
    let all_served = view
        .nodes
        .keys()
        .any(|name| everywhere(name) && refuse_node(view, &covering, name).is_none());
    for name in view.nodes.keys() {
        let (every, any) = served_users(vip, name);
        let refusal = refuse_node(view, &covering, name)
            .or_else(|| refuse_vip(vip, if all_served { every } else { any }));
        match refusal {
            Some(reason) => {
                found.refused.insert(name.clone(), reason);
            }
            None => {
                found
                    .usable
                    .insert(name.clone(), preference(&covering, name));
            }
        }
    }
    found
}

/// Decides every VIP of the view for `view.me`. `programmed` says which VIPs have their rules in this node's kernel.
pub fn decide(view: &View, gate: &Gate) -> BTreeMap<IpAddr, Decision> {
    view.vips
        .iter()
        .map(|(address, vip)| (*address, decide_one(view, gate, *address, vip)))
        .collect()
}

fn decide_one(view: &View, gate: &Gate, address: IpAddr, vip: &Vip) -> Decision {
    if !is_announceable(address) {
        return Decision {
            holder: None,
            reason: Reason::NotAnnounceable,
            interfaces: Selection::none(),
        };
    }
    let found = candidates(view, vip);
    let holder = election::elect(address, &found.usable).cloned();
    let reason = match found.refused.get(&view.me) {
        Some(reason) => *reason,
        None if !view.nodes.contains_key(&view.me) => Reason::NodeUnknown,
        None if holder.as_ref() != Some(&view.me) => Reason::NotElected,
        None if !gate.is_open(address) => Reason::NotProgrammed,
        None => Reason::Announced,
    };
    let mut interfaces = Selection::none();
    for ad in view
        .advertisements
        .iter()
        .filter(|ad| ad.covers(vip) && ad.nodes.has(&view.me))
    {
        interfaces.unite(&ad.interfaces);
    }
    Decision {
        holder,
        reason,
        interfaces,
    }
}

/// What speaks against a node, whatever the endpoints are.
fn refuse_node(view: &View, covering: &[&Advertisement], name: &NodeName) -> Option<Reason> {
    let node = view.nodes.get(name)?;
    if covering.is_empty() {
        Some(Reason::NoAdvertisement)
    } else if !covering.iter().any(|ad| ad.nodes.has(name)) {
        Some(Reason::NodeNotSelected)
    } else if node.excluded {
        Some(Reason::NodeExcluded)
    } else if node.network_unavailable {
        Some(Reason::NetworkUnavailable)
    } else if !node.alive {
        Some(Reason::MemberDown)
    } else {
        None
    }
}

/// What the endpoints say, once it is known whether the node serves enough of the Services.
fn refuse_vip(vip: &Vip, served: bool) -> Option<Reason> {
    match (served, vip.users.values().any(|user| user.has_endpoints)) {
        (true, _) => None,
        (false, true) => Some(Reason::NoLocalEndpoints),
        (false, false) => Some(Reason::NoEndpoints),
    }
}

/// Whether `name` can serve every Service that has endpoints (and there is one), and whether it can serve any.
fn served_users(vip: &Vip, name: &NodeName) -> (bool, bool) {
    let mut with_endpoints = vip
        .users
        .values()
        .filter(|user| user.has_endpoints)
        .peekable();
    let there_are = with_endpoints.peek().is_some();
    let serves = |user: &&User| !user.local_only || user.endpoints_on.contains(name);
    let count = with_endpoints.clone().filter(serves).count();
    (there_are && count == with_endpoints.count(), count > 0)
}

/// Weights add up over the advertisements that allow the node.
fn preference(covering: &[&Advertisement], name: &NodeName) -> u32 {
    covering
        .iter()
        .filter(|ad| ad.nodes.has(name))
        .filter_map(|ad| ad.preferences.get(name))
        .fold(0, |sum, weight| sum.saturating_add(*weight))
}

/// Which VIPs have had their rules in this node's kernel: the first announcement waits for it, later failures do not
/// withdraw. Per VIP: one VIP's failed batch never closes another's gate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    open: BTreeSet<IpAddr>,
}

impl Gate {
    /// The rules for `vip` are in the kernel. Latches.
    pub fn programmed(&mut self, vip: IpAddr) {
        self.open.insert(vip);
    }

    /// Read-back proved that the rules for `vip` are gone: the only thing that closes an open gate.
    pub fn rules_gone(&mut self, vip: IpAddr) {
        self.open.remove(&vip);
    }

    /// Forgets VIPs that no Service has any more; bounds the set.
    pub fn retain(&mut self, vips: &BTreeMap<IpAddr, Vip>) {
        self.open.retain(|vip| vips.contains_key(vip));
    }

    /// True when `vip` may be announced.
    pub fn is_open(&self, vip: IpAddr) -> bool {
        self.open.contains(&vip)
    }
}
