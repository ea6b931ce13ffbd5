//! The one table of refusals (README U-13): each code has one AMQP condition and one HTTP status.

use std::fmt;

/// A request that was refused: the stable code, what it was about, and one sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The stable code.
    pub code: Code,
    /// The name of the object it is about.
    pub object: String,
    /// One sentence: what is wrong, and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal about `object`.
    pub fn new(code: Code, object: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, object: object.into(), message: message.into() }
    }
}

macro_rules! codes {
    ($( $(#[$doc:meta])* $name:ident = $text:literal, $amqp:literal, $http:literal, $mq:expr; )*) => {
        /// A stable refusal code. The word is what programs may compare.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $( $(#[$doc])* $name, )* }

        impl Code {
            /// Every code, in the order of the manual.
            pub const ALL: &[Self] = &[$( Self::$name, )*];

            /// The stable word, as in `QUEUE_FULL`.
            #[must_use]
            pub const fn as_str(self) -> &'static str { match self { $( Self::$name => $text, )* } }

            /// The AMQP error condition.
            #[must_use]
            pub const fn amqp_condition(self) -> &'static str { match self { $( Self::$name => $amqp, )* } }

            /// The HTTP status.
            #[must_use]
            pub const fn http_status(self) -> u16 { match self { $( Self::$name => $http, )* } }

            /// IBM MQ's number for it, where there is one.
            #[must_use]
            pub const fn mq_code(self) -> Option<u32> { match self { $( Self::$name => $mq, )* } }
        }
    };
}

codes! {
    /// An address that does not parse, or an unknown option in it (ADR-8).
    BadAddress = "BAD_ADDRESS", "amqp:invalid-field", 400, Some(2152);
    /// A name that breaks the rules (ADR-3, CH-2).
    BadName = "BAD_NAME", "amqp:invalid-field", 400, None;
    /// A topic string that can't be published to (TT-2).
    BadTopic = "BAD_TOPIC", "amqp:invalid-field", 400, Some(2425);
    /// A setting outside its range.
    BadValue = "BAD_VALUE", "amqp:invalid-field", 400, None;
    /// A capacity outside its range (5.1).
    BadCapacity = "BAD_CAPACITY", "amqp:invalid-field", 400, None;
    /// A publish key without a name or with depth 0.
    BadPublishKey = "BAD_PUBLISH_KEY", "amqp:invalid-field", 400, None;
    /// A dead event store that is the store itself.
    DesSelf = "DES_SELF", "amqp:invalid-field", 400, None;
    /// A message whose sections do not parse.
    BadMessage = "BAD_MESSAGE", "amqp:decode-error", 400, None;
    /// A selector that does not parse (FIL-2, ERR-7).
    FilterSyntax = "FILTER_SYNTAX", "amqp:invalid-field", 400, None;
    /// Nothing named so here (RES-L14).
    UnknownQueue = "UNKNOWN_QUEUE", "amqp:not-found", 404, Some(2085);
    /// No channel of that name.
    ChannelNotFound = "CHANNEL_NOT_FOUND", "amqp:not-found", 404, None;
    /// No road to that broker (RES-X10).
    UnknownBroker = "UNKNOWN_BROKER", "amqp:not-found", 404, Some(2087);
    /// The address leads to another broker (RES-2).
    NotLocal = "NOT_LOCAL", "amqp:not-allowed", 422, Some(2045);
    /// The name is taken by something else (ADR-2).
    NameTaken = "NAME_TAKEN", "amqp:precondition-failed", 409, None;
    /// It exists with other attributes.
    StoreExists = "STORE_EXISTS", "amqp:precondition-failed", 409, None;
    /// A store with joins, or one that another thing names (DEL-4).
    StoreInUse = "STORE_IN_USE", "amqp:resource-locked", 409, None;
    /// A full channel (5.1, RET-5).
    StoreFull = "STORE_FULL", "amqp:resource-limit-exceeded", 507, None;
    /// A full queue.
    QueueFull = "QUEUE_FULL", "amqp:resource-limit-exceeded", 507, Some(2053);
    /// The disk has no room; publishers wait, consumers go on.
    DiskFull = "DISK_FULL", "amqp:resource-limit-exceeded", 507, None;
    /// A message above the limit.
    MsgTooBig = "MSG_TOO_BIG", "amqp:link:message-size-exceeded", 422, Some(2030);
    /// The spool that keeps events for joins is full (FWD-2).
    JoinSpoolFull = "JOIN_SPOOL_FULL", "amqp:resource-limit-exceeded", 507, None;
    /// A join whose source is a queue (JOIN-2).
    JoinSourceIsQueue = "JOIN_SOURCE_IS_QUEUE", "amqp:not-allowed", 422, None;
    /// A join from a store to itself (JOIN-8).
    JoinSelf = "JOIN_SELF", "amqp:not-allowed", 422, None;
    /// The source of a join is absent.
    JoinSourceNotFound = "JOIN_SOURCE_NOT_FOUND", "amqp:not-found", 404, None;
    /// The destination of a join is absent.
    JoinDestNotFound = "JOIN_DEST_NOT_FOUND", "amqp:not-found", 404, None;
    /// A join without a destination (JOIN-3).
    JoinNoDestination = "JOIN_NO_DESTINATION", "amqp:invalid-field", 400, None;
    /// The same join with other attributes (JOIN-7).
    JoinExists = "JOIN_EXISTS", "amqp:precondition-failed", 409, None;
    /// No join of that name.
    JoinNotFound = "JOIN_NOT_FOUND", "amqp:not-found", 404, None;
    /// A hop limit outside 0 to 255 (HOP-4).
    JoinBadHops = "JOIN_BAD_HOPS", "amqp:invalid-field", 400, None;
    /// An archive join to a channel (ARC-1).
    ArchiveNeedsQueue = "ARCHIVE_NEEDS_QUEUE", "amqp:not-allowed", 422, None;
    /// A join to a place to which no link leads.
    LinkMissing = "LINK_MISSING", "amqp:precondition-failed", 409, None;
    /// An exclusive object with a consumer (ERR-1), or a delete with one (ERR-14).
    ObjectInUse = "OBJECT_IN_USE", "amqp:resource-locked", 409, None;
    /// No such named object (ERR-2).
    ObjectNotFound = "OBJECT_NOT_FOUND", "amqp:not-found", 404, None;
    /// No message waits for its delivery time under that number (QU-9).
    ScheduledNotFound = "SCHEDULED_NOT_FOUND", "amqp:not-found", 404, None;
    /// It exists with other attributes (ERR-3).
    ObjectExists = "OBJECT_EXISTS", "amqp:precondition-failed", 409, None;
    /// A clash of kinds, or another definition while active (ERR-4).
    ObjectKindConflict = "OBJECT_KIND_CONFLICT", "amqp:illegal-state", 409, None;
    /// Not possible on this kind of store (ERR-5).
    ObjectNotAllowedHere = "OBJECT_NOT_ALLOWED_HERE", "amqp:not-allowed", 422, None;
    /// A durable without a client id (ERR-9).
    ClientIdRequired = "CLIENT_ID_REQUIRED", "amqp:invalid-field", 400, None;
    /// A second connection with a client id that is to be used once (AM-2).
    ClientIdInUse = "CLIENT_ID_IN_USE", "amqp:invalid-field", 409, None;
    /// A limit of the broker is reached (ERR-11).
    LimitReached = "LIMIT_REACHED", "amqp:resource-limit-exceeded", 429, None;
    /// Not offered by this version (ERR-12).
    NotSupported = "NOT_SUPPORTED", "amqp:not-implemented", 422, None;
    /// Not possible in the present state (ERR-12).
    IllegalState = "ILLEGAL_STATE", "amqp:illegal-state", 409, None;
    /// Not permitted (ERR-8).
    NotAuthorized = "NOT_AUTHORIZED", "amqp:unauthorized-access", 403, Some(2035);
    /// The thing was deleted while it was in use (OP-6).
    Deleted = "DELETED", "amqp:resource-deleted", 409, None;
    /// Dead letter: the bytes of a stored message can't be read, the disk damaged them.
    MessageDamaged = "MESSAGE_DAMAGED", "amqp:internal-error", 500, None;
    /// Dead letter: the attempts are used up (AK-8).
    MaxAttempts = "MAX_ATTEMPTS", "amqp:internal-error", 409, None;
    /// Dead letter: the consumer rejected it (AK-2).
    Rejected = "REJECTED", "amqp:internal-error", 409, None;
    /// Dead letter: its time was over (QU-6).
    Expired = "EXPIRED", "amqp:internal-error", 409, None;
    /// Dead letter: every consumer refused it (AK-3).
    RefusedByAll = "REFUSED_BY_ALL", "amqp:internal-error", 409, None;
    /// Dead letter: a copy too old to be judged (DUP-7).
    DuplicateUndecidable = "DUPLICATE_UNDECIDABLE", "amqp:internal-error", 409, None;
    /// Another consumer took over (EX-5).
    Stolen = "STOLEN", "amqp:link:stolen", 409, None;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_unique_and_statuses_are_errors() {
        let mut words: Vec<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|c| (400..600).contains(&c.http_status())));
    }
}
