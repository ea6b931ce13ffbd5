//! The descriptors that the specification defines: every one has a number and a name (part 1, section 1.4).

/// The descriptor of a described value, as it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor<'a> {
    /// A numeric descriptor.
    Code(u64),
    /// A symbolic descriptor.
    Name(&'a str),
}

impl Descriptor<'_> {
    /// The number, also of a name that the specification defines.
    #[must_use]
    pub fn code(&self) -> Option<u64> {
        match self {
            Self::Code(code) => Some(*code),
            Self::Name(name) => NAMES.iter().find(|(_, known)| known == name).map(|(code, _)| *code),
        }
    }

    /// The descriptor as text for a report, cut to a bounded length.
    pub(crate) fn to_text(self) -> String {
        match self {
            Self::Code(code) => format!("{code:#x}"),
            Self::Name(name) => name.chars().take(64).collect(),
        }
    }
}

macro_rules! descriptors {
    ($($(#[$meta:meta])* $constant:ident = $code:literal, $name:literal;)*) => {
        $($(#[$meta])* pub const $constant: u64 = $code;)*

        const NAMES: &[(u64, &str)] = &[$(($code, $name),)*];
    };
}

descriptors! {
    /// `open` (part 2, section 2.7.1).
    OPEN = 0x10, "amqp:open:list";
    /// `begin` (part 2, section 2.7.2).
    BEGIN = 0x11, "amqp:begin:list";
    /// `attach` (part 2, section 2.7.3).
    ATTACH = 0x12, "amqp:attach:list";
    /// `flow` (part 2, section 2.7.4).
    FLOW = 0x13, "amqp:flow:list";
    /// `transfer` (part 2, section 2.7.5).
    TRANSFER = 0x14, "amqp:transfer:list";
    /// `disposition` (part 2, section 2.7.6).
    DISPOSITION = 0x15, "amqp:disposition:list";
    /// `detach` (part 2, section 2.7.7).
    DETACH = 0x16, "amqp:detach:list";
    /// `end` (part 2, section 2.7.8).
    END = 0x17, "amqp:end:list";
    /// `close` (part 2, section 2.7.9).
    CLOSE = 0x18, "amqp:close:list";
    /// `error` (part 2, section 2.8.14).
    ERROR = 0x1d, "amqp:error:list";
    /// `received` (part 3, section 3.4.1).
    RECEIVED = 0x23, "amqp:received:list";
    /// `accepted` (part 3, section 3.4.2).
    ACCEPTED = 0x24, "amqp:accepted:list";
    /// `rejected` (part 3, section 3.4.3).
    REJECTED = 0x25, "amqp:rejected:list";
    /// `released` (part 3, section 3.4.4).
    RELEASED = 0x26, "amqp:released:list";
    /// `modified` (part 3, section 3.4.5).
    MODIFIED = 0x27, "amqp:modified:list";
    /// `source` (part 3, section 3.5.3).
    SOURCE = 0x28, "amqp:source:list";
    /// `target` (part 3, section 3.5.4).
    TARGET = 0x29, "amqp:target:list";
    /// `delete-on-close` (part 3, section 3.5.10).
    DELETE_ON_CLOSE = 0x2b, "amqp:delete-on-close:list";
    /// `delete-on-no-links` (part 3, section 3.5.11).
    DELETE_ON_NO_LINKS = 0x2c, "amqp:delete-on-no-links:list";
    /// `delete-on-no-messages` (part 3, section 3.5.12).
    DELETE_ON_NO_MESSAGES = 0x2d, "amqp:delete-on-no-messages:list";
    /// `delete-on-no-links-or-messages` (part 3, section 3.5.13).
    DELETE_ON_NO_LINKS_OR_MESSAGES = 0x2e, "amqp:delete-on-no-links-or-messages:list";
    /// `coordinator` (part 4, section 4.5.1).
    COORDINATOR = 0x30, "amqp:coordinator:list";
    /// `declare` (part 4, section 4.5.2).
    DECLARE = 0x31, "amqp:declare:list";
    /// `discharge` (part 4, section 4.5.3).
    DISCHARGE = 0x32, "amqp:discharge:list";
    /// `declared` (part 4, section 4.5.5).
    DECLARED = 0x33, "amqp:declared:list";
    /// `transactional-state` (part 4, section 4.5.6).
    TRANSACTIONAL_STATE = 0x34, "amqp:transactional-state:list";
    /// `sasl-mechanisms` (part 5, section 5.3.3.1).
    SASL_MECHANISMS = 0x40, "amqp:sasl-mechanisms:list";
    /// `sasl-init` (part 5, section 5.3.3.2).
    SASL_INIT = 0x41, "amqp:sasl-init:list";
    /// `sasl-challenge` (part 5, section 5.3.3.3).
    SASL_CHALLENGE = 0x42, "amqp:sasl-challenge:list";
    /// `sasl-response` (part 5, section 5.3.3.4).
    SASL_RESPONSE = 0x43, "amqp:sasl-response:list";
    /// `sasl-outcome` (part 5, section 5.3.3.5).
    SASL_OUTCOME = 0x44, "amqp:sasl-outcome:list";
    /// `header` (part 3, section 3.2.1).
    HEADER = 0x70, "amqp:header:list";
    /// `delivery-annotations` (part 3, section 3.2.2).
    DELIVERY_ANNOTATIONS = 0x71, "amqp:delivery-annotations:map";
    /// `message-annotations` (part 3, section 3.2.3).
    MESSAGE_ANNOTATIONS = 0x72, "amqp:message-annotations:map";
    /// `properties` (part 3, section 3.2.4).
    PROPERTIES = 0x73, "amqp:properties:list";
    /// `application-properties` (part 3, section 3.2.5).
    APPLICATION_PROPERTIES = 0x74, "amqp:application-properties:map";
    /// `data` (part 3, section 3.2.6).
    DATA = 0x75, "amqp:data:binary";
    /// `amqp-sequence` (part 3, section 3.2.7).
    AMQP_SEQUENCE = 0x76, "amqp:amqp-sequence:list";
    /// `amqp-value` (part 3, section 3.2.8).
    AMQP_VALUE = 0x77, "amqp:amqp-value:*";
    /// `footer` (part 3, section 3.2.9).
    FOOTER = 0x78, "amqp:footer:map";
}
