//! Names of objects: Services, nodes, pools.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::ParseWordError;

/// Namespace and name of a Service, written `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceKey {
    /// Namespace of the Service.
    pub namespace: Arc<str>,
    /// Name of the Service inside its namespace.
    pub name: Arc<str>,
}

impl ServiceKey {
    /// A key from its two parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ServiceKey {
    type Err = ParseWordError;

    /// Reads `namespace/name`; both parts must be there and not empty.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name))
                if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
            {
                Ok(Self::new(namespace, name))
            }
            _ => Err(ParseWordError::new("namespace/name", text)),
        }
    }
}

/// Makes a newtype over a shared string.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name! {
    /// Name of a Node object.
    NodeName
}
name! {
    /// Name of an `IPAddressPool`.
    PoolName
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_key_reads_what_it_writes() {
        let key = ServiceKey::new("demo", "web");
        assert_eq!(key.to_string().parse::<ServiceKey>(), Ok(key));
    }

    #[test]
    fn service_key_refuses_what_has_not_two_parts() {
        for text in ["", "web", "/web", "demo/", "a/b/c"] {
            assert!(text.parse::<ServiceKey>().is_err(), "{text:?} was read");
        }
    }
}
