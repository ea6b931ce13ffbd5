//! The commented configuration that `postroad init` writes.

/// A production configuration with every common setting explained, ready to be edited.
#[must_use]
pub const fn example() -> &'static str {
    include_str!("example.toml")
}
