//! Open files: each connection is one, and systems allow a process few of them until it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that the broker has open besides its connections, with much to spare.
const OTHERS: u64 = 256;

/// Raises the number of files that this process may have open as far as it may, and says so in the log where that is
/// too few for `connections`.
pub(crate) fn raise_limit(connections: u64) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit on open files can't be raised");
            limit.current
        }
    };
    let wanted = connections.saturating_add(OTHERS);
    if let Some(allowed) = allowed.filter(|&allowed| allowed < wanted) {
        tracing::warn!(
            allowed,
            wanted,
            "the system allows fewer open files than max_connections needs: raise the limit (ulimit -n)"
        );
    }
}
