//! Explains failed connections to the user of a query.

use std::error::Error;

use tprof_ui::errors::Failure;

use super::address::Address;
use crate::status::QUERY;

/// Returns the message of the last cause.
pub fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    let text = last.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Explains why no connection was possible.
pub fn failed(address: &Address, error: &tonic::transport::Error) -> Failure {
    let mut text = String::new();
    let mut cause: Option<&dyn Error> = Some(error);
    while let Some(error) = cause {
        text += &error.to_string();
        text += ": ";
        cause = error.source();
    }
    let shown = address.shown();
    let why = innermost(error);
    let is_tls = ["certificate", "TLS", "InvalidContentType", "handshake"].iter();
    let why =
        if text.contains("InvalidContentType") { "it answers without TLS".into() } else { why };
    if address.is_tls && is_tls.clone().any(|word| text.contains(word)) {
        return Failure::new(format!("cannot begin TLS with {shown}"))
            .cause(why)
            .hint(
                "use_ssl=false if the server has no TLS; \
                 SSL_CERT_FILE=FILE if it has a certificate authority of its own",
            )
            .code(QUERY);
    }
    unreachable(address, why)
}

/// Returns the error for a host that accepts connections but does not answer.
pub fn silent(address: &Address) -> Failure {
    unreachable(address, "it does not answer".into())
}

fn unreachable(address: &Address, why: String) -> Failure {
    Failure::new(format!("cannot reach the Spark Connect server {}", address.shown()))
        .cause(why)
        .hint(match address.is_tls {
            true => "the server's own address and port: tprof does not use HTTPS proxies",
            false => {
                "sbin/start-connect-server.sh or `sail spark server`; /;use_ssl=true if it has TLS"
            }
        })
        .code(QUERY)
}
