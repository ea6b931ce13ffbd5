//! What selectors see of an event: the message as it was published, read where it lies (FIL-3), and of a dead letter its
//! header (DLQ-3).

use postroad_amqp_codec::message::ValueRef;
use postroad_model::message::Message;
use postroad_record::{DeadLetter, HeaderValue, StoredEvent};
use postroad_selector::{Properties, Value};

/// An event and its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The message.
    pub message: &'a Message,
    /// The broker's facts.
    pub event: &'a StoredEvent,
}

impl Properties for View<'_> {
    fn property(&self, identifier: &str) -> Value<'_> {
        match identifier {
            "JMSPriority" => Value::Long(i64::from(self.event.priority)),
            "JMSDeliveryMode" if self.event.durable => Value::Text("PERSISTENT"),
            "JMSDeliveryMode" => Value::Text("NON_PERSISTENT"),
            "JMSMessageID" => value(self.message.message_id()),
            "JMSCorrelationID" => value(self.message.correlation_id()),
            "JMSType" => value(self.message.subject()),
            "JMSTimestamp" => value(self.message.creation_time()),
            "JMSXGroupID" => value(self.message.group_id()),
            _ => self
                .dead_letter(identifier)
                .unwrap_or_else(|| value(self.message.application_property(identifier))),
        }
    }
}

impl View<'_> {
    /// A field of the dead-letter header, if that is meant and there is one.
    fn dead_letter(&self, identifier: &str) -> Option<Value<'_>> {
        if !identifier.starts_with(DeadLetter::PROPERTY_PREFIX) {
            return None;
        }
        let dead = self.event.extra.as_ref()?.dead.as_ref()?;
        let field = dead.header(None).find(|field| field.property == identifier)?;
        Some(match field.value {
            HeaderValue::Word(text) | HeaderValue::Text(text) => Value::Text(text),
            HeaderValue::Int(number) => Value::Long(number.into()),
            HeaderValue::Id(number) | HeaderValue::Time(number) => {
                i64::try_from(number).map_or(Value::Opaque, Value::Long)
            }
        })
    }
}

fn value(found: Option<ValueRef<'_>>) -> Value<'_> {
    match found {
        None | Some(ValueRef::Null) => Value::Null,
        Some(ValueRef::Bool(b)) => Value::Bool(b),
        Some(ValueRef::Int(n) | ValueRef::Timestamp(n)) => Value::Long(n),
        Some(ValueRef::Uint(n)) => i64::try_from(n).map_or(Value::Opaque, Value::Long),
        Some(ValueRef::Float(x)) => Value::Double(x),
        Some(ValueRef::Text(s) | ValueRef::Symbol(s)) => Value::Text(s),
        // It is there, and so not null, though nothing can be compared with it.
        Some(ValueRef::Binary(_) | ValueRef::Uuid(_) | ValueRef::Other(_)) => Value::Opaque,
    }
}
