//! Purges and deletions that are larger than one step go in pieces, and others have their turn between (DESIGN 7.7).

use super::Draft;
use super::broker::{Broker, Fate, replayed};
use super::script::{check, check_with, continue_with};
use crate::admin::{JobView, Page, Request, Response, Selection, StatusView, StoreKind};
use crate::command::{ConsumerSource, ConsumerSpec};
use crate::effect::Output;
use crate::{Command, Engine, Lifetime, Now, ProducerTarget};
use postroad_model::address::Address;
use postroad_model::refusal::Refusal;
use postroad_model::settings::BrokerSettings;
use postroad_record::{Record, decode_step};
use postroad_testkit::proves;

/// A broker whose jobs remove three events a piece.
fn small_pieces() -> BrokerSettings {
    BrokerSettings { name: "here".into(), job_batch: 3, ..BrokerSettings::default() }
}

/// A broker that runs only when a test says so.
struct Slow {
    broker: Broker,
    answers: Vec<(u64, Result<Response, Refusal>)>,
    /// How many events the largest step since the last look removes.
    largest: u64,
}

impl Slow {
    fn new(script: &str) -> Self {
        Self { broker: check_with(small_pieces(), script), answers: Vec::new(), largest: 0 }
    }

    fn collect(&mut self) {
        let mut out = Output::default();
        self.broker.engine.take_output(&mut out);
        for step in out.steps {
            let removed = |record: &Record| match record {
                Record::Removed { ids, .. } => ids.iter().map(|(first, last)| last - first + 1).sum(),
                _ => 0,
            };
            let records = decode_step(&step.payload).unwrap();
            self.largest = self.largest.max(records.iter().map(removed).sum());
            self.broker.durable = step.step;
            self.broker.synced.push(step.payload);
        }
        for (_, effect) in out.effects {
            if let crate::Effect::AdminReply { reply, result } = effect {
                self.answers.push((reply, *result));
            }
        }
    }

    /// One request alone, without any of the work that follows from it.
    fn ask(&mut self, reply: u64, request: Request) {
        let now = self.broker.now;
        self.broker.engine.handle(now, Command::Admin { reply, request: Box::new(request) });
        self.collect();
    }

    /// One piece of work.
    fn work(&mut self) -> bool {
        let more = self.broker.engine.run(self.broker.now, 1);
        self.collect();
        more
    }

    fn status(&mut self) -> StatusView {
        self.ask(u64::MAX, Request::Status);
        match self.answers.pop() {
            Some((u64::MAX, Ok(Response::Status(view)))) => *view,
            other => panic!("{other:?}"),
        }
    }

    fn jobs(&mut self) -> Vec<JobView> {
        self.status().jobs
    }

    /// What a crash leaves: an engine that has read back what is on disk.
    fn crash(&mut self) {
        self.broker.engine = restarted(&self.broker.synced, self.broker.now);
        self.answers.clear();
    }
}

fn restarted(steps: &[Vec<u8>], now: Now) -> Engine {
    let mut engine = replayed(&small_pieces(), steps, [9; 16], false);
    engine.run(now, 0);
    engine
}

fn purge(name: &str) -> Request {
    let (kind, name) = (StoreKind::Queue, name.to_owned());
    Request::PurgeStore { kind, name, selection: Selection::default() }
}

fn purged(count: u64) -> Result<Response, Refusal> {
    Ok(Response::Purged { purged: count })
}

#[test]
fn others_are_served_between_the_pieces_of_a_purge() {
    let mut slow = Slow::new("queue big\nqueue small\npublish big 1..20");
    slow.ask(1, purge("big"));
    assert_eq!(slow.answers, [], "it is not done yet");
    let producer = |broker: &mut Broker| {
        let target = ProducerTarget::Address(Address::parse("small", None).unwrap());
        broker.producer("pub", target).unwrap()
    };
    let mut removed = 3;
    loop {
        let jobs = slow.jobs();
        let [job] = &jobs[..] else { break };
        assert_eq!((job.kind, &*job.object, job.to), ("purge", "big", Some(20)));
        assert!(job.removed >= removed, "{job:?}");
        removed = job.removed;
        slow.work();
    }
    assert_eq!(slow.answers, [(1, purged(20))]);
    assert!(slow.largest <= 3, "a step removed {}", slow.largest);
    // The same once more, with somebody else's publishes answered while it goes on.
    continue_with(&mut slow.broker, "publish big 21..40");
    let sent = producer(&mut slow.broker);
    slow.ask(2, purge("big"));
    let tag = slow.broker.publish(&sent, Draft::new("between").incoming());
    assert_eq!(slow.broker.fate(&sent, tag), Fate::Accepted);
    continue_with(&mut slow.broker, "stored small = between\nstored big =");
}

#[test]
fn a_publish_needs_no_piece_of_a_running_purge() {
    let mut slow = Slow::new("queue big\nqueue small\npublish small 1\npublish big 1..30");
    let key = {
        let target = ProducerTarget::Address(Address::parse("small", None).unwrap());
        let name = slow.broker.producer("pub", target).unwrap();
        slow.broker.producers[&name].key.unwrap()
    };
    slow.ask(1, purge("big"));
    let before = slow.jobs()[0].removed;
    let message = Box::new(Draft::new("2").incoming());
    let publish = Command::Publish { producer: key, tag: 1, message, settled: false };
    slow.broker.engine.handle(slow.broker.now, publish);
    let mut out = Output::default();
    slow.broker.engine.take_output(&mut out);
    let accepted = out.effects.iter().any(|(_, effect)| matches!(effect, crate::Effect::Published { .. }));
    assert!(accepted, "{:?}", out.effects);
    assert_eq!(slow.jobs()[0].removed, before, "the purge waits for its turn");
}

#[test]
fn what_comes_after_the_purge_was_asked_for_stays() {
    let mut slow = Slow::new("queue q\npublish q 1..10");
    slow.ask(1, purge("q"));
    let target = ProducerTarget::Address(Address::parse("q", None).unwrap());
    let sent = slow.broker.producer("pub", target).unwrap();
    slow.broker.publish(&sent, Draft::new("late").incoming());
    continue_with(&mut slow.broker, "stored q = late\nview q depth=1 jobs=[]");
}

#[test]
fn a_purge_goes_on_after_a_crash() {
    let mut slow = Slow::new("queue q\npublish q 1..20 mem{mem}");
    slow.ask(1, purge("q"));
    slow.work();
    slow.work();
    let done = slow.jobs()[0].removed;
    assert!((3..20).contains(&done), "{done}");
    slow.crash();
    assert_eq!(slow.jobs()[0].removed, done);
    while slow.work() {}
    assert_eq!(slow.jobs(), []);
    continue_with(&mut slow.broker, "stored q =\npublish q 21 by=other\nstored q = 21");
    assert_eq!(slow.answers, [], "who asked is gone");
}

#[test]
fn a_snapshot_has_the_jobs_that_run() {
    let mut slow = Slow::new(
        "channel c
         object c::o start_event_id=0
         queue q
         publish q 1..20
         publish c 1..20",
    );
    slow.ask(1, purge("q"));
    let selection = Selection { filter: Some("x IS NULL".into()), ..Selection::default() };
    let (channel, name) = ("c".to_owned(), "o".to_owned());
    slow.ask(2, Request::PurgeObject { channel, owner: None, name, selection });
    let (kind, name) = (StoreKind::Queue, "q".to_owned());
    slow.ask(3, Request::DeleteStore { kind, name: name.clone(), cascade: false, force: false });
    let settings = postroad_model::settings::QueueSettings::default();
    slow.ask(4, Request::PutQueue { name, settings, configured: false });
    for _ in 0..4 {
        let mut pieces = Vec::new();
        slow.broker.engine.snapshot(&mut |piece| pieces.push(piece.to_vec()));
        let digest = slow.broker.digest();
        assert_eq!(slow.broker.digest_of(&restarted(&pieces, slow.broker.now)), digest, "a snapshot");
        assert_eq!(
            slow.broker.digest_of(&restarted(&slow.broker.synced, slow.broker.now)),
            digest,
            "the journal"
        );
        slow.work();
    }
}

#[test]
fn a_name_belongs_to_the_store_that_is_not_deleted_whatever_their_numbers() {
    let mut broker = Broker::with(small_pieces());
    for name in ["A", "B"] {
        let temporary = ConsumerSpec::new(ConsumerSource::Temporary(Lifetime::OnClose));
        broker.consume(name, "a", temporary, 0).unwrap();
    }
    continue_with(&mut broker, "queue q\npublish q 1..20\nchannel c\npublish c 1..20\ncut a");
    let mut slow = Slow { broker, answers: Vec::new(), largest: 0 };
    for (kind, name) in [(StoreKind::Channel, "c"), (StoreKind::Queue, "q")] {
        slow.ask(1, Request::DeleteStore { kind, name: name.into(), cascade: false, force: false });
    }
    let old = slow.broker.engine.all_stores().filter(|store| store.deleted).map(|store| store.key).min();
    let settings = postroad_model::settings::QueueSettings::default();
    slow.ask(2, Request::PutQueue { name: "q".into(), settings, configured: false });
    let settings = postroad_model::settings::ChannelSettings::default();
    slow.ask(3, Request::PutChannel { name: "c".into(), settings, configured: false });
    let engine = &slow.broker.engine;
    let new = engine.queues["q"].max(engine.channels["c"]);
    assert!(Some(new) < old, "they have the numbers of the temporary queues");
    while !slow.jobs().is_empty() {
        slow.broker.check_digest();
        slow.work();
    }
}

#[test]
fn the_same_purge_twice_is_one() {
    let mut slow = Slow::new("queue q\npublish q 1..20");
    slow.ask(1, purge("q"));
    slow.ask(2, purge("q"));
    assert_eq!(slow.jobs().len(), 1);
    while slow.work() {}
    assert_eq!(slow.answers, [(1, purged(20)), (2, purged(20))]);
    slow.ask(3, purge("q"));
    assert_eq!(slow.answers.last(), Some(&(3, purged(0))));
}

#[test]
fn a_purge_ends_with_what_it_purges() {
    let mut slow = Slow::new("channel c\nobject c::o start_event_id=0\npublish c 1..20");
    let (channel, name) = ("c".to_owned(), "o".to_owned());
    let selection = Selection::default();
    slow.ask(
        1,
        Request::PurgeObject { channel: channel.clone(), owner: None, name, selection: selection.clone() },
    );
    slow.ask(2, Request::PurgeStore { kind: StoreKind::Channel, name: channel.clone(), selection });
    let (kind, name) = (StoreKind::Channel, channel);
    slow.ask(3, Request::DeleteStore { kind, name, cascade: false, force: false });
    let codes: Vec<_> = slow
        .answers
        .iter()
        .map(|(reply, answer)| (*reply, answer.as_ref().map_err(|r| r.code.as_str()).err()))
        .collect();
    assert_eq!(codes, [(2, Some("DELETED")), (1, Some("DELETED")), (3, None)]);
    let kinds: Vec<&str> = slow.jobs().iter().map(|job| job.kind).collect();
    assert_eq!(kinds, ["delete"]);
    while slow.work() {}
    assert_eq!((slow.jobs(), slow.status().messages), (Vec::new(), 0));
}

#[test]
fn a_deleted_store_frees_its_name_at_once_and_its_events_in_pieces() {
    let mut slow = Slow::new("queue q\npublish q 1..20 m1{mem} m2{mem}");
    let (kind, name) = (StoreKind::Queue, "q".to_owned());
    slow.ask(1, Request::DeleteStore { kind, name: name.clone(), cascade: false, force: false });
    assert_eq!(slow.answers, [(1, Ok(Response::Deleted { name: name.clone() }))]);
    assert_eq!((slow.status().events, slow.status().messages), (0, 22));
    let settings = postroad_model::settings::QueueSettings::default();
    slow.ask(2, Request::PutQueue { name, settings, configured: false });
    slow.work();
    assert_eq!(slow.jobs().len(), 1, "22 events do not go in one piece");
    slow.crash();
    assert_eq!(slow.jobs()[0].kind, "delete");
    continue_with(
        &mut slow.broker,
        "stored q =\npublish q new by=other\nstored q = new\ncrash\nstored q = new",
    );
    assert_eq!((slow.jobs(), slow.status().messages), (Vec::new(), 1));
    assert!(slow.largest <= 3, "a step removed {}", slow.largest);
}

#[test]
fn a_purge_that_is_repeated_reaches_every_copy_and_no_event_on_its_way() {
    let mut slow = Slow::new(
        "channel a
         channel b
         queue q
         join a->b propagate_purge=true
         join a->q propagate_purge=true filter=\"k = 1\"
         join b->a
         publish b own1 own2
         publish a 1..9{k=1} 10{k=2}
         stored q = 1..9
         publish a 11..14{k=1}
         pause a->b
         publish a 15{k=1}",
    );
    let (kind, name) = (StoreKind::Channel, "a".to_owned());
    let selection = Selection { filter: Some("k = 1".into()), ..Selection::default() };
    slow.ask(1, Request::PurgeStore { kind, name, selection });
    continue_with(
        &mut slow.broker,
        "resume a->b
         stored a = own1 own2 10
         stored b = own1 own2 10
         stored q =
         publish a 16{k=1}
         stored b = own1 own2 10 16
         crash
         stored b = own1 own2 10 16",
    );
    proves("FWD-3");
}

#[test]
fn a_filter_that_matches_little_takes_many_small_pieces() {
    let mut slow = Slow::new("queue q\npublish q 1..100 101{x=1}");
    let selection = Selection { filter: Some("x = 1".into()), ..Selection::default() };
    slow.ask(1, Request::PurgeStore { kind: StoreKind::Queue, name: "q".into(), selection });
    let mut pieces = 0;
    while let Some(job) = slow.jobs().first() {
        assert!(job.at <= (pieces + 1) * 24 + 1, "{job:?} after {pieces} pieces");
        pieces += 1;
        slow.work();
    }
    assert_eq!((slow.answers.clone(), pieces), (vec![(1, purged(1))], 4));
}

#[test]
fn what_named_objects_owe_is_counted_in_pieces() {
    let mut slow = Slow::new(
        "channel c
         publish c 1..5000{k=1} 5001..6000{k=2}
         object c::all start_event_id=0
         object c::some start_event_id=0 selector=\"k = 2\"
         object c::new",
    );
    slow.ask(1, Request::ListObjects { channel: None });
    assert_eq!(slow.answers, [], "12,000 events are too many for one look");
    let (channel, name) = ("c".to_owned(), "new".to_owned());
    slow.ask(2, Request::ShowObject { channel, owner: None, name });
    assert!(matches!(slow.answers[..], [(2, Ok(Response::Object(_)))]), "others have their turn");
    while slow.work() {}
    let Some((1, Ok(Response::Objects { items }))) = slow.answers.pop() else { panic!("no list") };
    let owed: Vec<(&str, u64)> = items.iter().map(|o| (&*o.name, o.backlog)).collect();
    assert_eq!(owed, [("all", 6_000), ("new", 0), ("some", 1_000)]);
}

#[test]
fn an_object_that_goes_while_it_is_counted_is_not_shown() {
    let mut slow =
        Slow::new("channel c\npublish c 1..5000\nobject c::o start_event_id=0\nobject c::p start_event_id=0");
    let (channel, name) = ("c".to_owned(), "o".to_owned());
    slow.ask(1, Request::ShowObject { channel: channel.clone(), owner: None, name: name.clone() });
    slow.ask(2, Request::ListObjects { channel: Some(channel.clone()) });
    slow.ask(3, Request::DeleteObject { channel, owner: None, name, force: false });
    while slow.work() {}
    let answer = |reply| slow.answers.iter().find(|(to, _)| *to == reply).map(|(_, answer)| answer.clone());
    assert_eq!(answer(1).unwrap().unwrap_err().code.as_str(), "OBJECT_NOT_FOUND");
    let Some(Ok(Response::Objects { items })) = answer(2) else { panic!("no list") };
    assert_eq!(items.iter().map(|o| (&*o.name, o.backlog)).collect::<Vec<_>>(), [("p", 5_000)]);
}

#[test]
fn a_lowered_capacity_is_reached_in_pieces() {
    let mut slow = Slow::new("queue q\npublish q 1..600");
    let settings = postroad_model::settings::QueueSettings {
        capacity: 5,
        honour_capacity: false,
        ..postroad_model::settings::QueueSettings::default()
    };
    slow.ask(1, Request::PutQueue { name: "q".into(), settings, configured: false });
    assert_eq!((slow.largest, slow.status().events), (0, 600), "the definition itself removes nothing");
    while slow.work() {}
    assert!(slow.largest <= 256, "a step removed {}", slow.largest);
    continue_with(&mut slow.broker, "stored q = 596..600\npublish q 601\nstored q = 597..601");
}

#[test]
fn what_a_consumer_holds_is_left_to_it() {
    check_with(
        small_pieces(),
        "queue q
         publish q 1..10
         consume A q credit=2
         got A = 1 2
         purge q
         stored q = 1 2
         release A 2
         stored q = 1 2",
    );
}

#[test]
fn a_browse_goes_by_pages_of_bounded_cost() {
    let mut broker = check(
        "queue q
         publish q 1..700
         publish q urgent{prio=9} low{prio=1}
         consume A q credit=1
         got A = urgent",
    );
    let (mut after, mut pages, mut texts) = (None, 0, Vec::new());
    loop {
        let (kind, name, selection) = (StoreKind::Queue, "q".to_owned(), Selection::default());
        let page = Page { after, limit: 1_000 };
        let Ok(Response::Events { items, next }) =
            broker.ask(Request::BrowseStore { kind, name, selection, page })
        else {
            panic!("no events")
        };
        assert!(items.len() <= 256);
        texts.extend(items.into_iter().map(|event| (event.body.unwrap_or_default(), event.in_delivery)));
        pages += 1;
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert!(pages >= 3, "{pages}");
    let mut expected = vec![("urgent".to_owned(), true)];
    expected.extend((1..=700).map(|n| (n.to_string(), false)));
    expected.push(("low".to_owned(), false));
    assert_eq!(texts, expected);
    let (kind, name, selection) = (StoreKind::Queue, "q".to_owned(), Selection::default());
    let page = Page { after: Some("nonsense".into()), limit: 1 };
    let refused = broker.ask(Request::BrowseStore { kind, name, selection, page });
    assert_eq!(refused.unwrap_err().code.as_str(), "BAD_VALUE");
    proves("OP-1");
}
