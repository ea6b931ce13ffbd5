//! An identity means one message, for ever: also after a crash, and after a backup was put back or a copy of the folder was
//! used, whatever the other one did meanwhile (README U-1, DUP-3).

use super::Violation;
use crate::ledger::{Event, Store};
use postroad_model::id::Origin;
use std::collections::BTreeMap;

/// Which message each identity was, over all lives of all folders.
#[derive(Debug, Default)]
pub struct Identities(BTreeMap<Origin, u64>);

impl Identities {
    /// Checks an event that is about to be stored, and notes it.
    ///
    /// # Errors
    /// The broken promise.
    pub fn check(&mut self, store: &Store, event: &Event) -> Result<(), Violation> {
        let known = *self.0.entry(event.origin).or_insert(event.number);
        if known == event.number {
            return Ok(());
        }
        let text = format!(
            "event {} of '{}' is message {} with the identity {:?}, which was message {known}",
            event.stored.id, store.name, event.number, event.origin
        );
        Err(Violation::new("an identity means one message", text))
    }
}
