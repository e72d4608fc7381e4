//! Cutting a byte stream into messages.
//!
//! Owns the header checks of RFC 4271 §6.1 and the one buffer of a connection, which never holds more than one message.
//! Never looks into a message.

use super::{HEADER_OCTETS, MAX_MESSAGE_OCTETS, Notification};

/// Message types that we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageKind {
    /// OPEN.
    Open,
    /// UPDATE.
    Update,
    /// NOTIFICATION.
    Notification,
    /// KEEPALIVE.
    Keepalive,
    /// ROUTE-REFRESH (RFC 2918).
    RouteRefresh,
}

impl MessageKind {
    /// The number in the header.
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Open => 1,
            Self::Update => 2,
            Self::Notification => 3,
            Self::Keepalive => 4,
            Self::RouteRefresh => 5,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Open),
            2 => Some(Self::Update),
            3 => Some(Self::Notification),
            4 => Some(Self::Keepalive),
            5 => Some(Self::RouteRefresh),
            _ => None,
        }
    }

    /// Whether a message of this type can be this long, header included.
    fn allows(self, octets: usize) -> bool {
        match self {
            Self::Open => octets >= 29,
            Self::Update => octets >= 23,
            Self::Notification => octets >= 21,
            Self::Keepalive => octets == HEADER_OCTETS,
            Self::RouteRefresh => octets == 23,
        }
    }
}

/// One message without its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its type.
    pub kind: MessageKind,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// Collects bytes until a message is whole.
#[derive(Clone, Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
}

impl Framer {
    /// Takes bytes, and says how many: never more than fill up one longest message. Call [`Framer::next_frame`] until it
    /// gives `None`, then there is room again.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let room = MAX_MESSAGE_OCTETS.saturating_sub(self.buffer.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.buffer.extend_from_slice(taken);
        taken.len()
    }

    /// The next whole message, `None` if there is none yet. Errors: what to answer to a broken header, which is known as
    /// soon as the header is there; the stream can't be read any further then.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Notification> {
        let Some((length, kind)) = self.header()? else {
            return Ok(None);
        };
        if self.buffer.len() < length {
            return Ok(None);
        }
        let rest = self.buffer.split_off(length);
        let message = std::mem::replace(&mut self.buffer, rest);
        let body = message.get(HEADER_OCTETS..).unwrap_or_default().to_vec();
        Ok(Some(Frame { kind, body }))
    }

    /// Length and type of the message at the front, once its header is there.
    fn header(&self) -> Result<Option<(usize, MessageKind)>, Notification> {
        let Some((marker, rest)) = self.buffer.split_first_chunk::<16>() else {
            return Ok(None);
        };
        if *marker != [0xff; 16] {
            return Err(Notification::not_synchronized());
        }
        let Some(&[high, low, number]) = rest.first_chunk::<3>() else {
            return Ok(None);
        };
        let length = u16::from_be_bytes([high, low]);
        let octets = usize::from(length);
        if !(HEADER_OCTETS..=MAX_MESSAGE_OCTETS).contains(&octets) {
            return Err(Notification::bad_length(length));
        }
        let kind =
            MessageKind::from_number(number).ok_or_else(|| Notification::bad_type(number))?;
        if kind.allows(octets) {
            Ok(Some((octets, kind)))
        } else {
            Err(Notification::bad_length(length))
        }
    }
}
