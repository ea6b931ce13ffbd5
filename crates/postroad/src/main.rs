//! The `postroad` binary.
fn main() {}
