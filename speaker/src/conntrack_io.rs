//! The kernel's flows: list those over UDP, take one away.
//!
//! Owns the messages of `ctnetlink` (`linux/netfilter/nfnetlink_conntrack.h`). Which flows must go says
//! `speaker_proxier::conntrack`.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use api_model::{IpFamily, Protocol};
use speaker_proxier::conntrack::{Flow, Forget};

use crate::netlink::{Messages, Netlink, attribute, family_number};

/// `NFNL_SUBSYS_CTNETLINK`
const CONNTRACK: u16 = 1;
/// `IPCTNL_MSG_CT_GET`
const GET: u16 = 1;
/// `IPCTNL_MSG_CT_DELETE`
const DELETE: u16 = 2;

/// Takes away the UDP flows that have to go; says how many went.
pub(crate) fn forget(netlink: &mut Netlink, forget: &Forget) -> io::Result<usize> {
    let mut gone = 0;
    for family in [IpFamily::V4, IpFamily::V6] {
        let number = family_number(family);
        let payloads = netlink.dump(&|messages| {
            let mark = messages.begin(CONNTRACK, GET, 0, number);
            messages.end_message(mark);
        })?;
        for payload in payloads {
            let Some(flow) = read_flow(&payload) else {
                continue;
            };
            let Some(original) = attribute(&payload, 1).filter(|_| forget.must_go(&flow)) else {
                continue;
            };
            let mut messages = Messages::default();
            let mark = messages.begin(CONNTRACK, DELETE, 0, number);
            messages.attribute(1 | 0x8000, original);
            // The id makes sure that it is this flow and not a later one with the same ends.
            if let Some(id) = attribute(&payload, 12) {
                messages.attribute(12, id);
            }
            messages.end_message(mark);
            match netlink.request(&mut messages) {
                Ok(()) => gone += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(gone)
}

/// Reads a flow; `None` for other protocols than UDP.
fn read_flow(payload: &[u8]) -> Option<Flow> {
    let (source, destination) = read_tuple(attribute(payload, 1)?)?;
    let (answers_from, _) = read_tuple(attribute(payload, 2)?)?;
    Some(Flow {
        source,
        destination,
        answers_from,
    })
}

/// `CTA_TUPLE_IP` 1 with addresses 1–4, `CTA_TUPLE_PROTO` 2 with number 1 and ports 2 and 3.
fn read_tuple(tuple: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (addresses, protocol) = (attribute(tuple, 1)?, attribute(tuple, 2)?);
    if attribute(protocol, 1)? != [Protocol::Udp.number()] {
        return None;
    }
    let address = |v4, v6| -> Option<IpAddr> {
        match attribute(addresses, v4) {
            Some(bytes) => Some(IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?)),
            None => Some(IpAddr::from(
                <[u8; 16]>::try_from(attribute(addresses, v6)?).ok()?,
            )),
        }
    };
    let port = |kind| {
        Some(u16::from_be_bytes(
            attribute(protocol, kind)?.try_into().ok()?,
        ))
    };
    Some((
        SocketAddr::new(address(1, 3)?, port(2)?),
        SocketAddr::new(address(2, 4)?, port(3)?),
    ))
}
