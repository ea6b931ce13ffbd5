//! Messages that come in pieces: what is kept of them until they are whole, and how much that may be.

use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one chunk: what is kept grows by as many, never by doubling.
const CHUNK: usize = 256 * 1024;

/// How many bytes of unfinished messages may be kept: by one connection, or by all of a broker together. Doors share
/// one; what a message takes goes back when it is finished or given up.
#[derive(Debug)]
pub struct Staging {
    used: AtomicU64,
    limit: u64,
    /// What it takes counts here, too.
    all: Option<Arc<Self>>,
}

impl Staging {
    /// Room for `limit` bytes.
    #[must_use]
    pub const fn new(limit: u64) -> Self {
        Self { used: AtomicU64::new(0), limit, all: None }
    }

    /// Room for `limit` bytes out of that of `all`.
    #[must_use]
    pub(crate) const fn part_of(all: Arc<Self>, limit: u64) -> Self {
        Self { used: AtomicU64::new(0), limit, all: Some(all) }
    }

    /// The bytes that it has room for in all.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The bytes that are in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.limit);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return false;
        }
        let granted = self.all.as_deref().is_none_or(|all| all.take(bytes));
        if !granted {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        granted
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(all) = self.all.as_deref() {
            all.give_back(bytes);
        }
    }
}

/// The pieces of one message.
#[derive(Debug)]
pub(crate) struct Pieces {
    chunks: Vec<Vec<u8>>,
    len: usize,
    staging: Arc<Staging>,
}

impl Pieces {
    pub(crate) const fn new(staging: Arc<Staging>) -> Self {
        Self { chunks: Vec::new(), len: 0, staging }
    }

    /// Bytes so far.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a piece; false if there is no room for it, and then nothing is kept any more.
    pub(crate) fn add(&mut self, mut piece: &[u8]) -> bool {
        if !self.staging.take(piece.len() as u64) {
            self.clear();
            return false;
        }
        self.len += piece.len();
        while !piece.is_empty() {
            let room = self.chunks.last().map_or(0, |chunk| CHUNK - chunk.len());
            if room == 0 {
                // The first one grows as it needs to, since most messages are short.
                let first = self.chunks.is_empty();
                self.chunks.push(Vec::with_capacity(if first { piece.len().min(CHUNK) } else { CHUNK }));
                continue;
            }
            let (now, later) = piece.split_at(room.min(piece.len()));
            if let Some(chunk) = self.chunks.last_mut() {
                chunk.extend_from_slice(now);
            }
            piece = later;
        }
        true
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.staging.give_back(self.len as u64);
        (self.chunks, self.len) = (Vec::new(), 0);
    }

    /// The message whole. Chunks go as they are copied, so that it is never there twice.
    pub(crate) fn join(mut self) -> Bytes {
        let mut chunks = std::mem::take(&mut self.chunks);
        if chunks.len() == 1
            && let Some(only) = chunks.pop()
        {
            return Bytes::from(only.into_boxed_slice());
        }
        let mut whole = BytesMut::with_capacity(self.len);
        for chunk in chunks {
            whole.extend_from_slice(&chunk);
        }
        whole.freeze()
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.staging.give_back(self.len as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_message_and_give_their_room_back() {
        let all = Arc::new(Staging::new(10_000_000));
        let staging = Arc::new(Staging::part_of(Arc::clone(&all), 1_000_000));
        let sent: Vec<u8> = (0..900_000_u32).map(|at| at.to_be_bytes()[3]).collect();
        for piece in [1, 1_000, 65_000, 300_000, 900_000] {
            let mut pieces = Pieces::new(Arc::clone(&staging));
            assert!(sent.chunks(piece).all(|piece| pieces.add(piece)));
            assert_eq!((pieces.len(), all.used()), (900_000, 900_000));
            let capacity: usize = pieces.chunks.iter().map(Vec::capacity).sum();
            assert!(capacity <= sent.len() + 2 * CHUNK, "{capacity}");
            assert!(pieces.join() == sent);
            assert_eq!((staging.used(), all.used()), (0, 0));
        }
        assert!(Pieces::new(staging).join().is_empty());
    }

    #[test]
    fn a_message_without_room_takes_none() {
        let all = Arc::new(Staging::new(100));
        let [mut a, mut b] =
            [80, 80].map(|limit| Pieces::new(Arc::new(Staging::part_of(Arc::clone(&all), limit))));
        assert!(a.add(&[0; 70]));
        assert!(!b.add(&[0; 40]), "all have 100 together");
        assert!(b.add(&[0; 30]));
        assert!(!a.add(&[0; 20]), "one has 80");
        assert_eq!((a.len(), all.used()), (0, 30));
        drop(b);
        assert_eq!(all.used(), 0);
        assert!(a.add(&[0; 80]));
        drop(a);
        assert_eq!(all.used(), 0);
    }
}
