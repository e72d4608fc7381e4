//! The `roadstead` program.
#![forbid(unsafe_code)]

fn main() {}
