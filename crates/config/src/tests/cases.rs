//! Cases as text: a file, and what is said about it.
//!
//! A case is `=== title`, the file, `---`, and one line for each finding: severity, code, `line:column`, and
//! optionally text that its message or advice must hold. Findings come in the order of their places.

use super::read;
use postroad_testkit::proves;

fn run(cases: &str) {
    let mut failures = Vec::new();
    for case in cases.split("=== ").skip(1) {
        let (title, body) = case.split_once('\n').unwrap();
        let (text, expected) = body.split_once("---\n").unwrap();
        let report = read(text).1;
        let expected: Vec<_> = expected.lines().filter(|line| !line.is_empty()).collect();
        let as_expected = report.diagnostics.len() == expected.len()
            && report.diagnostics.iter().zip(&expected).all(|(found, line)| {
                let place = format!("{} {} {}:{}", found.severity, found.code, found.line, found.column);
                let wanted = line.strip_prefix(place.as_str()).map(str::trim);
                wanted.is_some_and(|wanted| format!("{}\n{}", found.message, found.advice).contains(wanted))
            });
        if !as_expected {
            failures.push(format!("=== {title}\nexpected\n{}\nfound\n{report}", expected.join("\n")));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn tables_keys_and_values() {
    run(include_str!("cases/values.txt"));
}

#[test]
fn names_and_stores() {
    run(include_str!("cases/stores.txt"));
}

#[test]
fn joins() {
    run(include_str!("cases/joins.txt"));
    for id in ["JOIN-2", "JOIN-8", "HOP-4", "ARC-1"] {
        proves(id);
    }
}

#[test]
fn loops_and_hop_limits() {
    run(include_str!("cases/reach.txt"));
}

#[test]
fn listeners_and_logins() {
    run(include_str!("cases/security.txt"));
}
