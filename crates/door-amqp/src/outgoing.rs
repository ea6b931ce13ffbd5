//! How much of what the engine sent to this client has been written, so that the engine can hold back the rest.

/// Messages on their way from the engine to the socket, in bytes as the engine counts them.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Taken from the engine.
    taken: u64,
    /// Of those, given out to be written.
    polled: u64,
    /// Of those, told the engine as written.
    told: u64,
}

/// So many bytes are worth a word to the engine. It holds connections at more than twice as many.
const TOLD_FROM: u64 = 64 * 1024;

impl Outgoing {
    /// The engine has sent a message of so many bytes.
    pub(crate) fn take(&mut self, bytes: usize) {
        self.taken += bytes as u64;
    }

    /// Everything but `waiting` bytes was given out.
    pub(crate) fn polled(&mut self, waiting: u64) {
        self.polled = self.polled.max(self.taken.saturating_sub(waiting));
    }

    /// All that was given out is written: how much the engine has to be told, if it is worth it.
    pub(crate) fn take_written(&mut self) -> Option<u64> {
        let bytes = self.polled - self.told;
        if bytes < TOLD_FROM {
            return None;
        }
        self.told = self.polled;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_given_out_is_told_and_once() {
        let mut outgoing = Outgoing::default();
        outgoing.take(100_000);
        assert_eq!(outgoing.take_written(), None);
        outgoing.polled(90_000);
        assert_eq!(outgoing.take_written(), None, "too few to be told");
        outgoing.polled(10_000);
        assert_eq!(outgoing.take_written(), Some(90_000));
        // The head of a delivery waits too, and is not counted by the engine: nothing is told twice.
        outgoing.polled(10_050);
        assert_eq!(outgoing.take_written(), None);
        outgoing.take(60_000);
        outgoing.polled(0);
        assert_eq!(outgoing.take_written(), Some(70_000));
    }
}
