//! ARP: what is read, what is refused, and the exact octets of what is built.

use super::*;

const OWN: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0x0a]);
const ASKER: Mac = Mac([0, 0, 0x5e, 0, 0x53, 0xc8]);
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 240);

/// destination, source, type | hardware, protocol, lengths, operation | sender | target
fn request() -> Vec<u8> {
    let mut frame = Vec::new();
    frame.extend([0xff; 6]);
    frame.extend(ASKER.0);
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(ASKER.0);
    frame.extend([192, 0, 2, 200, 0, 0, 0, 0, 0, 0, 192, 0, 2, 240]);
    frame
}

fn with(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut frame = request();
    for (offset, octet) in changes {
        frame[*offset] = *octet;
    }
    frame
}

#[test]
fn a_request_is_read() {
    let expected = Message {
        operation: Operation::Request,
        sender_mac: ASKER,
        sender: Ipv4Addr::new(192, 0, 2, 200),
        target: VIP,
    };
    assert_eq!(parse(&request(), OWN), Ok(expected));
    let mut padded = request();
    padded.resize(60, 0);
    assert_eq!(
        parse(&padded, OWN),
        Ok(expected),
        "padded to the Ethernet minimum"
    );
}

#[test]
fn a_frame_cut_anywhere_is_too_short() {
    for length in 0..FRAME_BYTES {
        assert_eq!(
            parse(&request()[..length], OWN),
            Err(Dropped::TooShort),
            "cut at {length}"
        );
    }
}

/// What is wrong, offsets and octets that make it so, and the reason.
type Row = (&'static str, &'static [(usize, u8)], Dropped);

#[test]
fn what_rfc_826_ignores_is_refused_with_its_reason() {
    let table: &[Row] = &[
        (
            "to another station",
            &[(0, 0), (1, 0), (2, 0x5e), (3, 0), (4, 0x53), (5, 0x0b)],
            Dropped::NotForUs,
        ),
        ("to a group", &[(0, 1)], Dropped::NotForUs),
        ("VLAN tag", &[(12, 0x81), (13, 0)], Dropped::OtherProtocol),
        (
            "IPv6 frame",
            &[(12, 0x86), (13, 0xdd)],
            Dropped::OtherProtocol,
        ),
        ("hardware type", &[(15, 7)], Dropped::HardwareType),
        (
            "protocol type",
            &[(16, 0x86), (17, 0xdd)],
            Dropped::ProtocolType,
        ),
        ("hardware length 8", &[(18, 8)], Dropped::AddressLength),
        ("hardware length 0", &[(18, 0)], Dropped::AddressLength),
        ("protocol length 16", &[(19, 16)], Dropped::AddressLength),
        ("operation 0", &[(21, 0)], Dropped::Operation),
        ("operation 3", &[(21, 3)], Dropped::Operation),
        ("operation 256", &[(20, 1), (21, 0)], Dropped::Operation),
        ("group sender", &[(22, 1)], Dropped::SenderHardware),
        ("multicast sender", &[(28, 224)], Dropped::SenderAddress),
        ("loopback sender", &[(28, 127)], Dropped::SenderAddress),
    ];
    for (name, changes, reason) in table {
        assert_eq!(parse(&with(changes), OWN), Err(*reason), "{name}");
    }
    let zero: Vec<_> = (22..28).map(|offset| (offset, 0)).collect();
    assert_eq!(
        parse(&with(&zero), OWN),
        Err(Dropped::SenderHardware),
        "zero sender"
    );
}

fn hex(frame: &[u8]) -> String {
    use std::fmt::Write as _;
    frame.iter().fold(String::new(), |mut text, octet| {
        write!(text, "{octet:02x}").expect("a String takes everything");
        text
    })
}

#[test]
fn a_reply_goes_to_the_asker_alone() {
    let request = parse(&request(), OWN).unwrap();
    let expected = "00005e0053c8 00005e00530a 0806 00010800 0604 0002 00005e00530a c00002f0 00005e0053c8 c00002c8";
    assert_eq!(hex(&reply(OWN, &request)), expected.replace(' ', ""));
}

#[test]
fn announcements_have_a_request_and_a_reply_form() {
    let expected = [
        "ffffffffffff 00005e00530a 0806 00010800 0604 0001 00005e00530a c00002f0 000000000000 c00002f0",
        "ffffffffffff 00005e00530a 0806 00010800 0604 0002 00005e00530a c00002f0 00005e00530a c00002f0",
    ];
    assert_eq!(
        announcements(OWN, VIP).map(|frame| hex(&frame)),
        expected.map(|text| text.replace(' ', ""))
    );
}

#[test]
fn what_is_built_is_read_back() {
    let [request, reply] = announcements(ASKER, VIP);
    for (frame, operation) in [(request, Operation::Request), (reply, Operation::Reply)] {
        let message = parse(&frame, OWN).unwrap();
        assert_eq!(
            message,
            Message {
                operation,
                sender_mac: ASKER,
                sender: VIP,
                target: VIP
            }
        );
        assert!(message.is_announcement());
    }
}
