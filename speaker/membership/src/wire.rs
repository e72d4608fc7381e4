//! The heartbeat datagram, version 1.
//!
//! ```text
//! offset  octets
//!      0  4       magic "RSHB"
//!      4  1       version, 1
//!      5  1       flags: 0x01 leaving; the others are sent as 0 and ignored
//!      6  8       cluster, a number that speakers of one cluster share
//!     14  8       incarnation, larger for each later process of the node
//!     22  8       sequence, larger for each later datagram of the process
//!     30  1 + n   length and octets of the node's name, 1 to 253, UTF-8
//!         1 + 6m  number and octets of the hardware addresses it announces with, at most 16
//! ```
//!
//! Numbers are big-endian. A datagram ends where its last field ends; longer or shorter ones are malformed. Not
//! authenticated: who can send to the port can keep a dead node alive. Owns the octets, never the meaning.

use std::collections::BTreeSet;

use api_model::NodeName;

use crate::Ignored;

#[cfg(test)]
mod tests;

/// Longest datagram.
pub const MAX_BYTES: usize = 30 + 1 + MAX_NAME_BYTES + 1 + 6 * MAX_MACS;
/// Hardware addresses in a datagram; a node with more tells the first ones.
pub const MAX_MACS: usize = 16;
/// A node's name is a DNS subdomain (RFC 1123).
const MAX_NAME_BYTES: usize = 253;
const MAGIC: [u8; 4] = *b"RSHB";
const VERSION: u8 = 1;
const LEAVING: u8 = 0x01;

/// An Ethernet address as it is on the wire.
pub type MacOctets = [u8; 6];

/// One heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Who sends.
    pub node: NodeName,
    /// Number of the cluster.
    pub cluster: u64,
    /// Number of the process.
    pub incarnation: u64,
    /// Number of the datagram.
    pub sequence: u64,
    /// The last heartbeat: the sender shuts down.
    pub leaving: bool,
    /// Hardware addresses that the sender announces with.
    pub macs: BTreeSet<MacOctets>,
}

impl Heartbeat {
    /// The datagram. A name longer than 253 octets is cut (Kubernetes has none), and addresses beyond 16 are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MAX_BYTES);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, if self.leaving { LEAVING } else { 0 }]);
        for number in [self.cluster, self.incarnation, self.sequence] {
            bytes.extend(number.to_be_bytes());
        }
        let name = self.node.as_str().as_bytes();
        let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
        bytes.push(u8::try_from(name.len()).expect("at most 253"));
        bytes.extend(name);
        let macs = self.macs.len().min(MAX_MACS);
        bytes.push(u8::try_from(macs).expect("at most 16"));
        bytes.extend(self.macs.iter().take(macs).flatten());
        bytes
    }

    /// Reads a datagram. Errors: [`Ignored::Malformed`] and [`Ignored::Version`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Ignored> {
        let mut reader = Reader(bytes);
        if reader.array()? != MAGIC {
            return Err(Ignored::Malformed);
        }
        let [version, flags] = reader.array()?;
        if version != VERSION {
            return Err(Ignored::Version);
        }
        let mut number = || reader.array().map(u64::from_be_bytes);
        let (cluster, incarnation, sequence) = (number()?, number()?, number()?);
        let name = reader.counted(1, MAX_NAME_BYTES)?;
        let name = std::str::from_utf8(name).map_err(|_| Ignored::Malformed)?;
        let macs = reader.counted(6, MAX_MACS)?;
        if name.is_empty() || !reader.0.is_empty() {
            return Err(Ignored::Malformed);
        }
        Ok(Self {
            node: name.into(),
            cluster,
            incarnation,
            sequence,
            leaving: flags & LEAVING != 0,
            macs: macs
                .chunks_exact(6)
                .filter_map(|mac| mac.try_into().ok())
                .collect(),
        })
    }
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Ignored> {
        let (array, rest) = self.0.split_first_chunk::<N>().ok_or(Ignored::Malformed)?;
        self.0 = rest;
        Ok(*array)
    }

    /// A count of at most `most`, then that many items of `size` octets.
    fn counted(&mut self, size: usize, most: usize) -> Result<&'a [u8], Ignored> {
        let [count] = self.array()?;
        let count = usize::from(count);
        if count > most {
            return Err(Ignored::Malformed);
        }
        let (items, rest) = self
            .0
            .split_at_checked(count * size)
            .ok_or(Ignored::Malformed)?;
        self.0 = rest;
        Ok(items)
    }
}
