//! What passed and what failed over all suites, and which requirements were proved.
//!
//! Each test runner closes with a line of its own; [`Runner`] knows how to read it. The ids that the tests prove are
//! appended by the tests to a file under `target`; [`Report::finish`] sorts them, those of `ci` into `target/spec-ids.txt`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use crate::run;
use crate::workspace::Workspace;

/// Tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
}

/// The test programs whose closing lines are understood.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Runner {
    /// `cargo test`: a `test result:` line for each test binary.
    Cargo,
    /// pytest's last line.
    Pytest,
    /// Node's own test runner with its TAP or spec reporter.
    Node,
    /// `go test -v`: a `--- PASS` or `--- FAIL` line for each test.
    Go,
    /// Maven Surefire's `Tests run:` summaries.
    Surefire,
}

/// Collects the outcome of one command.
pub(crate) struct Report {
    totals: Totals,
    broken: Vec<String>,
    raw_ids: PathBuf,
    ids: PathBuf,
}

impl Report {
    /// An empty report; what an earlier run of the command has proved is forgotten. Only `ci` runs everything, so what
    /// another command has proved must not take the place of what `ci` has.
    pub(crate) fn new(workspace: &Workspace, command: &str) -> Result<Self, String> {
        let output = workspace.output();
        std::fs::create_dir_all(&output).map_err(|e| format!("{}: {e}", output.display()))?;
        let name = if command == "ci" { "spec-ids".to_owned() } else { format!("spec-ids-{command}") };
        let raw_ids = output.join(format!("{name}.raw"));
        if raw_ids.exists() {
            std::fs::remove_file(&raw_ids).map_err(|e| format!("{}: {e}", raw_ids.display()))?;
        }
        let ids = output.join(format!("{name}.txt"));
        Ok(Self { totals: Totals::default(), broken: Vec::new(), raw_ids, ids })
    }

    /// Counts a step that is no test suite, such as a lint, as one passed or failed check.
    pub(crate) fn step(&mut self, name: &str, passed: bool) {
        if passed {
            self.totals.passed += 1;
        } else {
            self.totals.failed += 1;
            self.broken.push(name.to_owned());
        }
    }

    /// Runs a test suite and counts its tests. A suite that fails without a failed test counts as one failure, and so
    /// does one that succeeds without a test: a runner that found nothing must not pass for a suite that passed.
    pub(crate) fn suite(&mut self, name: &str, runner: Runner, command: &mut Command) -> Result<(), String> {
        let mut suite = Totals::default();
        command.env("POSTROAD_SPEC_IDS", &self.raw_ids);
        let succeeded = run::read_lines(command, |line| runner.read(line, &mut suite))?;
        let silent = suite == Totals::default();
        if suite.failed == 0 && (!succeeded || silent) {
            suite.failed = 1;
        }
        if suite.failed > 0 {
            self.broken.push(name.to_owned());
        }
        self.totals.passed += suite.passed;
        self.totals.failed += suite.failed;
        Ok(())
    }

    /// Writes the sorted ids, prints the totals as the last line and tells whether everything passed.
    pub(crate) fn finish(self) -> Result<bool, String> {
        let proved = self.sort_ids()?;
        println!();
        if proved > 0 {
            let list = self.ids.file_name().unwrap_or_default().display();
            println!("{proved} requirements and acceptance rows proved, listed in target/{list}");
        }
        for name in &self.broken {
            println!("failed: {name}");
        }
        println!("{} passed, {} failed", self.totals.passed, self.totals.failed);
        Ok(self.totals.failed == 0)
    }

    fn sort_ids(&self) -> Result<usize, String> {
        let Ok(raw) = std::fs::read_to_string(&self.raw_ids) else { return Ok(0) };
        let sorted: BTreeSet<&str> = raw.lines().filter(|line| !line.is_empty()).collect();
        let text: String = sorted.iter().flat_map(|id| [*id, "\n"]).collect();
        std::fs::write(&self.ids, text).map_err(|e| format!("{}: {e}", self.ids.display()))?;
        Ok(sorted.len())
    }
}

impl Runner {
    /// Adds what one line of the runner's output says to the totals of its suite.
    fn read(self, line: &str, totals: &mut Totals) {
        let plain = without_colours(line);
        let line = plain.trim();
        match self {
            Self::Cargo if line.starts_with("test result:") => {
                totals.add(before(line, "passed"), before(line, "failed"));
            }
            Self::Pytest
                if line.contains(" in ") && line.starts_with(|c: char| c == '=' || c.is_ascii_digit()) =>
            {
                totals.add(
                    before(line, "passed"),
                    before(line, "failed") + before_any(line, &["error", "errors"]),
                );
            }
            Self::Node => {
                let word = line.trim_start_matches(['#', 'ℹ', ' ']);
                totals.add(after(word, "pass"), after(word, "fail"));
            }
            Self::Go if line.starts_with("--- PASS") => totals.add(1, 0),
            Self::Go if line.starts_with("--- FAIL") => totals.add(0, 1),
            Self::Surefire if line.contains("Tests run:") && !line.contains("Time elapsed") => {
                let failed = labelled(line, "Failures:") + labelled(line, "Errors:");
                let skipped = labelled(line, "Skipped:");
                totals.add(labelled(line, "Tests run:").saturating_sub(failed + skipped), failed);
            }
            _ => {}
        }
    }
}

impl Totals {
    fn add(&mut self, passed: u64, failed: u64) {
        self.passed += passed;
        self.failed += failed;
    }
}

/// The number before a word: 12 in `12 passed;`.
fn before(line: &str, word: &str) -> u64 {
    let words: Vec<&str> = line.split([' ', ',', ';', '=']).filter(|part| !part.is_empty()).collect();
    let place = words.iter().position(|part| *part == word).filter(|place| *place > 0);
    place.and_then(|place| words[place - 1].parse().ok()).unwrap_or(0)
}

fn before_any(line: &str, names: &[&str]) -> u64 {
    names.iter().map(|name| before(line, name)).sum()
}

/// The number after a word that opens the line: 3 in `pass 3`.
fn after(line: &str, word: &str) -> u64 {
    line.strip_prefix(word).and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
}

/// The number after a label anywhere in the line: 7 in `Tests run: 7, Failures: 0`.
fn labelled(line: &str, label: &str) -> u64 {
    let rest = line.split_once(label).map_or("", |(_, rest)| rest.trim_start());
    rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Drops terminal colour sequences.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((head, tail)) = rest.split_once("\u{1b}[") {
        plain.push_str(head);
        rest = tail.find('m').map_or("", |end| &tail[end + 1..]);
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(runner: Runner, output: &str, passed: u64, failed: u64) {
        let mut totals = Totals::default();
        output.lines().for_each(|line| runner.read(line, &mut totals));
        assert_eq!(totals, Totals { passed, failed }, "{runner:?}");
    }

    #[test]
    fn closing_lines_of_every_runner_are_understood() {
        let cargo = "test result: ok. 3 passed; 0 failed; 1 ignored\ntest result: FAILED. 4 passed; 2 failed; 0 ignored";
        check(Runner::Cargo, cargo, 7, 2);
        check(Runner::Pytest, "===== 2 failed, 12 passed, 1 error in 3.21s =====", 12, 3);
        check(Runner::Pytest, "12 passed in 3.21s", 12, 0);
        check(Runner::Node, "ok 1 - passes\n# tests 4\n# pass 3\n# fail 1\n# skipped 0", 3, 1);
        check(Runner::Node, "ℹ pass 3\nℹ fail 0", 3, 0);
        check(Runner::Go, "=== RUN TestA\n--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.01s)\nFAIL", 1, 1);
        let surefire = "[\u{1b}[1;34mINFO\u{1b}[m] Tests run: 7, Failures: 1, Errors: 1, Skipped: 0, Time elapsed: 1 s\n\
                        [\u{1b}[1;34mINFO\u{1b}[m] Tests run: 7, Failures: 1, Errors: 1, Skipped: 0";
        check(Runner::Surefire, surefire, 5, 2);
    }
}
