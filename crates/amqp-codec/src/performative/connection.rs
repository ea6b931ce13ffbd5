//! The performatives of a connection.

use crate::composite::composite;
use crate::descriptor;
use crate::error::AmqpError;
use crate::map::Fields;
use crate::symbol::Symbol;

composite! {
    /// Negotiates a connection (section 2.7.1).
    pub struct Open, "open", descriptor::OPEN {
        /// Who is speaking.
        container_id: String => mandatory,
        /// The host that the peer wants to reach.
        hostname: Option<String> => optional,
        /// The largest frame that the speaker takes, in bytes; at least 512.
        max_frame_size: u32 => or(u32::MAX),
        /// The highest channel number that may be used.
        channel_max: u16 => or(u16::MAX),
        /// Milliseconds without a frame after which the speaker gives up the connection.
        idle_time_out: Option<u32> => optional,
        /// Languages for texts that the speaker may send.
        outgoing_locales: Vec<Symbol> => multiple,
        /// Languages for texts that the speaker wants to get.
        incoming_locales: Vec<Symbol> => multiple,
        /// Extensions that the speaker supports.
        offered_capabilities: Vec<Symbol> => multiple,
        /// Extensions that the speaker may use if the peer supports them.
        desired_capabilities: Vec<Symbol> => multiple,
        /// About the speaker.
        properties: Option<Fields> => optional,
    }
}

composite! {
    /// Closes a connection (section 2.7.9).
    pub struct Close, "close", descriptor::CLOSE {
        /// Why, unless nothing went wrong.
        error: Option<AmqpError> => optional,
    }
}
