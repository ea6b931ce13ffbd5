//! `postroad journal verify` on the folders of real brokers.

// A panic is how a test fails; the lint's exception does not reach helper functions.
#![allow(clippy::unwrap_used)]

use std::fs::OpenOptions;
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_postroad");
const PATIENCE: Duration = Duration::from_secs(30);

/// A broker process; killed when dropped, so that its journal ends without a clean stop.
struct Broker {
    process: Child,
    amqp: String,
}

impl Broker {
    fn start(folder: &Path) -> Self {
        let [amqp, http] = std::array::from_fn(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .map(|listener| listener.local_addr().unwrap());
        let file = folder.join("broker.toml");
        let data = folder.join("data");
        let text = format!(
            "[broker]\nname = \"A\"\ndata_dir = {data:?}\n\
             [[listener]]\nprotocol = \"amqp\"\naddress = \"{amqp}\"\n\
             [[listener]]\nprotocol = \"http\"\naddress = \"{http}\"\n[[queue]]\nname = \"orders\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let process = Command::new(BINARY)
            .args(["serve", "--config", file.to_str().unwrap()])
            .env("POSTROAD_LOG", "error")
            .spawn()
            .unwrap();
        let mut broker = Self { process, amqp: format!("amqp://{amqp}") };
        let deadline = Instant::now() + PATIENCE;
        while run(&["status", "--url", &format!("http://{http}")]).status.code() == Some(3) {
            assert_eq!(broker.process.try_wait().unwrap(), None, "the broker ended");
            assert!(Instant::now() < deadline, "the broker does not answer");
            std::thread::yield_now();
        }
        broker
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    for name in ["POSTROAD_URL", "POSTROAD_USER", "POSTROAD_PASSWORD", "POSTROAD_CONFIG"] {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What `verify --json` says, and its exit code.
fn verify(data: &Path) -> (Option<i32>, Value, String) {
    let output = run(&["journal", "verify", data.to_str().unwrap(), "--json"]);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_default(), text(&output.stderr))
}

/// A folder in which a broker was killed that had confirmed 200 messages, and one more: what is written then says that those
/// before are synced.
fn killed_broker() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    for count in ["200", "1"] {
        let sent = run(&["send", "orders", "--count", count, "--size", "500", "--url", &broker.amqp]);
        assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
    }
    folder
}

#[test]
fn a_sound_journal_is_said_to_be_sound_and_left_as_it_was() {
    let folder = killed_broker();
    let data = folder.path().join("data");
    let (code, report, errors) = verify(&data);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    assert_eq!((&report["sound"], &report["clean_stop"]), (&true.into(), &false.into()));
    let frames: u64 =
        report["segments"].as_array().unwrap().iter().map(|s| s["frames"].as_u64().unwrap()).sum();
    assert!(frames > 0 && report["last"].as_u64() >= Some(frames), "{report}");
    let table = text(&run(&["journal", "verify", data.to_str().unwrap()]).stdout);
    assert!(table.starts_with("SEGMENT") && table.contains(".seg"), "{table}");
    assert!(table.lines().last().unwrap().starts_with("sound: "), "{table}");
    // The broker takes it up again, and has everything.
    let broker = Broker::start(folder.path());
    let received = run(&["receive", "orders", "--count", "200", "--timeout", "20s", "--url", &broker.amqp]);
    assert_eq!(received.status.code(), Some(0), "{}", text(&received.stderr));
}

#[test]
fn damage_is_named_with_its_file_and_offset() {
    let folder = killed_broker();
    let data = folder.path().join("data");
    let (_, report, _) = verify(&data);
    let segment = report["segments"].as_array().unwrap().iter().max_by_key(|s| s["used"].as_u64()).unwrap();
    let file = segment["file"].as_str().unwrap();
    let middle = segment["used"].as_u64().unwrap() / 2;
    let open = OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    open.read_exact_at(&mut byte, middle).unwrap();
    open.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    let (code, report, errors) = verify(&data);
    assert_eq!((code, &report["sound"]), (Some(1), &false.into()));
    let damage = &report["damage"][0];
    assert_eq!(damage["file"].as_str(), Some(file));
    let offset = damage["offset"].as_u64().unwrap();
    assert!(offset <= middle && offset + 70_000 > middle, "{offset}, damaged at {middle}");
    assert!(
        errors.contains(&format!("error: journal file {file} is damaged at offset {offset}: ")),
        "{errors}"
    );
}

#[test]
fn a_folder_in_use_is_left_to_its_broker() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    let (code, report, errors) = verify(&folder.path().join("data"));
    assert_eq!((code, report), (Some(1), Value::Null));
    let holder = format!("is in use by another process (process {})", broker.process.id());
    assert!(errors.contains(&holder), "{errors}");
}

#[test]
fn a_folder_without_a_journal_is_refused_and_nothing_is_made_there() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, errors) = verify(folder.path());
    assert_eq!(code, Some(1));
    assert!(errors.starts_with("error: there is no journal in "), "{errors}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let missing = folder.path().join("missing");
    let (code, _, errors) = verify(&missing);
    assert_eq!((code, errors), (Some(1), format!("error: there is no folder {}\n", missing.display())));
    assert!(!missing.exists());
    std::fs::write(folder.path().join("00000001.seg"), b"").unwrap();
    let (code, _, errors) = verify(folder.path());
    assert_eq!(code, Some(1));
    assert!(errors.contains("the control file is missing") && errors.contains("backup"), "{errors}");
}
