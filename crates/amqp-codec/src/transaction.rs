//! What a transaction controller says to its coordinator, as the body of a message (part 4, section 4.5).

use bytes::Bytes;

use crate::composite::composite;
use crate::descriptor;
use crate::value::Value;

composite! {
    /// Begin a transaction (part 4, section 4.5.2).
    pub struct Declare, "declare", descriptor::DECLARE {
        /// The global transaction to take part in, if any.
        global_id: Option<Value> => optional,
    }
}

composite! {
    /// End a transaction (part 4, section 4.5.3).
    pub struct Discharge, "discharge", descriptor::DISCHARGE {
        /// The id that the coordinator gave the transaction.
        txn_id: Bytes => mandatory,
        /// Roll back instead of commit.
        fail: bool => or(false),
    }
}

/// The capabilities that a coordinator can have (part 4, section 4.5.7).
pub mod capability {
    use crate::symbol::Symbol;

    /// Transactions of one session.
    pub const LOCAL: Symbol = Symbol::from_static("amqp:local-transactions");
    /// Distributed transactions.
    pub const DISTRIBUTED: Symbol = Symbol::from_static("amqp:distributed-transactions");
    /// Promotion of local transactions to distributed ones.
    pub const PROMOTABLE: Symbol = Symbol::from_static("amqp:promotable-transactions");
    /// More than one transaction at a time on one session.
    pub const MULTI_PER_SESSION: Symbol = Symbol::from_static("amqp:multi-txns-per-ssn");
    /// Transactions that span sessions.
    pub const MULTI_SESSION: Symbol = Symbol::from_static("amqp:multi-ssns-per-txn");
}
