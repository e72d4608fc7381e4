//! What surrounds the Services: pools, namespaces, nodes.

use std::{collections::BTreeSet, net::IpAddr};

use api_model::{AddressRange, NodeName, PoolName, ServiceKey};

use super::{Allocator, Cause, Output, PoolReport, Subject};
use crate::{claim::Labels, pool::Pool, reason::EventReason};

impl Allocator {
    pub(super) fn pool(&mut self, pool: Pool, out: &mut Vec<Output>) {
        let name = pool.name.clone();
        let before = self.ranges_of(&name);
        let changed = self.pools.set(pool);
        self.counted.insert(name);
        if changed && self.synced {
            self.pools_changed(before, out);
        }
    }

    pub(super) fn pool_gone(&mut self, name: &PoolName, out: &mut Vec<Output>) {
        if let Some(state) = self.pools.remove(name)
            && self.synced
        {
            self.pools_changed(state.ranges().to_vec(), out);
        }
    }

    pub(super) fn namespace(&mut self, name: &str, labels: Option<Labels>, out: &mut Vec<Output>) {
        let before = match labels {
            Some(labels) => {
                self.namespaces
                    .insert(name.to_owned(), labels.clone())
                    .as_ref()
                    == Some(&labels)
            }
            None => self.namespaces.remove(name).is_none(),
        };
        if before || !self.synced {
            return;
        }
        let of_namespace = self.services.keys().filter(|key| *key.namespace == *name);
        let keys: Vec<ServiceKey> = of_namespace.cloned().collect();
        for key in keys {
            self.settle(&key, Cause::Around, out);
        }
    }

    pub(super) fn node(
        &mut self,
        name: NodeName,
        addresses: Option<BTreeSet<IpAddr>>,
        out: &mut Vec<Output>,
    ) {
        let same = match addresses {
            Some(addresses) => self.nodes.insert(name, addresses.clone()) == Some(addresses),
            None => self.nodes.remove(&name).is_none(),
        };
        if same {
            return;
        }
        let before = std::mem::take(&mut self.pools.reserved);
        for (node, addresses) in &self.nodes {
            self.pools
                .reserved
                .extend(addresses.iter().map(|address| (*address, node.clone())));
        }
        if !self.synced {
            return;
        }
        let after = &self.pools.reserved;
        let changed = before
            .iter()
            .chain(after)
            .filter(|(address, _)| before.get(address) != after.get(address));
        let changed: BTreeSet<IpAddr> = changed.map(|(address, _)| *address).collect();
        self.warn_of_nodes(out);
        self.room = true;
        for address in changed {
            let of_pool = self.pools.of(address).map(|state| state.pool.name.clone());
            self.counted.extend(of_pool);
            self.settle_holders(address, out);
        }
    }

    /// Ranges of a pool that there may be.
    fn ranges_of(&self, name: &PoolName) -> Vec<AddressRange> {
        self.pools
            .get(name)
            .map(|state| state.ranges().to_vec())
            .unwrap_or_default()
    }

    /// Decides anew which pools are good and looks at every Service on an address that this may concern.
    fn pools_changed(&mut self, mut ranges: Vec<AddressRange>, out: &mut Vec<Output>) {
        let changed = self.refresh_pools();
        for name in changed {
            ranges.extend(self.ranges_of(&name));
            self.counted.insert(name);
        }
        self.report(out);
        let concerned: BTreeSet<IpAddr> = ranges
            .iter()
            .flat_map(|range| self.ledger.within(range))
            .map(|(address, _)| address)
            .collect();
        for address in concerned {
            self.settle_holders(address, out);
        }
        self.room = true;
    }

    /// Returns the pools that are new, have another spec, or turned good or bad.
    pub(super) fn refresh_pools(&mut self) -> BTreeSet<PoolName> {
        let ledger = &self.ledger;
        self.pools
            .refresh(|range| ledger.within(range).map(|(address, _)| address).collect())
    }

    fn settle_holders(&mut self, address: IpAddr, out: &mut Vec<Output>) {
        let holders = self
            .ledger
            .get(address)
            .map(|entry| entry.holders.keys().cloned().collect());
        let holders: Vec<ServiceKey> = holders.unwrap_or_default();
        for key in holders {
            self.settle(&key, Cause::Around, out);
        }
    }

    /// Reports what is wrong with the pools, if that changed.
    pub(super) fn report(&mut self, out: &mut Vec<Output>) {
        let report = |(name, state): (&PoolName, &crate::pool::PoolState)| {
            let problem = state.problem.as_ref()?.to_string();
            Some(PoolReport {
                pool: name.clone(),
                problem,
            })
        };
        let reports: Vec<PoolReport> = self.pools.iter().filter_map(report).collect();
        for report in reports
            .iter()
            .filter(|report| !self.reported.contains(report))
        {
            out.push(Output::Event {
                subject: Subject::Pool(report.pool.clone()),
                reason: EventReason::InvalidConfiguration,
                message: report.problem.clone(),
            });
        }
        if reports != self.reported {
            self.reported.clone_from(&reports);
            out.push(Output::Configuration(reports));
        }
        self.warn_of_nodes(out);
    }

    /// Tells once of each node address that lies in a pool.
    fn warn_of_nodes(&mut self, out: &mut Vec<Output>) {
        let in_pools = self.pools.reserved.iter().filter_map(|(address, node)| {
            let pool = self.pools.of(*address)?.pool.name.clone();
            Some((pool, *address, node.clone()))
        });
        let now: BTreeSet<_> = in_pools.collect();
        for (pool, address, node) in now.difference(&self.warned) {
            out.push(Output::Event {
                subject: Subject::Pool(pool.clone()),
                reason: EventReason::AddressReserved,
                message: format!(
                    "{address} is an address of node {node}: it is left out, the others stay in use"
                ),
            });
        }
        self.warned = now;
    }
}
