//! Changes of definitions that come at the same time.

use super::*;
use postroad_engine::admin::Request as Asked;
use std::time::Duration;

fn request(line: &str, body: &Value) -> Request<Body> {
    let (method, path) = line.split_once(' ').unwrap();
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    Request::builder().method(method).uri(format!("/api/v1{path}")).body(body).unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

impl Api {
    /// Sends two requests at the same time, the second to another listener's routes, and gives their statuses.
    fn both(&mut self, first: Request<Body>, second: Request<Body>) -> (u16, u16) {
        let other = router(self.handle.clone(), ServerInfo::new("A".into()));
        let first = self.router.clone().oneshot(first);
        let second = other.oneshot(second);
        block_on(async {
            let answered = async { tokio::join!(first, second) };
            tokio::pin!(answered);
            loop {
                tokio::select! {
                    (first, second) = &mut answered => {
                        return (first.unwrap().status().as_u16(), second.unwrap().status().as_u16());
                    }
                    Some(call) = self.calls.recv() => self.backend.answer(call),
                }
            }
        })
    }

    fn with_join() -> Self {
        let mut api = Self::new();
        api.must("PUT /channels/a", json!({}));
        api.must("PUT /queues/q", json!({}));
        api.must("PUT /joins/j", json!({ "source": "a", "destination": "q" }));
        api
    }

    /// With a paused join for which three events wait.
    fn with_backlog() -> Self {
        let mut api = Self::with_join();
        api.must("POST /joins/j/pause", Value::Null);
        api.backend.publish("channel://a", &["1", "2", "3"]);
        api
    }

    /// Answers until the join was told whether to run, and this was answered too. Other work is done only meanwhile.
    async fn answer_until(&mut self, wanted: bool) {
        let answering = async {
            loop {
                let call = self.calls.recv().await.unwrap();
                let told = match *call.0 {
                    Asked::EnableJoin { enabled, .. } => Some(enabled),
                    _ => None,
                };
                self.backend.idle = told.is_some();
                self.backend.answer(call);
                if told == Some(wanted) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(5), answering).await.unwrap();
        self.backend.idle = false;
    }
}

#[test]
fn a_change_of_one_setting_does_not_undo_what_was_changed_meanwhile() {
    let mut api = Api::with_join();
    let change = request("PATCH /joins/j", &json!({ "filter": "word = 'x'" }));
    assert_eq!(api.both(change, request("POST /joins/j/pause", &Value::Null)), (200, 200));
    let join = api.must("GET /joins/j", Value::Null);
    assert_eq!((&join["state"], &join["filter"]), (&json!("paused"), &json!("word = 'x'")));
    let (ttl, capacity) = (json!({ "ttl": 5000 }), json!({ "capacity": 10 }));
    let changes = (request("PATCH /queues/q", &ttl), request("PATCH /queues/q", &capacity));
    assert_eq!(api.both(changes.0, changes.1), (200, 200));
    let queue = api.must("GET /queues/q", Value::Null);
    assert_eq!((&queue["ttl"], &queue["capacity"]), (&json!(5000), &json!(10)));
}

#[test]
fn a_change_of_one_setting_does_not_bring_back_what_was_deleted_meanwhile() {
    let mut api = Api::new();
    api.must("PUT /queues/q", json!({}));
    let change = request("PATCH /queues/q", &json!({ "ttl": 5000 }));
    assert_eq!(api.both(change, request("DELETE /queues/q", &Value::Null)), (200, 200));
    assert_eq!(api.refused("GET /queues/q", Value::Null), refusal(404, "UNKNOWN_QUEUE"));
}

#[test]
fn a_change_that_is_not_answered_yet_holds_up_no_other() {
    let mut api = Api::with_join();
    let first = api.router.clone().oneshot(request("POST /joins/j/pause", &Value::Null));
    let second = api.router.clone().oneshot(request("POST /joins/j/resume", &Value::Null));
    block_on(async {
        let asked = async { (api.calls.recv().await.unwrap(), api.calls.recv().await.unwrap()) };
        tokio::select! {
            _ = async { tokio::join!(first, second) } => panic!("nothing was answered"),
            _ = asked => {}
        }
    });
}

#[test]
fn a_drain_goes_on_until_what_waited_is_forwarded() {
    let mut api = Api::with_backlog();
    let drain = api.router.clone().oneshot(request("POST /joins/j/drain", &Value::Null));
    block_on(async {
        let answered = tokio::spawn(drain);
        api.answer_until(false).await;
        assert_eq!(answered.await.unwrap().unwrap().status(), 200);
    });
    let join = api.must("GET /joins/j", Value::Null);
    assert_eq!((&join["state"], &join["lag_events"]), (&json!("paused"), &json!(0)));
}

#[test]
fn a_drain_that_nobody_waits_for_pauses_the_join_again() {
    let mut api = Api::with_backlog();
    let drain = api.router.clone().oneshot(request("POST /joins/j/drain", &Value::Null));
    block_on(async {
        let asking = tokio::spawn(drain);
        api.answer_until(true).await;
        asking.abort();
        api.answer_until(false).await;
    });
    assert_eq!(api.must("GET /joins/j", Value::Null)["state"], "paused");
}

#[test]
fn a_join_that_is_resumed_while_it_is_drained_stays_resumed() {
    let mut api = Api::with_backlog();
    let drain = api.router.clone().oneshot(request("POST /joins/j/drain", &Value::Null));
    let resume = api.router.clone().oneshot(request("POST /joins/j/resume", &Value::Null));
    block_on(async {
        let draining = tokio::spawn(drain);
        api.answer_until(true).await;
        let resumed = tokio::spawn(resume);
        api.answer_until(true).await;
        assert_eq!(resumed.await.unwrap().unwrap().status(), 200);
        tokio::select! {
            answered = draining => assert_eq!(answered.unwrap().unwrap().status(), 200),
            () = api.answer_until(false) => panic!("it was paused"),
        }
    });
    assert_eq!(api.must("GET /joins/j", Value::Null)["state"], "running");
}

#[test]
fn a_drain_ends_when_the_destination_is_full() {
    let mut api = Api::with_backlog();
    api.must("PATCH /queues/q", json!({ "capacity": 1 }));
    let drained = api.must("POST /joins/j/drain", Value::Null);
    assert_eq!((&drained["state"], &drained["lag_events"]), (&json!("paused"), &json!(2)));
}
