//! The calls, in a network namespace of the test's own thread.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Socket, Type};

use super::*;

/// `lo` of a new namespace.
const LOOPBACK: InterfaceIndex = InterfaceIndex(1);

fn in_namespace(test: fn()) {
    let thread = thread::spawn(move || {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            return skips::skip("net-admin", &error.to_string());
        }
        let up = Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.is_ok_and(|status| status.success()), "lo is up");
        test();
    });
    thread.join().expect("the test passes");
}

/// A frame that no check of ours looks into: type, and for IPv6 the next header and the type of ICMP.
fn frame(ether_type: u16, next_header: u8, icmp_type: u8) -> Vec<u8> {
    let mut frame = vec![0; 78];
    frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
    frame[14] = 0x60;
    frame[20] = next_header;
    frame[54] = icmp_type;
    frame
}

/// The next frame, or `None` when none comes for a while.
fn next(socket: &OwnedFd) -> Option<Vec<u8>> {
    let (begun, mut buffer) = (Instant::now(), [0; 256]);
    while begun.elapsed() < Duration::from_millis(500) {
        if let Some((length, interface)) = receive(socket.as_fd(), &mut buffer).unwrap() {
            assert_eq!(interface, LOOPBACK);
            return Some(buffer[..length].to_vec());
        }
        thread::yield_now();
    }
    None
}

#[test]
fn a_socket_hears_its_own_protocol_and_of_ipv6_neighbour_discovery_only() {
    in_namespace(|| {
        let (arp, ndp) = (
            packet_socket(ETH_P_ARP).unwrap(),
            packet_socket(ETH_P_IPV6).unwrap(),
        );
        let sender = packet_socket(0).unwrap();
        let all = [
            frame(ETH_P_ARP, 0, 0),
            frame(ETH_P_IPV6, 17, 135),
            frame(ETH_P_IPV6, 58, 128),
            frame(ETH_P_IPV6, 58, 135),
            frame(ETH_P_IPV6, 58, 136),
        ];
        for frame in &all {
            send(sender.as_fd(), LOOPBACK, frame).unwrap();
        }
        assert_eq!(next(&arp).as_ref(), Some(&all[0]));
        assert_eq!(next(&ndp).as_ref(), Some(&all[3]));
        assert_eq!(next(&ndp).as_ref(), Some(&all[4]));
        assert_eq!((next(&arp), next(&ndp)), (None, None));
        let missing = send(sender.as_fd(), InterfaceIndex(9999), &all[0]);
        assert_eq!(missing.unwrap_err().raw_os_error(), Some(libc::ENXIO));
    });
}

#[test]
fn connections_need_the_same_md5_key_on_both_sides() {
    in_namespace(|| {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let listener = TcpListener::bind((local, 0)).unwrap();
        set_tcp_md5(listener.as_fd(), local, b"secret").unwrap();
        let connect = |key: &[u8]| -> io::Result<TcpStream> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            set_tcp_md5(socket.as_fd(), local, key)?;
            let to: SocketAddr = listener.local_addr()?;
            socket.connect_timeout(&to.into(), Duration::from_millis(300))?;
            Ok(socket.into())
        };
        connect(b"secret").expect("the same key");
        assert_eq!(
            connect(b"other").unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert_eq!(
            connect(&[b'x'; 81]).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    });
}
