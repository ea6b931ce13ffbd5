//! Tests of the journal as a whole. `Owner` drives one as a broker would, beside a naive model of what it holds.

mod crash;
mod damage;
mod faults;
mod format;
mod layout;
mod life;
mod owner;
mod threads;

use std::sync::Arc;

use crate::{Disk, Error, JournalId, Label, MemDisk, Opened, Options, Recovery};

/// The identity of all journals in tests.
const ID: JournalId = JournalId(*b"a journal's name");

/// Opens a journal with small segments and returns the payloads that it holds.
fn open(disk: &MemDisk) -> Result<(Opened, Vec<Vec<u8>>), Error> {
    open_with(Arc::new(disk.clone()), Options::small())
}

/// Opens a journal and returns the payloads that it holds.
fn open_with(disk: Arc<dyn Disk>, options: Options) -> Result<(Opened, Vec<Vec<u8>>), Error> {
    let mut recovery = Recovery::open(disk, options, ID)?;
    let mut payloads = Vec::new();
    while let Some(frame) = recovery.next_frame()? {
        payloads.push(frame.payload.to_vec());
    }
    Ok((recovery.finish()?, payloads))
}

/// Appends payloads as one batch and makes it durable.
fn commit(opened: &mut Opened, payloads: &[&[u8]]) -> Vec<crate::Appended> {
    let append = |payload: &&[u8]| {
        loop {
            match opened.journal.append(Label::kind(1), &[payload]) {
                Ok(appended) => return appended,
                Err(crate::AppendError::NotReady { .. }) => drop(opened.keeper.work().unwrap()),
                Err(error) => panic!("{error}"),
            }
        }
    };
    let appended = payloads.iter().map(append).collect();
    flush(opened).unwrap();
    appended
}

/// Writes and syncs what was appended.
fn flush(opened: &mut Opened) -> Result<(), Error> {
    if let Some(batch) = opened.journal.take_batch() {
        opened.writer.write(&[batch])?;
    }
    opened.writer.sync()?;
    opened.writer.mark_tail()
}
