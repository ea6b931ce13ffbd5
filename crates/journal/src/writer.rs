//! The threads around a journal: one writes and syncs, one keeps segments ready (journal-format.md has what they do to files).

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::batch_writer::BatchWriter;
use crate::error::Error;
use crate::ids::{Checkpoint, Lsn};
use crate::journal::Batch;
use crate::keeper::{Keeper, Work};
use crate::segments::Segments;

/// How long the keeper waits before it tries a full disk again.
const RETRY: Duration = Duration::from_millis(500);
/// How long nothing must wait until the note is written that the last batch is synced: it takes a write of its own,
/// which the next batch, if it comes at once, need not wait for, and it makes needless.
const IDLE: Duration = Duration::from_millis(20);

/// What the threads tell the owner.
#[derive(Debug, Clone)]
pub enum Event {
    /// Every frame up to and with this one is safe on disk. Numbers only grow.
    Durable(Lsn),
    /// The checkpoint is complete; segments before it can be freed.
    Checkpointed(Checkpoint),
    /// A segment became ready: what was refused for lack of space may be tried again.
    Space,
    /// The disk is too full to make a segment ready. Look at [`Journal::space`](crate::Journal::space).
    NoSpace,
    /// A write or sync failed. Nothing is promised any more: end the process with this message.
    Failed(Arc<Error>),
}

/// Writes and syncs batches on a thread of its own, and runs the [`Keeper`] on another.
///
/// Group commit: batches that are submitted while another is being synced are written together and synced once.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    segments: Arc<Segments>,
    queue: Mutex<Queue>,
    /// Wakes the writing thread.
    submitted: Condvar,
    /// Wakes those who wait for durability.
    settled: Condvar,
    on_event: Box<dyn Fn(Event) + Send + Sync>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("queue", &self.queue).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Batch>,
    /// Bytes of what was submitted and is not yet durable.
    in_flight: usize,
    stopping: bool,
    failure: Option<Arc<Error>>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: Error) {
        self.segments.fail();
        let error = Arc::new(error);
        let mut queue = self.queue();
        let is_first = queue.failure.is_none();
        queue.failure.get_or_insert_with(|| Arc::clone(&error));
        queue.batches.clear();
        drop(queue);
        self.submitted.notify_all();
        self.settled.notify_all();
        self.segments.wake_keeper();
        if is_first {
            (self.on_event)(Event::Failed(error));
        }
    }
}

impl Writer {
    /// Starts the two threads. `on_event` is called on them, so it should only pass the event on.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(
        writer: BatchWriter,
        keeper: Keeper,
        on_event: impl Fn(Event) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            segments: Arc::clone(&keeper.segments),
            queue: Mutex::default(),
            submitted: Condvar::new(),
            settled: Condvar::new(),
            on_event: Box::new(on_event),
        });
        let mut started = Self { shared, threads: Vec::with_capacity(2) };
        let shared = Arc::clone(&started.shared);
        let threads = std::thread::Builder::new().name("journal-writer".to_owned());
        started.threads.push(threads.spawn(move || write_all(&shared, writer))?);
        let shared = Arc::clone(&started.shared);
        let threads = std::thread::Builder::new().name("journal-keeper".to_owned());
        started.threads.push(threads.spawn(move || keep(&shared, keeper))?);
        Ok(started)
    }

    /// Hands a batch over. Batches must come in the order in which they were taken from the journal.
    ///
    /// # Errors
    /// [`Error::PreviousIo`] if anything failed before.
    pub fn submit(&self, batch: Batch) -> Result<(), Error> {
        let mut queue = self.shared.queue();
        self.shared.segments.check_failed()?;
        queue.in_flight = queue.in_flight.saturating_add(batch.bytes());
        queue.batches.push_back(batch);
        drop(queue);
        self.shared.submitted.notify_one();
        Ok(())
    }

    /// Bytes of what was submitted and is not yet durable: the owner's measure for back-pressure.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.shared.queue().in_flight
    }

    /// The last frame that is safe on disk.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.shared.segments.durable()
    }

    /// The failure that ended everything, if there was one.
    #[must_use]
    pub fn failure(&self) -> Option<Arc<Error>> {
        self.shared.queue().failure.clone()
    }

    /// Waits until a frame that was submitted is safe on disk. For tools and tests; a broker listens to events.
    ///
    /// # Errors
    /// [`Error::PreviousIo`] if something failed before that; [`failure`](Self::failure) says what.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<(), Error> {
        let mut queue = self.shared.queue();
        while self.durable() < lsn {
            if queue.failure.is_some() {
                return Err(Error::PreviousIo);
            }
            queue = self.shared.settled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Waits until there is a segment ready for a frame with this many bytes of payload, and says whether there is
    /// (`false`: the disk is too full). For tools and tests; a broker listens to events.
    ///
    /// # Errors
    /// [`Error::PreviousIo`] if something failed.
    pub fn wait_space(&self, payload: u32) -> Result<bool, Error> {
        let needed = crate::journal::segment_size_for(u64::from(payload));
        let mut queue = self.shared.queue();
        loop {
            if queue.failure.is_some() {
                return Err(Error::PreviousIo);
            }
            let mut table = self.shared.segments.table();
            if table.ready.iter().any(|file| file.size >= needed) {
                return Ok(true);
            }
            if table.full {
                return Ok(false);
            }
            table.wanted = table.wanted.max(Some(needed));
            drop(table);
            self.shared.segments.wake_keeper();
            queue = self.shared.settled.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes and syncs what was submitted, and ends the threads. A checkpoint whose completion was not announced may be left
    /// undone.
    ///
    /// # Errors
    /// [`Error::PreviousIo`] if something failed, before or in this call.
    pub fn stop(mut self) -> Result<(), Error> {
        self.end_threads();
        self.shared.segments.check_failed()
    }

    fn end_threads(&mut self) {
        self.shared.queue().stopping = true;
        self.shared.submitted.notify_all();
        self.shared.segments.table().stopping = true;
        self.shared.segments.wake_keeper();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                // It has panicked: whatever it was doing is in doubt.
                self.shared.segments.fail();
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end_threads();
    }
}

/// What the writing thread does next.
enum Next {
    /// Batches wait.
    Write,
    /// Nothing came for [`IDLE`].
    Mark,
    /// There will be nothing more.
    End,
}

/// The writing thread: whatever waits is one write and one sync.
fn write_all(shared: &Shared, mut writer: BatchWriter) {
    let mut batches = Vec::new();
    let mut marked = true;
    loop {
        let done = match next_batches(shared, &mut batches, marked) {
            Next::Write => {
                marked = false;
                write_and_sync(shared, &mut writer, &batches)
            }
            Next::Mark => {
                marked = true;
                writer.mark_tail()
            }
            Next::End => break,
        };
        if let Err(error) = done {
            return shared.fail(error);
        }
        batches.clear();
    }
    if !marked
        && shared.segments.check_failed().is_ok()
        && let Err(error) = writer.mark_tail()
    {
        shared.fail(error);
    }
}

/// Waits for batches; where the last is not `marked`, not for longer than [`IDLE`].
fn next_batches(shared: &Shared, batches: &mut Vec<Batch>, marked: bool) -> Next {
    let mut queue = shared.queue();
    loop {
        if queue.failure.is_some() {
            return Next::End;
        }
        if !queue.batches.is_empty() {
            batches.extend(queue.batches.drain(..));
            return Next::Write;
        }
        if queue.stopping {
            return Next::End;
        }
        if marked {
            queue = shared.submitted.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let waited = shared.submitted.wait_timeout(queue, IDLE).unwrap_or_else(PoisonError::into_inner);
        queue = waited.0;
        if waited.1.timed_out() && queue.batches.is_empty() && !queue.stopping {
            return Next::Mark;
        }
    }
}

fn write_and_sync(shared: &Shared, writer: &mut BatchWriter, batches: &[Batch]) -> Result<(), Error> {
    writer.write(batches)?;
    let durable = writer.sync()?;
    (shared.on_event)(Event::Durable(durable));
    let mut queue = shared.queue();
    let bytes: usize = batches.iter().map(Batch::bytes).sum();
    queue.in_flight = queue.in_flight.saturating_sub(bytes);
    drop(queue);
    shared.settled.notify_all();
    Ok(())
}

/// The keeping thread.
fn keep(shared: &Shared, mut keeper: Keeper) {
    let mut was_full = false;
    loop {
        match keeper.work() {
            Ok(Work::Nothing) => {
                if !pause(shared, false) {
                    return;
                }
            }
            Ok(Work::NoSpace) => {
                if !was_full {
                    (shared.on_event)(Event::NoSpace);
                }
                was_full = true;
                notify_settled(shared);
                if !pause(shared, true) {
                    return;
                }
            }
            Ok(Work::Ready) => {
                was_full = false;
                notify_settled(shared);
                (shared.on_event)(Event::Space);
            }
            Ok(Work::Removed(_) | Work::Noted(_)) => {}
            Ok(Work::Checkpointed(checkpoint)) => (shared.on_event)(Event::Checkpointed(checkpoint)),
            Err(Error::PreviousIo) => return,
            Err(error) => return shared.fail(error),
        }
    }
}

/// Those who wait look at the table between taking the queue's lock and sleeping, so the lock orders their look with this.
fn notify_settled(shared: &Shared) {
    drop(shared.queue());
    shared.settled.notify_all();
}

/// Sleeps until there may be work, or until it is time to try a full disk again. `false`: there will be none.
fn pause(shared: &Shared, full: bool) -> bool {
    let segments = &shared.segments;
    let mut table = segments.table();
    let may_create = !full && table.size_to_create(&segments.options).is_some();
    let durable = segments.durable();
    let is_due = table.due_checkpoint(durable).is_some()
        || table.to_note(durable).is_some()
        || !table.freed.is_empty()
        || may_create;
    if !is_due && !table.stopping && !segments.has_failed() {
        table = segments.wait(table, full.then_some(RETRY));
    }
    !table.stopping && !segments.has_failed()
}
