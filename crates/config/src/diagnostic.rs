//! What is wrong with a configuration, where, and what to do about it.

use crate::source::{Source, Span};
use serde::Serialize;
use std::cell::RefCell;
use std::fmt;

/// Diagnostics kept for one file; a file with more is beyond help until these are mended.
const MAX_DIAGNOSTICS: usize = 200;

/// Characters of the offending line that are shown.
const SNIPPET_WIDTH: usize = 120;

/// Whether a broker starts with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The configuration is refused.
    Error,
    /// It is taken, but probably not what was meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// The stable code of a diagnostic (README U-13), written in capitals (`UNKNOWN_KEY`).
///
/// Where the broker refuses the same thing at run time the code is the same word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The file can't be read.
    FileUnreadable,
    /// The file is not TOML.
    Syntax,
    /// No table or key has this name.
    UnknownKey,
    /// A compulsory key is absent.
    MissingKey,
    /// A value is of the wrong kind, out of range, or no known word.
    BadValue,
    /// The feature is known and not part of this version.
    NotSupported,
    /// Two keys that exclude each other, or one that does nothing as things are.
    Conflict,
    /// Two definitions of one kind have one name (ADR-2).
    NameTaken,
    /// A name breaks the rules for its kind (ADR-3, joins-and-interest 5.1).
    BadName,
    /// A capacity outside 0 to 2,147,483,646 (joins-and-interest 5.1).
    BadCapacity,
    /// A publish key without a name or with a depth below 1.
    BadPublishKey,
    /// A store is its own dead event store.
    DesSelf,
    /// The broker's dead-letter queue is defined with an expiry (DLQ-1).
    BadDeadLetterQueue,
    /// A selector does not parse (FIL-2).
    FilterSyntax,
    /// A store that is named here is not defined here.
    StoreNotFound,
    /// A join reads a queue (JOIN-2).
    JoinSourceIsQueue,
    /// A join leads to its own source (JOIN-8).
    JoinSelf,
    /// Two joins have the same source, destination, link and archive flag (JOIN-7).
    JoinExists,
    /// A join named in `standby_for` is not defined here.
    JoinNotFound,
    /// A join's source is not defined here.
    JoinSourceNotFound,
    /// A join's destination is not defined here.
    JoinDestNotFound,
    /// A join has no destination.
    JoinNoDestination,
    /// `max_hops` outside 0 to 255 (HOP-4).
    JoinBadHops,
    /// An archive join leads to a channel (ARC-1).
    ArchiveNeedsQueue,
    /// Joins form a loop; legal (LOOP-1), and easily made by mistake.
    JoinLoop,
    /// A hop limit stops events before a store that the joins lead to (HOP-3).
    JoinHopLimit,
    /// Two listeners have one address.
    ListenerAddressTaken,
    /// A listener is open to the network without logins (README U-11).
    OpenToNetwork,
    /// Logins are demanded and nobody can log in.
    NoUsers,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // serde knows the word already; `fmt::Formatter` is a serializer for unit variants.
        self.serialize(f)
    }
}

/// One finding: what is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// The stable code.
    pub code: Code,
    /// The file's name, as it was given.
    pub file: String,
    /// Line, from 1; 0 if the finding is about the file as a whole.
    pub line: usize,
    /// Column in characters, from 1; 0 likewise.
    pub column: usize,
    /// One sentence: what is wrong.
    pub message: String,
    /// One sentence: what to do; empty if the message says it all.
    pub advice: String,
    /// The offending line, shortened around the place, for people.
    #[serde(skip)]
    snippet: Snippet,
}

/// The part of a line that is shown, and what of it is underlined (characters from 0).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Snippet {
    text: String,
    start: usize,
    width: usize,
}

impl Snippet {
    fn new(source: &Source<'_>, span: Span, line: usize, column: usize) -> Self {
        let text = source.line(line);
        let width = source.slice(span).lines().next().unwrap_or_default().chars().count();
        let at = column.saturating_sub(1);
        let first = at.saturating_sub(SNIPPET_WIDTH / 2);
        let shown = text.chars().skip(first).take(SNIPPET_WIDTH);
        let text: String = shown.map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect();
        let width = width.clamp(1, SNIPPET_WIDTH / 2);
        Self { text, start: at - first, width }
    }

    /// The line under the text: blanks up to the place (tabs kept, so that it lines up), then carets.
    fn carets(&self) -> String {
        let blanks = self.text.chars().chain(std::iter::repeat(' ')).take(self.start);
        let blanks = blanks.map(|c| if c == '\t' { '\t' } else { ' ' });
        blanks.chain(std::iter::repeat_n('^', self.width)).collect()
    }
}

impl Diagnostic {
    /// A finding about a whole file.
    pub(crate) fn of_file(code: Code, file: &str, message: String, advice: &str) -> Self {
        Self {
            severity: Severity::Error,
            code,
            file: file.to_owned(),
            line: 0,
            column: 0,
            message,
            advice: advice.to_owned(),
            snippet: Snippet::default(),
        }
    }
}

/// As a compiler prints it: the finding, the place, the line with carets, the advice; plain text.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity, self.code, self.message)?;
        if self.line == 0 {
            write!(f, "\n  --> {}", self.file)?;
            return if self.advice.is_empty() { Ok(()) } else { write!(f, "\n   = {}", self.advice) };
        }
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        write!(f, "\n{gutter}--> {}:{}:{}", self.file, self.line, self.column)?;
        write!(f, "\n{gutter} |\n{number} | {}", self.snippet.text)?;
        write!(f, "\n{gutter} | {}", self.snippet.carets())?;
        if !self.advice.is_empty() {
            write!(f, "\n{gutter} = {}", self.advice)?;
        }
        Ok(())
    }
}

/// All findings about one or more files, in the order of their places.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Report {
    /// The findings.
    pub diagnostics: Vec<Diagnostic>,
}

impl Report {
    /// Whether a broker would refuse to start.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// How many findings are of this severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.diagnostics.iter().filter(|found| found.severity == severity).count()
    }

    /// Appends the findings about another file.
    pub fn append(&mut self, other: Report) {
        self.diagnostics.extend(other.diagnostics);
    }
}

/// Every finding, blank lines between, then one line that counts them.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for found in &self.diagnostics {
            writeln!(f, "{found}\n")?;
        }
        let plural = |count| if count == 1 { "" } else { "s" };
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        write!(f, "{errors} error{}, {warnings} warning{}", plural(errors), plural(warnings))
    }
}

impl std::error::Error for Report {}

/// Collects findings about one file while it is read and checked.
pub(crate) struct Sink<'t> {
    pub(crate) source: Source<'t>,
    found: RefCell<Vec<(Span, Diagnostic)>>,
}

impl<'t> Sink<'t> {
    pub(crate) fn new(source: Source<'t>) -> Self {
        Self { source, found: RefCell::default() }
    }

    pub(crate) fn error(&self, code: Code, at: Span, message: impl Into<String>, advice: impl Into<String>) {
        self.push(Severity::Error, code, at, message.into(), advice.into());
    }

    pub(crate) fn warn(&self, code: Code, at: Span, message: impl Into<String>, advice: impl Into<String>) {
        self.push(Severity::Warning, code, at, message.into(), advice.into());
    }

    fn push(&self, severity: Severity, code: Code, at: Span, message: String, advice: String) {
        let mut found = self.found.borrow_mut();
        if found.len() >= MAX_DIAGNOSTICS {
            // An error must never be lost behind warnings: it decides whether the broker starts.
            let spare = found.iter().rposition(|(_, earlier)| earlier.severity == Severity::Warning);
            match spare.filter(|_| severity == Severity::Error) {
                Some(warning) => drop(found.remove(warning)),
                None => return,
            }
        }
        let position = self.source.position(at.start);
        let snippet = Snippet::new(&self.source, at, position.line, position.column);
        let file = self.source.file.to_owned();
        let (line, column) = (position.line, position.column);
        let (message, advice) = (printable(message), printable(advice));
        found.push((at, Diagnostic { severity, code, file, line, column, message, advice, snippet }));
    }

    /// Whether further findings of any kind would be dropped, so that none need be made.
    pub(crate) fn is_full(&self) -> bool {
        let found = self.found.borrow();
        found.len() >= MAX_DIAGNOSTICS && found.iter().all(|(_, found)| found.severity == Severity::Error)
    }

    pub(crate) fn into_report(self) -> Report {
        let mut found = self.found.into_inner();
        found.sort_by_key(|(at, _)| at.start);
        Report { diagnostics: found.into_iter().map(|(_, diagnostic)| diagnostic).collect() }
    }
}

/// Names come from the file and may hold anything; none of it may reach a terminal as a command.
fn printable(text: String) -> String {
    if text.contains(char::is_control) {
        text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str, at: Span) -> String {
        let sink = Sink::new(Source::new("a.toml", text));
        sink.error(Code::UnknownKey, at, "there is no key 'x'", "remove it");
        sink.into_report().diagnostics[0].to_string()
    }

    #[test]
    fn a_finding_shows_its_line_with_carets() {
        let shown = report("a = 1\n\tbad = 2\n", Span { start: 7, end: 10 });
        let expected = "error[UNKNOWN_KEY]: there is no key 'x'\n --> a.toml:2:2\n  |\n2 | \tbad = 2\n  | \t^^^\n  = remove it";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_long_line_is_shortened_and_controls_are_not_printed() {
        let text = format!("{}\u{1b}bad{}", "x".repeat(5_000), "y".repeat(5_000));
        let shown = report(&text, Span { start: 5_001, end: 9_000 });
        assert!(shown.len() < 500, "{shown}");
        assert!(!shown.contains('\u{1b}'));
        let caret = shown.lines().find(|line| line.contains('^')).unwrap();
        let line = shown.lines().find(|line| line.contains("bad")).unwrap();
        let column_of = |text: &str, find: char| text.chars().position(|c| c == find).unwrap();
        assert_eq!(column_of(caret, '^') + 3, column_of(line, 'b') + 3);
    }

    #[test]
    fn a_hopeless_file_does_not_fill_the_memory() {
        let sink = Sink::new(Source::new("f", "x"));
        for _ in 0..10_000 {
            sink.error(Code::Syntax, Span::default(), "m", "");
        }
        assert_eq!(sink.into_report().diagnostics.len(), MAX_DIAGNOSTICS);
    }

    #[test]
    fn an_error_is_not_lost_behind_warnings() {
        let sink = Sink::new(Source::new("f", "x"));
        for _ in 0..2 * MAX_DIAGNOSTICS {
            sink.warn(Code::JoinLoop, Span::default(), "m", "");
        }
        sink.error(Code::NoUsers, Span::default(), "m", "");
        let report = sink.into_report();
        assert!(report.has_errors());
        assert_eq!(report.diagnostics.len(), MAX_DIAGNOSTICS);
    }

    #[test]
    fn programs_read_the_code_as_a_word() {
        let found = Diagnostic::of_file(Code::FileUnreadable, "f", String::from("m"), "");
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["code"], "FILE_UNREADABLE");
        assert_eq!(json["severity"], "error");
        assert!(json.get("snippet").is_none());
    }
}
