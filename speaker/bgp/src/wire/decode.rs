//! Reading messages from a peer.
//!
//! Owns OPEN with its parameters, NOTIFICATION and ROUTE-REFRESH, and the only door to zettabgp's UPDATE decoder, which takes
//! nothing but what `skim::gate` has checked. Never judges an OPEN against a configuration (`capability`).

use std::net::Ipv4Addr;

use zettabgp::{
    BgpMessage, BgpSessionParams, BgpTransportMode,
    error::BgpError,
    message::{routerefresh::BgpRouterefreshMessage, update::BgpUpdateMessage},
};

use super::{Notification, reader::Reader, skim::Gated};
use crate::capability::{Capabilities, family};

/// Optional parameter "capabilities" (RFC 5492).
const CAPABILITIES: u8 = 2;
/// Stands where lengths have two octets (RFC 9072).
const EXTENDED: u8 = 255;

/// A peer's OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// AS number in two octets; [`super::AS_TRANS`] if it needs four.
    pub my_as: u16,
    /// Proposed hold time in seconds, 0 or at least 3.
    pub hold_time: u16,
    /// BGP identifier.
    pub router_id: Ipv4Addr,
    /// What its capabilities say.
    pub capabilities: Capabilities,
}

/// A peer's wish to hear the routes of a family again (RFC 2918).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteRefresh {
    /// The family; `None` if we don't carry it.
    pub family: Option<api_model::IpFamily>,
    /// 0; others belong to enhanced route refresh (RFC 7313), which we don't offer.
    pub subtype: u8,
}

/// Reads the body of an OPEN. Errors: what to answer (RFC 4271 §6.2): version, hold time, parameters.
pub fn open(body: &[u8]) -> Result<Open, Notification> {
    let mut reader = Reader::new(body);
    let version = reader.u8().ok_or_else(Notification::malformed_open)?;
    if version != 4 {
        return Err(Notification::unsupported_version());
    }
    let fields = (reader.u16(), reader.u16(), reader.u32());
    let (Some(my_as), Some(hold_time), Some(router_id)) = fields else {
        return Err(Notification::malformed_open());
    };
    if matches!(hold_time, 1 | 2) {
        return Err(Notification::unacceptable_hold_time());
    }
    let mut capabilities = Capabilities::default();
    parameters(reader, &mut capabilities)?;
    Ok(Open {
        my_as,
        hold_time,
        router_id: router_id.into(),
        capabilities,
    })
}

/// Optional parameters, in the plain and in the extended form (RFC 9072).
fn parameters(mut reader: Reader<'_>, found: &mut Capabilities) -> Result<(), Notification> {
    let mut length = usize::from(reader.u8().ok_or_else(Notification::malformed_open)?);
    let extended = length == usize::from(EXTENDED) && reader.rest().first() == Some(&EXTENDED);
    if extended {
        reader.u8();
        length = usize::from(reader.u16().ok_or_else(Notification::malformed_open)?);
    }
    if reader.rest().len() != length {
        return Err(Notification::malformed_open());
    }
    while !reader.is_empty() {
        let kind = reader.u8();
        let length = if extended {
            reader.u16().map(usize::from)
        } else {
            reader.u8().map(usize::from)
        };
        let value = length.and_then(|length| reader.take(length));
        match (kind, value) {
            (Some(CAPABILITIES), Some(value)) => capabilities(value, found)?,
            (Some(_), Some(_)) => return Err(Notification::unsupported_parameter()),
            (_, None) | (None, _) => return Err(Notification::malformed_open()),
        }
    }
    Ok(())
}

/// The capabilities of one parameter.
fn capabilities(value: &[u8], found: &mut Capabilities) -> Result<(), Notification> {
    let mut reader = Reader::new(value);
    while !reader.is_empty() {
        let code = reader.u8();
        let value = reader.u8().and_then(|length| reader.take(length.into()));
        let (Some(code), Some(value)) = (code, value) else {
            return Err(Notification::malformed_open());
        };
        found.note(code, value);
    }
    Ok(())
}

/// Reads the body of a NOTIFICATION; missing octets read as 0, since nothing may be answered to one.
pub fn notification(body: &[u8]) -> Notification {
    let mut reader = Reader::new(body);
    Notification {
        code: reader.u8().unwrap_or(0),
        subcode: reader.u8().unwrap_or(0),
        data: reader.rest().to_vec(),
    }
}

/// Reads the body of a ROUTE-REFRESH, `None` if it is too short.
pub fn route_refresh(body: &[u8]) -> Option<RouteRefresh> {
    let mut message = BgpRouterefreshMessage::new();
    message.decode_from(&session_params(true), body).ok()?;
    Some(RouteRefresh {
        family: family(message.afi, message.safi),
        subtype: message.subtype,
    })
}

/// Reads an UPDATE that passed the gate. Errors: zettabgp still refuses it; the session is not concerned.
pub fn update(gated: &Gated) -> Result<BgpUpdateMessage, BgpError> {
    let mut message = BgpUpdateMessage::new();
    message.decode_from(&session_params(gated.four_octet_as()), gated.body())?;
    Ok(message)
}

/// What zettabgp wants to know of a session. Always "IPv4": with "IPv6" it reads plain NLRI as IPv6. Add-path is never
/// guessed, which is its default.
pub(crate) fn session_params(four_octet_as: bool) -> BgpSessionParams {
    let mut params = BgpSessionParams::new(
        0,
        0,
        BgpTransportMode::IPv4,
        Ipv4Addr::UNSPECIFIED,
        Vec::new(),
    );
    params.has_as32bit = four_octet_as;
    params.fuzzy_pathid = false;
    params
}
