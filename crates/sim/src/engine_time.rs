//! The wall-clock time inside the engine, worked out apart from it: it never runs back, and goes at half its pace while
//! the clock is behind (DESIGN 7.11).

use postroad_engine::Now;

/// The time inside the engine, as the checks know it. After a restart the engine's own may be earlier, never later.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineTime {
    /// Milliseconds since 1970.
    pub wall: u64,
    mono: u64,
    /// Monotonic milliseconds since the clock was set back, and the time inside the engine then.
    behind: Option<(u64, u64)>,
}

impl EngineTime {
    /// The broker is told the time.
    pub fn tell(&mut self, now: Now) {
        if now.wall >= self.wall {
            (self.wall, self.behind) = (now.wall, None);
        } else {
            let (since, from) = *self.behind.get_or_insert((self.mono, self.wall));
            self.wall = from + (now.mono - since) / 2;
        }
        self.mono = now.mono;
    }
}
