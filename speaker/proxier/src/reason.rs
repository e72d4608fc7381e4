//! Why something of a Service is not as its object asks: one word per cause.
//!
//! Owns the words; never decides. The same word appears in logs, events, conditions and metrics.

use std::fmt;

use api_model::ServiceKey;

/// The word for a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Another Service holds this address, protocol and port.
    FrontendTaken,
    /// More endpoints than one slot set can hold; the first ones serve.
    TooManyEndpoints,
    /// No number left for a further Service port.
    IdsExhausted,
    /// No number left for a further (slot count, affinity timeout).
    AffinityClassesExhausted,
    /// The affinity timeout is outside 1–86,400 s and was clamped.
    AffinityTimeoutClamped,
    /// A source range cannot be read; the address is closed to all but the readable ones.
    BadSourceRange,
    /// An address of the Service cannot be read and was left out.
    BadAddress,
    /// A port of the Service cannot be read and was left out.
    BadPort,
    /// An EndpointSlice cannot be read; the readable part of it serves.
    BadSlice,
    /// The kernel refused the elements of this Service.
    KernelRefused,
    /// The health check node port is held by another process.
    HealthCheckPortTaken,
}

impl Reason {
    /// The word itself, CamelCase.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::FrontendTaken => "FrontendTaken",
            Self::TooManyEndpoints => "TooManyEndpoints",
            Self::IdsExhausted => "IdsExhausted",
            Self::AffinityClassesExhausted => "AffinityClassesExhausted",
            Self::AffinityTimeoutClamped => "AffinityTimeoutClamped",
            Self::BadSourceRange => "BadSourceRange",
            Self::BadAddress => "BadAddress",
            Self::BadPort => "BadPort",
            Self::BadSlice => "BadSlice",
            Self::KernelRefused => "KernelRefused",
            Self::HealthCheckPortTaken => "HealthCheckPortTaken",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One thing of one Service that is not as asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The Service.
    pub service: ServiceKey,
    /// The word.
    pub reason: Reason,
    /// What exactly, where, and what to do; for people.
    pub detail: String,
}

impl Refusal {
    /// A refusal with its detail.
    pub fn new(service: &ServiceKey, reason: Reason, detail: String) -> Self {
        Self {
            service: service.clone(),
            reason,
            detail,
        }
    }
}
