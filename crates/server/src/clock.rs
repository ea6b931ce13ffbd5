//! The two times of a running broker (DESIGN 7.11).

use postroad_engine::Now;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Reads both clocks. Copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock whose monotonic time begins now.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Wall time and monotonic time in milliseconds.
    #[must_use]
    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { wall: millis(wall), mono: self.mono() }
    }

    /// Monotonic milliseconds since the clock was made.
    #[must_use]
    pub(crate) fn mono(&self) -> u64 {
        millis(self.start.elapsed())
    }

    /// The instant of a monotonic time, for timers.
    #[must_use]
    pub(crate) fn instant(&self, mono: u64) -> tokio::time::Instant {
        // A millisecond late rather than early: early would find nothing due and spin.
        (self.start + Duration::from_millis(mono.saturating_add(1))).into()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
