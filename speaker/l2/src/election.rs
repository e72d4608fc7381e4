//! Who of the candidates speaks for a VIP.
//!
//! Owns the choice only: rendezvous hashing (Thaler and Ravishankar 1998) over the candidates with the highest
//! preference. Never remembers a former holder (stickiness comes with the fenced membership protocol), never looks at
//! load: with V VIPs and N equal nodes a node holds about V/N, with the spread of a binomial distribution.
//!
//! The scores are part of the protocol between the speakers of a cluster: all must compute the same. A change of the
//! function needs a step in which old and new speakers agree; the golden test holds the values.

use std::{collections::BTreeMap, net::IpAddr};

use api_model::NodeName;

#[cfg(test)]
mod tests;

/// Elects the holder: the highest preference, then the highest score for this VIP, then the last name. `None` without
/// candidates. A candidate that did not win can come or go without moving the VIP; so can every VIP that a newcomer does
/// not win.
pub fn elect(vip: IpAddr, candidates: &BTreeMap<NodeName, u32>) -> Option<&NodeName> {
    candidates
        .iter()
        .max_by_key(|(name, preference)| (**preference, score(vip, name)))
        .map(|(name, _)| name)
}

/// Score of one node for one VIP: FNV-1a over the name and the address, finished with the `SplitMix64` mixer so that
/// names and addresses that differ in one digit spread.
fn score(vip: IpAddr, node: &NodeName) -> u64 {
    let mut hash = Fnv::new();
    hash.write(node.as_str().as_bytes());
    hash.write(b"#");
    match vip {
        IpAddr::V4(v4) => hash.write(&v4.octets()),
        IpAddr::V6(v6) => hash.write(&v6.octets()),
    }
    mix(hash.0)
}

struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

const fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
