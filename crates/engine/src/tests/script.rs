//! Scripts: what happens to a broker and what must be so, a line each.
//!
//! ```text
//! channel c retention=interest           queue q capacity=10         define or alter; values are JSON or words
//! object c::d start_event_id=0           join a->b max_hops=0
//! publish c 1..3 4{color=R} x{id=X,prio=9,ttl=50,mem,to=q} by=client       5{delay=100} 6{until=1000100}
//! consume A c::d credit=5 conn=X selector="..." durable=S browse presettled no_local priority=1 start=4
//!     expiry=never|link-detach|session-end|connection-close[,SECONDS]     expire A (leaves, its time begins)
//! got A = 1 2*1                           new deliveries; *N is the delivery count
//! got A = 1[k=v;l=w]*1                    with annotations of its own
//! ack|release|fail|reject|refuse A 1 2    outcome of the latest open delivery of each text; `ack A ..3` up to it
//! release|fail|refuse A 1 k=v l=w         with annotations (`modified`)
//! credit A 7 [drain]     drained A 1      cut X (connection)     detach A     close A    ended A = CODE
//! stored c = 1 2 3                        what lies in the store, in delivery order
//! owed c::d = 4 5                         what a named object owes
//! scheduled q = 5 6       cancel q 1      what waits for its delivery time; the number of one
//! view c depth=3   view c::d backlog=2   view a->b state=running     fields of the operators' view
//! purge c [1..3] [filter="..."]           purge c::d ...             delete c [cascade] [force], c::d, a->b [drain]
//! pause a->b       resume a->b            alter a->b filter="..."
//! sync off|on|N    crash    restart [checkpoint]       wait MS     disk full|free
//! LINE => CODE                            the line must be refused with this code
//! ```
//!
//! A name means the channel where both exist, or `queue:NAME`.

use super::broker::{Broker, Fate};
use super::{Draft, body_text};
use crate::admin::{Request, Response, Selection, StoreKind};
use crate::command::{CloseMode, ConsumerSource, ConsumerSpec, Settlement};
use crate::{Command, ConnId, LinkNo, ProducerTarget};
use postroad_amqp_codec::Value;
use postroad_model::address::Address;
use postroad_model::refusal::Refusal;
use postroad_model::settings::{BrokerSettings, Start};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};

type Done = Result<(), Refusal>;

/// Runs a script against a new broker.
pub(crate) fn check(script: &str) -> Broker {
    check_with(Broker::settings(), script)
}

/// Runs a script against a new broker with these settings, and against one that keeps nothing in memory that is on disk.
pub(crate) fn check_with(settings: BrokerSettings, script: &str) -> Broker {
    continue_with(&mut Broker::with(BrokerSettings { cache: 0, ..settings.clone() }), script);
    let mut broker = Broker::with(settings);
    continue_with(&mut broker, script);
    broker
}

/// Runs a script against a broker.
pub(crate) fn continue_with(broker: &mut Broker, script: &str) {
    for (number, line) in script.lines().enumerate() {
        let line = line.split(" # ").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = format!("line {}: {line}", number + 1);
        let (what, code) =
            line.split_once(" => ").map_or((line, None), |(what, code)| (what, Some(code.trim())));
        match (one_line(broker, what, &at), code) {
            (Ok(()), None) => {}
            (Err(refusal), Some(code)) => assert_eq!(refusal.code.as_str(), code, "{at}\n{refusal}"),
            (Err(refusal), None) => panic!("{at}\nrefused: {}: {refusal}", refusal.code),
            (Ok(()), Some(code)) => panic!("{at}\nnot refused with {code}"),
        }
    }
    if broker.auto_sync {
        broker.check_digest();
    }
}

/// Runs one line, whether or not it is refused.
pub(super) fn attempt(broker: &mut Broker, line: &str) {
    let _ = one_line(broker, line, line);
}

fn one_line(broker: &mut Broker, line: &str, at: &str) -> Done {
    let words = words(line);
    let mut words = words.iter().map(String::as_str);
    let verb = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    match verb {
        "channel" | "queue" | "object" | "join" => define(broker, verb, &rest),
        "publish" => publish(broker, &rest, at),
        "consume" => consume(broker, &rest),
        "got" => {
            expect_got(broker, &rest, at);
            Ok(())
        }
        "ack" | "release" | "fail" | "reject" | "refuse" => {
            outcome(broker, verb, &rest, at);
            Ok(())
        }
        "scheduled" => expect_scheduled(broker, &rest, at),
        "cancel" => {
            let (kind, name) = store_name(broker, rest[0]);
            let number = rest[1].parse().unwrap();
            broker.ask(Request::CancelScheduled { kind, name, number }).map(drop)
        }
        "stored" | "owed" => expect_listed(broker, verb, &rest, at),
        "view" => expect_view(broker, &rest, at),
        "purge" => purge(broker, &rest),
        "delete" => delete(broker, &rest),
        "pause" | "resume" | "alter" => change_join(broker, verb, &rest),
        _ => {
            happen(broker, verb, &rest, at);
            Ok(())
        }
    }
}

fn happen(broker: &mut Broker, verb: &str, rest: &[&str], at: &str) {
    let first = rest.first().copied().unwrap_or_default();
    let consumer = |broker: &Broker| format!("{:?}", broker.consumers.get(first));
    match verb {
        "credit" => broker.credit(first, rest[1].parse().unwrap(), rest.contains(&"drain")),
        "drained" => assert_eq!(broker.consumers[first].drained.to_string(), rest[1], "{at}"),
        "ended" => {
            let code = broker.consumers[first].ended.as_ref().map(|r| r.code.as_str());
            assert_eq!(code, Some(rest[2]), "{at} {}", consumer(broker));
        }
        "cut" => broker.cut(first),
        "detach" => broker.close(first, CloseMode::Detach),
        "close" => broker.close(first, CloseMode::Close),
        "expire" => broker.close(first, CloseMode::Expire),
        "sync" => match first {
            "off" => broker.auto_sync = false,
            "on" => {
                broker.auto_sync = true;
                broker.sync();
            }
            steps => broker.sync_some(steps.parse().unwrap()),
        },
        "crash" => broker.crash(),
        "restart" => broker.restart_clean(first == "checkpoint"),
        "wait" => broker.wait(first.parse().unwrap()),
        "disk" => {
            broker.engine.set_disk_full(first == "full");
            broker.run();
        }
        _ => panic!("{at}\nno such verb"),
    }
}

fn define(broker: &mut Broker, verb: &str, rest: &[&str]) -> Done {
    let (name, settings) = (rest[0].to_owned(), options(&rest[1..]));
    let configured = false;
    let request = match verb {
        "channel" => Request::PutChannel { name, settings: from(settings), configured },
        "queue" => Request::PutQueue { name, settings: from(settings), configured },
        "object" => {
            let (channel, name) = name.split_once("::").unwrap();
            Request::CreateObject {
                channel: channel.to_owned(),
                name: name.to_owned(),
                settings: from(settings),
                configured,
            }
        }
        _ => {
            let (source, destination) = name.split_once("->").unwrap();
            let mut settings = settings;
            let name = settings.remove("name").map(|name| name.as_str().unwrap().to_owned());
            settings.insert("source".into(), source.into());
            settings.insert("destination".into(), destination.into());
            Request::CreateJoin { name, settings: from(settings), configured }
        }
    };
    broker.ask(request).map(drop)
}

fn publish(broker: &mut Broker, rest: &[&str], at: &str) -> Done {
    let client = option(rest, "by").unwrap_or("pub").to_owned();
    let target = match rest[0] {
        "*" => ProducerTarget::PerMessage,
        name => ProducerTarget::Address(Address::parse(name, None).unwrap()),
    };
    let producer = broker.producer(&client, target)?;
    for word in rest[1..].iter().filter(|word| !word.starts_with("by=")) {
        for draft in drafts(word) {
            let tag = broker.publish(&producer, draft.incoming());
            match broker.fate(&producer, tag) {
                Fate::Refused(refusal) => return Err((*refusal).clone()),
                Fate::Waiting => assert!(!broker.auto_sync, "{at}\nnot answered"),
                Fate::Accepted => {}
            }
        }
    }
    Ok(())
}

/// `7`, `1..3`, `4{color=R,prio=9}`.
fn drafts(word: &str) -> Vec<Draft> {
    let (text, facts) = word.split_once('{').unwrap_or((word, "}"));
    let mut draft = Draft::default();
    for fact in facts.trim_end_matches('}').split(',').filter(|fact| !fact.is_empty()) {
        match fact.split_once('=') {
            None if fact == "mem" => draft.nondurable = true,
            Some(("prio", value)) => draft.priority = value.parse().ok(),
            Some(("ttl", value)) => draft.ttl = value.parse().ok(),
            Some(("id", value)) => draft.id = Some(value.to_owned()),
            Some(("delay", value)) => {
                draft.annotations.push(("x-opt-delivery-delay", Value::Long(value.parse().unwrap())));
            }
            Some(("until", value)) => {
                draft.annotations.push(("x-opt-delivery-time", Value::Timestamp(value.parse().unwrap())));
            }
            Some(("to", value)) => draft.to = Some(value.to_owned()),
            Some((key, value)) => {
                let value = value.parse().map_or_else(|_| Value::String(value.into()), Value::Long);
                draft.properties.push((key.to_owned(), value));
            }
            None => panic!("what is {fact}?"),
        }
    }
    let one = |text: String| Draft { text, ..draft.clone() };
    match text.split_once("..") {
        Some((first, last)) => {
            let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
            (first..=last).map(|n| one(n.to_string())).collect()
        }
        None => vec![one(text.to_owned())],
    }
}

fn consume(broker: &mut Broker, rest: &[&str]) -> Done {
    let (name, address) = (rest[0], Address::parse(rest[1], None).unwrap());
    let spec = ConsumerSpec {
        source: ConsumerSource::Address(address),
        selector: option(rest, "selector").map(str::to_owned),
        no_local: rest.contains(&"no_local"),
        browse: rest.contains(&"browse"),
        presettled: rest.contains(&"presettled"),
        durable: option(rest, "durable").map(str::to_owned),
        expiry: expiry(rest),
        start: option(rest, "start").map(|start| start.parse::<Start>().unwrap()),
        priority: option(rest, "priority").map_or(0, |priority| priority.parse().unwrap()),
    };
    let credit = option(rest, "credit").map_or(1_000, |credit| credit.parse().unwrap());
    broker.consume(name, option(rest, "conn").unwrap_or(name), spec, credit)
}

/// `expiry=session-end` or `expiry=session-end,SECONDS`.
fn expiry(rest: &[&str]) -> crate::Expiry {
    let Some(text) = option(rest, "expiry") else { return crate::Expiry::default() };
    let (policy, timeout) = text.split_once(',').unwrap_or((text, "0"));
    let policy = serde_json::from_value(policy.into()).unwrap();
    crate::Expiry { policy, timeout: timeout.parse().unwrap() }
}

fn expect_got(broker: &mut Broker, rest: &[&str], at: &str) {
    let Some(consumer) = broker.consumers.get_mut(rest[0]) else { panic!("{at}\nno such consumer") };
    let new = consumer.got[consumer.read..].iter();
    let got: Vec<String> = new
        .map(|got| {
            let notes = got.notes.join(";");
            let notes = if notes.is_empty() { notes } else { format!("[{notes}]") };
            let count = if got.count > 0 { format!("*{}", got.count) } else { String::new() };
            format!("{}{notes}{count}", got.text)
        })
        .collect();
    consumer.read = consumer.got.len();
    assert_eq!(got.join(" "), expanded(&rest[2..]), "{at}");
}

/// Texts with `1..3` written out.
fn expanded(words: &[&str]) -> String {
    let texts = words.iter().flat_map(|word| drafts(word)).map(|draft| draft.text);
    texts.collect::<Vec<_>>().join(" ")
}

fn outcome(broker: &mut Broker, verb: &str, rest: &[&str], at: &str) {
    let name = rest[0];
    let (notes, texts): (Vec<&str>, Vec<&str>) = rest[1..].iter().partition(|word| word.contains('='));
    let annotations = (!notes.is_empty()).then(|| super::noted(&notes));
    for text in &texts {
        let (first, text) = text.strip_prefix("..").map_or((None, *text), |text| (Some(0), text));
        let found = broker.consumers[name].got.iter().rev().find(|got| got.text == text && got.open);
        let Some(tag) = found.map(|got| got.tag) else { panic!("{at}\n{name} does not hold {text}") };
        let outcome = match verb {
            "ack" => Settlement::Accepted,
            "release" if annotations.is_none() => Settlement::Released,
            "release" | "fail" | "refuse" => Settlement::Modified {
                failed: verb == "fail",
                undeliverable_here: verb == "refuse",
                annotations: annotations.clone(),
            },
            _ => Settlement::Rejected { reason: Some("because".into()) },
        };
        broker.settle(name, first.unwrap_or(tag), tag, outcome);
    }
}

fn expect_listed(broker: &mut Broker, verb: &str, rest: &[&str], at: &str) -> Done {
    let word = rest[0];
    let store = (verb == "stored").then(|| store_name(broker, word));
    let items = broker.browse(|page| {
        let selection = Selection::default();
        match store.clone() {
            Some((kind, name)) => Request::BrowseStore { kind, name, selection, page },
            None => {
                let (channel, owner, name) = object_name(word);
                Request::BrowseObject { channel, owner, name, selection, page }
            }
        }
    })?;
    let texts: Vec<String> = items.into_iter().map(|event| event.body.unwrap_or_default()).collect();
    assert_eq!(texts.join(" "), expanded(&rest[2..]), "{at}");
    Ok(())
}

fn expect_scheduled(broker: &mut Broker, rest: &[&str], at: &str) -> Done {
    let (kind, name) = store_name(broker, rest[0]);
    let texts: Vec<String> =
        broker.scheduled(kind, &name)?.into_iter().map(|item| item.body.unwrap_or_default()).collect();
    assert_eq!(texts.join(" "), expanded(&rest[2..]), "{at}");
    Ok(())
}

/// `channel::name`, or `channel::client/name` for one that a client owns.
fn object_name(word: &str) -> (String, Option<String>, String) {
    let (channel, name) = word.split_once("::").unwrap();
    match name.split_once('/') {
        Some((owner, name)) => (channel.to_owned(), Some(owner.to_owned()), name.to_owned()),
        None => (channel.to_owned(), None, name.to_owned()),
    }
}

fn store_name(broker: &Broker, word: &str) -> (StoreKind, String) {
    match word.strip_prefix("queue:") {
        Some(name) => (StoreKind::Queue, name.to_owned()),
        None if broker.engine.channels.contains_key(word) => (StoreKind::Channel, word.to_owned()),
        None => (StoreKind::Queue, word.to_owned()),
    }
}

fn expect_view(broker: &mut Broker, rest: &[&str], at: &str) -> Done {
    let word = rest[0];
    let request = if word.contains("->") {
        Request::ShowJoin { name: word.to_owned() }
    } else if word.contains("::") {
        let (channel, owner, name) = object_name(word);
        Request::ShowObject { channel, owner, name }
    } else if word == "broker" {
        Request::Status
    } else {
        let (kind, name) = store_name(broker, word);
        Request::ShowStore { kind, name }
    };
    let view = serde_json::to_value(broker.ask(request)?).unwrap();
    for (field, wanted) in options(&rest[1..]) {
        let nested = [&view, &view["counters"], &view["settings"]];
        let held = nested.into_iter().find_map(|part| part.get(&field));
        assert_eq!(held, Some(&wanted), "{at}\n{field} in {view:#}");
    }
    Ok(())
}

fn selection(rest: &[&str]) -> Selection {
    let range = rest.iter().find_map(|word| word.split_once(".."));
    Selection {
        from: range.and_then(|(from, _)| from.parse().ok()),
        to: range.and_then(|(_, to)| to.parse().ok()),
        filter: option(rest, "filter").map(str::to_owned),
    }
}

fn purge(broker: &mut Broker, rest: &[&str]) -> Done {
    let selection = selection(&rest[1..]);
    let request = if rest[0].contains("::") {
        let (channel, owner, name) = object_name(rest[0]);
        Request::PurgeObject { channel, owner, name, selection }
    } else {
        let (kind, name) = store_name(broker, rest[0]);
        Request::PurgeStore { kind, name, selection }
    };
    broker.ask(request).map(drop)
}

fn delete(broker: &mut Broker, rest: &[&str]) -> Done {
    let (cascade, force) = (rest.contains(&"cascade"), rest.contains(&"force"));
    let request = if rest[0].contains("->") {
        Request::DeleteJoin { name: rest[0].to_owned(), drain: rest.contains(&"drain") }
    } else if rest[0].contains("::") {
        let (channel, owner, name) = object_name(rest[0]);
        Request::DeleteObject { channel, owner, name, force }
    } else {
        let (kind, name) = store_name(broker, rest[0]);
        Request::DeleteStore { kind, name, cascade, force }
    };
    let answer = broker.ask(request)?;
    if let (Some(wanted), Response::JoinDeleted { not_forwarded, .. }) = (option(rest, "left"), answer) {
        assert_eq!(wanted, not_forwarded.to_string(), "events not forwarded");
    }
    Ok(())
}

fn change_join(broker: &mut Broker, verb: &str, rest: &[&str]) -> Done {
    let name = rest[0].to_owned();
    if verb != "alter" {
        return broker.ask(Request::EnableJoin { name, enabled: verb == "resume" }).map(drop);
    }
    let shown = broker.ask(Request::ShowJoin { name: name.clone() })?;
    let Response::Join(view) = shown else { panic!("no join") };
    let Json::Object(mut settings) = serde_json::to_value(view.settings).unwrap() else {
        panic!("no object")
    };
    settings.extend(options(&rest[1..]));
    broker.ask(Request::AlterJoin { name, settings: from(settings) }).map(drop)
}

/// `key=value` words; values are JSON or text.
fn options(words: &[&str]) -> Map<String, Json> {
    let pairs = words.iter().filter_map(|word| word.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), json(value))).collect()
}

fn json(value: &str) -> Json {
    serde_json::from_str(value).unwrap_or_else(|_| value.into())
}

fn option<'a>(words: &[&'a str], key: &str) -> Option<&'a str> {
    let value = words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))?;
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

fn from<T: DeserializeOwned>(settings: Map<String, Json>) -> T {
    serde_json::from_value(Json::Object(settings)).unwrap()
}

/// The words of a line; blanks between double quotes or within brackets do not separate.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted, mut depth) = (vec![String::new()], false, 0);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        if c == ' ' && !quoted && depth == 0 {
            words.push(String::new());
        } else if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Asks for a durable subscription without a source (AM-7), or deletes it; what came back.
pub(crate) fn subscription(broker: &mut Broker, client: &str, name: &str, delete: bool) -> String {
    let (conn, link, name) = (ConnId(broker.conn(client)), LinkNo(9_999), name.to_owned());
    broker.send(if delete {
        Command::DeleteSubscription { conn, link, name }
    } else {
        Command::FindSubscription { conn, link, name }
    });
    format!("{:?}", broker.subscriptions.pop())
}

#[test]
fn words_and_texts() {
    assert_eq!(words(r#"join a->b filter="x = 1" {a b}"#), ["join", "a->b", r#"filter="x = 1""#, "{a b}"]);
    assert_eq!(expanded(&["1..3", "x{a=1}"]), "1 2 3 x");
    assert_eq!(body_text(&Draft::new("hello").incoming().message), "hello");
}
