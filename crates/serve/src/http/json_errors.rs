//! Converts errors of the router and of its parsers to the form of all other errors.

use axum::http::StatusCode;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Limited};

use crate::failure::Failure;

/// Longest error text to pass on, bytes.
const MAX_BYTES: usize = 4 << 10;

/// Returns the answer; an error that is not JSON becomes JSON, with its text as the reason.
pub async fn with_json_error(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let has_form = kind.is_some_and(|kind| kind.starts_with("application/json"));
    if !(status.is_client_error() || status.is_server_error()) || has_form {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = Limited::new(body, MAX_BYTES).collect().await;
    let text = text.map(|text| text.to_bytes()).unwrap_or_default();
    let failure = match status {
        StatusCode::METHOD_NOT_ALLOWED => Failure::new(
            "the path does not take this method",
            "the header Allow lists the methods that it takes",
        ),
        _ => Failure::new("cannot read the request", String::from_utf8_lossy(&text)),
    };
    let failure = failure.status(status).hint("GET /api/v1/openapi.json lists all");
    let mut explained = failure.into_response();
    if let Some(allowed) = parts.headers.get(ALLOW) {
        explained.headers_mut().insert(ALLOW, allowed.clone());
    }
    explained
}
