//! What selectors see of an event: the message as it was published, read where it lies (FIL-3).

use postroad_amqp_codec::message::ValueRef;
use postroad_model::message::Message;
use postroad_record::StoredEvent;
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
            _ => value(self.message.application_property(identifier)),
        }
    }
}

fn value(found: Option<ValueRef<'_>>) -> Value<'_> {
    match found {
        None | Some(ValueRef::Null) => Value::Null,
        Some(ValueRef::Bool(b)) => Value::Bool(b),
        Some(ValueRef::Int(n) | ValueRef::Timestamp(n)) => Value::Long(n),
        Some(ValueRef::Uint(n)) => i64::try_from(n).map_or(Value::Null, Value::Long),
        Some(ValueRef::Float(x)) => Value::Double(x),
        Some(ValueRef::Text(s) | ValueRef::Symbol(s)) => Value::Text(s),
        Some(_) => Value::Null,
    }
}
