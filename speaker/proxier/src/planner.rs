//! From snapshot to snapshot: keeps ids and slots, and says what has to change.
//!
//! Owns the state between two snapshots: which Service holds which id, slots, frontends. Never applies anything: the shell
//! reports failures by calling [`Planner::resync`] with what the kernel really holds.

mod build;
mod ids;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use api_model::{IpFamily, Protocol, ServiceKey};
use ipnet::IpNet;

use crate::{
    conntrack::{Forget, Keep},
    diff::diff,
    nft::{Key, Map, Table, Transaction, Value, compile},
    node_view::{NodeView, ThisNode},
    reason::{Reason, Refusal},
    rules::{Frontend, FrontendKind},
};
use build::{Built, Claim};
use ids::Ids;

/// What one snapshot changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// For the kernel's table.
    pub transaction: Transaction,
    /// For the kernel's flows, after the transaction.
    pub forget: Forget,
    /// The Services that were looked at (changed, new, or touched by another one's change).
    pub services: BTreeSet<ServiceKey>,
    /// What of them is not as asked; replaces what was said of them before.
    pub refusals: Vec<Refusal>,
}

/// The state of one node's proxier.
#[derive(Debug)]
pub struct Planner {
    node: Option<Arc<ThisNode>>,
    services: BTreeMap<ServiceKey, Built>,
    claims: BTreeMap<Claim, BTreeSet<(FrontendKind, ServiceKey)>>,
    ids: Ids,
    programmed: Arc<BTreeMap<ServiceKey, BTreeSet<IpAddr>>>,
}

impl Default for Planner {
    fn default() -> Self {
        Self::with_ready_made(compile::READY_MADE_SLOTS)
    }
}

impl Planner {
    /// A planner that knows nothing, for a table with the choosers of sets of up to so many slots.
    pub fn with_ready_made(slots: u32) -> Self {
        Self::over(Table::new(), slots)
    }

    fn over(table: Table, ready_made_slots: u32) -> Self {
        Self {
            node: None,
            services: BTreeMap::new(),
            claims: BTreeMap::new(),
            ids: Ids::new(table, ready_made_slots),
            programmed: Arc::default(),
        }
    }

    /// A planner that goes on where the kernel's table stands: ids, slots and chains found there are kept, so that
    /// affinity memory and flows live on. Nothing is known of Services yet: call [`Planner::resume`] with the first snapshot.
    pub fn adopt(actual: &Table) -> Self {
        let has = |class: u32| {
            let class = u16::try_from(class).ok();
            class.is_some_and(|class| actual.contains_key(&Key::Class(IpFamily::V4, class)))
        };
        let few = has(1) && !has(compile::READY_MADE_SLOTS);
        let slots = if few {
            compile::FEW_READY_MADE_SLOTS
        } else {
            compile::READY_MADE_SLOTS
        };
        Self::over(actual.clone(), slots)
    }

    /// The first snapshot over the table that was adopted: what differs, and all UDP frontends to be looked at.
    pub fn resume(&mut self, actual: &Table, view: &NodeView) -> Change {
        self.ids.set_heirs(holders(view));
        let mut change = self.update(view);
        self.ids.forget_adopted();
        change.transaction = self.resync(actual);
        let desired = self.table();
        for key in actual.keys().filter(|key| !desired.contains_key(key)) {
            let Key::Frontend(_, frontend) = key else {
                continue;
            };
            if frontend.protocol == Protocol::Udp && self.holder(frontend).is_none() {
                change.forget.insert(socket(frontend), Keep::Untranslated);
            }
        }
        change
    }

    /// The next snapshot: what changes. Work and result are bounded by the Services whose data changed.
    pub fn update(&mut self, view: &NodeView) -> Change {
        let node_changed = self.node.as_deref() != Some(&*view.node);
        let gone: Vec<ServiceKey> = self
            .services
            .keys()
            .filter(|key| !view.services.contains_key(key))
            .cloned()
            .collect();
        let dirty: Vec<ServiceKey> = view
            .services
            .iter()
            .filter(|(key, now)| {
                node_changed || !self.services.get(key).is_some_and(|b| b.view.is_same(now))
            })
            .map(|(key, _)| key.clone())
            .collect();
        let mut change = Change::default();
        let mut next = Vec::with_capacity(dirty.len());
        let mut used = BTreeSet::new();
        for key in &dirty {
            if let Some(service) = view.services.get(key) {
                let built = Built::new(
                    &view.node,
                    key,
                    service,
                    self.services.get(key),
                    &mut self.ids,
                );
                used.extend(built.classes());
                next.push((key.clone(), built));
            }
        }
        let touched = self.touched(&gone, &next);
        let mut before = self.elements(&touched, gone.iter().chain(&dirty));
        self.put_nets(&mut before);
        let flows_before = self.udp_frontends(&touched);
        self.replace(&gone, next);
        self.node = Some(Arc::clone(&view.node));
        let mut after = self.elements(&touched, dirty.iter());
        self.put_nets(&mut after);
        let mut transaction = diff(&before, &after);
        transaction.chains = self.ids.chains_to_make(&used);
        change.transaction = transaction;
        change.services = self
            .services_of(&touched)
            .chain(dirty)
            .chain(gone)
            .collect();
        change.refusals = change
            .services
            .iter()
            .flat_map(|key| self.refusals(key))
            .collect();
        change.forget = forget(&flows_before, self.udp_frontends(&touched));
        self.note_programmed(&change.services);
        change
    }

    /// All elements as they should be.
    pub fn table(&self) -> Table {
        let claims: BTreeSet<Claim> = self.claims.keys().cloned().collect();
        let mut table = self.elements(&claims, self.services.keys());
        self.put_nets(&mut table);
        table.extend(self.ids.class_elements());
        table
    }

    /// What the kernel's table needs to be as it should.
    pub fn resync(&self, actual: &Table) -> Transaction {
        diff(actual, &self.table())
    }

    /// Load balancer addresses of each Service for which this node's table has rules.
    pub fn programmed(&self) -> &Arc<BTreeMap<ServiceKey, BTreeSet<IpAddr>>> {
        &self.programmed
    }

    /// The Services that an element belongs to.
    pub fn owners(&self, key: &Key) -> BTreeSet<ServiceKey> {
        match key {
            Key::Frontend(_, frontend) | Key::Allowed(frontend, _) => {
                self.holder(frontend).cloned().into_iter().collect()
            }
            Key::Address(map, address) => {
                let claims = self.claims.get(&Claim::Address(*map, *address));
                claims
                    .into_iter()
                    .flatten()
                    .map(|(_, key)| key.clone())
                    .collect()
            }
            Key::Slot(_, _, set, _) | Key::Remembered(_, set) => {
                self.ids.owner(*set).into_iter().collect()
            }
            Key::Net(..) | Key::Class(..) => BTreeSet::new(),
        }
    }

    fn holder(&self, frontend: &Frontend) -> Option<&ServiceKey> {
        let claims = self.claims.get(&Claim::Frontend(*frontend))?;
        claims.first().map(|(_, key)| key)
    }

    /// Claims whose elements may change.
    fn touched(&self, gone: &[ServiceKey], next: &[(ServiceKey, Built)]) -> BTreeSet<Claim> {
        let leaving = gone.iter().chain(next.iter().map(|(key, _)| key));
        let old = leaving
            .filter_map(|key| self.services.get(key))
            .flat_map(|built| built.claims.keys());
        old.chain(next.iter().flat_map(|(_, built)| built.claims.keys()))
            .cloned()
            .collect()
    }

    /// Elements of these claims (as their holders have them) and of these Services' ports.
    fn elements<'a>(
        &self,
        claims: &BTreeSet<Claim>,
        services: impl Iterator<Item = &'a ServiceKey>,
    ) -> Table {
        let held = claims.iter().filter_map(|claim| {
            let (_, key) = self.claims.get(claim)?.first()?;
            self.services.get(key)?.claims.get(claim)
        });
        let own = services
            .filter_map(|key| self.services.get(key))
            .map(|built| &built.elements);
        let claimed = held.flat_map(|(_, table)| table);
        claimed
            .chain(own.flatten())
            .map(|(key, value)| (*key, *value))
            .collect()
    }

    fn put_nets(&self, table: &mut Table) {
        let Some(node) = &self.node else { return };
        for (map, nets) in [
            (Map::Pods, &node.pod_networks),
            (Map::ServiceNet, &node.service_networks),
        ] {
            let nets = IpNet::aggregate(nets)
                .into_iter()
                .filter(|net| net.prefix_len() > 0);
            table.extend(nets.map(|net| (Key::Net(map, net), Value::Member)));
        }
    }

    fn replace(&mut self, gone: &[ServiceKey], next: Vec<(ServiceKey, Built)>) {
        for key in gone.iter().chain(next.iter().map(|(key, _)| key)) {
            let Some(old) = self.services.remove(key) else {
                continue;
            };
            for (claim, (kind, _)) in &old.claims {
                if let Some(claimants) = self.claims.get_mut(claim) {
                    claimants.remove(&(*kind, key.clone()));
                    if claimants.is_empty() {
                        self.claims.remove(claim);
                    }
                }
            }
        }
        for key in gone {
            self.ids.release(key, &BTreeSet::new());
        }
        for (key, built) in next {
            self.ids.release(&key, &built.ids());
            for (claim, (kind, _)) in &built.claims {
                self.claims
                    .entry(claim.clone())
                    .or_default()
                    .insert((*kind, key.clone()));
            }
            self.services.insert(key, built);
        }
    }

    /// UDP frontends among these claims with their serving endpoints.
    fn udp_frontends(
        &self,
        claims: &BTreeSet<Claim>,
    ) -> BTreeMap<SocketAddr, BTreeSet<SocketAddr>> {
        let frontends = claims.iter().filter_map(Claim::frontend);
        let udp = frontends.filter(|frontend| frontend.protocol == Protocol::Udp);
        let held = udp.filter_map(|frontend| {
            let built = self.services.get(self.holder(frontend)?)?;
            Some((socket(frontend), built.serving(frontend)?.clone()))
        });
        held.collect()
    }

    fn services_of<'a>(
        &'a self,
        claims: &'a BTreeSet<Claim>,
    ) -> impl Iterator<Item = ServiceKey> + 'a {
        let frontends = claims
            .iter()
            .filter(|claim| matches!(claim, Claim::Frontend(_)));
        let claimants = frontends
            .filter_map(|claim| self.claims.get(claim))
            .flatten();
        claimants.map(|(_, key)| key.clone())
    }

    fn refusals(&self, key: &ServiceKey) -> Vec<Refusal> {
        let Some(built) = self.services.get(key) else {
            return Vec::new();
        };
        let mut refusals = built.refusals.clone();
        for claim in built.claims.keys() {
            let Claim::Frontend(frontend) = claim else {
                continue;
            };
            let Some(holder) = self.holder(frontend).filter(|holder| *holder != key) else {
                continue;
            };
            let detail = format!(
                "{} {} port {} is served for {holder}",
                frontend.address, frontend.protocol, frontend.port
            );
            refusals.push(Refusal::new(key, Reason::FrontendTaken, detail));
        }
        refusals
    }

    fn note_programmed(&mut self, looked_at: &BTreeSet<ServiceKey>) {
        let mut news = Vec::new();
        for key in looked_at {
            let held = self.held_vips(key);
            if self.programmed.get(key).cloned().unwrap_or_default() != held {
                news.push((key.clone(), held));
            }
        }
        if news.is_empty() {
            return;
        }
        let programmed = Arc::make_mut(&mut self.programmed);
        for (key, held) in news {
            if held.is_empty() {
                programmed.remove(&key);
            } else {
                programmed.insert(key, held);
            }
        }
    }

    fn held_vips(&self, key: &ServiceKey) -> BTreeSet<IpAddr> {
        let Some(built) = self.services.get(key) else {
            return BTreeSet::new();
        };
        let programmed = built
            .claims
            .iter()
            .filter(|(_, (kind, elements))| {
                *kind == FrontendKind::LoadBalancer && !elements.is_empty()
            })
            .filter_map(|(claim, _)| claim.frontend());
        let held = programmed.filter(|frontend| self.holder(frontend) == Some(key));
        let held = held.map(|frontend| frontend.address);
        held.collect()
    }
}

/// Whose each frontend is, going by the snapshot alone.
fn holders(view: &NodeView) -> BTreeMap<Frontend, ServiceKey> {
    let mut planner = Planner::default();
    planner.update(view);
    let held = planner
        .claims
        .iter()
        .filter_map(|(claim, claimants)| Some((*claim.frontend()?, claimants.first()?.1.clone())));
    held.collect()
}

fn socket(frontend: &Frontend) -> SocketAddr {
    SocketAddr::new(frontend.address, frontend.port.get())
}

/// Frontends whose serving endpoints differ, which are new, or which are nobody's any more.
fn forget(
    before: &BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    now: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
) -> Forget {
    let mut forget = Forget::default();
    for frontend in before.keys().filter(|frontend| !now.contains_key(frontend)) {
        forget.insert(*frontend, Keep::Untranslated);
    }
    for (frontend, serving) in now {
        if before.get(&frontend) != Some(&serving) {
            forget.insert(frontend, Keep::AnsweredBy(serving));
        }
    }
    forget
}

#[cfg(test)]
mod tests;
