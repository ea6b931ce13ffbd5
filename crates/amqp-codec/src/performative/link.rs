//! The performatives of a link.

use crate::composite::composite;
use crate::decode::Decode;
use crate::decode_error::DecodeError;
use crate::descriptor;
use crate::encode::Encode;
use crate::error::AmqpError;
use crate::format;
use crate::map::Fields;
use crate::performative::{DeliveryTag, ReceiverSettleMode, Role, SenderSettleMode};
use crate::reader::Reader;
use crate::state::DeliveryState;
use crate::symbol::Symbol;
use crate::terminus::{Source, TargetKind};
use crate::writer::{Buffer, Compound, saturate};

composite! {
    /// Attaches a link to a session (section 2.7.3).
    pub struct Attach, "attach", descriptor::ATTACH {
        /// The name of the link, unique between the two containers for its direction.
        name: String => mandatory,
        /// The number by which the speaker will name the link on this session.
        handle: u32 => mandatory,
        /// Which end the speaker is.
        role: Role => mandatory,
        /// How the sender settles.
        snd_settle_mode: SenderSettleMode => or(SenderSettleMode::Mixed),
        /// How the receiver settles.
        rcv_settle_mode: ReceiverSettleMode => or(ReceiverSettleMode::First),
        /// Where messages come from.
        source: Option<Source> => optional,
        /// Where messages go.
        target: Option<TargetKind> => optional,
        /// Deliveries that are unsettled at the speaker, for a link that is resumed.
        unsettled: Option<UnsettledMap> => optional,
        /// The map of unsettled deliveries did not fit into the frame.
        incomplete_unsettled: bool => or(false),
        /// The delivery count at which the sender starts; absent from receivers.
        initial_delivery_count: Option<u32> => optional,
        /// The largest message that the speaker takes, in bytes; absent or zero for no limit.
        max_message_size: Option<u64> => optional,
        /// Extensions that the speaker supports.
        offered_capabilities: Vec<Symbol> => multiple,
        /// Extensions that the speaker may use if the peer supports them.
        desired_capabilities: Vec<Symbol> => multiple,
        /// About the link.
        properties: Option<Fields> => optional,
    }
}

composite! {
    /// Updates the flow state of a session, and of one of its links (section 2.7.4).
    pub struct Flow, "flow", descriptor::FLOW {
        /// The transfer number that the speaker expects next; absent before it has seen the peer's begin.
        next_incoming_id: Option<u32> => optional,
        /// How many transfers the speaker can take now.
        incoming_window: u32 => mandatory,
        /// The transfer number of the speaker's next transfer.
        next_outgoing_id: u32 => mandatory,
        /// How many transfers the speaker can send now.
        outgoing_window: u32 => mandatory,
        /// The link that is meant, if any.
        handle: Option<u32> => optional,
        /// The delivery count of the link's sender, as the speaker knows it.
        delivery_count: Option<u32> => optional,
        /// How many more messages the receiver takes.
        link_credit: Option<u32> => optional,
        /// How many messages wait at the sender.
        available: Option<u32> => optional,
        /// The sender should use up its credit, and give back what it cannot use.
        drain: bool => or(false),
        /// The peer should answer with its own flow state.
        echo: bool => or(false),
        /// About the link.
        properties: Option<Fields> => optional,
    }
}

composite! {
    /// Detaches a link (section 2.7.7).
    pub struct Detach, "detach", descriptor::DETACH {
        /// The link.
        handle: u32 => mandatory,
        /// The link is closed for good, and its ends may forget it.
        closed: bool => or(false),
        /// Why, unless nothing went wrong.
        error: Option<AmqpError> => optional,
    }
}

/// The unsettled deliveries of a link that is resumed: their tags, with the state each has at the speaker (section
/// 2.7.3, `unsettled`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsettledMap(pub Vec<(DeliveryTag, Option<DeliveryState>)>);

impl Decode for UnsettledMap {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (mut body, count) = reader.map()?;
        let mut entries = Vec::new();
        for _ in 0..count / 2 {
            let tag = DeliveryTag::decode(&mut body)?;
            let state = if body.take_null()? { None } else { Some(DeliveryState::decode(&mut body)?) };
            entries.push((tag, state));
        }
        body.finish_compound("map")?;
        reader.absorb_allowance(&body);
        Ok(Self(entries))
    }
}

impl Encode for UnsettledMap {
    fn encode<B: Buffer>(&self, out: &mut B) {
        let compound = Compound::begin(out);
        for (tag, state) in &self.0 {
            tag.encode(out);
            match state {
                Some(state) => state.encode(out),
                None => out.push(format::NULL),
            }
        }
        compound.end_map(out, saturate(self.0.len() * 2));
    }
}
