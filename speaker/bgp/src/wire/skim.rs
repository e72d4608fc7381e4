//! Judging a received UPDATE by its lengths, without learning its routes.
//!
//! Owns RFC 7606: which faults end the session, which count as a withdrawal, which attribute is passed over; and the gate in
//! front of zettabgp's decoder, which panics or loops on what was not checked. One pass, no recursion, no allocation but in
//! the gate. Never keeps a route.

use api_model::IpFamily;

use super::{Notification, reader::Reader};
use crate::capability::family;

/// What the judgement of attributes depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SkimContext {
    /// AS numbers have four octets (both sides have the capability of RFC 6793).
    pub four_octet_as: bool,
    /// The peer is in our AS.
    pub internal: bool,
}

/// What an UPDATE holds, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skim {
    /// Prefixes announced.
    pub announced: u32,
    /// Prefixes withdrawn.
    pub withdrawn: u32,
    /// Type of the first attribute whose fault turns all announcements into withdrawals (RFC 7606 §2); 0 if the list of
    /// attributes itself is broken.
    pub treat_as_withdraw: Option<u8>,
    /// Attributes passed over because of a fault, or because they came twice.
    pub discarded: u32,
}

/// An UPDATE that zettabgp can read: checked, and without the attributes that it can't.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gated {
    body: Vec<u8>,
    four_octet_as: bool,
}

impl Gated {
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    pub(crate) fn four_octet_as(&self) -> bool {
        self.four_octet_as
    }
}

const ORIGIN: u8 = 1;
const AS_PATH: u8 = 2;
const NEXT_HOP: u8 = 3;
const MED: u8 = 4;
const LOCAL_PREF: u8 = 5;
const ATOMIC_AGGREGATE: u8 = 6;
const AGGREGATOR: u8 = 7;
const COMMUNITIES: u8 = 8;
const ORIGINATOR_ID: u8 = 9;
const CLUSTER_LIST: u8 = 10;
const MP_REACH: u8 = 14;
const MP_UNREACH: u8 = 15;
const EXTENDED_COMMUNITIES: u8 = 16;
const AS4_PATH: u8 = 17;
const AS4_AGGREGATOR: u8 = 18;
const LARGE_COMMUNITIES: u8 = 32;
/// What zettabgp must not see: connector, PMSI tunnel, only-to-customer, attribute set (recursive).
const WITHHELD: [u8; 4] = [20, 22, 35, 128];

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const EXTENDED_LENGTH: u8 = 0x10;

/// The three parts of an UPDATE (RFC 4271 §4.3).
#[derive(Clone, Copy)]
struct Parts<'a> {
    withdrawn: &'a [u8],
    attributes: &'a [u8],
    nlri: &'a [u8],
}

impl<'a> Parts<'a> {
    fn split(body: &'a [u8]) -> Result<Self, Notification> {
        let mut reader = Reader::new(body);
        let mut part = || {
            let length = reader.u16()?;
            reader.take(length.into())
        };
        let (Some(withdrawn), Some(attributes)) = (part(), part()) else {
            return Err(Notification::malformed_attribute_list());
        };
        Ok(Self {
            withdrawn,
            attributes,
            nlri: reader.rest(),
        })
    }
}

/// One attribute.
#[derive(Clone, Copy)]
struct Attribute<'a> {
    flags: u8,
    kind: u8,
    value: &'a [u8],
    /// Header and value.
    whole: &'a [u8],
}

/// The next attribute; `None` if what is left is too short for what it claims.
fn next_attribute<'a>(reader: &mut Reader<'a>) -> Option<Attribute<'a>> {
    let start = reader.rest();
    let flags = reader.u8()?;
    let kind = reader.u8()?;
    let length = if flags & EXTENDED_LENGTH == 0 {
        usize::from(reader.u8()?)
    } else {
        usize::from(reader.u16()?)
    };
    let value = reader.take(length)?;
    let whole = start.get(..start.len().saturating_sub(reader.rest().len()))?;
    Some(Attribute {
        flags,
        kind,
        value,
        whole,
    })
}

/// What a fault of one attribute leads to (RFC 7606 §2).
enum Verdict {
    Good,
    Discard,
    Withdraw,
    Reset(Notification),
}

/// Judges the body of an UPDATE. Errors: the faults that end the session (RFC 7606 §3, §5.3).
pub fn skim(body: &[u8], context: SkimContext) -> Result<Skim, Notification> {
    let parts = Parts::split(body)?;
    let withdrawn = count_prefixes(parts.withdrawn, IpFamily::V4)
        .ok_or_else(Notification::invalid_network_field)?;
    let announced =
        count_prefixes(parts.nlri, IpFamily::V4).ok_or_else(Notification::invalid_network_field)?;
    let mut walk = Walk {
        skim: Skim {
            announced,
            withdrawn,
            ..Skim::default()
        },
        seen: [false; 256],
    };
    let mut reader = Reader::new(parts.attributes);
    while !reader.is_empty() {
        let Some(attribute) = next_attribute(&mut reader) else {
            // RFC 7606 §4: the NLRI can still be found
            walk.withdraw(0);
            break;
        };
        walk.judge(&attribute, context)?;
    }
    walk.mandatory(!parts.nlri.is_empty(), context);
    Ok(walk.skim)
}

struct Walk {
    skim: Skim,
    seen: [bool; 256],
}

impl Walk {
    fn withdraw(&mut self, kind: u8) {
        self.skim.treat_as_withdraw.get_or_insert(kind);
    }

    fn has(&self, kind: u8) -> bool {
        self.seen.get(usize::from(kind)).copied().unwrap_or(false)
    }

    fn judge(
        &mut self,
        attribute: &Attribute<'_>,
        context: SkimContext,
    ) -> Result<(), Notification> {
        let kind = attribute.kind;
        if self.has(kind) {
            if matches!(kind, MP_REACH | MP_UNREACH) {
                return Err(Notification::malformed_attribute_list());
            }
            self.skim.discarded += 1;
            return Ok(());
        }
        if let Some(seen) = self.seen.get_mut(usize::from(kind)) {
            *seen = true;
        }
        let verdict = match kind {
            MP_REACH | MP_UNREACH => self.multiprotocol(attribute),
            _ => verdict(attribute, context),
        };
        match verdict {
            Verdict::Good => {}
            Verdict::Discard => self.skim.discarded += 1,
            Verdict::Withdraw => self.withdraw(kind),
            Verdict::Reset(notification) => return Err(notification),
        }
        Ok(())
    }

    fn multiprotocol(&mut self, attribute: &Attribute<'_>) -> Verdict {
        let counted = if attribute.kind == MP_REACH {
            mp_reach(attribute.value)
        } else {
            mp_unreach(attribute.value)
        };
        let Some(count) = counted else {
            return Verdict::Reset(Notification::optional_attribute(attribute.whole));
        };
        if attribute.kind == MP_REACH {
            self.skim.announced = self.skim.announced.saturating_add(count);
        } else {
            self.skim.withdrawn = self.skim.withdrawn.saturating_add(count);
        }
        if flags_fit(attribute) {
            Verdict::Good
        } else {
            Verdict::Withdraw
        }
    }

    /// RFC 7606 §3 (d): what must be there if anything is announced.
    fn mandatory(&mut self, nlri: bool, context: SkimContext) {
        if !nlri && !self.has(MP_REACH) {
            return;
        }
        let missing = [
            (ORIGIN, true),
            (AS_PATH, true),
            (NEXT_HOP, nlri),
            (LOCAL_PREF, context.internal),
        ]
        .into_iter()
        .find(|&(kind, needed)| needed && !self.has(kind));
        if let Some((kind, _)) = missing {
            self.withdraw(kind);
        }
    }
}

/// Whether the optional and transitive bits are those of this type (RFC 7606 §3 (c)); the lower bits don't count.
fn flags_fit(attribute: &Attribute<'_>) -> bool {
    let wanted = match attribute.kind {
        ORIGIN | AS_PATH | NEXT_HOP | LOCAL_PREF | ATOMIC_AGGREGATE => TRANSITIVE,
        MED | ORIGINATOR_ID | CLUSTER_LIST | MP_REACH | MP_UNREACH => OPTIONAL,
        AGGREGATOR | COMMUNITIES | EXTENDED_COMMUNITIES | AS4_PATH | AS4_AGGREGATOR
        | LARGE_COMMUNITIES => OPTIONAL | TRANSITIVE,
        _ => return true,
    };
    attribute.flags & (OPTIONAL | TRANSITIVE) == wanted
}

/// RFC 7606 §7 for every attribute but the multiprotocol ones.
fn verdict(attribute: &Attribute<'_>, context: SkimContext) -> Verdict {
    let value = attribute.value;
    let octets = value.len();
    let from_outside =
        matches!(attribute.kind, LOCAL_PREF | ORIGINATOR_ID | CLUSTER_LIST) && !context.internal;
    if from_outside {
        return Verdict::Discard;
    }
    if !flags_fit(attribute) {
        return Verdict::Withdraw;
    }
    let as_octets = if context.four_octet_as { 4 } else { 2 };
    let (good, otherwise) = match attribute.kind {
        ORIGIN => (matches!(value, [0..=2]), Verdict::Withdraw),
        AS_PATH => (segments_fit(value, as_octets), Verdict::Withdraw),
        NEXT_HOP | MED | LOCAL_PREF | ORIGINATOR_ID => (octets == 4, Verdict::Withdraw),
        ATOMIC_AGGREGATE => (octets == 0, Verdict::Discard),
        AGGREGATOR => (octets == as_octets + 4, Verdict::Discard),
        COMMUNITIES | CLUSTER_LIST => (is_list_of(4, octets), Verdict::Withdraw),
        EXTENDED_COMMUNITIES => (is_list_of(8, octets), Verdict::Withdraw),
        LARGE_COMMUNITIES => (is_list_of(12, octets), Verdict::Withdraw),
        // RFC 6793 §6: between two speakers of four octets they mean nothing
        AS4_PATH => (
            !context.four_octet_as && segments_fit(value, 4),
            Verdict::Discard,
        ),
        AS4_AGGREGATOR => (!context.four_octet_as && octets == 8, Verdict::Discard),
        _ => (
            attribute.flags & OPTIONAL != 0,
            Verdict::Reset(Notification::unrecognized_well_known(attribute.whole)),
        ),
    };
    if good { Verdict::Good } else { otherwise }
}

fn is_list_of(item: usize, octets: usize) -> bool {
    octets != 0 && octets.is_multiple_of(item)
}

/// Whether an AS_PATH is made of whole sets and sequences (RFC 7606 §7.2), none of them empty.
fn segments_fit(value: &[u8], as_octets: usize) -> bool {
    let mut reader = Reader::new(value);
    while !reader.is_empty() {
        let (Some(1 | 2), Some(count @ 1..)) = (reader.u8(), reader.u8()) else {
            return false;
        };
        if reader
            .take(usize::from(count).saturating_mul(as_octets))
            .is_none()
        {
            return false;
        }
    }
    true
}

/// Number of prefixes in an MP_REACH_NLRI (RFC 4760 §3); 0 for a family that we don't carry; `None` if it is broken.
fn mp_reach(value: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(value);
    let family = family(reader.u16()?, reader.u8()?);
    let next_hop = reader.u8()?;
    reader.take(next_hop.into())?;
    let _reserved = reader.u8()?;
    let Some(family) = family else { return Some(0) };
    let fits = match family {
        IpFamily::V4 => matches!(next_hop, 4 | 16 | 32),
        IpFamily::V6 => matches!(next_hop, 16 | 32),
    };
    if fits {
        count_prefixes(reader.rest(), family)
    } else {
        None
    }
}

/// Number of prefixes in an MP_UNREACH_NLRI (RFC 4760 §4), in the same way.
fn mp_unreach(value: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(value);
    match family(reader.u16()?, reader.u8()?) {
        Some(family) => count_prefixes(reader.rest(), family),
        None => Some(0),
    }
}

/// Number of prefixes, or `None` if one is too long for the family or cut off.
fn count_prefixes(nlri: &[u8], family: IpFamily) -> Option<u32> {
    let mut reader = Reader::new(nlri);
    let mut count = 0_u32;
    while !reader.is_empty() {
        let bits = reader.u8()?;
        if bits > family.bits() {
            return None;
        }
        reader.take(usize::from(bits.div_ceil(8)))?;
        count = count.saturating_add(1);
    }
    Some(count)
}

/// Lets an UPDATE through to zettabgp: only if it has no fault at all, and without attributes that zettabgp can't be
/// trusted with or families that we don't carry.
pub fn gate(body: &[u8], context: SkimContext) -> Option<Gated> {
    let skim = skim(body, context).ok()?;
    if skim.treat_as_withdraw.is_some() || skim.discarded > 0 {
        return None;
    }
    let parts = Parts::split(body).ok()?;
    let mut kept = Vec::new();
    let mut reader = Reader::new(parts.attributes);
    while let Some(attribute) = next_attribute(&mut reader) {
        if !WITHHELD.contains(&attribute.kind) && is_ours(&attribute) {
            kept.extend_from_slice(attribute.whole);
        }
    }
    let mut out = Vec::new();
    for part in [parts.withdrawn, &kept] {
        out.extend_from_slice(&u16::try_from(part.len()).ok()?.to_be_bytes());
        out.extend_from_slice(part);
    }
    out.extend_from_slice(parts.nlri);
    Some(Gated {
        body: out,
        four_octet_as: context.four_octet_as,
    })
}

/// Whether a multiprotocol attribute is of a family that we carry, with a plain reserved octet: zettabgp reads it as a
/// count of SNPAs.
fn is_ours(attribute: &Attribute<'_>) -> bool {
    let mut reader = Reader::new(attribute.value);
    let family = |reader: &mut Reader<'_>| family(reader.u16()?, reader.u8()?);
    match attribute.kind {
        MP_REACH => {
            let known = family(&mut reader).is_some();
            let hop = reader.u8().and_then(|octets| reader.take(octets.into()));
            known && hop.is_some() && reader.u8() == Some(0)
        }
        MP_UNREACH => family(&mut reader).is_some(),
        _ => true,
    }
}
