//! The socket calls that have no safe wrapper: packet sockets and TCP MD5 keys.
//!
//! Owns every `unsafe` block of the repository. Never interprets a byte. Source: packet(7), RFC 2385 with tcp(7).
#![expect(
    unsafe_code,
    reason = "AF_PACKET addresses, socket filters and TCP_MD5SIG exist only as C structures"
)]

use std::{
    io,
    mem::{size_of, zeroed},
    net::IpAddr,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use speaker_l2::InterfaceIndex;

/// `EtherType` of ARP (RFC 826).
pub(crate) const ETH_P_ARP: u16 = 0x0806;
/// `EtherType` of IPv6 (RFC 2464).
pub(crate) const ETH_P_IPV6: u16 = 0x86dd;

/// Neighbour Solicitations and Advertisements only: next header 58 (no extension header, RFC 6980 forbids fragments), type
/// 135 or 136. Offsets are from the Ethernet header.
const NEIGHBOUR_DISCOVERY: [libc::sock_filter; 7] = [
    load_byte(20),
    jump_equal(58, 0, 4),
    load_byte(54),
    jump_equal(135, 1, 0),
    jump_equal(136, 0, 1),
    give_back(0xffff),
    give_back(0),
];

const fn filter(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    // BPF codes are below 256.
    libc::sock_filter {
        code: (code & 0xff) as u16,
        jt,
        jf,
        k,
    }
}

const fn load_byte(offset: u32) -> libc::sock_filter {
    filter(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, offset)
}

const fn jump_equal(value: u32, jt: u8, jf: u8) -> libc::sock_filter {
    filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, value)
}

const fn give_back(bytes: u32) -> libc::sock_filter {
    filter(libc::BPF_RET | libc::BPF_K, 0, 0, bytes)
}

/// A non-blocking packet socket that hears one `EtherType` on every interface of this network namespace, not promiscuous; of
/// IPv6 only Neighbour Discovery. Needs `CAP_NET_RAW`.
pub(crate) fn packet_socket(ether_type: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes no pointers; protocol 0 hears nothing until bind.
    let raw = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `raw` was just opened and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    if ether_type == ETH_P_IPV6 {
        attach_filter(&fd)?;
    }
    let address = link_address(ether_type, InterfaceIndex(0));
    // SAFETY: the pointer and length describe `address`, which outlives the call.
    let done = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            length_of::<libc::sockaddr_ll>(),
        )
    };
    check(done)?;
    Ok(fd)
}

fn attach_filter(fd: &OwnedFd) -> io::Result<()> {
    let mut program = NEIGHBOUR_DISCOVERY;
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog {
        len: length,
        filter: program.as_mut_ptr(),
    };
    set_option(
        fd.as_raw_fd(),
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        &program,
    )
}

/// Takes one frame; `None` when nothing waits. The length is that of the frame, which may have been cut to the buffer.
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> io::Result<Option<(usize, InterfaceIndex)>> {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut from: libc::sockaddr_ll = unsafe { zeroed() };
    let mut from_length = length_of::<libc::sockaddr_ll>();
    // SAFETY: pointer and length describe `buffer`; `from` and its length outlive the call.
    let length = unsafe {
        libc::recvfrom(
            fd.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
            (&raw mut from).cast(),
            &raw mut from_length,
        )
    };
    if let Ok(length) = usize::try_from(length) {
        let index = u32::try_from(from.sll_ifindex).map_err(io::Error::other)?;
        return Ok(Some((length, InterfaceIndex(index))));
    }
    let error = io::Error::last_os_error();
    let nothing = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        // An interface that went down is told once to every socket bound to it; the rescan deals with it.
        || error.raw_os_error() == Some(libc::ENETDOWN);
    if nothing { Ok(None) } else { Err(error) }
}

/// Puts one whole frame on the wire.
pub(crate) fn send(fd: BorrowedFd<'_>, to: InterfaceIndex, frame: &[u8]) -> io::Result<()> {
    let address = link_address(0, to);
    // SAFETY: pointers and lengths describe `frame` and `address`, which outlive the call.
    let sent = unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            libc::MSG_DONTWAIT,
            (&raw const address).cast(),
            length_of::<libc::sockaddr_ll>(),
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn link_address(ether_type: u16, interface: InterfaceIndex) -> libc::sockaddr_ll {
    // SAFETY: all-zero bytes are a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family =
        libc::sa_family_t::try_from(libc::AF_PACKET).expect("an address family is small");
    address.sll_protocol = ether_type.to_be();
    address.sll_ifindex = i32::try_from(interface.0).unwrap_or(0);
    address
}

/// `struct tcp_md5sig` of linux/tcp.h.
#[repr(C)]
struct TcpMd5Sig {
    address: libc::sockaddr_storage,
    flags: u8,
    prefix_length: u8,
    key_length: u16,
    interface: libc::c_int,
    key: [u8; 80],
}

/// Sets the TCP MD5 key (RFC 2385) towards one address, before connecting or on a listening socket. An empty key removes it.
/// Errors: `InvalidInput` for a key over 80 octets, the limit of Linux.
pub(crate) fn set_tcp_md5(fd: BorrowedFd<'_>, peer: IpAddr, key: &[u8]) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid tcp_md5sig.
    let mut option: TcpMd5Sig = unsafe { zeroed() };
    let Some(place) = option.key.get_mut(..key.len()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a TCP MD5 key has at most 80 octets",
        ));
    };
    place.copy_from_slice(key);
    option.key_length = u16::try_from(key.len()).map_err(io::Error::other)?;
    let address: socket2::SockAddr = std::net::SocketAddr::new(peer, 0).into();
    let length = usize::try_from(address.len()).map_err(io::Error::other)?;
    // SAFETY: `address` holds `len()` initialised bytes, and sockaddr_storage has room for every address family.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            (&raw mut option.address).cast::<u8>(),
            length.min(size_of::<libc::sockaddr_storage>()),
        );
    }
    set_option(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_MD5SIG, &option)
}

fn set_option<T>(fd: i32, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: pointer and length describe `value`, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (&raw const *value).cast(),
            length_of::<T>(),
        )
    })
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a C structure is small")
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
