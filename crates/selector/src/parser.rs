//! Reads a selector and compiles it: recursive descent, one function a level of precedence.
//!
//! Types that show in the source are checked here (Jakarta Messaging 3.1, 3.8.1.1): what only numbers have (order,
//! arithmetic) is refused for texts and booleans, and conditions must be conditions. A comparison by `=` or `<>`
//! of unlike literals is left alone, because its value is defined: false.

use crate::error::SyntaxError;
use crate::identifier::{HEADER_FIELDS, is_allowed_name};
use crate::lexer::{Keyword, Lexer, Sign, Token};
use crate::like::Pattern;
use crate::number::Number;
use crate::tree::{Arithmetic, BetweenTerms, Comparison, Condition, Literal, Name, Term};

/// How deep parentheses may be nested.
///
/// Nothing else makes the parser, the evaluation or the release of a selector recurse.
pub const MAX_NESTING: usize = 64;

/// Compiles `source`, whose length the caller has bounded.
pub(crate) fn parse(source: &str) -> Result<Condition, SyntaxError> {
    let mut lexer = Lexer::new(source);
    let (token, column) = lexer.next()?;
    let mut parser = Parser { lexer, token, column, nesting: 0 };
    let selector = parser.disjunction()?;
    if parser.token != Token::End {
        return Err(parser.unexpected("AND, OR or the end of the selector"));
    }
    selector.into_condition()
}

/// A part of the source that is read, and where it began.
struct Operand {
    term: Term,
    column: usize,
}

/// The type of a term, as far as it shows in the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    /// An identifier's: it depends on the message.
    Open,
    Number,
    Text,
    Bool,
}

impl Operand {
    fn of(column: usize, condition: Condition) -> Operand {
        Operand { term: Term::Condition(Box::new(condition)), column }
    }

    fn is_type(&self) -> Type {
        match &self.term {
            Term::Identifier(_) => Type::Open,
            Term::Literal(Literal::Text(_)) => Type::Text,
            Term::Literal(Literal::Bool(_)) | Term::Condition(_) => Type::Bool,
            Term::Literal(Literal::Long(_) | Literal::Double(_))
            | Term::Signed { .. }
            | Term::Chain { .. } => Type::Number,
        }
    }

    fn is_arithmetic(&self) -> bool {
        matches!(self.term, Term::Signed { .. } | Term::Chain { .. })
    }

    fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.column, message)
    }

    fn into_condition(self) -> Result<Condition, SyntaxError> {
        match self.term {
            Term::Condition(condition) => Ok(*condition),
            Term::Identifier(name) => Ok(Condition::Identifier(name)),
            Term::Literal(Literal::Bool(value)) => Ok(Condition::Constant(value)),
            Term::Literal(Literal::Text(_)) => {
                Err(self.error("a text is not a condition; compare it with something, as in color = 'red'"))
            }
            Term::Literal(_) | Term::Signed { .. } | Term::Chain { .. } => {
                Err(self.error("a number is not a condition; compare it with something, as in weight > 5"))
            }
        }
    }

    /// The term, as an operand of what only numbers have.
    fn into_number(self, operator: &str) -> Result<Term, SyntaxError> {
        match self.is_type() {
            Type::Open | Type::Number => Ok(self.term),
            Type::Text => {
                Err(self
                    .error(format!("{operator} works on numbers, not on texts, which only = and <> compare")))
            }
            Type::Bool => {
                Err(self
                    .error(format!("{operator} works on numbers, not on conditions; join conditions by AND")))
            }
        }
    }

    fn into_name(self, operator: Keyword) -> Result<Name, SyntaxError> {
        match self.term {
            Term::Identifier(name) => Ok(name),
            _ => Err(self.error(format!("{} needs the name of a property on its left", operator.text()))),
        }
    }
}

struct Parser<'s> {
    lexer: Lexer<'s>,
    /// The token to be read next.
    token: Token,
    /// Where `token` begins.
    column: usize,
    nesting: usize,
}

impl Parser<'_> {
    fn disjunction(&mut self) -> Result<Operand, SyntaxError> {
        let first = self.conjunction()?;
        if self.token != Token::Keyword(Keyword::Or) {
            return Ok(first);
        }
        let column = first.column;
        let mut parts = vec![first.into_condition()?];
        while self.accept(&Token::Keyword(Keyword::Or))? {
            parts.push(self.conjunction()?.into_condition()?);
        }
        Ok(Operand::of(column, Condition::any(parts)))
    }

    fn conjunction(&mut self) -> Result<Operand, SyntaxError> {
        let first = self.negation()?;
        if self.token != Token::Keyword(Keyword::And) {
            return Ok(first);
        }
        let column = first.column;
        let mut parts = vec![first.into_condition()?];
        while self.accept(&Token::Keyword(Keyword::And))? {
            parts.push(self.negation()?.into_condition()?);
        }
        Ok(Operand::of(column, Condition::all(parts)))
    }

    /// Any number of NOT; two undo each other, also on UNKNOWN.
    fn negation(&mut self) -> Result<Operand, SyntaxError> {
        let column = self.column;
        let mut count = 0_usize;
        while self.accept(&Token::Keyword(Keyword::Not))? {
            count += 1;
        }
        let operand = self.predicate()?;
        if count == 0 {
            return Ok(operand);
        }
        let condition = operand.into_condition()?;
        let negated = if count % 2 == 1 { Condition::Not(Box::new(condition)) } else { condition };
        Ok(Operand::of(column, negated))
    }

    fn predicate(&mut self) -> Result<Operand, SyntaxError> {
        let left = self.sum()?;
        let column = left.column;
        let condition = match self.token {
            Token::Sign(sign) => match comparison(sign) {
                Some(operator) => self.comparison(left, operator, sign)?,
                None => return Ok(left),
            },
            Token::Keyword(Keyword::Is) => self.is_null(left)?,
            Token::Keyword(Keyword::Not | Keyword::Between | Keyword::In | Keyword::Like) => {
                self.test(left)?
            }
            _ => return Ok(left),
        };
        if self.at_predicate() {
            return Err(SyntaxError::new(
                self.column,
                "one comparison cannot follow another; join them by AND, or put the first in parentheses",
            ));
        }
        Ok(Operand::of(column, condition))
    }

    fn at_predicate(&self) -> bool {
        match self.token {
            Token::Sign(sign) => comparison(sign).is_some(),
            Token::Keyword(Keyword::Is | Keyword::Not | Keyword::Between | Keyword::In | Keyword::Like) => {
                true
            }
            _ => false,
        }
    }

    fn comparison(
        &mut self,
        left: Operand,
        operator: Comparison,
        sign: Sign,
    ) -> Result<Condition, SyntaxError> {
        self.advance()?;
        self.refuse_null()?;
        let right = self.sum()?;
        if !matches!(operator, Comparison::Equal | Comparison::NotEqual) {
            let (left, right) = (left.into_number(sign.text())?, right.into_number(sign.text())?);
            return Ok(Condition::Compare { left, operator, right });
        }
        let unlike =
            |a: &Operand, b: &Operand| a.is_arithmetic() && matches!(b.is_type(), Type::Text | Type::Bool);
        if unlike(&left, &right) || unlike(&right, &left) {
            return Err(SyntaxError::new(
                left.column,
                "a calculation gives a number and equals no text or boolean; \
                 put a name with - or + in it in double quotes, as in \"my-name\"",
            ));
        }
        Ok(Condition::Compare { left: left.term, operator, right: right.term })
    }

    fn refuse_null(&self) -> Result<(), SyntaxError> {
        if self.token == Token::Keyword(Keyword::Null) {
            return Err(SyntaxError::new(
                self.column,
                "nothing compares with NULL; write IS NULL or IS NOT NULL behind the name",
            ));
        }
        Ok(())
    }

    fn is_null(&mut self, left: Operand) -> Result<Condition, SyntaxError> {
        self.advance()?;
        let negated = self.accept(&Token::Keyword(Keyword::Not))?;
        if !self.accept(&Token::Keyword(Keyword::Null))? {
            return Err(self.unexpected(if negated {
                "NULL behind IS NOT"
            } else {
                "NULL or NOT NULL behind IS"
            }));
        }
        Ok(Condition::IsNull { name: left.into_name(Keyword::Is)?, negated })
    }

    /// `[NOT] BETWEEN ...`, `[NOT] IN ...` or `[NOT] LIKE ...`
    fn test(&mut self, left: Operand) -> Result<Condition, SyntaxError> {
        let negated = self.accept(&Token::Keyword(Keyword::Not))?;
        match self.token {
            Token::Keyword(Keyword::Between) => self.between(left, negated),
            Token::Keyword(Keyword::In) => self.in_list(left, negated),
            Token::Keyword(Keyword::Like) => self.like(left, negated),
            _ => Err(self.unexpected("BETWEEN, IN or LIKE behind NOT")),
        }
    }

    fn between(&mut self, value: Operand, negated: bool) -> Result<Condition, SyntaxError> {
        self.advance()?;
        let operator = Keyword::Between.text();
        let low = self.sum()?;
        if !self.accept(&Token::Keyword(Keyword::And))? {
            return Err(self.unexpected("AND and the upper bound of BETWEEN"));
        }
        let high = self.sum()?;
        let value = value.into_number(operator)?;
        let (low, high) = (low.into_number(operator)?, high.into_number(operator)?);
        Ok(Condition::Between { negated, terms: Box::new(BetweenTerms { value, low, high }) })
    }

    fn in_list(&mut self, left: Operand, negated: bool) -> Result<Condition, SyntaxError> {
        let name = left.into_name(Keyword::In)?;
        self.advance()?;
        self.expect(Sign::Open, "( and a list of texts behind IN")?;
        let mut texts = Vec::new();
        loop {
            texts.push(
                self.text("a text; IN lists texts, as in ('a', 'b'), numbers are compared one by one")?,
            );
            if !self.accept(&Token::Sign(Sign::Comma))? {
                break;
            }
        }
        self.expect(Sign::Close, ", or ) behind a text of the list")?;
        texts.sort_unstable();
        texts.dedup();
        Ok(Condition::In { name, negated, texts: texts.into_boxed_slice() })
    }

    fn like(&mut self, left: Operand, negated: bool) -> Result<Condition, SyntaxError> {
        let name = left.into_name(Keyword::Like)?;
        self.advance()?;
        let column = self.column;
        let source = self.text("a pattern in single quotes behind LIKE")?;
        let escape = if self.accept(&Token::Keyword(Keyword::Escape))? { Some(self.escape()?) } else { None };
        let pattern =
            Pattern::compile(&source, escape).map_err(|problem| SyntaxError::new(column, problem))?;
        Ok(Condition::Like { name, negated, pattern: Box::new(pattern) })
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let column = self.column;
        let text = self.text("a text of one character behind ESCAPE")?;
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(escape), None) => Ok(escape),
            _ => Err(SyntaxError::new(
                column,
                "the escape character is a text of exactly one character, as in '!'",
            )),
        }
    }

    fn sum(&mut self) -> Result<Operand, SyntaxError> {
        self.chain(Parser::product, |sign| match sign {
            Sign::Plus => Some(Arithmetic::Add),
            Sign::Minus => Some(Arithmetic::Subtract),
            _ => None,
        })
    }

    fn product(&mut self) -> Result<Operand, SyntaxError> {
        self.chain(Parser::signed, |sign| match sign {
            Sign::Times => Some(Arithmetic::Multiply),
            Sign::Divide => Some(Arithmetic::Divide),
            _ => None,
        })
    }

    /// Operands joined by the operators that `operator` knows.
    fn chain(
        &mut self,
        operand: fn(&mut Self) -> Result<Operand, SyntaxError>,
        operator: fn(Sign) -> Option<Arithmetic>,
    ) -> Result<Operand, SyntaxError> {
        let mut first = operand(self)?;
        let column = first.column;
        let mut rest = Vec::new();
        while let Token::Sign(sign) = self.token
            && let Some(arithmetic) = operator(sign)
        {
            if rest.is_empty() {
                first = Operand { term: first.into_number(sign.text())?, column };
            }
            self.advance()?;
            rest.push((arithmetic, operand(self)?.into_number(sign.text())?));
        }
        if rest.is_empty() {
            return Ok(first);
        }
        Ok(Operand {
            term: Term::Chain { first: Box::new(first.term), rest: rest.into_boxed_slice() },
            column,
        })
    }

    /// Any number of signs before a primary; literals take them in.
    fn signed(&mut self) -> Result<Operand, SyntaxError> {
        let column = self.column;
        let mut last = None;
        let mut negative = false;
        while let Token::Sign(sign @ (Sign::Plus | Sign::Minus)) = self.token {
            self.advance()?;
            negative ^= sign == Sign::Minus;
            last = Some(sign);
        }
        let Some(last) = last else { return self.primary() };
        if self.token == Token::Number(Number::LongMinimum) && last == Sign::Minus {
            // The minus next to it belongs to the number; any before it negates it, which wraps to the same.
            self.advance()?;
            return Ok(Operand { term: Term::Literal(Literal::Long(i64::MIN)), column });
        }
        let term = match self.primary()?.into_number(last.text())? {
            Term::Literal(Literal::Long(value)) if negative => {
                Term::Literal(Literal::Long(value.wrapping_neg()))
            }
            Term::Literal(Literal::Double(value)) if negative => Term::Literal(Literal::Double(-value)),
            literal @ Term::Literal(_) => literal,
            operand => Term::Signed { negative, operand: Box::new(operand) },
        };
        Ok(Operand { term, column })
    }

    fn primary(&mut self) -> Result<Operand, SyntaxError> {
        let column = self.column;
        let term = match &self.token {
            Token::Sign(Sign::Open) => return self.parenthesized(),
            Token::Identifier(name) => Term::Identifier(allowed(name, column)?),
            Token::Text(text) => Term::Literal(Literal::Text(text.clone())),
            Token::Number(Number::Long(value)) => Term::Literal(Literal::Long(*value)),
            Token::Number(Number::Double(value)) => Term::Literal(Literal::Double(*value)),
            Token::Number(Number::LongMinimum) => {
                return Err(SyntaxError::new(
                    column,
                    "9223372036854775808 is an exact number only with a minus before it",
                ));
            }
            Token::Keyword(Keyword::True) => Term::Literal(Literal::Bool(true)),
            Token::Keyword(Keyword::False) => Term::Literal(Literal::Bool(false)),
            Token::Keyword(Keyword::Not) => {
                return Err(SyntaxError::new(
                    column,
                    "put a NOT that is an operand in parentheses, as in a = (NOT b)",
                ));
            }
            _ => return Err(self.unexpected("a name, a text, a number, TRUE, FALSE or (")),
        };
        self.advance()?;
        Ok(Operand { term, column })
    }

    fn parenthesized(&mut self) -> Result<Operand, SyntaxError> {
        let column = self.column;
        if self.nesting == MAX_NESTING {
            return Err(SyntaxError::new(
                column,
                format!("parentheses are nested deeper than {MAX_NESTING}"),
            ));
        }
        self.nesting += 1;
        self.advance()?;
        let inner = self.disjunction()?;
        self.expect(Sign::Close, ")")?;
        self.nesting -= 1;
        Ok(Operand { term: inner.term, column })
    }

    fn text(&mut self, expected: &str) -> Result<Box<str>, SyntaxError> {
        if !matches!(self.token, Token::Text(_)) {
            return Err(self.unexpected(expected));
        }
        match self.advance()? {
            Token::Text(text) => Ok(text),
            _ => Ok(Box::default()),
        }
    }

    fn expect(&mut self, sign: Sign, expected: &str) -> Result<(), SyntaxError> {
        if self.accept(&Token::Sign(sign))? { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// Steps over the next token if it is `token`, and says whether it was.
    fn accept(&mut self, token: &Token) -> Result<bool, SyntaxError> {
        if self.token != *token {
            return Ok(false);
        }
        self.advance()?;
        Ok(true)
    }

    /// Steps to the next token and gives the one that was stepped over.
    fn advance(&mut self) -> Result<Token, SyntaxError> {
        let (token, column) = self.lexer.next()?;
        self.column = column;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn unexpected(&self, expected: &str) -> SyntaxError {
        SyntaxError::new(self.column, format!("found {} where there should be {expected}", self.token))
    }
}

fn comparison(sign: Sign) -> Option<Comparison> {
    match sign {
        Sign::Equal => Some(Comparison::Equal),
        Sign::NotEqual => Some(Comparison::NotEqual),
        Sign::Less => Some(Comparison::Less),
        Sign::LessOrEqual => Some(Comparison::LessOrEqual),
        Sign::Greater => Some(Comparison::Greater),
        Sign::GreaterOrEqual => Some(Comparison::GreaterOrEqual),
        _ => None,
    }
}

fn allowed(name: &str, column: usize) -> Result<Name, SyntaxError> {
    if is_allowed_name(name) {
        return Ok(name.into());
    }
    let fields = HEADER_FIELDS.join(", ");
    Err(SyntaxError::new(
        column,
        format!(
            "{name} cannot be used in a selector; of the names with JMS there are {fields}, JMSX... and JMS_..."
        ),
    ))
}
