//! The flows that a host knows: looks for one, forgets all, so that a reused source port doesn't find an old one.
//!
//! Owns two messages of ctnetlink (`linux/netfilter/nfnetlink_conntrack.h`): list and delete, without a filter.

use std::net::{IpAddr, SocketAddr};

use lab::{Error, Result, error::Doing as _, netns::NetNs};
use netlink_sys::{Socket, SocketAddr as Netlink, protocols::NETLINK_NETFILTER};

/// `NFNL_SUBSYS_CTNETLINK`, `IPCTNL_MSG_CT_DELETE`
const DELETE: u16 = 1 << 8 | 2;
/// `NLM_F_REQUEST | NLM_F_ACK`
const FLAGS: u16 = 1 | 4;

/// `IPCTNL_MSG_CT_GET` of `NFNL_SUBSYS_CTNETLINK`
const GET: u16 = 1 << 8 | 1;
/// `NLM_F_REQUEST | NLM_F_DUMP`
const LIST: u16 = 1 | 0x300;
/// `NLMSG_ERROR`, `NLMSG_DONE`
const ENDS: [u16; 2] = [2, 3];
/// `IPPROTO_UDP`
const UDP: u8 = 17;

/// Whether a host knows a UDP flow that began with a packet from `source` to `target`.
pub fn is_known(space: &NetNs, source: SocketAddr, target: SocketAddr) -> Result<bool> {
    let list = space
        .run(list)
        .doing(format!("listing flows in {}", space.name()))?;
    let wanted = Some((source, target));
    Ok(list.iter().any(|flow| udp_ends(flow) == wanted))
}

fn list() -> std::io::Result<Vec<Vec<u8>>> {
    let socket = open()?;
    socket.send_to(&message(GET, LIST), &Netlink::new(0, 0), 0)?;
    let mut flows = Vec::new();
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        let mut rest = datagram.as_slice();
        while let Some([a, b, c, d, k0, k1, ..]) = rest.first_chunk::<16>() {
            let length = u32::from_ne_bytes([*a, *b, *c, *d]);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if ENDS.contains(&u16::from_ne_bytes([*k0, *k1])) {
                return Ok(flows);
            }
            // header of 16 bytes, then the family's 4
            flows.extend(rest.get(20..length).map(<[u8]>::to_vec));
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// `CTA_TUPLE_ORIG` 1: `CTA_TUPLE_IP` 1 with addresses 1 to 4, `CTA_TUPLE_PROTO` 2 with number, source and destination port.
fn udp_ends(flow: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let original = attribute(flow, 1)?;
    let (addresses, protocol) = (attribute(original, 1)?, attribute(original, 2)?);
    if attribute(protocol, 1)? != [UDP] {
        return None;
    }
    let port = |kind| {
        Some(u16::from_be_bytes(
            *attribute(protocol, kind)?.first_chunk()?,
        ))
    };
    let v4 = |kind| {
        Some(IpAddr::from(
            *attribute(addresses, kind)?.first_chunk::<4>()?,
        ))
    };
    let v6 = |kind| {
        Some(IpAddr::from(
            *attribute(addresses, kind)?.first_chunk::<16>()?,
        ))
    };
    let source = v4(1).or_else(|| v6(3))?;
    let target = v4(2).or_else(|| v6(4))?;
    Some((
        SocketAddr::new(source, port(2)?),
        SocketAddr::new(target, port(3)?),
    ))
}

/// The value of an attribute; its type without flags.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let [l0, l1, k0, k1] = *bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        if u16::from_ne_bytes([k0, k1]) & 0x3fff == wanted {
            return bytes.get(4..length);
        }
        bytes = bytes.get(length.next_multiple_of(4).max(4)..)?;
    }
}

/// Forgets them.
pub fn forget(space: &NetNs) -> Result<()> {
    let doing = format!("forgetting flows in {}", space.name());
    let answer = space.run(ask).doing(doing.clone())?;
    // header of 16 bytes, then the error number of the acknowledgement
    let code = answer
        .get(16..20)
        .and_then(|bytes| bytes.first_chunk::<4>());
    match code.map(|bytes| i32::from_ne_bytes(*bytes)) {
        Some(0) => Ok(()),
        other => Err(Error::because(
            doing,
            format!("the kernel answered {other:?}"),
        )),
    }
}

fn ask() -> std::io::Result<Vec<u8>> {
    let socket = open()?;
    socket.send_to(&message(DELETE, FLAGS), &Netlink::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    Ok(answer)
}

fn open() -> std::io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    Ok(socket)
}

/// A message about all families and flows.
fn message(kind: u16, flags: u16) -> Vec<u8> {
    let mut message = Vec::with_capacity(20);
    message.extend(20_u32.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // sequence, port, then family any, version 0, resource 0
    message.extend([0; 12]);
    message
}
