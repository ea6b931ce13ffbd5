//! A condition on the properties of encoded messages.

use postroad_amqp_codec::message::ValueRef;
use postroad_model::message::{Incoming, Message};
use postroad_selector::{Properties, Selector, Value};

use super::message;

/// The application properties of a message, read where they lie.
struct View<'a>(&'a Message);

impl Properties for View<'_> {
    fn property(&self, identifier: &str) -> Value<'_> {
        match self.0.application_property(identifier) {
            Some(ValueRef::Int(number)) => Value::Long(number),
            Some(ValueRef::Text(text)) => Value::Text(text),
            _ => Value::Null,
        }
    }
}

/// Looks at one message again and again.
pub(super) fn evaluate(count: u32) {
    let selector = Selector::parse("region LIKE 'E%' AND price BETWEEN 100 AND 300 AND kind IS NULL")
        .expect("the selector is sound");
    let incoming = Incoming::parse(&message(true)).expect("what was written is a message");
    let matches = (0..count).filter(|_| selector.matches(&View(&incoming.message))).count();
    assert_eq!(u32::try_from(matches), Ok(count), "the message matches");
}
