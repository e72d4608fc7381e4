//! Rules outlive a withdrawal: an address that leaves a Service is withdrawn at once, but carried for the drain time, so that
//! packets already on their way find their endpoint. Pure.
//!
//! Owns the memory of addresses that left. Never keeps one that another Service has taken meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use api_model::{ServiceKey, Time};
use k8s_openapi::api::core::v1::{LoadBalancerIngress, LoadBalancerStatus, Service};

use crate::ingest::ingress_addresses;

/// How long rules stay after the withdrawal.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Addresses that left, until when, and the Service as it was when it had them.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    leaving: BTreeMap<ServiceKey, Leaving>,
}

#[derive(Debug)]
struct Leaving {
    until: Time,
    /// The Service as it was last seen with the addresses.
    last: Arc<Service>,
    addresses: BTreeSet<IpAddr>,
}

impl Drain {
    /// Compares a Service with its successor (`None`: deleted) and remembers the addresses that left. Addresses that were
    /// leaving already are remembered anew with them; the bound is one entry a Service.
    pub(crate) fn changed(
        &mut self,
        now: Time,
        key: &ServiceKey,
        old: &Arc<Service>,
        new: Option<&Service>,
    ) {
        let had: BTreeSet<IpAddr> = ingress_addresses(old).collect();
        let has: BTreeSet<IpAddr> = new.into_iter().flat_map(ingress_addresses).collect();
        let mut addresses: BTreeSet<IpAddr> = had.difference(&has).copied().collect();
        let former = self.leaving.remove(key);
        let until = if addresses.is_empty() {
            former.as_ref().map(|leaving| leaving.until)
        } else {
            Some(now + DRAIN_TIME)
        };
        let last = if addresses.is_empty() {
            former
                .as_ref()
                .map_or_else(|| old.clone(), |leaving| leaving.last.clone())
        } else {
            old.clone()
        };
        addresses.extend(former.into_iter().flat_map(|leaving| leaving.addresses));
        addresses.retain(|address| !has.contains(address));
        if let Some(until) = until.filter(|_| !addresses.is_empty()) {
            self.leaving.insert(
                key.clone(),
                Leaving {
                    until,
                    last,
                    addresses,
                },
            );
        }
    }

    /// Lets go of what has been carried long enough. True when something was.
    pub(crate) fn expire(&mut self, now: Time) -> bool {
        let before = self.leaving.len();
        self.leaving.retain(|_, leaving| leaving.until > now);
        self.leaving.len() != before
    }

    /// When the next address is to be let go.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.leaving.values().map(|leaving| leaving.until).min()
    }

    /// The Services to program: those that are there, with the addresses that are leaving added, and deleted ones as they
    /// were. An address that some Service now has is not carried for the former one.
    pub(crate) fn effective(
        &self,
        services: &BTreeMap<ServiceKey, Arc<Service>>,
    ) -> BTreeMap<ServiceKey, Arc<Service>> {
        if self.leaving.is_empty() {
            return services.clone();
        }
        let taken: BTreeSet<IpAddr> = services
            .values()
            .flat_map(|service| ingress_addresses(service))
            .collect();
        let mut effective = services.clone();
        for (key, leaving) in &self.leaving {
            let addresses: Vec<IpAddr> = leaving
                .addresses
                .iter()
                .filter(|address| !taken.contains(address))
                .copied()
                .collect();
            let shown = services.get(key).map_or_else(
                || deleted(&leaving.last, services, &addresses),
                |service| Some(with_addresses(service, &leaving.last, &addresses)),
            );
            if let Some(service) = shown {
                effective.insert(key.clone(), Arc::new(service));
            }
        }
        effective
    }
}

/// A deleted Service is carried whole, unless a new one has its ClusterIP.
fn deleted(
    last: &Service,
    services: &BTreeMap<ServiceKey, Arc<Service>>,
    addresses: &[IpAddr],
) -> Option<Service> {
    let cluster_ip = |service: &Service| {
        service
            .spec
            .as_ref()
            .and_then(|spec| spec.cluster_ip.clone())
    };
    let mine = cluster_ip(last).filter(|ip| ip != "None");
    let reused = mine.is_some() && services.values().any(|service| cluster_ip(service) == mine);
    (!reused && !addresses.is_empty()).then(|| with_addresses(last, last, addresses))
}

/// `service` with these addresses carried as well; policy and ports are those of the time when it had them, if it is no
/// LoadBalancer any more.
fn with_addresses(service: &Service, last: &Service, addresses: &[IpAddr]) -> Service {
    let is_balancer = |service: &Service| {
        service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
    };
    let mut shown = service.clone();
    if !is_balancer(service) && is_balancer(last) {
        shown.spec.clone_from(&last.spec);
    }
    let mut ingress: Vec<LoadBalancerIngress> = shown
        .status
        .take()
        .and_then(|status| status.load_balancer)
        .and_then(|balancer| balancer.ingress)
        .unwrap_or_default();
    ingress.retain(|entry| {
        let address = entry.ip.as_deref().and_then(|ip| ip.parse().ok());
        address.is_none_or(|address: IpAddr| !addresses.contains(&address))
    });
    ingress.extend(addresses.iter().map(|address| LoadBalancerIngress {
        ip: Some(address.to_string()),
        ip_mode: Some("VIP".into()),
        ..Default::default()
    }));
    // A deleted Service shows only what it still drains.
    let status = shown.status.get_or_insert_default();
    status.load_balancer = Some(LoadBalancerStatus {
        ingress: Some(ingress),
    });
    shown
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ServiceSpec, ServiceStatus};

    use super::*;

    fn service(addresses: &[&str]) -> Arc<Service> {
        let ingress = addresses
            .iter()
            .map(|ip| LoadBalancerIngress {
                ip: Some((*ip).to_owned()),
                ..Default::default()
            })
            .collect();
        Arc::new(Service {
            spec: Some(ServiceSpec {
                type_: Some("LoadBalancer".into()),
                ..Default::default()
            }),
            status: Some(ServiceStatus {
                load_balancer: Some(LoadBalancerStatus {
                    ingress: Some(ingress),
                }),
                ..Default::default()
            }),
            ..Default::default()
        })
    }

    fn shown(drain: &Drain, services: &[(&ServiceKey, &Arc<Service>)]) -> Vec<String> {
        let services = services
            .iter()
            .map(|(key, it)| ((*key).clone(), (*it).clone()))
            .collect();
        drain
            .effective(&services)
            .iter()
            .flat_map(|(key, it)| ingress_addresses(it).map(move |ip| format!("{key} {ip}")))
            .collect()
    }

    fn at(millis: u64) -> Time {
        Time::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn an_address_that_left_is_carried_for_the_drain_time() {
        let web = ServiceKey::new("demo", "web");
        let mut drain = Drain::default();
        let (old, new) = (service(&["192.0.2.10"]), service(&["192.0.2.11"]));
        drain.changed(at(0), &web, &old, Some(&new));
        assert_eq!(
            shown(&drain, &[(&web, &new)]),
            ["demo/web 192.0.2.11", "demo/web 192.0.2.10"]
        );
        assert_eq!(drain.next_deadline(), Some(at(2000)));
        assert!(!drain.expire(at(1999)));
        assert!(drain.expire(at(2000)));
        assert_eq!(shown(&drain, &[(&web, &new)]), ["demo/web 192.0.2.11"]);
    }

    #[test]
    fn a_deleted_service_is_carried_until_another_has_its_address() {
        let (web, shop) = (
            ServiceKey::new("demo", "web"),
            ServiceKey::new("demo", "shop"),
        );
        let mut drain = Drain::default();
        drain.changed(at(0), &web, &service(&["192.0.2.10"]), None);
        assert_eq!(shown(&drain, &[]), ["demo/web 192.0.2.10"]);
        let heir = service(&["192.0.2.10"]);
        assert_eq!(shown(&drain, &[(&shop, &heir)]), ["demo/shop 192.0.2.10"]);
    }

    #[test]
    fn an_address_that_comes_back_is_not_let_go() {
        let web = ServiceKey::new("demo", "web");
        let mut drain = Drain::default();
        let (with, without) = (service(&["192.0.2.10"]), service(&[]));
        drain.changed(at(0), &web, &with, Some(&without));
        drain.changed(at(100), &web, &without, Some(&with));
        assert_eq!(drain.next_deadline(), None);
        assert_eq!(shown(&drain, &[(&web, &with)]), ["demo/web 192.0.2.10"]);
    }
}
