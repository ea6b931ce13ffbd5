//! The checkers: each file is one promise of the broker, checked against the records, or against what clients see.

pub mod damage;
pub mod delivery;
pub mod hops;
pub mod identity;
pub mod once;
pub mod order;
pub mod position;
pub mod reach;
pub mod recovery;
pub mod removal;
pub mod schedule;

use crate::ledger::Ledger;
use crate::messages::Messages;
use crate::shadow::Shadow;
use postroad_record::Record;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub rule: &'static str,
    /// What happened.
    pub text: String,
}

impl Violation {
    /// A broken promise.
    #[must_use]
    pub fn new(rule: &'static str, text: impl Into<String>) -> Self {
        Self { rule, text: text.into() }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.rule, self.text)
    }
}

/// What a checker of records looks at: the state before the record at `at`, and what is known besides.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The state that the records before this one make.
    pub ledger: &'a Ledger,
    /// What was sent.
    pub messages: &'a Messages,
    /// What the clients know.
    pub shadow: &'a Shadow,
    /// Wall-clock time, in milliseconds.
    pub wall: u64,
    /// The records of the step.
    pub step: &'a [Record],
}

/// Checks one record before it is applied.
///
/// # Errors
/// The broken promise.
pub fn check_record(
    view: &View<'_>,
    order: &mut order::Order,
    identities: &mut identity::Identities,
    record: &Record,
) -> Result<(), Violation> {
    match record {
        Record::Stored { store, event } => {
            let Some(target) = view.ledger.stores.get(store) else {
                return Err(Violation::new(
                    "records",
                    format!("an event for store {}, which is not there", store.0),
                ));
            };
            let known = view.ledger.event(target, event).map_err(|text| Violation::new("records", text))?;
            once::check(view, target, &known)?;
            schedule::check_stored(view, target, &known)?;
            identities.check(target, &known)?;
            order.check(view, *store, &known, target)?;
            hops::check(view, *store, target, &known)
        }
        Record::Removed { store, ids, why, .. } => removal::check(view, *store, ids, *why),
        Record::Scheduled { store, number, due, event } => {
            schedule::check_scheduled(view, *store, *number, *due, event)
        }
        Record::Unscheduled { store, numbers, why } => {
            schedule::check_unscheduled(view, *store, numbers, *why)
        }
        Record::ObjectMoved { object, low, done } => position::check_object(view, *object, *low, done),
        Record::JoinMoved { join, cursor } => {
            order.settle();
            position::check_join(view, *join, *cursor)
        }
        Record::JoinCreated { .. } | Record::JoinAltered { .. } | Record::BudgetRaised { .. } => {
            order.forget();
            Ok(())
        }
        _ => Ok(()),
    }
}
