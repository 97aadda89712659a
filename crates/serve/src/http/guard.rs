//! Checks every request before it is handled, and completes every answer before it is sent.
//!
//! A page elsewhere can send requests to any port of this machine. If the page is of the same site,
//! which includes every port of this host, its requests carry this host's cookies. It can also
//! point its own domain name to this machine. So a request must have the token and a `Host` of this
//! machine. If the browser says which page sent the request (`Origin`, `Sec-Fetch-Site`), that must
//! be a page of this server.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST,
    HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};

use super::json_errors::with_json_error;
use super::token::Token;
use crate::failure::Failure;

/// Longest body of a request in bytes.
const BODY_BYTES: usize = 16 << 10;
/// How long a client may take to send the body.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Header that a request must have to change something. An HTML form cannot send it.
pub const CHANGES: HeaderName = HeaderName::from_static("x-tprof");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Content policy of answers that set none themselves, because they are data and not pages.
const NO_CONTENT: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

/// The server's token, names and permissions, against which every request is checked.
#[derive(Debug)]
pub struct Guard {
    /// The secret token.
    pub token: Token,
    /// Host names of this machine, without port.
    pub hosts: Vec<String>,
    /// Port on which it listens.
    pub port: u16,
    /// Whether connections are encrypted.
    pub is_encrypted: bool,
    /// Whether changes are allowed.
    pub is_control: bool,
    /// Whether the server shows an archive, which no request may change.
    pub is_archive: bool,
}

impl Guard {
    fn cookie(&self) -> String {
        // The name contains the port, because all ports of a host share its cookies.
        format!("tprof-{}", self.port)
    }

    fn scheme(&self) -> &'static str {
        if self.is_encrypted { "https" } else { "http" }
    }

    /// Returns the address to open in a browser.
    pub fn address(&self) -> String {
        let host = self.hosts.first().map_or("127.0.0.1", String::as_str);
        format!("{}://{host}:{}/{}/", self.scheme(), self.port, self.token.text())
    }

    /// Whether `authority`, a host with or without a port, is an address of this server.
    fn is_own(&self, authority: &str) -> bool {
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
            _ => (authority, Some(if self.is_encrypted { 443 } else { 80 })),
        };
        let is_port = port == Some(self.port) || authority == host;
        is_port && self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    fn is_own_origin(&self, origin: &str) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        // An origin without a port has the scheme's default port. Unless this server listens there,
        // the page is of another server on this machine.
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let own_port = if self.is_encrypted { 443 } else { 80 };
        scheme == self.scheme() && (has_port || self.port == own_port) && self.is_own(authority)
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        if let Some(given) = text(headers, &AUTHORIZATION) {
            // Names of schemes are case-insensitive (RFC 9110, 11.1).
            let parts = given.trim().split_once(' ');
            return parts.is_some_and(|(scheme, given)| {
                scheme.eq_ignore_ascii_case("bearer") && self.token.is(given.trim())
            });
        }
        let name = self.cookie();
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|all| all.split(';')).filter_map(|one| one.split_once('='));
        pairs.any(|(own, value)| own.trim() == name && self.token.is(value.trim()))
    }

    /// Refuses requests that no page of this server sends.
    fn refuse(&self, request: &Request) -> Result<(), Failure> {
        let headers = request.headers();
        let foreign =
            |why: &str| Failure::new("the request is refused", why).status(StatusCode::FORBIDDEN);
        if !self.has_token(headers) {
            return Err(Failure::new("the request has no token", "neither a cookie nor a header has it")
                .status(StatusCode::UNAUTHORIZED)
                .hint("open the address that `tprof serve` printed, or send `Authorization: Bearer TOKEN`"));
        }
        let origin = text(headers, &ORIGIN);
        if origin.is_some_and(|origin| !self.is_own_origin(origin)) {
            return Err(foreign("a page elsewhere sent it"));
        }
        let site = text(headers, &FETCH_SITE);
        if site.is_some_and(|site| site != "same-origin" && site != "none") {
            return Err(foreign("a page elsewhere sent it")
                .hint("open the address that `tprof serve` printed"));
        }
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(());
        }
        if self.is_archive {
            return Err(foreign("an archive only grows: nothing of it is changed")
                .hint("tprof serve DIR --control, with the directory of the runs themselves"));
        }
        if !self.is_control {
            return Err(foreign(
                "this server was started without --control, so it changes nothing",
            )
            .hint("tprof serve --control"));
        }
        let is_asked = headers.contains_key(CHANGES);
        let is_from_page = site == Some("same-origin") || origin.is_some();
        if !is_asked || !is_from_page && !headers.contains_key(AUTHORIZATION) {
            return Err(foreign("it lacks the header `X-Tprof: 1`, or the page that sent it"));
        }
        Ok(())
    }

    /// Returns a page that sets the token as a cookie and then opens the address without the token.
    fn exchange_token(&self) -> Response {
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        let (name, token) = (self.cookie(), self.token.text());
        let cookie = format!("{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}");
        // A redirect would not work: the browser does not send the cookie along a redirect that
        // began on another page.
        let page = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
                    <meta http-equiv=\"refresh\" content=\"0; url=/\"><title>tprof</title></head>\
                    <body><p><a href=\"/\">Open the runs</a></p></body></html>\n";
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
            (SET_COOKIE, HeaderValue::try_from(cookie).unwrap_or(HeaderValue::from_static(""))),
        ];
        (headers, page).into_response()
    }
}

/// Checks a request, passes it to the handler, and adds headers to the answer.
pub async fn check(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let is_page = text(request.headers(), &ACCEPT).is_some_and(|kinds| kinds.contains("text/html"));
    let is_head = request.method() == Method::HEAD;
    // If a request has two `Host` headers, a proxy and this server might use different ones. Such a
    // request is refused.
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none());
    let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut response = if !guard.is_own(host) {
        Failure::absent("there is no such host here", "the request names another machine")
            .hint("--host NAME, if browsers reach this machine by that name")
            .into_response()
    } else if is_welcome(&guard, &request) {
        guard.exchange_token()
    } else {
        match guard.refuse(&request) {
            Ok(()) => with_json_error(next.run(request).await).await,
            Err(failure) if is_page => error_page(&failure),
            Err(failure) => failure.into_response(),
        }
    };
    complete(response.headers_mut());
    if is_head {
        *response.body_mut() = axum::body::Body::empty();
    }
    response
}

fn is_welcome(guard: &Guard, request: &Request) -> bool {
    let path = request.uri().path();
    let given = path.strip_prefix('/').map(|path| path.strip_suffix('/').unwrap_or(path));
    request.method() == Method::GET && given.is_some_and(|given| guard.token.is(given))
}

/// Returns the page for a browser that has no token, or that followed a link from a page elsewhere.
/// Its own link opens the server's page again: this time the browser sends the cookie if it has
/// one.
fn error_page(failure: &Failure) -> Response {
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>tprof</title></head>\
         <body><h1>{what}</h1><p>Open the address that <code>tprof serve</code> printed. If you did \
         in this browser, <a href=\"/\">go on to the runs</a>.</p></body></html>\n",
        what = failure.what
    );
    (failure.status, [(CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

fn complete(headers: &mut HeaderMap) {
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(NO_CONTENT);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let same = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-resource-policy", same.clone());
    headers.insert("cross-origin-opener-policy", same);
}

/// Reads the body of a request, limited in size and time.
pub async fn body(request: Request) -> Result<Bytes, Failure> {
    let read = Limited::new(request.into_body(), BODY_BYTES).collect();
    let what = "cannot read the request";
    match tokio::time::timeout(BODY_TIME, read).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) => Err(Failure::misuse(what, error).status(StatusCode::PAYLOAD_TOO_LARGE)),
        Err(_) => {
            Err(Failure::misuse(what, "it took longer than 10 s")
                .status(StatusCode::REQUEST_TIMEOUT))
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
