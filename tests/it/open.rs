//! `tprof open` serves its trace to one page and to no other reader.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use tprof_tests::{EXACT, Job, Opened, Scratch, assert_refused, program, tprof, traced};

/// Starts a server on a free port.
fn serve(scratch: &Scratch, options: &[&str]) -> Opened {
    let run = traced(&Job::new(program("thread_names")), EXACT, scratch).run;
    let options = [&["--no-browser", "--port", "0"], options].concat();
    Opened::start(&run, &options, &[])
}

/// Returns the status line, the headers, and the first bytes of the body.
fn ask(address: &str, method: &str, path: &str, host: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end..].to_vec())
}

#[test]
fn the_page_gets_the_trace_and_others_get_nothing() {
    let scratch = Scratch::new();
    let mut opened = serve(&scratch, &["--once"]);
    let (page, trace) = opened.url.split_once("/#!/?url=").unwrap();
    assert_eq!(page, "https://ui.perfetto.dev");
    let (address, path) = trace.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let path = format!("/{path}");
    for (method, path, host) in [
        ("GET", "/trace.pftrace.gz", address),
        ("GET", "/", address),
        ("GET", path.as_str(), "evil.example:9001"),
    ] {
        let (head, body) = ask(address, method, path, host);
        assert!(head.starts_with("HTTP/1.1 404") && body.is_empty(), "{head}");
    }
    let (head, _) = ask(address, "OPTIONS", &path, address);
    assert!(head.starts_with("HTTP/1.1 204"), "{head}");
    let (head, body) = ask(address, "GET", &path, address);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("Access-Control-Allow-Origin: https://ui.perfetto.dev\r\n"), "{head}");
    assert!(body.starts_with(&[0x1f, 0x8b]), "{:?}", &body[..2]);
    assert!(opened.ended().success());
}

#[test]
fn a_port_in_use_is_reported_before_anything_is_done() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("thread_names")), EXACT, &scratch).run;
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let job = tprof(["open", "--no-browser", "--port", &port]).arg(&run);
    assert_refused(&job.run_in(scratch.path()), &[&port, "--to perfetto"]);
    let job = tprof(["open", "--as", "flame", "--port", &port]).arg(&run);
    assert_refused(&job.run_in(scratch.path()), &[&port, "drop --port"]);
}

#[test]
fn tprofs_own_page_is_served_as_html() {
    let scratch = Scratch::new();
    let mut opened = serve(&scratch, &["--as", "timeline", "--once"]);
    let (address, path) = opened.url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let (head, body) = ask(address, "GET", &format!("/{path}"), address);
    assert!(head.contains("Content-Type: text/html; charset=utf-8\r\n"), "{head}");
    assert!(!head.contains("Access-Control"), "{head}");
    assert!(body.starts_with(b"<!doctype html>"), "{head}");
    assert!(opened.ended().success());
}

#[test]
fn options_that_a_page_cannot_honour_are_refused() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("thread_names")), EXACT, &scratch).run;
    let refused = |options: &[&str], words: &[&str]| {
        let job = tprof(["open", "--no-browser"]).args(options).arg(&run);
        assert_refused(&job.run_in(scratch.path()), words);
    };
    refused(&["--as", "flame", "--ui", "http://x"], &["--ui", "--as perfetto"]);
    refused(&["--as", "report", "--steps", "1"], &["whole run", "--steps"]);
}
