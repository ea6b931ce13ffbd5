//! Only appending and syncing.

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use postroad_journal::Event;

use crate::error::LimitError;
use crate::log::Log;

/// What to write.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// The folder of the journal; it is made.
    pub folder: PathBuf,
    /// Bytes of each message.
    pub size: usize,
    /// Messages that are synced together.
    pub batch: u32,
    /// How long.
    pub duration: Duration,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct WriterReport {
    /// Messages that were made safe.
    pub messages: u64,
    /// Syncs.
    pub syncs: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// From the append of a batch's first message to its being safe, in nanoseconds.
    pub latency: Histogram<u64>,
}

/// Writes batch after batch, each safe before the next is begun.
///
/// # Errors
/// [`LimitError::Io`] or [`LimitError::Journal`].
pub fn write(options: &WriterOptions) -> Result<WriterReport, LimitError> {
    let (sender, events) = mpsc::channel();
    // The receiver lives as long as the log.
    let mut log = Log::open(&options.folder, move |event| drop(sender.send(event)))?;
    let message = vec![b'x'; options.size];
    let mut latency = Histogram::new_with_bounds(1000, 600_000_000_000, 3).expect("the bounds are in order");
    let (start, mut messages, mut syncs) = (Instant::now(), 0, 0);
    while start.elapsed() < options.duration {
        let begun = Instant::now();
        let mut last = None;
        for _ in 0..options.batch {
            last = Some(log.append(&message)?);
        }
        log.submit()?;
        let Some(last) = last else { break };
        log.wait(last)?;
        latency.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        messages += u64::from(options.batch);
        syncs += 1;
        for event in events.try_iter() {
            if let Event::Checkpointed(checkpoint) = event {
                log.checkpointed(&checkpoint)?;
            }
        }
    }
    Ok(WriterReport { messages, syncs, seconds: start.elapsed().as_secs_f64(), latency })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let options = WriterOptions {
            folder: folder.path().to_owned(),
            size: 100,
            batch: 10,
            duration: Duration::from_millis(50),
        };
        let report = write(&options).unwrap();
        assert!(report.syncs > 0);
        assert_eq!((report.messages, report.latency.len()), (report.syncs * 10, report.syncs));
    }
}
