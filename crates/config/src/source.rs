//! The text of one configuration file, and where in it a byte lies.

use serde::Serialize;

/// A range of bytes in a [`Source`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl From<std::ops::Range<usize>> for Span {
    fn from(range: std::ops::Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    pub(crate) span: Span,
}

/// A place in a file as people count: both numbers start at 1, columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// One file: its name as people know it, its text, and the start of each line.
pub(crate) struct Source<'t> {
    pub(crate) file: &'t str,
    pub(crate) text: &'t str,
    line_starts: Vec<usize>,
}

impl<'t> Source<'t> {
    pub(crate) fn new(file: &'t str, text: &'t str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(after_breaks).collect();
        Self { file, text, line_starts }
    }

    /// The place of a byte; one past the end, or inside a character, means the nearest place before.
    pub(crate) fn position(&self, offset: usize) -> Position {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.line_starts.partition_point(|start| *start <= offset).max(1);
        let start = self.line_starts.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..offset).unwrap_or_default();
        Position { line, column: before.chars().count() + 1 }
    }

    /// The text of a line (counted from 1), without its line end.
    pub(crate) fn line(&self, line: usize) -> &'t str {
        let start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        let end = self.line_starts.get(line).copied().unwrap_or(self.text.len());
        self.text.get(start..end).unwrap_or_default().trim_end_matches(['\n', '\r'])
    }

    /// The text that a span covers, empty if it covers none.
    pub(crate) fn slice(&self, span: Span) -> &'t str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }
}

/// The byte offset, inside a TOML string as it is written (quotes and escapes included), of character number
/// `index` (from 0) of its value. Past the end means the closing quote. `None` if `raw` is no string.
///
/// A selector's error names a column of the selector; this finds it in the file.
pub(crate) fn offset_in_string(raw: &str, index: usize) -> Option<usize> {
    let quote = raw.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let triple: String = std::iter::repeat_n(quote, 3).collect();
    let multi_line = raw.len() >= 6 && raw.starts_with(&triple);
    let mut at = if multi_line { 3 } else { 1 };
    if multi_line {
        let body = raw.get(at..)?;
        at += if body.starts_with("\r\n") { 2 } else { usize::from(body.starts_with('\n')) };
    }
    let end = raw.len().saturating_sub(if multi_line { 3 } else { 1 });
    let mut left = index;
    while left > 0 && at < end {
        let rest = raw.get(at..end)?;
        let (bytes, characters) = written_width(rest, quote == '"');
        at += bytes.max(1);
        left = left.saturating_sub(characters);
    }
    Some(at.min(end))
}

/// How many bytes the next element of a TOML string takes, and how many characters it stands for.
fn written_width(rest: &str, escapes: bool) -> (usize, usize) {
    let mut characters = rest.chars();
    let first = characters.next().map_or(1, char::len_utf8);
    if !escapes || !rest.starts_with('\\') {
        return (first, 1);
    }
    match characters.next() {
        Some('x') => (4, 1),
        Some('u') => (6, 1),
        Some('U') => (10, 1),
        Some(' ' | '\t' | '\r' | '\n') => {
            let after = rest.get(1..).unwrap_or_default();
            (1 + after.len() - after.trim_start().len(), 0)
        }
        _ => (2, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        let source = Source::new("f", "a = 1\nöö = 2\r\nlast");
        assert_eq!(source.position(0), Position { line: 1, column: 1 });
        assert_eq!(source.position(6), Position { line: 2, column: 1 });
        assert_eq!(source.position(10), Position { line: 2, column: 3 });
        assert_eq!(source.position(9), Position { line: 2, column: 2 }, "inside a character");
        assert_eq!(source.position(999), Position { line: 3, column: 5 });
        assert_eq!(source.line(2), "öö = 2");
        assert_eq!(source.line(3), "last");
        assert_eq!(source.line(9), "");
    }

    #[test]
    fn a_column_of_a_value_is_found_in_what_was_written() {
        let cases = [
            (r#""abc""#, 0, 1),
            (r#""abc""#, 2, 3),
            (r#""abc""#, 9, 4),
            (r#""a\"bc""#, 2, 4),
            (r#""\u00e4bc""#, 1, 7),
            (r"'a\bc'", 2, 3),
            ("'''\nabc'''", 1, 5),
            ("\"\"\"a\\\n   bc\"\"\"", 1, 4),
            ("\"\"\"a\\\n   bc\"\"\"", 2, 10),
            ("'öbc'", 1, 3),
            ("\"\"", 5, 1),
        ];
        for (raw, index, offset) in cases {
            assert_eq!(offset_in_string(raw, index), Some(offset), "{raw} {index}");
        }
        assert_eq!(offset_in_string("12", 0), None);
        assert_eq!(offset_in_string("", 0), None);
    }
}
