//! What a store's error is for the user of an archive.

use std::error::Error as _;

use crate::terminal::errors::Failure;

/// Exit status where an archive could not be written or read.
pub const FAILED: u8 = crate::status::QUERY;

/// Of addresses at which clients look for credentials when the environment has none.
const MACHINE_ROLES: [&str; 4] =
    ["/latest/api/token", "/latest/meta-data", "/computeMetadata/", "/metadata/identity/"];

/// Of errors of clients that the environment makes without credentials.
const NO_CREDENTIALS: [&str; 3] =
    ["Missing AccessKeyId", "Missing SecretAccessKey", "Account must be specified"];

/// Of the error of a client that may not use an address with `http://`.
const NO_TLS: &str = "URL scheme is not allowed";

/// Whether only the object is not there; a store has the same kind of error for a bucket.
pub fn is_missing_object(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && !is_missing_bucket(&whole(error))
}

fn is_missing_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"]
        .iter()
        .any(|of| text.contains(of))
}

/// What failures name of a store.
#[derive(Clone, Copy, Debug)]
pub struct Store<'p> {
    /// Its address, without secrets.
    pub shown: &'p str,
    /// Bucket or container; empty of a directory.
    pub bucket: &'p str,
    /// Variables of the environment that give access.
    pub variables: &'static str,
    /// Whether it is a directory of this machine.
    pub is_directory: bool,
}

/// A failed request; `verb` is what was to be done with the archive.
pub fn of(error: &object_store::Error, store: Store<'_>, verb: &str) -> Failure {
    let text = whole(error);
    let Store { shown, bucket, variables, is_directory } = store;
    let failure = match error {
        _ if is_directory => Failure::new(format!("cannot {verb} the archive {shown}"))
            .cause(innermost(error))
            .hint("free space, permissions, or another directory"),
        _ if MACHINE_ROLES.iter().any(|part| text.contains(part))
            || NO_CREDENTIALS.iter().any(|part| text.contains(part)) =>
        {
            Failure::new(format!("no credentials for {shown}"))
                .cause("neither the environment nor a role of this machine gives them")
                .hint(variables)
        }
        _ if text.contains(NO_TLS) => {
            Failure::new(format!("the address of the store of {shown} is without TLS"))
                .cause("what gives access would be sent to it")
                .hint("AWS_ALLOW_HTTP=true, or https:// in AWS_ENDPOINT_URL")
        }
        _ if is_missing_bucket(&text) => Failure::new(format!("there is no bucket `{bucket}`"))
            .cause(format!("the store of {shown} does not know it"))
            .hint("create it with the store's own tools, or another address"),
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => {
            Failure::new(format!("the store refuses to {verb} {shown}"))
                .cause(
                    answer(&text).unwrap_or_else(|| "the credentials do not permit it".to_owned()),
                )
                .hint(variables)
        }
        _ if text.contains("error sending request") || text.contains("timed out") => {
            Failure::new(format!("cannot reach the store of {shown}"))
                .cause(innermost(error))
                .hint("AWS_ENDPOINT_URL, AWS_ALLOW_HTTP=true of a server without TLS, HTTPS_PROXY")
        }
        _ => Failure::new(format!("cannot {verb} the archive {shown}"))
            .cause(answer(&text).unwrap_or_else(|| innermost(error)))
            .hint(format!("tprof archive --check {shown}")),
    };
    failure.code(FAILED)
}

/// Its own words and those of all its causes.
fn whole(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += ": ";
        text += &error.to_string();
        cause = error.source();
    }
    text
}

/// The words of the last cause.
fn innermost(error: &object_store::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let text = last.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Code and message of a server's answer in XML.
fn answer(text: &str) -> Option<String> {
    let within = |tag: &str| {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        rest.split_once('<').map(|(text, _)| text.trim())
    };
    let code = within("Code")?;
    Some(match within("Message") {
        Some(message) => format!("{code}: {}", message.trim_end_matches('.')),
        None => code.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_answer_is_its_code_and_message() {
        let text = "status 403: <Error><Code>AccessDenied</Code><Message>No.</Message></Error>";
        assert_eq!(answer(text).unwrap(), "AccessDenied: No");
        assert_eq!(answer("refused"), None);
    }
}
