//! Neighbour Discovery: what is read, what is refused, and the exact octets of what is built.

use super::*;

const OWN: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0x0a]);
const ASKER: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0xc8]);

fn vip() -> Ipv6Addr {
    "2001:db8:0:1::240".parse().unwrap()
}

fn asker() -> Ipv6Addr {
    "2001:db8:0:1::c8".parse().unwrap()
}

/// A solicitation with these IPv6 addresses and options; the checksum is right.
fn solicitation(source: Ipv6Addr, destination: Ipv6Addr, options: &[u8]) -> Vec<u8> {
    let length = u8::try_from(MESSAGE_BYTES + options.len()).unwrap();
    let mut frame = Vec::new();
    frame.extend(if destination.is_multicast() {
        Mac::of_group(destination).0
    } else {
        OWN.0
    });
    frame.extend(ASKER.0);
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, length, 58, 255]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    frame.extend([135, 0, 0, 0, 0, 0, 0, 0]);
    frame.extend(vip().octets());
    frame.extend(options);
    sum(&mut frame);
    frame
}

/// Sets the checksum to what RFC 8200 §8.1 says, computed here by hand.
fn sum(frame: &mut [u8]) {
    frame[56..58].fill(0);
    let mut octets = frame[22..].to_vec();
    if octets.len() % 2 == 1 {
        octets.push(0);
    }
    let words = octets
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let mut total = words.sum::<u32>() + u32::try_from(frame.len() - 54).unwrap() + 58;
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    frame[56..58].copy_from_slice(&u16::try_from(!total & 0xffff).unwrap().to_be_bytes());
}

fn changed(frame: &[u8], changes: &[(usize, u8)]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    for (offset, octet) in changes {
        frame[*offset] = *octet;
    }
    sum(&mut frame);
    frame
}

const SLLA: [u8; 8] = [1, 1, 0, 0, 0x5e, 0, 0x53, 0xc8];

#[test]
fn solicitations_are_read_in_every_valid_form() {
    let group = solicited_node(vip());
    let of = |source, mac| {
        Ok(Message::Solicitation(Solicitation {
            source,
            mac,
            target: vip(),
        }))
    };
    let other = [1, 1, 0, 0, 0x5e, 0, 0x53, 0xee];
    let table = [
        (
            "resolution",
            solicitation(asker(), group, &SLLA),
            of(Some(asker()), ASKER),
        ),
        (
            "NUD probe without the option",
            solicitation(asker(), vip(), &[]),
            of(Some(asker()), ASKER),
        ),
        (
            "the option names the station to answer",
            solicitation(asker(), group, &other),
            of(Some(asker()), Mac([0, 0, 0x5e, 0, 0x53, 0xee])),
        ),
        (
            "duplicate address detection",
            solicitation(Ipv6Addr::UNSPECIFIED, group, &[]),
            of(None, ASKER),
        ),
        (
            "a nonce first (RFC 3971)",
            solicitation(asker(), group, &[[14, 1, 1, 2, 3, 4, 5, 6], SLLA].concat()),
            of(Some(asker()), ASKER),
        ),
        (
            "a nonce in a probe (RFC 7527)",
            solicitation(Ipv6Addr::UNSPECIFIED, group, &[14, 1, 1, 2, 3, 4, 5, 6]),
            of(None, ASKER),
        ),
    ];
    for (name, frame, expected) in table {
        assert_eq!(parse(&frame, OWN), expected, "{name}");
    }
}

#[test]
fn a_frame_cut_anywhere_is_too_short_and_padding_is_no_option() {
    let frame = solicitation(asker(), solicited_node(vip()), &SLLA);
    for length in 0..frame.len() {
        assert_eq!(
            parse(&frame[..length], OWN),
            Err(Dropped::TooShort),
            "cut at {length}"
        );
    }
    let mut padded = solicitation(asker(), vip(), &[]);
    padded.resize(90, 0);
    assert!(parse(&padded, OWN).is_ok());
}

#[test]
fn what_rfc_4861_discards_is_refused_with_its_reason() {
    use Dropped as D;
    let good = solicitation(asker(), solicited_node(vip()), &SLLA);
    // One octet of the good solicitation changed, and the reason for the refusal.
    let table = [
        ("another station", (0, 0x02), D::NotForUs),
        ("another group", (5, 0x41), D::NotForUs),
        ("not version 6", (14, 0x40), D::OtherProtocol),
        ("UDP", (20, 17), D::OtherProtocol),
        ("echo request", (54, 128), D::OtherProtocol),
        ("hop limit 254", (21, 254), D::HopLimit),
        ("code 1", (55, 1), D::Code),
        ("multicast source", (22, 0xff), D::SenderAddress),
        ("multicast target", (62, 0xff), D::Target),
        ("group in the option", (80, 1), D::SenderHardware),
        ("zero option length", (79, 0), D::NdpOption),
        ("option longer than all", (79, 2), D::NdpOption),
        ("option length 255", (79, 255), D::NdpOption),
    ];
    for (name, change, reason) in table {
        let frame = changed(&good, &[change]);
        assert_eq!(parse(&frame, OWN), Err(reason), "{name}");
    }
    let mut wrong_sum = good.clone();
    wrong_sum[57] ^= 1;
    assert_eq!(parse(&wrong_sum, OWN), Err(D::Checksum));
}

#[test]
fn probes_and_options_that_rfc_4861_forbids_are_refused() {
    let none = Ipv6Addr::UNSPECIFIED;
    let long = [SLLA, [0; 8]].concat();
    let long = [&[1, 2], &long[2..]].concat();
    let group = solicited_node(vip());
    for (name, frame, reason) in [
        (
            "long",
            solicitation(asker(), vip(), &long),
            Dropped::NdpOption,
        ),
        (
            "odd",
            solicitation(asker(), vip(), &[14]),
            Dropped::NdpOption,
        ),
        (
            "link-layer address in a probe",
            solicitation(none, group, &SLLA),
            Dropped::BadProbe,
        ),
        (
            "unicast probe",
            solicitation(none, vip(), &[]),
            Dropped::BadProbe,
        ),
        (
            "probe to all",
            solicitation(none, ALL_NODES, &[]),
            Dropped::BadProbe,
        ),
    ] {
        assert_eq!(parse(&frame, OWN), Err(reason), "{name}");
    }
}

#[test]
fn solicited_node_groups_are_those_of_rfc_4291() {
    assert_eq!(
        solicited_node(vip()),
        "ff02::1:ff00:240".parse::<Ipv6Addr>().unwrap()
    );
    assert_eq!(
        Mac::of_group(solicited_node(vip())).to_string(),
        "33:33:ff:00:02:40"
    );
    let example = "4037::01:800:200e:8c6c".parse().unwrap();
    assert_eq!(
        solicited_node(example),
        "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap()
    );
}

/// Destination, hop limit, IPv6 source and destination, flags and option of an advertisement.
fn shown(frame: &[u8]) -> String {
    let ip = Ipv6Packet::new(&frame[14..]).unwrap();
    let destination = Mac(frame[..6].try_into().unwrap());
    let source = Mac(frame[6..12].try_into().unwrap());
    let mut summed = frame.to_vec();
    sum(&mut summed);
    let right_sum = summed == frame;
    format!(
        "{source} > {destination} hop {} {} > {} type {} flags {:02x} option {:?} sum {right_sum}",
        ip.get_hop_limit(),
        ip.get_source(),
        ip.get_destination(),
        frame[54],
        frame[58],
        &frame[78..],
    )
}

#[test]
fn an_answer_is_unicast_and_solicited_or_goes_to_all_nodes_for_a_probe() {
    let answered = |frame: Vec<u8>| match parse(&frame, OWN) {
        Ok(Message::Solicitation(request)) => shown(&reply(OWN, &request)),
        other => panic!("{other:?}"),
    };
    let option = "option [2, 1, 0, 0, 94, 0, 83, 10] sum true";
    assert_eq!(
        answered(solicitation(asker(), vip(), &[])),
        format!(
            "{OWN} > {ASKER} hop 255 {} > {} type 136 flags 60 {option}",
            vip(),
            asker()
        )
    );
    let to_all = format!(
        "{OWN} > 33:33:00:00:00:01 hop 255 {} > ff02::1 type 136 flags 20 {option}",
        vip()
    );
    assert_eq!(
        answered(solicitation(
            Ipv6Addr::UNSPECIFIED,
            solicited_node(vip()),
            &[]
        )),
        to_all
    );
    assert_eq!(shown(&announcement(OWN, vip())), to_all);
}

#[test]
fn what_is_built_is_read_back() {
    let message = parse(&announcement(ASKER, vip()), OWN);
    assert_eq!(
        message,
        Ok(Message::Advertisement {
            target: vip(),
            mac: ASKER
        })
    );
}
