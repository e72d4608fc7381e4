//! What a Service shows, and what it should.

use std::{net::IpAddr, sync::Arc};

use api_model::{IpFamily, PoolName, ServiceKey};

use super::{Allocator, IngressChange, Output, Service, StatusWrite, Subject, settle::refused};
use crate::{
    claim::{Shown, ShownCondition, Uid},
    reason::EventReason,
};

impl Allocator {
    /// Writes the status of a Service if it does not show what it should and no write is under way.
    pub(super) fn show(&mut self, key: &ServiceKey, out: &mut Vec<Output>) {
        let Some(service) = self
            .services
            .get(key)
            .filter(|service| service.sent.is_none())
        else {
            return;
        };
        let Some(write) = self.status_of(service) else {
            return;
        };
        if let Some(service) = self.services.get_mut(key) {
            service.sent = Some(write.clone());
            out.push(Output::Status(write));
        }
    }

    fn status_of(&self, service: &Service) -> Option<StatusWrite> {
        let claim = &service.claim;
        let shown = &claim.shown;
        let held = self.held_in_order(service);
        let ingress = match held.first().and_then(|address| self.ledger.get(*address)) {
            Some(first) => {
                let confirmed = |address: &IpAddr| {
                    self.ledger
                        .get(*address)
                        .is_some_and(|entry| entry.confirms(&claim.key, &claim.uid))
                };
                if !held.iter().all(confirmed) {
                    return None; // the record comes first, then the status
                }
                let pool = first.pool.clone();
                let other_pool = shown.pool.as_ref().is_some_and(|shown| *shown != pool);
                if shown.addresses == held && !shown.other && !other_pool {
                    IngressChange::Keep
                } else {
                    IngressChange::Set {
                        addresses: held.clone(),
                        pool,
                    }
                }
            }
            None if shows_ours(service) => IngressChange::Clear,
            None => IngressChange::Keep,
        };
        let condition = self.condition_of(service, &held)?;
        let is_told = match &shown.condition {
            Some(shown) => *shown == condition,
            // taken over from before us and fine: nothing to write
            None => condition.allocated,
        };
        if ingress == IngressChange::Keep && is_told {
            return None;
        }
        Some(StatusWrite {
            key: claim.key.clone(),
            uid: claim.uid.clone(),
            ingress,
            condition,
        })
    }

    fn condition_of(&self, service: &Service, held: &[IpAddr]) -> Option<ShownCondition> {
        if let Some(refusal) = &service.refused {
            return Some(refused(refusal));
        }
        if held.is_empty() {
            return None;
        }
        Some(ShownCondition {
            allocated: true,
            reason: "Allocated".to_owned(),
            message: self.sentence(service, held),
        })
    }

    /// `192.0.2.10 from pool lan`.
    fn sentence(&self, service: &Service, held: &[IpAddr]) -> String {
        let pool = |address: &IpAddr| self.ledger.get(*address).map(|entry| entry.pool.clone());
        let parts: Vec<String> = held
            .iter()
            .map(|address| {
                let pool = pool(address).unwrap_or_else(|| PoolName::from(""));
                format!("{address} from pool {pool}")
            })
            .collect();
        let dual = service.claim.families.len() > 1
            && service.claim.policy != crate::claim::FamilyPolicy::SingleStack
            && held.len() == 1;
        let only = if dual {
            "; single-stack: no address of the other family can be had"
        } else {
            ""
        };
        format!("{}{only}", parts.join(", "))
    }

    /// What the Service holds, in the order of its families.
    fn held_in_order(&self, service: &Service) -> Vec<IpAddr> {
        let claim = &service.claim;
        let mut held = self.ledger.held_by(&claim.key, &claim.uid);
        let place = |address: &IpAddr| {
            claim
                .families
                .iter()
                .position(|family| *family == IpFamily::of(*address))
        };
        held.sort_by_key(|address| (place(address).unwrap_or(usize::MAX), *address));
        held
    }

    /// A write to the status was answered.
    pub(super) fn status_answer(
        &mut self,
        key: &ServiceKey,
        uid: &Uid,
        stored: bool,
        out: &mut Vec<Output>,
    ) {
        let Some(service) = self
            .services
            .get_mut(key)
            .filter(|service| service.claim.uid == *uid)
        else {
            return;
        };
        let Some(sent) = service.sent.take() else {
            return;
        };
        if !stored {
            self.retry_status_later(key);
            return;
        }
        let fresh = std::mem::take(&mut service.fresh);
        let allocated =
            sent.condition.allocated && matches!(sent.ingress, IngressChange::Set { .. });
        if allocated && fresh {
            out.push(Output::Event {
                subject: Subject::Service(key.clone(), uid.clone()),
                reason: EventReason::IpAllocated,
                message: format!("Allocated: {}", sent.condition.message),
            });
        }
        let claim = Arc::make_mut(&mut service.claim);
        claim.shown = after(&claim.shown, sent);
        self.show(key, out);
    }
}

/// Whether the Service shows something that we wrote or took over.
fn shows_ours(service: &Service) -> bool {
    let shown = &service.claim.shown;
    let any = !shown.addresses.is_empty() || shown.other;
    shown.pool.is_some() || (any && service.owned)
}

/// What is shown once a write is stored.
fn after(shown: &Shown, sent: StatusWrite) -> Shown {
    let condition = Some(sent.condition);
    match sent.ingress {
        IngressChange::Set { addresses, pool } => Shown {
            addresses,
            other: false,
            pool: Some(pool),
            condition,
        },
        IngressChange::Clear => Shown {
            addresses: Vec::new(),
            other: false,
            pool: None,
            condition,
        },
        IngressChange::Keep => Shown {
            condition,
            ..shown.clone()
        },
    }
}
