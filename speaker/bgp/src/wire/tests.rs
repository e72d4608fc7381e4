//! Our encodings read by netgauze and the other way round; every message cut at every length; the faults of RFC 7606.

use std::{collections::BTreeSet, net::IpAddr};

use api_model::{Asn, IpFamily};
use netgauze_bgp_pkt::update::BgpUpdateMessage;
use netgauze_bgp_pkt::{
    BgpMessage as Theirs,
    capabilities::{BgpCapability, FourOctetAsCapability, MultiProtocolExtensionsCapability},
    nlri::{Ipv4Unicast, Ipv4UnicastAddress},
    open::{BgpOpenMessage, BgpOpenMessageParameter},
    path_attribute::{
        As4PathSegment, AsPath, AsPathSegmentType, NextHop, Origin, PathAttribute,
        PathAttributeValue,
    },
};
use netgauze_iana::address_family::AddressType;
use netgauze_parse_utils::WritablePdu;

use super::{
    encode::{OpenFields, UpdateContext},
    oracle,
    skim::{Skim, SkimContext, gate, skim},
    *,
};
use crate::{Communities, Community, LargeCommunity, Route, capability::Capabilities};

/// Bytes from hex digits.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] << 4 | pair[1]).unwrap())
        .collect()
}

const EXTERNAL: SkimContext = SkimContext {
    four_octet_as: true,
    internal: false,
};

fn context() -> UpdateContext {
    UpdateContext {
        local_asn: Asn(64512),
        internal: false,
        four_octet_as: true,
        next_hop_v4: Some("192.0.2.11".parse().unwrap()),
        next_hop_v6: Some("2001:db8:0:1::11".parse().unwrap()),
    }
}

fn fields() -> OpenFields {
    OpenFields {
        asn: Asn(65551),
        hold_time: 90,
        router_id: "192.0.2.11".parse().unwrap(),
        families: BTreeSet::from([IpFamily::V4, IpFamily::V6]),
        with_capabilities: true,
    }
}

fn one_frame(message: &[u8]) -> Frame {
    let mut framer = Framer::default();
    assert_eq!(framer.push(message), message.len());
    framer.next_frame().unwrap().expect("the message is whole")
}

fn theirs_to_bytes(message: &Theirs) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.write(&mut bytes).unwrap();
    bytes
}

#[test]
fn our_open_reads_the_same_at_the_oracle() {
    let Theirs::Open(open) = oracle::read(&encode::open(&fields()), true) else {
        panic!("not an OPEN");
    };
    assert_eq!((open.my_as(), open.my_asn4()), (AS_TRANS, 65551));
    assert_eq!((open.hold_time(), open.bgp_id()), (90, fields().router_id));
    let capabilities: Vec<String> = open
        .capabilities()
        .iter()
        .map(|capability| format!("{capability:?}"))
        .collect();
    assert_eq!(
        capabilities,
        [
            "MultiProtocolExtensions(MultiProtocolExtensionsCapability { address_type: Ipv4Unicast })",
            "MultiProtocolExtensions(MultiProtocolExtensionsCapability { address_type: Ipv6Unicast })",
            "RouteRefresh",
            "FourOctetAs(FourOctetAsCapability { asn4: 65551 })",
        ]
    );
}

#[test]
fn an_open_without_capabilities_has_no_parameters() {
    let fields = OpenFields {
        with_capabilities: false,
        ..fields()
    };
    assert_eq!(
        encode::open(&fields),
        hex("ffffffffffffffffffffffffffffffff 001d 01 04 5ba0 005a c000020b 00")
    );
}

#[test]
fn the_oracles_open_is_read_by_us() {
    let open = BgpOpenMessage::new(
        AS_TRANS,
        9,
        "192.0.2.1".parse().unwrap(),
        vec![BgpOpenMessageParameter::new_capabilities(vec![
            BgpCapability::MultiProtocolExtensions(MultiProtocolExtensionsCapability::new(
                AddressType::Ipv6Unicast,
            )),
            BgpCapability::ExtendedMessage,
            BgpCapability::FourOctetAs(FourOctetAsCapability::new(65551)),
        ])],
    );
    let frame = one_frame(&theirs_to_bytes(&Theirs::Open(open)));
    let expected = decode::Open {
        my_as: AS_TRANS,
        hold_time: 9,
        router_id: "192.0.2.1".parse().unwrap(),
        capabilities: Capabilities {
            families: BTreeSet::from([IpFamily::V6]),
            multiprotocol: true,
            four_octet_as: Some(Asn(65551)),
            route_refresh: false,
        },
    };
    assert_eq!(decode::open(&frame.body), Ok(expected));
}

#[test]
fn odd_capabilities_are_passed_over_and_broken_parameters_refused() {
    let open =
        |parameters: &str| decode::open(&hex(&format!("04 fc01 005a c0000201 {parameters}")));
    // a name with a domain (FRR), graceful restart, a code that nobody has
    let known = open("12 02 10 49 04 01610162 40 06 007800010180 fe 00");
    assert_eq!(
        known.map(|open| open.capabilities),
        Ok(Capabilities::default())
    );
    // RFC 9072: lengths of two octets
    let extended = open("ff ff 0008 02 0005 fe0100 0200");
    assert_eq!(
        extended.map(|open| open.capabilities.route_refresh),
        Ok(true)
    );
    assert_eq!(open("02 01 00"), Err(Notification::unsupported_parameter()));
    for broken in [
        "",
        "01",
        "02 02 01",
        "03 02 02 01",
        "05 02 02 02 00",
        "ff",
        "ff ff",
        "ff ff 00",
    ] {
        assert_eq!(
            open(broken),
            Err(Notification::malformed_open()),
            "{broken}"
        );
    }
}

fn route() -> Route {
    Route {
        local_pref: Some(200),
        communities: Communities {
            plain: BTreeSet::from([Community(0xfc00_0001), Community(0xffff_ff01)]),
            large: BTreeSet::from([LargeCommunity(64512, 7, 9)]),
        },
    }
}

#[test]
fn an_announcement_is_laid_out_octet_by_octet() {
    let v4 = encode::announce(&context(), &route(), &["203.0.113.1/32".parse().unwrap()]);
    assert_eq!(
        v4,
        [hex("ffffffffffffffffffffffffffffffff 004a 02 0000 002e
             400101 00  400206 02010000fc00  400304 c000020b
             c00808 fc000001ffffff01  c0200c 0000fc000000000700000009
             20 cb007101")
        .into_iter()
        .collect::<Vec<u8>>()]
    );
    let v6 = encode::announce(
        &context(),
        &Route::default(),
        &["2001:db8:0:2::1/128".parse().unwrap()],
    );
    assert_eq!(
        v6,
        [hex(
            "ffffffffffffffffffffffffffffffff 004e 02 0000 0037
             900e0026 0002 01 10 20010db8000000010000000000000011 00 80 20010db8000000020000000000000001
             400101 00  400206 02010000fc00"
        )]
    );
}

#[test]
fn internal_peers_hear_local_pref_and_an_empty_path() {
    let internal = UpdateContext {
        internal: true,
        ..context()
    };
    let mut table = oracle::Table::default();
    let prefixes = [
        "203.0.113.0/24".parse().unwrap(),
        "2001:db8::/64".parse().unwrap(),
    ];
    for message in encode::announce(&internal, &route(), &prefixes) {
        table.apply(&message, true);
    }
    let heard = |next_hop: &str| oracle::Heard {
        as_path: vec![],
        as4_path: vec![],
        next_hop: next_hop.parse().unwrap(),
        local_pref: Some(200),
        communities: route().communities,
    };
    assert_eq!(
        table.routes.into_values().collect::<Vec<_>>(),
        [heard("192.0.2.11"), heard("2001:db8:0:1::11")]
    );
}

#[test]
fn many_prefixes_fill_messages_up_to_the_limit_and_none_is_lost() {
    let prefixes: Vec<ipnet::IpNet> = (0..3000_u32)
        .map(|n| {
            ipnet::Ipv4Net::new(
                (0x0a00_0000 + n * 256).into(),
                24 + u8::try_from(n % 9).unwrap(),
            )
            .unwrap()
            .trunc()
            .into()
        })
        .chain((0..900_u128).map(|n| {
            ipnet::Ipv6Net::new((0x2001_0db8_u128 << 96 | n).into(), 128)
                .unwrap()
                .into()
        }))
        .collect();
    let announced = encode::announce(&context(), &route(), &prefixes);
    let withdrawn = encode::withdraw(&prefixes);
    for messages in [&announced, &withdrawn] {
        let octets: Vec<usize> = messages.iter().map(Vec::len).collect();
        assert!(
            octets.iter().all(|&octets| octets <= MAX_MESSAGE_OCTETS),
            "{octets:?}"
        );
        assert!(
            octets.iter().filter(|&&octets| octets < 4070).count() <= 2,
            "not filled: {octets:?}"
        );
    }
    let mut table = oracle::Table::default();
    for message in &announced {
        table.apply(message, true);
    }
    assert_eq!(
        table.routes.keys().copied().collect::<BTreeSet<_>>(),
        prefixes.iter().copied().collect()
    );
    for message in &withdrawn {
        table.apply(message, true);
    }
    assert_eq!(table.routes.len(), 0);
}

#[test]
fn the_most_communities_that_a_route_may_have_still_fit() {
    let full = Route {
        local_pref: Some(1),
        communities: Communities {
            plain: (0..255).map(Community).collect(),
            large: (0..128).map(|n| LargeCommunity(n, n, n)).collect(),
        },
    };
    let prefixes = [
        "203.0.113.1/32".parse().unwrap(),
        "2001:db8::1/128".parse().unwrap(),
    ];
    let mut table = oracle::Table::default();
    for message in encode::announce(&context(), &full, &prefixes) {
        assert!(message.len() <= MAX_MESSAGE_OCTETS);
        table.apply(&message, true);
    }
    assert!(
        table
            .routes
            .values()
            .all(|heard| heard.communities == full.communities)
    );
    assert_eq!(table.routes.len(), 2);
}

#[test]
fn end_of_rib_is_known_to_the_oracle() {
    for (family, theirs) in [
        (IpFamily::V4, AddressType::Ipv4Unicast),
        (IpFamily::V6, AddressType::Ipv6Unicast),
    ] {
        let Theirs::Update(update) = oracle::read(&encode::end_of_rib(family), true) else {
            panic!("not an UPDATE");
        };
        assert_eq!(update.end_of_rib(), Some(theirs));
        assert_eq!(
            skim(&one_frame(&encode::end_of_rib(family)).body, EXTERNAL),
            Ok(Skim::default())
        );
    }
}

#[test]
fn the_oracles_update_is_counted_and_read_by_us() {
    let attribute = |value| PathAttribute::from(false, true, false, false, value).unwrap();
    let segment = As4PathSegment::new(AsPathSegmentType::AsSequence, vec![64513_u32, 65551]);
    let update = BgpUpdateMessage::new(
        vec![prefix("198.51.100.0/25")],
        vec![
            attribute(PathAttributeValue::Origin(Origin::IGP)),
            attribute(PathAttributeValue::AsPath(AsPath::as4_path_segments(vec![
                segment,
            ]))),
            attribute(PathAttributeValue::NextHop(NextHop::new(
                "192.0.2.1".parse().unwrap(),
            ))),
        ],
        vec![prefix("198.51.100.128/25"), prefix("0.0.0.0/0")],
    );
    let frame = one_frame(&theirs_to_bytes(&Theirs::Update(update)));
    let expected = Skim {
        announced: 2,
        withdrawn: 1,
        ..Skim::default()
    };
    assert_eq!(skim(&frame.body, EXTERNAL), Ok(expected));
    let read = decode::update(&gate(&frame.body, EXTERNAL).unwrap()).unwrap();
    assert_eq!(
        format!("{:?}", read.updates),
        "IPV4U([BgpAddrV4 { addr: 198.51.100.128, prefixlen: 25 }, BgpAddrV4 { addr: 0.0.0.0, prefixlen: 0 }])"
    );
    assert_eq!(
        format!("{:?}", read.withdraws),
        "IPV4U([BgpAddrV4 { addr: 198.51.100.0, prefixlen: 25 }])"
    );
    assert_eq!(
        read.get_attr_nexthop().map(|hop| hop.value),
        Some(IpAddr::from([192, 0, 2, 1]))
    );
}

fn prefix(text: &str) -> Ipv4UnicastAddress {
    Ipv4UnicastAddress::new_no_path_id(Ipv4Unicast::from_net(text.parse().unwrap()).unwrap())
}

#[test]
fn a_notification_carries_its_data_and_the_operators_words() {
    let shutdown = Notification::administrative_shutdown("node drained");
    let frame = one_frame(&encode::notification(&shutdown));
    let read = decode::notification(&frame.body);
    assert_eq!(read, shutdown);
    assert_eq!(
        read.to_string(),
        "6/2 Administrative Shutdown: \"node drained\""
    );
    let long = Notification::administrative_shutdown(&"ä".repeat(200));
    assert_eq!(long.shutdown_text(), Some("ä".repeat(127)));
    assert!(matches!(
        oracle::read(&encode::notification(&shutdown), true),
        Theirs::Notification(_)
    ));
}

#[test]
fn a_route_refresh_is_read_as_it_was_written() {
    for family in [IpFamily::V4, IpFamily::V6] {
        let frame = one_frame(&encode::route_refresh(family));
        let expected = decode::RouteRefresh {
            family: Some(family),
            subtype: 0,
        };
        assert_eq!(decode::route_refresh(&frame.body), Some(expected));
    }
}

/// Every message, cut at every length: nothing but "not yet" comes out of the framer, and no body is read past its end.
#[test]
fn every_message_cut_anywhere_is_incomplete_or_refused() {
    let messages = [
        encode::open(&fields()),
        encode::keepalive(),
        encode::notification(&Notification::administrative_shutdown("x")),
        encode::route_refresh(IpFamily::V6),
        encode::announce(&context(), &route(), &["203.0.113.1/32".parse().unwrap()]).remove(0),
        encode::announce(&context(), &route(), &["2001:db8::/48".parse().unwrap()]).remove(0),
        encode::withdraw(&["2001:db8::/48".parse().unwrap()]).remove(0),
    ];
    for message in &messages {
        for cut in 0..message.len() {
            let mut framer = Framer::default();
            framer.push(&message[..cut]);
            assert_eq!(
                framer.next_frame(),
                Ok(None),
                "{cut} octets of {message:02x?}"
            );
        }
        let body = &message[HEADER_OCTETS..];
        for cut in 0..body.len() {
            let body = &body[..cut];
            match message[18] {
                1 => assert!(decode::open(body).is_err(), "{body:02x?}"),
                2 => assert!(skim(body, EXTERNAL).is_err() || cut >= 4, "{body:02x?}"),
                3 => drop(decode::notification(body)),
                5 => assert_eq!(decode::route_refresh(body), None),
                _ => {}
            }
        }
    }
}

/// The body that makes zettabgp's decoder allocate for ever.
#[test]
fn a_stray_octet_in_an_as_path_does_not_pass_the_gate() {
    let body = hex("0000 000a 400207 0201 0000fde9 00");
    assert_eq!(gate(&body, EXTERNAL), None);
    // nothing is announced, so there is nothing to withdraw, but the fault is seen
    assert_eq!(
        skim(&body, EXTERNAL).map(|skim| skim.treat_as_withdraw),
        Ok(Some(2))
    );
}

/// A body of attribute 128 in attribute 128, which makes zettabgp's decoder recurse until the stack ends.
pub(crate) fn nested_attribute_sets(levels: usize) -> Vec<u8> {
    let mut attribute = Vec::new();
    for _ in 0..levels {
        let mut value = 65001_u32.to_be_bytes().to_vec();
        value.append(&mut attribute);
        attribute = vec![0xd0, 128];
        attribute.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        attribute.append(&mut value);
    }
    let mut body = vec![0, 0];
    body.extend_from_slice(&u16::try_from(attribute.len()).unwrap().to_be_bytes());
    body.append(&mut attribute);
    body
}

#[test]
fn nested_attribute_sets_are_withheld_from_the_decoder() {
    let body = nested_attribute_sets(500);
    assert_eq!(skim(&body, EXTERNAL), Ok(Skim::default()));
    let gated = gate(&body, EXTERNAL).unwrap();
    assert_eq!(gated.body(), [0, 0, 0, 0]);
    assert!(decode::update(&gated).unwrap().attrs.is_empty());
}
