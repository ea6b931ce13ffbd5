//! Time on a connection: who was heard or heard from when (part 2, section 2.4.5).

use crate::error::PeerMisbehaved;

/// How long the peer's close frame is waited for after ours, in milliseconds (part 2, section 2.4.3).
const CLOSE_GRACE_MS: u64 = 5_000;

/// The times that a connection goes by, all in milliseconds of the caller's clock.
#[derive(Debug)]
pub(crate) struct Clock {
    now: u64,
    started: u64,
    last_input: u64,
    last_output: u64,
    /// What was left of the input last time: more than that is news from the peer.
    left_over: usize,
    /// When we sent our close frame.
    closing: Option<u64>,
    /// After how long a silence the peer is given up.
    idle_timeout: Option<u32>,
    /// Within how long the peer must have opened.
    open_timeout: Option<u32>,
    /// How often the peer must hear from us.
    beat: Option<u64>,
}

impl Clock {
    pub(crate) const fn new(now: u64, idle_timeout: Option<u32>, open_timeout: Option<u32>) -> Self {
        Self {
            now,
            started: now,
            last_input: now,
            last_output: now,
            left_over: 0,
            closing: None,
            idle_timeout,
            open_timeout,
            beat: None,
        }
    }

    /// It is `now`, or later if that was said before.
    pub(crate) fn tick(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// There are `len` bytes of input.
    pub(crate) fn input(&mut self, now: u64, len: usize) {
        self.tick(now);
        if len != self.left_over {
            self.last_input = self.now;
        }
    }

    pub(crate) const fn left_over(&mut self, len: usize) {
        self.left_over = len;
    }

    /// Something was written.
    pub(crate) const fn output(&mut self) {
        self.last_output = self.now;
    }

    /// The close frame was written.
    pub(crate) const fn closing(&mut self) {
        self.closing = Some(self.now);
    }

    /// The peer gives us up after this silence: we speak twice as often. 0 and `None` mean never.
    pub(crate) fn beat_for(&mut self, timeout_ms: Option<u32>) {
        self.beat = timeout_ms.filter(|ms| *ms > 0).map(|ms| u64::from(ms / 2).max(1));
    }

    pub(crate) fn is_close_due(&self) -> bool {
        self.closing.is_some_and(|since| self.now >= since.saturating_add(CLOSE_GRACE_MS))
    }

    pub(crate) fn is_beat_due(&self) -> bool {
        self.beat.is_some_and(|beat| self.now >= self.last_output.saturating_add(beat))
    }

    /// The time limit that the peer has passed.
    pub(crate) fn fault(&self, remote_open: bool) -> Option<PeerMisbehaved> {
        let passed = |since: u64, ms: u32| self.now >= since.saturating_add(ms.into());
        if self.closing.is_some() {
            return None;
        }
        let late = self.open_timeout.filter(|ms| !remote_open && passed(self.started, *ms));
        let silent = self.idle_timeout.filter(|ms| passed(self.last_input, *ms));
        let late = late.map(|ms| PeerMisbehaved::NotOpenedInTime { ms });
        late.or_else(|| silent.map(|ms| PeerMisbehaved::Silent { ms }))
    }

    pub(crate) fn next_deadline(&self, local_open: bool, remote_open: bool) -> Option<u64> {
        if let Some(since) = self.closing {
            return Some(since.saturating_add(CLOSE_GRACE_MS));
        }
        let open =
            self.open_timeout.filter(|_| !remote_open).map(|ms| self.started.saturating_add(ms.into()));
        let silence = self.idle_timeout.map(|ms| self.last_input.saturating_add(ms.into()));
        let beat = self.beat.filter(|_| local_open).map(|beat| self.last_output.saturating_add(beat));
        [open, silence, beat].into_iter().flatten().min()
    }
}
