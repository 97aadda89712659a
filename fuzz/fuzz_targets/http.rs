//! Sends arbitrary bytes to the server of runs, without a socket: as they are, and with the token in
//! place of the text `TOKEN`. Only requests with the token get any content.
//!
//! ```text
//! cargo +nightly fuzz run http
//! ```

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::LazyLock;
use tprof_serve::fuzzing::Server;
use tprof_trace::run::RunInfo;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// What inputs have in place of the token.
const MARK: &[u8] = b"TOKEN";
/// A part of the command of the only run.
const SECRET: &str = "train-of-the-only-run";

struct Servers {
    with_control: Server,
    without: Server,
    _directory: tempfile::TempDir,
}

static SERVERS: LazyLock<Servers> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&token).unwrap();
    file.write_all(TOKEN.as_bytes()).unwrap();
    let runs = directory.path().join("runs");
    let run = runs.join("run");
    fs::create_dir_all(&run).unwrap();
    let command = vec![SECRET.to_owned()];
    let info = RunInfo { version: 2, finished: true, command, ..RunInfo::default() };
    fs::write(run.join("run.json"), serde_json::to_vec(&info).unwrap()).unwrap();
    fs::write(run.join("rank-0.tprof"), include_bytes!("../../crates/trace/tests/golden/v2.tprof"))
        .unwrap();
    let server = |is_control| Server::new(&runs, &token, is_control);
    Servers { with_control: server(true), without: server(false), _directory: directory }
});

fuzz_target!(|bytes: &[u8]| {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // The length chooses the server, so that every input takes the time of one.
    let answer = match bytes.len() % 4 {
        // Nothing has the token but by its mark.
        0 => {
            let answer = text(&SERVERS.with_control.answer(bytes));
            assert!(!answer.contains(SECRET) && !answer.contains(TOKEN), "{answer}");
            answer
        }
        1 => text(&SERVERS.without.answer(&with_token(bytes))),
        _ => text(&SERVERS.with_control.answer(&with_token(bytes))),
    };
    assert!(answer.is_empty() || answer.starts_with("HTTP/1."), "{answer}");
});

/// Replaces each mark by the token.
fn with_token(bytes: &[u8]) -> Vec<u8> {
    let mut named = Vec::new();
    let mut rest = bytes;
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        named.extend_from_slice(&rest[..at]);
        named.extend_from_slice(TOKEN.as_bytes());
        rest = &rest[at + MARK.len()..];
    }
    named.extend_from_slice(rest);
    named
}
