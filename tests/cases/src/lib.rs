//! Being built.
#![forbid(unsafe_code)]
