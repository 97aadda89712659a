//! Answers with pages: the server's own page, and pages that exports write.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::export::exported;
use crate::app::App;
use crate::failure::Failure;
use crate::http::Token;
use crate::nonce::with_nonce;
use crate::work::Output;

/// Exports that are pages.
pub const PAGES: [&str; 3] = ["timeline", "flame", "report"];
/// Longest page to serve, bytes. The whole page is in memory while it is sent.
const MAX_BYTES: u64 = 512 << 20;

/// Answers `GET /`.
pub async fn shell() -> Result<Response, Failure> {
    let nonce = nonce()?;
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data: blob:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    Ok(html(policy, tprof_present::shell(&nonce)))
}

/// Answers `GET /api/v1/runs/ID/page/PAGE`.
pub async fn page(
    State(app): State<Arc<App>>,
    Path((id, name)): Path<(u32, String)>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Result<Response, Failure> {
    let run = app.run(id)?;
    // Exported pages link to each other by file name, `flame.html` for example.
    let format = name.strip_suffix(".html").unwrap_or(&name);
    if !PAGES.contains(&format) {
        return Err(Failure::absent(
            format!("there is no page `{name}`"),
            "no export of this name is a page",
        )
        .hint(PAGES.join(", ")));
    }
    let output = exported(&app, &run, format, &[], &query).await?;
    of_export(&output)
}

/// Returns the page that an export wrote, with a nonce for this answer.
pub fn of_export(output: &Output) -> Result<Response, Failure> {
    let page =
        output.read_all(MAX_BYTES).map_err(|error| Failure::new("cannot send the page", error))?;
    let nonce = nonce()?;
    // Inline styles are allowed, as in the exported page's own policy, because its drawings set
    // them.
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data: blob:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    );
    Ok(html(policy, with_nonce(&page, &nonce)))
}

fn html(policy: String, page: impl Into<axum::body::Body>) -> Response {
    let headers =
        [(CONTENT_TYPE, "text/html; charset=utf-8".to_owned()), (CONTENT_SECURITY_POLICY, policy)];
    (headers, page.into()).into_response()
}

fn nonce() -> Result<String, Failure> {
    let random = Token::random().map_err(|error| Failure::new("cannot send the page", error))?;
    Ok(random.text().to_owned())
}
