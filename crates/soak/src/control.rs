//! Who may do what now: the clients' threads and the one that kills the broker, in step.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::books::Violation;

/// What the clients are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Everything, by chance.
    Load,
    /// Bring to an end what was begun: send nothing new, give nothing back.
    Finish,
    /// Leave.
    Stop,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The broker is there; false from the moment before it is killed.
    up: bool,
    /// Clients that have a connection, or try to get one.
    inside: usize,
    /// Clients whose links were attached since the broker came up.
    attached: BTreeSet<usize>,
    violation: Option<Violation>,
}

/// The meeting point.
#[derive(Debug)]
pub(crate) struct Control {
    state: Mutex<State>,
    changed: Condvar,
}

impl Control {
    pub(crate) const fn new() -> Self {
        let state =
            State { phase: Phase::Load, up: false, inside: 0, attached: BTreeSet::new(), violation: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is one assignment, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits until `check` holds; false if it does not within the time.
    fn wait(&self, time: Duration, check: impl Fn(&State) -> bool) -> bool {
        let end = Instant::now() + time;
        let mut state = self.lock();
        while !check(&state) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// A client waits until the broker is there; false when it is to leave instead.
    pub(crate) fn enter(&self) -> bool {
        let over = |state: &State| state.phase == Phase::Stop || state.violation.is_some();
        while !self.wait(Duration::from_secs(60), |state| state.up || over(state)) {}
        self.change(|state| {
            let stays = state.up && !over(state);
            state.inside += usize::from(stays);
            stays
        })
    }

    /// A client has no connection any more.
    pub(crate) fn leave(&self) {
        self.change(|state| state.inside -= 1);
    }

    /// The links of a client are attached.
    pub(crate) fn attached(&self, client: usize) {
        self.change(|state| state.attached.insert(client));
    }

    /// A client has lost its connection.
    pub(crate) fn lost(&self, why: &str) {
        let unexpected = { self.lock().up };
        if unexpected {
            self.fail(Violation::new(format!("a client was cut off while the broker was there: {why}")));
        }
    }

    /// A promise was broken: the first one counts.
    pub(crate) fn fail(&self, violation: Violation) {
        self.change(|state| {
            state.violation.get_or_insert(violation);
        });
    }

    /// The broken promise, if there is one.
    ///
    /// # Errors
    /// The [`Violation`].
    pub(crate) fn check(&self) -> Result<(), Violation> {
        self.lock().violation.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn phase(&self) -> Phase {
        let state = self.lock();
        if state.violation.is_some() { Phase::Stop } else { state.phase }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.change(|state| state.phase = phase);
    }

    /// The broker is there, or is about to be killed.
    pub(crate) fn set_up(&self, up: bool) {
        self.change(|state| {
            state.up = up;
            state.attached.clear();
        });
    }

    /// Waits until so many clients have been attached since the broker came up.
    pub(crate) fn all_attached(&self, clients: usize, time: Duration) -> bool {
        self.wait(time, |state| state.attached.len() >= clients || state.violation.is_some())
    }

    /// Waits until no client has a connection.
    pub(crate) fn nobody_inside(&self, time: Duration) -> bool {
        self.wait(time, |state| state.inside == 0)
    }
}
