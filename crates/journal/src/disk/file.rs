//! Real files. Writes go past the page cache where the file system can do that (`direct`), reads through it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::direct::{AlignedMemory, DirectWriter, open_direct, write_blocks};
use super::{Disk, DiskFile, FolderLock, Identity};
use crate::control::CONTROL;
use crate::segment::file_number;

/// Name of the lock file.
const LOCK: &str = "lock";
/// How much is zeroed by one write.
const FILL_WRITE: usize = 1 << 20;
/// How much is zeroed between syncs: one long flush would hold up the syncs of the log meanwhile.
const FILL_SYNC: u64 = 8 << 20;
/// The most buffers that one vectored write takes; Linux allows 1,024.
const MAX_BUFFERS: usize = 1024;

/// A data folder in the file system.
#[derive(Debug)]
pub struct FileDisk {
    folder: PathBuf,
    direct: Arc<DirectWriter>,
}

impl FileDisk {
    /// Uses a folder, which is made (with its parents) if it is not there.
    ///
    /// # Errors
    /// What the system says about making it.
    pub fn new(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder)?;
        Ok(Self { folder, direct: Arc::new(DirectWriter::new()) })
    }

    /// Whether a folder holds files of a journal. Unlike [`FileDisk::new`], this makes nothing, so a mistyped name leaves no trace.
    ///
    /// # Errors
    /// What the system says about listing it.
    pub fn holds_journal(folder: &Path) -> io::Result<bool> {
        for entry in std::fs::read_dir(folder)? {
            let name = entry?.file_name();
            if name.to_str().is_some_and(|name| name == CONTROL || file_number(name).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Disk for FileDisk {
    fn lock(&self) -> io::Result<Box<dyn FolderLock>> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.folder.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, holder(&mut file)));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        file.write_all(std::process::id().to_string().as_bytes())?;
        Ok(Box::new(FileLock { _file: file }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            // A name that is not UTF-8 is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.folder.join(name);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        self.direct.forget(&path);
        reserve(&file, size)?;
        fill(&path, &file, size)?;
        Ok(Arc::new(OpenFile { path, file, direct: Arc::clone(&self.direct) }))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let path = self.folder.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        Ok(Arc::new(OpenFile { path, file, direct: Arc::clone(&self.direct) }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        self.direct.forget(&path);
        std::fs::remove_file(path)
    }

    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.folder)?.sync_all()
    }

    fn identity(&self, name: &str) -> io::Result<Identity> {
        let metadata = std::fs::metadata(self.folder.join(name))?;
        let mut identity = [0; 32];
        identity[..8].copy_from_slice(&metadata.dev().to_le_bytes());
        identity[8..16].copy_from_slice(&metadata.ino().to_le_bytes());
        identity[16..24].copy_from_slice(&metadata.ctime().to_le_bytes());
        identity[24..].copy_from_slice(&metadata.ctime_nsec().to_le_bytes());
        Ok(Identity(identity))
    }

    fn location(&self, name: &str) -> String {
        let path = if name.is_empty() { self.folder.clone() } else { self.folder.join(name) };
        path.display().to_string()
    }
}

/// ` (process N)` from the content of the lock file, or nothing.
fn holder(file: &mut File) -> String {
    let mut text = String::new();
    // The content is a help for people only: whatever can't be read is left out.
    if file.take(20).read_to_string(&mut text).is_err() {
        return String::new();
    }
    text.trim().parse::<u32>().map_or_else(|_| String::new(), |id| format!(" (process {id})"))
}

/// Asks the file system for the blocks at once: they lie together, and a full disk says so before anything is written.
fn reserve(file: &File, size: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, size) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        other => Ok(other?),
    }
}

/// Writes zeros and syncs, in pieces. Reserved blocks alone would cost metadata at the first sync of each.
fn fill(path: &Path, file: &File, size: u64) -> io::Result<()> {
    let zeros = AlignedMemory::new(FILL_WRITE);
    let mut direct = open_direct(path)?;
    let mut at = 0;
    while at < size {
        let piece = zeros.get(usize::try_from(size - at).unwrap_or(FILL_WRITE));
        let written = match &direct {
            Some(direct) => write_blocks(direct, piece, at),
            None => file.write_all_at(piece, at),
        };
        match written {
            // The file system wants larger blocks than there are here.
            Err(error) if direct.is_some() && error.kind() == io::ErrorKind::InvalidInput => {
                direct = None;
                continue;
            }
            other => other?,
        }
        at += piece.len() as u64;
        if at % FILL_SYNC == 0 {
            file.sync_data()?;
        }
    }
    file.sync_all()
}

#[derive(Debug)]
struct FileLock {
    _file: File,
}

impl FolderLock for FileLock {}

#[derive(Debug)]
struct OpenFile {
    path: PathBuf,
    file: File,
    direct: Arc<DirectWriter>,
}

impl DiskFile for OpenFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, mut offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len();
        let mut rest = buffer;
        while !rest.is_empty() {
            match self.file.read_at(rest, offset) {
                Ok(0) => break,
                Ok(read) => {
                    offset += read as u64;
                    rest = rest.split_at_mut(read).1;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(wanted - rest.len())
    }

    fn write_at(&self, mut offset: u64, buffers: &[IoSlice<'_>]) -> io::Result<()> {
        if self.direct.write_at(&self.path, &self.file, offset, buffers)? {
            return Ok(());
        }
        let mut all = buffers.to_vec();
        let mut rest = all.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let group = rest.len().min(MAX_BUFFERS);
            match rustix::io::pwritev(&self.file, rest.get(..group).unwrap_or_default(), offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        if self.size()? < size { self.file.set_len(size) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
