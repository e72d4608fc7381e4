//! A peer, its clock and a scripted router on the other side.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use api_model::{Asn, IpFamily, Port, Time};
use speaker_bgp::{
    Input, NodeAddresses, Output, Peer, PeerConfig, RemoteAsn, Route, Routes, SessionChange, Side,
    State, Timers,
};

/// OPEN AS 64513, hold 90, ID 192.0.2.1, capabilities MP IPv4 unicast, four-octet AS, route refresh.
pub(crate) const OPEN: &str =
    "ffffffffffffffffffffffffffffffff002d0104fc01005ac000020110020e01040001000141040000fc010200";
/// The same with MP IPv6 unicast as well.
pub(crate) const OPEN_BOTH: &str = "ffffffffffffffffffffffffffffffff00330104fc01005ac00002011602140104000100010104000200014104\
     0000fc010200";
/// KEEPALIVE.
pub(crate) const KEEPALIVE: &str = "ffffffffffffffffffffffffffffffff001304";

/// Bytes from hex digits.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    let byte = |pair: &[u32]| u8::try_from(pair[0] << 4 | pair[1]).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Hex digits of bytes.
pub(crate) fn digits(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// node-a 192.0.2.11, AS 64512, towards 192.0.2.1, AS 64513.
pub(crate) fn config() -> PeerConfig {
    PeerConfig {
        name: "tor".into(),
        local_asn: Asn(64512),
        remote_asn: RemoteAsn::Exactly(Asn(64513)),
        address: "192.0.2.1".parse().unwrap(),
        port: Port::new(179).unwrap(),
        source_address: None,
        router_id: "192.0.2.11".parse().unwrap(),
        timers: Timers::default(),
        connect_time: None,
        ebgp_multi_hop: false,
        families: BTreeSet::from([IpFamily::V4]),
        node_addresses: NodeAddresses::default(),
        password: None,
    }
}

pub(crate) fn routes(prefixes: &[&str]) -> Arc<Routes> {
    let routes = prefixes
        .iter()
        .map(|prefix| (prefix.parse().unwrap(), Route::default()));
    Arc::new(routes.collect())
}

/// An UPDATE of ours, taken apart by hand.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) withdrawn: Vec<String>,
    /// Type → flags, length and value in hex, as on the wire.
    pub(crate) attributes: BTreeMap<u8, String>,
    pub(crate) nlri: Vec<String>,
}

impl Update {
    pub(crate) fn read(message: &[u8]) -> Self {
        let body = &message[19..];
        let length = |at: usize| usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
        let attributes_at = 2 + length(0) + 2;
        let nlri_at = attributes_at + length(attributes_at - 2);
        let mut update = Self {
            withdrawn: prefixes(&body[2..attributes_at - 2]),
            nlri: prefixes(&body[nlri_at..]),
            ..Self::default()
        };
        let mut rest = &body[attributes_at..nlri_at];
        while let [flags, kind, length, ..] = *rest {
            let octets = if flags & 0x10 == 0 {
                3 + usize::from(length)
            } else {
                4 + usize::from(u16::from_be_bytes([length, rest[3]]))
            };
            update.attributes.insert(kind, digits(&rest[..octets]));
            rest = &rest[octets..];
        }
        update
    }
}

fn prefixes(mut octets: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let [bits, rest @ ..] = octets {
        let length = usize::from(bits.div_ceil(8));
        let mut address = [0; 4];
        address[..length].copy_from_slice(&rest[..length]);
        found.push(format!("{}/{bits}", IpAddr::from(address)));
        octets = &rest[length..];
    }
    found
}

/// A peer with a clock, and everything it did.
pub(crate) struct Bench {
    pub(crate) peer: Peer,
    pub(crate) now: Time,
    pub(crate) dials: Vec<Time>,
    /// Messages of ours, with the time and connection.
    pub(crate) sent: Vec<(Time, Side, Vec<u8>)>,
    pub(crate) closed: Vec<Side>,
    pub(crate) changes: Vec<SessionChange>,
    pub(crate) notices: Vec<String>,
}

impl Bench {
    pub(crate) fn new(config: PeerConfig) -> Self {
        Self::seeded(config, 1)
    }

    pub(crate) fn seeded(config: PeerConfig, seed: u64) -> Self {
        let mut bench = Self {
            peer: Peer::new(config, seed),
            now: Time::ZERO,
            dials: Vec::new(),
            sent: Vec::new(),
            closed: Vec::new(),
            changes: Vec::new(),
            notices: Vec::new(),
        };
        bench.input(Input::Start);
        bench
    }

    /// Established over the dialled connection.
    pub(crate) fn established(config: PeerConfig, open: &str) -> Self {
        let mut bench = Self::new(config);
        bench.establish(open);
        bench
    }

    pub(crate) fn establish(&mut self, open: &str) {
        self.connect(Side::Dialled);
        self.send(open);
        self.send(KEEPALIVE);
        assert_eq!(
            self.peer.state(),
            State::Established,
            "{:?}",
            self.changes.last()
        );
    }

    pub(crate) fn connect(&mut self, side: Side) {
        let local = match self.peer.config().address {
            IpAddr::V4(_) => "192.0.2.11",
            IpAddr::V6(_) => "2001:db8:0:1::11",
        };
        let local = local.parse().unwrap();
        self.input(Input::Connected { side, local });
    }

    /// The router sends on the dialled connection.
    pub(crate) fn send(&mut self, text: &str) {
        self.bytes(Side::Dialled, &hex(text));
    }

    pub(crate) fn bytes(&mut self, side: Side, bytes: &[u8]) {
        self.input(Input::Bytes { side, bytes });
    }

    pub(crate) fn fail(&mut self) {
        let detail = "connection refused".to_owned();
        self.input(Input::Failed {
            side: Side::Dialled,
            detail,
        });
    }

    pub(crate) fn announce(&mut self, routes: Arc<Routes>) {
        self.input(Input::Routes(routes));
    }

    /// Hands an input over and plays a socket that takes everything at once.
    pub(crate) fn input(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        self.peer.handle(self.now, input, &mut out);
        let sends = out
            .iter()
            .any(|output| matches!(output, Output::Send { .. }));
        for output in out {
            match output {
                Output::Dial => self.dials.push(self.now),
                Output::Send { side, bytes } => self.sent.push((self.now, side, bytes)),
                Output::Close(side) => self.closed.push(side),
                Output::Changed(change) => self.changes.push(change),
                Output::Notice(_, text) => self.notices.push(text),
            }
        }
        if sends {
            for side in Side::ALL {
                self.input(Input::Drained(side));
            }
        }
    }

    /// Lets time pass, with all deadlines on the way.
    pub(crate) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(deadline) = self
            .peer
            .next_deadline()
            .filter(|&deadline| deadline <= end)
        {
            self.now = self.now.max(deadline);
            self.input(Input::Tick);
        }
        self.now = end;
    }

    /// Messages of one type that were sent.
    pub(crate) fn sent_of(&self, kind: u8) -> Vec<&[u8]> {
        let of_kind = self.sent.iter().filter(|(_, _, bytes)| bytes[18] == kind);
        of_kind.map(|(_, _, bytes)| bytes.as_slice()).collect()
    }

    pub(crate) fn updates(&self) -> Vec<Update> {
        self.sent_of(2).into_iter().map(Update::read).collect()
    }

    /// The last NOTIFICATION: `code/subcode`, and its data in hex.
    pub(crate) fn notification(&self) -> Option<(String, String)> {
        let last = self.sent_of(3).into_iter().next_back()?;
        Some((format!("{}/{}", last[19], last[20]), digits(&last[21..])))
    }
}
