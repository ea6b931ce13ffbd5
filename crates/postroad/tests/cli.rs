//! The command line against a broker of its own: what operators type and what they read.

// A panic is how a test fails; the lint's exception does not reach helper functions.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_postroad");
const PATIENCE: Duration = Duration::from_secs(30);

/// A broker process with its own folder and ports.
struct Broker {
    folder: TempDir,
    process: Child,
    /// For operators' commands.
    url: String,
    /// For clients' commands.
    amqp: String,
}

impl Broker {
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (amqp, http) = (free_port(), free_port());
        let text = format!(
            "[broker]\nname = \"A\"\n\
             [[listener]]\nprotocol = \"amqp\"\naddress = \"127.0.0.1:{amqp}\"\n\
             [[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.1:{http}\"\n{config}"
        );
        let file = folder.path().join("broker.toml");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(BINARY);
        command.arg("serve").arg("--config").arg(&file).env("POSTROAD_LOG", "info");
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        std::thread::spawn(move || {
            log.lines().map_while(Result::ok).for_each(|line| eprintln!("broker: {line}"));
        });
        let (url, amqp) = (format!("http://127.0.0.1:{http}"), format!("amqp://127.0.0.1:{amqp}"));
        let mut broker = Self { folder, process, url, amqp };
        let deadline = Instant::now() + PATIENCE;
        while broker.run(&["status"]).status.code() == Some(3) {
            assert_eq!(broker.process.try_wait().unwrap(), None, "the broker ended");
            assert!(Instant::now() < deadline, "the broker does not answer");
            std::thread::yield_now();
        }
        broker
    }

    fn run(&self, arguments: &[&str]) -> Output {
        run(arguments, &[("POSTROAD_URL", &self.url)])
    }

    /// A command that must succeed; what it prints.
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = text(&output.stderr);
        assert_eq!((output.status.code(), errors.as_str()), (Some(0), ""), "{arguments:?}");
        text(&output.stdout)
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.says(&arguments)).unwrap()
    }

    /// A command that must fail with 1; what it says.
    fn refuses(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{arguments:?}");
        text(&output.stderr)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(BINARY);
    for name in ["POSTROAD_URL", "POSTROAD_USER", "POSTROAD_PASSWORD", "POSTROAD_CONFIG"] {
        command.env_remove(name);
    }
    command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[test]
fn channels_and_queues_are_defined_shown_altered_and_deleted() {
    let broker = Broker::start("");
    let create = [
        "channel",
        "create",
        "eur/rates",
        "--ttl",
        "1h",
        "--publish-key",
        "ISIN:5",
        "--retention",
        "interest",
    ];
    assert_eq!(broker.says(&create), "channel 'eur/rates' created\n");
    assert_eq!(broker.says(&create), "channel 'eur/rates' exists already\n");
    let other = broker.refuses(&["channel", "create", "eur/rates", "--ttl", "2h"]);
    assert!(
        other.starts_with("error: channel 'eur/rates' exists with another ttl [STORE_EXISTS]\n help: "),
        "{other}"
    );
    let shown = broker.json(&["channel", "show", "eur/rates"]);
    assert_eq!((&shown["ttl"], &shown["retention"]), (&3_600_000.into(), &"interest".into()));
    assert_eq!(shown["publish_keys"], serde_json::json!([{ "name": "ISIN", "depth": 5 }]));
    assert_eq!(
        broker.says(&["channel", "alter", "eur/rates", "--capacity", "7"]),
        "channel 'eur/rates' altered\n"
    );
    let set = ["channel", "alter", "eur/rates", "--unset", "ttl", "--set", "dedupe={\"late\":\"accept\"}"];
    let altered = broker.json(&set);
    assert_eq!((&altered["ttl"], &altered["capacity"]), (&0.into(), &7.into()));
    assert_eq!(altered["dedupe"]["late"], "accept");
    let refused = broker.refuses(&["channel", "alter", "eur/rates", "--set", "capcity=5"]);
    assert_eq!(
        refused,
        "error: 'eur/rates' has no setting 'capcity': did you mean 'capacity'? [BAD_VALUE]\n"
    );
    broker.says(&["queue", "create", "jobs", "--redelivery-delay", "5s", "--max-delivery-attempts", "-1"]);
    assert_eq!(broker.json(&["queue", "show", "jobs"])["redelivery_delay"], 5_000);
    let shown = broker.says(&["queue", "show", "jobs"]);
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["max_delivery_attempts", "-1"])), "{shown}");
    let table = broker.says(&["channel", "list"]);
    assert!(table.starts_with("CHANNEL    TYPE   RETENTION  EVENTS"), "{table}");
    assert!(table.contains("\neur/rates  mixed  interest   0 "), "{table}");
    assert_eq!(broker.says(&["queue", "purge", "jobs", "--all"]), "0 removed\n");
    assert_eq!(broker.says(&["queue", "browse", "jobs"]), "no events\n");
    assert_eq!(broker.says(&["channel", "delete", "eur/rates"]), "channel 'eur/rates' deleted\n");
    assert_eq!(names(&broker.json(&["channel", "list"])), [""; 0]);
    let gone = broker.refuses(&["channel", "show", "eur/rates"]);
    assert_eq!(gone, "error: there is no channel 'eur/rates' on broker A [CHANNEL_NOT_FOUND]\n");
}

#[test]
fn joins_are_made_paused_and_deleted() {
    let broker =
        Broker::start("[[channel]]\nname = \"a\"\n[[channel]]\nname = \"b\"\n[[queue]]\nname = \"q\"\n");
    let create = ["join", "create", "a", "q", "--filter", "x = 1", "--max-hops", "4", "--propagate-purge"];
    assert_eq!(broker.says(&create), "a->q\n");
    let shown = broker.json(&["join", "show", "a->q"]);
    assert_eq!((&shown["filter"], &shown["max_hops"]), (&"x = 1".into(), &4.into()));
    assert_eq!((&shown["propagate_purge"], &shown["state"]), (&true.into(), &"running".into()));
    assert_eq!(broker.says(&["join", "create", "a", "b", "--both"]), "a->b\nb->a\n");
    assert_eq!(names(&broker.json(&["join", "list", "a"])), ["a->b", "a->q", "b->a"]);
    assert_eq!(names(&broker.json(&["join", "list", "a", "--in"])), ["b->a"]);
    assert_eq!(names(&broker.json(&["join", "list", "a", "--out"])), ["a->b", "a->q"]);
    assert_eq!(broker.says(&["join", "pause", "a->q"]), "join 'a->q' paused\n");
    assert!(broker.says(&["join", "list"]).contains("a->q  a       q            paused"));
    assert_eq!(broker.says(&["join", "resume", "a->q"]), "join 'a->q' resumed\n");
    assert_eq!(
        broker.says(&["join", "alter", "a->q", "--filter", "", "--max-hops", "0"]),
        "join 'a->q' altered\n"
    );
    assert_eq!(broker.json(&["join", "show", "a->q"])["filter"], Value::Null);
    assert!(broker.refuses(&["channel", "delete", "a"]).contains("[STORE_IN_USE]"));
    assert_eq!(broker.says(&["join", "delete", "a->q", "--drain"]), "join 'a->q' deleted, 0 not forwarded\n");
    assert!(broker.refuses(&["join", "create", "q", "a"]).contains("[JOIN_SOURCE_IS_QUEUE]"));
    assert!(broker.refuses(&["join", "create", "a", "b", "--max-hops", "-1"]).contains("[JOIN_BAD_HOPS]"));
    assert!(broker.refuses(&["join", "create", "a", "q", "--both"]).contains("[JOIN_SOURCE_IS_QUEUE]"));
    assert_eq!(names(&broker.json(&["join", "list"])), ["a->b", "b->a"]);
    postroad_testkit::proves("JOIN-5");
}

#[test]
fn named_objects_and_dead_letters_are_looked_after() {
    let broker = Broker::start("[[channel]]\nname = \"c\"\n");
    let create =
        ["named-object", "create", "c", "o", "--selector", "x = 1", "--start", "all", "--no-persistent"];
    assert_eq!(broker.says(&create), "named object 'o' of channel 'c' created\n");
    assert_eq!(broker.says(&create), "named object 'o' of channel 'c' exists already\n");
    let shown = broker.json(&["named-object", "show", "c", "o"]);
    assert_eq!((&shown["persistent"], &shown["selector"]), (&false.into(), &"x = 1".into()));
    assert_eq!((&shown["start_event_id"], &shown["owner"]), (&"all".into(), &"native".into()));
    assert!(broker.says(&["named-object", "list", "--channel", "c"]).contains("\nc        o     native"));
    assert_eq!(broker.says(&["named-object", "list", "--owner", "client:x"]), "no named objects\n");
    assert_eq!(broker.says(&["named-object", "browse", "c", "o"]), "no events\n");
    assert_eq!(broker.says(&["named-object", "purge", "c", "o", "--range", "1..5"]), "0 removed\n");
    assert!(
        broker.refuses(&["named-object", "create", "c", "o", "--start", "all"]).contains("[OBJECT_EXISTS]")
    );
    assert_eq!(
        broker.says(&["named-object", "delete", "c", "o"]),
        "named object 'o' of channel 'c' deleted\n"
    );
    assert!(
        broker
            .refuses(&["named-object", "show", "c", "o", "--owner", "client:x"])
            .contains("[OBJECT_NOT_FOUND]")
    );
    assert_eq!(broker.says(&["dlq", "list"]), "no dead letters\n");
    assert!(broker.refuses(&["dlq", "list", "--queue", "none"]).contains("[UNKNOWN_QUEUE]"));
    let status = broker.json(&["status"]);
    assert_eq!((&status["name"], &status["channels"]), (&"A".into(), &1.into()));
}

#[test]
fn a_message_is_sent_browsed_rejected_and_found_among_the_dead_letters() {
    let broker = Broker::start("[[queue]]\nname = \"jobs\"\n");
    let client = |arguments: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--url", &broker.amqp]).collect();
        broker.says(&arguments)
    };
    client(&["send", "jobs", "dig a hole", "--property", "tool=spade", "--message-id", "m-1"]);
    let table = broker.says(&["queue", "browse", "jobs", "--filter", "tool = 'spade'"]);
    assert!(table.contains("m-1         tool=spade  dig a hole"), "{table}");
    client(&["receive", "jobs", "--count", "1", "--ack", "reject"]);
    assert_eq!(broker.json(&["queue", "show", "jobs"])["depth"], 0);
    let table = broker.says(&["dlq", "list"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[2], row[3], row[4]), ("1", "REJECTED", "jobs", "1"), "{table}");
    let letter = broker.json(&["dlq", "show", "1"]);
    assert_eq!(
        (&letter["body"], &letter["dead_letter"]["reason"]),
        (&"dig a hole".into(), &"REJECTED".into())
    );
    assert!(broker.refuses(&["dlq", "show", "2"]).contains("has no message 2"));
    assert_eq!(broker.says(&["queue", "purge", "DLQ", "--id", "1"]), "1 removed\n");
}

#[test]
fn users_log_in() {
    let broker = Broker::start("[[user]]\nname = \"jo\"\npassword = \"s3cret\"\n");
    let without = broker.refuses(&["queue", "list"]);
    assert!(without.contains("[LOGIN_REQUIRED]") && without.contains("help: give --user"), "{without}");
    assert!(
        broker
            .refuses(&["queue", "list", "--user", "jo", "--password", "wrong"])
            .contains("[LOGIN_REQUIRED]")
    );
    broker.says(&["queue", "list", "--user", "jo", "--password", "s3cret"]);
    let url = ("POSTROAD_URL", broker.url.as_str());
    let output = run(&["queue", "list"], &[url, ("POSTROAD_USER", "jo"), ("POSTROAD_PASSWORD", "s3cret")]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_broker_that_is_not_there_is_told_apart_from_a_refusal() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let output = run(&["status", "--url", &url], &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).starts_with(&format!("error: the broker at {url} can't be reached")));
    for bad in
        [&["queue", "show"][..], &["queue", "purge", "q"], &["nothing"], &["status", "--url", "ftp://x"]]
    {
        assert_eq!(run(bad, &[]).status.code(), Some(2), "{bad:?}");
    }
}

#[test]
fn the_load_program_counts_what_it_sends_and_holds_idle_connections() {
    let broker = Broker::start("[[queue]]\nname = \"bench\"\n[[channel]]\nname = \"news\"");
    let pid = broker.process.id().to_string();
    let bench = |options: &[&str]| {
        let common = ["bench", "--json", "--url", &broker.amqp, "--pid", &pid];
        let arguments: Vec<&str> = common.into_iter().chain(options.iter().copied()).collect();
        let output = run(&arguments, &[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let queue = bench(&["--messages", "501", "--producers", "2", "--consumers", "3", "--size", "100"]);
    assert_eq!(
        (&queue["sent"], &queue["received"], &queue["missing"]),
        (&501.into(), &501.into(), &0.into())
    );
    assert!(queue["seconds"].as_f64().unwrap() > 0.0 && queue["broker_memory"]["after"].is_u64(), "{queue}");
    let fan_out = bench(&["--messages", "50", "--topic", "--address", "news", "--consumers", "4"]);
    assert_eq!((&fan_out["sent"], &fan_out["received"]), (&50.into(), &200.into()));
    let close = bench(&["--messages", "3000", "--presettled", "--non-persistent", "--ahead", "100"]);
    assert_eq!((&close["received"], &close["ahead"]), (&3000.into(), &100.into()));
    let backlog = bench(&["--messages", "200", "--consumers", "0"]);
    assert_eq!((&backlog["sent"], &backlog["received"]), (&200.into(), &0.into()));
    assert_eq!(broker.json(&["queue", "show", "bench"])["depth"], 200);
    let idle = bench(&[
        "--idle",
        "5",
        "--producers",
        "0",
        "--consumers",
        "0",
        "--duration",
        "50ms",
        "--warmup",
        "0s",
    ]);
    assert_eq!((&idle["idle"], &idle["sent"]), (&5.into(), &0.into()));
    for wrong in [&["--messages", "5", "--duration", "1s"][..], &["--messages", "5", "--producers", "0"]] {
        let arguments: Vec<&str> = ["bench"].into_iter().chain(wrong.iter().copied()).collect();
        assert_eq!(run(&arguments, &[]).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn two_brokers_do_not_share_a_folder_or_a_port() {
    let broker = Broker::start("");
    let file = broker.folder.path().join("broker.toml");
    let config = file.to_str().unwrap();
    let output = run(&["serve", "--config", config], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("error: "), "{}", text(&output.stderr));
}

#[test]
fn a_written_configuration_passes_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("made.toml");
    let path = file.to_str().unwrap();
    assert_eq!(run(&["init", path], &[]).status.code(), Some(0));
    let again = run(&["init", path], &[]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("--force"));
    let checked = run(&["check", path], &[]);
    assert_eq!(
        (checked.status.code(), text(&checked.stdout).as_str()),
        (Some(0), "1 file, 0 errors, 0 warnings\n")
    );
    std::fs::write(&file, "[[queue]]\nname = \"q\"\ncapcity = 5\n").unwrap();
    let checked = run(&["check", "--json", path], &[]);
    assert_eq!(checked.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((&found[0]["code"], &found[0]["line"]), (&"UNKNOWN_KEY".into(), &3.into()));
    assert!(text(&run(&["check", path], &[]).stdout).contains("1 file, 1 error, 0 warnings\n"));
}

#[test]
fn help_has_examples_and_completions_are_generated() {
    for noun in
        ["serve", "status", "channel", "queue", "join", "named-object", "dlq", "check", "init", "journal"]
    {
        let help = text(&run(&[noun, "--help"], &[]).stdout);
        assert!(help.contains("Examples:"), "{help}");
    }
    let script = run(&["completions", "bash"], &[]);
    assert!(text(&script.stdout).contains("named-object"));
}
