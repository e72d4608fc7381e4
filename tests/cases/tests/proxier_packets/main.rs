//! Acceptance cases of the proxier that need more than one network namespace, more than one node, or many Services: pods in
//! namespaces of their own behind a real kernel, announcements of three nodes, 5,000 Services.
#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` makes values; helpers take them as they come"
)]

mod announcements;
mod bench;
mod kernel;
mod scale;
mod world;
