//! Open files: each connection is one, and systems allow a process few of them until it asks for more.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that the broker has open besides its connections, with much to spare.
const OTHERS: u64 = 256;

/// Raises the number of files that this process may have open as far as it may, and gives how many connections there may be:
/// `connections`, or fewer where the system allows fewer files, which is said in the log. Without a file to spare the journal
/// could not go on.
pub(crate) fn raise_limit(connections: u32) -> u32 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let allowed = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, "the limit on open files can't be raised");
            limit.current
        }
    };
    let wanted = u64::from(connections).saturating_add(OTHERS);
    let Some(allowed) = allowed.filter(|&allowed| allowed < wanted) else { return connections };
    let left = u32::try_from(allowed.saturating_sub(OTHERS)).map_or(connections, |left| left.max(1));
    tracing::warn!(
        allowed,
        wanted,
        connections = left,
        "the system allows fewer open files than max_connections needs: raise the limit (ulimit -n)"
    );
    left
}
