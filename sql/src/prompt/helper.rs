//! Supports the prompt's line editor while the user types: completes names, and detects whether a
//! statement has ended.

use std::sync::Arc;

use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Context, Result};

use super::commands::COMMANDS;
use crate::session::Session;
use crate::statements::{self, Dialect};

/// SQL keywords that are worth completing.
const KEYWORDS: [&str; 46] = [
    "ALL",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CREATE",
    "CROSS",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FILTER",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INTERSECT",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OVER",
    "PARTITION",
    "SELECT",
    "SHOW",
    "UNION",
    "USING",
    "VIEW",
    "WHERE",
    "WITH",
];

/// The helper of the line editor.
pub struct Helper {
    session: Arc<Session>,
    functions: Vec<String>,
    dialect: Dialect,
}

impl Helper {
    /// Creates a helper with a session's names and the names of functions.
    pub fn new(session: Arc<Session>, functions: Vec<String>, dialect: Dialect) -> Helper {
        Helper { session, functions, dialect }
    }

    /// Returns names that begin with a word, given the text around it.
    fn names(&self, word: &str, text: &str) -> Vec<String> {
        let tables = self.session.tables.names();
        let is_named = |table: &&String| words(text).any(|one| one.eq_ignore_ascii_case(table));
        let columns: Vec<String> = tables
            .iter()
            .filter(is_named)
            .filter_map(|table| self.session.tables.about(table))
            .flat_map(|about| about.columns.into_iter().map(|column| column.name))
            .collect();
        let is_lower = word.chars().any(|c| c.is_ascii_lowercase());
        let keyword = |keyword: &&str| match is_lower {
            true => keyword.to_lowercase(),
            false => (*keyword).to_owned(),
        };
        let functions = self.functions.iter().map(|name| format!("{name}("));
        let keywords = KEYWORDS.iter().map(keyword);
        let all = columns.into_iter().chain(tables).chain(keywords).chain(functions);
        let begins = |name: &String| {
            name.len() > word.len()
                && name.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word))
        };
        let mut names: Vec<String> = Vec::new();
        all.filter(begins).for_each(|name| {
            if !names.contains(&name) {
                names.push(name)
            }
        });
        names
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty())
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Completer for Helper {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> Result<(usize, Vec<Pair>)> {
        let before = &line[..at];
        let pair = |name: String| Pair { display: name.clone(), replacement: name };
        if before.starts_with('\\') && !before.contains(' ') {
            let names = COMMANDS.iter().map(|(name, _)| name.split(' ').next().unwrap_or(name));
            let mut names: Vec<&str> = names.filter(|name| name.starts_with(before)).collect();
            names.dedup();
            return Ok((0, names.into_iter().map(|name| pair(name.to_owned())).collect()));
        }
        let start = before
            .rfind(|c| !is_of_word(c))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        let word = &before[start..];
        if word.is_empty() {
            return Ok((at, Vec::new()));
        }
        Ok((start, self.names(word, line).into_iter().map(pair).collect()))
    }
}

impl Validator for Helper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> Result<ValidationResult> {
        let text = context.input();
        let is_command = text.trim_start().starts_with('\\');
        Ok(match is_command || statements::is_complete(text, self.dialect) {
            true => ValidationResult::Valid(None),
            false => ValidationResult::Incomplete,
        })
    }
}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {}

impl rustyline::Helper for Helper {}
