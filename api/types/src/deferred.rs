//! Fields that are accepted before their behaviour exists.
//!
//! Owns the list, so that no field is ignored silently: whoever reads an object names these fields in its
//! `ConfigurationState` (condition `roadstead.io/AllFieldsSupported`) and in an event `FieldNotSupported` on the object.
//! A field leaves the list in the commit that builds its behaviour.

use crate::{BFDProfile, BGPAdvertisement, BGPPeer, Community, IPAddressPool, L2Advertisement};

/// A kind that can say which of its fields do nothing yet.
pub trait Deferred {
    /// Paths of the fields that are set and do nothing yet.
    fn deferred(&self) -> Vec<&'static str>;
}

/// Paths of the fields of an object that are set and do nothing yet.
pub fn deferred_fields<K: Deferred>(object: &K) -> Vec<&'static str> {
    object.deferred()
}

impl Deferred for BGPPeer {
    fn deferred(&self) -> Vec<&'static str> {
        let spec = &self.spec;
        [
            ("spec.interface", !spec.interface.is_empty()),
            ("spec.vrf", !spec.vrf.is_empty()),
            ("spec.bfdProfile", !spec.bfd_profile.is_empty()),
            (
                "spec.enableGracefulRestart",
                spec.enable_graceful_restart == Some(true),
            ),
            ("spec.disableMP", spec.disable_mp),
        ]
        .into_iter()
        .filter_map(|(path, set)| set.then_some(path))
        .collect()
    }
}

impl Deferred for BFDProfile {
    /// The whole profile: there are no BFD sessions yet.
    fn deferred(&self) -> Vec<&'static str> {
        vec!["spec"]
    }
}

/// Kinds whose every field is in force.
macro_rules! complete {
    ($($kind:ty),*) => {$(
        impl Deferred for $kind {
            fn deferred(&self) -> Vec<&'static str> {
                Vec::new()
            }
        }
    )*};
}

complete!(IPAddressPool, L2Advertisement, BGPAdvertisement, Community);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn peer(spec: &serde_json::Value) -> BGPPeer {
        serde_json::from_value(json!({"metadata": {"name": "r1"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_plain_peer_uses_nothing_that_is_not_built() {
        let plain = peer(&json!({
            "myASN": 64512, "peerASN": 64513, "peerAddress": "192.0.2.1", "holdTime": "90s",
            "ebgpMultiHop": true, "enableGracefulRestart": false,
        }));
        assert_eq!(deferred_fields(&plain), Vec::<&str>::new());
    }

    #[test]
    fn each_field_that_does_nothing_yet_is_named() {
        let all = peer(&json!({
            "interface": "eth0", "vrf": "red", "bfdProfile": "b", "enableGracefulRestart": true, "disableMP": true,
        }));
        assert_eq!(
            deferred_fields(&all),
            [
                "spec.interface",
                "spec.vrf",
                "spec.bfdProfile",
                "spec.enableGracefulRestart",
                "spec.disableMP"
            ]
        );
    }
}
