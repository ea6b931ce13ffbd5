//! Random performatives, message sections and the types in their fields.

use proptest::option::of;
use proptest::prelude::*;

use super::generate::{binary, fields, symbol, symbols, text, uint, ulong, value};
use crate::message::{Header, MessageId, Properties};
use crate::performative::*;
use crate::sasl::*;
use crate::state::{DeliveryState, Outcome};
use crate::terminus::*;
use crate::transaction::{Declare, Discharge};
use crate::value::Timestamp;
use crate::{AmqpError, Value};

pub(crate) fn error() -> BoxedStrategy<AmqpError> {
    (symbol(), of(text()), of(fields()))
        .prop_map(|(condition, description, info)| AmqpError { condition, description, info })
        .boxed()
}

pub(crate) fn outcome() -> BoxedStrategy<Outcome> {
    prop_oneof![
        Just(Outcome::Accepted),
        of(error()).prop_map(|error| Outcome::Rejected { error }),
        Just(Outcome::Released),
        (any::<bool>(), any::<bool>(), of(fields())).prop_map(
            |(delivery_failed, undeliverable_here, message_annotations)| Outcome::Modified {
                delivery_failed,
                undeliverable_here,
                message_annotations
            }
        ),
        binary().prop_map(|txn_id| Outcome::Declared { txn_id }),
    ]
    .boxed()
}

pub(crate) fn state() -> BoxedStrategy<DeliveryState> {
    prop_oneof![
        (uint(), ulong()).prop_map(|(section_number, section_offset)| DeliveryState::Received {
            section_number,
            section_offset
        }),
        outcome().prop_map(DeliveryState::from),
        (binary(), of(outcome()))
            .prop_map(|(txn_id, outcome)| DeliveryState::Transactional { txn_id, outcome }),
    ]
    .boxed()
}

pub(crate) fn other_state() -> BoxedStrategy<DeliveryState> {
    let described = |value| match Value::described(0x1234_5678_9abc_u64, value) {
        Value::Described(described) => DeliveryState::Other(described),
        _ => DeliveryState::Accepted,
    };
    value().prop_map(described).boxed()
}

pub(crate) fn tag() -> BoxedStrategy<DeliveryTag> {
    proptest::collection::vec(any::<u8>(), 0..=32).prop_map(|tag| DeliveryTag::new(&tag).unwrap()).boxed()
}

pub(crate) fn open() -> BoxedStrategy<Open> {
    let numbers = (uint(), any::<u16>(), of(uint()));
    let lists = (symbols(), symbols(), symbols(), symbols());
    (text(), of(text()), numbers, lists, of(fields()))
        .prop_map(|(container_id, hostname, numbers, lists, properties)| Open {
            container_id,
            hostname,
            max_frame_size: numbers.0,
            channel_max: numbers.1,
            idle_time_out: numbers.2,
            outgoing_locales: lists.0,
            incoming_locales: lists.1,
            offered_capabilities: lists.2,
            desired_capabilities: lists.3,
            properties,
        })
        .boxed()
}

pub(crate) fn begin() -> BoxedStrategy<Begin> {
    (of(any::<u16>()), uint(), uint(), uint(), uint(), symbols(), symbols(), of(fields()))
        .prop_map(|(remote_channel, next, incoming, outgoing, handle_max, offered, desired, properties)| {
            Begin {
                remote_channel,
                next_outgoing_id: next,
                incoming_window: incoming,
                outgoing_window: outgoing,
                handle_max,
                offered_capabilities: offered,
                desired_capabilities: desired,
                properties,
            }
        })
        .boxed()
}

fn durability() -> BoxedStrategy<TerminusDurability> {
    use TerminusDurability as D;
    prop_oneof![Just(D::None), Just(D::Configuration), Just(D::UnsettledState)].boxed()
}

fn expiry() -> BoxedStrategy<TerminusExpiryPolicy> {
    use TerminusExpiryPolicy as E;
    prop_oneof![Just(E::LinkDetach), Just(E::SessionEnd), Just(E::ConnectionClose), Just(E::Never)].boxed()
}

pub(crate) fn source() -> BoxedStrategy<Source> {
    let mode = of(prop_oneof![Just(distribution_mode::MOVE), Just(distribution_mode::COPY)]);
    let first = (of(text()), durability(), expiry(), uint(), any::<bool>(), of(fields()));
    (first, mode, of(fields()), of(outcome()), symbols(), symbols())
        .prop_map(|(first, distribution_mode, filter, default_outcome, outcomes, capabilities)| Source {
            address: first.0,
            durable: first.1,
            expiry_policy: first.2,
            timeout: first.3,
            dynamic: first.4,
            dynamic_node_properties: first.5,
            distribution_mode,
            filter,
            default_outcome,
            outcomes,
            capabilities,
        })
        .boxed()
}

pub(crate) fn target() -> BoxedStrategy<Target> {
    (of(text()), durability(), expiry(), uint(), any::<bool>(), of(fields()), symbols())
        .prop_map(
            |(address, durable, expiry_policy, timeout, dynamic, dynamic_node_properties, capabilities)| {
                Target {
                    address,
                    durable,
                    expiry_policy,
                    timeout,
                    dynamic,
                    dynamic_node_properties,
                    capabilities,
                }
            },
        )
        .boxed()
}

pub(crate) fn target_kind() -> BoxedStrategy<TargetKind> {
    let coordinator =
        symbols().prop_map(|capabilities| TargetKind::Coordinator(Coordinator { capabilities }));
    prop_oneof![target().prop_map(TargetKind::Target), coordinator].boxed()
}

fn unsettled() -> BoxedStrategy<UnsettledMap> {
    proptest::collection::btree_map(tag(), of(state()), 0..3)
        .prop_map(|map| UnsettledMap(map.into_iter().collect()))
        .boxed()
}

fn role() -> BoxedStrategy<Role> {
    prop_oneof![Just(Role::Sender), Just(Role::Receiver)].boxed()
}

fn receiver_mode() -> BoxedStrategy<ReceiverSettleMode> {
    prop_oneof![Just(ReceiverSettleMode::First), Just(ReceiverSettleMode::Second)].boxed()
}

pub(crate) fn attach() -> BoxedStrategy<Attach> {
    use SenderSettleMode as S;
    let sender_mode = prop_oneof![Just(S::Unsettled), Just(S::Settled), Just(S::Mixed)];
    let first = (text(), uint(), role(), sender_mode, receiver_mode());
    let ends = (of(source()), of(target_kind()), of(unsettled()));
    let numbers = (any::<bool>(), of(uint()), of(ulong()));
    (first, ends, numbers, symbols(), symbols(), of(fields()))
        .prop_map(|(first, ends, numbers, offered_capabilities, desired_capabilities, properties)| Attach {
            name: first.0,
            handle: first.1,
            role: first.2,
            snd_settle_mode: first.3,
            rcv_settle_mode: first.4,
            source: ends.0,
            target: ends.1,
            unsettled: ends.2,
            incomplete_unsettled: numbers.0,
            initial_delivery_count: numbers.1,
            max_message_size: numbers.2,
            offered_capabilities,
            desired_capabilities,
            properties,
        })
        .boxed()
}

pub(crate) fn flow() -> BoxedStrategy<Flow> {
    let session = (of(uint()), uint(), uint(), uint());
    let link = (of(uint()), of(uint()), of(uint()), of(uint()));
    (session, link, any::<bool>(), any::<bool>(), of(fields()))
        .prop_map(|(session, link, drain, echo, properties)| Flow {
            next_incoming_id: session.0,
            incoming_window: session.1,
            next_outgoing_id: session.2,
            outgoing_window: session.3,
            handle: link.0,
            delivery_count: link.1,
            link_credit: link.2,
            available: link.3,
            drain,
            echo,
            properties,
        })
        .boxed()
}

pub(crate) fn transfer() -> BoxedStrategy<Transfer> {
    let ids = (uint(), of(uint()), of(tag()), of(uint()));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (ids, of(any::<bool>()), of(receiver_mode()), of(state()), flags)
        .prop_map(|(ids, settled, rcv_settle_mode, state, flags)| Transfer {
            handle: ids.0,
            delivery_id: ids.1,
            delivery_tag: ids.2,
            message_format: ids.3,
            settled,
            more: flags.0,
            rcv_settle_mode,
            state,
            resume: flags.1,
            aborted: flags.2,
            batchable: flags.3,
        })
        .boxed()
}

pub(crate) fn disposition() -> BoxedStrategy<Disposition> {
    (role(), uint(), of(uint()), any::<bool>(), of(state()), any::<bool>())
        .prop_map(|(role, first, last, settled, state, batchable)| Disposition {
            role,
            first,
            last,
            settled,
            state,
            batchable,
        })
        .boxed()
}

pub(crate) fn detach() -> BoxedStrategy<Detach> {
    (uint(), any::<bool>(), of(error()))
        .prop_map(|(handle, closed, error)| Detach { handle, closed, error })
        .boxed()
}

pub(crate) fn performative() -> BoxedStrategy<Performative> {
    prop_oneof![
        open().prop_map(Performative::from),
        begin().prop_map(Performative::from),
        attach().prop_map(Performative::from),
        flow().prop_map(Performative::from),
        transfer().prop_map(Performative::from),
        disposition().prop_map(Performative::from),
        detach().prop_map(Performative::from),
        of(error()).prop_map(|error| End { error }.into()),
        of(error()).prop_map(|error| Close { error }.into()),
    ]
    .boxed()
}

pub(crate) fn sasl_body() -> BoxedStrategy<SaslBody> {
    use SaslCode as C;
    let code = prop_oneof![Just(C::Ok), Just(C::Auth), Just(C::Sys), Just(C::SysPerm), Just(C::SysTemp)];
    let init = (symbol(), of(binary()), of(text())).prop_map(|(mechanism, initial_response, hostname)| {
        SaslBody::Init(SaslInit { mechanism, initial_response, hostname })
    });
    prop_oneof![
        proptest::collection::vec(symbol(), 1..4)
            .prop_map(|mechanisms| SaslBody::Mechanisms(SaslMechanisms { mechanisms })),
        init,
        binary().prop_map(|challenge| SaslBody::Challenge(SaslChallenge { challenge })),
        binary().prop_map(|response| SaslBody::Response(SaslResponse { response })),
        (code, of(binary()))
            .prop_map(|(code, additional_data)| SaslBody::Outcome(SaslOutcome { code, additional_data })),
    ]
    .boxed()
}

pub(crate) fn header() -> BoxedStrategy<Header> {
    (any::<bool>(), any::<u8>(), of(uint()), any::<bool>(), uint())
        .prop_map(|(durable, priority, ttl, first_acquirer, delivery_count)| Header {
            durable,
            priority,
            ttl,
            first_acquirer,
            delivery_count,
        })
        .boxed()
}

pub(crate) fn message_id() -> BoxedStrategy<MessageId> {
    prop_oneof![
        ulong().prop_map(MessageId::Ulong),
        any::<[u8; 16]>().prop_map(MessageId::Uuid),
        binary().prop_map(MessageId::Binary),
        text().prop_map(MessageId::String),
    ]
    .boxed()
}

pub(crate) fn properties() -> BoxedStrategy<Properties> {
    let time = || of(any::<i64>().prop_map(Timestamp));
    let first = (of(message_id()), of(binary()), of(text()), of(text()), of(text()), of(message_id()));
    let rest = (of(symbol()), of(symbol()), time(), time(), of(text()), of(uint()), of(text()));
    (first, rest)
        .prop_map(|(first, rest)| Properties {
            message_id: first.0,
            user_id: first.1,
            to: first.2,
            subject: first.3,
            reply_to: first.4,
            correlation_id: first.5,
            content_type: rest.0,
            content_encoding: rest.1,
            absolute_expiry_time: rest.2,
            creation_time: rest.3,
            group_id: rest.4,
            group_sequence: rest.5,
            reply_to_group_id: rest.6,
        })
        .boxed()
}

pub(crate) fn declare() -> BoxedStrategy<Declare> {
    of(value().prop_filter("null is absence", |value| !value.is_null()))
        .prop_map(|global_id| Declare { global_id })
        .boxed()
}

pub(crate) fn discharge() -> BoxedStrategy<Discharge> {
    (binary(), any::<bool>()).prop_map(|(txn_id, fail)| Discharge { txn_id, fail }).boxed()
}
