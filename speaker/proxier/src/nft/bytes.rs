//! Elements as the kernel's bytes, both ways.
//!
//! Owns the register layout of keys and data (fields padded to 4 bytes; addresses, ports and protocol in network order,
//! numbers that the packet path computes in host order). Bytes from the kernel are never trusted: a decode that fails says so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use api_model::{IpFamily, Port, Protocol};
use ipnet::IpNet;

use super::element::{ChainKind, Key, Map, Value};
use crate::rules::Frontend;

/// An element as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RawElement {
    /// Key; of an interval its first value.
    pub key: Vec<u8>,
    /// Last value of an interval over several fields.
    pub key_end: Option<Vec<u8>>,
    /// Ends the interval before it (intervals over one field).
    pub interval_end: bool,
    /// Data.
    pub data: RawData,
}

/// Data of an element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RawData {
    /// A set's element has none.
    None,
    /// A value.
    Value(Vec<u8>),
    /// `goto` this chain.
    Goto(String),
}

/// Bytes that are not an element of the ruleset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an element of {map} is not ours: {element:?}")]
pub struct DecodeError {
    /// Name of the map.
    pub map: &'static str,
    /// What stood there.
    pub element: RawElement,
}

/// The kernel's form of an element; two for a network.
pub fn encode(key: &Key, value: &Value) -> Vec<RawElement> {
    let data = match value {
        Value::Member => RawData::None,
        Value::SlotSet(word) | Value::Remembered(word) => {
            RawData::Value(word.to_ne_bytes().to_vec())
        }
        Value::Endpoint(at) => {
            RawData::Value([address(at.ip()), padded(&at.port().to_be_bytes())].concat())
        }
        Value::Chain(kind) => RawData::Goto(kind.name()),
    };
    let plain = |key: Vec<u8>| RawElement {
        key,
        key_end: None,
        interval_end: false,
        data: data.clone(),
    };
    match key {
        Key::Net(_, net) => encode_net(*net),
        Key::Address(Map::Hairpin, at) => vec![plain([address(*at), address(*at)].concat())],
        Key::Address(_, at) => vec![plain(address(*at))],
        Key::Frontend(_, at) => vec![plain(frontend(at))],
        Key::Allowed(at, net) => vec![RawElement {
            key_end: Some([frontend(at), address(net.broadcast())].concat()),
            ..plain([frontend(at), address(net.network())].concat())
        }],
        Key::Slot(_, _, set, slot) => vec![plain([set.to_ne_bytes(), slot.to_ne_bytes()].concat())],
        Key::Remembered(_, id) => vec![plain(id.to_ne_bytes().to_vec())],
        Key::Class(_, class) => vec![plain(u32::from(*class).to_ne_bytes().to_vec())],
    }
}

fn encode_net(net: IpNet) -> Vec<RawElement> {
    let end = |key, interval_end| RawElement {
        key,
        key_end: None,
        interval_end,
        data: RawData::None,
    };
    let mut elements = vec![end(address(net.network()), false)];
    elements.extend(after(net.broadcast()).map(|next| end(address(next), true)));
    elements
}

fn after(at: IpAddr) -> Option<IpAddr> {
    match at {
        IpAddr::V4(v4) => u32::from(v4)
            .checked_add(1)
            .map(|next| Ipv4Addr::from(next).into()),
        IpAddr::V6(v6) => u128::from(v6)
            .checked_add(1)
            .map(|next| Ipv6Addr::from(next).into()),
    }
}

fn address(at: IpAddr) -> Vec<u8> {
    match at {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut field = bytes.to_vec();
    field.resize(bytes.len().next_multiple_of(4), 0);
    field
}

fn frontend(at: &Frontend) -> Vec<u8> {
    [
        address(at.address),
        padded(&[at.protocol.number()]),
        padded(&at.port.get().to_be_bytes()),
    ]
    .concat()
}

/// Reads all elements of one map. Errors: the first element that this ruleset cannot have.
pub fn decode(
    map: Map,
    family: IpFamily,
    elements: &[RawElement],
) -> Result<Vec<(Key, Value)>, DecodeError> {
    if matches!(map, Map::Pods | Map::ServiceNet) {
        return decode_nets(map, family, elements);
    }
    let decoded = elements.iter().map(|element| {
        decode_one(map, family, element).ok_or_else(|| DecodeError {
            map: map.name(),
            element: element.clone(),
        })
    });
    decoded.collect()
}

fn decode_one(map: Map, family: IpFamily, element: &RawElement) -> Option<(Key, Value)> {
    let mut key = Fields(&element.key);
    let decoded = match map {
        Map::Pods | Map::ServiceNet => return None,
        Map::ClusterIps => Key::Address(map, key.address(family)?),
        Map::Hairpin => {
            let at = key.address(family)?;
            (key.address(family)? == at).then_some(Key::Address(map, at))?
        }
        Map::Endpoints | Map::AffinitySlots => Key::Slot(map, family, key.number()?, key.number()?),
        Map::AffinityEndpoints => Key::Remembered(family, key.number()?),
        Map::Class => Key::Class(family, u16::try_from(key.number()?).ok()?),
        Map::Allowed => {
            let at = key.frontend(family)?;
            let first = key.address(family)?;
            let mut end = Fields(element.key_end.as_deref().unwrap_or(&element.key));
            (end.frontend(family)? == at).then_some(())?;
            Key::Allowed(at, net_of(first, end.address(family)?)?)
        }
        Map::Guarded | Map::Refuse | Map::Hole => Key::Frontend(map, key.frontend(family)?),
        Map::ClusterIp | Map::External | Map::Local | Map::LocalInside => {
            Key::Frontend(map, key.frontend(family)?)
        }
    };
    key.0.is_empty().then_some(())?;
    Some((decoded, decode_data(map, family, &element.data)?))
}

fn decode_data(map: Map, family: IpFamily, data: &RawData) -> Option<Value> {
    let mut value = match data {
        RawData::None => Fields(&[]),
        RawData::Value(bytes) => Fields(bytes),
        RawData::Goto(name) => {
            return (map == Map::Class).then_some(Value::Chain(ChainKind::parse(name)?));
        }
    };
    let decoded = match map {
        Map::ClusterIp | Map::External | Map::Local | Map::LocalInside => {
            Value::SlotSet(value.number()?)
        }
        Map::AffinitySlots => Value::Remembered(value.number()?),
        Map::Endpoints | Map::AffinityEndpoints => {
            Value::Endpoint(SocketAddr::new(value.address(family)?, value.short()?))
        }
        Map::Class => return None,
        Map::Pods
        | Map::ServiceNet
        | Map::ClusterIps
        | Map::Hairpin
        | Map::Allowed
        | Map::Guarded
        | Map::Refuse
        | Map::Hole => Value::Member,
    };
    value.0.is_empty().then_some(decoded)
}

/// Intervals over one field come as starts and ends; sorted, each start is followed by its end.
fn decode_nets(
    map: Map,
    family: IpFamily,
    elements: &[RawElement],
) -> Result<Vec<(Key, Value)>, DecodeError> {
    let mut sorted: Vec<&RawElement> = elements.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key).then(b.interval_end.cmp(&a.interval_end)));
    let mut decoded = Vec::new();
    let mut ends = sorted.iter().filter(|element| element.interval_end);
    for start in sorted.iter().filter(|element| !element.interval_end) {
        let end = ends.find(|end| end.key > start.key);
        let net = Fields(&start.key).address(family).and_then(|first| {
            let end = end.and_then(|end| Fields(&end.key).address(family));
            net_of(first, end.map_or_else(|| last_of(family), before))
        });
        let net = net.ok_or_else(|| DecodeError {
            map: map.name(),
            element: (*start).clone(),
        })?;
        decoded.push((Key::Net(map, net), Value::Member));
    }
    Ok(decoded)
}

fn last_of(family: IpFamily) -> IpAddr {
    match family {
        IpFamily::V4 => Ipv4Addr::BROADCAST.into(),
        IpFamily::V6 => Ipv6Addr::from(u128::MAX).into(),
    }
}

fn before(at: IpAddr) -> IpAddr {
    match at {
        IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4).saturating_sub(1)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6).saturating_sub(1)).into(),
    }
}

/// The network from the first to the last address, if it is one.
fn net_of(first: IpAddr, last: IpAddr) -> Option<IpNet> {
    let widest = if first.is_ipv4() { 32 } else { 128 };
    let nets = (0..=widest).filter_map(|prefix| IpNet::new(first, prefix).ok());
    let mut nets = nets;
    nets.find(|net| net.network() == first && net.broadcast() == last)
}

/// Reads fields from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn number(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn address(&mut self, family: IpFamily) -> Option<IpAddr> {
        match family {
            IpFamily::V4 => self.take::<4>().map(IpAddr::from),
            IpFamily::V6 => self.take::<16>().map(IpAddr::from),
        }
    }

    fn short(&mut self) -> Option<u16> {
        let [high, low, ..] = self.take::<4>()?;
        Some(u16::from_be_bytes([high, low]))
    }

    fn frontend(&mut self, family: IpFamily) -> Option<Frontend> {
        let address = self.address(family)?;
        let [number, ..] = self.take::<4>()?;
        let protocol = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
            .into_iter()
            .find(|p| p.number() == number)?;
        Some(Frontend {
            address,
            protocol,
            port: Port::new(self.short()?)?,
        })
    }
}
