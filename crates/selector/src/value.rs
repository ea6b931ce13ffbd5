//! The values that selectors compute with, and the door through which they come in.

/// The value of a property or header field, borrowed from the encoded message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// The property is absent, or present with the null value; selectors do not tell the two apart.
    Null,
    /// A boolean.
    Bool(bool),
    /// An exact number: every integer type that fits, and points in time as milliseconds since 1970.
    Long(i64),
    /// An approximate number: the floating-point types, single precision widened.
    Double(f64),
    /// A text.
    Text(&'a str),
    /// Present, but of a type that selectors cannot compare (binary, list, map, an integer beyond 64 bits ...).
    ///
    /// It is not null, and like no other value: every comparison with it is FALSE.
    Opaque,
}

/// Where a selector looks its identifiers up.
///
/// The engine implements this on the encoded message, so that nothing is decoded that no selector asks for.
pub trait Properties {
    /// The value that `identifier` stands for in this message; [`Value::Null`] if the message has none.
    ///
    /// Names are case-sensitive. Header fields come under their JMS names: `JMSDeliveryMode` (the text
    /// `PERSISTENT` or `NON_PERSISTENT`), `JMSPriority`, `JMSMessageID`, `JMSTimestamp` (milliseconds since
    /// 1970), `JMSCorrelationID` and `JMSType` (Jakarta Messaging 3.1, 3.8.1.1 and 3.8.1.3).
    fn property(&self, identifier: &str) -> Value<'_>;
}

impl<P: Properties + ?Sized> Properties for &P {
    fn property(&self, identifier: &str) -> Value<'_> {
        (**self).property(identifier)
    }
}
