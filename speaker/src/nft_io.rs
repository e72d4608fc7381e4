//! Our table in the kernel: read it back, put the fixed text there, change elements.
//!
//! Owns the calls of the `nft` program (fixed text, further chains: rare) and the netlink messages of elements (every change).
//! Never decides what an element should be. Source: `linux/netfilter/nf_tables.h`.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    process::{Command, Stdio},
};

use api_model::IpFamily;
use speaker_proxier::nft::{
    Map, NewChain, Operation, Table,
    bytes::{self, DecodeError, RawData, RawElement},
    compile::{self, Settings, TABLE},
    text,
};

use crate::netlink::{
    CREATE, Messages, Netlink, attribute, attributes, family_number, text as text_of,
};

/// `NFNL_SUBSYS_NFTABLES`
const NFTABLES: u16 = 10;
/// `NFT_MSG_GETCHAIN`
const GET_CHAIN: u16 = 4;
/// `NFT_MSG_GETRULE`
const GET_RULE: u16 = 7;
/// `NFT_MSG_NEWSETELEM`
const NEW_ELEMENT: u16 = 12;
/// `NFT_MSG_GETSETELEM`
const GET_ELEMENT: u16 = 13;
/// `NFT_MSG_DELSETELEM`
const DELETE_ELEMENT: u16 = 14;
/// `NFT_MSG_GETGEN`
const GET_GENERATION: u16 = 16;
/// `NFT_GOTO`
const GOTO: i32 = -4;
/// `NFT_SET_ELEM_INTERVAL_END`
const INTERVAL_END: u32 = 1;
/// Bytes of one list of elements; its length has 16 bits.
const LIST_BYTES: usize = 60_000;
const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

/// What goes wrong with the table.
#[derive(Debug, thiserror::Error)]
pub enum NftError {
    /// The program can't be started.
    #[error("the nft program can't be started ({0}): install the package nftables")]
    Program(#[source] io::Error),
    /// The program refused the text.
    #[error("nft refused the ruleset: {0}")]
    Text(String),
    /// The kernel refused, or the socket failed.
    #[error("{doing}: {source}")]
    Netlink {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// What the kernel holds.
#[derive(Debug)]
pub enum Found {
    /// No table of ours, or one with another fixed text, or with elements that are not ours.
    Unusable(&'static str),
    /// The fixed text is ours; these are its elements.
    Table(Table),
}

/// The way into the kernel.
pub struct NftIo {
    netlink: Netlink,
    settings: Settings,
}

impl NftIo {
    /// Opens the way in the network namespace of the calling thread. Needs `CAP_NET_ADMIN`.
    pub fn open(settings: Settings) -> Result<Self, NftError> {
        let netlink = Netlink::open().map_err(netlink_error("opening a netlink socket"))?;
        Ok(Self { netlink, settings })
    }

    /// The number of the kernel's ruleset; each change by anybody raises it.
    pub fn generation(&mut self) -> Result<u32, NftError> {
        let mut messages = Messages::default();
        let mark = messages.begin(NFTABLES, GET_GENERATION, 0, 0);
        messages.end_message(mark);
        let answer = self
            .netlink
            .ask(&messages)
            .map_err(netlink_error("asking for the ruleset's generation"))?;
        let number = attribute(&answer, 1).and_then(|value| value.first_chunk::<4>());
        number
            .map(|bytes| u32::from_be_bytes(*bytes))
            .ok_or_else(|| {
                netlink_error("asking for the ruleset's generation")(
                    io::ErrorKind::InvalidData.into(),
                )
            })
    }

    /// Puts the fixed text there with these elements; what was there goes in the same transaction, so that no packet meets
    /// a part of the table. Gives the elements back.
    pub fn replace(&mut self, table: Table) -> Result<Table, NftError> {
        run_nft(&text::whole(self.settings, &table))?;
        Ok(table)
    }

    /// Takes both tables away.
    pub fn remove() -> Result<(), NftError> {
        let of_family = |family| {
            let ip = compile::family_word(family);
            format!("table {ip} {TABLE}\ndelete table {ip} {TABLE}\n")
        };
        run_nft(&FAMILIES.map(of_family).concat())
    }

    /// Reads both tables back.
    pub fn read(&mut self) -> Result<Found, NftError> {
        let mut table = Table::new();
        for family in FAMILIES {
            if !self
                .chains(family)?
                .contains_key(&compile::version_chain(self.settings))
            {
                return Ok(Found::Unusable("no table with this fixed text"));
            }
            for map in Map::ALL {
                let Some(raw) = self.elements(family, map)? else {
                    return Ok(Found::Unusable("a map of the fixed text is missing"));
                };
                match bytes::decode(map, family, &raw) {
                    Ok(elements) => table.extend(elements),
                    Err(DecodeError { .. }) => {
                        return Ok(Found::Unusable("a map holds an element that is not ours"));
                    }
                }
            }
        }
        for family in FAMILIES {
            if self.chains(family)? != compile::expected_chains(family, self.settings, &table) {
                return Ok(Found::Unusable("a chain or rule was changed"));
            }
        }
        Ok(Found::Table(table))
    }

    /// Makes chains that the table does not have yet.
    pub fn make_chains(&mut self, new: &[NewChain]) -> Result<(), NftError> {
        if new.is_empty() {
            Ok(())
        } else {
            run_nft(&text::further_chains(new))
        }
    }

    /// Changes elements, in order, in as few batches as the socket takes (one, for all but a first load). Each batch is
    /// atomic. Errors: the batch that was refused and all later ones were not applied.
    pub fn apply(&mut self, operations: &[Operation]) -> Result<(), NftError> {
        let limit = self.netlink.send_limit();
        let mut steps = operations.iter().flat_map(Step::of).peekable();
        while steps.peek().is_some() {
            let mut messages = Messages::batch(NFTABLES);
            while let Some(first) = steps.peek().map(Step::place)
                && messages.len() + LIST_BYTES < limit.max(2 * LIST_BYTES)
            {
                let kind = if first.delete {
                    DELETE_ELEMENT
                } else {
                    NEW_ELEMENT
                };
                let flags = if first.delete { 0 } else { CREATE };
                let mark = messages.begin(NFTABLES, kind, flags, family_number(first.family));
                messages.text(1, TABLE);
                messages.text(2, first.map.name());
                let list = messages.nest(3);
                let start = messages.len();
                while messages.len() - start < LIST_BYTES - 512
                    && let Some(step) = steps.next_if(|step| step.place() == first)
                {
                    put_element(&mut messages, &step.element, first.delete);
                }
                messages.end_nest(list);
                messages.end_message(mark);
            }
            self.netlink
                .commit(messages)
                .map_err(netlink_error("changing elements"))?;
        }
        Ok(())
    }

    /// Chains of our table and how many rules each has.
    fn chains(&mut self, family: IpFamily) -> Result<BTreeMap<String, usize>, NftError> {
        let number = family_number(family);
        let chains = self.netlink.dump(&|messages| {
            let mark = messages.begin(NFTABLES, GET_CHAIN, 0, number);
            messages.end_message(mark);
        });
        let chains = chains.map_err(netlink_error("listing chains"))?;
        let ours = |payload: &&Vec<u8>| attribute(payload, 1).and_then(text_of) == Some(TABLE);
        let name = |payload: &Vec<u8>, kind| {
            attribute(payload, kind)
                .and_then(text_of)
                .map(str::to_owned)
        };
        let mut found: BTreeMap<String, usize> = chains
            .iter()
            .filter(ours)
            .filter_map(|payload| Some((name(payload, 3)?, 0)))
            .collect();
        let rules = self.netlink.dump(&|messages| {
            let mark = messages.begin(NFTABLES, GET_RULE, 0, number);
            messages.text(1, TABLE);
            messages.end_message(mark);
        });
        let rules = rules.map_err(netlink_error("listing rules"))?;
        for chain in rules
            .iter()
            .filter(ours)
            .filter_map(|payload| name(payload, 2))
        {
            *found.entry(chain).or_default() += 1;
        }
        Ok(found)
    }

    /// Elements of one map; `None` when there is no such map.
    fn elements(
        &mut self,
        family: IpFamily,
        map: Map,
    ) -> Result<Option<Vec<RawElement>>, NftError> {
        let payloads = self.netlink.dump(&|messages| {
            let mark = messages.begin(NFTABLES, GET_ELEMENT, 0, family_number(family));
            messages.text(1, TABLE);
            messages.text(2, map.name());
            messages.end_message(mark);
        });
        match payloads {
            Ok(payloads) => Ok(Some(
                payloads
                    .iter()
                    .filter_map(|payload| attribute(payload, 3))
                    .flat_map(attributes)
                    .filter_map(|(_, element)| read_element(element))
                    .collect(),
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(netlink_error("reading elements")(source)),
        }
    }
}

fn netlink_error(doing: &'static str) -> impl FnOnce(io::Error) -> NftError {
    move |source| NftError::Netlink { doing, source }
}

/// One element to add or to take away; a replacement is two.
struct Step {
    place: Place,
    element: RawElement,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    delete: bool,
    family: IpFamily,
    map: Map,
}

impl Step {
    fn of(operation: &Operation) -> Vec<Self> {
        let key = operation.key();
        let steps = |delete, value| {
            let place = Place {
                delete,
                family: key.family(),
                map: key.map(),
            };
            let raw = bytes::encode(key, value).into_iter();
            raw.map(move |element| Self { place, element })
        };
        match operation {
            Operation::Add(_, value) => steps(false, value).collect(),
            Operation::Replace(_, old, new) => steps(true, old).chain(steps(false, new)).collect(),
            Operation::Delete(_, value) => steps(true, value).collect(),
        }
    }

    fn place(&self) -> Place {
        self.place
    }
}

/// `NFTA_SET_ELEM_*`: key 1, data 2, flags 3, end of the key 10.
fn put_element(messages: &mut Messages, element: &RawElement, delete: bool) {
    let one = messages.nest(1);
    put_value(messages, 1, &element.key);
    if let Some(end) = &element.key_end {
        put_value(messages, 10, end);
    }
    if element.interval_end {
        messages.attribute(3, &INTERVAL_END.to_be_bytes());
    }
    match &element.data {
        _ if delete => {}
        RawData::None => {}
        RawData::Value(value) => put_value(messages, 2, value),
        RawData::Goto(chain) => {
            let data = messages.nest(2);
            let verdict = messages.nest(2);
            messages.attribute(1, &GOTO.to_be_bytes());
            messages.text(2, chain);
            messages.end_nest(verdict);
            messages.end_nest(data);
        }
    }
    messages.end_nest(one);
}

fn put_value(messages: &mut Messages, kind: u16, value: &[u8]) {
    let mark = messages.nest(kind);
    messages.attribute(1, value);
    messages.end_nest(mark);
}

fn read_element(bytes: &[u8]) -> Option<RawElement> {
    let value = |kind| {
        attribute(bytes, kind)
            .and_then(|data| attribute(data, 1))
            .map(<[u8]>::to_vec)
    };
    let flags = attribute(bytes, 3).and_then(|flags| flags.first_chunk::<4>());
    let verdict = attribute(bytes, 2).and_then(|data| attribute(data, 2));
    let chain = verdict
        .and_then(|verdict| attribute(verdict, 2))
        .and_then(text_of);
    Some(RawElement {
        key: value(1)?,
        key_end: value(10),
        interval_end: flags.is_some_and(|flags| u32::from_be_bytes(*flags) & INTERVAL_END != 0),
        data: match (chain, value(2)) {
            (Some(chain), _) => RawData::Goto(chain.to_owned()),
            (None, Some(value)) => RawData::Value(value),
            (None, None) => RawData::None,
        },
    })
}

/// Gives `nft` a text on its standard input.
fn run_nft(text: &str) -> Result<(), NftError> {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(NftError::Program)?;
    // `nft` reads everything before it says anything, so the pipes can't block each other.
    let written = child
        .stdin
        .take()
        .map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(NftError::Program)?;
    if output.status.success() {
        written.map_err(NftError::Program)
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(NftError::Text(
            said.lines().take(4).collect::<Vec<_>>().join("; "),
        ))
    }
}
