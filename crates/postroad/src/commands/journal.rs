//! `postroad journal`: the files of a broker that does not run.

use super::failure::{Failure, Outcome};
use super::print::{self, Column, bytes, member};
use clap::{Args, Subcommand};
use postroad_journal::{Damage, Error, FileDisk, Report, SegmentReport, verify};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The journal: the files in which a broker keeps everything
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  postroad journal verify /var/lib/postroad
  postroad journal verify data --json")]
pub(crate) struct JournalCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read the journal of a stopped broker from end to end, and name all damage
    ///
    /// Every frame is checked against its checksum, and every place where one must follow another. Nothing is changed.
    /// A torn end, as kill -9 or a power cut leaves it, is no damage: nothing in it was promised. While a broker has
    /// the folder open this is refused: what it writes meanwhile would look like damage.
    ///
    /// Exit code 0 if the journal is sound, 1 if it is damaged, in use or not there.
    Verify(Verify),
}

#[derive(Debug, Args)]
struct Verify {
    /// The broker's data folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Print JSON, for programs
    #[arg(long)]
    json: bool,
}

const COLUMNS: &[Column] = &[
    ("SEGMENT", |s| member(s, "segment")),
    ("FILE", |s| member(s, "file")),
    ("SIZE", |s| bytes(number(s, "size"))),
    ("USED", |s| bytes(number(s, "used"))),
    ("FRAMES", |s| member(s, "frames")),
    ("FIRST", |s| member(s, "first")),
    ("LAST", |s| member(s, "last")),
    ("READ AT START", |s| if s["is_replayed"] == true { "yes" } else { "no" }.to_owned()),
];

fn number(segment: &Value, name: &str) -> u64 {
    segment.get(name).and_then(Value::as_u64).unwrap_or_default()
}

impl JournalCommand {
    /// Does it.
    pub(crate) fn run(self) -> Outcome {
        match self.verb {
            Verb::Verify(command) => command.run(),
        }
    }
}

impl Verify {
    fn run(&self) -> Outcome {
        let report = look(&self.folder)?;
        let segments: Vec<Value> = report.segments.iter().map(segment).collect();
        if self.json {
            print::json(&whole(&report, &segments))?;
        } else {
            print::table(COLUMNS, &segments, "no segments")?;
            print::line(&summary(&report))?;
            for file in &report.unreadable {
                print::line(&format!(
                    "the header of {file} can't be read: a crash cut a write short, or it is damaged; a start of the broker tells"
                ))?;
            }
        }
        if report.damage.is_empty() {
            return Ok(());
        }
        for damage in &report.damage {
            eprintln!("error: {damage}");
        }
        Err(Failure::silent().with_advice(
            "the broker does not start on damage that it would have to read; keep a copy of the folder, and restore a backup",
        ))
    }
}

/// Reads the journal in `folder`. A control file that can't be read leaves nothing to check, but it is damage like any
/// other.
fn look(folder: &Path) -> Outcome<Report> {
    let shown = folder.display();
    let holds_journal = FileDisk::holds_journal(folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::failed(format!("there is no folder {shown}")),
        _ => Failure::failed(format!("the folder {shown} can't be read: {error}")),
    })?;
    if !holds_journal {
        let advice =
            "name the broker's data folder: data_dir in its configuration, or what was given to --data-dir";
        return Err(Failure::failed(format!("there is no journal in {shown}")).with_advice(advice));
    }
    let disk = FileDisk::new(folder)
        .map_err(|error| Failure::failed(format!("the folder {shown} can't be used: {error}")))?;
    verify(&disk).map_err(|error| {
        let failure = Failure::failed(error.to_string());
        match error {
            Error::Locked { .. } => failure.with_advice("a journal is checked while its broker is stopped"),
            Error::Damage(_) => failure.with_advice(
                "without its control file no checksum can be checked: restore that file, or the folder, from a backup",
            ),
            _ => failure,
        }
    })
}

fn segment(report: &SegmentReport) -> Value {
    json!({
        "segment": report.number.to_string().trim_start_matches("segment "), "file": report.file,
        "size": report.size, "used": report.used, "frames": report.frames,
        "first": report.first.0, "last": report.last.0, "is_replayed": report.is_replayed,
    })
}

fn whole(report: &Report, segments: &[Value]) -> Value {
    let place = |damage: &Damage| json!({ "file": damage.file, "offset": damage.offset, "flaw": damage.flaw.to_string() });
    json!({
        "sound": report.damage.is_empty(), "life": report.life,
        "start": report.start.map(|(segment, lsn)| {
            json!({ "segment": segment.to_string().trim_start_matches("segment "), "lsn": lsn.0 })
        }),
        "last": report.last.0, "clean_stop": report.clean_stop, "spare_files": report.spare,
        "unreadable_files": report.unreadable, "cut_off_segments": report.cut_off, "segments": segments,
        "damage": report.damage.iter().map(place).collect::<Vec<_>>(),
    })
}

fn summary(report: &Report) -> String {
    let frames: u64 = report.segments.iter().map(|segment| segment.frames).sum();
    let start = match report.start {
        Some((segment, lsn)) => format!("a start reads from {lsn} in {segment}"),
        None => "a start reads everything".to_owned(),
    };
    let stop = if report.clean_stop { "stopped in order" } else { "not stopped in order" };
    let damage = match report.damage.len() {
        0 => "sound".to_owned(),
        1 => "damaged in 1 place".to_owned(),
        places => format!("damaged in {places} places"),
    };
    format!(
        "{damage}: {frames} frames up to {}, {stop}; {start}; life {}, {} spare files, {} segments cut off",
        report.last, report.life, report.spare, report.cut_off
    )
}
