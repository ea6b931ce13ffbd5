//! Files in memory that can crash, tear, flip, fail and fill up, by a seed.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskFile, FolderLock, Identity};

/// What a disk writes as a whole, in bytes; crashes tear writes at its multiples (and sometimes within).
const SECTOR: usize = 512;
/// What a write past the page cache writes as a whole, in bytes.
const BLOCK: usize = 4096;

/// A fault to come. Counts are of operations from the moment of injection, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemFault {
    /// The process dies in the nth operation that changes anything (create, write, sync, remove, folder sync): that one
    /// is begun and not finished, and everything after it fails. [`MemDisk::crash`] then says what is left.
    CrashAt(u64),
    /// The nth write fails, having written a part.
    FailWrite(u64),
    /// The nth sync fails, having synced nothing.
    FailSync(u64),
}

/// A data folder in memory. Clones are the same folder.
///
/// What was written and not synced survives [`crash`](Self::crash) in part only, as the seed decides. The same holds for the
/// names of files that were created or removed without a folder sync.
#[derive(Debug, Clone, Default)]
pub struct MemDisk {
    folder: Arc<Mutex<Folder>>,
}

#[derive(Debug, Default)]
struct Folder {
    names: BTreeMap<String, Arc<Mutex<Content>>>,
    durable_names: BTreeMap<String, Arc<Mutex<Content>>>,
    locked: bool,
    capacity: Option<u64>,
    faults: Vec<MemFault>,
    operations: u64,
    dead: bool,
    instance: u64,
    next_inode: u64,
    whole_blocks: bool,
}

#[derive(Debug, Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    /// What a crash may take back, oldest first.
    unsynced: Vec<Unsynced>,
    inode: u64,
    changes: u64,
}

#[derive(Debug, Clone)]
struct Unsynced {
    offset: usize,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// What kind of operation asks whether it may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Write,
    Sync,
    Other,
}

impl MemDisk {
    /// An empty folder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations that change anything were begun so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.folder().operations
    }

    /// Adds a fault to come.
    pub fn inject(&self, fault: MemFault) {
        self.folder().faults.push(fault);
    }

    /// Limits the bytes of all files together; `None` is without limit. Files that are there stay.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.folder().capacity = bytes;
    }

    /// From now on a write also makes what follows it in its last block of 4,096 bytes zero, as one past the page cache does.
    pub fn write_whole_blocks(&self) {
        self.folder().whole_blocks = true;
    }

    /// Flips one bit (0 to 7) of a file, as a failing disk would, also in what was synced. Says whether it is there to be flipped.
    pub fn flip_bit(&self, name: &str, offset: usize, bit: u8) -> bool {
        let Some(content) = self.folder().names.get(name).cloned() else { return false };
        let mut content = lock(&content);
        let flip = 1_u8.checked_shl(u32::from(bit)).unwrap_or(0);
        content.bytes.get_mut(offset).map(|byte| *byte ^= flip).is_some()
    }

    /// The content of a file as a running process sees it.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let content = self.folder().names.get(name).cloned()?;
        let bytes = lock(&content).bytes.clone();
        Some(bytes)
    }

    /// Puts a file there, durably, instead of one of that name.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        let mut folder = self.folder();
        let content = folder.new_content(bytes);
        folder.names.insert(name.to_owned(), Arc::clone(&content));
        folder.durable_names.insert(name.to_owned(), content);
    }

    /// Ends the process that uses this folder, with loss of power, and gives the folder as the next one finds it. The seed
    /// decides what of the unsynced writes and names is there. Everything still done on `self` fails.
    #[must_use]
    pub fn crash(&self, seed: u64) -> Self {
        let mut old = self.folder();
        old.dead = true;
        let mut random = Random(seed);
        let mut names = old.durable_names.clone();
        for name in
            old.names.keys().chain(old.durable_names.keys()).collect::<std::collections::BTreeSet<_>>()
        {
            if random.below(2) == 0 {
                match old.names.get(name) {
                    Some(content) => drop(names.insert(name.clone(), Arc::clone(content))),
                    None => drop(names.remove(name)),
                }
            }
        }
        let survived = |content: &Arc<Mutex<Content>>, random: &mut Random| {
            Arc::new(Mutex::new(lock(content).after_crash(random)))
        };
        let names: BTreeMap<_, _> =
            names.iter().map(|(name, content)| (name.clone(), survived(content, &mut random))).collect();
        old.next_life(names)
    }

    /// Ends the process that uses this folder, without loss of power (`kill -9`): everything written is still there.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut old = self.folder();
        old.dead = true;
        let copied = |content: &Arc<Mutex<Content>>| Arc::new(Mutex::new(lock(content).clone()));
        let names = old.names.iter().map(|(name, content)| (name.clone(), copied(content))).collect();
        let durable = old.durable_names.clone();
        let next = old.next_life(names);
        // What was not synced may still be lost by a later crash; names that were removed may come back then.
        let mut folder = next.folder();
        folder.durable_names.retain(|name, _| durable.contains_key(name));
        drop(folder);
        next
    }

    /// A copy of the folder as a backup program makes one: the same bytes, files with an identity of their own.
    #[must_use]
    pub fn copy(&self) -> Self {
        let old = self.folder();
        let copied = |content: &Arc<Mutex<Content>>| {
            let content = lock(content);
            Arc::new(Mutex::new(Content { unsynced: Vec::new(), ..content.clone() }))
        };
        let names = old.names.iter().map(|(name, content)| (name.clone(), copied(content))).collect();
        let copy = old.next_life(names);
        copy.folder().instance = old.instance.wrapping_add(1);
        copy
    }

    fn folder(&self) -> MutexGuard<'_, Folder> {
        lock(&self.folder)
    }
}

impl Folder {
    fn next_life(&self, names: BTreeMap<String, Arc<Mutex<Content>>>) -> MemDisk {
        let folder = Self {
            durable_names: names.clone(),
            names,
            capacity: self.capacity,
            instance: self.instance,
            next_inode: self.next_inode,
            whole_blocks: self.whole_blocks,
            ..Self::default()
        };
        MemDisk { folder: Arc::new(Mutex::new(folder)) }
    }

    fn new_content(&mut self, bytes: Vec<u8>) -> Arc<Mutex<Content>> {
        self.next_inode += 1;
        Arc::new(Mutex::new(Content { bytes, inode: self.next_inode, ..Content::default() }))
    }

    /// Counts an operation. `Ok(true)`: it succeeds; `Ok(false)`: it must do a part of its work and fail.
    fn begin(&mut self, step: Step) -> io::Result<bool> {
        if self.dead {
            return Err(dead());
        }
        self.operations += 1;
        let mut succeeds = true;
        for fault in &mut self.faults {
            let (left, crash) = match fault {
                MemFault::CrashAt(left) => (left, true),
                MemFault::FailWrite(left) if step == Step::Write => (left, false),
                MemFault::FailSync(left) if step == Step::Sync => (left, false),
                _ => continue,
            };
            *left = left.wrapping_sub(1);
            if *left == 0 {
                succeeds = false;
                self.dead |= crash;
            }
        }
        Ok(succeeds)
    }

    fn check_alive(&self) -> io::Result<()> {
        if self.dead { Err(dead()) } else { Ok(()) }
    }

    fn used(&self) -> u64 {
        self.names.values().map(|content| lock(content).bytes.len() as u64).sum()
    }

    fn find(&self, name: &str) -> io::Result<Arc<Mutex<Content>>> {
        self.check_alive()?;
        self.names.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Content {
    /// What is on the disk after a crash: everything synced, and of the rest what chance leaves.
    fn after_crash(&self, random: &mut Random) -> Self {
        let mut bytes = self.bytes.clone();
        for write in self.unsynced.iter().rev() {
            overwrite(&mut bytes, write.offset, &write.before);
        }
        let style = random.below(5);
        for write in &self.unsynced {
            let torn_at = random.below(write.after.len() as u64 + 1);
            let mut at = 0;
            while let Some(rest) = write.after.get(at..).filter(|rest| !rest.is_empty()) {
                let length = rest.len().min(SECTOR - (write.offset + at) % SECTOR);
                let kept = match style {
                    0 => 0,
                    1 => length,
                    2 => length * usize::from(random.below(2) == 0),
                    3 => length * usize::from((at as u64) < torn_at),
                    _ => usize::try_from(random.below(length as u64 + 1)).unwrap_or(0),
                };
                overwrite(&mut bytes, write.offset + at, rest.get(..kept).unwrap_or_default());
                at += length;
            }
        }
        Self { bytes, unsynced: Vec::new(), inode: self.inode, changes: self.changes }
    }

    fn write(&mut self, offset: usize, data: &[u8]) -> io::Result<()> {
        let end = offset.checked_add(data.len()).filter(|end| *end <= self.bytes.len());
        let Some(before) = end.and_then(|end| self.bytes.get(offset..end)) else {
            return Err(io::Error::other("a journal never writes beyond the end of a file"));
        };
        let before = before.to_vec();
        overwrite(&mut self.bytes, offset, data);
        self.changes += 1;
        self.unsynced.push(Unsynced { offset, before, after: data.to_vec() });
        Ok(())
    }
}

fn overwrite(bytes: &mut [u8], offset: usize, data: &[u8]) {
    if let Some(target) = bytes.get_mut(offset..).and_then(|rest| rest.get_mut(..data.len())) {
        target.copy_from_slice(data);
    }
}

impl Disk for MemDisk {
    fn lock(&self) -> io::Result<Box<dyn FolderLock>> {
        let mut folder = self.folder();
        folder.check_alive()?;
        if std::mem::replace(&mut folder.locked, true) {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, ""));
        }
        Ok(Box::new(MemLock { disk: self.clone() }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let folder = self.folder();
        folder.check_alive()?;
        Ok(folder.names.keys().cloned().collect())
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut folder = self.folder();
        let succeeds = folder.begin(Step::Other)?;
        if folder.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let free = folder.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(folder.used()));
        let made = if succeeds { size.min(free) } else { size / 2 };
        let content = folder.new_content(vec![0; usize::try_from(made).map_err(io::Error::other)?]);
        folder.names.insert(name.to_owned(), Arc::clone(&content));
        if !succeeds {
            return Err(dead());
        }
        if made < size {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(Arc::new(MemFile { disk: self.clone(), content }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let content = self.folder().find(name)?;
        Ok(Arc::new(MemFile { disk: self.clone(), content }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut folder = self.folder();
        folder.begin(Step::Other)?;
        folder.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut folder = self.folder();
        if !folder.begin(Step::Sync)? {
            return Err(dead());
        }
        folder.durable_names = folder.names.clone();
        Ok(())
    }

    fn identity(&self, name: &str) -> io::Result<Identity> {
        let folder = self.folder();
        let content = folder.find(name)?;
        let content = lock(&content);
        let mut identity = [0; 32];
        identity[..8].copy_from_slice(&folder.instance.to_le_bytes());
        identity[8..16].copy_from_slice(&content.inode.to_le_bytes());
        identity[16..24].copy_from_slice(&content.changes.to_le_bytes());
        Ok(Identity(identity))
    }

    fn location(&self, name: &str) -> String {
        format!("memory/{name}")
    }
}

#[derive(Debug)]
struct MemLock {
    disk: MemDisk,
}

impl FolderLock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.disk.folder().locked = false;
    }
}

#[derive(Debug)]
struct MemFile {
    disk: MemDisk,
    content: Arc<Mutex<Content>>,
}

impl DiskFile for MemFile {
    fn size(&self) -> io::Result<u64> {
        self.disk.folder().check_alive()?;
        Ok(lock(&self.content).bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // Also on a disk that is dead to writers: a simulator compares what a broker had with what it had written.
        let content = lock(&self.content);
        let rest =
            usize::try_from(offset).ok().and_then(|offset| content.bytes.get(offset..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        overwrite(buffer, 0, rest.get(..length).unwrap_or_default());
        Ok(length)
    }

    fn write_at(&self, offset: u64, buffers: &[IoSlice<'_>]) -> io::Result<()> {
        let mut data = Vec::with_capacity(buffers.iter().map(|buffer| buffer.len()).sum());
        buffers.iter().for_each(|buffer| data.extend_from_slice(buffer));
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let mut folder = self.disk.folder();
        let succeeds = folder.begin(Step::Write)?;
        // A write in which the process dies may still have reached the system whole: `crash` decides.
        let mut content = lock(&self.content);
        if !succeeds && !folder.dead {
            data.truncate(data.len() / 2);
        } else if folder.whole_blocks {
            let end = (offset + data.len()).next_multiple_of(BLOCK).min(content.bytes.len());
            data.resize(end.saturating_sub(offset).max(data.len()), 0);
        }
        content.write(offset, &data)?;
        drop(content);
        if succeeds { Ok(()) } else { Err(dead()) }
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        let size = usize::try_from(size).map_err(io::Error::other)?;
        let mut folder = self.disk.folder();
        if !folder.begin(Step::Write)? {
            return Err(dead());
        }
        let mut content = lock(&self.content);
        let longer = size.max(content.bytes.len());
        content.bytes.resize(longer, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if !self.disk.folder().begin(Step::Sync)? {
            return Err(dead());
        }
        lock(&self.content).unsynced.clear();
        Ok(())
    }
}

fn dead() -> io::Error {
    io::Error::other("fault injected into the memory disk")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// SplitMix64: small, and the same on every machine.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `limit` - 1; 0 if `limit` is 0.
    fn below(&mut self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }
}
