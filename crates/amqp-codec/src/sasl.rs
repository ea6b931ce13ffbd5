//! The frames of the SASL layer (part 5, section 5.3.3).

use bytes::Bytes;

use crate::composite::{composite, finish_composite, unexpected_descriptor};
use crate::decode::Decode;
use crate::decode_error::DecodeError;
use crate::descriptor;
use crate::encode::Encode;
use crate::reader::Reader;
use crate::symbol::Symbol;
use crate::writer::Buffer;

composite! {
    /// The mechanisms that the server offers (part 5, section 5.3.3.1).
    pub struct SaslMechanisms, "sasl-mechanisms", descriptor::SASL_MECHANISMS {
        /// The names, in order of preference. The field is mandatory; an empty one is read as no mechanisms.
        mechanisms: Vec<Symbol> => multiple,
    }
}

composite! {
    /// The mechanism that the client has chosen (part 5, section 5.3.3.2).
    pub struct SaslInit, "sasl-init", descriptor::SASL_INIT {
        /// The name.
        mechanism: Symbol => mandatory,
        /// What the mechanism says first.
        initial_response: Option<Bytes> => optional,
        /// The host that the client wants to reach.
        hostname: Option<String> => optional,
    }
}

composite! {
    /// A question of the server (part 5, section 5.3.3.3).
    pub struct SaslChallenge, "sasl-challenge", descriptor::SASL_CHALLENGE {
        /// As the mechanism defines it.
        challenge: Bytes => mandatory,
    }
}

composite! {
    /// The answer of the client (part 5, section 5.3.3.4).
    pub struct SaslResponse, "sasl-response", descriptor::SASL_RESPONSE {
        /// As the mechanism defines it.
        response: Bytes => mandatory,
    }
}

composite! {
    /// The end of the dialogue (part 5, section 5.3.3.5).
    pub struct SaslOutcome, "sasl-outcome", descriptor::SASL_OUTCOME {
        /// How it ended.
        code: SaslCode => mandatory,
        /// What the mechanism says last.
        additional_data: Option<Bytes> => optional,
    }
}

/// How a SASL dialogue ended (part 5, section 5.3.3.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SaslCode {
    /// The peer is authenticated.
    #[default]
    Ok,
    /// The credentials are wrong.
    Auth,
    /// The system failed.
    Sys,
    /// The system failed, and will until someone mends it.
    SysPerm,
    /// The system failed, and may not the next time.
    SysTemp,
}

impl Decode for SaslCode {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Ok),
            1 => Ok(Self::Auth),
            2 => Ok(Self::Sys),
            3 => Ok(Self::SysPerm),
            4 => Ok(Self::SysTemp),
            other => Err(reader.invalid_choice("a SASL code of 0 to 4", other.into())),
        }
    }
}

impl Encode for SaslCode {
    fn encode<B: Buffer>(&self, out: &mut B) {
        let code: u8 = match self {
            Self::Ok => 0,
            Self::Auth => 1,
            Self::Sys => 2,
            Self::SysPerm => 3,
            Self::SysTemp => 4,
        };
        code.encode(out);
    }
}

/// The body of a SASL frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslBody {
    /// The mechanisms that the server offers.
    Mechanisms(SaslMechanisms),
    /// The mechanism that the client has chosen.
    Init(SaslInit),
    /// A question of the server.
    Challenge(SaslChallenge),
    /// The answer of the client.
    Response(SaslResponse),
    /// The end of the dialogue.
    Outcome(SaslOutcome),
}

impl Decode for SaslBody {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.offset();
        let (descriptor, fields) = reader.composite()?;
        match descriptor.code() {
            Some(descriptor::SASL_MECHANISMS) => finish_composite(fields).map(Self::Mechanisms),
            Some(descriptor::SASL_INIT) => finish_composite(fields).map(Self::Init),
            Some(descriptor::SASL_CHALLENGE) => finish_composite(fields).map(Self::Challenge),
            Some(descriptor::SASL_RESPONSE) => finish_composite(fields).map(Self::Response),
            Some(descriptor::SASL_OUTCOME) => finish_composite(fields).map(Self::Outcome),
            _ => Err(unexpected_descriptor(start, "a SASL frame body", descriptor)),
        }
    }
}

impl Encode for SaslBody {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match self {
            Self::Mechanisms(body) => body.encode(out),
            Self::Init(body) => body.encode(out),
            Self::Challenge(body) => body.encode(out),
            Self::Response(body) => body.encode(out),
            Self::Outcome(body) => body.encode(out),
        }
    }
}
