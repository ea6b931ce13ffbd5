//! When what happens, and how everybody knows.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::super::failure::Failure;

/// Who takes part, and for how long.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) producers: u32,
    pub(super) consumers: u32,
    pub(super) addresses: u32,
    pub(super) topic: bool,
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
}

/// One run.
#[derive(Debug)]
pub(super) struct Plan {
    shape: Shape,
    threads: u32,
    /// Distinguishes this run's messages from older ones.
    pub(super) run: u64,
    consumers_ready: AtomicU32,
    ready: AtomicU32,
    began: OnceLock<Instant>,
    aborted: AtomicBool,
    changed: Notify,
    /// Messages sent so far, of all producers.
    sent: AtomicU64,
    received: AtomicU64,
    /// Producers that have stopped.
    done: AtomicU32,
}

/// Between connecting and the first message: time for the last thread to get going.
const RUN_UP: Duration = Duration::from_millis(50);

impl Plan {
    pub(super) fn new(shape: Shape, threads: u32) -> Self {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        Self {
            shape,
            threads,
            run: u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
                ^ u64::from(std::process::id()).rotate_left(48),
            consumers_ready: AtomicU32::new(0),
            ready: AtomicU32::new(0),
            began: OnceLock::new(),
            aborted: AtomicBool::new(false),
            changed: Notify::new(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            done: AtomicU32::new(0),
        }
    }

    /// Somebody has failed: nobody waits any longer.
    pub(super) fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }

    /// Waits until all threads have attached their consumers.
    pub(super) async fn wait_for_consumers(&self) -> Result<(), Failure> {
        self.consumers_ready.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
        self.until(|| self.consumers_ready.load(Ordering::SeqCst) == self.threads).await
    }

    /// Waits until all threads have attached everything; then time runs.
    pub(super) async fn start(&self) -> Result<(), Failure> {
        self.ready.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_waiters();
        self.until(|| self.ready.load(Ordering::SeqCst) == self.threads).await?;
        self.began.get_or_init(|| Instant::now() + RUN_UP);
        self.changed.notify_waiters();
        Ok(())
    }

    /// Waits until time runs: when it began.
    pub(super) async fn began(&self) -> Result<Instant, Failure> {
        self.until(|| self.began.get().is_some()).await?;
        Ok(self.start_time())
    }

    /// Waits until `reached`; a silent failure when another part has failed.
    async fn until(&self, reached: impl Fn() -> bool) -> Result<(), Failure> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_aborted() {
                return Err(Failure::silent());
            }
            if reached() {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Waits until the measured time is over, or the run has failed.
    pub(super) async fn wait_for_end(&self) {
        let (_, to) = self.measured_instants();
        let failed = self.until(|| false);
        let _ = tokio::time::timeout_at(to.into(), failed).await;
    }

    pub(super) fn start_time(&self) -> Instant {
        self.began.get().copied().unwrap_or_else(Instant::now)
    }

    /// Nanoseconds since the start.
    pub(super) fn now(&self) -> u64 {
        nanos(self.start_time().elapsed())
    }

    /// When measuring begins and ends, in nanoseconds since the start.
    pub(super) fn measured(&self) -> (u64, u64) {
        (nanos(self.shape.warmup), nanos(self.shape.warmup + self.shape.duration))
    }

    /// When measuring begins, as an instant, and when it ends.
    pub(super) fn measured_instants(&self) -> (Instant, Instant) {
        let from = self.start_time() + self.shape.warmup;
        (from, from + self.shape.duration)
    }

    pub(super) fn add_sent(&self, count: u64) {
        self.sent.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn add_received(&self, count: u64) {
        self.received.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn producer_done(&self) {
        self.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether nothing more is sent.
    pub(super) fn is_sent(&self) -> bool {
        match self.shape.producers {
            // What there was before is received until the time is over.
            0 => self.now() >= self.measured().1,
            producers => self.done.load(Ordering::SeqCst) == producers,
        }
    }

    /// Whether everything that was sent has been received.
    pub(super) fn is_complete(&self) -> bool {
        let copies = match (self.shape.consumers, self.shape.topic) {
            (0, _) => 0,
            (consumers, true) => u64::from(consumers / self.shape.addresses),
            (_, false) => 1,
        };
        self.is_sent() && self.received.load(Ordering::SeqCst) >= self.sent.load(Ordering::SeqCst) * copies
    }

    /// Messages sent and received so far.
    pub(super) fn progress(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
