//! Errors of the server: what failed, why, and what to try.

use std::fmt;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error, as printed on the terminal or sent as an answer.
#[derive(Clone, Debug)]
pub struct Failure {
    /// HTTP status of the answer.
    pub status: StatusCode,
    /// The operation that failed, in words.
    pub what: String,
    /// Why it failed.
    pub why: String,
    /// Advice: something to try.
    pub hint: String,
}

impl Failure {
    /// Creates a failure of the server itself.
    pub fn new(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            what: what.into(),
            why: why.to_string(),
            hint: String::new(),
        }
    }

    /// Sets the advice.
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = hint.into();
        self
    }

    /// Sets the HTTP status of the answer.
    pub fn status(mut self, status: StatusCode) -> Failure {
        self.status = status;
        self
    }

    /// Creates a failure for something that does not exist.
    pub fn absent(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure::new(what, why).status(StatusCode::NOT_FOUND)
    }

    /// Creates a failure for an invalid request.
    pub fn misuse(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure::new(what, why).status(StatusCode::BAD_REQUEST)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

impl std::error::Error for Failure {}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({ "error": self.what, "why": self.why, "try": self.hint });
        (self.status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
    }
}
