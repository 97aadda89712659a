//! Explains a server's error to the user of a query. Only the important line of the error is shown.

use std::error::Error;

use prost::Message;
use tonic::{Code, Status};
use tprof_ui::columns::printable;
use tprof_ui::errors::Failure;

use super::address::{Address, TOKEN};
use super::answer::{StreamFailure, is_of_connection};
use super::client::{Client, SessionHealth};
use super::connection::innermost;
use super::messages::{ErrorInfo, RpcStatus, ServerError};
use crate::query_failure::{QueryFailure, excerpt, no_column_of, no_table};
use crate::session::Session;
use crate::status::QUERY;

/// Number of characters of a message to show.
const LONGEST: usize = 300;

/// Explains a failed execution of a statement.
pub async fn of(
    broken: StreamFailure,
    client: &Client,
    text: &str,
    session: &Session,
) -> QueryFailure {
    match broken {
        StreamFailure::Status(status) if is_of_statement(&status) => {
            of_statement(&whole(&status, client).await, text, session)
        }
        other => of_request(other, client).into(),
    }
}

/// Whether the error is about the request itself, and not about the user or the connection.
fn is_of_statement(status: &Status) -> bool {
    // tonic makes such a status of the answer of an HTTP server that doesn't speak gRPC.
    let is_other_server = status.message().contains("mapped from HTTP")
        || status.code() == Code::Unimplemented
            && (status.message().is_empty() || status.message().contains("Method"));
    if is_other_server {
        return false;
    }
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => false,
        _ => !is_of_connection(status),
    }
}

/// Explains any failed request.
fn of_request(broken: StreamFailure, client: &Client) -> Failure {
    let shown = client.address.shown();
    let status = match broken {
        StreamFailure::Status(status) => status,
        StreamFailure::Restarted => {
            client.record_health(SessionHealth::Lost);
            return Failure::new(format!("the server {shown} was started again"))
                .cause("it no longer has the query or its tables; tprof kept no part of the result")
                .hint("the same command again")
                .code(QUERY);
        }
        StreamFailure::Unreadable(why) => {
            return Failure::new(format!("the answer of {shown} cannot be read"))
                .cause(why)
                .hint("the same command again; servers of Spark 3.4 and later are known to work")
                .code(QUERY);
        }
    };
    match status.code() {
        _ if is_of_connection(&status) => {
            client.record_health(SessionHealth::Unreachable);
            lost(&client.address, &status)
        }
        Code::Unauthenticated | Code::PermissionDenied => {
            Failure::new(format!("the server {shown} refuses access"))
                .cause(one_line(status.message()))
                .hint(format!("{TOKEN}, or user_id and headers in --remote"))
                .code(QUERY)
        }
        _ => Failure::new(format!("{shown} is not a Spark Connect server"))
            .cause(one_line(status.message()))
            .hint("Spark Connect listens on port 15002 by default")
            .code(QUERY),
    }
}

/// Explains a table or view that could not be created on the server.
pub async fn of_table(broken: StreamFailure, client: &Client, name: &str) -> QueryFailure {
    let status = match broken {
        StreamFailure::Status(status) if is_of_statement(&status) => status,
        other => return of_request(other, client).into(),
    };
    let message = whole(&status, client).await;
    let what = format!("the server cannot read the table or view `{name}`");
    Failure::new(what)
        .cause(one_line(after_class(&message)))
        .hint("--remote-data FROM=TO, where the server has the files under another name")
        .code(QUERY)
        .into()
}

fn lost(address: &Address, status: &Status) -> Failure {
    let why = match status.source() {
        Some(error) => innermost(error),
        None => one_line(status.message()),
    };
    Failure::new(format!(
        "the connection to {} broke, and tprof could not restore it",
        address.shown()
    ))
    .cause(format!("{why}; tprof kept no part of the result"))
    .hint("the same command again; the server's log")
    .code(QUERY)
}

/// Returns the complete message of an error, because the server cuts the message in a status.
async fn whole(status: &Status, client: &Client) -> String {
    let info = RpcStatus::decode(status.details()).ok().and_then(|status| {
        let is_info = |url: &str| url.ends_with("google.rpc.ErrorInfo");
        let detail = status.details.into_iter().find(|detail| is_info(&detail.type_url))?;
        ErrorInfo::decode(detail.value).ok()
    });
    let id = info.and_then(|mut info| info.metadata.remove("errorId"));
    let all = match id {
        Some(id) => client.details(id).await,
        None => None,
    };
    let message = all.and_then(|all| root(&all.errors, all.root.unwrap_or_default()));
    message.unwrap_or_else(|| status.message().to_owned())
}

/// Returns the message of the deepest cause that has one of Spark's error classes, otherwise the
/// message of the error itself.
fn root(errors: &[ServerError], first: i32) -> Option<String> {
    let at = |index: i32| errors.get(usize::try_from(index).ok()?);
    let mut found: Option<&ServerError> = at(first);
    let mut next = found;
    // The number of steps is limited, because a hostile server could send causes in a cycle.
    for _ in 0..errors.len() {
        let Some(error) = next else { break };
        if class(&error.message).is_some() {
            found = Some(error);
        }
        next = error.cause.and_then(at);
    }
    found.map(|error| error.message.clone()).filter(|message| !message.is_empty())
}

/// Returns `TABLE_OR_VIEW_NOT_FOUND` for `[TABLE_OR_VIEW_NOT_FOUND] The table …`.
fn class(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once('[')?;
    let (class, _) = rest.split_once(']')?;
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || "_.".contains(c);
    (class.len() > 3 && class.chars().all(is_name)).then_some(class)
}

fn of_statement(message: &str, text: &str, session: &Session) -> QueryFailure {
    let class = class(message).unwrap_or_default();
    let words = after_class(message);
    let name = quoted(words);
    let failure = match (class, name) {
        (class, Some(name)) if class.starts_with("TABLE_OR_VIEW_NOT_FOUND") => {
            no_table(last_part(name), session)
        }
        (class, Some(name)) if class.starts_with("UNRESOLVED_COLUMN") => {
            no_column_of(last_part(name), text, session)
        }
        (class, Some(name)) if class.starts_with("UNRESOLVED_ROUTINE") => {
            no_function(last_part(name))
        }
        // These are messages of Sail.
        ("", _) if words.contains("cannot resolve attribute") => {
            no_column_of(of_sail(words).unwrap_or("?"), text, session)
        }
        ("", _) if words.starts_with("unknown function: ") => {
            let name = words.trim_start_matches("unknown function: ");
            no_function(&one_line(name))
        }
        (class, _) if class.starts_with("PARSE_SYNTAX_ERROR") => {
            Failure::new("the server cannot parse the query")
                .cause(one_line(words))
                .hint("quote names in `backticks` and texts in single quotes")
        }
        (class, _) if class.contains("FILE") || class.starts_with("PATH_NOT_FOUND") => {
            Failure::new("the server cannot read the data")
                .cause(one_line(words))
                .hint("--remote-data FROM=TO, where the server has the files under another name")
        }
        _ => Failure::new("the query failed on the server")
            .cause(one_line(words))
            .hint("SHOW TABLES; DESCRIBE TABLE; the query must be in the server's SQL dialect"),
    };
    QueryFailure::Query {
        failure: failure.code(QUERY),
        excerpt: place(message).and_then(|(line, column)| excerpt(text, line, column)),
    }
}

fn no_function(name: &str) -> Failure {
    Failure::new(format!("the server has no function `{name}`"))
        .cause("with --remote a query has only the server's functions")
        .hint("SHOW FUNCTIONS lists them")
}

/// Returns `b` for `ObjectName([Identifier("a"), Identifier("b")])`.
fn of_sail(text: &str) -> Option<&str> {
    let (names, _) = text.split_once("\")])")?;
    names.rsplit_once("Identifier(\"").map(|(_, name)| name)
}

fn after_class(message: &str) -> &str {
    match class(message).and_then(|class| message.split_once(&format!("[{class}]"))) {
        Some((_, rest)) => rest.trim_start(),
        None => message.trim_start(),
    }
}

/// Returns the first name in backticks, which may have several parts: `` `a`.`b` ``.
fn quoted(text: &str) -> Option<&str> {
    let start = text.find('`')?;
    let rest = &text[start..];
    let end = rest.find([' ', ',', '\n']).unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches(['.', ';']))
}

fn last_part(name: &str) -> &str {
    name.rsplit("`.`").next().unwrap_or(name).trim_matches('`')
}

/// Returns the first line, without what Spark adds to every message.
fn one_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let line = line.split(" SQLSTATE: ").next().unwrap_or(line);
    let line = line.trim().trim_end_matches('.');
    line.chars().take(LONGEST).map(printable).collect()
}

/// Parses `line 1 pos 14`: lines count from 1, columns from 0.
fn place(message: &str) -> Option<(u64, u64)> {
    let (_, rest) = message.rsplit_once("line ").filter(|(_, rest)| rest.contains("pos "))?;
    let (line, rest) = rest.split_once([',', ' '])?;
    let (_, column) = rest.split_once("pos ")?;
    let digits = column.find(|c: char| !c.is_ascii_digit()).unwrap_or(column.len());
    Some((line.trim().parse().ok()?, column[..digits].parse::<u64>().ok()? + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: &str = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `a`.`kernel` cannot be found. \
        Verify the spelling.\nTo tolerate the error on drop use DROP VIEW IF EXISTS. SQLSTATE: 42P01; \
        line 2 pos 14;\n'Project [*]\n+- 'UnresolvedRelation [kernel], [], false\n";

    #[test]
    fn a_message_of_spark_has_a_class_a_name_and_a_place() {
        assert_eq!(class(MISSING), Some("TABLE_OR_VIEW_NOT_FOUND"));
        assert_eq!(quoted(after_class(MISSING)).map(last_part), Some("kernel"));
        assert_eq!(place(MISSING), Some((2, 15)));
        assert_eq!(
            one_line(after_class(MISSING)),
            "The table or view `a`.`kernel` cannot be found. Verify the spelling"
        );
        assert_eq!(class("Task 0 in stage [1] failed"), None);
        assert_eq!(place("a line of text"), None);
        let sail = "attribute ObjectName([Identifier(\"a\"), Identifier(\"b\")]) is missing";
        assert_eq!(of_sail(sail), Some("b"));
    }

    #[test]
    fn the_deepest_cause_with_a_class_is_shown() {
        let error = |message: &str, cause| ServerError { message: message.into(), cause };
        let errors = [
            error("Job aborted", Some(1)),
            error("[FAILED_READ_FILE] cannot read", Some(2)),
            error("null", Some(0)),
        ];
        assert_eq!(root(&errors, 0).unwrap(), "[FAILED_READ_FILE] cannot read");
        assert_eq!(root(&[], 0), None);
    }
}
