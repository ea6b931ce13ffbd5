//! Numbers of connections: dense, so that what belongs to one is found by an index, and never the same twice, so that
//! what comes late for one that is gone is not taken for its successor.

use postroad_engine::ConnId;

/// Bits of a number that are its place.
const PLACE_BITS: u32 = 32;

/// Gives out numbers of connections: the place in the lower half, how often the place was used before in the upper.
#[derive(Debug, Default)]
pub struct ConnIds {
    free: Vec<u32>,
    /// How often each place was given out.
    used: Vec<u32>,
}

impl ConnIds {
    /// A number for a new connection.
    ///
    /// # Panics
    /// With 2^32 connections at once, which no machine has the memory for.
    pub fn take(&mut self) -> ConnId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.used.push(0);
            u32::try_from(self.used.len() - 1).expect("there are never 2^32 connections at once")
        });
        let used = self.used.get(place as usize).copied().unwrap_or_default();
        ConnId(u64::from(used) << PLACE_BITS | u64::from(place))
    }

    /// A connection is over, and the shell has been told so or will be before it hears of another one.
    pub fn give_back(&mut self, conn: ConnId) {
        let place = place_of(conn);
        let Some(used) = self.used.get_mut(place as usize) else { return };
        // A place that was used 2^32 times is not used again, so that no number comes twice.
        if let Some(next) = used.checked_add(1) {
            *used = next;
            self.free.push(place);
        }
    }
}

/// The place in a table of connections.
pub(crate) const fn place_of(conn: ConnId) -> u32 {
    let [a, b, c, d, ..] = conn.0.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
