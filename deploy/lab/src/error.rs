//! What went wrong in the lab: what was being done, and why it failed.

/// A failed step of the lab.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub struct Error {
    doing: String,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Error {
    /// A failure with a cause that is only words: what was expected, what was there.
    pub fn because(doing: impl Into<String>, cause: impl Into<String>) -> Self {
        Self {
            doing: doing.into(),
            source: cause.into().into(),
        }
    }
}

/// Result of the lab's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what was being done when an error came up.
pub trait Doing<T> {
    /// The error, with what was being done before it.
    fn doing(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error {
            doing: what.into(),
            source: source.into(),
        })
    }
}
