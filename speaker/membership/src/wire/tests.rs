//! The datagram: its exact octets, every cut, every flip.

use proptest::prelude::*;

use super::*;

fn heartbeat() -> Heartbeat {
    Heartbeat {
        node: "n1".into(),
        cluster: 0x0102_0304_0506_0708,
        incarnation: 2,
        sequence: 3,
        leaving: false,
        macs: [[0, 0, 0x5e, 0, 0x53, 0x0a], [0, 0, 0x5e, 0, 0x53, 0x15]].into(),
    }
}

#[test]
fn the_octets_are_those_of_the_table() {
    let expected = [
        b"RSHB".as_slice(),
        &[1, 0],
        &[1, 2, 3, 4, 5, 6, 7, 8],
        &[0, 0, 0, 0, 0, 0, 0, 2],
        &[0, 0, 0, 0, 0, 0, 0, 3],
        &[2, b'n', b'1'],
        &[2, 0, 0, 0x5e, 0, 0x53, 0x0a, 0, 0, 0x5e, 0, 0x53, 0x15],
    ];
    assert_eq!(heartbeat().encode(), expected.concat());
}

#[test]
fn a_datagram_cut_anywhere_or_with_more_behind_it_is_malformed() {
    let bytes = heartbeat().encode();
    for length in 0..bytes.len() {
        assert_eq!(
            Heartbeat::decode(&bytes[..length]),
            Err(Ignored::Malformed),
            "cut at {length}"
        );
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(Heartbeat::decode(&longer), Err(Ignored::Malformed));
}

#[test]
fn what_is_no_heartbeat_of_version_1_is_refused() {
    // Offset, octet, reason.
    let table = [
        (0, b'X', Ignored::Malformed),
        (4, 0, Ignored::Version),
        (4, 2, Ignored::Version),
        (30, 0, Ignored::Malformed),
        (30, 3, Ignored::Malformed),
        (30, 254, Ignored::Malformed),
        (31, 0xff, Ignored::Malformed),
        (33, 1, Ignored::Malformed),
        (33, 3, Ignored::Malformed),
        (33, 17, Ignored::Malformed),
    ];
    for (offset, octet, reason) in table {
        let mut bytes = heartbeat().encode();
        bytes[offset] = octet;
        assert_eq!(
            Heartbeat::decode(&bytes),
            Err(reason),
            "octet {offset} is {octet}"
        );
    }
}

#[test]
fn the_longest_heartbeat_fits() {
    let macs: BTreeSet<_> = (0..=u8::MAX)
        .map(|last| [0, 0, 0x5e, 0, 0x53, last])
        .collect();
    let node = "n".repeat(MAX_NAME_BYTES);
    let long = Heartbeat {
        node: node.as_str().into(),
        macs: macs.clone(),
        ..heartbeat()
    };
    let bytes = long.encode();
    assert_eq!(bytes.len(), MAX_BYTES);
    let kept = macs.into_iter().take(MAX_MACS).collect();
    assert_eq!(
        Heartbeat::decode(&bytes),
        Ok(Heartbeat { macs: kept, ..long })
    );
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        node in "[a-z0-9.-]{1,253}",
        numbers in any::<[u64; 3]>(),
        leaving in any::<bool>(),
        macs in prop::collection::btree_set(any::<[u8; 6]>(), 0..=MAX_MACS),
    ) {
        let [cluster, incarnation, sequence] = numbers;
        let node = node.as_str().into();
        let heartbeat = Heartbeat { node, cluster, incarnation, sequence, leaving, macs };
        prop_assert_eq!(Heartbeat::decode(&heartbeat.encode()), Ok(heartbeat));
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(Heartbeat::decode(&bytes).is_err());
    }

    #[test]
    fn a_flipped_datagram_is_survived_and_means_what_it_says(at in 0_usize..46, bit in 0_u8..8) {
        let mut bytes = heartbeat().encode();
        bytes[at] ^= 1 << bit;
        if let Ok(read) = Heartbeat::decode(&bytes) {
            // Unknown flags and the order of addresses are all that reading forgets.
            let mut again = read.encode();
            again[5] = bytes[5];
            prop_assert_eq!(again.len(), bytes.len());
            prop_assert_eq!(&again[..34], &bytes[..34]);
        }
    }
}
