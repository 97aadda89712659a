//! Commands of the prompt, similar to those of `psql`.

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use std::sync::Arc;

use clap::ValueEnum;
use tprof_ui::args::ResultFormat as Format;
use tprof_ui::errors::{Failure, nearest};

use crate::execute;
use crate::query_failure::QueryFailure;
use crate::session::Session;
use crate::status::QUERY;

/// A command of the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `\d`: list tables
    Tables,
    /// `\d TABLE`: list its columns
    Columns(String),
    /// `\f`, with part of a name
    Functions(String),
    /// `\timing`: toggle timing
    Timing,
    /// `\format FORMAT`: set the format
    Format(Format),
    /// `\q`: leave the prompt
    Quit,
    /// `\?`: show help
    Help,
}

/// The commands as typed, and what they do.
pub const COMMANDS: [(&str, &str); 7] = [
    ("\\d", "list the tables"),
    ("\\d TABLE", "list a table's columns, and what they mean"),
    ("\\f [TEXT]", "list the functions, or those with TEXT in their names"),
    ("\\timing", "print how long statements take, or no longer"),
    ("\\format FORMAT", "form of results: table, csv, json, parquet, arrow"),
    ("\\?", "this list"),
    ("\\q", "leave; so does Ctrl-D"),
];

/// Parses the command after a backslash.
pub fn parse(line: &str) -> Result<Command, Failure> {
    let line = line.trim().trim_end_matches(';');
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match (name, rest) {
        ("d", "") => Ok(Command::Tables),
        ("d", table) => Ok(Command::Columns(table.to_owned())),
        ("f", text) => Ok(Command::Functions(text.to_lowercase())),
        ("timing", "") => Ok(Command::Timing),
        ("format", format) => Format::from_str(format, true).map(Command::Format).map_err(|_| {
            let names = Format::value_variants().iter().map(|format| format.name());
            let near = nearest(format, names.clone());
            Failure::new(format!("there is no format `{format}`"))
                .cause(format!("the formats are {}", names.collect::<Vec<_>>().join(", ")))
                .hint(format!("\\format {}", near.unwrap_or("table")))
                .code(QUERY)
        }),
        ("q" | "quit", "") => Ok(Command::Quit),
        ("?" | "h" | "help", "") => Ok(Command::Help),
        _ => Err(Failure::new(format!("there is no command `\\{name}` of this form"))
            .cause("commands of the prompt begin with a backslash")
            .hint("\\? lists them")
            .code(QUERY)),
    }
}

/// Returns the rows that a command shows.
pub fn answer(command: &Command, session: &Session) -> Result<RecordBatch, QueryFailure> {
    let rows = match command {
        Command::Columns(table) => execute::columns(session, table),
        Command::Functions(part) => execute::functions(session).and_then(|all| {
            let names = datafusion::common::cast::as_string_array(all.column(0))?;
            let is_wanted = |name: Option<&str>| Some(name?.contains(part.as_str()));
            let wanted = names.iter().map(is_wanted).collect();
            Ok(datafusion::arrow::compute::filter_record_batch(&all, &wanted)?)
        }),
        Command::Help => Ok(help()?),
        _ => execute::tables(session),
    };
    rows.map_err(|error| QueryFailure::of(&error, "", session))
}

fn help() -> Result<RecordBatch, QueryFailure> {
    let column = |texts: Vec<&str>| Arc::new(StringArray::from(texts)) as ArrayRef;
    let (commands, abouts) = COMMANDS.iter().copied().unzip();
    let field = |name| Field::new(name, DataType::Utf8, false);
    let schema = Schema::new(vec![field("command"), field("about")]);
    RecordBatch::try_new(Arc::new(schema), vec![column(commands), column(abouts)])
        .map_err(|error| std::io::Error::other(error.to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_with_and_without_their_words() {
        assert_eq!(parse("d").unwrap(), Command::Tables);
        assert_eq!(parse("d kernels;").unwrap(), Command::Columns("kernels".into()));
        assert_eq!(parse("format CSV").unwrap(), Command::Format(Format::Csv));
        assert_eq!(parse("format cvs").unwrap_err().hint.unwrap(), "\\format csv");
        assert!(parse("x").is_err());
    }
}
