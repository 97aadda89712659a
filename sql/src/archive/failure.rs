//! Explains a store's errors to the user of an archive.

use tprof_ui::errors::{Failure, reason};

use super::client::{Kind, Unusable};

/// Exit status if an archive could not be written or read.
pub const FAILED: u8 = crate::status::QUERY;

/// Addresses of the cloud's metadata services, which clients ask for credentials if the environment
/// has none. An error about one of them means that there are no credentials.
const MACHINE_ROLES: [&str; 4] =
    ["/latest/api/token", "/latest/meta-data", "/computeMetadata/", "/metadata/identity/"];

/// Errors of clients that were created without credentials.
const NO_CREDENTIALS: [&str; 3] =
    ["Missing AccessKeyId", "Missing SecretAccessKey", "Account must be specified"];

/// Error of a client that may not use an `http://` address.
const NO_TLS: &str = "URL scheme is not allowed";

/// Whether an object is missing in an existing bucket. A store reports a missing bucket with the
/// same kind of error.
pub fn is_missing_object(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && !is_missing_bucket(&whole(error))
}

fn is_missing_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"]
        .iter()
        .any(|of| text.contains(of))
}

/// Describes a store in error messages.
#[derive(Clone, Copy, Debug)]
pub struct Store<'p> {
    /// Its address, without secrets.
    pub shown: &'p str,
    /// Bucket or container; empty for a directory.
    pub bucket: &'p str,
    /// Kind of store.
    pub kind: &'p Kind,
}

/// Explains settings of the environment that are unusable for a client. Causes reported by
/// libraries are not repeated, because they may quote a value.
pub fn of_settings(error: &object_store::Error, store: Store<'_>) -> Failure {
    if NO_CREDENTIALS.iter().any(|part| whole(error).contains(part)) {
        return of(error, store, "open");
    }
    let why = causes(error).find_map(|cause| {
        let own = cause.downcast_ref::<Unusable>().map(|of| of.0.clone());
        let file = || cause.downcast_ref::<std::io::Error>().map(reason);
        own.or_else(file).or_else(|| cause.downcast_ref().map(of_json))
    });
    Failure::new(format!("the credentials for {} cannot be used", store.shown))
        .cause(why.unwrap_or_else(|| "the client of the store cannot read them".to_owned()))
        .hint(store.kind.access())
        .code(FAILED)
}

/// Explains a file of credentials that the client cannot parse.
fn of_json(error: &serde_json::Error) -> String {
    // The error names the kind of the credentials. The kind may be shown, because it isn't secret,
    // and it should be, because `external_account` is frequent.
    if error.to_string().starts_with("unknown variant") {
        return "their `type` is neither service_account nor authorized_user".to_owned();
    }
    let (line, column) = (error.line(), error.column());
    format!("line {line}, column {column} of them are not as the store's tools write them")
}

/// Explains a failed request. `verb` names the operation on the archive that failed.
pub fn of(error: &object_store::Error, store: Store<'_>, verb: &str) -> Failure {
    let text = whole(error);
    let Store { shown, bucket, kind } = store;
    let failure = match error {
        _ if matches!(kind, Kind::Directory(_)) => {
            Failure::new(format!("cannot {verb} the archive {shown}"))
                .cause(innermost(error))
                .hint("free space, permissions, or another directory")
        }
        _ if MACHINE_ROLES.iter().any(|part| text.contains(part))
            || NO_CREDENTIALS.iter().any(|part| text.contains(part)) =>
        {
            Failure::new(format!("no credentials for {shown}"))
                .cause("neither the environment nor a role of this machine gives them")
                .hint(kind.access())
        }
        _ if text.contains(NO_TLS) => {
            Failure::new(format!("the address of the store of {shown} is without TLS"))
                .cause("what gives access would be sent to it")
                .hint(kind.without_tls())
        }
        _ if is_missing_bucket(&text) => Failure::new(format!("there is no bucket `{bucket}`"))
            .cause(format!("the store of {shown} does not know it"))
            .hint("create it with the store's own tools, or another address"),
        _ if is_refused(error, &text) => {
            Failure::new(format!("the store refuses to {verb} {shown}"))
                .cause(
                    answer(&text).unwrap_or_else(|| "the credentials do not permit it".to_owned()),
                )
                .hint(kind.access())
        }
        _ if text.contains("error sending request") || text.contains("timed out") => {
            Failure::new(format!("cannot reach the store of {shown}"))
                .cause(innermost(error))
                .hint(kind.reach())
        }
        _ => Failure::new(format!("cannot {verb} the archive {shown}"))
            .cause(answer(&text).unwrap_or_else(|| innermost(error)))
            .hint(format!("tprof archive --check {shown}")),
    };
    failure.code(FAILED)
}

/// Whether the store refused the request, because it does not know the user or does not permit the
/// operation. For listings, the client has no error kind for that.
fn is_refused(error: &object_store::Error, text: &str) -> bool {
    use object_store::Error::{PermissionDenied, Unauthenticated};
    matches!(error, PermissionDenied { .. } | Unauthenticated { .. })
        || ["status code: 401", "status code: 403"].iter().any(|part| text.contains(part))
}

/// Iterates over the error and its causes, the first cause last.
fn causes(error: &object_store::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |error| error.source())
}

/// Joins the messages of the error and of all its causes.
fn whole(error: &object_store::Error) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns the message of the last cause.
fn innermost(error: &object_store::Error) -> String {
    let text = causes(error).last().map(ToString::to_string).unwrap_or_default();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Finds the code and message of a server's XML answer, which may be within other text.
pub fn answer(text: &str) -> Option<String> {
    let within = |tag: &str| {
        let (_, rest) = text.split_once(&format!("<{tag}>"))?;
        rest.split_once('<').map(|(text, _)| text.trim())
    };
    let code = within("Code")?;
    Some(match within("Message") {
        // Azure appends the id and the time of the request.
        Some(message) => {
            let message = message.split(['\n', '\r']).next().unwrap_or(message);
            let message = message.split("RequestId:").next().unwrap_or(message).trim();
            format!("{code}: {}", message.trim_end_matches('.'))
        }
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
        let text =
            "<Code>BlobNotFound</Code><Message>There is none.\nRequestId:1\nTime:2</Message>";
        assert_eq!(answer(text).unwrap(), "BlobNotFound: There is none");
    }
}
