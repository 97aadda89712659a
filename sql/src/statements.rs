//! Divides text into statements at its semicolons, using the parser's own tokens.

use std::collections::VecDeque;

use datafusion::error::DataFusionError;
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::dialect::{Dialect as Grammar, GenericDialect, SparkSqlDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::server_text::{ServerText, blank_lines, sent};

/// A statement and its position.
#[derive(Clone, Debug)]
pub struct Source {
    /// The whole text up to the statement's end. Everything before the statement is replaced by
    /// blanks, so that positions in it equal those in the user's text.
    pub text: String,
    /// The parsed statement.
    pub parsed: Statement,
    /// Text for the server, if there is one.
    pub sent: Option<ServerText>,
}

/// Error for text that could not be parsed.
#[derive(Debug)]
pub struct Unparsed {
    /// The whole text.
    pub text: String,
    /// The parser's error.
    pub error: Box<DataFusionError>,
}

/// SQL dialect of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Dialect of the local engine.
    Own,
    /// Dialect of a Spark Connect server.
    Server,
}

impl Dialect {
    fn grammar(self) -> &'static dyn Grammar {
        match self {
            Dialect::Own => &GenericDialect {},
            Dialect::Server => &SparkSqlDialect {},
        }
    }
}

/// Divides text and parses all of its statements. If one is invalid, none is executed.
pub fn parse(text: &str, dialect: Dialect) -> Result<Vec<Source>, Unparsed> {
    let failed = |error| Unparsed { text: text.to_owned(), error: Box::new(error) };
    let tokens = tokens(text, dialect).map_err(&failed)?;
    let mut parsed = Vec::new();
    let mut rest = tokens.as_slice();
    let mut from = 0;
    while !rest.is_empty() {
        let end = rest.iter().position(|one| one.token == Token::SemiColon);
        let (these, after) = match end {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &rest[rest.len()..]),
        };
        let to = rest
            .get(these.len())
            .map_or(text.len(), |end| offset(text, end.span.start.line, end.span.start.column));
        if these.iter().any(|one| is_word(&one.token)) {
            let before = blank_lines(&text[..from]);
            let text = before.clone() + &text[from..to];
            let (plain, sent) = match dialect {
                Dialect::Own => (text.clone(), None),
                Dialect::Server => {
                    let sent = sent(&before, these).map_err(unsent).map_err(&failed)?;
                    (plain(&text, these), Some(sent))
                }
            };
            let statements =
                DFParser::parse_sql_with_dialect(&plain, dialect.grammar()).map_err(&failed)?;
            parsed.extend(one(statements).map(|parsed| Source { text, parsed, sent }));
        }
        from = to + usize::from(end.is_some());
        rest = after;
    }
    Ok(parsed)
}

fn one(mut statements: VecDeque<Statement>) -> Option<Statement> {
    statements.pop_front()
}

/// Whether text ends a statement: its last token is a semicolon, or there is no token.
pub fn is_complete(text: &str, dialect: Dialect) -> bool {
    // If the text cannot be divided into tokens, it ends within a quoted text or a comment, so it
    // is incomplete.
    tokens(text, dialect).is_ok_and(|tokens| {
        let last = tokens.iter().rfind(|one| is_word(&one.token));
        last.is_none_or(|last| last.token == Token::SemiColon)
    })
}

/// Spark's variants of EXPLAIN, which the parser does not know.
const EXPLAINS: [&str; 4] = ["CODEGEN", "COST", "EXTENDED", "FORMATTED"];

/// Returns the text for the parser, without the word after EXPLAIN that only Spark knows.
fn plain(text: &str, tokens: &[TokenWithSpan]) -> String {
    let mut words = tokens.iter().filter(|one| is_word(&one.token));
    let (Some(first), Some(second)) = (words.next(), words.next()) else { return text.to_owned() };
    let is_explain = matches!(&first.token, Token::Word(word) if word.keyword == Keyword::EXPLAIN);
    let second_is = |known: &&str| second.token.to_string().eq_ignore_ascii_case(known);
    if !is_explain || !EXPLAINS.iter().any(second_is) {
        return text.to_owned();
    }
    let start = offset(text, second.span.start.line, second.span.start.column);
    let end = start + second.token.to_string().len();
    text[..start].to_owned() + &blank_lines(&text[start..end]) + &text[end..]
}

/// Returns the error for a token that is not sent.
fn unsent(token: String) -> DataFusionError {
    DataFusionError::Plan(format!("`{token}` has a form that servers divide in other ways"))
}

fn tokens(text: &str, dialect: Dialect) -> Result<Vec<TokenWithSpan>, DataFusionError> {
    let tokens = Tokenizer::new(dialect.grammar(), text).tokenize_with_location();
    tokens.map_err(|error| DataFusionError::SQL(Box::new(error.into()), None))
}

fn is_word(token: &Token) -> bool {
    !matches!(token, Token::Whitespace(_) | Token::EOF)
}

/// Returns the byte offset of a line and column, both counted from 1, the latter in characters.
fn offset(text: &str, line: u64, column: u64) -> usize {
    let line = usize::try_from(line).unwrap_or(1).saturating_sub(1);
    let column = usize::try_from(column).unwrap_or(1).saturating_sub(1);
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = &text[start..];
    start + rest.char_indices().nth(column).map_or(rest.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_in_texts_and_comments_end_nothing() {
        let text = "SELECT ';é' AS a; -- one; two\n/* ; */ SELECT 2;;\n  SELECT 3";
        let parsed = parse(text, Dialect::Own).unwrap();
        let ends: Vec<&str> = parsed.iter().map(|one| one.text.trim()).collect();
        assert_eq!(ends[0], "SELECT ';é' AS a");
        assert!(ends[1].ends_with("SELECT 2"), "{ends:?}");
        assert_eq!(ends[2], "SELECT 3");
        assert_eq!(parsed[2].text.lines().count(), 3, "it keeps its place");
    }

    #[test]
    fn a_statement_is_complete_at_its_semicolon() {
        for complete in ["SELECT 1;", "SELECT ';';", "", "  \n", "SELECT 1; -- why"] {
            assert!(is_complete(complete, Dialect::Own), "{complete}");
        }
        for open in ["SELECT 1", "SELECT ';", "SELECT /* 1;", "SELECT \"a;", "SELECT 1; SELECT"] {
            assert!(!is_complete(open, Dialect::Own), "{open}");
        }
    }
}
