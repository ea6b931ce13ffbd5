//! Serial numbers that wrap: RFC 1982, 32 bits (part 2, section 2.8.10).

/// A 32-bit RFC 1982 serial number: transfer ids, delivery ids and delivery counts (part 2, sections 2.8.8 to 2.8.10).
///
/// It has no order of its own: which of two serial numbers comes first is only defined while they are less than
/// 2^31 apart, so the comparison is a method that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Serial(u32);

impl Serial {
    /// The serial number with this value on the wire.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The value on the wire.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number that comes `count` later, wrapping after 2^32 - 1 (RFC 1982, section 3.1).
    #[must_use]
    pub const fn plus(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }

    /// The number that comes next.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// How far `self` lies after `earlier`: negative when it lies before it (RFC 1982, section 3.2). Two numbers that
    /// are exactly 2^31 apart have no defined order; here the result is `i32::MIN`.
    #[must_use]
    #[expect(clippy::cast_possible_wrap, reason = "the sign bit is the order of two serial numbers")]
    pub const fn since(self, earlier: Self) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }

    /// Whether `self` comes before `other` (RFC 1982, section 3.2).
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        self.since(other) < 0
    }

    /// The 64-bit count whose low 32 bits are this number and that lies nearest to `reference`; 0 at the least.
    ///
    /// The engine counts in 64 bits inside, where nothing ever wraps, and meets the wire only here and in
    /// [`Serial::of`].
    #[must_use]
    pub const fn nearest(self, reference: u64) -> u64 {
        reference.saturating_add_signed(self.since(Self::of(reference)) as i64)
    }

    /// The serial number of a 64-bit count: its low 32 bits.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are the serial number")]
    pub const fn of(count: u64) -> Self {
        Self(count as u32)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wraps() {
        assert_eq!(Serial::new(u32::MAX).next(), Serial::new(0));
        assert!(Serial::new(u32::MAX).is_before(Serial::new(0)));
        assert!(!Serial::new(0).is_before(Serial::new(u32::MAX)));
        assert_eq!(Serial::new(2).since(Serial::new(u32::MAX)), 3);
    }

    proptest! {
        #![proptest_config(crate::tests::config(256))]

        #[test]
        fn nearest_undoes_of(reference in (1u64 << 32)..(1 << 60), offset in -(1i64 << 31) + 1..(1i64 << 31)) {
            let count = reference.saturating_add_signed(offset);
            prop_assert_eq!(Serial::of(count).nearest(reference), count);
        }

        #[test]
        fn order_follows_addition(start: u32, step in 1u32..(1 << 31)) {
            let serial = Serial::new(start);
            prop_assert!(serial.is_before(serial.plus(step)));
            prop_assert!(!serial.plus(step).is_before(serial));
        }
    }
}
