//! Batches to disk: one write and one sync for everything that waits (journal-format.md, "Chunks, batches and marks").

use std::io::IoSlice;
use std::sync::Arc;

use crate::error::{Error, Operation};
use crate::frame::{MARK_SIZE, Mark};
use crate::ids::{Lsn, SegmentNumber};
use crate::journal::{Batch, Chunk};
use crate::segment::{HEADER_BLOCK, SegmentHeader};
use crate::segments::{Segment, Segments};

/// The generation of a mark that stands in a segment before its first use.
const NO_SEGMENT: SegmentNumber = SegmentNumber(0);

/// Writes batches and syncs them, when told. There is one for a journal.
///
/// After any error every later call gives [`Error::PreviousIo`].
#[derive(Debug)]
pub struct BatchWriter {
    segments: Arc<Segments>,
    /// Segments with writes that are not synced.
    unsynced: Vec<Arc<Segment>>,
    written: Lsn,
    /// Where the next chunk will begin, if it goes into the same segment.
    tail: Option<(Arc<Segment>, u64)>,
}

impl BatchWriter {
    pub(crate) fn new(segments: Arc<Segments>) -> Self {
        let written = segments.durable();
        Self { segments, unsynced: Vec::new(), written, tail: None }
    }

    /// Writes batches, with one call to the disk for each segment that they touch. They are not safe before
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::PreviousIo`].
    ///
    /// # Panics
    /// If a batch is written out of order: what follows a hole would be lost at the next start.
    pub fn write(&mut self, batches: &[Batch]) -> Result<(), Error> {
        self.segments.check_failed()?;
        let chunks: Vec<&Chunk> = batches.iter().flat_map(|batch| &batch.chunks).collect();
        for run in chunks.chunk_by(|a, b| a.segment.number == b.segment.number) {
            self.write_run(run)?;
        }
        if let Some(last) = batches.last() {
            self.written = last.last();
        }
        Ok(())
    }

    /// Makes everything written safe, and says up to which frame.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::PreviousIo`].
    pub fn sync(&mut self) -> Result<Lsn, Error> {
        self.segments.check_failed()?;
        for segment in self.unsynced.drain(..) {
            let result = segment.file.file.sync();
            self.segments.or_fail(&segment.file.name, Operation::Sync, result)?;
        }
        if self.written > self.segments.durable() {
            self.segments.set_durable(self.written);
        }
        Ok(self.written)
    }

    /// Notes behind the last chunk that everything is synced. For when nothing waits: it is not synced itself, and the next
    /// chunk takes its place. Where there is no room behind the last chunk, or no chunk yet, the note goes to the beginning of
    /// a segment that is ready; if there is none, nothing is done.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::PreviousIo`].
    pub fn mark_tail(&mut self) -> Result<(), Error> {
        self.segments.check_failed()?;
        let synced = self.segments.durable();
        if synced < self.written || synced == Lsn(0) {
            return Ok(());
        }
        let Some((segment, tail)) = &self.tail else { return self.mark_ready(synced) };
        if tail + MARK_SIZE as u64 > segment.file.size {
            return self.mark_ready(synced);
        }
        let mark =
            Mark { generation: segment.number, next: synced.next(), synced }.encode(self.segments.mask);
        let result = segment.file.file.write_at(*tail, &[IoSlice::new(&mark)]);
        self.segments.or_fail(&segment.file.name, Operation::Write, result)
    }

    /// The note at the beginning of a ready segment, where recovery looks for it too. Should the owner have begun to fill
    /// that segment meanwhile, its first chunk is still to be written, by us, and takes the place.
    fn mark_ready(&self, synced: Lsn) -> Result<(), Error> {
        let ready =
            self.segments.table().ready.first().map(|ready| (ready.name.clone(), Arc::clone(&ready.file)));
        let Some((name, file)) = ready else { return Ok(()) };
        let mark = Mark { generation: NO_SEGMENT, next: synced.next(), synced }.encode(self.segments.mask);
        let result = file.write_at(HEADER_BLOCK, &[IoSlice::new(&mark)]);
        self.segments.or_fail(&name, Operation::Write, result)
    }

    /// Writes chunks that lie one behind the other in one segment.
    fn write_run(&mut self, run: &[&Chunk]) -> Result<(), Error> {
        let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
        self.assert_in_order(run);
        let segment = &first.segment;
        let synced = self.segments.durable();
        let mark = |chunk: &&Chunk| Mark { generation: segment.number, next: chunk.first, synced };
        let marks: Vec<_> = run.iter().map(|chunk| mark(chunk).encode(self.segments.mask)).collect();
        let header = first.opens_segment().then(|| self.header(segment).encode());
        let mut buffers: Vec<IoSlice<'_>> = Vec::with_capacity(1 + 2 * run.len());
        buffers.extend(header.as_deref().map(IoSlice::new));
        for (mark, chunk) in marks.iter().zip(run) {
            buffers.extend([IoSlice::new(mark), IoSlice::new(&chunk.frames)]);
        }
        let offset = if header.is_some() { 0 } else { first.offset };
        let result = segment.file.file.write_at(offset, &buffers);
        self.segments.or_fail(&segment.file.name, Operation::Write, result)?;
        if self.unsynced.last().is_none_or(|unsynced| unsynced.number != segment.number) {
            self.unsynced.push(Arc::clone(segment));
        }
        self.tail = Some((Arc::clone(segment), last.end()));
        Ok(())
    }

    /// The owner may hand batches over in the wrong order only by a mistake in its program.
    fn assert_in_order(&self, run: &[&Chunk]) {
        let mut tail = self.tail.as_ref().map(|(segment, tail)| (segment.number, *tail));
        for chunk in run {
            let follows = match tail {
                Some((number, end)) if number == chunk.segment.number => chunk.offset == end,
                Some((number, _)) => chunk.segment.number > number && chunk.offset == HEADER_BLOCK,
                None => chunk.offset == HEADER_BLOCK,
            };
            assert!(follows, "batches are written in the order in which they were taken");
            tail = Some((chunk.segment.number, chunk.end()));
        }
    }

    fn header(&self, segment: &Segment) -> SegmentHeader {
        SegmentHeader {
            number: segment.number,
            size: segment.file.size,
            id: self.segments.id,
            first: segment.first,
        }
    }
}
