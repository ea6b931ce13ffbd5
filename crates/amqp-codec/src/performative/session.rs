//! The performatives of a session.

use crate::composite::composite;
use crate::descriptor;
use crate::error::AmqpError;
use crate::map::Fields;
use crate::symbol::Symbol;

composite! {
    /// Begins a session (section 2.7.2).
    pub struct Begin, "begin", descriptor::BEGIN {
        /// In an answer: the channel on which the peer began the session.
        remote_channel: Option<u16> => optional,
        /// The transfer number of the speaker's next transfer.
        next_outgoing_id: u32 => mandatory,
        /// How many transfers the speaker can take now.
        incoming_window: u32 => mandatory,
        /// How many transfers the speaker can send now.
        outgoing_window: u32 => mandatory,
        /// The highest link handle that may be used.
        handle_max: u32 => or(u32::MAX),
        /// Extensions that the speaker supports.
        offered_capabilities: Vec<Symbol> => multiple,
        /// Extensions that the speaker may use if the peer supports them.
        desired_capabilities: Vec<Symbol> => multiple,
        /// About the session.
        properties: Option<Fields> => optional,
    }
}

composite! {
    /// Ends a session (section 2.7.8).
    pub struct End, "end", descriptor::END {
        /// Why, unless nothing went wrong.
        error: Option<AmqpError> => optional,
    }
}
