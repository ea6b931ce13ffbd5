//! Sources: what a receiving client asks for, as the engine understands it, and what it is told (AM-3 to AM-9, AM-17).

use crate::dynamic;
use crate::refusal::{amqp_error, invalid_field, not_implemented};
use bytes::{Bytes, BytesMut};
use postroad_amqp_codec::performative::{Attach, SenderSettleMode};
use postroad_amqp_codec::state::{DeliveryState, Outcome};
use postroad_amqp_codec::terminus::{
    Source, TerminusDurability, TerminusExpiryPolicy, distribution_mode, outcome,
};
use postroad_amqp_codec::{AmqpError, Encode, Fields, Symbol, Value};
use postroad_engine::{CloseMode, ConsumerSource, ConsumerSpec, Expiry, Resolved, Settlement};
use postroad_model::address::{Address, Kind};
use postroad_model::settings::{ExpiryPolicy, NamedObjectSettings, Start};

/// The descriptors of the selector filter (AM-9).
const SELECTOR: (u64, &str) = (0x0000_468C_0000_0004, "apache.org:selector-filter:string");
/// The descriptors of the no-local filter (AM-9).
const NO_LOCAL: (u64, &str) = (0x0000_468C_0000_0003, "apache.org:no-local-filter:list");

/// The largest default outcome, in bytes: what it carries is kept for as long as the link lives.
const MAX_DEFAULT_OUTCOME: usize = 1024;

/// What a client's attach asks for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) spec: ConsumerSpec,
    /// What it is told if it gets it; the address of a dynamic source is filled in then.
    pub(crate) source: Source,
    pub(crate) default: Settlement,
    pub(crate) ends: Ends,
}

/// When a durable subscription begins to expire, besides that a closing detach ends it (AM-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends(ExpiryPolicy);

impl Ends {
    /// The peer detached the link, or we did.
    pub(crate) fn at_detach(self, closed: bool) -> CloseMode {
        match self.0 {
            _ if closed => CloseMode::Close,
            ExpiryPolicy::LinkDetach => CloseMode::Expire,
            _ => CloseMode::Detach,
        }
    }

    /// The session ended.
    pub(crate) fn at_end(self) -> CloseMode {
        match self.0 {
            ExpiryPolicy::LinkDetach | ExpiryPolicy::SessionEnd => CloseMode::Expire,
            ExpiryPolicy::ConnectionClose | ExpiryPolicy::Never => CloseMode::Detach,
        }
    }

    /// The connection closed.
    pub(crate) fn at_close(self) -> CloseMode {
        if self.0 == ExpiryPolicy::Never { CloseMode::Detach } else { CloseMode::Expire }
    }

    /// What the end of the session, or of the connection, means to a subscription whose link was detached before.
    pub(crate) fn lingers(self) -> bool {
        matches!(self.0, ExpiryPolicy::SessionEnd | ExpiryPolicy::ConnectionClose)
    }

    /// A detached link's subscription begins to expire with the session.
    pub(crate) fn with_session(self) -> bool {
        self.0 == ExpiryPolicy::SessionEnd
    }
}

/// The kind of address that the capabilities of a terminus name (ADR-6).
pub(crate) fn kind_of(capabilities: &[Symbol]) -> Option<Kind> {
    capabilities.iter().find_map(|capability| match capability.as_str() {
        "queue" | "temporary-queue" => Some(Kind::Queue),
        "topic" | "temporary-topic" => Some(Kind::Topic),
        _ => None,
    })
}

/// Shared subscriptions are not offered (AM-1).
pub(crate) fn check_unshared<'a>(
    capabilities: impl IntoIterator<Item = &'a Symbol>,
) -> Result<(), AmqpError> {
    let shared = |capability: &Symbol| matches!(capability.as_str(), "shared" | "global");
    if capabilities.into_iter().any(shared) {
        let text = "shared subscriptions are not offered by this version: use an unshared one, or a queue";
        return Err(not_implemented(text));
    }
    Ok(())
}

/// A subscription's name is its link's up to the first `|` (AM-4).
pub(crate) fn subscription_name(link: &str) -> &str {
    link.split('|').next().unwrap_or(link)
}

/// Reads the attach of a receiving client.
pub(crate) fn read(attach: &Attach, source: &Source) -> Result<Wanted, AmqpError> {
    check_unshared(&source.capabilities)?;
    let place = place(source)?;
    let filters = Filters::read(source.filter.as_ref())?;
    let durable = durable_name(&attach.name, source, &place);
    let spec = ConsumerSpec {
        source: place,
        selector: filters.selector,
        no_local: filters.no_local,
        browse: source.distribution_mode.as_ref() == Some(&distribution_mode::COPY),
        presettled: attach.snd_settle_mode == SenderSettleMode::Settled,
        durable,
        expiry: Expiry { policy: expiry_policy(source.expiry_policy), timeout: source.timeout },
        start: start(attach.properties.as_ref())?,
        priority: priority(attach.properties.as_ref())?,
    };
    let mut reply = source.clone();
    reply.filter = Some(filters.honoured).filter(|filters| !filters.is_empty());
    reply.outcomes = outcomes(&source.outcomes);
    outlive(&mut reply, &spec);
    let ends = Ends(if spec.durable.is_some() { spec.expiry.policy } else { ExpiryPolicy::Never });
    let default = default_outcome(source)?;
    Ok(Wanted { spec, source: reply, default, ends })
}

/// The outcome of deliveries that end without one (AM-14).
fn default_outcome(source: &Source) -> Result<Settlement, AmqpError> {
    let Some(outcome) = source.default_outcome.clone() else { return Ok(Settlement::Released) };
    let default = settlement(&outcome.into());
    let size = match &default {
        Settlement::Rejected { reason } => reason.as_ref().map_or(0, String::len),
        Settlement::Modified { annotations, .. } => annotations.as_ref().map_or(0, Bytes::len),
        Settlement::Accepted | Settlement::Released => 0,
    };
    if size > MAX_DEFAULT_OUTCOME {
        let text =
            format!("the default outcome carries {size} bytes, at most {MAX_DEFAULT_OUTCOME} are kept");
        return Err(invalid_field("default-outcome", &text));
    }
    Ok(default)
}

/// Fills in what only the engine knows.
pub(crate) fn resolve(source: &mut Source, resolved: Resolved) {
    if source.dynamic || source.address.is_none() {
        source.address = Some(resolved.address);
    }
}

fn place(source: &Source) -> Result<ConsumerSource, AmqpError> {
    if source.dynamic {
        let properties = source.dynamic_node_properties.as_ref();
        return Ok(ConsumerSource::Temporary(dynamic::read(&source.capabilities, properties)?));
    }
    let Some(address) = &source.address else {
        return Err(invalid_field("source", "the source has no address: name a queue or a topic"));
    };
    let parsed = Address::parse(address, kind_of(&source.capabilities)).map_err(|r| amqp_error(&r))?;
    Ok(ConsumerSource::Address(parsed))
}

/// The name of the durable subscription that is asked for. On a queue, on a temporary one and on a native named object
/// a durable terminus asks for nothing that is not there anyway (AM-5, AM-17).
fn durable_name(link: &str, source: &Source, place: &ConsumerSource) -> Option<String> {
    let ConsumerSource::Address(address) = place else { return None };
    let subscribes = address.kind != Some(Kind::Queue) && address.object.is_none();
    let durable = source.durable != TerminusDurability::None;
    (durable && subscribes).then(|| subscription_name(link).to_owned())
}

/// Writes into the reply what of the terminus survives.
fn outlive(reply: &mut Source, spec: &ConsumerSpec) {
    if let ConsumerSource::Temporary(lifetime) = &spec.source {
        reply.dynamic_node_properties = Some(dynamic::properties(*lifetime));
    }
    if spec.durable.is_some() {
        return;
    }
    let native = matches!(&spec.source, ConsumerSource::Address(address) if address.object.is_some());
    reply.timeout = 0;
    if native {
        reply.expiry_policy = TerminusExpiryPolicy::Never;
    } else {
        // Nothing of it outlives its link; what it reads is defined apart from it.
        reply.durable = TerminusDurability::None;
        reply.expiry_policy = TerminusExpiryPolicy::LinkDetach;
    }
}

const fn expiry_policy(policy: TerminusExpiryPolicy) -> ExpiryPolicy {
    match policy {
        TerminusExpiryPolicy::LinkDetach => ExpiryPolicy::LinkDetach,
        TerminusExpiryPolicy::SessionEnd => ExpiryPolicy::SessionEnd,
        TerminusExpiryPolicy::ConnectionClose => ExpiryPolicy::ConnectionClose,
        TerminusExpiryPolicy::Never => ExpiryPolicy::Never,
    }
}

const fn terminus_policy(policy: ExpiryPolicy) -> TerminusExpiryPolicy {
    match policy {
        ExpiryPolicy::LinkDetach => TerminusExpiryPolicy::LinkDetach,
        ExpiryPolicy::SessionEnd => TerminusExpiryPolicy::SessionEnd,
        ExpiryPolicy::ConnectionClose => TerminusExpiryPolicy::ConnectionClose,
        ExpiryPolicy::Never => TerminusExpiryPolicy::Never,
    }
}

/// The filters of a source, recognised by their descriptors (AM-9).
#[derive(Debug, Default)]
struct Filters {
    selector: Option<String>,
    no_local: bool,
    /// Keys and values of those that are honoured, as the client wrote them.
    honoured: Fields,
}

impl Filters {
    fn read(fields: Option<&Fields>) -> Result<Self, AmqpError> {
        let mut filters = Self::default();
        for (key, value) in fields.into_iter().flat_map(Fields::iter) {
            let Value::Described(filter) = value else { continue };
            if filter.is(SELECTOR.0, SELECTOR.1) {
                let Value::String(text) = &filter.value else {
                    return Err(invalid_field("filter", "a selector filter is a string"));
                };
                if filters.selector.is_some() {
                    return Err(invalid_field("filter", "the source has two selectors: join them with AND"));
                }
                filters.selector = Some(text.clone());
            } else if filter.is(NO_LOCAL.0, NO_LOCAL.1) {
                filters.no_local = true;
            } else {
                continue;
            }
            filters.honoured.0.push((key.clone(), value.clone()));
        }
        Ok(filters)
    }
}

/// Where a durable begins, if its attach says so (AM-17, NO-10).
fn start(properties: Option<&Fields>) -> Result<Option<Start>, AmqpError> {
    let Some(value) = properties.and_then(|p| p.get("start-event-id")) else { return Ok(None) };
    match (value.as_u64(), value.as_str()) {
        (Some(0), _) => Ok(Some(Start::Oldest)),
        (Some(id), _) => Ok(Some(Start::At(id))),
        (None, Some("new")) => Ok(Some(Start::New)),
        _ => Err(invalid_field("start-event-id", "start-event-id is a number from 0, or \"new\"")),
    }
}

/// The consumer's priority (AM-17).
fn priority(properties: Option<&Fields>) -> Result<i32, AmqpError> {
    let Some(value) = properties.and_then(|p| p.get("priority")) else { return Ok(0) };
    let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
    number.ok_or_else(|| invalid_field("priority", "priority is a number of 32 bits"))
}

/// The outcomes that we know of those that the client wants, all four if it names none.
fn outcomes(wanted: &[Symbol]) -> Vec<Symbol> {
    let known = [outcome::ACCEPTED, outcome::REJECTED, outcome::RELEASED, outcome::MODIFIED];
    if wanted.is_empty() {
        return known.to_vec();
    }
    wanted.iter().filter(|symbol| known.contains(symbol)).cloned().collect()
}

/// The source of a durable subscription that was looked up (AM-7).
pub(crate) fn of_subscription(address: String, settings: &NamedObjectSettings) -> Source {
    let mut filter = Fields::new();
    if let Some(selector) = &settings.selector {
        filter.insert("jms-selector", Value::described(SELECTOR.0, selector.as_str()));
    }
    if settings.no_local {
        filter.insert("no-local", Value::described(NO_LOCAL.0, Value::List(Vec::new())));
    }
    Source {
        address: Some(address),
        durable: TerminusDurability::UnsettledState,
        expiry_policy: terminus_policy(settings.expiry_policy),
        timeout: settings.expiry_timeout,
        distribution_mode: Some(distribution_mode::COPY),
        filter: Some(filter).filter(|filter| !filter.is_empty()),
        outcomes: outcomes(&[]),
        capabilities: vec![Symbol::from_static("topic")],
        ..Source::default()
    }
}

/// The outcome that a delivery state is; what is none counts as released.
pub(crate) fn settlement(state: &DeliveryState) -> Settlement {
    match state {
        DeliveryState::Accepted => Settlement::Accepted,
        DeliveryState::Rejected { error } => Settlement::Rejected { reason: error.as_ref().map(reason) },
        DeliveryState::Modified { delivery_failed, undeliverable_here, message_annotations } => {
            Settlement::Modified {
                failed: *delivery_failed,
                undeliverable_here: *undeliverable_here,
                annotations: message_annotations.as_ref().filter(|map| !map.is_empty()).map(encoded),
            }
        }
        _ => Settlement::Released,
    }
}

/// The delivery state that says an outcome.
pub(crate) fn state(outcome: &Settlement) -> DeliveryState {
    match *outcome {
        Settlement::Accepted => DeliveryState::Accepted,
        Settlement::Released => DeliveryState::Released,
        Settlement::Modified { failed, undeliverable_here, .. } => DeliveryState::from(Outcome::Modified {
            delivery_failed: failed,
            undeliverable_here,
            message_annotations: None,
        }),
        Settlement::Rejected { .. } => DeliveryState::Rejected { error: None },
    }
}

fn encoded(annotations: &Fields) -> Bytes {
    let mut bytes = BytesMut::new();
    annotations.encode(&mut bytes);
    bytes.freeze()
}

/// What a rejecting client says, in its words or by its condition.
fn reason(error: &AmqpError) -> String {
    match error.description.as_deref() {
        Some(text) if !text.is_empty() => text.to_owned(),
        _ => error.condition.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_outcome_is_small() {
        for (len, taken) in [(1024, true), (1025, false)] {
            let error = AmqpError::new(Symbol::from_static("amqp:not-allowed"), "x".repeat(len));
            let default_outcome = Some(Outcome::Rejected { error: Some(error) });
            let address = Some(String::from("q"));
            let source = Source { address, default_outcome, ..Source::default() };
            assert_eq!(read(&Attach::default(), &source).is_ok(), taken, "{len} bytes");
        }
        let mut annotations = Fields::new();
        annotations.insert("note", "x".repeat(2_000));
        let default_outcome = Some(Outcome::Modified {
            delivery_failed: true,
            undeliverable_here: false,
            message_annotations: Some(annotations),
        });
        let source = Source { address: Some(String::from("q")), default_outcome, ..Source::default() };
        assert!(read(&Attach::default(), &source).is_err());
    }
}
