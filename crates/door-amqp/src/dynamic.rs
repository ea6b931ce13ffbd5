//! Dynamic nodes: temporary queues that a link has made for itself (ADR-9; AMQP part 3, sections 3.5.9 and 3.5.10).

use crate::refusal::{invalid_field, not_implemented};
use crate::source::kind_of;
use postroad_amqp_codec::{AmqpError, Fields, Symbol, Value};
use postroad_engine::Lifetime;
use postroad_model::address::Kind;

/// The property that says how long a node lives.
const LIFETIME_POLICY: &str = "lifetime-policy";
/// The lifetimes, with the descriptors that stand for them.
const LIFETIMES: [(Lifetime, u64, &str); 4] = [
    (Lifetime::OnClose, 0x2b, "amqp:delete-on-close:list"),
    (Lifetime::OnNoLinks, 0x2c, "amqp:delete-on-no-links:list"),
    (Lifetime::OnNoMessages, 0x2d, "amqp:delete-on-no-messages:list"),
    (Lifetime::OnNoLinksOrMessages, 0x2e, "amqp:delete-on-no-links-or-messages:list"),
];

/// What is asked of the node that is to be made.
///
/// # Errors
/// `amqp:not-implemented` for a topic: it would be a queue, and give each message to one subscriber only.
/// `amqp:invalid-field` for a lifetime that is none.
pub(crate) fn read(capabilities: &[Symbol], properties: Option<&Fields>) -> Result<Lifetime, AmqpError> {
    if kind_of(capabilities) == Some(Kind::Topic) {
        return Err(not_implemented(
            "temporary topics are not offered: use a temporary queue or a named topic",
        ));
    }
    let Some(policy) = properties.and_then(|properties| properties.get(LIFETIME_POLICY)) else {
        return Ok(Lifetime::OnClose);
    };
    let known = |(_, code, name): &&(Lifetime, u64, &str)| match policy {
        Value::Described(policy) => policy.is(*code, name),
        _ => false,
    };
    LIFETIMES.iter().find(known).map(|(lifetime, ..)| *lifetime).ok_or_else(|| {
        let text =
            "the lifetime-policy is none of delete-on-close, -no-links, -no-messages, -no-links-or-messages";
        invalid_field("dynamic-node-properties", text)
    })
}

/// The properties that the node has: of those that were asked for, the one that is known here.
pub(crate) fn properties(lifetime: Lifetime) -> Fields {
    let (_, code, _) = LIFETIMES.iter().find(|(known, ..)| *known == lifetime).unwrap_or(&LIFETIMES[0]);
    let mut fields = Fields::new();
    fields.insert(LIFETIME_POLICY, Value::described(*code, Value::List(Vec::new())));
    fields
}
