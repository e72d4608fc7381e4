//! The words for why a member came, went, or was not believed.

use std::fmt;

/// Gives an enum its words, one place for `as_str` and `Display`.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// The word, in CamelCase.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// Why a member counts as alive.
    UpReason {
        /// Its first heartbeat arrived.
        FirstHeartbeat,
        /// It was dead and heartbeats arrive again.
        HeartbeatsResumed,
        /// It was alive, and a new process speaks for it now.
        Restarted,
    }
}

words! {
    /// Why a member counts as dead.
    DownReason {
        /// No heartbeat for three intervals.
        HeartbeatsMissed,
        /// The start-up window passed without one.
        NeverHeard,
        /// It said that it leaves.
        Left,
        /// Its Node object is gone.
        Removed,
    }
}

words! {
    /// Why a datagram was ignored; a metric label.
    Ignored {
        /// Not a heartbeat at all (magic, length, name).
        Malformed,
        /// A version that this speaker does not know.
        Version,
        /// Another cluster's.
        Cluster,
        /// Its sender is no node of this cluster.
        Stranger,
        /// From this node itself.
        Own,
        /// Older than what was heard, or heard already.
        Stale,
    }
}
