//! Explains a failed query to its user: the place in the query, the failure, its cause, and advice.

use datafusion::common::{Column, SchemaError};
use datafusion::error::DataFusionError;
use tprof_ui::errors::{Failure, nearest, print_stderr, show};

use crate::allowed::{ALLOWED, Refused};
use crate::archive::failure::answer;
use crate::session::Session;
use crate::statements::Unparsed;
use crate::status::QUERY;

/// Reasons why a query has no result, or only a part of it.
#[derive(Debug)]
pub enum QueryFailure {
    /// The query or its execution failed.
    Query {
        /// The failure and its cause.
        failure: Failure,
        /// The line, with a mark below the place.
        excerpt: Option<String>,
    },
    /// Nobody reads stdout any more.
    NobodyReads,
    /// A signal ended the query. The program exits with this status.
    Ended(u8),
}

impl From<Failure> for QueryFailure {
    fn from(failure: Failure) -> QueryFailure {
        QueryFailure::Query { failure, excerpt: None }
    }
}

impl From<std::io::Error> for QueryFailure {
    fn from(error: std::io::Error) -> QueryFailure {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return QueryFailure::NobodyReads;
        }
        Failure::new("cannot write the result")
            .cause(error.to_string())
            .hint("-o FILE")
            .code(QUERY)
            .into()
    }
}

impl From<Refused> for QueryFailure {
    fn from(Refused { what, hint }: Refused) -> QueryFailure {
        let hint = if hint.is_empty() { "tprof sql --help" } else { hint };
        Failure::new(format!("{what} is refused: queries only read"))
            .cause(format!("the allowed statements are {ALLOWED}"))
            .hint(hint)
            .code(QUERY)
            .into()
    }
}

impl From<Unparsed> for QueryFailure {
    fn from(Unparsed { text, error }: Unparsed) -> QueryFailure {
        let message = message(&error);
        let place = place_in(&message);
        let what = message.split(" at Line:").next().unwrap_or(&message);
        let what = what.trim_start_matches("sql parser error: ").trim_start_matches("ParserError(");
        let hint = "several statements are separated by `;`, texts are in single quotes";
        QueryFailure::Query {
            failure: Failure::new("the query is not SQL")
                .cause(sentence(what))
                .hint(hint)
                .code(QUERY),
            excerpt: place.and_then(|(line, column)| excerpt(&text, line, column)),
        }
    }
}

impl QueryFailure {
    /// Converts an error of the engine in a statement.
    pub fn of(error: &DataFusionError, text: &str, session: &Session) -> QueryFailure {
        if let Some(io) = io_error(error)
            && io.kind() == std::io::ErrorKind::BrokenPipe
        {
            return QueryFailure::NobodyReads;
        }
        let span = error.diagnostic().and_then(|of| of.span);
        QueryFailure::Query {
            failure: failure(error, session).code(QUERY),
            excerpt: span.and_then(|span| excerpt(text, span.start.line, span.start.column)),
        }
    }

    /// Prints the failure and returns the exit status.
    pub fn show(self) -> u8 {
        match self {
            QueryFailure::NobodyReads => 0,
            QueryFailure::Ended(status) => status,
            QueryFailure::Query { failure, excerpt } => {
                print_stderr(&excerpt.unwrap_or_default());
                show(&failure.into())
            }
        }
    }
}

fn io_error(error: &DataFusionError) -> Option<&std::io::Error> {
    match error.find_root() {
        DataFusionError::IoError(error) => Some(error),
        _ => None,
    }
}

fn failure(error: &DataFusionError, session: &Session) -> Failure {
    let root = innermost(error);
    if let DataFusionError::SchemaError(schema, _) = root {
        return of_schema(schema);
    }
    let message = message(root);
    if let Some(name) = quoted(&message, "table '", "' not found") {
        return no_table(name.rsplit('.').next().unwrap_or(name), session);
    }
    let function = quoted(&message, "Invalid function '", "'")
        .or_else(|| quoted(&message, "table function '", "' not found"))
        .or_else(|| quoted(&message, "Table function '", "' not found"));
    if let Some(name) = function {
        let names = session.functions();
        let near = nearest(name, names.iter().map(String::as_str));
        return Failure::new(format!("there is no function `{name}`"))
            .cause(near_or("the engine's and tprof's functions have other names", near))
            .hint("`\\f` at the prompt and `SHOW FUNCTIONS` list them");
    }
    if let Some((_, why)) = message.rsplit_once(OF_STORE) {
        let why = match why.split_once(OF_REQUEST) {
            Some((object, why)) => match answer(why) {
                Some(answer) => format!("{object}: {answer}"),
                None => format!("{object}: {}", why.rsplit(" - ").next().unwrap_or(why)),
            },
            None => why.split(" (os error").next().unwrap_or(why).to_owned(),
        };
        return Failure::new("cannot read an object of an archive")
            .cause(sentence(&why))
            .hint("tprof archive --check DIR|URL");
    }
    match root {
        DataFusionError::ResourcesExhausted(_) => {
            Failure::new("the query needs more memory than it may have")
                .cause(of_memory(&message))
                .hint("--memory-limit SIZE, --threads 1, or a query over fewer rows")
        }
        DataFusionError::NotImplemented(_) => Failure::new("the engine cannot do that")
            .cause(sentence(&message))
            .hint("EXPLAIN; tprof sql --help"),
        _ => Failure::new("the query failed")
            .cause(sentence(&message))
            .hint("SHOW TABLES; DESCRIBE TABLE"),
    }
}

/// Text before a store's message in an error of a reader.
const OF_STORE: &str = "Object Store error: ";
/// Text between the path of an object and the request that failed.
const OF_REQUEST: &str = ": Error performing ";

/// Returns from an out-of-memory message the operator that requested the memory, without the list
/// of all other operators and their totals.
fn of_memory(message: &str) -> String {
    let (before, after) = message.split_once(" with top memory consumers").unwrap_or((message, ""));
    match after.rsplit_once("Error: ") {
        Some((_, why)) => sentence(why),
        None => sentence(before),
    }
}

/// Explains a missing table, and suggests the most similar one.
pub fn no_table(name: &str, session: &Session) -> Failure {
    let what = format!("there is no table `{name}`");
    if session.is_empty() {
        return Failure::new(what)
            .cause("no run was named, and there is none in this directory")
            .hint("tprof sql RUN \"SELECT …\"; tprof ls DIR");
    }
    let names = session.tables.names();
    let near = nearest(name, names.iter().map(String::as_str));
    Failure::new(what)
        .cause(near_or("the tables of a run have other names", near))
        .hint("`SHOW TABLES` lists them")
}

fn of_schema(error: &SchemaError) -> Failure {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => no_column(field, valid_fields),
        SchemaError::AmbiguousReference { field } => {
            Failure::new(format!("`{}` may be a column of several tables", field.name))
                .cause("more than one table of the query has it")
                .hint(format!("TABLE.{}", field.name))
        }
        other => Failure::new("two columns have the same name")
            .cause(sentence(&other.to_string()))
            .hint("AS gives one of them another name"),
    }
}

fn no_column(field: &Column, there: &[Column]) -> Failure {
    let near = nearest(&field.name, there.iter().map(|column| column.name.as_str()));
    let mut tables: Vec<&str> = Vec::new();
    for column in there {
        let table = column.relation.as_ref().map(|table| table.table());
        tables.extend(table.filter(|table| !tables.contains(table)));
    }
    let (of, hint) = match (&field.relation, tables[..].first()) {
        (Some(table), _) => (format!(" in `{}`", table.table()), table.table().to_owned()),
        (None, Some(table)) if tables.len() == 1 => (format!(" in `{table}`"), (*table).to_owned()),
        (None, table) => (String::new(), table.map_or("TABLE", |table| table).to_owned()),
    };
    Failure::new(format!("there is no column `{}`{of}", field.name))
        .cause(near_or("its columns have other names", near))
        .hint(format!("`DESCRIBE {hint}` lists the columns; texts are in single quotes"))
}

/// Explains a column that none of the query's tables has, and suggests the most similar one.
pub fn no_column_of(name: &str, text: &str, session: &Session) -> Failure {
    let words: Vec<String> =
        text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_lowercase).collect();
    let tables = session.tables.names().into_iter().filter(|table| words.contains(table));
    let columns = tables.flat_map(|table| {
        let schema = session.tables.schema(&table);
        let fields =
            schema.map(|schema| schema.fields().iter().map(|of| of.name().clone()).collect());
        let fields: Vec<String> = fields.unwrap_or_default();
        fields.into_iter().map(move |field| Column::new(Some(table.clone()), field))
    });
    no_column(&Column::from_name(name), &columns.collect::<Vec<_>>())
}

fn near_or(otherwise: &str, near: Option<&str>) -> String {
    near.map_or_else(|| otherwise.to_owned(), |near| format!("the nearest name is `{near}`"))
}

fn quoted<'a>(message: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(before)?;
    rest.split_once(after).map(|(name, _)| name)
}

/// Returns the innermost error. If there are several, follows the first.
fn innermost(error: &DataFusionError) -> &DataFusionError {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            innermost(inner)
        }
        DataFusionError::Shared(inner) => innermost(inner),
        DataFusionError::Collection(all) => all.first().map_or(error, innermost),
        other => other,
    }
}

/// Returns the message without the kind of error.
fn message(error: &DataFusionError) -> String {
    let error = innermost(error);
    match error {
        DataFusionError::SQL(error, _) => error.to_string(),
        other => other.message().into_owned(),
    }
}

/// Removes the full stop, because error lines have none.
fn sentence(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or(text);
    first.trim().trim_end_matches('.').to_owned()
}

/// Returns the line and column stated in a message.
fn place_in(message: &str) -> Option<(u64, u64)> {
    let (_, rest) = message.rsplit_once("Line: ")?;
    let (line, rest) = rest.split_once(", Column: ")?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((line.parse().ok()?, rest[..digits].parse().ok()?))
}

/// Returns the line, and a mark below a column of it; both count from 1.
pub fn excerpt(text: &str, line: u64, column: u64) -> Option<String> {
    let shown = text.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?)?;
    let column = usize::try_from(column).ok()?.checked_sub(1)?;
    let number = line.to_string();
    let margin = " ".repeat(number.len());
    // Tabs are copied, so that the mark is below its character however wide a tab is.
    let before: String =
        shown.chars().take(column).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let shown: String = shown
        .chars()
        .map(|c| if c == '\t' { c } else { tprof_ui::columns::printable(c) })
        .collect();
    Some(format!("{number} | {shown}\n{margin} | {before}^\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_below_its_column() {
        let text = "SELECT 1,\n\tfroms";
        assert_eq!(excerpt(text, 2, 2).unwrap(), "2 | \tfroms\n  | \t^\n");
        assert_eq!(excerpt(text, 1, 8).unwrap(), "1 | SELECT 1,\n  |        ^\n");
        assert_eq!(excerpt(text, 9, 1), None);
        assert_eq!(place_in("Expected: x, found: y at Line: 3, Column: 14"), Some((3, 14)));
    }
}
