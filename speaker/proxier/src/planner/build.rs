//! The elements of one Service.
//!
//! Owns the translation from rules to elements; never looks at other Services (claims settle who holds a frontend).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use api_model::{IpFamily, ServiceKey};

use super::ids::Ids;
use crate::{
    nft::{
        ChainKind, Key, Map, Table, Value,
        element::{ID_SHIFT, LOCAL},
    },
    node_view::{Policy, ServiceView, ThisNode},
    reason::{Reason, Refusal},
    rules::{Frontend, FrontendKind, FrontendRule, PortId, PortRules, ServiceRules, service_rules},
    slots::{EndpointIds, assign},
};

/// Slots of a set without affinity.
const MAX_SLOTS: usize = 1_023;
/// Slots of a set with affinity: the IPv6 chain asks them one by one.
const MAX_STICKY_SLOTS: usize = 128;

/// Something that several Services may ask for; the strongest claim holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// A frontend with all its elements.
    Frontend(Frontend),
    /// An address in `cluster-ips` or `hairpin`; all claimants ask for the same.
    Address(Map, IpAddr),
}

impl Claim {
    /// The frontend, if it is one.
    pub(super) fn frontend(&self) -> Option<&Frontend> {
        let Self::Frontend(frontend) = self else {
            return None;
        };
        Some(frontend)
    }
}

/// One Service, compiled.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) view: ServiceView,
    pub(super) rules: ServiceRules,
    pub(super) elements: Table,
    pub(super) claims: BTreeMap<Claim, (FrontendKind, Table)>,
    pub(super) refusals: Vec<Refusal>,
    ports: BTreeMap<PortId, PortState>,
}

/// What is kept of a Service port from one state to the next.
#[derive(Clone, Debug, Default)]
struct PortState {
    id: u32,
    whole: Vec<SocketAddr>,
    local: Vec<SocketAddr>,
    endpoint_ids: EndpointIds,
    used: BTreeSet<(IpFamily, ChainKind)>,
}

impl Built {
    pub(super) fn new(
        node: &ThisNode,
        key: &ServiceKey,
        view: &ServiceView,
        old: Option<&Self>,
        ids: &mut Ids,
    ) -> Self {
        let (rules, refusals) = service_rules(node, key, view);
        let mut built = Self {
            view: view.clone(),
            elements: Table::new(),
            claims: BTreeMap::new(),
            refusals,
            ports: BTreeMap::new(),
            rules: ServiceRules::default(),
        };
        for address in &rules.cluster_ips {
            built.claim_address(Map::ClusterIps, *address);
        }
        for (port, rule) in &rules.ports {
            let old = old.and_then(|old| old.ports.get(port));
            let built = &mut built;
            Builder { key, built, ids }.add_port(port, rule, old);
        }
        built.rules = rules;
        built
    }

    /// Ports that hold an id.
    pub(super) fn ids(&self) -> BTreeSet<PortId> {
        self.ports.keys().cloned().collect()
    }

    /// Chains that its sets need.
    pub(super) fn classes(&self) -> BTreeSet<(IpFamily, ChainKind)> {
        self.ports
            .values()
            .flat_map(|port| port.used.iter().copied())
            .collect()
    }

    /// Serving endpoints behind a frontend.
    pub(super) fn serving(&self, frontend: &Frontend) -> Option<&BTreeSet<SocketAddr>> {
        let mut ports = self.rules.ports.values();
        ports
            .find(|port| port.frontends.contains_key(frontend))
            .map(|port| &port.endpoints.serving)
    }

    fn claim_address(&mut self, map: Map, address: IpAddr) {
        let element = Table::from([(Key::Address(map, address), Value::Member)]);
        self.claims.insert(
            Claim::Address(map, address),
            (FrontendKind::Cluster, element),
        );
    }
}

/// Compiles the ports of one Service, one after the other.
struct Builder<'a> {
    key: &'a ServiceKey,
    built: &'a mut Built,
    ids: &'a mut Ids,
}

impl Builder<'_> {
    fn refuse(&mut self, port: &PortId, reason: Reason, what: &str) {
        let detail = format!("port {} {}: {what}", port.name, port.port);
        self.built
            .refusals
            .push(Refusal::new(self.key, reason, detail));
    }

    fn add_port(&mut self, port: &PortId, rule: &PortRules, old: Option<&PortState>) {
        let Some(id) = self.ids.port(self.key, port, rule.frontends.keys()) else {
            self.refuse(port, Reason::IdsExhausted, "no id is left");
            return;
        };
        let adopted = || PortState {
            whole: self.ids.adopted_slots(port.family, id << ID_SHIFT),
            local: self
                .ids
                .adopted_slots(port.family, (id << ID_SHIFT) | LOCAL),
            endpoint_ids: EndpointIds::adopt(self.ids.adopted_endpoints(port.family, id)),
            ..PortState::default()
        };
        let mut state = old.cloned().unwrap_or_else(adopted);
        state.id = id;
        state.used.clear();
        self.place(port, rule, &mut state);
        let sets = [false, true].map(|local| self.add_set(port, &mut state, rule.affinity, local));
        for (frontend, r) in &rule.frontends {
            let elements = frontend_elements(*frontend, r, !rule.endpoints.whole.is_empty(), sets);
            let claim = Claim::Frontend(*frontend);
            self.built.claims.entry(claim).or_insert((r.kind, elements));
        }
        for at in &rule.endpoints.here {
            self.built.claim_address(Map::Hairpin, at.ip());
        }
        self.built.ports.insert(port.clone(), state);
    }

    /// Gives the endpoints their slots and ids; only sets that some frontend uses get any.
    fn place(&mut self, port: &PortId, rule: &PortRules, state: &mut PortState) {
        let sticky = rule.affinity.is_some();
        let limit = if sticky { MAX_STICKY_SLOTS } else { MAX_SLOTS };
        let endpoints = &rule.endpoints;
        let most = endpoints.whole.len().max(endpoints.local.len());
        if most > limit {
            let what = format!("{most} endpoints, {limit} are used");
            self.refuse(port, Reason::TooManyEndpoints, &what);
        }
        let mut frontends = rule.frontends.values();
        let local = frontends.clone().any(|r| r.policy == Policy::Local);
        let whole =
            frontends.any(|r| r.policy == Policy::Cluster || r.kind != FrontendKind::Cluster);
        let place = |used: bool, before: &[SocketAddr], wanted: &BTreeSet<SocketAddr>| {
            let wanted = if used {
                cap(before, wanted, limit)
            } else {
                BTreeSet::new()
            };
            assign(before, &wanted)
        };
        state.whole = place(whole, &state.whole, &endpoints.whole);
        state.local = place(local, &state.local, &endpoints.local);
        if sticky {
            let present = state.whole.iter().chain(&state.local).copied().collect();
            state.endpoint_ids.update(&present);
        } else {
            state.endpoint_ids = EndpointIds::default();
        }
    }

    /// The slots of one set; its value for frontends, `None` when it is empty.
    fn add_set(
        &mut self,
        port: &PortId,
        state: &mut PortState,
        affinity: Option<u32>,
        local: bool,
    ) -> Option<u32> {
        let slots = if local { &state.local } else { &state.whole };
        let count = u32::try_from(slots.len()).ok().filter(|count| *count > 0)?;
        let base = (state.id << ID_SHIFT) | if local { LOCAL } else { 0 };
        let random = ChainKind::Random { slots: count };
        let sticky = affinity.map(|seconds| ChainKind::Sticky {
            slots: count,
            seconds,
            local,
        });
        let mut kind = sticky.unwrap_or(random);
        let mut class = self.ids.class(kind);
        if class.is_none() {
            self.refuse(
                port,
                Reason::AffinityClassesExhausted,
                "no class is left; spread without affinity",
            );
            kind = random;
            class = self.ids.class(random);
        }
        let elements = &mut self.built.elements;
        for (slot, at) in (0..).zip(slots) {
            let to = Value::Endpoint(*at);
            if kind == random {
                elements.insert(Key::Slot(Map::Endpoints, port.family, base, slot), to);
            } else if let Some(id) = state.endpoint_ids.get(at) {
                let remembered = base | id;
                let slot = Key::Slot(Map::AffinitySlots, port.family, base, slot);
                elements.insert(slot, Value::Remembered(remembered));
                elements.insert(Key::Remembered(port.family, remembered), to);
            }
        }
        state.used.insert((port.family, kind));
        Some(base | u32::from(class?))
    }
}

/// At most `limit` endpoints: those in use first, then in address order.
fn cap(before: &[SocketAddr], wanted: &BTreeSet<SocketAddr>, limit: usize) -> BTreeSet<SocketAddr> {
    let kept = before.iter().filter(|at| wanted.contains(at));
    let mut capped: BTreeSet<SocketAddr> = kept.take(limit).copied().collect();
    let missing = limit.saturating_sub(capped.len());
    let fresh: Vec<SocketAddr> = wanted.difference(&capped).take(missing).copied().collect();
    capped.extend(fresh);
    capped
}

/// The elements of one frontend: the policy table in maps. `sets` are the whole and the local set.
fn frontend_elements(
    frontend: Frontend,
    rule: &FrontendRule,
    served: bool,
    sets: [Option<u32>; 2],
) -> Table {
    let mut table = Table::new();
    if let Some(nets) = &rule.guard {
        table.insert(Key::Frontend(Map::Guarded, frontend), Value::Member);
        table.extend(
            nets.iter()
                .map(|net| (Key::Allowed(frontend, *net), Value::Member)),
        );
    }
    if !served {
        table.insert(Key::Frontend(Map::Refuse, frontend), Value::Member);
        return table;
    }
    let [whole, local] = sets;
    let mut route = |map, set: Option<u32>| {
        if let Some(set) = set {
            table.insert(Key::Frontend(map, frontend), Value::SlotSet(set));
        }
    };
    match (rule.kind, rule.policy) {
        (FrontendKind::Cluster, Policy::Cluster) => route(Map::ClusterIp, whole),
        (FrontendKind::Cluster, Policy::Local) => route(Map::ClusterIp, local),
        (_, Policy::Cluster) => route(Map::External, whole),
        (_, Policy::Local) => {
            route(Map::LocalInside, whole);
            route(Map::Local, local);
        }
    }
    if rule.policy == Policy::Local && local.is_none() {
        table.insert(Key::Frontend(Map::Hole, frontend), Value::Member);
    }
    table
}
