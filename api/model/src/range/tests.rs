//! What users write, and what is refused.

use super::*;

fn range(text: &str) -> AddressRange {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn cause(text: &str) -> RangeError {
    match AddressRange::parse_assignable(text) {
        Ok(range) => panic!("{text:?} was read as {range}"),
        Err(error) => {
            assert_eq!(error.text, text.trim(), "the text must be shown as written");
            assert!(
                error.to_string().contains(&format!("{:?}", text.trim())),
                "{error}"
            );
            error.cause
        }
    }
}

#[test]
fn both_spellings_are_read_with_blanks_and_newlines() {
    for (text, shown, len) in [
        ("192.0.2.0/28", "192.0.2.0-192.0.2.15", 16),
        ("192.0.2.5/28", "192.0.2.0-192.0.2.15", 16),
        ("192.0.2.7/32", "192.0.2.7-192.0.2.7", 1),
        ("192.0.2.6/31", "192.0.2.6-192.0.2.7", 2),
        ("192.0.2.10-192.0.2.99", "192.0.2.10-192.0.2.99", 90),
        ("203.0.113.1 - 203.0.113.9", "203.0.113.1-203.0.113.9", 9),
        (
            "203.0.113.40-203.0.113.41\n",
            "203.0.113.40-203.0.113.41",
            2,
        ),
        (
            "2001:db8:2::/64",
            "2001:db8:2::-2001:db8:2:0:ffff:ffff:ffff:ffff",
            1 << 64,
        ),
        ("2001:db8::6/127", "2001:db8::6-2001:db8::7", 2),
        ("2001:db8::5/128", "2001:db8::5-2001:db8::5", 1),
    ] {
        let range = AddressRange::parse_assignable(text).expect(text);
        assert_eq!(
            (range.to_string().as_str(), range.len()),
            (shown, len),
            "{text:?}"
        );
    }
}

#[test]
fn syntax_errors_name_the_part() {
    let address = |text: &str| RangeError::NotAnAddress(text.to_owned());
    let length = |text: &str, family| RangeError::BadPrefixLength {
        length: text.to_owned(),
        family,
    };
    for (text, expected) in [
        ("", RangeError::Empty),
        ("203.0.113", RangeError::NeitherCidrNorRange),
        ("203.0.113.5", RangeError::NeitherCidrNorRange),
        ("203.0.113.29,203.0.113.34", RangeError::NeitherCidrNorRange),
        (
            "203.0.113.240.203.0.113.250",
            RangeError::NeitherCidrNorRange,
        ),
        ("203.0.113.251-203.0.113.259", address("203.0.113.259")),
        ("203.0.113.1-", address("")),
        ("-203.0.113.9", address("")),
        ("203.0.113.1--203.0.113.9", address("-203.0.113.9")),
        ("- 2001:db8::46/128", address("- 2001:db8::46")),
        (
            "203.0.113.01-203.0.113.09",
            RangeError::LeadingZero("203.0.113.01".to_owned()),
        ),
        ("203.0.113.0/33", length("33", IpFamily::V4)),
        ("203.0.113.0/-1", length("-1", IpFamily::V4)),
        ("203.0.113.0/", length("", IpFamily::V4)),
        ("203.0.113.0/+8", length("+8", IpFamily::V4)),
        ("203.0.113.0/08", length("08", IpFamily::V4)),
        ("2001:db8::/129", length("129", IpFamily::V6)),
        ("2001:db8::1%eth0/128", RangeError::ZoneId),
    ] {
        assert_eq!(cause(text), expected, "{text:?}");
    }
}

#[test]
fn what_cannot_be_an_address_of_a_service_is_refused() {
    for text in ["0.0.0.0/0", "::/0", "0.0.0.0-255.255.255.255"] {
        assert!(
            matches!(cause(text), RangeError::WholeFamily(_)),
            "{text:?}"
        );
    }
    for (text, block) in [
        ("0.1.2.3/32", "0.0.0.0/8"),
        ("127.0.0.0/8", "127.0.0.0/8"),
        ("126.0.0.0-128.0.0.0", "127.0.0.0/8"),
        ("224.0.0.0/24", "224.0.0.0/4"),
        ("169.254.10.0/24", "169.254.0.0/16"),
        ("255.255.255.255/32", "255.255.255.255/32"),
        ("::1/128", "::1/128"),
        ("ff02::/16", "ff00::/8"),
        ("fe80::/64", "fe80::/10"),
        ("::fffe:0:0-::ffff:0:0:0", "::ffff:0:0/96"),
    ] {
        let cause = cause(text);
        assert!(
            matches!(&cause, RangeError::SpecialPurpose { block: found, .. } if *found == block),
            "{text:?}: {cause}"
        );
    }
    for text in [
        "::ffff:203.0.113.0/120",
        "::ffff:203.0.113.1-::ffff:203.0.113.9",
    ] {
        assert!(matches!(cause(text), RangeError::MappedV4(_)), "{text:?}");
    }
    assert!(matches!(
        cause("203.0.113.20-203.0.113.10"),
        RangeError::Reversed { .. }
    ));
    assert!(matches!(
        cause("203.0.113.1-2001:db8::1"),
        RangeError::MixedFamilies { .. }
    ));
}

#[test]
fn offsets_and_addresses_are_inverse() {
    for text in [
        "192.0.2.10-192.0.2.99",
        "2001:db8::/120",
        "255.255.255.250-255.255.255.254",
    ] {
        let range = range(text);
        for (offset, address) in (0..).zip(range.iter()) {
            assert_eq!(range.offset_of(address), Some(offset));
            assert_eq!(range.get(offset), Some(address));
        }
        assert_eq!(u128::try_from(range.iter().count()), Ok(range.len()));
        assert_eq!(range.get(range.len()), None);
    }
    let big = range("2001:db8::/33");
    assert_eq!(big.get(big.len() - 1), Some(big.end()));
    assert_eq!(range("192.0.2.0/24").offset_of(v4(192, 0, 3, 0)), None);
    assert_eq!(range("192.0.2.0/24").offset_of(v6(0xc000_0201)), None);
}

#[test]
fn intersection_is_what_both_have() {
    let a = range("203.0.113.0/28");
    assert_eq!(
        a.intersection(&range("203.0.113.10-203.0.113.20")),
        Some(range("203.0.113.10-203.0.113.15"))
    );
    assert_eq!(a.intersection(&range("203.0.113.16-203.0.113.20")), None);
    assert_eq!(a.intersection(&range("2001:db8::/64")), None);
}

#[test]
fn prefixes_cover_exactly_the_range() {
    let text = |text: &str| -> Vec<String> {
        range(text)
            .prefixes()
            .iter()
            .map(|(address, length)| format!("{address}/{length}"))
            .collect()
    };
    assert_eq!(text("192.0.2.0/28"), ["192.0.2.0/28"]);
    assert_eq!(
        text("192.0.2.10-192.0.2.20"),
        [
            "192.0.2.10/31",
            "192.0.2.12/30",
            "192.0.2.16/30",
            "192.0.2.20/32"
        ]
    );
    assert_eq!(
        text("255.255.255.254-255.255.255.255"),
        ["255.255.255.254/31"]
    );
    assert_eq!(
        text("2001:db8::1-2001:db8::2"),
        ["2001:db8::1/128", "2001:db8::2/128"]
    );
    assert_eq!(
        text("::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff").len(),
        128
    );
}
