//! Starts that can't be: a taken port, a data folder that is in use, newer, damaged or not to be written to. Each says
//! what and where, ends with 1, and changes nothing.

use crate::broker::{BINARY, Broker, fails, refuses_to_serve, serve, write_config};
use postroad_amqp_codec::performative::Performative;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

#[test]
fn a_taken_port_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    write_config(folder.path(), "");
    let file = folder.path().join("broker.toml");
    let config = fs::read_to_string(&file).unwrap().replace("127.0.0.1:0", &address);
    fs::write(&file, config).unwrap();
    let said = refuses_to_serve(folder.path());
    assert!(said.contains(&format!("can't listen on {address}")), "{said}");
    assert!(said.contains("Stop what uses it, or configure another address"), "{said}");
    drop(taken);
    // The port is free now, and the folder is as good as before.
    drop(Broker::in_folder(folder));
}

#[test]
fn a_second_broker_on_the_same_data_is_told_whose_it_is() {
    let broker = Broker::start("");
    let mut witness = broker.witness();
    let said = refuses_to_serve(broker.folder.path());
    let data = broker.folder.path().join("data");
    assert!(said.contains(&*data.to_string_lossy()), "{said}");
    assert!(said.contains(&format!("in use by another process (process {})", broker.pid())), "{said}");
    witness.goes_on();
    drop(witness);
    assert_eq!(broker.stop(), [""; 0]);
}

/// A folder whose broker was killed after it had confirmed a durable message with this text.
fn with_a_message(text: &str) -> TempDir {
    let broker = Broker::start("");
    let mut peer = broker.open();
    peer.begin(0);
    peer.attach_sender(0, "q");
    let durable = b"\x00\x53\x70\xc0\x02\x01\x41";
    peer.send_raw(0, 0, &[&durable[..], &crate::peer::text(text)].concat());
    peer.expect_accepted(0);
    // So that the first one does not stand at the end, where a torn write would be no damage.
    peer.send_raw(0, 1, &[&durable[..], &crate::peer::text("behind it")].concat());
    peer.expect_accepted(1);
    broker.kill()
}

/// The segment that holds this text, and where.
fn find(folder: &Path, text: &str) -> (PathBuf, usize) {
    let files = fs::read_dir(folder.join("data")).unwrap().map(|entry| entry.unwrap().path());
    let mut segments = files.filter(|path| path.extension().is_some_and(|extension| extension == "seg"));
    let found = segments.find_map(|path| {
        let bytes = fs::read(&path).unwrap();
        let at = bytes.windows(text.len()).position(|window| window == text.as_bytes())?;
        Some((path, at))
    });
    found.expect("no segment holds it")
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_damaged_journal_is_told_with_file_and_place() {
    let folder = with_a_message("a message to find");
    let (segment, at) = find(folder.path(), "a message to find");
    change(&segment, |bytes| bytes[at] ^= 1);
    let before = fs::read(&segment).unwrap();
    let said = refuses_to_serve(folder.path());
    let place = format!("journal file {} is damaged at offset ", segment.display());
    let offset = said.split(&place).nth(1).unwrap_or_else(|| panic!("{said}"));
    let offset: usize = offset.split(':').next().unwrap().parse().unwrap();
    assert!(offset < at && at - offset < 1_000, "{offset} for a byte at {at}");
    assert!(said.contains("was synced there and does not match its checksum"), "{said}");
    assert_eq!(fs::read(&segment).unwrap(), before, "it was written to");
    // Repaired, everything is there.
    change(&segment, |bytes| bytes[at] ^= 1);
    has_the_message(folder, "a message to find");
}

#[track_caller]
fn has_the_message(folder: TempDir, text: &str) {
    let broker = Broker::in_folder(folder);
    let mut peer = broker.open();
    peer.begin(0);
    peer.attach_receiver(0, "q", 1);
    let (Performative::Transfer(_), payload) = peer.next_but_flow() else { panic!("no message") };
    assert!(payload.ends_with(text.as_bytes()));
}

#[test]
fn a_truncated_journal_is_told() {
    let folder = with_a_message("cut off");
    let (segment, at) = find(folder.path(), "cut off");
    let whole = fs::read(&segment).unwrap();
    change(&segment, |bytes| bytes.truncate(at));
    let said = refuses_to_serve(folder.path());
    let place = format!("journal file {} is damaged at offset {at}", segment.display());
    assert!(said.contains(&place) && said.contains("had 4194304 when the segment was made"), "{said}");
    fs::write(&segment, whole).unwrap();
    // Without its control file it is no new folder.
    let control = folder.path().join("data/control");
    let slots = fs::read(&control).unwrap();
    fs::remove_file(&control).unwrap();
    let said = refuses_to_serve(folder.path());
    assert!(said.contains("control file is missing"), "{said}");
    fs::write(&control, slots).unwrap();
    has_the_message(folder, "cut off");
}

#[test]
fn a_folder_of_a_newer_format_is_left_alone() {
    let folder = with_a_message("from the future");
    let control = folder.path().join("data/control");
    let slots = fs::read(&control).unwrap();
    change(&control, |bytes| {
        for slot in [0, 4_096] {
            bytes[slot + 8..slot + 12].copy_from_slice(&2_u32.to_le_bytes());
        }
    });
    let newer = fs::read(&control).unwrap();
    let said = refuses_to_serve(folder.path());
    assert!(said.contains(&*control.to_string_lossy()), "{said}");
    assert!(said.contains("has journal format 2, but this program knows formats up to 1"), "{said}");
    assert_eq!(fs::read(&control).unwrap(), newer, "it was written to");
    fs::write(&control, slots).unwrap();
    has_the_message(folder, "from the future");
}

/// Makes a command that of a user who may read and not write.
fn as_reader(mut command: Command) -> Command {
    if rustix::process::getuid().is_root() {
        // For root nothing is read-only; nobody is somebody else.
        command.uid(65_534).gid(65_534);
    }
    command
}

#[test]
fn a_folder_that_can_not_be_written_to_is_told() {
    let folder = with_a_message("read only");
    let path = folder.path().to_owned();
    let data = path.join("data");
    let readable = |path: &Path| fs::set_permissions(path, Permissions::from_mode(0o555)).unwrap();
    for entry in fs::read_dir(&data).unwrap() {
        fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(0o444)).unwrap();
    }
    readable(&data);
    readable(&path);
    let said = fails(as_reader(serve(&path)), 1);
    assert!(said.contains(&*data.to_string_lossy()) && said.contains("ermission denied"), "{said}");
    // A folder that is not there, and can't be made.
    let elsewhere = path.join("elsewhere");
    let mut command = Command::new(BINARY);
    command.arg("serve").arg("--config").arg(path.join("broker.toml")).arg("--data-dir").arg(&elsewhere);
    let said = fails(as_reader(command), 1);
    assert!(said.contains(&*elsewhere.to_string_lossy()) && said.contains("ermission denied"), "{said}");
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data, Permissions::from_mode(0o755)).unwrap();
    for entry in fs::read_dir(&data).unwrap() {
        fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(0o644)).unwrap();
    }
    has_the_message(folder, "read only");
}

#[test]
fn a_data_folder_that_is_a_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    write_config(folder.path(), "");
    fs::write(folder.path().join("data"), "not a folder").unwrap();
    let said = refuses_to_serve(folder.path());
    assert!(said.contains("the data folder") && said.contains("can't be used"), "{said}");
}
