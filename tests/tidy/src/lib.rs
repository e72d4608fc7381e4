//! What the tidiness checks look at: the workspace as cargo sees it, and the files as git tracks them.
//!
//! Owns reading; the rules themselves are the tests in `tests/`. Never changes a file.
#![forbid(unsafe_code)]

pub mod licence;
pub mod source;
pub mod workspace;
