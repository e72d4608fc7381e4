//! NOTIFICATION: codes, subcodes, data, and their names.
//!
//! Owns the error numbers of RFC 4271 §4.5, RFC 4486 (Cease), RFC 6608 (FSM errors), RFC 9003 (shutdown text) and RFC 9687
//! (send hold timer). Never decides when one is sent.

use std::fmt;

/// Longest shutdown text (RFC 9003: one octet of length).
const MAX_TEXT_OCTETS: usize = 255;
/// Longest data field of a NOTIFICATION that we send.
const MAX_DATA_OCTETS: usize = 1024;

/// Why a session ends, as it stands in the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Error code.
    pub code: u8,
    /// Error subcode, 0 = unspecific.
    pub subcode: u8,
    /// Data; its meaning depends on code and subcode.
    pub data: Vec<u8>,
}

impl Notification {
    fn new(code: u8, subcode: u8, data: &[u8]) -> Self {
        let data = data.get(..MAX_DATA_OCTETS).unwrap_or(data);
        Self {
            code,
            subcode,
            data: data.to_vec(),
        }
    }

    /// Message header error (RFC 4271 §6.1): the marker isn't all ones.
    pub(crate) fn not_synchronized() -> Self {
        Self::new(1, 1, &[])
    }

    /// Message header error: a length that this type can't have; the data is that length.
    pub(crate) fn bad_length(length: u16) -> Self {
        Self::new(1, 2, &length.to_be_bytes())
    }

    /// Message header error: unknown type; the data is the type.
    pub(crate) fn bad_type(kind: u8) -> Self {
        Self::new(1, 3, &[kind])
    }

    /// OPEN error (RFC 4271 §6.2): the data is the version that we speak.
    pub(crate) fn unsupported_version() -> Self {
        Self::new(2, 1, &4_u16.to_be_bytes())
    }

    /// OPEN error: unspecific, malformed parameters.
    pub(crate) fn malformed_open() -> Self {
        Self::new(2, 0, &[])
    }

    /// OPEN error: not the AS that is configured.
    pub(crate) fn bad_peer_as() -> Self {
        Self::new(2, 2, &[])
    }

    /// OPEN error: identifier 0, or ours inside one AS (RFC 6286).
    pub(crate) fn bad_identifier() -> Self {
        Self::new(2, 3, &[])
    }

    /// OPEN error: an optional parameter that isn't capabilities.
    pub(crate) fn unsupported_parameter() -> Self {
        Self::new(2, 4, &[])
    }

    /// OPEN error: hold time of 1 or 2 seconds.
    pub(crate) fn unacceptable_hold_time() -> Self {
        Self::new(2, 6, &[])
    }

    /// UPDATE error (RFC 4271 §6.3): lengths don't add up, or an MP attribute twice.
    pub(crate) fn malformed_attribute_list() -> Self {
        Self::new(3, 1, &[])
    }

    /// UPDATE error: a well-known attribute that we don't know; the data is the attribute.
    pub(crate) fn unrecognized_well_known(attribute: &[u8]) -> Self {
        Self::new(3, 2, attribute)
    }

    /// UPDATE error: an MP attribute that can't be read (RFC 4760 §7); the data is the attribute.
    pub(crate) fn optional_attribute(attribute: &[u8]) -> Self {
        Self::new(3, 9, attribute)
    }

    /// UPDATE error: a prefix that can't be read.
    pub(crate) fn invalid_network_field() -> Self {
        Self::new(3, 10, &[])
    }

    /// Nothing heard for the hold time (RFC 4271 §6.5).
    pub(crate) fn hold_timer_expired() -> Self {
        Self::new(4, 0, &[])
    }

    /// A message that doesn't belong into this state (RFC 6608): 1 `OpenSent`, 2 `OpenConfirm`, 3 Established.
    pub(crate) fn unexpected_message(subcode: u8) -> Self {
        Self::new(5, subcode, &[])
    }

    /// Cease: administrative shutdown, with a text for the operator on the other side (RFC 9003).
    pub fn administrative_shutdown(text: &str) -> Self {
        Self::cease_with_text(2, text)
    }

    /// Cease: the peer was removed from the configuration (RFC 4486).
    pub fn peer_de_configured() -> Self {
        Self::new(6, 3, &[])
    }

    /// Cease: fields of the peer were changed (RFC 4486).
    pub fn configuration_change() -> Self {
        Self::new(6, 6, &[])
    }

    /// Cease: this connection lost against another one (RFC 4271 §6.8).
    pub(crate) fn collision() -> Self {
        Self::new(6, 7, &[])
    }

    /// Nothing could be sent for too long (RFC 9687).
    pub(crate) fn send_hold_timer_expired() -> Self {
        Self::new(8, 0, &[])
    }

    fn cease_with_text(subcode: u8, text: &str) -> Self {
        let mut end = text.len().min(MAX_TEXT_OCTETS);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = text.get(..end).unwrap_or_default().as_bytes();
        let length = u8::try_from(text.len()).expect("the text was cut to 255 octets");
        let mut data = vec![length];
        data.extend_from_slice(text);
        Self::new(6, subcode, &data)
    }

    /// The operator's text in a Cease (RFC 9003), if there is one; what isn't UTF-8 is replaced.
    pub fn shutdown_text(&self) -> Option<String> {
        if self.code != 6 || !matches!(self.subcode, 2 | 4) {
            return None;
        }
        let (length, rest) = self.data.split_first()?;
        let text = rest.get(..usize::from(*length))?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Whether the peer wants no more prefixes (Cease/1).
    pub(crate) fn is_maximum_prefixes(&self) -> bool {
        (self.code, self.subcode) == (6, 1)
    }

    /// Whether the peer can't take our optional parameters or capabilities (RFC 5492 §3): try again without.
    pub(crate) fn is_about_parameters(&self) -> bool {
        self.code == 2 && matches!(self.subcode, 4 | 7)
    }

    /// The name of code and subcode in the IANA registry.
    pub fn name(&self) -> &'static str {
        match (self.code, self.subcode) {
            (1, 1) => "Connection Not Synchronized",
            (1, 2) => "Bad Message Length",
            (1, 3) => "Bad Message Type",
            (1, _) => "Message Header Error",
            (2, 1) => "Unsupported Version Number",
            (2, 2) => "Bad Peer AS",
            (2, 3) => "Bad BGP Identifier",
            (2, 4) => "Unsupported Optional Parameter",
            (2, 6) => "Unacceptable Hold Time",
            (2, 7) => "Unsupported Capability",
            (2, 11) => "Role Mismatch",
            (2, _) => "OPEN Message Error",
            (3, 1) => "Malformed Attribute List",
            (3, 2) => "Unrecognized Well-known Attribute",
            (3, 3) => "Missing Well-known Attribute",
            (3, 4) => "Attribute Flags Error",
            (3, 5) => "Attribute Length Error",
            (3, 6) => "Invalid ORIGIN Attribute",
            (3, 8) => "Invalid NEXT_HOP Attribute",
            (3, 9) => "Optional Attribute Error",
            (3, 10) => "Invalid Network Field",
            (3, 11) => "Malformed AS_PATH",
            (3, _) => "UPDATE Message Error",
            (4, _) => "Hold Timer Expired",
            (5, 1) => "Unexpected Message in OpenSent",
            (5, 2) => "Unexpected Message in OpenConfirm",
            (5, 3) => "Unexpected Message in Established",
            (5, _) => "Finite State Machine Error",
            (6, 1) => "Maximum Number of Prefixes Reached",
            (6, 2) => "Administrative Shutdown",
            (6, 3) => "Peer De-configured",
            (6, 4) => "Administrative Reset",
            (6, 5) => "Connection Rejected",
            (6, 6) => "Other Configuration Change",
            (6, 7) => "Connection Collision Resolution",
            (6, 8) => "Out of Resources",
            (6, 9) => "Hard Reset",
            (6, 10) => "BFD Down",
            (6, _) => "Cease",
            (7, _) => "ROUTE-REFRESH Message Error",
            (8, _) => "Send Hold Timer Expired",
            _ => "unknown error",
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {}", self.code, self.subcode, self.name())?;
        match self.shutdown_text() {
            Some(text) => write!(f, ": {text:?}"),
            None => Ok(()),
        }
    }
}
