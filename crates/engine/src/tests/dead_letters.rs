//! Where messages go that can't go where they should, and that none is lost when nothing can take them (AK-3, AK-8, RES-10,
//! 5.1 `dead_event_store`, QU-6).

use super::Draft;
use super::broker::{Broker, Fate};
use super::script::{check, continue_with};
use crate::ProducerTarget;
use crate::admin::{DeadLetterView, Request, Selection, StoreKind};
use crate::command::Command;
use postroad_model::address::Address;
use postroad_testkit::proves;

/// The dead letters of a queue: text and header.
fn dead_letters(broker: &mut Broker, queue: &str) -> Vec<(String, DeadLetterView)> {
    let events = broker.browse(|page| {
        let (kind, name, selection) = (StoreKind::Queue, queue.to_owned(), Selection::default());
        Request::BrowseStore { kind, name, selection, page }
    });
    let header = |event: crate::admin::EventView| Some((event.body?, event.dead_letter?));
    events.unwrap().into_iter().filter_map(header).collect()
}

#[test]
fn what_all_remaining_consumers_refused_is_a_dead_letter_once_the_others_left() {
    let begin = "queue q
         consume A q credit=1
         consume B q
         publish q 1
         got A = 1
         refuse A 1
         got B = 1
         publish q 2
         got A =
         stored DLQ =\n";
    for leaves in ["cut B", "detach B", "close B"] {
        let mut broker = check(&format!("{begin}{leaves}\nstored DLQ = 1\nstored q = 2"));
        let letters = dead_letters(&mut broker, "DLQ");
        assert_eq!(letters[0].1.reason, "REFUSED_BY_ALL", "{leaves}");
    }
    // With nobody left there is nobody who has refused it: it waits for the next consumer.
    check(&format!("{begin}cut A\nstored DLQ =\ncut B\nstored DLQ =\nconsume C q\ngot C = 1*1 2*1"));
    proves("AK-3");
}

#[test]
fn many_refused_messages_are_looked_at_in_pieces() {
    check(
        "queue q
         consume A q
         consume B q selector=\"none IS NOT NULL\"
         publish q 1..1000
         got A = 1..1000
         refuse A ..1000
         stored DLQ =
         cut B
         stored q =
         view DLQ depth=1000",
    );
}

#[test]
fn a_full_dead_event_store_loses_nothing() {
    // What is evicted goes to the dead-letter queue instead, and stays where that is full, too.
    let mut broker = check(
        "queue DLQ capacity=1
         queue grave capacity=1
         queue q capacity=2 honour_capacity=false dead_event_store=grave
         publish q 1..4
         stored q = 3 4
         stored grave = 1
         stored DLQ = 2
         publish q 5 => QUEUE_FULL
         stored q = 3 4
         view q evicted_total=2 refused_total=1
         purge grave
         publish q 5
         stored q = 4 5
         stored grave = 3",
    );
    let letters = dead_letters(&mut broker, "DLQ");
    let facts =
        |(text, dead): &(String, DeadLetterView)| (text.clone(), dead.reason.clone(), dead.dest.clone());
    assert_eq!(
        letters.iter().map(facts).collect::<Vec<_>>(),
        [("2".into(), "STORE_FULL".into(), "q".into())]
    );
    continue_with(&mut broker, "crash\nstored q = 4 5\nstored grave = 3\nstored DLQ = 2");
}

#[test]
fn a_missing_dead_event_store_loses_nothing() {
    check(
        "channel c capacity=1 honour_capacity=false dead_event_store=nowhere
         publish c 1 2
         stored c = 2
         stored DLQ = 1",
    );
}

#[test]
fn what_expires_and_fits_nowhere_stays_undelivered_until_there_is_room() {
    for store in ["queue q", "channel q", "channel q retention=interest"] {
        let object = if store.starts_with("channel") { "object q::o start_event_id=0" } else { "" };
        let source = if store.starts_with("channel") { "q::o" } else { "q" };
        check(&format!(
            "queue DLQ capacity=1
             queue grave capacity=1
             {store} dead_event_store=grave
             {object}
             publish q 1..4{{ttl=50}} 5
             wait 60
             stored grave = 1
             stored DLQ = 2
             stored q = 3..5
             view q blocked=2 expired_total=2
             consume A {source}
             got A = 5
             purge grave
             wait 30000
             stored grave = 3
             stored q = 4 5
             view q blocked=1
             crash
             stored q = 4 5
             purge grave
             purge DLQ
             wait 30000
             stored q = 5
             stored grave = 4
             view q blocked=0"
        ));
    }
    proves("QU-6");
}

#[test]
fn what_was_to_expire_lives_on_where_the_settings_let_it() {
    for kind in ["queue", "channel"] {
        check(&format!(
            "queue DLQ capacity=1
             queue grave capacity=1
             {kind} q ttl=50 dead_event_store=grave
             publish q 1..4
             wait 60
             view q blocked=2 depth=2
             {kind} q dead_event_store=grave
             wait 30000
             view q blocked=0 depth=2
             purge DLQ
             purge grave
             wait 60000
             stored q = 3 4"
        ));
    }
    check(
        "queue DLQ capacity=1
         queue grave capacity=1
         queue q ttl=50 dead_event_store=grave
         publish q 1..3
         wait 60
         consume A q
         got A =
         queue q
         wait 30000
         got A = 3",
    );
}

#[test]
fn an_expiry_queue_that_is_full_leaves_it_to_the_dead_event_store() {
    check(
        "queue late capacity=1
         queue grave capacity=1
         queue q expiry_queue=late dead_event_store=grave
         publish q 1..3{ttl=50}
         wait 60
         stored late = 1
         stored grave = 2
         stored DLQ = 3
         stored q =",
    );
    // Without either it is dropped and counted.
    check("queue q\npublish q 1{ttl=50}\nwait 60\nstored q =\nstored DLQ =\nview q expired_total=1");
}

#[test]
fn a_dead_event_store_has_none_itself() {
    check(
        "queue grave capacity=1 honour_capacity=false dead_event_store=deeper
         queue deeper
         queue q capacity=1 honour_capacity=false dead_event_store=grave
         publish q 1..3
         stored q = 3
         stored grave = 2
         stored deeper =
         stored DLQ =",
    );
}

#[test]
fn a_channel_with_the_name_of_a_dead_event_store_is_none() {
    check(
        "queue deep
         queue grave capacity=1 honour_capacity=false dead_event_store=deep
         channel grave capacity=1 honour_capacity=false dead_event_store=deep
         channel other capacity=1 honour_capacity=false dead_event_store=grave
         publish topic://grave 1 2
         stored grave = 2
         stored deep = 1
         publish other 3..5
         stored queue:grave = 4
         stored deep = 1
         delete queue:grave force
         publish topic://grave 6
         stored grave = 6
         stored deep = 1",
    );
}

#[test]
fn what_expires_again_goes_to_no_expiry_queue() {
    let mut broker = check(
        "queue e ttl=50 expiry_queue=f
         queue f ttl=50 expiry_queue=e
         publish e 1
         wait 60
         stored f = 1
         wait 60
         stored e =
         stored f =
         stored DLQ = 1
         crash
         wait 1000
         stored DLQ = 1",
    );
    let letters = dead_letters(&mut broker, "DLQ");
    assert_eq!((&*letters[0].1.reason, &*letters[0].1.dest, letters[0].1.count), ("EXPIRED", "f", 2));
    // It does go to a dead event store.
    check(
        "queue grave
         queue e ttl=50 expiry_queue=f
         queue f ttl=50 expiry_queue=e dead_event_store=grave
         publish e 1
         wait 120
         stored grave = 1
         stored DLQ =",
    );
    proves("DLQ-5");
}

/// Sends settled messages over an anonymous producer; the producer's name.
fn send_settled(broker: &mut Broker, drafts: &[Draft]) -> String {
    let producer = broker.producer("fire", ProducerTarget::PerMessage).unwrap();
    for (tag, draft) in drafts.iter().enumerate() {
        let Some(key) = broker.producers[&producer].key else { break };
        let message = Box::new(draft.incoming());
        broker.send(Command::Publish { producer: key, tag: tag as u64, message, settled: true });
    }
    producer
}

fn to(address: &str) -> Draft {
    Draft { to: Some(address.to_owned()), ttl: Some(50), ..Draft::new(address) }
}

#[test]
fn a_settled_message_whose_address_does_not_resolve_is_dead_lettered() {
    let mut broker = check("queue q");
    let nowhere = Draft { to: None, ..to("nothing") };
    let drafts = [to("gone"), to("q@elsewhere"), to("queue://here/gone"), nowhere, to("q?x=1"), to("q")];
    let producer = send_settled(&mut broker, &drafts);
    assert_eq!(broker.producers[&producer].ended, None, "the link goes on");
    continue_with(&mut broker, "stored q = q\nwait 100\ncrash");
    let letters = dead_letters(&mut broker, "DLQ");
    let facts: Vec<(&str, &str, &str)> = letters
        .iter()
        .map(|(_, dead)| (&*dead.reason, &*dead.dest, dead.address.as_deref().unwrap()))
        .collect();
    assert_eq!(
        facts,
        [
            ("UNKNOWN_QUEUE", "gone", "gone"),
            ("UNKNOWN_BROKER", "q", "q@elsewhere"),
            ("UNKNOWN_QUEUE", "gone", "queue://here/gone"),
            ("BAD_ADDRESS", "", ""),
            ("BAD_ADDRESS", "q?x=1", "q?x=1"),
        ]
    );
    assert_eq!((&*letters[0].1.component, letters[0].1.count), ("client:fire", 1));
    proves("RES-10");
}

#[test]
fn a_settled_message_is_refused_for_space_by_the_end_of_its_link() {
    let mut broker = check("queue q capacity=1\npublish q 1");
    let producer = send_settled(&mut broker, &[to("q")]);
    let code = broker.producers[&producer].ended.as_ref().map(|refusal| refusal.code.as_str());
    assert_eq!(code, Some("QUEUE_FULL"));
    let mut broker = check("queue DLQ capacity=1\npublish DLQ 1");
    let producer = send_settled(&mut broker, &[to("gone")]);
    let code = broker.producers[&producer].ended.as_ref().map(|refusal| refusal.code.as_str());
    assert_eq!(code, Some("UNKNOWN_QUEUE"), "nothing can keep it, so the sender hears of it");
    let mut broker = check("channel c");
    let producer = send_settled(&mut broker, &[to("topic://a/#/b")]);
    let code = broker.producers[&producer].ended.as_ref().map(|refusal| refusal.code.as_str());
    assert_eq!(code, Some("BAD_TOPIC"));
    continue_with(&mut broker, "stored DLQ =");
}

#[test]
fn an_unsettled_message_that_does_not_resolve_is_refused_and_not_kept() {
    let mut broker = Broker::new();
    let producer = broker.producer("careful", ProducerTarget::PerMessage).unwrap();
    let tag = broker.publish(&producer, to("gone").incoming());
    let Fate::Refused(refusal) = broker.fate(&producer, tag) else { panic!("not refused") };
    assert_eq!(refusal.code.as_str(), "UNKNOWN_QUEUE");
    continue_with(&mut broker, "stored DLQ =");
}

#[test]
fn a_settled_message_that_is_too_big_for_its_store_is_dead_lettered() {
    let mut broker = check("queue q max_message_size=10");
    let target = ProducerTarget::Address(Address::parse("q", None).unwrap());
    let name = broker.producer("fire", target).unwrap();
    let key = broker.producers[&name].key.unwrap();
    let message = Box::new(Draft::new("much too long").incoming());
    broker.send(Command::Publish { producer: key, tag: 0, message, settled: true });
    let letters = dead_letters(&mut broker, "DLQ");
    assert_eq!((&*letters[0].1.reason, &*letters[0].1.dest), ("MSG_TOO_BIG", "q"));
}
