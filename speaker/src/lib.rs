//! Being built.
#![deny(unsafe_code)]
