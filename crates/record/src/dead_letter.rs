//! The dead-letter header (DLQ-3): why an event lies on a dead-letter queue or in a dead event store, and under which names
//! the world sees it.

use postroad_model::id::{EventId, WallMs};
use serde::{Deserialize, Serialize};

/// Why an event lies on a dead-letter queue (DLQ-3).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The reason's word.
    pub reason: String,
    /// MQ's number, 0 if none.
    pub reason_code: u32,
    /// The queue or channel that it was owed from, or was going to.
    pub dest: String,
    /// Its event id there.
    pub event_id: EventId,
    /// The named object that owed it.
    pub named_object: Option<String>,
    /// What the sender wrote, if it entered here.
    pub address: Option<String>,
    /// `queue:NAME`, `client:ID` or `join:NAME`.
    pub component: String,
    /// When.
    pub time: WallMs,
    /// Times dead-lettered so far.
    pub count: u32,
    /// One sentence: what was tried, what to do.
    pub text: String,
    /// The sender's expiry, put back on a retry (DLQ-4).
    pub expires: WallMs,
}

/// One field of the header, with its two names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderField<'a> {
    /// As a message annotation.
    pub annotation: &'static str,
    /// As a property, which is also what selectors call it.
    pub property: &'static str,
    /// What it says.
    pub value: HeaderValue<'a>,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderValue<'a> {
    /// A word from a fixed list: a symbol as an annotation, else text.
    Word(&'a str),
    /// Text.
    Text(&'a str),
    /// A small number.
    Int(i32),
    /// An event id.
    Id(EventId),
    /// Milliseconds since 1970.
    Time(WallMs),
}

impl DeadLetter {
    /// What the names of its properties begin with.
    pub const PROPERTY_PREFIX: &'static str = "postroad_dl_";

    /// The fields that it has, in the order of DLQ-3. `by` is the name of the broker that put it there, where that is to
    /// be among them.
    pub fn header<'a>(&'a self, by: Option<&'a str>) -> impl Iterator<Item = HeaderField<'a>> + Clone {
        use HeaderValue::{Id, Int, Text, Time, Word};
        let int = |number: u32| Int(i32::try_from(number).unwrap_or(i32::MAX));
        let object = self.named_object.as_deref();
        let fields = [
            Some(("x-opt-postroad-dl-reason", "postroad_dl_reason", Word(&self.reason))),
            Some(("x-opt-postroad-dl-reason-code", "postroad_dl_code", int(self.reason_code))),
            Some(("x-opt-postroad-dl-dest", "postroad_dl_dest", Text(&self.dest))),
            Some(("x-opt-postroad-dl-event-id", "postroad_dl_event_id", Id(self.event_id))),
            object.map(|name| ("x-opt-postroad-dl-named-object", "postroad_dl_named_object", Text(name))),
            self.address.as_deref().map(|at| ("x-opt-postroad-dl-address", "postroad_dl_address", Text(at))),
            Some(("x-opt-postroad-dl-component", "postroad_dl_component", Text(&self.component))),
            by.map(|broker| ("x-opt-postroad-dl-by", "postroad_dl_by", Text(broker))),
            Some(("x-opt-postroad-dl-time", "postroad_dl_time", Time(self.time))),
            Some(("x-opt-postroad-dl-count", "postroad_dl_count", int(self.count))),
            Some(("x-opt-postroad-dl-text", "postroad_dl_text", Text(&self.text))),
        ];
        let named = |(annotation, property, value)| HeaderField { annotation, property, value };
        fields.into_iter().flatten().map(named)
    }
}
