//! A neighbour on the same disk: writes and syncs without rest, so that the broker's own syncs take time.
//!
//! What a killed process has handed to the system is not lost, so a kill finds a confirmation that came too early only
//! in the moment before the write. A busy disk makes that moment long. (What a power cut takes is not seen here: the
//! simulator cuts the power.)

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::thread::{Scope, ScopedJoinHandle};

use crate::control::{Control, Phase};

/// Bytes of one file.
const FILE: usize = 8 << 20;

/// Starts the neighbour; it leaves when the load is over.
pub(crate) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    control: &'scope Control,
    folder: &Path,
) -> ScopedJoinHandle<'scope, ()> {
    let path = folder.join("neighbour");
    scope.spawn(move || {
        let bytes = vec![0; FILE];
        // A full disk is the broker's affair: then there is no neighbour.
        while control.phase() == Phase::Load && rewrite(&path, &bytes).is_ok() {}
    })
}

/// Makes the file anew: that the file system has to book it is what takes everybody's time.
fn rewrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
