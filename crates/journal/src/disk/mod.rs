//! The files under a journal, as a trait, so that a simulator can replace them.

mod direct;
mod file;
mod mem;

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

pub use file::FileDisk;
pub use mem::{MemDisk, MemFault};

/// One data folder.
///
/// What an implementation must hold to stands at each method; `journal-format.md`, "What is assumed of the disk", has the
/// rest. All calls block; time passes only inside them.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Takes the folder's advisory lock, which is held until the returned value is dropped.
    ///
    /// # Errors
    /// Kind `WouldBlock` if somebody else holds it; its text says who, if that is known (for example ` (process 42)`).
    fn lock(&self) -> io::Result<Box<dyn FolderLock>>;

    /// Names of the files in the folder, in any order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes a new file of `size` bytes of zeros that are really written, and syncs it. Its name is durable only after
    /// [`sync_folder`](Disk::sync_folder). After an error the file may be there, of any size up to `size`.
    ///
    /// # Errors
    /// Kind `StorageFull` or `QuotaExceeded` if there is no room; otherwise what the system says.
    fn create(&self, name: &str, size: u64) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;

    /// Removes a file. Handles that are open keep working.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names of created files, and the absence of removed ones, durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_folder(&self) -> io::Result<()>;

    /// Identity of a file that a copy of the folder, a restored backup, or a later write does not share.
    ///
    /// # Errors
    /// What the system says.
    fn identity(&self, name: &str) -> io::Result<Identity>;

    /// The folder with the file's name, for messages; the folder alone if `name` is empty.
    fn location(&self, name: &str) -> String;
}

/// An open file. Calls on different ranges may come from several threads at once.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Bytes in the file.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self) -> io::Result<u64>;

    /// Reads from `offset` until `buffer` is full or the file ends, and says how many bytes were read.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all the buffers, one behind the other, from `offset`. What follows them, up to the next multiple of 4,096, stays or
    /// becomes zero. Not safe until [`sync`](DiskFile::sync).
    ///
    /// # Errors
    /// What the system says; then any part may have been written.
    fn write_at(&self, offset: u64, buffers: &[IoSlice<'_>]) -> io::Result<()>;

    /// Makes a file that is shorter `size` bytes long; what is added is zero. Not safe until [`sync`](DiskFile::sync).
    ///
    /// # Errors
    /// What the system says.
    fn grow(&self, size: u64) -> io::Result<()>;

    /// Makes everything written before safe against power loss (`fdatasync`).
    ///
    /// # Errors
    /// What the system says; then nothing is known about what was written.
    fn sync(&self) -> io::Result<()>;
}

/// The folder's lock; dropping it gives the folder free.
pub trait FolderLock: fmt::Debug + Send + Sync {}

/// What [`Disk::identity`] says: for real files the device, the inode and the time of the last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity(pub [u8; 32]);
