//! What is printed: tables for people, JSON for programs, never a mixture.

use super::failure::Outcome;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::{Map, Value};
use std::io::Write;

/// Writes a line.
pub(crate) fn line(text: &str) -> Outcome {
    writeln!(std::io::stdout().lock(), "{text}")?;
    Ok(())
}

/// Writes what a resource warns of, if anything, to standard error.
pub(crate) fn warnings(resource: &Value) {
    for warning in resource.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        eprintln!("warning: {}", shown(warning));
    }
}

/// Writes JSON, indented.
pub(crate) fn json(value: &Value) -> Outcome {
    line(&format!("{value:#}"))
}

/// A collection in the form of the REST interface.
pub(crate) fn json_items(items: Vec<Value>) -> Outcome {
    json(&Value::Object(Map::from_iter([("items".to_owned(), items.into())])))
}

/// A column: its heading and what it shows of an item.
pub(crate) type Column = (&'static str, fn(&Value) -> String);

/// Writes a table; `none` if there is nothing to show.
pub(crate) fn table(columns: &[Column], items: &[Value], none: &str) -> Outcome {
    if items.is_empty() {
        return line(none);
    }
    let mut table = plain_table();
    table.set_header(columns.iter().map(|(heading, _)| *heading));
    for item in items {
        table.add_row(columns.iter().map(|(_, show)| show(item)));
    }
    write_table(table)
}

/// Writes a resource, a member a line; those named in `first` come first.
pub(crate) fn resource(resource: &Value, first: &[&str]) -> Outcome {
    let Some(members) = resource.as_object() else { return json(resource) };
    let mut table = plain_table();
    let leading = first.iter().filter_map(|name| members.get_key_value(*name));
    let others = members.iter().filter(|(name, _)| !first.contains(&name.as_str()));
    for (name, value) in leading.chain(others) {
        table.add_row([name.clone(), shown(value)]);
    }
    write_table(table)
}

fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table
}

fn write_table(mut table: Table) -> Outcome {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for row in table.lines() {
        line(row.trim_end())?;
    }
    Ok(())
}

/// A value as people read it.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => harmless(text),
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        other => harmless(&other.to_string()),
    }
}

/// A member of an item as people read it.
pub(crate) fn member(item: &Value, name: &str) -> String {
    item.get(name).map_or_else(|| "-".to_owned(), shown)
}

/// Text without what would move a terminal's cursor.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Text cut to a width.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Milliseconds since 1970 as UTC; `-` for 0.
pub(crate) fn time(ms: u64) -> String {
    if ms == 0 {
        return "-".to_owned();
    }
    let (days, rest) = (ms / 86_400_000, ms % 86_400_000);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a day since 1970-01-01. Years are counted from March, so that the leap day is the last.
const fn civil(days: u64) -> (u64, u64, u64) {
    let day = days + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
    (year, month, day_of_year - (153 * from_march + 2) / 5 + 1)
}

/// Bytes as people read them.
pub(crate) fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut whole, mut tenths) = (count, 0);
    for unit in units {
        if whole < 1_024 {
            return if unit == "B" { format!("{whole} B") } else { format!("{whole}.{tenths} {unit}") };
        }
        tenths = whole % 1_024 * 10 / 1_024;
        whole /= 1_024;
    }
    format!("{whole} EiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        assert_eq!(time(0), "-");
        assert_eq!(time(1), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_400_000), "2000-02-29T00:00:00Z");
        assert_eq!(time(1_767_225_599_999), "2025-12-31T23:59:59Z");
        assert_eq!(time(4_107_542_400_000), "2100-03-01T00:00:00Z");
        assert!(time(u64::MAX).ends_with('Z'));
    }

    #[test]
    fn sizes_are_short() {
        let cases = [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (5 << 30, "5.0 GiB")];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
        assert_eq!(bytes(u64::MAX), "15 EiB");
    }

    #[test]
    fn terminals_are_left_alone() {
        assert_eq!(shown(&"a\u{1b}[1m".into()), "a\u{fffd}[1m");
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}
