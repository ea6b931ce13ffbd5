//! What is wrong with a selector, and where.

/// A selector that does not follow the language, refused when it is presented (Jakarta Messaging 3.1, 3.8.1.1).
///
/// Displays as `at column 7: ...`. The message says what was wrong and, where it can, what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at column {column}: {message}")]
pub struct SyntaxError {
    /// Where the trouble begins: the first character of the source is column 1; characters, not bytes.
    pub column: usize,
    /// What was wrong and what to write instead, without the column.
    pub message: String,
}

impl SyntaxError {
    pub(crate) fn new(column: usize, message: impl Into<String>) -> SyntaxError {
        SyntaxError { column, message: message.into() }
    }
}
