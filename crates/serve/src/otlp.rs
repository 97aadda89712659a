//! Sends the figures of runs in progress to a collector of OpenTelemetry, in OTLP's JSON encoding
//! over plain HTTP (`--otlp`).
//!
//! Sums are cumulative, so nothing is sent again: the next request has all of a lost one but its
//! momentary values. A run that ended is sent once more, until that succeeds. What fails is said once on
//! stderr, and again when it succeeds.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tprof_live::otlp;

use crate::answers::running;
use crate::app::App;
use crate::failure::Failure;

/// Variables of OpenTelemetry's SDKs: where a collector listens, and how often it gets values, ms.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const METRICS_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// Where a collector listens by default.
const LOCAL: &str = "http://127.0.0.1:4318";
/// Port of a URL without one.
const PORT: u16 = 80;
/// How often values are sent, unless the variable says something else.
const EACH: Duration = Duration::from_secs(15);
/// A run that nobody asks for is forgotten after a minute and would have to be read again.
const MOST: Duration = Duration::from_secs(50);
const LEAST: Duration = Duration::from_millis(100);
/// Time limit of a request.
const LONGEST: Duration = Duration::from_secs(10);
/// Largest answer that is read, in bytes.
const MOST_ANSWER: u64 = 64 << 10;

/// A collector of OpenTelemetry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    host: String,
    port: u16,
    path: String,
    each: Duration,
}

impl Collector {
    /// Returns the collector at a URL, the beginning of those of all its signals; if it is empty, the
    /// collector that the environment names, or else the one on this machine.
    ///
    /// # Errors
    ///
    /// Fails if the URL isn't one of plain HTTP.
    pub fn of(url: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Collector, Failure> {
        let set = |name: &str| variable(name).filter(|text| !text.is_empty());
        let (url, path) = match url {
            "" => match set(METRICS_ENDPOINT) {
                Some(whole) => (whole, ""),
                None => (set(ENDPOINT).unwrap_or_else(|| LOCAL.to_owned()), "/v1/metrics"),
            },
            url => (url.to_owned(), "/v1/metrics"),
        };
        let bad = |why: &str| {
            Failure::misuse(format!("`{url}` is not a collector's URL"), why)
                .hint(format!("--otlp={LOCAL}, and a collector there that sends on"))
        };
        let rest =
            url.strip_prefix("http://").ok_or_else(|| match url.starts_with("https://") {
                true => bad(
                    "tprof sends over plain http only, for a collector on this machine or network",
                ),
                false => bad("it does not begin with http://"),
            })?;
        let (place, own_path) = match rest.find('/') {
            Some(at) => (&rest[..at], rest[at..].trim_end_matches('/')),
            None => (rest, ""),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| bad("its port is not a number up to 65535"))?)
            }
            _ => (place, PORT),
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || host.contains('@') || !is_plain(rest) {
            return Err(bad("it has no host, or a name and password"));
        }
        let ms = set(INTERVAL).and_then(|text| text.parse().ok());
        let each = ms.map_or(EACH, Duration::from_millis).clamp(LEAST, MOST);
        let path = format!("{own_path}{path}");
        let path = if path.is_empty() { "/".to_owned() } else { path };
        Ok(Collector { host: host.to_owned(), port, path, each })
    }

    /// Sends values until the server ends.
    pub async fn send_on(self, app: Arc<App>) {
        let mut sent: BTreeSet<u32> = BTreeSet::new();
        let (mut failed, mut said) = (0_u64, None);
        loop {
            tokio::time::sleep(self.each).await;
            let (ids, snapshots) = running(&app, |id| sent.contains(&id)).await;
            if ids.is_empty() {
                continue;
            }
            let named: Vec<_> =
                snapshots.iter().map(|(name, snapshot)| (name.as_str(), &**snapshot)).collect();
            let text = otlp(&named, unix_now_ns()).to_string();
            let posted = tokio::time::timeout(LONGEST, self.post(&text)).await;
            match posted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(rejected) => {
                    if let Some(why) = rejected.as_ref().filter(|_| rejected != said) {
                        eprintln!("note: the OpenTelemetry collector rejected values: {why}");
                    }
                    said = rejected;
                    if failed > 0 {
                        eprintln!(
                            "note: the OpenTelemetry collector answers again; it missed {failed} times"
                        );
                    }
                    failed = 0;
                    let (is_running, ended): (Vec<_>, Vec<_>) =
                        ids.into_iter().partition(|(_, is_running)| *is_running);
                    sent.retain(|id| !ended.iter().any(|(of, _)| of == id));
                    sent.extend(is_running.into_iter().map(|(id, _)| id));
                }
                Err(error) => {
                    if failed == 0 {
                        let (host, port) = (&self.host, self.port);
                        eprintln!(
                            "note: http://{host}:{port}{} takes no values: {error}; tprof goes on trying",
                            self.path
                        );
                    }
                    failed += 1;
                    // These are sent once more even if they end meanwhile.
                    sent.extend(ids.into_iter().map(|(id, _)| id));
                }
            }
        }
    }

    /// Sends a request. Returns why the collector took only a part of it, if so.
    async fn post(&self, text: &str) -> io::Result<Option<String>> {
        let (host, port, path) = (&self.host, self.port, &self.path);
        let mut stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nUser-Agent: tprof/{}\r\nConnection: close\r\n\r\n",
            text.len(),
            env!("CARGO_PKG_VERSION")
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(text.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(MOST_ANSWER).read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split(' ').nth(1).unwrap_or_default();
        if !status.starts_with('2') || status.len() != 3 {
            let line = answer.lines().next().unwrap_or_default();
            let why = if line.is_empty() { "it closed the connection" } else { line };
            return Err(io::Error::other(why.to_owned()));
        }
        Ok(rejected(&answer))
    }
}

/// Returns why a collector took only a part, from its answer.
fn rejected(answer: &str) -> Option<String> {
    let body = &answer[answer.find('{')?..=answer.rfind('}')?];
    let body: Value = serde_json::from_str(body).ok()?;
    let part = body.get("partialSuccess")?;
    let count = part.get("rejectedDataPoints")?;
    let count =
        count.as_u64().or_else(|| count.as_str()?.parse().ok()).filter(|count| *count > 0)?;
    let why = part.get("errorMessage").and_then(Value::as_str).unwrap_or("it does not say why");
    Some(format!("{count} of them: {why}"))
}

fn unix_now_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str, set: &[(&str, &str)]) -> Result<Collector, Failure> {
        let variable = |name: &str| set.iter().find(|of| of.0 == name).map(|of| of.1.to_owned());
        Collector::of(url, variable)
    }

    #[test]
    fn the_url_and_the_environment_name_a_collector() {
        let place = |url: &str, set: &[(&str, &str)]| {
            let found = of(url, set).unwrap();
            format!("{} {} {}", found.host, found.port, found.path)
        };
        assert_eq!(place("", &[]), "127.0.0.1 4318 /v1/metrics");
        assert_eq!(place("http://otel:9/x/", &[(ENDPOINT, "http://no")]), "otel 9 /x/v1/metrics");
        assert_eq!(place("", &[(ENDPOINT, "http://otel")]), "otel 80 /v1/metrics");
        assert_eq!(place("", &[(METRICS_ENDPOINT, "http://[::1]:9/all")]), "[::1] 9 /all");
        let each = |ms| of("", &[(INTERVAL, ms)]).unwrap().each;
        assert_eq!((each("700"), each("x")), (Duration::from_millis(700), EACH));
        assert_eq!(each("600000"), MOST);
        for bad in [
            "https://otel:4318",
            "otel:4317",
            "http://",
            "http://a:b",
            "http://u:p@a",
            "http://a/\r\nX: y",
        ] {
            assert!(of(bad, &[]).is_err(), "{bad}");
        }
        assert!(of("https://otel", &[]).unwrap_err().why.contains("plain http only"));
    }

    #[test]
    fn a_part_that_was_rejected_is_named() {
        let answer = "HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{\"rejectedDataPoints\":\"3\",\"errorMessage\":\"old\"}}";
        assert_eq!(rejected(answer).as_deref(), Some("3 of them: old"));
        assert_eq!(rejected("HTTP/1.1 200 OK\r\n\r\n{}"), None);
        assert_eq!(rejected("HTTP/1.1 200 OK\r\n\r\n{\"partialSuccess\":{}}"), None);
    }
}
