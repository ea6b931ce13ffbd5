//! From a file, or its text, to a configuration and a report.

use crate::check;
use crate::config::Config;
use crate::diagnostic::{Code, Diagnostic, Report, Sink};
use crate::read;
use crate::source::{Source, Span};
use crate::table::Table;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use toml::de::DeTable;

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// What a file does not say but its meaning depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The broker's name if the file gives none: the host's name.
    pub broker_name: String,
    /// `--allow-open-remote` on the command line: listeners that others can reach may go without logins.
    pub allow_open_remote: bool,
    /// The broker's data may hold channels and queues that the file does not define: a join to one that is not in the
    /// file is then worth a warning only.
    pub stores_elsewhere: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { broker_name: host_name(), allow_open_remote: false, stores_elsewhere: false }
    }
}

/// Reads and judges the text of one file. `file` is its name as people know it.
///
/// The configuration is there if, and only if, the report has no errors; relative paths in it are as written.
/// Selectors, names and joins are checked too, so `postroad check` needs nothing but this.
#[must_use]
pub fn parse(file: &str, text: &str, options: &Options) -> (Option<Config>, Report) {
    let sink = Sink::new(Source::new(file, text));
    let (root, faults) = DeTable::parse_recoverable(text);
    for fault in &faults {
        let end = text.len();
        let at = fault.span().map_or(Span { start: end, end }, Span::from);
        sink.error(Code::Syntax, at, fault.message().replace('\n', "; "), "");
    }
    let at = Span { start: 0, end: 1 };
    let draft = read::document(Table::new(&sink, root.get_ref(), "the file", at), &options.broker_name);
    if faults.is_empty() {
        check::draft(&draft, options, &sink);
        let config = draft.into_config();
        let report = sink.into_report();
        return (Some(config).filter(|_| !report.has_errors()), report);
    }
    (None, without_followers(sink.into_report()))
}

/// Drops what may only be there because a line did not parse: findings in that line, and absent keys.
fn without_followers(mut report: Report) -> Report {
    let broken = report.diagnostics.iter().filter(|found| found.code == Code::Syntax);
    let broken: BTreeSet<usize> = broken.map(|found| found.line).collect();
    report.diagnostics.retain(|found| {
        let certain = !matches!(found.code, Code::MissingKey | Code::JoinNoDestination | Code::Conflict);
        found.code == Code::Syntax || (certain && !broken.contains(&found.line))
    });
    report
}

/// Reads and judges a file. Relative paths in it start at the folder of the file.
#[must_use]
pub fn load(path: &Path, options: &Options) -> (Option<Config>, Report) {
    let file = path.display().to_string();
    match read_text(path) {
        Ok(text) => {
            let (mut config, report) = parse(&file, &text, options);
            if let (Some(config), Some(folder)) = (&mut config, path.parent()) {
                config.anchor(folder);
            }
            (config, report)
        }
        Err(error) => {
            let message = format!("the configuration file can't be read: {error}");
            let advice = "check the path and that the broker's user may read it";
            let found = Diagnostic::of_file(Code::FileUnreadable, &file, message, advice);
            (None, Report { diagnostics: vec![found] })
        }
    }
}

fn read_text(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let mut file = std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1);
    file.read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let message = format!("it is larger than {MAX_FILE_BYTES} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::FileTooLarge, message));
    }
    Ok(text)
}

/// The name of this machine as far as it can name a broker (addressing 4, `broker.name`), else `postroad`.
#[must_use]
pub fn host_name() -> String {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let allowed = |c: &char| c.is_ascii_alphanumeric() || "._-".contains(*c);
    let name: String = node.chars().filter(allowed).take(64).collect();
    if name.is_empty() { String::from("postroad") } else { name }
}
