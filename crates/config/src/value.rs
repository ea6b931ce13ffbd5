//! How single values are written: durations, sizes, words of an enumeration.

use serde::de::{self, DeserializeOwned};

/// Reads `"250ms"`, `"5s"`, `"10m"`, `"1h"`, `"7d"`: a whole number and a unit, as milliseconds.
pub(crate) fn duration_ms(text: &str) -> Result<u64, String> {
    let (number, unit) = number_and_unit(text).ok_or_else(|| duration_advice(text))?;
    let factor: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(duration_advice(text)),
    };
    number.checked_mul(factor).ok_or_else(|| String::from("the duration is too long"))
}

fn duration_advice(text: &str) -> String {
    format!(
        "{} is no duration: write a whole number and ms, s, m, h or d, such as \"250ms\" or \"5s\"",
        quote(text)
    )
}

/// Reads `"512B"`, `"64KiB"`, `"1GiB"`: a whole number and a binary unit, as bytes.
pub(crate) fn size_bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = number_and_unit(text).ok_or_else(|| size_advice(text))?;
    let factor: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return Err(size_advice(text)),
    };
    number.checked_mul(factor).ok_or_else(|| String::from("the size is too large"))
}

fn size_advice(text: &str) -> String {
    format!("{} is no size: write a whole number and B, KiB, MiB, GiB or TiB, such as \"64KiB\"", quote(text))
}

/// Splits `"64 KiB"` into 64 and `KiB`; underscores may group the digits.
fn number_and_unit(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(split)?;
    let number = digits.replace('_', "").parse().ok()?;
    Some((number, unit.trim_start()))
}

/// A word of an enumeration, `-` and `_` alike. The words are those that the type itself is serialized with.
///
/// # Errors
/// The words that would have been right.
pub(crate) fn word<T: DeserializeOwned>(text: &str) -> Result<T, &'static [&'static str]> {
    let plain = text.replace('_', "-");
    T::deserialize(de::value::StrDeserializer::<WordError>::new(&plain)).map_err(|error| error.expected)
}

/// Text in quotes with everything escaped that a terminal would not show as itself, shortened if long.
pub(crate) fn quote(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().count() > SHOWN {
        shown.push('…');
    }
    format!("'{}'", shown.replace("\\'", "'").replace("\\\"", "\""))
}

/// Keeps the list of words that a derived `Deserialize` would have taken.
#[derive(Debug)]
struct WordError {
    expected: &'static [&'static str],
}

impl std::fmt::Display for WordError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected one of {:?}", self.expected)
    }
}

impl std::error::Error for WordError {}

impl de::Error for WordError {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self { expected: &[] }
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self { expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::settings::{PublisherDedupe, StoreType};

    #[test]
    fn durations_and_sizes_have_units() {
        assert_eq!(duration_ms("250ms"), Ok(250));
        assert_eq!(duration_ms("7d"), Ok(604_800_000));
        assert_eq!(duration_ms("1_000 s"), Ok(1_000_000));
        assert_eq!(size_bytes("64KiB"), Ok(65_536));
        assert_eq!(size_bytes("1GiB"), Ok(1 << 30));
        assert_eq!(size_bytes("0B"), Ok(0));
        for bad in
            ["", "5", "s", "-5s", "1.5s", "5 weeks", "99999999999999999999s", "18446744073709551615d", "５s"]
        {
            assert!(duration_ms(bad).is_err(), "{bad}");
        }
        for bad in ["", "5", "1KB", "1 kib", "-1B", "16777216TiB"] {
            assert!(size_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_take_dashes_and_underscores_alike() {
        assert_eq!(word("message-id"), Ok(PublisherDedupe::MessageId));
        assert_eq!(word("message_id"), Ok(PublisherDedupe::MessageId));
        assert_eq!(word::<StoreType>("Mixed"), Err(&["persistent", "reliable", "mixed", "transient"][..]));
    }

    #[test]
    fn quoted_text_is_short_and_harmless() {
        assert_eq!(quote("it's \"so\""), "'it's \"so\"'");
        assert_eq!(quote("a\u{1b}[1m"), "'a\\u{1b}[1m'");
        assert_eq!(quote(&"x".repeat(200)).chars().count(), 83);
    }
}
