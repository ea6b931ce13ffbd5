//! Commands as nobody in their right mind would send them, between those of a random history: nothing makes the engine
//! panic, or its journal say anything else than its memory.

use super::Draft;
use super::broker::Broker;
use super::histories::{Op, WORLD, config, op, play, settlement};
use super::script::continue_with;
use crate::admin::{Request, Selection, StoreKind};
use crate::command::CloseMode;
use crate::{Command, ConnId, LinkNo, ProducerKey, ProducerTarget, TakerKey};
use proptest::prelude::*;
use proptest::test_runner::Config;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0..5u64, Just(u64::MAX), Just(u64::MAX - 1), any::<u64>()]
}

fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("b"), Just("q"), Just("b::o"), Just("S"), Just("a->b"), Just(""), Just("%@::")]
}

/// What clients send under keys and numbers that are not theirs.
fn wild() -> impl Strategy<Value = Command> {
    let key = || (0..6u32, 0..4u32);
    let taker = move || key().prop_map(|(index, generation)| TakerKey { index, generation });
    let conn = || (0..8u64).prop_map(ConnId);
    let link = || (0..3u32).prop_map(LinkNo);
    prop_oneof![
        (taker(), number(), any::<bool>()).prop_map(|(taker, limit, drain)| Command::Credit {
            taker,
            limit,
            drain
        }),
        (taker(), number(), number(), 0..6u8, any::<bool>()).prop_map(
            |(taker, first, last, outcome, confirm)| {
                Command::Settle { taker, first, last, outcome: settlement(outcome), confirm }
            }
        ),
        (taker(), 0..6u8).prop_map(|(taker, outcome)| {
            Command::CloseConsumer { taker, mode: CloseMode::Close, default: settlement(outcome) }
        }),
        key().prop_map(|(index, generation)| Command::CloseProducer {
            producer: ProducerKey { index, generation }
        }),
        (key(), number(), any::<bool>()).prop_map(|((index, generation), tag, settled)| Command::Publish {
            producer: ProducerKey { index, generation },
            tag,
            message: Box::new(Draft::new("wild").incoming()),
            settled,
        }),
        conn().prop_map(|conn| Command::Disconnect { conn }),
        (conn(), link(), name()).prop_map(|(conn, link, name)| {
            let name = name.to_owned();
            Command::FindSubscription { conn, link, name }
        }),
        (conn(), link(), name()).prop_map(|(conn, link, name)| {
            let name = name.to_owned();
            Command::DeleteSubscription { conn, link, name }
        }),
        (conn(), link()).prop_map(|(conn, link)| Command::OpenProducer {
            conn,
            link,
            target: ProducerTarget::Temporary(crate::Lifetime::OnClose)
        }),
    ]
}

/// Requests of operators who mistype.
fn wild_request() -> impl Strategy<Value = Command> {
    let selection = || {
        (prop::option::of(number()), prop::option::of(number())).prop_map(|(from, to)| Selection {
            from,
            to,
            filter: None,
        })
    };
    prop_oneof![
        (name(), selection(), any::<bool>()).prop_map(|(name, selection, queue)| {
            let kind = if queue { StoreKind::Queue } else { StoreKind::Channel };
            let request = Request::PurgeStore { kind, name: name.to_owned(), selection };
            Command::Admin { reply: 7, request: Box::new(request) }
        }),
        (name(), selection()).prop_map(|(name, selection)| {
            let (channel, name) = ("b".to_owned(), name.to_owned());
            let request = Request::PurgeObject { channel, owner: None, name, selection };
            Command::Admin { reply: 7, request: Box::new(request) }
        }),
        (name(), any::<bool>()).prop_map(|(name, drain)| {
            let request = Request::DeleteJoin { name: name.to_owned(), drain };
            Command::Admin { reply: 7, request: Box::new(request) }
        }),
        (name(), any::<bool>(), any::<bool>()).prop_map(|(name, cascade, force)| {
            let (kind, name) = (StoreKind::Channel, name.to_owned());
            Command::Admin {
                reply: 7,
                request: Box::new(Request::DeleteStore { kind, name, cascade, force }),
            }
        }),
    ]
}

#[derive(Clone, Debug)]
enum Any {
    Sane(Op),
    Wild(std::rc::Rc<std::cell::RefCell<Option<Command>>>),
}

fn anything() -> impl Strategy<Value = Any> {
    let wild = prop_oneof![wild(), wild_request()]
        .prop_map(|command| Any::Wild(std::rc::Rc::new(std::cell::RefCell::new(Some(command)))));
    prop_oneof![op().prop_map(Any::Sane), wild]
}

proptest! {
    #![proptest_config(Config { max_shrink_iters: 0, ..config(150) })]

    #[test]
    fn no_command_can_make_it_panic(ops in prop::collection::vec(anything(), 1..80)) {
        let mut broker = Broker::new();
        continue_with(&mut broker, WORLD);
        broker.auto_sync = false;
        for (number, op) in ops.iter().enumerate() {
            match op {
                Any::Sane(op) => play(&mut broker, op, number),
                Any::Wild(command) => {
                    if let Some(command) = command.take() {
                        broker.send(command);
                    }
                }
            }
        }
        broker.check_digest();
    }
}
