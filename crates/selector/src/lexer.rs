//! Cuts a selector into words, literals and signs.

use crate::error::SyntaxError;
use crate::identifier::{is_part, is_start};
use crate::number::{self, Number};

/// What the source is made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// A name, plain or in double quotes.
    Identifier(Box<str>),
    /// A reserved word, in any case.
    Keyword(Keyword),
    /// A text literal, with its doubled quotes undone.
    Text(Box<str>),
    /// A number literal, without its sign.
    Number(Number),
    /// A sign.
    Sign(Sign),
    /// Behind the last token.
    End,
}

macro_rules! spelled {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($variant),* }

        impl $name {
            const ALL: &'static [$name] = &[$($name::$variant),*];

            /// As it is written in a selector.
            pub(crate) fn text(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }
    };
}

spelled! {
    /// The words that cannot be identifiers (Jakarta Messaging 3.1, 3.8.1.1).
    Keyword {
        Null = "NULL", True = "TRUE", False = "FALSE", Not = "NOT", And = "AND", Or = "OR", Between = "BETWEEN",
        Like = "LIKE", In = "IN", Is = "IS", Escape = "ESCAPE",
    }
}

spelled! {
    /// Operators and punctuation; a sign that begins with another one stands before it.
    Sign {
        Open = "(", Close = ")", Comma = ",", Plus = "+", Minus = "-", Times = "*", Divide = "/", Equal = "=",
        NotEqual = "<>", LessOrEqual = "<=", Less = "<", GreaterOrEqual = ">=", Greater = ">",
    }
}

/// What people write out of habit, and what it is here.
const HABITS: [(&str, &str); 9] = [
    ("==", "write = instead of =="),
    ("!=", "write <> instead of !="),
    ("&&", "write AND instead of &&"),
    ("||", "write OR instead of ||"),
    ("!", "write NOT instead of !"),
    ("‘", "put texts in straight quotes, as in 'text'"),
    ("’", "put texts in straight quotes, as in 'text'"),
    ("“", "put texts in straight single quotes, as in 'text'"),
    (";", "a selector ends without a semicolon"),
];

/// Reads tokens from left to right.
pub(crate) struct Lexer<'s> {
    rest: &'s str,
    column: usize,
}

impl<'s> Lexer<'s> {
    pub(crate) fn new(source: &'s str) -> Lexer<'s> {
        Lexer { rest: source, column: 1 }
    }

    /// The next token and the column of its first character.
    pub(crate) fn next(&mut self) -> Result<(Token, usize), SyntaxError> {
        let blank = self.rest.len() - self.rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']).len();
        self.take(blank);
        let column = self.column;
        Ok((self.token()?, column))
    }

    fn token(&mut self) -> Result<Token, SyntaxError> {
        let mut characters = self.rest.chars();
        let Some(first) = characters.next() else { return Ok(Token::End) };
        match first {
            '\'' => self.quoted('\'').map(Token::Text),
            '"' => self.quoted_identifier(),
            c if is_start(c) => self.word(),
            '0'..='9' => self.number(),
            '.' if characters.next().is_some_and(|c| c.is_ascii_digit()) => self.number(),
            _ => self.sign(first),
        }
    }

    fn word(&mut self) -> Result<Token, SyntaxError> {
        let column = self.column;
        let length = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let word = self.take(length);
        if let Some(&keyword) = Keyword::ALL.iter().find(|k| k.text().eq_ignore_ascii_case(word)) {
            return Ok(Token::Keyword(keyword));
        }
        let mut behind = self.rest.chars();
        if behind.next() == Some('.') && behind.next().is_some_and(is_start) {
            let dotted = self.rest.find(|c| c != '.' && !is_part(c)).unwrap_or(self.rest.len());
            let name = format!("{word}{}", self.take(dotted));
            return Err(SyntaxError::new(
                column,
                format!(
                    "an identifier has no points in it; put such a name in double quotes, as in \"{name}\""
                ),
            ));
        }
        Ok(Token::Identifier(word.into()))
    }

    fn quoted_identifier(&mut self) -> Result<Token, SyntaxError> {
        let column = self.column;
        let name = self.quoted('"')?;
        if name.is_empty() {
            return Err(SyntaxError::new(
                column,
                "double quotes hold the name of a property, which cannot be empty; an empty text is ''",
            ));
        }
        Ok(Token::Identifier(name))
    }

    /// Reads up to the closing quote; a doubled quote stands for one.
    fn quoted(&mut self, quote: char) -> Result<Box<str>, SyntaxError> {
        let mut text = String::new();
        let mut rest = self.rest.strip_prefix(quote).unwrap_or_default();
        loop {
            let Some((part, behind)) = rest.split_once(quote) else {
                return Err(SyntaxError::new(
                    self.column,
                    format!("the closing {quote} is missing; a {quote} inside is written twice"),
                ));
            };
            text.push_str(part);
            rest = behind;
            let Some(behind) = rest.strip_prefix(quote) else { break };
            text.push(quote);
            rest = behind;
        }
        self.take(self.rest.len() - rest.len());
        Ok(text.into_boxed_str())
    }

    fn number(&mut self) -> Result<Token, SyntaxError> {
        let column = self.column;
        let hexadecimal = self.rest.starts_with("0x") || self.rest.starts_with("0X");
        let mut previous = '0';
        let length = self.rest.find(|c: char| {
            let exponent = if hexadecimal { ['p', 'P'] } else { ['e', 'E'] }.contains(&previous);
            let inside = c == '.' || is_part(c) || exponent && (c == '+' || c == '-');
            previous = c;
            !inside
        });
        let text = self.take(length.unwrap_or(self.rest.len()));
        let number =
            number::parse(text).map_err(|problem| SyntaxError::new(column, format!("{text} {problem}")))?;
        Ok(Token::Number(number))
    }

    fn sign(&mut self, first: char) -> Result<Token, SyntaxError> {
        if let Some((_, advice)) = HABITS.iter().find(|(habit, _)| self.rest.starts_with(habit)) {
            return Err(SyntaxError::new(self.column, *advice));
        }
        let Some(&sign) = Sign::ALL.iter().find(|sign| self.rest.starts_with(sign.text())) else {
            return Err(SyntaxError::new(
                self.column,
                format!(
                    "{first:?} has no meaning here; put a name that contains it in double quotes, a text in single ones"
                ),
            ));
        };
        self.take(sign.text().len());
        Ok(Token::Sign(sign))
    }

    /// Steps over the next `length` bytes and gives them.
    fn take(&mut self, length: usize) -> &'s str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.column += taken.chars().count();
        taken
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Identifier(name) => write!(f, "the identifier {name}"),
            Token::Keyword(keyword) => f.write_str(keyword.text()),
            Token::Text(_) => f.write_str("a text"),
            Token::Number(_) => f.write_str("a number"),
            Token::Sign(sign) => f.write_str(sign.text()),
            Token::End => f.write_str("the end"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(source: &str) -> Result<Vec<(Token, usize)>, SyntaxError> {
        let mut lexer = Lexer::new(source);
        let mut tokens = Vec::new();
        loop {
            match lexer.next()? {
                (Token::End, _) => return Ok(tokens),
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn columns_count_characters() {
        let found: Vec<usize> = tokens("é = 'ñ''x'\n<> 7.5").unwrap().into_iter().map(|(_, c)| c).collect();
        assert_eq!(found, [1, 3, 5, 12, 15]);
    }

    #[test]
    fn words_texts_and_signs() {
        let found: Vec<Token> =
            tokens("nOt \"a \"\"b\"<=''''").unwrap().into_iter().map(|(t, _)| t).collect();
        let expected = [
            Token::Keyword(Keyword::Not),
            Token::Identifier("a \"b".into()),
            Token::Sign(Sign::LessOrEqual),
            Token::Text("'".into()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_minus_belongs_to_a_number_only_in_its_exponent() {
        assert_eq!(tokens("7e-3").unwrap().len(), 1);
        assert_eq!(tokens("0x1e-3").unwrap().len(), 3);
        assert_eq!(tokens("0x1p-3").unwrap().len(), 1);
        assert_eq!(tokens("5-3").unwrap().len(), 3);
    }

    #[test]
    fn advice_names_what_to_write() {
        for (source, column, advice) in [
            ("a == 1", 3, "write = instead"),
            ("a != 1", 3, "write <> instead"),
            ("a = 1 && b = 2", 7, "write AND"),
            ("a = ‘x’", 5, "straight quotes"),
            ("a = 'x", 5, "closing '"),
            ("x.y = 1", 1, "\"x.y\""),
            ("a = #", 5, "no meaning"),
            ("a = 1\u{a0}", 6, "no meaning"),
            ("\"\" = 1", 1, "cannot be empty"),
            ("a = 12b", 5, "12b is not a number"),
        ] {
            let error = tokens(source).unwrap_err();
            assert_eq!(error.column, column, "{source}: {error}");
            assert!(error.message.contains(advice), "{source}: {error}");
        }
    }
}
