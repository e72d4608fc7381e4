//! When several Services may hold one address.
//!
//! Owns the rule: all have the same key, no protocol and port twice, and their traffic goes to the same pods where it
//! must (`externalTrafficPolicy: Local`), because the network is led to an address and not to a port of it.

use std::{collections::BTreeSet, fmt, sync::Arc};

use api_model::ServiceKey;

use crate::claim::PortUse;

/// What sharing depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sharer {
    pub(crate) ports: BTreeSet<PortUse>,
    pub(crate) sharing_key: Option<Arc<str>>,
    pub(crate) backend: Arc<str>,
}

/// Why two Services can't share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Clash {
    NoKey,
    Key,
    Backend,
    Port(PortUse),
}

impl Sharer {
    /// Whether the two may hold one address together.
    pub(crate) fn check(&self, other: &Self) -> Result<(), Clash> {
        match (&self.sharing_key, &other.sharing_key) {
            (Some(mine), Some(theirs)) if mine == theirs => {}
            (Some(_), Some(_)) => return Err(Clash::Key),
            (None, _) | (_, None) => return Err(Clash::NoKey),
        }
        if let Some(port) = self.ports.intersection(&other.ports).next() {
            return Err(Clash::Port(*port));
        }
        if self.backend != other.backend {
            return Err(Clash::Backend);
        }
        Ok(())
    }
}

impl Clash {
    /// The clash as part of a sentence about the other holder.
    pub(crate) fn with<'a>(&'a self, other: &'a ServiceKey) -> impl fmt::Display + 'a {
        struct With<'a>(&'a Clash, &'a ServiceKey);
        impl fmt::Display for With<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Self(clash, other) = self;
                match clash {
                    Clash::NoKey => write!(f, "{other} holds it and not both have a sharing key"),
                    Clash::Key => write!(f, "{other} holds it with another sharing key"),
                    Clash::Port(port) => write!(f, "{other} shares it and uses {port}"),
                    Clash::Backend => write!(
                        f,
                        "{other} shares it; with externalTrafficPolicy Local all sharers need that policy and one selector"
                    ),
                }
            }
        }
        With(self, other)
    }
}

#[cfg(test)]
mod tests {
    use api_model::{Port, Protocol};

    use super::*;

    fn sharer(key: Option<&str>, ports: &[(Protocol, u16)], backend: &str) -> Sharer {
        let port = |&(protocol, port)| PortUse {
            protocol,
            port: Port::new(port).unwrap(),
        };
        Sharer {
            ports: ports.iter().map(port).collect(),
            sharing_key: key.map(Into::into),
            backend: backend.into(),
        }
    }

    #[test]
    fn sharing_needs_key_ports_and_backend() {
        use Protocol::{Tcp, Udp};
        let dns = sharer(Some("dns"), &[(Udp, 53)], "");
        let port = PortUse {
            protocol: Udp,
            port: Port::new(53).unwrap(),
        };
        for (other, expected) in [
            (sharer(Some("dns"), &[(Tcp, 53)], ""), Ok(())),
            (sharer(Some("dns"), &[], ""), Ok(())),
            (sharer(Some("DNS"), &[(Tcp, 53)], ""), Err(Clash::Key)),
            (sharer(None, &[(Tcp, 53)], ""), Err(Clash::NoKey)),
            (
                sharer(Some("dns"), &[(Tcp, 53), (Udp, 53)], ""),
                Err(Clash::Port(port)),
            ),
            (
                sharer(Some("dns"), &[(Tcp, 53)], "app=dns"),
                Err(Clash::Backend),
            ),
        ] {
            assert_eq!(dns.check(&other), expected, "{other:?}");
            assert_eq!(
                other.check(&dns),
                expected,
                "the rule is symmetric: {other:?}"
            );
        }
    }
}
