//! Protocol headers and the SASL layer: ANONYMOUS and PLAIN (part 2, section 2.2; part 5, section 5.3; RFC 4505; RFC
//! 4616).

use bytes::Bytes;
use postroad_amqp_codec::Symbol;
use postroad_amqp_codec::frame::{ProtocolHeader, ProtocolId};
use postroad_amqp_codec::sasl::{
    SaslBody, SaslChallenge, SaslCode, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse,
};

use crate::config::{AcceptSasl, InitiateSasl};
use crate::connection::{Connection, OpenReply, Stage};
use crate::error::{ApiMisuse, Error, PeerIncompatible, PeerMisbehaved};
use crate::event::{Event, Password};

const ANONYMOUS: Symbol = Symbol::from_static("ANONYMOUS");
const PLAIN: Symbol = Symbol::from_static("PLAIN");

/// Our side of the SASL layer.
#[derive(Debug)]
pub(crate) enum Sasl {
    Accept(AcceptSasl),
    Initiate(InitiateSasl),
}

impl AcceptSasl {
    fn mechanisms(self) -> Vec<Symbol> {
        let both = [(self.plain, PLAIN), (self.anonymous, ANONYMOUS)];
        both.into_iter().filter(|(offered, _)| *offered).map(|(_, name)| name).collect()
    }

    /// The header that a peer is told to come back with (part 2, section 2.2).
    fn preferred(self) -> ProtocolHeader {
        if self.mechanisms().is_empty() { ProtocolHeader::AMQP } else { ProtocolHeader::SASL }
    }

    /// Whether a peer may start with this header.
    fn takes(self, header: ProtocolHeader) -> bool {
        header.is_supported()
            && match header.id {
                ProtocolId::Amqp => self.skip,
                ProtocolId::Sasl => !self.mechanisms().is_empty(),
                ProtocolId::Tls => false,
            }
    }
}

impl InitiateSasl {
    const fn mechanism(&self) -> Option<Symbol> {
        match self {
            Self::Skip => None,
            Self::Anonymous { .. } => Some(ANONYMOUS),
            Self::Plain { .. } => Some(PLAIN),
        }
    }

    /// What the mechanism sends: trace information (RFC 4505), or identity, user and password (RFC 4616).
    fn response(&self) -> Bytes {
        match self {
            Self::Skip => Bytes::new(),
            Self::Anonymous { trace } => Bytes::copy_from_slice(trace.as_bytes()),
            Self::Plain { authzid, user, password } => format!("{authzid}\0{user}\0{password}").into(),
        }
    }
}

impl Connection {
    /// Answers [`Event::SaslAnonymous`] or [`Event::SaslPlain`]: [`SaslCode::Ok`] lets the peer in; any other refuses
    /// it, and the connection ends with [`Event::Failed`]. Then call [`Connection::handle_input`] again with what was
    /// left of the input.
    ///
    /// # Errors
    /// [`ApiMisuse::NoSaslQuestion`] when none was asked.
    pub fn sasl_outcome(&mut self, code: SaslCode) -> Result<(), ApiMisuse> {
        if self.stage != Stage::SaslQuestion {
            return Err(ApiMisuse::NoSaslQuestion);
        }
        self.early.sasl_frame(&SaslOutcome { code, additional_data: None });
        if code == SaslCode::Ok {
            self.stage = Stage::AmqpHeader;
        } else {
            self.fail(PeerIncompatible::Authentication(code).into());
        }
        Ok(())
    }

    /// Sends the first header of the initiating side, and the open frame behind it where SASL does not come between.
    pub(crate) fn start(&mut self) {
        match self.sasl {
            Sasl::Initiate(InitiateSasl::Skip) => self.start_amqp(),
            _ => self.early.raw(&ProtocolHeader::SASL.to_bytes()),
        }
    }

    fn start_amqp(&mut self) {
        self.early.raw(&ProtocolHeader::AMQP.to_bytes());
        self.write_open(OpenReply::default());
        self.stage = Stage::AmqpHeader;
    }

    pub(crate) fn on_header(&mut self, header: ProtocolHeader) -> Result<(), Error> {
        let first = self.stage == Stage::Header;
        match self.sasl {
            Sasl::Accept(sasl) if first && !sasl.takes(header) => {
                self.early.raw(&sasl.preferred().to_bytes());
                return Err(PeerIncompatible::Header(header.to_bytes()).into());
            }
            Sasl::Accept(sasl) if first && header == ProtocolHeader::SASL => {
                self.early.raw(&header.to_bytes());
                self.early.sasl_frame(&SaslMechanisms { mechanisms: sasl.mechanisms() });
                self.stage = Stage::SaslInit;
            }
            Sasl::Initiate(_) if first && header == ProtocolHeader::SASL => {
                self.stage = Stage::SaslMechanisms;
            }
            Sasl::Initiate(_) if !first && header == ProtocolHeader::AMQP => self.stage = Stage::Amqp,
            Sasl::Accept(_) if header == ProtocolHeader::AMQP => {
                self.early.raw(&header.to_bytes());
                self.stage = Stage::Amqp;
            }
            _ => return Err(PeerIncompatible::Header(header.to_bytes()).into()),
        }
        Ok(())
    }

    /// Answers bytes that are no header: the accepting side says what it would take (part 2, section 2.2).
    pub(crate) fn refuse_header(&mut self, input: &[u8]) -> Error {
        if let (Sasl::Accept(sasl), Stage::Header) = (&self.sasl, self.stage) {
            self.early.raw(&sasl.preferred().to_bytes());
        }
        let mut start = [0; 8];
        start.iter_mut().zip(input).for_each(|(slot, byte)| *slot = *byte);
        PeerIncompatible::Header(start).into()
    }

    pub(crate) fn on_sasl(&mut self, body: SaslBody) -> Result<(), Error> {
        match (self.stage, body) {
            (Stage::SaslInit, SaslBody::Init(init)) => self.on_init(init),
            (Stage::SaslResponse, SaslBody::Response(response)) => self.ask_plain(&response.response),
            (Stage::SaslMechanisms, SaslBody::Mechanisms(offer)) => self.choose(&offer.mechanisms),
            (Stage::SaslOutcome, SaslBody::Challenge(_)) => {
                let Sasl::Initiate(sasl) = &self.sasl else { return Ok(()) };
                let response = sasl.response();
                self.early.sasl_frame(&SaslResponse { response });
                Ok(())
            }
            (Stage::SaslOutcome, SaslBody::Outcome(outcome)) if outcome.code == SaslCode::Ok => {
                self.start_amqp();
                Ok(())
            }
            (Stage::SaslOutcome, SaslBody::Outcome(outcome)) => {
                Err(PeerIncompatible::Authentication(outcome.code).into())
            }
            (Stage::Amqp, _) => Err(PeerMisbehaved::WrongLayer.into()),
            (Stage::Discarding, _) => Ok(()),
            _ => Err(PeerMisbehaved::SaslOutOfTurn.into()),
        }
    }

    fn on_init(&mut self, init: SaslInit) -> Result<(), Error> {
        let Sasl::Accept(sasl) = self.sasl else { return Ok(()) };
        if !sasl.mechanisms().contains(&init.mechanism) {
            self.early.sasl_frame(&SaslOutcome { code: SaslCode::Auth, additional_data: None });
            return Err(PeerIncompatible::Mechanism(init.mechanism.to_string()).into());
        }
        match init.initial_response {
            Some(response) if init.mechanism == PLAIN => self.ask_plain(&response),
            None if init.mechanism == PLAIN => {
                self.early.sasl_frame(&SaslChallenge { challenge: Bytes::new() });
                self.stage = Stage::SaslResponse;
                Ok(())
            }
            response => {
                let trace = String::from_utf8_lossy(&response.unwrap_or_default()).into_owned();
                self.events.push_back(Event::SaslAnonymous { trace });
                self.stage = Stage::SaslQuestion;
                Ok(())
            }
        }
    }

    /// Asks the user about PLAIN credentials: identity, NUL, user, NUL, password (RFC 4616, section 2).
    fn ask_plain(&mut self, response: &[u8]) -> Result<(), Error> {
        let text = std::str::from_utf8(response).map_err(|_| PeerMisbehaved::SaslPlainMalformed)?;
        let parts: Vec<&str> = text.split('\0').collect();
        let &[authzid, user, password] = parts.as_slice() else {
            return Err(PeerMisbehaved::SaslPlainMalformed.into());
        };
        let [authzid, user, password] = [authzid, user, password].map(str::to_owned);
        self.events.push_back(Event::SaslPlain { authzid, user, password: Password(password) });
        self.stage = Stage::SaslQuestion;
        Ok(())
    }

    fn choose(&mut self, offered: &[Symbol]) -> Result<(), Error> {
        let Sasl::Initiate(sasl) = &self.sasl else { return Ok(()) };
        let Some(mechanism) = sasl.mechanism().filter(|mechanism| offered.contains(mechanism)) else {
            let names: Vec<&str> = offered.iter().map(Symbol::as_str).collect();
            return Err(PeerIncompatible::NoMechanism(names.join(", ")).into());
        };
        let init = SaslInit {
            mechanism,
            initial_response: Some(sasl.response()),
            hostname: self.config.hostname.clone(),
        };
        self.early.sasl_frame(&init);
        self.stage = Stage::SaslOutcome;
        Ok(())
    }
}
