//! The ends of a link: sources, targets and the transaction coordinator (part 3, section 3.5; part 4, section 4.5.1).

use crate::composite::{composite, finish_composite, unexpected_descriptor};
use crate::decode::Decode;
use crate::decode_error::DecodeError;
use crate::descriptor;
use crate::encode::{Encode, put_symbol};
use crate::map::Fields;
use crate::reader::Reader;
use crate::state::Outcome;
use crate::symbol::Symbol;
use crate::writer::Buffer;

composite! {
    /// Where a link's messages come from (part 3, section 3.5.3).
    pub struct Source, "source", descriptor::SOURCE {
        /// The address of the node; absent when the source is to be made (see `dynamic`).
        address: Option<String> => optional,
        /// What of the source survives.
        durable: TerminusDurability => or(TerminusDurability::None),
        /// When the expiry timer starts.
        expiry_policy: TerminusExpiryPolicy => or(TerminusExpiryPolicy::SessionEnd),
        /// Seconds until an unused source expires.
        timeout: u32 => or(0),
        /// Ask the peer to make a node for this link.
        dynamic: bool => or(false),
        /// Properties for the node that is to be made (section 3.5.9).
        dynamic_node_properties: Option<Fields> => optional,
        /// Move messages or copy them: `move`, `copy` (section 3.5.7, [`distribution_mode`]).
        distribution_mode: Option<Symbol> => optional,
        /// Which messages come: named filters, whose values keep their descriptors (section 3.5.8).
        filter: Option<Fields> => optional,
        /// The outcome of deliveries that are settled without one.
        default_outcome: Option<Outcome> => optional,
        /// The descriptors of the outcomes that the sender allows.
        outcomes: Vec<Symbol> => multiple,
        /// What the sender can and wants to do with this node.
        capabilities: Vec<Symbol> => multiple,
    }
}

composite! {
    /// Where a link's messages go (part 3, section 3.5.4).
    pub struct Target, "target", descriptor::TARGET {
        /// The address of the node; absent when messages say by themselves where they go, or see `dynamic`.
        address: Option<String> => optional,
        /// What of the target survives.
        durable: TerminusDurability => or(TerminusDurability::None),
        /// When the expiry timer starts.
        expiry_policy: TerminusExpiryPolicy => or(TerminusExpiryPolicy::SessionEnd),
        /// Seconds until an unused target expires.
        timeout: u32 => or(0),
        /// Ask the peer to make a node for this link.
        dynamic: bool => or(false),
        /// Properties for the node that is to be made (section 3.5.9).
        dynamic_node_properties: Option<Fields> => optional,
        /// What the receiver can and wants to do with this node.
        capabilities: Vec<Symbol> => multiple,
    }
}

composite! {
    /// The target of a link that controls transactions (part 4, section 4.5.1).
    pub struct Coordinator, "coordinator", descriptor::COORDINATOR {
        /// What the coordinator can do, or what the controller wants of it.
        capabilities: Vec<Symbol> => multiple,
    }
}

/// The target of a link: a node, or the transaction coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// A node (part 3, section 3.5.4).
    Target(Target),
    /// The transaction coordinator (part 4, section 4.5.1).
    Coordinator(Coordinator),
}

impl Decode for TargetKind {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.offset();
        let (descriptor, fields) = reader.composite()?;
        match descriptor.code() {
            Some(descriptor::TARGET) => finish_composite(fields).map(Self::Target),
            Some(descriptor::COORDINATOR) => finish_composite(fields).map(Self::Coordinator),
            _ => Err(unexpected_descriptor(start, "target or coordinator", descriptor)),
        }
    }
}

impl Encode for TargetKind {
    fn encode<B: Buffer>(&self, out: &mut B) {
        match self {
            Self::Target(target) => target.encode(out),
            Self::Coordinator(coordinator) => coordinator.encode(out),
        }
    }
}

/// What of a terminus survives when its link goes or its node fails (part 3, section 3.5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TerminusDurability {
    /// Nothing.
    #[default]
    None,
    /// That it exists and how it is set up, but not the state of its deliveries.
    Configuration,
    /// Everything.
    UnsettledState,
}

impl Decode for TerminusDurability {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u32()? {
            0 => Ok(Self::None),
            1 => Ok(Self::Configuration),
            2 => Ok(Self::UnsettledState),
            other => Err(reader.invalid_choice("a terminus durability of 0, 1 or 2", other.into())),
        }
    }
}

impl Encode for TerminusDurability {
    fn encode<B: Buffer>(&self, out: &mut B) {
        let number: u32 = match self {
            Self::None => 0,
            Self::Configuration => 1,
            Self::UnsettledState => 2,
        };
        number.encode(out);
    }
}

/// When the expiry timer of a terminus starts (part 3, section 3.5.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TerminusExpiryPolicy {
    /// When its link is detached.
    LinkDetach,
    /// When its session ends.
    #[default]
    SessionEnd,
    /// When its connection is closed.
    ConnectionClose,
    /// Never.
    Never,
}

impl TerminusExpiryPolicy {
    /// The symbol that stands for this policy.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LinkDetach => "link-detach",
            Self::SessionEnd => "session-end",
            Self::ConnectionClose => "connection-close",
            Self::Never => "never",
        }
    }
}

impl Decode for TerminusExpiryPolicy {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = reader.offset();
        let policies = [Self::LinkDetach, Self::SessionEnd, Self::ConnectionClose, Self::Never];
        let name = reader.symbol()?;
        let found = policies.into_iter().find(|policy| policy.as_str() == name);
        found.ok_or_else(|| {
            let kind = crate::DecodeErrorKind::UnknownName {
                expected: "link-detach, session-end, connection-close or never",
                name: name.chars().take(64).collect(),
            };
            DecodeError { offset: start, kind }
        })
    }
}

impl Encode for TerminusExpiryPolicy {
    fn encode<B: Buffer>(&self, out: &mut B) {
        put_symbol(out, self.as_str());
    }
}

/// How a source gives out messages (part 3, section 3.5.7).
pub mod distribution_mode {
    use crate::symbol::Symbol;

    /// A message that one link has taken is gone for the others.
    pub const MOVE: Symbol = Symbol::from_static("move");
    /// Every link sees every message: browsing.
    pub const COPY: Symbol = Symbol::from_static("copy");
}

/// The descriptors of outcomes, for [`Source::outcomes`] (part 3, section 3.4).
pub mod outcome {
    use crate::symbol::Symbol;

    /// `accepted`.
    pub const ACCEPTED: Symbol = Symbol::from_static("amqp:accepted:list");
    /// `rejected`.
    pub const REJECTED: Symbol = Symbol::from_static("amqp:rejected:list");
    /// `released`.
    pub const RELEASED: Symbol = Symbol::from_static("amqp:released:list");
    /// `modified`.
    pub const MODIFIED: Symbol = Symbol::from_static("amqp:modified:list");
}
