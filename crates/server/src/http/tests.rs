//! The routes over a real engine in memory, one `Api` helper between the tests and axum.

use super::handle::AdminCall;
use super::{AdminHandle, ServerInfo, router};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use postroad_engine::{
    Client, Command, ConnId, Effect, Engine, LinkNo, Now, Output, ProducerKey, ProducerTarget,
};
use postroad_model::address::Address;
use postroad_model::annotations::Delay;
use postroad_model::message::Incoming;
use postroad_model::settings::{BrokerSettings, Defaults};
use serde_json::{Value, json};
use std::borrow::Borrow;
use std::sync::Arc;
use tokio::sync::mpsc;
use tower::ServiceExt;

mod changes;
mod hosts;

/// The engine behind the handle: every call is answered at once, as if its records were durable.
struct Backend {
    engine: Engine,
    now: u64,
    output: Output,
    /// Waiting work is not done for now.
    idle: bool,
}

impl Backend {
    fn new() -> Self {
        let settings = BrokerSettings { name: String::from("A"), ..BrokerSettings::default() };
        let mut engine = Engine::new(settings, [7; 16]);
        engine.recovered(false);
        Self { engine, now: 1_000, output: Output::default(), idle: false }
    }

    fn perform(&mut self, command: Command) -> Vec<Effect> {
        self.now += 1;
        let now = Now { wall: self.now, mono: self.now };
        self.engine.handle(now, command);
        while !self.idle && self.engine.run(now, 100) {}
        let mut effects = Vec::new();
        self.engine.take_output(&mut self.output);
        effects.extend(self.output.effects.drain(..).map(|(_, effect)| effect));
        self.output.steps.clear();
        effects
    }

    fn answer(&mut self, (request, answer): AdminCall) {
        let effects = self.perform(Command::Admin { reply: 1, request });
        for effect in effects {
            if let Effect::AdminReply { result, .. } = effect {
                answer.send(*result).unwrap();
                return;
            }
        }
    }

    fn producer(&mut self, address: &str) -> ProducerKey {
        let conn = ConnId(1);
        let client = Client { id: "c".into(), user: "u".into(), address: "test".into(), sole: false };
        self.perform(Command::Connect { conn, client });
        let target = ProducerTarget::Address(Address::parse(address, None).unwrap());
        let effects = self.perform(Command::OpenProducer { conn, link: LinkNo(0), target });
        let opened = effects.iter().find_map(|effect| match effect {
            Effect::ProducerOpened { producer, .. } => Some(*producer),
            _ => None,
        });
        opened.unwrap()
    }

    fn publish(&mut self, address: &str, bodies: &[&str]) {
        self.publish_delayed(address, bodies, None);
    }

    fn publish_delayed(&mut self, address: &str, bodies: &[&str], delay: Option<Delay>) {
        let producer = self.producer(address);
        for (tag, body) in bodies.iter().enumerate() {
            let message = Box::new(Incoming { delay, ..Incoming::parse(&encoded(body)).unwrap() });
            self.perform(Command::Publish { producer, tag: tag as u64, message, settled: false });
        }
    }
}

/// An AMQP message whose application property `word` and text body are the same.
fn encoded(text: &str) -> Vec<u8> {
    let length = u32::try_from(text.len()).unwrap();
    let string = [&[0xb1][..], &length.to_be_bytes(), text.as_bytes()].concat();
    let mut bytes = vec![0x00, 0x53, 0x74, 0xd1];
    bytes.extend((length + 15).to_be_bytes());
    bytes.extend([0, 0, 0, 2, 0xa1, 4]);
    bytes.extend(b"word");
    bytes.extend(&string);
    bytes.extend([0x00, 0x53, 0x77]);
    bytes.extend(&string);
    bytes
}

struct Api {
    router: Router,
    handle: AdminHandle,
    calls: mpsc::Receiver<AdminCall>,
    backend: Backend,
}

impl Api {
    fn new() -> Self {
        Self::with(|info| info)
    }

    fn with(change: impl Fn(ServerInfo) -> ServerInfo) -> Self {
        let (sender, calls) = mpsc::channel(8);
        let info = change(ServerInfo::new("A".into()));
        let handle = AdminHandle::new(sender);
        Self { router: router(handle.clone(), info), handle, calls, backend: Backend::new() }
    }

    /// Sends one request and answers what it asks of the engine.
    fn send(&mut self, request: Request<Body>) -> (StatusCode, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let answered = self.router.clone().oneshot(request);
        runtime.block_on(async {
            tokio::pin!(answered);
            let response = loop {
                tokio::select! {
                    response = &mut answered => break response.unwrap(),
                    Some(call) = self.calls.recv() => self.backend.answer(call),
                }
            };
            let status = response.status();
            let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, String::from_utf8(bytes.to_vec()).unwrap())
        })
    }

    fn call(&mut self, line: &str, body: &Value) -> (u16, Value) {
        let (method, path) = line.split_once(' ').unwrap();
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        let path = format!("/api/v1{path}");
        let request = Request::builder().method(method).uri(path).body(body).unwrap();
        let (status, text) = self.send(request);
        (status.as_u16(), serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}")))
    }

    /// A call that must succeed.
    fn must(&mut self, line: &str, body: impl Borrow<Value>) -> Value {
        let (status, answer) = self.call(line, body.borrow());
        assert!(status < 300, "{line}: {status} {answer}");
        answer
    }

    /// A call that must be refused: status and code.
    fn refused(&mut self, line: &str, body: impl Borrow<Value>) -> (u16, String) {
        let (status, answer) = self.call(line, body.borrow());
        assert!(
            status >= 400 && answer["message"].is_string() && answer["object"].is_string(),
            "{line}: {answer}"
        );
        (status, answer["code"].as_str().unwrap().to_owned())
    }

    fn page(&mut self, path: &str) -> String {
        let (status, text) = self.send(Request::get(path).body(Body::empty()).unwrap());
        assert_eq!(status, 200, "{text}");
        text
    }
}

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn a_store_is_made_shown_altered_and_deleted() {
    let mut api = Api::new();
    assert_eq!(api.call("PUT /channels/c", &json!({ "ttl": 5000, "retention": "interest" })).0, 201);
    assert_eq!(api.call("PUT /channels/c", &json!({ "ttl": 5000, "retention": "interest" })).0, 200);
    let altered = api.must("PATCH /channels/c", json!({ "capacity": 10, "dedupe": { "late": "accept" } }));
    assert_eq!((&altered["ttl"], &altered["capacity"]), (&json!(5000), &json!(10)));
    assert_eq!(altered["dedupe"], json!({ "min_ids": 16_777_216, "min_age": 604_800_000, "late": "accept" }));
    let back = api.must("PATCH /channels/c", json!({ "ttl": null, "capacity": null }));
    assert_eq!(
        (&back["ttl"], &back["capacity"], &back["retention"]),
        (&json!(0), &json!(0), &json!("interest"))
    );
    let shown = api.must("GET /channels/c", Value::Null);
    assert_eq!(
        (&shown["name"], &shown["kind"], &shown["depth"]),
        (&json!("c"), &json!("channel"), &json!(0))
    );
    assert_eq!(shown["made_by"], "operator");
    assert_eq!(api.must("DELETE /channels/c", Value::Null), json!({ "name": "c" }));
    assert_eq!(api.refused("GET /channels/c", Value::Null), refusal(404, "CHANNEL_NOT_FOUND"));
}

#[test]
fn names_with_slashes_are_percent_encoded() {
    let mut api = Api::new();
    assert_eq!(api.must("PUT /channels/eur%2Frates", json!({}))["name"], "eur/rates");
    api.must("PUT /queues/a%25b%2Fc", json!({}));
    api.must("POST /joins", json!({ "source": "eur/rates", "destination": "a%b/c" }));
    assert_eq!(api.must("GET /joins/eur%2Frates-%3Ea%25b%2Fc", Value::Null)["source"], "eur/rates");
    assert_eq!(api.must("GET /queues/a%25b%2Fc", Value::Null)["name"], "a%b/c");
    assert_eq!(api.refused("GET /queues/%FF", Value::Null), refusal(400, "BAD_VALUE"));
    assert_eq!(api.refused("GET /channels/eur/rates", Value::Null), refusal(404, "NO_SUCH_PATH"));
}

#[test]
fn lists_come_in_pages() {
    let mut api = Api::new();
    for name in ["a", "b", "c", "d", "e"] {
        api.must(&format!("PUT /queues/{name}"), json!({}));
    }
    let first = api.must("GET /queues?limit=2", Value::Null);
    assert_eq!((names(&first), &first["next"]), (vec!["a", "b"], &json!("b")));
    let rest = api.must("GET /queues?after=b&limit=3", Value::Null);
    assert_eq!((names(&rest), &rest["next"]), (vec!["c", "d", "e"], &Value::Null));
    assert_eq!(api.refused("GET /queues?limit=0", Value::Null), refusal(400, "BAD_VALUE"));
}

#[test]
fn a_wrong_member_is_named_with_the_nearest_right_one() {
    let mut api = Api::new();
    let (_, answer) = api.call("PUT /queues/q", &json!({ "redelivery_dely": 5 }));
    assert_eq!(answer["detail"], json!({ "field": "redelivery_dely", "nearest": "redelivery_delay" }));
    assert_eq!(answer["message"], "'q' has no setting 'redelivery_dely': did you mean 'redelivery_delay'?");
    for (body, field) in [
        (json!({ "capacity": -1 }), "capacity"),
        (json!({ "ttl": "soon" }), "ttl"),
        (json!({ "colour": "red" }), "colour"),
        (json!({ "dedupe": { "late": "never" } }), "dedupe"),
        (json!({ "name": "other" }), "name"),
    ] {
        let (status, answer) = api.call("PUT /queues/q", &body);
        assert_eq!(
            (status, &answer["code"], &answer["detail"]["field"]),
            (400, &json!("BAD_VALUE"), &json!(field))
        );
    }
    assert_eq!(api.refused("GET /queues/q", Value::Null), refusal(404, "UNKNOWN_QUEUE"));
    let broken = Request::put("/api/v1/queues/q").body(Body::from("{\"ttl\": ")).unwrap();
    let (status, text) = api.send(broken);
    assert!(status == 400 && text.contains("BAD_VALUE"), "{text}");
    let huge = Request::put("/api/v1/queues/q").body(Body::from(vec![b' '; 2 << 20])).unwrap();
    assert_eq!(api.send(huge).0, 413);
}

#[test]
fn words_may_be_written_with_either_separator() {
    let mut api = Api::new();
    let made = api.must("PUT /channels/c", json!({ "publisher_dedupe": "message_id" }));
    assert_eq!(made["publisher_dedupe"], "message-id");
}

#[test]
fn attributes_that_make_no_sense_have_their_own_codes() {
    let mut api = Api::new();
    for (body, code) in [
        (json!({ "publish_keys": [{ "name": "", "depth": 1 }] }), "BAD_PUBLISH_KEY"),
        (json!({ "publish_keys": [{ "name": "k", "depth": 0 }] }), "BAD_PUBLISH_KEY"),
        (json!({ "dead_event_store": "c" }), "DES_SELF"),
        (json!({ "capacity": 2_147_483_647_u32 }), "BAD_CAPACITY"),
    ] {
        assert_eq!(api.refused("PUT /channels/c", body), refusal(400, code));
    }
    assert_eq!(api.refused("PUT /channels/a%2Bb", json!({})), refusal(400, "BAD_NAME"));
}

#[test]
fn a_definition_starts_from_the_defaults_of_the_configuration() {
    let mut defaults = Defaults::default();
    (defaults.queue.capacity, defaults.channel.capacity) = (7, 8);
    defaults.named_object.persistent = false;
    let mut api = Api::with(|info| ServerInfo { defaults: Arc::new(defaults.clone()), ..info });
    assert_eq!(api.must("PUT /queues/q", Value::Null)["capacity"], 7);
    assert_eq!(api.must("PUT /channels/c", json!({ "ttl": 5 }))["capacity"], 8);
    assert_eq!(api.must("PUT /channels/c/named-objects/o", Value::Null)["persistent"], false);
}

#[test]
fn events_are_browsed_and_purged_by_range_and_filter() {
    let mut api = Api::new();
    api.must("PUT /queues/q", json!({}));
    api.backend.publish("q", &["one", "two", "three", "four"]);
    let all = api.must("GET /queues/q/browse", Value::Null);
    assert_eq!(all["items"].as_array().unwrap().len(), 4);
    assert_eq!(all["items"][1]["body"], "two");
    assert_eq!(all["items"][1]["properties"], json!({ "word": "two" }));
    let some =
        api.must("GET /queues/q/browse?from=2&to=4&max=1&filter=word%20%3C%3E%20%27two%27", Value::Null);
    assert_eq!((some["items"].as_array().unwrap().len(), &some["items"][0]["id"]), (1, &json!(3)));
    assert_eq!(api.must("POST /queues/q/browse", json!({ "from": 4 }))["items"][0]["body"], "four");
    assert_eq!(api.must("POST /queues/q/purge", json!({ "from": 2, "to": 3 })), json!({ "purged": 2 }));
    assert_eq!(
        api.must("POST /queues/q/purge", json!({ "filter": "word = 'four'" })),
        json!({ "purged": 1 })
    );
    assert_eq!(api.must("POST /queues/q/purge", Value::Null), json!({ "purged": 1 }));
    assert_eq!(
        api.refused("POST /queues/q/purge", json!({ "filter": "word =" })),
        refusal(400, "FILTER_SYNTAX")
    );
    assert_eq!(api.refused("POST /queues/q/purge", json!({ "until": 3 })), refusal(400, "BAD_VALUE"));
    // As a script sends it whose variable is not set.
    assert_eq!(api.refused("POST /queues/q/purge", json!({ "filter": " " })), refusal(400, "BAD_VALUE"));
}

#[test]
fn a_browse_gives_pages() {
    let mut api = Api::new();
    api.must("PUT /queues/q", json!({}));
    api.backend.publish("q", &["one", "two", "three"]);
    let first = api.must("GET /queues/q/browse?max=2", Value::Null);
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    let next = first["next"].as_str().unwrap();
    let second = api.must(&format!("GET /queues/q/browse?max=2&after={next}"), Value::Null);
    assert_eq!((&second["items"][0]["body"], second.get("next")), (&json!("three"), None));
    assert_eq!(api.refused("GET /queues/q/browse?after=x", Value::Null), refusal(400, "BAD_VALUE"));
    assert_eq!(api.must("GET /queues/q", Value::Null)["jobs"], json!([]));
    assert_eq!(api.must("GET /status", Value::Null)["jobs"], json!([]));
}

#[test]
fn an_answer_ends_where_its_events_become_large() {
    let mut api = Api::new();
    api.must("PUT /queues/q", json!({}));
    let text = "x".repeat(5_000);
    api.backend.publish("q", &vec![text.as_str(); 1_000]);
    api.backend.publish_delayed("q", &vec![text.as_str(); 1_000], Some(Delay::For(50_000)));
    for list in ["browse", "scheduled"] {
        let first = api.must(&format!("GET /queues/q/{list}"), Value::Null);
        let shown = first["items"].as_array().unwrap();
        assert!((900..1_000).contains(&shown.len()), "{list}: {}", shown.len());
        let item = &shown[0];
        let body = item["body"].as_str().unwrap();
        assert_eq!(
            (body.len(), &item["properties"]["word"], &item["cut"]),
            (4_096, &json!(body), &json!(true))
        );
        let rest = 1_000 - shown.len();
        let next = first["next"].as_str().unwrap();
        let second = api.must(&format!("GET /queues/q/{list}?after={next}"), Value::Null);
        assert_eq!((second["items"].as_array().unwrap().len(), second.get("next")), (rest, None), "{list}");
    }
}

#[test]
fn what_waits_for_its_time_is_listed_and_cancelled() {
    let mut api = Api::new();
    api.must("PUT /queues/q", json!({}));
    api.backend.publish_delayed("q", &["late"], Some(Delay::Until(90_000)));
    api.backend.publish_delayed("q", &["soon", "later"], Some(Delay::For(50_000)));
    let first = api.must("GET /queues/q/scheduled?max=2", Value::Null);
    let bodies: Vec<&Value> = first["items"].as_array().unwrap().iter().map(|item| &item["body"]).collect();
    assert_eq!(bodies, ["soon", "later"]);
    let item = &first["items"][0];
    assert_eq!((&item["number"], &item["properties"]), (&json!(2), &json!({ "word": "soon" })));
    assert!(item["due"].as_u64() > Some(51_000) && item["taken"].as_u64() > Some(1_000));
    let next = first["next"].as_str().unwrap();
    let second = api.must(&format!("GET /queues/q/scheduled?after={next}"), Value::Null);
    assert_eq!((&second["items"][0]["body"], second.get("next")), (&json!("late"), None));
    assert_eq!(api.must("DELETE /queues/q/scheduled/2", Value::Null), json!({ "number": 2 }));
    let refused = |api: &mut Api, line: &str| api.refused(line, Value::Null);
    assert_eq!(refused(&mut api, "DELETE /queues/q/scheduled/2"), refusal(404, "SCHEDULED_NOT_FOUND"));
    assert_eq!(refused(&mut api, "DELETE /queues/q/scheduled/x"), refusal(400, "BAD_VALUE"));
    assert_eq!(refused(&mut api, "DELETE /channels/q/scheduled/1"), refusal(404, "CHANNEL_NOT_FOUND"));
    assert_eq!(refused(&mut api, "GET /queues/q/scheduled?after=x"), refusal(400, "BAD_VALUE"));
    let shown = api.must("GET /queues/q", Value::Null);
    assert_eq!((&shown["scheduled"], &shown["depth"]), (&json!(2), &json!(0)));
    let line = "postroad_store_scheduled{kind=\"queue\",name=\"q\"} 2";
    assert!(api.page("/metrics").lines().any(|found| found == line));
    assert_eq!(api.must("POST /queues/q/purge", Value::Null), json!({ "purged": 2 }));
}

#[test]
fn the_oldest_event_and_the_setting_of_that_name_are_both_shown() {
    let mut api = Api::new();
    api.must("PUT /channels/c", json!({ "first_event_id": 100 }));
    api.backend.publish("channel://c", &["x", "y"]);
    api.must("POST /channels/c/purge", json!({ "to": 100 }));
    let shown = api.must("GET /channels/c", Value::Null);
    assert_eq!((&shown["first_event_id"], &shown["configured_first_event_id"]), (&json!(101), &json!(100)));
    assert_eq!((&shown["last_event_id"], &shown["stored_total"]), (&json!(101), &json!(2)));
    assert!(shown.get("settings").is_none() && shown.get("counters").is_none());
}

#[test]
fn joins_are_made_under_their_own_name_and_altered() {
    let mut api = Api::new();
    api.must("PUT /channels/a", json!({}));
    api.must("PUT /queues/q", json!({}));
    let join = json!({ "source": "a", "destination": "q", "filter": "word = 'x'", "max_hops": 3 });
    assert_eq!(api.call("POST /joins", &join).0, 201);
    assert_eq!(api.call("POST /joins", &join).0, 200);
    let shown = api.must("GET /joins/a-%3Eq", Value::Null);
    assert_eq!(
        (&shown["name"], &shown["state"], &shown["max_hops"]),
        (&json!("a->q"), &json!("running"), &json!(3))
    );
    assert_eq!(api.must("PATCH /joins/a-%3Eq", json!({ "filter": null, "max_hops": 0 }))["max_hops"], 0);
    assert_eq!(api.must("PUT /joins/a-%3Eq", join.clone())["max_hops"], 3);
    assert_eq!(
        api.call("PUT /joins/mine", &json!({ "source": "a", "destination": "q", "archive": true })).0,
        201
    );
    assert_eq!(names(&api.must("GET /joins?store=q", Value::Null)), ["a->q", "mine"]);
    assert_eq!(names(&api.must("GET /joins?limit=1", Value::Null)), ["a->q"]);
    assert_eq!(api.refused("DELETE /channels/a", Value::Null), refusal(409, "STORE_IN_USE"));
    api.must("DELETE /channels/a?cascade=true", Value::Null);
    assert_eq!(api.must("GET /joins", Value::Null), json!({ "items": [] }));
}

#[test]
fn a_paused_join_keeps_its_backlog_until_it_is_drained_or_deleted() {
    let mut api = Api::new();
    api.must("PUT /channels/a", json!({}));
    api.must("PUT /queues/q", json!({}));
    api.must("PUT /joins/j", json!({ "source": "a", "destination": "q" }));
    assert_eq!(api.must("POST /joins/j/pause", Value::Null)["state"], "paused");
    api.backend.publish("channel://a", &["1", "2"]);
    assert_eq!(api.must("GET /joins/j", Value::Null)["lag_events"], 2);
    let drained = api.must("POST /joins/j/drain", Value::Null);
    assert_eq!((&drained["lag_events"], &drained["enabled"]), (&json!(0), &json!(false)));
    assert_eq!(api.must("GET /queues/q", Value::Null)["depth"], 2);
    api.backend.publish("channel://a", &["3"]);
    assert_eq!(api.must("DELETE /joins/j", Value::Null), json!({ "name": "j", "not_forwarded": 1 }));
    assert_eq!(api.refused("POST /joins/j/resume", Value::Null), refusal(404, "JOIN_NOT_FOUND"));
}

#[test]
fn joins_that_make_no_sense_have_the_codes_of_section_7() {
    let mut api = Api::new();
    for name in ["channels/a", "channels/b", "queues/q"] {
        api.must(&format!("PUT /{name}"), json!({}));
    }
    for (body, status, code) in [
        (json!({ "source": "q", "destination": "a" }), 422, "JOIN_SOURCE_IS_QUEUE"),
        (json!({ "source": "a", "destination": "a" }), 422, "JOIN_SELF"),
        (json!({ "source": "none", "destination": "a" }), 404, "JOIN_SOURCE_NOT_FOUND"),
        (json!({ "source": "a", "destination": "none" }), 404, "JOIN_DEST_NOT_FOUND"),
        (json!({ "source": "a" }), 400, "JOIN_NO_DESTINATION"),
        (json!({ "source": "a", "destination": "" }), 400, "JOIN_NO_DESTINATION"),
        (json!({ "source": "a", "destination": "b", "max_hops": 256 }), 400, "JOIN_BAD_HOPS"),
        (json!({ "source": "a", "destination": "b", "max_hops": -1 }), 400, "JOIN_BAD_HOPS"),
        (json!({ "source": "a", "destination": "b", "max_hops": "many" }), 400, "JOIN_BAD_HOPS"),
        (json!({ "source": "a", "destination": "b@elsewhere" }), 409, "LINK_MISSING"),
        (json!({ "source": "a", "destination": "b", "archive": true }), 422, "ARCHIVE_NEEDS_QUEUE"),
        (json!({ "source": "a", "destination": "b", "filter": "x =" }), 400, "FILTER_SYNTAX"),
    ] {
        assert_eq!(api.refused("POST /joins", body), refusal(status, code));
    }
    assert_eq!(api.must("GET /joins", Value::Null), json!({ "items": [] }));
    for id in ["JOIN-2", "JOIN-3", "JOIN-8"] {
        postroad_testkit::proves(id);
    }
}

#[test]
fn named_objects_are_made_shown_and_deleted() {
    let mut api = Api::new();
    api.must("PUT /channels/c%2Fd", json!({}));
    let objects = "/channels/c%2Fd/named-objects";
    api.backend.publish("channel://c/d", &["1", "2"]);
    let wanted = json!({ "name": "x y", "start_event_id": 0, "selector": "word = '2'" });
    assert_eq!(api.call(&format!("POST {objects}"), &wanted).0, 201);
    let shown = api.must(&format!("GET {objects}/x%20y"), Value::Null);
    assert_eq!((&shown["type"], &shown["selector"]), (&json!("exclusive"), &json!("word = '2'")));
    assert_eq!((&shown["backlog"], &shown["outstanding_events"]), (&json!(1), &json!(-1)));
    assert_eq!((&shown["consumers"], &shown["attached_consumers"]), (&json!(0), &json!([])));
    let events = api.must(&format!("GET {objects}/x%20y/events"), Value::Null);
    assert_eq!(events["items"][0]["body"], "2");
    let again = json!({ "start_event_id": 1, "selector": "word = '2'" });
    assert_eq!(api.call(&format!("PUT {objects}/x%20y"), &again).0, 200);
    assert_eq!(api.refused(&format!("PUT {objects}/x%20y"), json!({})), refusal(409, "OBJECT_EXISTS"));
    assert_eq!(api.must(&format!("POST {objects}/x%20y/purge"), json!({ "to": 2 })), json!({ "purged": 1 }));
    assert_eq!(names(&api.must(&format!("GET {objects}"), Value::Null)), ["x y"]);
    api.must(&format!("DELETE {objects}/x%20y?force=true"), Value::Null);
    assert_eq!(api.refused(&format!("GET {objects}/x%20y"), Value::Null), refusal(404, "OBJECT_NOT_FOUND"));
    assert_eq!(api.refused(&format!("POST {objects}"), json!({})), refusal(400, "BAD_VALUE"));
    let unknown = json!({ "selektor": "x" });
    assert_eq!(api.refused(&format!("PUT {objects}/z"), unknown), refusal(400, "BAD_VALUE"));
}

#[test]
fn subscriptions_are_found_by_their_owner() {
    let mut api = Api::new();
    api.must("PUT /channels/c", json!({}));
    api.must("PUT /channels/c/named-objects/native", json!({}));
    let (conn, link) = (ConnId(9), LinkNo(0));
    let client = Client { id: "cid/1".into(), user: "u".into(), address: "test".into(), sole: false };
    api.backend.perform(Command::Connect { conn, client });
    let spec = Box::new(postroad_engine::ConsumerSpec {
        durable: Some("S".into()),
        ..postroad_engine::ConsumerSpec::new(postroad_engine::ConsumerSource::Address(
            Address::parse("channel://c", None).unwrap(),
        ))
    });
    api.backend.perform(Command::OpenConsumer { conn, link, spec });
    assert_eq!(names(&api.must("GET /subscriptions", Value::Null)), ["S"]);
    let found = api.must("GET /subscriptions?owner=client:cid/1", Value::Null);
    assert_eq!(
        (&found["items"][0]["owner"], &found["items"][0]["channel"]),
        (&json!("client:cid/1"), &json!("c"))
    );
    assert_eq!(found["items"][0]["attached_consumers"][0]["client_id"], "cid/1");
    assert_eq!(api.must("GET /subscriptions?owner=client:other", Value::Null), json!({ "items": [] }));
    assert_eq!(names(&api.must("GET /named-objects?channel=c", Value::Null)), ["S", "native"]);
    assert_eq!(names(&api.must("GET /named-objects?owner=native", Value::Null)), ["native"]);
    let first = api.must("GET /named-objects?limit=1", Value::Null);
    let rest = format!("GET /named-objects?after={}", first["next"].as_str().unwrap().replace(' ', "%20"));
    assert_eq!(names(&api.must(&rest, Value::Null)), ["native"]);
    let path = "/subscriptions/c/client:cid%2F1/S";
    assert_eq!(api.refused(&format!("DELETE {path}"), Value::Null), refusal(409, "OBJECT_IN_USE"));
    api.must(&format!("DELETE {path}?force=true"), Value::Null);
    assert_eq!(api.refused(&format!("GET {path}"), Value::Null), refusal(404, "OBJECT_NOT_FOUND"));
    assert_eq!(api.refused("GET /subscriptions/c/cid/S", Value::Null), refusal(400, "BAD_VALUE"));
}

#[test]
fn what_would_be_ignored_is_an_error() {
    let mut api = Api::new();
    assert_eq!(api.refused("PUT /queues/q?dry_run=true", json!({})), refusal(400, "BAD_VALUE"));
    assert_eq!(api.refused("DELETE /queues/q?casade=true", Value::Null), refusal(400, "BAD_VALUE"));
    assert_eq!(api.refused("POST /queues", json!({})), refusal(405, "METHOD_NOT_ALLOWED"));
    assert_eq!(api.refused("GET /quues", Value::Null), refusal(404, "NO_SUCH_PATH"));
}

#[test]
fn status_health_and_metrics() {
    let mut api = Api::new();
    api.must("PUT /channels/c", json!({}));
    api.must("PUT /queues/q", json!({}));
    api.must("PUT /joins/j", json!({ "source": "c", "destination": "q" }));
    api.must("PUT /channels/c/named-objects/o", json!({}));
    api.backend.publish("channel://c", &["x"]);
    let status = api.must("GET /status", Value::Null);
    assert_eq!((&status["name"], &status["queues"], &status["events"]), (&json!("A"), &json!(1), &json!(2)));
    assert!(status["version"].is_string() && status["uptime_seconds"].is_u64());
    assert_eq!(api.page("/healthz"), "{\"status\":\"ok\"}");
    assert_eq!(api.page("/readyz"), "{\"status\":\"ready\"}");
    let metrics = api.page("/metrics");
    for line in [
        "# TYPE postroad_store_depth gauge",
        "postroad_store_depth{kind=\"channel\",name=\"c\"} 1",
        "postroad_store_stored_total{kind=\"queue\",name=\"q\"} 1",
        "postroad_join_forwarded_total{join=\"j\"} 1",
        "postroad_join_state{join=\"j\",postroad_join_state=\"running\"} 1",
        "postroad_object_backlog{channel=\"c\",owner=\"native\",name=\"o\"} 1",
        "postroad_queues 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"));
}

#[test]
fn without_an_engine_it_is_not_ready() {
    let mut api = Api::new();
    let (_, closed) = mpsc::channel(1);
    api.calls = closed;
    let (status, text) = api.send(Request::get("/readyz").body(Body::empty()).unwrap());
    assert!(status == 503 && text.contains("UNAVAILABLE"), "{text}");
    assert_eq!(api.send(Request::get("/healthz").body(Body::empty()).unwrap()).0, 200);
}

#[test]
fn logins_are_asked_for_where_users_are_defined() {
    let mut api = Api::with(|info| info.with_login(|name, password| (name, password) == ("jo", "pa:ss")));
    assert_eq!(api.refused("GET /status", Value::Null), refusal(401, "LOGIN_REQUIRED"));
    let mut with = |login: &str| {
        let request = Request::get("/api/v1/status").header("Authorization", login);
        api.send(request.body(Body::empty()).unwrap()).0
    };
    assert_eq!(with("Basic am86cGE6c3M="), 200);
    assert_eq!(with("basic am86cGE6c3M="), 200);
    assert_eq!(with("Basic am86d3Jvbmc="), 401);
    assert_eq!(with("Bearer am86cGE6c3M="), 401);
    assert_eq!(with("Basic ???"), 401);
    assert_eq!(api.send(Request::get("/healthz").body(Body::empty()).unwrap()).0, 200);
    assert_eq!(api.send(Request::get("/metrics").body(Body::empty()).unwrap()).0, 401);
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let mut api = Api::new();
    let mut put = |name: &str, value: &str| {
        let request = Request::put("/api/v1/queues/q").header("Host", "127.0.0.1:8161").header(name, value);
        api.send(request.body(Body::empty()).unwrap()).0.as_u16()
    };
    assert_eq!(put("Origin", "https://evil.example"), 403);
    assert_eq!(put("Origin", "null"), 403);
    assert_eq!(put("Sec-Fetch-Site", "cross-site"), 403);
    assert_eq!(put("Sec-Fetch-Site", "same-origin"), 201);
    assert_eq!(put("Origin", "http://127.0.0.1:8161"), 200);
}
