//! Forgets all flows of a host, so that a reused source port doesn't find an old one.
//!
//! Owns one message of ctnetlink (`linux/netfilter/nfnetlink_conntrack.h`): delete without a filter.

use lab::{Error, Result, error::Doing as _, netns::NetNs};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

/// `NFNL_SUBSYS_CTNETLINK`, `IPCTNL_MSG_CT_DELETE`
const DELETE: u16 = 1 << 8 | 2;
/// `NLM_F_REQUEST | NLM_F_ACK`
const FLAGS: u16 = 1 | 4;

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
    let mut message = Vec::with_capacity(20);
    message.extend(20_u32.to_ne_bytes());
    message.extend(DELETE.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    // sequence, port, then family any, version 0, resource 0
    message.extend([0; 12]);
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.send_to(&message, &SocketAddr::new(0, 0), 0)?;
    let (answer, _) = socket.recv_from_full()?;
    Ok(answer)
}
