//! Netfilter netlink: messages, batches, dumps.
//!
//! Owns one socket and the framing of `nfnetlink` (linux/netfilter/nfnetlink.h): headers, nested attributes, acknowledgements. Never
//! knows what an element or a flow means. Bytes of the kernel are read with bounds all the same.

use std::io;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use nix::sys::{
    socket::{
        getsockopt, setsockopt,
        sockopt::{RcvBuf, RcvBufForce, ReceiveTimeout, SndBuf, SndBufForce},
    },
    time::TimeVal,
};

/// `NLM_F_REQUEST`
const REQUEST: u16 = 1;
/// `NLM_F_ACK`
const ACK: u16 = 4;
/// `NLM_F_DUMP`
const DUMP: u16 = 0x300;
/// `NLM_F_CREATE`
pub(crate) const CREATE: u16 = 0x400;
/// `NLMSG_ERROR`
const ERROR: u16 = 2;
/// `NLMSG_DONE`
const DONE: u16 = 3;
/// `NLM_F_DUMP_INTR`: the table changed during the dump.
const INTERRUPTED: u16 = 0x10;
/// `NFNL_MSG_BATCH_BEGIN`, `NFNL_MSG_BATCH_END`
const BATCH: (u16, u16) = (16, 17);
/// `NLA_F_NESTED`
const NESTED: u16 = 0x8000;
/// `NLA_TYPE_MASK`
const TYPE_MASK: u16 = 0x3fff;
/// Socket buffers that we ask for; the kernel grants less without privileges of the first user namespace.
const WANTED_BUFFER: usize = 16 << 20;
/// Largest datagram that the kernel sends in a dump.
const DATAGRAM: usize = 1 << 18;
/// The kernel answers at once; longer silence is an error, not a wait for ever.
const ANSWER_SECONDS: i64 = 30;
/// Dumps that were interrupted by a change are repeated so often.
const DUMP_TRIES: usize = 20;

/// `AF_INET`, `AF_INET6` and the like, as nfnetlink has them.
pub(crate) fn family_number(family: api_model::IpFamily) -> u8 {
    match family {
        api_model::IpFamily::V4 => 2,
        api_model::IpFamily::V6 => 10,
    }
}

/// Messages under construction, back to back.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    sequence: u32,
    batch: bool,
}

/// Where a message or nested attribute began.
#[derive(Debug)]
pub(crate) struct Mark(usize);

impl Messages {
    /// Messages that the kernel carries out as one, or not at all. `subsystem` as in nfnetlink.
    pub(crate) fn batch(subsystem: u16) -> Self {
        let mut messages = Self {
            batch: true,
            ..Self::default()
        };
        let begin = messages.head(BATCH.0, REQUEST, 0, subsystem);
        messages.end_message(begin);
        messages
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Begins a message of `subsystem`, `kind`.
    pub(crate) fn begin(&mut self, subsystem: u16, kind: u16, flags: u16, family: u8) -> Mark {
        self.head(subsystem << 8 | kind, REQUEST | flags, family, 0)
    }

    fn head(&mut self, kind: u16, flags: u16, family: u8, resource: u16) -> Mark {
        let start = self.bytes.len();
        self.sequence += 1;
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        self.bytes.extend(self.sequence.to_ne_bytes());
        self.bytes.extend([0; 4]);
        self.bytes.extend([family, 0]);
        self.bytes.extend(resource.to_be_bytes());
        Mark(start)
    }

    /// Ends a message.
    pub(crate) fn end_message(&mut self, Mark(start): Mark) {
        let length =
            u32::try_from(self.bytes.len() - start).expect("batches are cut far below 4 GiB");
        if let Some(place) = self.bytes.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
    }

    /// An attribute, padded to 4 bytes.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        let mark = self.nest_as(kind);
        self.bytes.extend(value);
        self.end_nest(mark);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// A zero-terminated text.
    pub(crate) fn text(&mut self, kind: u16, value: &str) {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat());
    }

    /// Begins a nested attribute.
    pub(crate) fn nest(&mut self, kind: u16) -> Mark {
        self.nest_as(kind | NESTED)
    }

    fn nest_as(&mut self, kind: u16) -> Mark {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        Mark(start)
    }

    /// Ends a nested attribute. Its length has 16 bits: callers cut their lists below.
    pub(crate) fn end_nest(&mut self, Mark(start): Mark) {
        let length = u16::try_from(self.bytes.len() - start).expect("lists are cut below 64 KiB");
        if let Some(place) = self.bytes.get_mut(start..start + 2) {
            place.copy_from_slice(&length.to_ne_bytes());
        }
    }
}

/// A netfilter socket.
pub(crate) struct Netlink {
    socket: Socket,
    buffer: Vec<u8>,
    /// Messages up to this size can be sent at once.
    send_limit: usize,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        // Refusals come with the header of the message only.
        socket.set_cap_ack(true)?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(ANSWER_SECONDS, 0))?;
        if setsockopt(&socket, SndBufForce, &WANTED_BUFFER).is_err() {
            setsockopt(&socket, SndBuf, &WANTED_BUFFER)?;
        }
        if setsockopt(&socket, RcvBufForce, &WANTED_BUFFER).is_err() {
            setsockopt(&socket, RcvBuf, &WANTED_BUFFER)?;
        }
        // The kernel counts its own bookkeeping into the buffer.
        let send_limit = getsockopt(&socket, SndBuf)? / 4;
        Ok(Self {
            socket,
            buffer: Vec::with_capacity(DATAGRAM),
            send_limit,
        })
    }

    /// Largest batch that one send takes.
    pub(crate) fn send_limit(&self) -> usize {
        self.send_limit
    }

    /// Sends a batch and waits for the kernel's word. Errors: the first refusal; then nothing of the batch was done.
    pub(crate) fn commit(&mut self, mut messages: Messages) -> io::Result<()> {
        debug_assert!(messages.batch);
        let end = messages.head(BATCH.1, REQUEST | ACK, 0, 10);
        messages.end_message(end);
        self.send(&messages.bytes)?;
        let mut first = self.first_answer()?;
        // Further refusals of the same batch lie in the socket.
        while let Some(further) = self.waiting_answer()? {
            first = first.and(further);
        }
        first
    }

    /// Sends one message that asks for an acknowledgement.
    pub(crate) fn request(&mut self, messages: &mut Messages) -> io::Result<()> {
        if let Some(place) = messages.bytes.get_mut(6..8) {
            let flags = u16::from_ne_bytes([place[0], place[1]]) | ACK;
            place.copy_from_slice(&flags.to_ne_bytes());
        }
        self.send(&messages.bytes)?;
        self.first_answer()?
    }

    /// Asks for a dump: the payloads of all answers, behind the nfnetlink header. A dump that a change cut through is
    /// repeated.
    pub(crate) fn dump(&mut self, build: &dyn Fn(&mut Messages)) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..DUMP_TRIES {
            let mut messages = Messages::default();
            build(&mut messages);
            if let Some(place) = messages.bytes.get_mut(6..8) {
                place.copy_from_slice(&(REQUEST | DUMP).to_ne_bytes());
            }
            self.send(&messages.bytes)?;
            if let Some(payloads) = self.collect_dump()? {
                return Ok(payloads);
            }
        }
        Err(io::Error::other(
            "the table changed during every try to read it",
        ))
    }

    fn collect_dump(&mut self) -> io::Result<Option<Vec<Vec<u8>>>> {
        let (mut payloads, mut whole) = (Vec::new(), true);
        loop {
            self.receive(0)?;
            for message in split(&self.buffer)? {
                whole &= message.flags & INTERRUPTED == 0;
                match message.kind {
                    DONE => return Ok(whole.then_some(payloads)),
                    ERROR => match error_of(message.payload)? {
                        Ok(()) => {}
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => whole = false,
                        Err(error) => return Err(error),
                    },
                    _ => payloads.push(message.payload.get(4..).unwrap_or_default().to_vec()),
                }
            }
        }
    }

    /// Sends one message and takes its single answer.
    pub(crate) fn ask(&mut self, messages: &Messages) -> io::Result<Vec<u8>> {
        self.send(&messages.bytes)?;
        loop {
            self.receive(0)?;
            for message in split(&self.buffer)? {
                match message.kind {
                    ERROR => error_of(message.payload)??,
                    _ => return Ok(message.payload.get(4..).unwrap_or_default().to_vec()),
                }
            }
        }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.socket.send_to(bytes, &SocketAddr::new(0, 0), 0)?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::WriteZero.into())
        }
    }

    fn receive(&mut self, flags: i32) -> io::Result<()> {
        self.buffer.clear();
        loop {
            match self.socket.recv(&mut self.buffer, flags) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }

    fn first_answer(&mut self) -> io::Result<io::Result<()>> {
        loop {
            self.receive(0)?;
            if let Some(answer) = self.answer()? {
                return Ok(answer);
            }
        }
    }

    fn waiting_answer(&mut self) -> io::Result<Option<io::Result<()>>> {
        match self.receive(libc::MSG_DONTWAIT) {
            Ok(()) => self.answer(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn answer(&self) -> io::Result<Option<io::Result<()>>> {
        let mut answer = None;
        for message in split(&self.buffer)? {
            if message.kind == ERROR {
                let one = error_of(message.payload)?;
                answer = Some(answer.unwrap_or(Ok(())).and(one));
            }
        }
        Ok(answer)
    }
}

struct Message<'a> {
    kind: u16,
    flags: u16,
    payload: &'a [u8],
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a netlink message is cut")
}

fn split(mut bytes: &[u8]) -> io::Result<Vec<Message<'_>>> {
    let mut messages = Vec::new();
    while let Some(head) = bytes.first_chunk::<16>() {
        let [a, b, c, d, k0, k1, f0, f1, ..] = *head;
        let length = usize::try_from(u32::from_ne_bytes([a, b, c, d])).map_err(io::Error::other)?;
        let payload = bytes.get(16..length).ok_or_else(malformed)?;
        messages.push(Message {
            kind: u16::from_ne_bytes([k0, k1]),
            flags: u16::from_ne_bytes([f0, f1]),
            payload,
        });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(messages)
}

fn error_of(payload: &[u8]) -> io::Result<io::Result<()>> {
    let code = payload.first_chunk::<4>().ok_or_else(malformed)?;
    Ok(match i32::from_ne_bytes(*code) {
        0 => Ok(()),
        negative => Err(io::Error::from_raw_os_error(negative.wrapping_neg())),
    })
}

/// The attributes in a payload: type without flags, value.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [l0, l1, k0, k1] = *bytes.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & TYPE_MASK, value))
    })
}

/// The attribute of a type.
pub(crate) fn attribute(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes)
        .find(|(kind, _)| *kind == wanted)
        .map(|(_, value)| value)
}

/// A zero-terminated text.
pub(crate) fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.split(|byte| *byte == 0).next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_every_cut_is_survived() {
        let mut messages = Messages::default();
        let mark = messages.begin(10, 12, CREATE, 2);
        messages.text(1, "roadstead");
        let list = messages.nest(3);
        messages.attribute(1, &[1, 2, 3]);
        messages.end_nest(list);
        messages.end_message(mark);
        let parsed = split(&messages.bytes).expect("whole");
        let payload = parsed[0].payload.get(4..).expect("a header");
        assert_eq!(attribute(payload, 1).and_then(text), Some("roadstead"));
        let nested = attribute(payload, 3).expect("nested");
        assert_eq!(
            attributes(nested).collect::<Vec<_>>(),
            [(1, &[1, 2, 3][..])]
        );
        for cut in 0..messages.bytes.len() {
            let bytes = messages.bytes.get(..cut).expect("shorter");
            assert!(split(bytes).is_err() || cut < 16, "cut at {cut}");
            let _ = attributes(bytes).count();
        }
    }
}
