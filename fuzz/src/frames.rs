//! Frames with a structure: channels, handles and ids are small, so that they often mean something.

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use postroad_amqp_codec::frame::{ProtocolHeader, write_empty_frame, write_frame, write_sasl_frame};
use postroad_amqp_codec::message::{Body, Header, Message, MessageId, Properties};
use postroad_amqp_codec::performative::{
    Attach, Begin, Close, DeliveryTag, Detach, Disposition, End, Flow, Open, ReceiverSettleMode, Role,
    SenderSettleMode, Transfer,
};
use postroad_amqp_codec::sasl::{SaslCode, SaslInit, SaslOutcome, SaslResponse};
use postroad_amqp_codec::state::{DeliveryState, Outcome};
use postroad_amqp_codec::terminus::{
    Coordinator, Source, Target, TargetKind, TerminusDurability, TerminusExpiryPolicy,
};
use postroad_amqp_codec::{AmqpError, Encode, Fields, Map, Symbol, Value};

/// Everything that the input still has to say, a few hundred things at the most. (A plain vector ends after one or two:
/// before each element a bit is asked whether there is one.)
#[derive(Clone, Debug)]
pub struct All<T>(pub Vec<T>);

const MAX_ALL: usize = 300;

impl<'a, T: Arbitrary<'a>> Arbitrary<'a> for All<T> {
    fn arbitrary(input: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let mut all = Vec::new();
        while !input.is_empty() && all.len() < MAX_ALL {
            all.push(T::arbitrary(input)?);
        }
        Ok(Self(all))
    }
}

/// Something that a peer writes.
#[derive(Arbitrary, Clone, Debug)]
pub enum Piece {
    /// A protocol header.
    Header(Layer),
    /// Bytes that may be anything.
    Raw(Vec<u8>),
    /// A frame that says nothing.
    Empty,
    /// `sasl-init` with ANONYMOUS, PLAIN or an unknown mechanism.
    SaslInit(u8, Vec<u8>),
    /// `sasl-response`.
    SaslResponse(Vec<u8>),
    /// `sasl-outcome`.
    SaslOutcome,
    /// `open`.
    Open(OpenSpec),
    /// `begin` on a channel.
    Begin(u8, BeginSpec),
    /// `attach` on a channel.
    Attach(u8, Box<AttachSpec>),
    /// `flow` on a channel.
    Flow(u8, FlowSpec),
    /// `transfer` on a channel.
    Transfer(u8, TransferSpec),
    /// `disposition` on a channel.
    Disposition(u8, DispositionSpec),
    /// `detach` on a channel: handle, closed, with an error.
    Detach(u8, u8, bool, bool),
    /// `end` on a channel, with an error.
    End(u8, bool),
    /// `close`, with an error.
    Close(bool),
}

/// Which protocol header.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Layer {
    /// AMQP.
    Amqp,
    /// SASL.
    Sasl,
    /// TLS.
    Tls,
    /// A version that nobody speaks.
    Version(u8, u8, u8),
}

/// What an `open` says.
#[derive(Arbitrary, Clone, Debug)]
pub struct OpenSpec {
    container: u8,
    max_frame_size: Option<u16>,
    channel_max: Option<u8>,
    idle_time_out: Option<u16>,
    sole: bool,
}

/// What a `begin` says.
#[derive(Arbitrary, Clone, Debug)]
pub struct BeginSpec {
    remote_channel: Option<u8>,
    next_outgoing_id: Number,
    incoming_window: Number,
    outgoing_window: Number,
    handle_max: Option<u8>,
}

/// A number that is near zero, near the end, or anywhere.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Number {
    /// Near zero.
    Small(u8),
    /// Near 2^32.
    Large(u8),
    /// Anywhere.
    Any(u32),
}

impl Number {
    fn get(self) -> u32 {
        match self {
            Self::Small(number) => number.into(),
            Self::Large(number) => u32::MAX - u32::from(number),
            Self::Any(number) => number,
        }
    }
}

/// What an `attach` says.
#[derive(Arbitrary, Clone, Debug)]
pub struct AttachSpec {
    name: u8,
    handle: u8,
    sends: bool,
    snd_settle_mode: u8,
    rcv_second: bool,
    node: Option<Node>,
    durable: u8,
    expiry: u8,
    filter: Option<Filter>,
    copy: Option<bool>,
    default_outcome: Option<StateSpec>,
    capability: Option<u8>,
    initial_delivery_count: Option<Number>,
    max_message_size: Option<u16>,
    unsettled: bool,
    start: Option<Number>,
    other_end: bool,
}

/// Where a link goes.
#[derive(Arbitrary, Clone, Debug)]
pub enum Node {
    /// One of the [`NODES`].
    Known(u8),
    /// Any text.
    Text(String),
    /// No address.
    Nowhere,
    /// One that is to be made.
    Dynamic,
    /// The coordinator of transactions.
    Coordinator,
}

/// Names of nodes, some of which the broker of [`crate::broker`] has.
pub const NODES: [&str; 12] = [
    "orders",
    "tiny",
    "prices",
    "topic://prices",
    "prices::audit",
    "queue:///orders?priority=3",
    "nowhere",
    "DLQ",
    "auto.x",
    "copies",
    "channel://copies",
    "",
];

/// A source's filter.
#[derive(Arbitrary, Clone, Debug)]
pub enum Filter {
    /// A selector of any text.
    Text(String),
    /// A selector that parses.
    Selector(u8),
    /// `no-local`.
    NoLocal,
    /// A selector that is no text.
    Wrong,
    /// Something else.
    Unknown,
}

const SELECTORS: [&str; 5] =
    ["a = 1", "JMSPriority > 3", "colour IN ('red', 'blue') AND a > 2", "a IS NULL", "colour LIKE 'r%'"];

/// What a `flow` says.
#[derive(Arbitrary, Clone, Debug)]
pub struct FlowSpec {
    next_incoming_id: Option<Number>,
    incoming_window: Number,
    next_outgoing_id: Number,
    outgoing_window: Number,
    handle: Option<u8>,
    delivery_count: Option<Number>,
    link_credit: Option<Number>,
    drain: bool,
    echo: bool,
}

/// What a `transfer` says.
#[derive(Arbitrary, Clone, Debug)]
pub struct TransferSpec {
    handle: u8,
    id: Option<Number>,
    tag: Option<u8>,
    long_tag: bool,
    format: Option<bool>,
    settled: Option<bool>,
    more: bool,
    rcv_second: Option<bool>,
    state: Option<StateSpec>,
    resume: bool,
    aborted: bool,
    payload: Payload,
}

/// What a transfer carries.
#[derive(Arbitrary, Clone, Debug)]
pub enum Payload {
    /// Bytes that may be anything.
    Raw(Vec<u8>),
    /// A message.
    Message(Box<MessageSpec>),
    /// This many bytes of a body.
    Long(u16),
}

/// A message.
#[derive(Arbitrary, Clone, Debug)]
pub struct MessageSpec {
    durable: bool,
    priority: u8,
    ttl: Option<u16>,
    delivery_count: u8,
    to: Option<u8>,
    message_id: Option<u8>,
    expiry: Option<Number>,
    annotation: Option<(u8, i8)>,
    property: Option<(u8, i8)>,
    footer: bool,
}

/// What a `disposition` says.
#[derive(Arbitrary, Clone, Debug)]
pub struct DispositionSpec {
    receiver: bool,
    first: Number,
    last: Option<Number>,
    settled: bool,
    state: Option<StateSpec>,
}

/// A delivery state.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum StateSpec {
    /// `accepted`.
    Accepted,
    /// `released`.
    Released,
    /// `rejected`, with an error.
    Rejected(bool),
    /// `modified`, with annotations.
    Modified(bool, bool, Option<u8>),
    /// `received`.
    Received(Number),
    /// `declared`.
    Declared,
    /// `transactional-state`.
    Transactional,
}

/// Writes pieces; deliveries without an id get the next one.
#[derive(Debug, Default)]
pub struct Writer {
    next_id: u32,
}

impl Writer {
    /// Appends one piece.
    pub fn put(&mut self, piece: &Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Header(layer) => out.extend_from_slice(&layer.header().to_bytes()),
            Piece::Raw(bytes) => out.extend_from_slice(bytes),
            Piece::Empty => write_empty_frame(out, 0),
            Piece::SaslInit(which, response) => put_sasl_init(*which, response, out),
            Piece::SaslResponse(bytes) => {
                write_sasl_frame(out, &SaslResponse { response: Bytes::copy_from_slice(bytes) });
            }
            Piece::SaslOutcome => {
                write_sasl_frame(out, &SaslOutcome { code: SaslCode::Ok, additional_data: None });
            }
            Piece::Open(spec) => frame(out, 0, &spec.open()),
            Piece::Begin(channel, spec) => frame(out, *channel, &spec.begin()),
            Piece::Attach(channel, spec) => frame(out, *channel, &spec.attach()),
            Piece::Flow(channel, spec) => frame(out, *channel, &spec.flow()),
            Piece::Transfer(channel, spec) => self.transfer(*channel, spec, out),
            Piece::Disposition(channel, spec) => frame(out, *channel, &spec.disposition()),
            Piece::Detach(channel, handle, closed, failed) => {
                let detach = Detach { handle: small(*handle), closed: *closed, error: error(*failed) };
                frame(out, *channel, &detach);
            }
            Piece::End(channel, failed) => frame(out, *channel, &End { error: error(*failed) }),
            Piece::Close(failed) => frame(out, 0, &Close { error: error(*failed) }),
        }
    }

    fn transfer(&mut self, channel: u8, spec: &TransferSpec, out: &mut Vec<u8>) {
        let id = spec.id.map_or(self.next_id, Number::get);
        if !spec.more {
            self.next_id = id.wrapping_add(1);
        }
        let payload = spec.payload.bytes();
        let transfer = spec.transfer(id);
        write_frame(out, channel_of(channel), &transfer, payload.len());
        out.extend_from_slice(&payload);
    }
}

/// Mostly channel 0, else a few.
fn channel_of(channel: u8) -> u16 {
    match channel {
        0..=191 => 0,
        _ => u16::from(channel % 4),
    }
}

fn frame(out: &mut Vec<u8>, channel: u8, body: &impl Encode) {
    write_frame(out, channel_of(channel), body, 0);
}

/// One of a few handles, or now and then one that is not.
fn small(handle: u8) -> u32 {
    if handle > 250 { u32::from(handle) << 24 } else { u32::from(handle % 4) }
}

fn error(failed: bool) -> Option<AmqpError> {
    failed.then(|| AmqpError {
        condition: Symbol::from_static("amqp:internal-error"),
        description: Some("so it is".to_owned()),
        info: None,
    })
}

fn put_sasl_init(which: u8, response: &[u8], out: &mut Vec<u8>) {
    let mechanism = Symbol::from_static(["ANONYMOUS", "PLAIN", "EXTERNAL"][usize::from(which % 3)]);
    let initial_response = Some(Bytes::copy_from_slice(response)).filter(|response| !response.is_empty());
    write_sasl_frame(out, &SaslInit { mechanism, initial_response, hostname: None });
}

impl Layer {
    fn header(self) -> ProtocolHeader {
        match self {
            Self::Amqp => ProtocolHeader::AMQP,
            Self::Sasl => ProtocolHeader::SASL,
            Self::Tls => ProtocolHeader::TLS,
            Self::Version(major, minor, revision) => {
                ProtocolHeader { major, minor, revision, ..ProtocolHeader::AMQP }
            }
        }
    }
}

impl OpenSpec {
    fn open(&self) -> Open {
        let sole = Symbol::from_static("sole-connection-for-container");
        Open {
            container_id: format!("c{}", self.container % 3),
            max_frame_size: self.max_frame_size.map_or(u32::MAX, u32::from),
            channel_max: self.channel_max.map_or(u16::MAX, u16::from),
            idle_time_out: self.idle_time_out.map(u32::from),
            desired_capabilities: self.sole.then_some(sole).into_iter().collect(),
            ..Open::default()
        }
    }
}

impl BeginSpec {
    fn begin(&self) -> Begin {
        Begin {
            remote_channel: self.remote_channel.map(channel_of),
            next_outgoing_id: self.next_outgoing_id.get(),
            incoming_window: self.incoming_window.get(),
            outgoing_window: self.outgoing_window.get(),
            handle_max: self.handle_max.map_or(u32::MAX, u32::from),
            ..Begin::default()
        }
    }
}

impl AttachSpec {
    fn attach(&self) -> Attach {
        let near = self.node.as_ref();
        let far = near.filter(|_| self.other_end);
        let (source, target) = if self.sends { (far, near) } else { (near, far) };
        Attach {
            name: format!("link|{}", self.name % 6),
            handle: small(self.handle),
            role: if self.sends { Role::Sender } else { Role::Receiver },
            snd_settle_mode: match self.snd_settle_mode % 3 {
                0 => SenderSettleMode::Mixed,
                1 => SenderSettleMode::Unsettled,
                _ => SenderSettleMode::Settled,
            },
            rcv_settle_mode: settle_mode(self.rcv_second),
            source: source.map(|node| self.source(node)).or_else(|| self.sends.then(Source::default)),
            target: target.map(|node| self.target(node)).or_else(|| (!self.sends).then(plain_target)),
            unsettled: self.unsettled.then(Default::default),
            incomplete_unsettled: self.unsettled && self.rcv_second,
            initial_delivery_count: self.initial_delivery_count.map(Number::get),
            max_message_size: self.max_message_size.map(u64::from),
            properties: self.start.map(|start| {
                let mut fields = Fields::new();
                fields.insert("start-event-id", Value::Ulong(start.get().into()));
                fields.insert("priority", Value::Int(start.get() as i32));
                fields
            }),
            ..Attach::default()
        }
    }

    fn source(&self, node: &Node) -> Source {
        Source {
            address: node.address(),
            durable: self.durability(),
            expiry_policy: self.expiry_policy(),
            timeout: self.expiry.into(),
            dynamic: matches!(node, Node::Dynamic),
            distribution_mode: self.copy.map(|copy| Symbol::from_static(if copy { "copy" } else { "move" })),
            filter: self.filter.as_ref().map(Filter::fields),
            default_outcome: self.default_outcome.and_then(|state| state.state().into_outcome()),
            outcomes: vec![Symbol::from_static("amqp:accepted:list")],
            capabilities: self.capabilities(),
            ..Source::default()
        }
    }

    fn target(&self, node: &Node) -> TargetKind {
        if matches!(node, Node::Coordinator) {
            return TargetKind::Coordinator(Coordinator::default());
        }
        TargetKind::Target(Target {
            address: node.address(),
            durable: self.durability(),
            expiry_policy: self.expiry_policy(),
            dynamic: matches!(node, Node::Dynamic),
            capabilities: self.capabilities(),
            ..Target::default()
        })
    }

    fn durability(&self) -> TerminusDurability {
        match self.durable % 4 {
            0 | 1 => TerminusDurability::None,
            2 => TerminusDurability::Configuration,
            _ => TerminusDurability::UnsettledState,
        }
    }

    fn expiry_policy(&self) -> TerminusExpiryPolicy {
        match self.expiry % 4 {
            0 => TerminusExpiryPolicy::SessionEnd,
            1 => TerminusExpiryPolicy::LinkDetach,
            2 => TerminusExpiryPolicy::ConnectionClose,
            _ => TerminusExpiryPolicy::Never,
        }
    }

    fn capabilities(&self) -> Vec<Symbol> {
        const KNOWN: [&str; 6] = ["queue", "topic", "temporary-queue", "temporary-topic", "shared", "global"];
        let name = self.capability.and_then(|which| KNOWN.get(usize::from(which) % KNOWN.len()));
        name.map(|name| Symbol::from_static(name)).into_iter().collect()
    }
}

fn plain_target() -> TargetKind {
    TargetKind::Target(Target::default())
}

fn settle_mode(second: bool) -> ReceiverSettleMode {
    if second { ReceiverSettleMode::Second } else { ReceiverSettleMode::First }
}

impl Node {
    fn address(&self) -> Option<String> {
        match self {
            Self::Known(which) => Some(NODES[usize::from(*which) % NODES.len()].to_owned()),
            Self::Text(text) => Some(text.clone()),
            Self::Nowhere | Self::Dynamic | Self::Coordinator => None,
        }
    }
}

impl Filter {
    fn fields(&self) -> Fields {
        const SELECTOR: u64 = 0x0000_468C_0000_0004;
        const NO_LOCAL: u64 = 0x0000_468C_0000_0003;
        let value = match self {
            Self::Text(text) => Value::described(SELECTOR, text.as_str()),
            Self::Selector(which) => {
                Value::described(SELECTOR, SELECTORS[usize::from(*which) % SELECTORS.len()])
            }
            Self::NoLocal => Value::described(NO_LOCAL, Value::List(Vec::new())),
            Self::Wrong => Value::described(SELECTOR, Value::Uint(7)),
            Self::Unknown => Value::described(1_u64, "x"),
        };
        let mut fields = Fields::new();
        fields.insert("f", value);
        fields
    }
}

impl FlowSpec {
    fn flow(&self) -> Flow {
        Flow {
            next_incoming_id: self.next_incoming_id.map(Number::get),
            incoming_window: self.incoming_window.get(),
            next_outgoing_id: self.next_outgoing_id.get(),
            outgoing_window: self.outgoing_window.get(),
            handle: self.handle.map(small),
            delivery_count: self.delivery_count.map(Number::get),
            link_credit: self.link_credit.map(Number::get),
            drain: self.drain,
            echo: self.echo,
            ..Flow::default()
        }
    }
}

impl TransferSpec {
    fn transfer(&self, id: u32) -> Transfer {
        let tag = match (self.tag, self.long_tag) {
            (_, true) => DeliveryTag::new(&[7; 32]).ok(),
            (Some(0), _) => None,
            (tag, _) => Some(DeliveryTag::from_number(tag.map_or(u64::from(id), u64::from))),
        };
        Transfer {
            handle: small(self.handle),
            delivery_id: Some(id),
            delivery_tag: tag,
            message_format: self.format.map(u32::from),
            settled: self.settled,
            more: self.more,
            rcv_settle_mode: self.rcv_second.map(settle_mode),
            state: self.state.map(StateSpec::state),
            resume: self.resume,
            aborted: self.aborted,
            ..Transfer::default()
        }
    }
}

impl DispositionSpec {
    fn disposition(&self) -> Disposition {
        Disposition {
            role: if self.receiver { Role::Receiver } else { Role::Sender },
            first: self.first.get(),
            last: self.last.map(Number::get),
            settled: self.settled,
            state: self.state.map(StateSpec::state),
            batchable: false,
        }
    }
}

impl StateSpec {
    fn state(self) -> DeliveryState {
        let txn_id = Bytes::from_static(b"t");
        match self {
            Self::Accepted => DeliveryState::Accepted,
            Self::Released => DeliveryState::Released,
            Self::Rejected(failed) => DeliveryState::Rejected { error: error(failed) },
            Self::Modified(delivery_failed, undeliverable_here, note) => {
                let note = note.map(|note| {
                    let mut fields = Fields::new();
                    fields.insert("note", Value::Ubyte(note));
                    fields
                });
                DeliveryState::Modified { delivery_failed, undeliverable_here, message_annotations: note }
            }
            Self::Received(number) => {
                DeliveryState::Received { section_number: number.get(), section_offset: 0 }
            }
            Self::Declared => DeliveryState::Declared { txn_id },
            Self::Transactional => DeliveryState::Transactional { txn_id, outcome: Some(Outcome::Accepted) },
        }
    }
}

impl Payload {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Raw(bytes) => bytes.clone(),
            Self::Message(spec) => spec.encode(),
            Self::Long(length) => {
                let body = Bytes::from(vec![7; usize::from(*length)]);
                let mut out = Vec::new();
                Message { body: Body::Data(vec![body]), ..Message::default() }.encode(&mut out);
                out
            }
        }
    }
}

impl MessageSpec {
    /// The message's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        const ANNOTATIONS: [&str; 7] = [
            "x-opt-jms-dest",
            "x-opt-postroad-origin",
            "x-opt-postroad-report",
            "x-opt-postroad-retain",
            "x-opt-postroad-publish-key",
            "x-opt-delivery-time",
            "x-opt-delivery-delay",
        ];
        const PROPERTIES: [&str; 5] = ["a", "colour", "b", "x-opt-postroad-dl-reason", "AMQ_SCHEDULED_CRON"];
        let map = |names: &[&'static str], (which, value): (u8, i8)| {
            let mut map = Map::new();
            let name = names[usize::from(which) % names.len()];
            match which > 127 {
                true => map.insert(Symbol::from_static(name), Value::Byte(value)),
                false => map.insert(name, Value::Long(value.into())),
            }
            map
        };
        let message = Message {
            header: Some(Header {
                durable: self.durable,
                priority: self.priority,
                ttl: self.ttl.map(u32::from),
                delivery_count: self.delivery_count.into(),
                ..Header::default()
            }),
            message_annotations: self.annotation.map(|entry| map(&ANNOTATIONS, entry)),
            properties: Some(Properties {
                message_id: self.message_id.map(|id| MessageId::Ulong(id.into())),
                to: self.to.map(|which| NODES[usize::from(which) % NODES.len()].to_owned()),
                absolute_expiry_time: self
                    .expiry
                    .map(|at| postroad_amqp_codec::value::Timestamp(at.get().into())),
                ..Properties::default()
            }),
            application_properties: self.property.map(|entry| map(&PROPERTIES, entry)),
            body: Body::Value(Value::String("x".into())),
            footer: self.footer.then(Map::new),
            ..Message::default()
        };
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    }
}

/// What an ordinary client writes first: the protocol header, `open` and `begin` on channel 0.
#[must_use]
pub fn greeting() -> Vec<u8> {
    let mut out = ProtocolHeader::AMQP.to_bytes().to_vec();
    frame(&mut out, 0, &Open { container_id: "fuzz".to_owned(), ..Open::default() });
    let begin = Begin { incoming_window: 1000, outgoing_window: 1000, ..Begin::default() };
    frame(&mut out, 0, &begin);
    out
}
