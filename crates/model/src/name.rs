//! The rules for names (ADR-3, CH-2, TT-2, README U-8, U-9).

use crate::refusal::{Code, Refusal};

/// Longest name of a queue or channel in bytes.
pub const MAX_NAME_BYTES: usize = 255;

/// Checks the name of a queue (ADR-3): 1 to 255 bytes, letters, digits and `. _ - / % : $ ~ ( ) , ; =`,
/// no `::`, and no leading `$` unless the broker itself made the name.
///
/// # Errors
/// `BAD_NAME`, naming the first character that is not allowed.
pub fn check_queue_name(name: &str) -> Result<(), Refusal> {
    if name.starts_with('$') {
        return Err(bad(name, "names that begin with $ are the broker's own"));
    }
    check_name_length(name)?;
    if name.contains("::") {
        return Err(bad(name, "'::' separates a channel from a named object and can't be part of a name"));
    }
    let allowed = |c: char| c.is_alphanumeric() || "._-/%:$~(),;=".contains(c);
    first_bad(name, allowed)
}

/// Brings the name of a channel into its one form: `\` and `//` become `/`, a leading `/` goes (CH-2).
#[must_use]
pub fn normalise_channel_name(name: &str) -> String {
    let mut normal = String::with_capacity(name.len());
    for c in name.chars() {
        let c = if c == '\\' { '/' } else { c };
        if c == '/' && (normal.is_empty() || normal.ends_with('/')) {
            continue;
        }
        normal.push(c);
    }
    normal
}

/// Checks the normalised name of a channel (joins-and-interest 5.1): 1 to 255 bytes, letters, digits and `/ - _ .`.
///
/// # Errors
/// `BAD_NAME`, naming the first character that is not allowed.
pub fn check_channel_name(name: &str) -> Result<(), Refusal> {
    check_name_length(name)?;
    if name.contains("::") {
        return Err(bad(name, "'::' separates a channel from a named object and can't be part of a name"));
    }
    first_bad(name, |c| c.is_alphanumeric() || "/-_.".contains(c))
}

/// Checks the name of a named object or a join: 1 to 255 bytes, no `|`, no control characters (named-objects 4).
///
/// # Errors
/// `BAD_NAME`.
pub fn check_object_name(name: &str) -> Result<(), Refusal> {
    check_name_length(name)?;
    first_bad(name, |c| c != '|' && !c.is_control())
}

/// Checks a topic string that is published to (TT-2).
///
/// # Errors
/// `BAD_TOPIC`.
pub fn check_topic(topic: &str, max_bytes: usize, max_levels: usize) -> Result<(), Refusal> {
    let refuse = |why: String| Err(Refusal::new(Code::BadTopic, shorten(topic), why));
    if topic.is_empty() {
        return refuse("the topic string is empty: publish to a topic with at least one character".into());
    }
    if topic.len() > max_bytes {
        return refuse(format!("the topic string has {} bytes, the limit is {max_bytes}", topic.len()));
    }
    if topic.split('/').count() > max_levels {
        return refuse(format!("the topic string has more than {max_levels} levels"));
    }
    if let Some(c) = topic.chars().find(|c| matches!(c, '+' | '#' | '\0')) {
        return refuse(format!("topic '{}' holds {c:?}, which only filters may", shorten(topic)));
    }
    Ok(())
}

/// Whether a queue name matches a queue pattern: levels split on `.`, `*` is one level, `>` the rest, which
/// may be nothing (README U-9).
#[must_use]
pub fn queue_pattern_matches(pattern: &str, name: &str) -> bool {
    levels_match(pattern.split('.'), name.split('.'), "*", ">")
}

/// Whether a topic or channel name matches a pattern: levels split on `/`, `+` is one level, `#` the rest,
/// which may be nothing (README U-9). Names that begin with `$` match no leading wildcard (TT-8).
#[must_use]
pub fn topic_pattern_matches(pattern: &str, name: &str) -> bool {
    let wild_start = pattern.starts_with('+') || pattern.starts_with('#');
    if name.starts_with('$') && wild_start {
        return false;
    }
    levels_match(pattern.split('/'), name.split('/'), "+", "#")
}

fn levels_match<'a>(
    pattern: impl Iterator<Item = &'a str>,
    mut name: impl Iterator<Item = &'a str>,
    one: &str,
    rest: &str,
) -> bool {
    for level in pattern {
        if level == rest {
            return true;
        }
        match name.next() {
            Some(part) if level == one || level == part => {}
            _ => return false,
        }
    }
    name.next().is_none()
}

/// Checks the length of a name: 1 to 255 bytes.
///
/// # Errors
/// `BAD_NAME`.
pub fn check_name_length(name: &str) -> Result<(), Refusal> {
    match name.len() {
        0 => Err(bad(name, "a name needs at least one character")),
        1..=MAX_NAME_BYTES => Ok(()),
        n => Err(bad(&shorten(name), &format!("the name has {n} bytes, the limit is {MAX_NAME_BYTES}"))),
    }
}

fn first_bad(name: &str, allowed: impl Fn(char) -> bool) -> Result<(), Refusal> {
    match name.chars().find(|&c| !allowed(c)) {
        Some(c) => Err(bad(name, &format!("the character {c:?} is not allowed in this kind of name"))),
        None => Ok(()),
    }
}

fn bad(name: &str, why: &str) -> Refusal {
    Refusal::new(Code::BadName, name, format!("'{name}' can't be used as a name: {why}"))
}

/// A name cut to a length that fits into one line of an error message.
#[must_use]
pub fn shorten(name: &str) -> String {
    if name.chars().count() <= 80 {
        return name.to_owned();
    }
    let head: String = name.chars().take(77).collect();
    format!("{head}...")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_names_are_brought_into_one_form() {
        assert_eq!(normalise_channel_name("/eur/rates"), "eur/rates");
        assert_eq!(normalise_channel_name("eur\\rates"), "eur/rates");
        assert_eq!(normalise_channel_name("a//b"), "a/b");
    }

    #[test]
    fn queue_names_refuse_wildcards_and_separators() {
        assert!(check_queue_name("ORDERS.EU/1 ").is_err());
        assert!(check_queue_name("ORDERS.EU-1:x").is_ok());
        for name in ["", "a@b", "a?b", "a#", "a+", "a*", "a>", "a\"", "a'", "a\\b", "a|b", "a::b", "$tmp.1"] {
            assert_eq!(check_queue_name(name).unwrap_err().code, Code::BadName, "{name}");
        }
        assert!(check_queue_name(&"x".repeat(256)).is_err());
    }

    #[test]
    fn topics_refuse_what_filters_may_hold() {
        for topic in ["", "a/+", "#", "a\0b"] {
            assert_eq!(check_topic(topic, 100, 8).unwrap_err().code, Code::BadTopic, "{topic:?}");
        }
        assert!(check_topic("a b/*/?/%/.", 100, 8).is_ok());
        assert!(check_topic("a/b/c/d", 100, 3).is_err());
    }

    #[test]
    fn patterns_match_by_levels() {
        assert!(queue_pattern_matches("A.>", "A"));
        assert!(queue_pattern_matches("A.>", "A.B.C"));
        assert!(queue_pattern_matches("A.*", "A.B"));
        assert!(!queue_pattern_matches("A.*", "A.B.C"));
        assert!(topic_pattern_matches("a/#", "a"));
        assert!(topic_pattern_matches("+/b", "a/b"));
        assert!(!topic_pattern_matches("#", "$SYS/x"));
    }
}
