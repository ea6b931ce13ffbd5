//! The state of a delivery at its receiver, and its outcome (part 3, section 3.4; part 4, sections 4.5.5 and 4.5.6).

use bytes::Bytes;

use crate::composite::{FieldReader, encode_fields, unexpected_descriptor};
use crate::decode::Decode;
use crate::decode_error::{DecodeError, DecodeErrorKind};
use crate::descriptor;
use crate::encode::Encode;
use crate::error::AmqpError;
use crate::map::Fields;
use crate::reader::Reader;
use crate::value::{Described, Value};
use crate::writer::Buffer;

/// How far a delivery has come at its receiver (part 3, section 3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// Not terminal: how much has been received, for a link that is resumed (section 3.4.1).
    Received {
        /// The section, counted from zero, in which to go on.
        section_number: u32,
        /// The byte of that section with which to go on.
        section_offset: u64,
    },
    /// The receiver has taken the message (section 3.4.2).
    Accepted,
    /// The receiver holds the message for invalid (section 3.4.3).
    Rejected {
        /// Why.
        error: Option<AmqpError>,
    },
    /// The receiver has not used the message (section 3.4.4).
    Released,
    /// The receiver has not used the message, which changes (section 3.4.5).
    Modified {
        /// Count this as a failed attempt at delivery.
        delivery_failed: bool,
        /// Do not send the message to this link again.
        undeliverable_here: bool,
        /// Annotations to merge into those of the message.
        message_annotations: Option<Fields>,
    },
    /// The coordinator has begun a transaction (part 4, section 4.5.5).
    Declared {
        /// The id of the transaction.
        txn_id: Bytes,
    },
    /// The state holds when the transaction commits (part 4, section 4.5.6).
    Transactional {
        /// The id of the transaction.
        txn_id: Bytes,
        /// The outcome that the transaction makes final.
        outcome: Option<Outcome>,
    },
    /// A state that the specification does not define.
    Other(Box<Described>),
}

/// A terminal delivery state (part 3, section 3.4; the `outcome` archetype).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As [`DeliveryState::Accepted`].
    Accepted,
    /// As [`DeliveryState::Rejected`].
    Rejected {
        /// Why.
        error: Option<AmqpError>,
    },
    /// As [`DeliveryState::Released`].
    Released,
    /// As [`DeliveryState::Modified`].
    Modified {
        /// Count this as a failed attempt at delivery.
        delivery_failed: bool,
        /// Do not send the message to this link again.
        undeliverable_here: bool,
        /// Annotations to merge into those of the message.
        message_annotations: Option<Fields>,
    },
    /// As [`DeliveryState::Declared`].
    Declared {
        /// The id of the transaction.
        txn_id: Bytes,
    },
    /// An outcome that the specification does not define.
    Other(Box<Described>),
}

impl DeliveryState {
    /// The outcome that this state is, or carries in a transaction; none when the state is not terminal.
    #[must_use]
    pub fn into_outcome(self) -> Option<Outcome> {
        Some(match self {
            Self::Received { .. } => return None,
            Self::Accepted => Outcome::Accepted,
            Self::Rejected { error } => Outcome::Rejected { error },
            Self::Released => Outcome::Released,
            Self::Modified { delivery_failed, undeliverable_here, message_annotations } => {
                Outcome::Modified { delivery_failed, undeliverable_here, message_annotations }
            }
            Self::Declared { txn_id } => Outcome::Declared { txn_id },
            Self::Transactional { outcome, .. } => return outcome,
            Self::Other(other) => Outcome::Other(other),
        })
    }
}

impl From<Outcome> for DeliveryState {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Accepted => Self::Accepted,
            Outcome::Rejected { error } => Self::Rejected { error },
            Outcome::Released => Self::Released,
            Outcome::Modified { delivery_failed, undeliverable_here, message_annotations } => {
                Self::Modified { delivery_failed, undeliverable_here, message_annotations }
            }
            Outcome::Declared { txn_id } => Self::Declared { txn_id },
            Outcome::Other(other) => Self::Other(other),
        }
    }
}

impl Decode for DeliveryState {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.offset();
        let known = reader.clone().descriptor().ok().and_then(|found| found.code()).filter(is_state);
        if let Some(code) = known {
            let (_, mut fields) = reader.composite()?;
            let state = decode_fields(code, &mut fields)?;
            fields.finish()?;
            return Ok(state);
        }
        let code = reader.peek_code()?;
        match Value::decode(reader)? {
            Value::Described(described) => Ok(Self::Other(described)),
            _ => Err(DecodeError {
                offset: start,
                kind: DecodeErrorKind::UnexpectedType { expected: "a delivery state", code },
            }),
        }
    }
}

impl Decode for Outcome {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.offset();
        let found = reader.clone().descriptor();
        let state = DeliveryState::decode(reader)?;
        let terminal = !matches!(state, DeliveryState::Transactional { .. });
        match state.into_outcome().filter(|_| terminal) {
            Some(outcome) => Ok(outcome),
            None => Err(unexpected_descriptor(start, "an outcome", found?)),
        }
    }
}

/// Whether the specification defines a delivery state with this descriptor.
fn is_state(code: &u64) -> bool {
    matches!(
        *code,
        descriptor::RECEIVED
            | descriptor::ACCEPTED
            | descriptor::REJECTED
            | descriptor::RELEASED
            | descriptor::MODIFIED
            | descriptor::DECLARED
            | descriptor::TRANSACTIONAL_STATE
    )
}

/// The state with one of the descriptors of [`is_state`].
fn decode_fields(code: u64, fields: &mut FieldReader<'_>) -> Result<DeliveryState, DecodeError> {
    Ok(match code {
        descriptor::RECEIVED => DeliveryState::Received {
            section_number: fields.mandatory("received", "section_number")?,
            section_offset: fields.mandatory("received", "section_offset")?,
        },
        descriptor::REJECTED => DeliveryState::Rejected { error: fields.optional()? },
        descriptor::RELEASED => DeliveryState::Released,
        descriptor::MODIFIED => DeliveryState::Modified {
            delivery_failed: fields.optional()?.unwrap_or(false),
            undeliverable_here: fields.optional()?.unwrap_or(false),
            message_annotations: fields.optional()?,
        },
        descriptor::DECLARED => DeliveryState::Declared { txn_id: fields.mandatory("declared", "txn_id")? },
        descriptor::TRANSACTIONAL_STATE => DeliveryState::Transactional {
            txn_id: fields.mandatory("transactional-state", "txn_id")?,
            outcome: fields.optional()?,
        },
        _ => DeliveryState::Accepted,
    })
}

impl Encode for DeliveryState {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match self {
            Self::Received { section_number, section_offset } => {
                encode_fields(descriptor::RECEIVED, out, |fields| {
                    fields.put(section_number);
                    fields.put(section_offset);
                });
            }
            Self::Accepted => encode_fields(descriptor::ACCEPTED, out, |_| {}),
            Self::Rejected { error } => encode_rejected(error.as_ref(), out),
            Self::Released => encode_fields(descriptor::RELEASED, out, |_| {}),
            Self::Modified { delivery_failed, undeliverable_here, message_annotations } => {
                encode_modified(*delivery_failed, *undeliverable_here, message_annotations.as_ref(), out);
            }
            Self::Declared { txn_id } => {
                encode_fields(descriptor::DECLARED, out, |fields| fields.put(txn_id));
            }
            Self::Transactional { txn_id, outcome } => {
                encode_fields(descriptor::TRANSACTIONAL_STATE, out, |fields| {
                    fields.put(txn_id);
                    fields.put_optional(outcome.as_ref());
                });
            }
            Self::Other(described) => described.encode(out),
        }
    }
}

impl Encode for Outcome {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match self {
            Self::Accepted => encode_fields(descriptor::ACCEPTED, out, |_| {}),
            Self::Rejected { error } => encode_rejected(error.as_ref(), out),
            Self::Released => encode_fields(descriptor::RELEASED, out, |_| {}),
            Self::Modified { delivery_failed, undeliverable_here, message_annotations } => {
                encode_modified(*delivery_failed, *undeliverable_here, message_annotations.as_ref(), out);
            }
            Self::Declared { txn_id } => {
                encode_fields(descriptor::DECLARED, out, |fields| fields.put(txn_id));
            }
            Self::Other(described) => described.encode(out),
        }
    }
}

fn encode_rejected<B: Buffer>(error: Option<&AmqpError>, out: &mut B) {
    encode_fields(descriptor::REJECTED, out, |fields| fields.put_optional(error));
}

fn encode_modified<B: Buffer>(failed: bool, undeliverable: bool, annotations: Option<&Fields>, out: &mut B) {
    encode_fields(descriptor::MODIFIED, out, |fields| {
        fields.put_unless(&failed, &false);
        fields.put_unless(&undeliverable, &false);
        fields.put_optional(annotations);
    });
}
