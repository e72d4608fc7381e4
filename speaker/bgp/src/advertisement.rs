//! Which routes each peer should hear.
//!
//! Owns the rules of `BGPAdvertisement`: choice of pools, peers and Services, aggregation, communities, `localPref`. A pure
//! function of a snapshot. Never decides whether this node may announce a Service (ingest and data plane do), and never
//! knows what was sent already (`adj_rib_out`).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::Arc,
};

use api_model::{IpFamily, PoolName, ServiceKey};
use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};

use crate::{
    Communities, CommunityError, PeerConfig, PeerName, Reason, community::resolve_communities,
};

/// Most routes that one peer is given; further ones are refused with [`Reason::TooManyRoutes`].
pub const MAX_ROUTES_PER_PEER: usize = 100_000;

/// Name of a `BGPAdvertisement` object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdvertisementName(Arc<str>);

impl AdvertisementName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for AdvertisementName {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for AdvertisementName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One `BGPAdvertisement` that applies to this node, its label selectors already turned into names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// `metadata.name`.
    pub name: AdvertisementName,
    /// Pools by name or selector; `None` = every pool.
    pub pools: Option<BTreeSet<PoolName>>,
    /// `peers`; `None` = every peer.
    pub peers: Option<BTreeSet<PeerName>>,
    /// Services that `serviceSelectors` match; `None` = every Service.
    pub services: Option<BTreeSet<ServiceKey>>,
    /// `aggregationLength`, default 32.
    pub aggregation_length: u8,
    /// `aggregationLengthV6`, default 128.
    pub aggregation_length_v6: u8,
    /// `localPref`; `None` for 0 or absent.
    pub local_pref: Option<u32>,
    /// `communities` as written: numbers or aliases.
    pub communities: Vec<String>,
}

impl Advertisement {
    /// An advertisement of everything to everybody as host routes: an empty `spec`.
    pub fn of_everything(name: AdvertisementName) -> Self {
        Self {
            name,
            pools: None,
            peers: None,
            services: None,
            aggregation_length: IpFamily::V4.bits(),
            aggregation_length_v6: IpFamily::V6.bits(),
            local_pref: None,
            communities: Vec::new(),
        }
    }

    fn length(&self, family: IpFamily) -> u8 {
        match family {
            IpFamily::V4 => self.aggregation_length,
            IpFamily::V6 => self.aggregation_length_v6,
        }
    }

    fn takes(&self, announced: &AnnouncedAddress) -> bool {
        let pool = self
            .pools
            .as_ref()
            .is_none_or(|pools| pools.contains(&announced.pool));
        let service = self
            .services
            .as_ref()
            .is_none_or(|services| services.contains(&announced.service));
        pool && service
    }
}

/// One entry of a pool's `addresses`: first and last address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpan {
    /// First address.
    pub first: IpAddr,
    /// Last address, of the same family.
    pub last: IpAddr,
}

impl PoolSpan {
    fn contains(&self, address: IpAddr) -> bool {
        self.first <= address && address <= self.last
    }

    /// Shortest prefix length among the smallest set of prefixes that make up this span.
    fn shortest_length(&self) -> Option<u8> {
        let prefixes = match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => Ipv4Subnets::new(first, last, 0).into(),
            (IpAddr::V6(first), IpAddr::V6(last)) => Ipv6Subnets::new(first, last, 0).into(),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return None,
        };
        let prefixes: IpSubnets = prefixes;
        prefixes.map(|prefix| prefix.prefix_len()).min()
    }
}

/// An address that this node may announce now for a Service: the Service holds it, its traffic policy is met here, and the
/// data plane has its rules. Services that share an address stand in the list once each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnnouncedAddress {
    /// The Service.
    pub service: ServiceKey,
    /// Its address.
    pub address: IpAddr,
    /// The pool the address is from.
    pub pool: PoolName,
}

/// Everything that the choice of routes depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdvertisementView {
    /// Peers that apply to this node.
    pub peers: Vec<PeerConfig>,
    /// Advertisements that apply to this node.
    pub advertisements: Vec<Advertisement>,
    /// Addresses of this node's Services.
    pub announced: Vec<AnnouncedAddress>,
    /// Entries of each pool, for the check of aggregation lengths; a pool that isn't here isn't checked.
    pub pools: BTreeMap<PoolName, Vec<PoolSpan>>,
    /// Aliases of all `Community` objects: name → value text.
    pub aliases: BTreeMap<String, String>,
}

/// What a route carries besides its prefix and the next hop (which is the session's).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// `LOCAL_PREF` (RFC 4271 §5.1.5); only ever set for internal peers, where `None` means 100.
    pub local_pref: Option<u32>,
    /// Communities, plain and large.
    pub communities: Communities,
}

/// Routes by prefix.
pub type Routes = BTreeMap<IpNet, Route>;

/// The answer: routes per peer, and what was not done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Routes of every peer of the view, empty for a peer that should hear nothing.
    pub routes: BTreeMap<PeerName, Arc<Routes>>,
    /// To which peers each Service is announced; Services that nobody hears about are absent.
    pub peers_of: BTreeMap<ServiceKey, BTreeSet<PeerName>>,
    /// Advertisements that were left out or only half applied.
    pub refusals: Vec<Refusal>,
}

/// An advertisement that isn't applied as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which one.
    pub advertisement: AdvertisementName,
    /// Why, in one word.
    pub reason: Reason,
    /// Why, with names and values, for an event.
    pub message: String,
}

/// Routes of every peer. Advertisements are taken in the order of their names; a bad one is left out, the others are applied.
pub fn wanted(view: &AdvertisementView) -> Wanted {
    let mut build = Build::new(view);
    let mut advertisements: Vec<_> = view.advertisements.iter().collect();
    advertisements.sort_by(|a, b| a.name.cmp(&b.name));
    for advertisement in advertisements {
        build.apply(advertisement);
    }
    build.finish()
}

/// A route being put together, and which advertisement gave its `localPref`.
#[derive(Default)]
struct Draft {
    route: Route,
    local_pref_by: Option<AdvertisementName>,
}

struct Build<'a> {
    view: &'a AdvertisementView,
    drafts: BTreeMap<&'a PeerName, BTreeMap<IpNet, Draft>>,
    out: Wanted,
}

impl<'a> Build<'a> {
    fn new(view: &'a AdvertisementView) -> Self {
        let drafts = view
            .peers
            .iter()
            .map(|peer| (&peer.name, BTreeMap::new()))
            .collect();
        Self {
            view,
            drafts,
            out: Wanted::default(),
        }
    }

    fn apply(&mut self, advertisement: &Advertisement) {
        let communities = match self.check(advertisement) {
            Ok(communities) => communities,
            Err((reason, message)) => return self.refuse(advertisement, reason, message),
        };
        for announced in &self.view.announced {
            if !advertisement.takes(announced) {
                continue;
            }
            let length = advertisement.length(IpFamily::of(announced.address));
            if let Err(message) = self.check_aggregation(announced, length) {
                self.refuse(advertisement, Reason::InvalidAggregationLength, message);
                continue;
            }
            let prefix = IpNet::new(announced.address, length)
                .expect("the length was checked against the family")
                .trunc();
            self.announce(advertisement, announced, prefix, &communities);
        }
    }

    /// What can be said about an advertisement alone.
    fn check(&self, advertisement: &Advertisement) -> Result<Communities, (Reason, String)> {
        let (v4, v6) = (
            advertisement.aggregation_length,
            advertisement.aggregation_length_v6,
        );
        if !(1..=32).contains(&v4) || !(1..=128).contains(&v6) {
            return Err((
                Reason::InvalidAggregationLength,
                format!("aggregationLength {v4} must be 1-32, aggregationLengthV6 {v6} 1-128"),
            ));
        }
        if advertisement.services.is_some() && (v4, v6) != (32, 128) {
            return Err((
                Reason::SelectorWithAggregation,
                format!(
                    "serviceSelectors need aggregationLength 32 and aggregationLengthV6 128, not {v4} and {v6}"
                ),
            ));
        }
        resolve_communities(&advertisement.communities, &self.view.aliases).map_err(|error| {
            let reason = match error {
                CommunityError::TooMany => Reason::TooManyCommunities,
                CommunityError::NotANumber(_) | CommunityError::UnknownAlias(_) => {
                    Reason::InvalidCommunity
                }
            };
            (reason, error.to_string())
        })
    }

    /// An aggregate must not be wider than the pool's entry that the address is in.
    fn check_aggregation(&self, announced: &AnnouncedAddress, length: u8) -> Result<(), String> {
        let spans = self
            .view
            .pools
            .get(&announced.pool)
            .map_or(&[][..], Vec::as_slice);
        let shortest = spans
            .iter()
            .find(|span| span.contains(announced.address))
            .and_then(PoolSpan::shortest_length);
        match shortest {
            Some(shortest) if length < shortest => Err(format!(
                "aggregation length {length} is wider than the /{shortest} of pool {} around {}",
                announced.pool, announced.address
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn announce(
        &mut self,
        advertisement: &Advertisement,
        announced: &AnnouncedAddress,
        prefix: IpNet,
        communities: &Communities,
    ) {
        let family = IpFamily::of(announced.address);
        for peer in &self.view.peers {
            let chosen = advertisement
                .peers
                .as_ref()
                .is_none_or(|names| names.contains(&peer.name));
            if !chosen || !peer.families.contains(&family) {
                continue;
            }
            let drafts = self
                .drafts
                .get_mut(&peer.name)
                .expect("every peer has its drafts");
            if drafts.len() >= MAX_ROUTES_PER_PEER && !drafts.contains_key(&prefix) {
                let message = format!(
                    "peer {} already gets {MAX_ROUTES_PER_PEER} routes",
                    peer.name
                );
                self.refuse(advertisement, Reason::TooManyRoutes, message);
                continue;
            }
            let draft = drafts.entry(prefix).or_default();
            let refused = draft.take(advertisement, peer, prefix, communities);
            self.out
                .peers_of
                .entry(announced.service.clone())
                .or_default()
                .insert(peer.name.clone());
            if let Some((reason, message)) = refused {
                self.refuse(advertisement, reason, message);
            }
        }
    }

    /// Notes a refusal, each message once.
    fn refuse(&mut self, advertisement: &Advertisement, reason: Reason, message: String) {
        let known =
            self.out.refusals.iter().any(|refusal| {
                refusal.advertisement == advertisement.name && refusal.reason == reason
            });
        if !known {
            self.out.refusals.push(Refusal {
                advertisement: advertisement.name.clone(),
                reason,
                message,
            });
        }
    }

    fn finish(mut self) -> Wanted {
        for (peer, drafts) in self.drafts {
            let routes: Routes = drafts
                .into_iter()
                .map(|(prefix, draft)| (prefix, draft.route))
                .collect();
            self.out.routes.insert(peer.clone(), Arc::new(routes));
        }
        self.out
    }
}

impl Draft {
    /// Adds what an advertisement says to the route: communities are united, the first `localPref` stays.
    fn take(
        &mut self,
        advertisement: &Advertisement,
        peer: &PeerConfig,
        prefix: IpNet,
        communities: &Communities,
    ) -> Option<(Reason, String)> {
        if let Err(error) = self.route.communities.unite(communities) {
            return Some((Reason::TooManyCommunities, format!("{prefix}: {error}")));
        }
        let value = advertisement.local_pref?;
        match (&self.local_pref_by, self.route.local_pref) {
            (Some(first), kept) if kept.is_some_and(|kept| kept != value) => {
                let kept = kept.unwrap_or_default();
                Some((
                    Reason::LocalPrefConflict,
                    format!(
                        "{prefix} to peer {}: localPref {kept} of {first} is used, not {value} of {}",
                        peer.name, advertisement.name
                    ),
                ))
            }
            (Some(_), _) => None,
            (None, _) => {
                if peer.is_internal() {
                    self.route.local_pref = Some(value);
                    self.local_pref_by = Some(advertisement.name.clone());
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
