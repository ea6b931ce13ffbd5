//! What was counted and measured.

use hdrhistogram::Histogram;

/// The longest latency that is told apart, in nanoseconds: ten minutes.
const LONGEST: u64 = 600_000_000_000;

/// Counts and latencies of the measured time.
#[derive(Debug)]
pub(super) struct Tally {
    /// Messages that were sent, and, unless sent settled, confirmed within the measured time.
    pub(super) sent: u64,
    pub(super) received: u64,
    /// All messages of the run, warm-up included.
    pub(super) sent_in_all: u64,
    pub(super) received_in_all: u64,
    /// Outcomes other than accepted.
    pub(super) refused: u64,
    /// Messages of older runs.
    pub(super) strange: u64,
    /// When the last confirm came, and the last message, in nanoseconds since the start.
    pub(super) last_confirm: u64,
    pub(super) last_receipt: u64,
    /// From when a message was due to when it was received, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// From when a message was due to when it was confirmed, in nanoseconds.
    pub(super) confirm: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let histogram = || Histogram::new_with_bounds(1000, LONGEST, 3).expect("the bounds are in order");
        Self {
            sent: 0,
            received: 0,
            sent_in_all: 0,
            received_in_all: 0,
            refused: 0,
            strange: 0,
            last_confirm: 0,
            last_receipt: 0,
            latency: histogram(),
            confirm: histogram(),
        }
    }
}

impl Tally {
    pub(super) fn merge(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.sent_in_all += other.sent_in_all;
        self.received_in_all += other.received_in_all;
        self.refused += other.refused;
        self.strange += other.strange;
        self.last_confirm = self.last_confirm.max(other.last_confirm);
        self.last_receipt = self.last_receipt.max(other.last_receipt);
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        self.confirm.add(&other.confirm).expect("all histograms have the same bounds");
    }

    pub(super) fn record_latency(&mut self, nanos: u64) {
        self.latency.saturating_record(nanos);
    }

    pub(super) fn record_confirm(&mut self, nanos: u64) {
        self.confirm.saturating_record(nanos);
    }
}
