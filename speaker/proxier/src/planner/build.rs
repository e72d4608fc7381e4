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
            built.add_port(key, port, rule, old, ids);
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

    fn add_port(
        &mut self,
        key: &ServiceKey,
        port: &PortId,
        rule: &PortRules,
        old: Option<&PortState>,
        ids: &mut Ids,
    ) {
        let Some(id) = ids.port(key, port, rule.frontends.keys()) else {
            let detail = format!("port {} {}: no id is left", port.name, port.port);
            self.refusals
                .push(Refusal::new(key, Reason::IdsExhausted, detail));
            return;
        };
        let mut state = old.cloned().unwrap_or_else(|| PortState {
            whole: ids.adopted_slots(port.family, id << ID_SHIFT),
            local: ids.adopted_slots(port.family, (id << ID_SHIFT) | LOCAL),
            endpoint_ids: EndpointIds::adopt(ids.adopted_endpoints(port.family, id)),
            ..PortState::default()
        });
        state.id = id;
        state.used.clear();
        let limit = if rule.affinity.is_some() {
            MAX_STICKY_SLOTS
        } else {
            MAX_SLOTS
        };
        let whole = cap(&state.whole, &rule.endpoints.whole, limit);
        let local = cap(&state.local, &rule.endpoints.local, limit);
        let left_out = rule.endpoints.whole.len().max(rule.endpoints.local.len());
        if left_out > limit {
            let detail = format!(
                "port {} {}: {left_out} endpoints, {limit} are used",
                port.name, port.port
            );
            self.refusals
                .push(Refusal::new(key, Reason::TooManyEndpoints, detail));
        }
        let wants = |policy, outside: bool| {
            let mut rules = rule.frontends.values();
            rules.any(|r| r.policy == policy || outside && r.kind != FrontendKind::Cluster)
        };
        state.whole = if wants(Policy::Cluster, true) {
            assign(&state.whole, &whole)
        } else {
            Vec::new()
        };
        state.local = if wants(Policy::Local, false) {
            assign(&state.local, &local)
        } else {
            Vec::new()
        };
        if rule.affinity.is_some() {
            state
                .endpoint_ids
                .update(&whole.union(&local).copied().collect());
        } else {
            state.endpoint_ids = EndpointIds::default();
        }
        let sets = [
            self.add_set(key, port, &mut state, rule.affinity, false, ids),
            self.add_set(key, port, &mut state, rule.affinity, true, ids),
        ];
        for (frontend, r) in &rule.frontends {
            let elements = frontend_elements(*frontend, r, !rule.endpoints.whole.is_empty(), sets);
            self.claims
                .entry(Claim::Frontend(*frontend))
                .or_insert((r.kind, elements));
        }
        for at in &rule.endpoints.here {
            self.claim_address(Map::Hairpin, at.ip());
        }
        self.ports.insert(port.clone(), state);
    }

    /// The slots of one set; its value for frontends, `None` when it is empty.
    fn add_set(
        &mut self,
        key: &ServiceKey,
        port: &PortId,
        state: &mut PortState,
        affinity: Option<u32>,
        local: bool,
        ids: &mut Ids,
    ) -> Option<u32> {
        let slots = if local { &state.local } else { &state.whole };
        let count = u32::try_from(slots.len()).ok().filter(|count| *count > 0)?;
        let scope = if local { LOCAL } else { 0 };
        let base = (state.id << ID_SHIFT) | scope;
        let random = ChainKind::Random { slots: count };
        let sticky = affinity.map(|seconds| ChainKind::Sticky {
            slots: count,
            seconds,
            local,
        });
        let mut kind = sticky.unwrap_or(random);
        let class = ids.class(kind).or_else(|| {
            let detail = format!(
                "port {} {}: no class is left; spread without affinity",
                port.name, port.port
            );
            self.refusals
                .push(Refusal::new(key, Reason::AffinityClassesExhausted, detail));
            kind = random;
            ids.class(random)
        })?;
        for (slot, at) in (0..).zip(slots) {
            if matches!(kind, ChainKind::Random { .. }) {
                self.elements.insert(
                    Key::Slot(Map::Endpoints, port.family, base, slot),
                    Value::Endpoint(*at),
                );
            } else if let Some(id) = state.endpoint_ids.get(at) {
                let remembered = base | id;
                let slot = Key::Slot(Map::AffinitySlots, port.family, base, slot);
                self.elements.insert(slot, Value::Remembered(remembered));
                self.elements.insert(
                    Key::Remembered(port.family, remembered),
                    Value::Endpoint(*at),
                );
            }
        }
        state.used.insert((port.family, kind));
        Some(base | u32::from(class))
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
