//! Writes past the page cache.
//!
//! What is appended is synced at once and seldom read again, so the page cache costs copies and bookkeeping and gives
//! nothing: measured on ext4, a batch of 1 KiB and its sync take half the system's time without it, and one of 1 MB a third.
//! A direct write takes whole blocks of memory and of the file, both aligned; this file makes them of what is written.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where direct writes begin and end, in memory and in files: no file system and no disk in use wants more.
pub(super) const BLOCK: usize = 4096;
/// The most that one call writes. Memory is taken only as far as batches fill it.
const PIECE: usize = 4 << 20;

/// What writes past the page cache in one folder: one file at a time, and one call at a time.
#[derive(Debug)]
pub(super) struct DirectWriter {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    memory: AlignedMemory,
    /// The file that was written last: nearly always it is written next, too.
    open: Option<Open>,
    /// The file system has no direct writes.
    unsupported: bool,
}

/// A file that is open for direct writes.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    file: File,
    /// Where the last write ended within a block: the block's offset, and what it holds up to that end.
    tail: Option<(u64, Vec<u8>)>,
}

/// Bytes of which the first lies at a multiple of [`BLOCK`].
#[derive(Debug)]
pub(super) struct AlignedMemory {
    bytes: Vec<u8>,
    start: usize,
}

impl AlignedMemory {
    /// Zeros.
    pub(super) fn new(size: usize) -> Self {
        // Of zeros that the system gives, only those that are used take memory.
        let mut bytes = vec![0; size + BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        bytes.truncate(start + size);
        Self { bytes, start }
    }

    /// The first `length` bytes, or all if there are fewer.
    pub(super) fn get(&self, length: usize) -> &[u8] {
        let rest = self.bytes.get(self.start..).unwrap_or_default();
        rest.get(..length).unwrap_or(rest)
    }

    fn put(&mut self, at: usize, data: &[u8]) {
        let at = self.start + at;
        if let Some(target) = self.bytes.get_mut(at..at + data.len()) {
            target.copy_from_slice(data);
        }
    }

    fn zero(&mut self, from: usize, to: usize) {
        if let Some(target) = self.bytes.get_mut(self.start + from..self.start + to) {
            target.fill(0);
        }
    }
}

impl DirectWriter {
    pub(super) fn new() -> Self {
        let state = State { memory: AlignedMemory::new(PIECE), open: None, unsupported: false };
        Self { state: Mutex::new(state) }
    }

    /// Writes the buffers, one behind the other, from `offset` of the file at `path`; what is behind them in their last block
    /// becomes zero. `file` is the same file, for reading. `false`: nothing was written, because the file system has
    /// no direct writes.
    ///
    /// # Errors
    /// What the system says; then any part may have been written.
    pub(super) fn write_at(
        &self,
        path: &Path,
        file: &File,
        offset: u64,
        buffers: &[IoSlice<'_>],
    ) -> io::Result<bool> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { memory, open, unsupported } = &mut *state;
        if *unsupported {
            return Ok(false);
        }
        if open.as_ref().is_none_or(|open| open.path != path) {
            // Closed before the next is opened, so that the one that is written is all that is open.
            *open = None;
            match open_direct(path)? {
                Some(file) => *open = Some(Open { path: path.to_owned(), file, tail: None }),
                None => *unsupported = true,
            }
        }
        let Some(open) = open else { return Ok(false) };
        match open.write(memory, file, offset, buffers) {
            // The file system wants larger blocks, and says so before it writes anything.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                *unsupported = true;
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// The file at `path` is another one from now on, or none.
    pub(super) fn forget(&self, path: &Path) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.open = state.open.take().filter(|open| open.path != path);
    }
}

impl Open {
    fn write(
        &mut self,
        memory: &mut AlignedMemory,
        file: &File,
        offset: u64,
        buffers: &[IoSlice<'_>],
    ) -> io::Result<()> {
        let into_block = usize::try_from(offset % BLOCK as u64).unwrap_or(0);
        let mut at = offset - into_block as u64;
        self.fill_head(memory, file, at, into_block)?;
        let mut filled = into_block;
        for buffer in buffers {
            let mut rest: &[u8] = buffer;
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(PIECE - filled));
                memory.put(filled, now);
                filled += now.len();
                rest = later;
                if filled == PIECE {
                    write_blocks(&self.file, memory.get(PIECE), at)?;
                    at += PIECE as u64;
                    filled = 0;
                }
            }
        }
        let whole = filled.next_multiple_of(BLOCK);
        memory.zero(filled, whole);
        write_blocks(&self.file, memory.get(whole), at)?;
        let last_block = filled - filled % BLOCK;
        let tail = memory.get(filled).get(last_block..).filter(|tail| !tail.is_empty());
        self.tail = tail.map(|tail| (at + last_block as u64, tail.to_vec()));
        Ok(())
    }

    /// Puts what the block at `at` holds up to `length` into the memory. A failed write leaves nothing known of the last block.
    fn fill_head(
        &mut self,
        memory: &mut AlignedMemory,
        file: &File,
        at: u64,
        length: usize,
    ) -> io::Result<()> {
        let known = self.tail.take().filter(|(block, tail)| *block == at && tail.len() >= length);
        let mut head = known.map(|(_, tail)| tail).unwrap_or_default();
        if head.len() < length {
            head = vec![0; length];
            file.read_exact_at(&mut head, at)?;
        }
        memory.put(0, head.get(..length).unwrap_or_default());
        Ok(())
    }
}

/// Opens a file for direct writes; `None` where the file system has none.
pub(super) fn open_direct(path: &Path) -> io::Result<Option<File>> {
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).map_err(io::Error::other)?;
    match OpenOptions::new().write(true).custom_flags(direct).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes whole blocks. The system may take a part of them only; it goes on at the last block's beginning.
pub(super) fn write_blocks(file: &File, mut blocks: &[u8], mut at: u64) -> io::Result<()> {
    while !blocks.is_empty() {
        let written = match file.write_at(blocks, at) {
            Ok(written) => written - written % BLOCK,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        at += written as u64;
        blocks = blocks.get(written..).unwrap_or_default();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 64 << 10;

    #[test]
    fn aligned_memory_is_as_long_as_it_was_made() {
        for size in [BLOCK, 1 << 20] {
            let memory = AlignedMemory::new(size);
            assert_eq!(memory.get(usize::MAX).len(), size);
            assert_eq!(memory.get(1).as_ptr().align_offset(BLOCK), 0);
        }
    }

    /// Two files of zeros in a new folder.
    fn files(folder: &Path) -> [(PathBuf, File); 2] {
        ["one", "two"].map(|name| {
            let path = folder.join(name);
            std::fs::write(&path, vec![0; SIZE]).unwrap();
            let file = File::open(&path).unwrap();
            (path, file)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

        /// Appending piece by piece to two files in turn gives what was written, and zeros up to the end of the block.
        #[test]
        fn what_was_written_is_there(
            writes in prop::collection::vec((any::<bool>(), 1_usize..6000, 1_u8.., any::<bool>()), 1..30),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let (files, direct) = (files(folder.path()), DirectWriter::new());
            let (mut expected, mut ends) = ([vec![0; SIZE], vec![0; SIZE]], [0, 0]);
            for (second, length, byte, again) in writes {
                let which = usize::from(second);
                let (path, file) = &files[which];
                let at: usize = ends[which];
                let data = vec![byte; length.min(SIZE - at)];
                let (front, back) = data.split_at(data.len() / 2);
                let buffers = [IoSlice::new(front), IoSlice::new(&[]), IoSlice::new(back)];
                if !direct.write_at(path, file, at as u64, &buffers).unwrap() {
                    return Ok(());
                }
                let end = at + data.len();
                expected[which][at..end].copy_from_slice(&data);
                expected[which][end..end.next_multiple_of(BLOCK)].fill(0);
                prop_assert!(std::fs::read(path).unwrap() == expected[which], "{length} bytes at {at}");
                // A mark is written where the next write begins.
                ends[which] = if again { at } else { end };
            }
        }
    }

    #[test]
    fn what_is_larger_than_a_piece_is_written_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (path, direct) = (folder.path().join("large"), DirectWriter::new());
        let data: Vec<u8> = (0..PIECE + 5000).map(|at| u8::try_from(at % 251).unwrap()).collect();
        std::fs::write(&path, vec![0; (data.len() + 100).next_multiple_of(BLOCK)]).unwrap();
        let file = File::open(&path).unwrap();
        if direct.write_at(&path, &file, 100, &[IoSlice::new(&data)]).unwrap() {
            assert!(std::fs::read(&path).unwrap()[100..100 + data.len()] == data);
        }
    }

    #[test]
    fn a_file_that_takes_the_place_of_another_is_the_one_written() {
        let folder = tempfile::tempdir().unwrap();
        let direct = DirectWriter::new();
        let [(path, file), _] = files(folder.path());
        let write =
            |file: &File, byte: u8| direct.write_at(&path, file, 10, &[IoSlice::new(&[byte; 10])]).unwrap();
        write(&file, 1);
        direct.forget(&path);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, vec![7; BLOCK]).unwrap();
        if write(&File::open(&path).unwrap(), 2) {
            assert_eq!(
                std::fs::read(&path).unwrap()[..21],
                [[7; 10], [2; 10]].concat().into_iter().chain([0]).collect::<Vec<_>>()
            );
        }
    }
}
