//! The whole crate at work: files and what is said about them.

mod cases;
mod values;

use crate::{Code, Config, Options, Report, example, parse};
use proptest::prelude::*;

fn options() -> Options {
    Options { broker_name: String::from("A"), allow_open_remote: false, stores_elsewhere: false }
}

fn read(text: &str) -> (Option<Config>, Report) {
    parse("postroad.toml", text, &options())
}

/// The configuration of a text that has no errors; warnings are allowed.
fn sound(text: &str) -> Config {
    let (config, report) = read(text);
    config.unwrap_or_else(|| panic!("{report}"))
}

#[test]
fn the_example_has_nothing_wrong_with_it() {
    let (config, report) = read(example());
    assert_eq!(report.diagnostics, [], "{report}");
    let config = config.unwrap();
    assert_eq!((config.channels.len(), config.queues.len(), config.joins.len()), (1, 2, 2));
}

/// Settings that the example only shows, behind a '#', must be right as well.
#[test]
fn the_settings_that_the_example_leaves_out_are_known() {
    let is_setting = |line: &str| line.starts_with(|c: char| c.is_ascii_lowercase()) && line.contains(" = ");
    let uncommented: Vec<_> = example()
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|rest| is_setting(rest)).unwrap_or(line))
        .filter(|line| !line.starts_with("password_env"))
        .collect();
    let (_, report) = read(&uncommented.join("\n"));
    let worse: Vec<_> = report.diagnostics.iter().filter(|found| found.code != Code::StoreNotFound).collect();
    assert!(worse.len() == 1 && worse[0].code == Code::Conflict, "only patterns without enabled: {report}");
}

#[test]
fn the_example_of_the_interface_page_is_taken() {
    let text = r#"
        [broker]
        name = "A"
        data_dir = "data/a"
        [[listener]]
        protocol = "amqp"
        address = "127.0.0.1:5672"
        [[channel]]
        name = "orders"
        [[queue]]
        name = "orders.eu"
        [[join]]
        source = "orders"
        destination = "orders.eu"
        filter = "region = 'EU'"
    "#;
    let config = sound(text);
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(config.joins[0].name, "orders->orders.eu");
    assert!(config.broker.auto_create_queues.is_empty() && config.broker.auto_create_channels.is_empty());
}

#[test]
fn a_report_counts_and_is_json() {
    let (config, report) = read("[broker]\nnmae = 'x'\n[[join]]\n");
    assert!(config.is_none() && report.has_errors());
    assert!(report.to_string().ends_with("3 errors, 0 warnings"), "{report}");
    let json = serde_json::to_value(&report).unwrap();
    let first = &json[0];
    assert_eq!(
        (&first["code"], &first["line"], &first["column"]),
        (&"UNKNOWN_KEY".into(), &2.into(), &1.into())
    );
    assert_eq!(first["advice"], "did you mean 'name'?");
}

#[test]
fn the_words_of_refusals_are_the_same_as_at_run_time() {
    use postroad_model::refusal::Code as Refused;
    let shared = [
        (Code::BadName, Refused::BadName),
        (Code::BadValue, Refused::BadValue),
        (Code::BadCapacity, Refused::BadCapacity),
        (Code::BadPublishKey, Refused::BadPublishKey),
        (Code::DesSelf, Refused::DesSelf),
        (Code::FilterSyntax, Refused::FilterSyntax),
        (Code::NameTaken, Refused::NameTaken),
        (Code::NotSupported, Refused::NotSupported),
        (Code::JoinSourceIsQueue, Refused::JoinSourceIsQueue),
        (Code::JoinSelf, Refused::JoinSelf),
        (Code::JoinExists, Refused::JoinExists),
        (Code::JoinNotFound, Refused::JoinNotFound),
        (Code::JoinSourceNotFound, Refused::JoinSourceNotFound),
        (Code::JoinDestNotFound, Refused::JoinDestNotFound),
        (Code::JoinNoDestination, Refused::JoinNoDestination),
        (Code::JoinBadHops, Refused::JoinBadHops),
        (Code::ArchiveNeedsQueue, Refused::ArchiveNeedsQueue),
    ];
    for (ours, theirs) in shared {
        assert_eq!(ours.to_string(), theirs.as_str());
    }
}

#[test]
fn a_file_is_loaded_with_paths_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("postroad.toml");
    std::fs::write(&path, example()).unwrap();
    let (config, _) = crate::load(&path, &options());
    assert_eq!(config.unwrap().data_dir, folder.path().join("data"));
    let (config, report) = crate::load(&folder.path().join("none.toml"), &options());
    assert!(config.is_none());
    assert_eq!(report.diagnostics[0].code, Code::FileUnreadable);
    assert!(!crate::host_name().is_empty());
}

/// Words that make texts which get far into the reading.
const PIECES: &[&str] = &[
    "[broker]",
    "[[queue]]",
    "[[channel]]",
    "[[channel.named_object]]",
    "[[join]]",
    "[[listener]]",
    "[[user]]",
    "[limits]",
    "[auto_create]",
    "[security]",
    "[defaults.queue]",
    "name",
    "source",
    "destination",
    "filter",
    "selector",
    "address",
    "max_hops",
    "capacity",
    "ttl",
    "protocol",
    "match",
    "dedupe",
    "publish_keys",
    "=",
    "=",
    "=",
    "\n",
    "\n",
    "\n",
    "'a'",
    "'b'",
    "\"region = 'x\"",
    "\"\"\"",
    "'''",
    "1",
    "-1",
    "255",
    "0x7f",
    "1e9",
    "true",
    "[",
    "]",
    "{",
    "}",
    ",",
    "'5s'",
    "'1GiB'",
    "'amqp'",
    "'#'",
    "'>'",
    "'ö@b'",
    "'channel://a'",
    "'a::b'",
    "\u{1b}",
    "\\",
    "#",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn any_text_is_taken_or_refused(text in ".*") {
        let (config, report) = read(&text);
        prop_assert_eq!(config.is_none(), report.has_errors());
    }

    #[test]
    fn any_likely_text_is_taken_or_refused(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..60)) {
        let text = pieces.join(" ");
        let (config, report) = read(&text);
        prop_assert_eq!(config.is_none(), report.has_errors());
        let _ = report.to_string();
    }

    /// Every finding of a damaged example points into the text.
    #[test]
    fn findings_point_into_the_text(at in 0usize..4_000, insert in prop::sample::select(PIECES)) {
        let mut text = String::from(example());
        let at = text.floor_char_boundary(at.min(text.len()));
        text.insert_str(at, insert);
        for found in read(&text).1.diagnostics {
            let line = text.split('\n').nth(found.line - 1);
            prop_assert!(line.is_some_and(|line| found.column <= line.chars().count() + 1), "{}", found);
        }
    }
}
