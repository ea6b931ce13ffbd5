//! The performatives of deliveries.

use crate::composite::composite;
use crate::descriptor;
use crate::performative::{DeliveryTag, ReceiverSettleMode, Role};
use crate::state::DeliveryState;

composite! {
    /// Carries a message, or a part of one, in the payload of its frame (section 2.7.5).
    pub struct Transfer, "transfer", descriptor::TRANSFER {
        /// The link.
        handle: u32 => mandatory,
        /// The number of the delivery in its session; in the first transfer of a delivery at least.
        delivery_id: Option<u32> => optional,
        /// The tag of the delivery, unique on its link; in the first transfer of a delivery at least.
        delivery_tag: Option<DeliveryTag> => optional,
        /// The format of the message; in the first transfer of a delivery at least. Zero is AMQP's own.
        message_format: Option<u32> => optional,
        /// The sender has settled the delivery; absent says nothing new, which is false in a first transfer.
        settled: Option<bool> => optional,
        /// More transfers of this delivery follow.
        more: bool => or(false),
        /// How the receiver settles this delivery, when the link leaves it open.
        rcv_settle_mode: Option<ReceiverSettleMode> => optional,
        /// The state of the delivery at the sender.
        state: Option<DeliveryState> => optional,
        /// The delivery was begun on an earlier attachment of the link.
        resume: bool => or(false),
        /// The sender gives up the delivery; everything sent of it is void.
        aborted: bool => or(false),
        /// The receiver may hold back its disposition for a while.
        batchable: bool => or(false),
    }
}

composite! {
    /// Tells the state of a range of deliveries (section 2.7.6).
    pub struct Disposition, "disposition", descriptor::DISPOSITION {
        /// Which end the speaker is.
        role: Role => mandatory,
        /// The first delivery number.
        first: u32 => mandatory,
        /// The last delivery number; absent for the first alone.
        last: Option<u32> => optional,
        /// The speaker has settled the deliveries.
        settled: bool => or(false),
        /// Their state.
        state: Option<DeliveryState> => optional,
        /// The peer may hold back its answer for a while.
        batchable: bool => or(false),
    }
}
