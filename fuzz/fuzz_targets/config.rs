//! Any text as a configuration file: a configuration, or a reason why not, and places that are in the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use postroad_config::{Options, parse};

fuzz_target!(|text: &str| {
    let options = Options { broker_name: "b".to_owned(), allow_open_remote: false, stores_elsewhere: false };
    let (config, report) = parse("postroad.toml", text, &options);
    assert_eq!(config.is_none(), report.has_errors());
    let lines = text.split('\n').count();
    for found in &report.diagnostics {
        assert!(found.line <= lines, "{found:?}");
        assert!(!found.to_string().is_empty());
    }
    let _ = report.to_string();
});
