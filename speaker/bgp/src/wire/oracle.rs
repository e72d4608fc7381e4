//! A peer's table made by netgauze's decoder: what somebody else understands of what we send.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use netgauze_bgp_pkt::{
    BgpMessage,
    path_attribute::{AsPath, MpReach, MpUnreach, PathAttributeValue},
    update::BgpUpdateMessage,
    wire::deserializer::BgpParsingContext,
};
use netgauze_parse_utils::{reader::SliceReader, traits::ParseFromWithOneInput};

use crate::{Communities, Community, LargeCommunity};

/// Reads one message; panics if netgauze finds anything wrong with it.
pub(crate) fn read(message: &[u8], four_octet_as: bool) -> BgpMessage {
    let mut context = BgpParsingContext::asn2_default();
    context.set_asn4(four_octet_as);
    let mut reader = SliceReader::new(message);
    let read = BgpMessage::parse(&mut reader, &mut context);
    read.unwrap_or_else(|error| panic!("netgauze refuses {message:02x?}: {error:?}"))
}

/// A route as the peer knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) as_path: Vec<u32>,
    pub(crate) as4_path: Vec<u32>,
    pub(crate) next_hop: IpAddr,
    pub(crate) local_pref: Option<u32>,
    pub(crate) communities: Communities,
}

/// What a peer knows, and how often it was told.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) routes: BTreeMap<IpNet, Heard>,
    /// Withdrawals of prefixes that were there.
    pub(crate) withdrawals: usize,
}

impl Table {
    /// Takes one message; others than UPDATEs change nothing.
    pub(crate) fn apply(&mut self, message: &[u8], four_octet_as: bool) {
        if let BgpMessage::Update(update) = read(message, four_octet_as) {
            self.update(&update);
        }
    }

    fn update(&mut self, update: &BgpUpdateMessage) {
        let mut gone: Vec<IpNet> = update
            .withdraw_routes()
            .iter()
            .map(|prefix| prefix.network().address().into())
            .collect();
        let mut new: Vec<IpNet> = update
            .nlri()
            .iter()
            .map(|prefix| prefix.network().address().into())
            .collect();
        let mut heard = Heard {
            as_path: vec![],
            as4_path: vec![],
            next_hop: IpAddr::from([0, 0, 0, 0]),
            local_pref: None,
            communities: Communities::default(),
        };
        for attribute in update.path_attributes() {
            note(attribute.value(), &mut heard, &mut new, &mut gone);
        }
        for prefix in gone {
            self.withdrawals += usize::from(self.routes.remove(&prefix).is_some());
        }
        for prefix in new {
            self.routes.insert(prefix, heard.clone());
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "what we never send fails the test"
)]
fn note(
    value: &PathAttributeValue,
    heard: &mut Heard,
    new: &mut Vec<IpNet>,
    gone: &mut Vec<IpNet>,
) {
    match value {
        PathAttributeValue::Origin(_) => {}
        PathAttributeValue::AsPath(AsPath::As4PathSegments(segments)) => {
            heard.as_path = segments
                .iter()
                .flat_map(|s| s.as_numbers().to_vec())
                .collect();
        }
        PathAttributeValue::AsPath(AsPath::As2PathSegments(segments)) => {
            heard.as_path = segments
                .iter()
                .flat_map(|s| s.as_numbers().to_vec())
                .map(u32::from)
                .collect();
        }
        PathAttributeValue::As4Path(path) => {
            heard.as4_path = path
                .segments()
                .iter()
                .flat_map(|s| s.as_numbers().to_vec())
                .collect();
        }
        PathAttributeValue::NextHop(hop) => heard.next_hop = hop.next_hop().into(),
        PathAttributeValue::LocalPreference(value) => heard.local_pref = Some(value.metric()),
        PathAttributeValue::Communities(list) => {
            let all: Vec<Community> = list
                .communities()
                .iter()
                .map(|c| Community(c.value()))
                .collect();
            assert!(all.is_sorted(), "communities are ascending");
            heard.communities.plain = all.into_iter().collect();
        }
        PathAttributeValue::LargeCommunities(list) => {
            heard.communities.large = list
                .communities()
                .iter()
                .map(|c| LargeCommunity(c.global_admin(), c.local_data1(), c.local_data2()))
                .collect();
        }
        PathAttributeValue::MpReach(MpReach::Ipv6Unicast {
            next_hop_global,
            next_hop_local: None,
            nlri,
        }) => {
            heard.next_hop = IpAddr::V6(*next_hop_global);
            new.extend(
                nlri.iter()
                    .map(|prefix| IpNet::from(prefix.network().address())),
            );
        }
        PathAttributeValue::MpUnreach(MpUnreach::Ipv6Unicast { nlri }) => {
            gone.extend(
                nlri.iter()
                    .map(|prefix| IpNet::from(prefix.network().address())),
            );
        }
        other => panic!("never sent by us: {other:?}"),
    }
}
