//! `tprof archive` into a server that speaks S3's protocol: moto, on loopback.
//!
//! TPROF_TEST_S3_PYTHON names a Python that has it, as `scripts/test-readers.sh` fetches one. Without
//! it these tests only print that they are skipped.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use crate::archive::{SUMS, begun, kill_at, succeeds};
use crate::runs::{Ended, number, of, program, rows, runs};
use crate::servers::{Server, fetched, free_port, skip};

const BUCKET: &str = "jobs";
const SECRET: &str = "wJalrXUtnFEMI";

/// A server of S3's protocol, with the bucket.
struct Moto(Server);

impl Moto {
    fn start() -> Option<Moto> {
        let has_moto = |python: &PathBuf| {
            let found = Command::new(python).args(["-c", "import moto.server"]).output();
            found.is_ok_and(|found| found.status.success())
        };
        let python = fetched("TPROF_TEST_S3_PYTHON", "s3/bin/python").filter(has_moto);
        let Some(python) = python else {
            skip("moto");
            return None;
        };
        let words =
            |port: &str| ["-m", "moto.server", "-H", "127.0.0.1", "-p", port].map(String::from);
        let server = Moto(Server::start(&python, |port| words(port).to_vec()));
        assert!(server.request("PUT", &format!("/{BUCKET}")).contains(" 200 "));
        Some(server)
    }

    fn request(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.0.port)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: 0\r\n\
             Connection: close\r\n\r\n",
            self.0.port
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Objects below a prefix, at most a thousand.
    fn objects(&self, prefix: &str) -> usize {
        let answer = self.request("GET", &format!("/{BUCKET}?list-type=2&prefix={prefix}"));
        answer.matches("<Key>").count()
    }

    fn program(&self, words: &[&str]) -> Command {
        at_port(self.0.port, words)
    }

    fn ended(&self, words: &[&str]) -> Ended {
        of(self.program(words).output().unwrap())
    }

    fn rows(&self, to: &str, query: &str) -> Vec<String> {
        let ended = self.ended(&[to, query, "--format=csv"]);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{query}");
        ended.out.lines().skip(1).map(str::to_owned).collect()
    }
}

fn at_port(port: u16, words: &[&str]) -> Command {
    let mut command = program(words);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command
        .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"))
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    command
}

#[test]
fn a_run_in_a_bucket_has_the_same_sums_as_the_run() {
    let Some(server) = Moto::start() else { return };
    let run = runs().run();
    let words = ["archive", run.to_str().unwrap(), "--to", "s3://jobs/a/b", "--raw", "kernels"];
    let done = server.ended(&words);
    assert_eq!((done.code, &*done.err), (0, ""), "{}", done.out);
    assert_eq!(server.rows("s3://jobs/a/b", SUMS), rows(&run, SUMS));
    let query = "SELECT count(*) FROM kernels WHERE duration_ns > 0";
    assert_eq!(server.rows("s3://jobs/a/b", query)[0], number(&run, query).to_string());
    let again = server.ended(&words);
    assert!(again.code == 0 && again.out.contains("is in the archive as r8-"), "{}", again.out);
    let checked = server.ended(&["archive", "--check", "s3://jobs/a/b"]);
    assert_eq!((checked.code, &*checked.out), (0, ""));
    // Another prefix is another archive.
    let other = server.ended(&["archive", "--list", "s3://jobs/a"]);
    assert!(other.code == 0 && other.err.contains("has no run"), "{}", other.err);
}

#[test]
fn a_kill_leaves_all_of_a_run_in_a_bucket_or_nothing() {
    let Some(server) = Moto::start() else { return };
    let run = runs().run();
    let run = run.to_str().unwrap();
    let temporary = tempfile::TempDir::new().unwrap();
    let words = |to: &str| {
        let mut command = server.program(&["archive", run, "--to", to, "--raw", "all"]);
        command.env("TMPDIR", temporary.path());
        command
    };
    assert!(succeeds(words("s3://jobs/whole")));
    let whole = server.objects("whole/");
    let mut before_commit = 0;
    for at in (0..=whole).step_by(4) {
        let prefix = format!("killed-{at}/");
        let to = format!("s3://jobs/killed-{at}");
        let killed = kill_at(begun(words(&to)), at, || server.objects(&prefix));
        let is_there = server.objects(&format!("{prefix}_runs/")) == 1;
        before_commit += usize::from(killed && !is_there);
        let runs = server.rows(&to, "SELECT count(*) FROM runs");
        assert_eq!(runs[0], i64::from(is_there).to_string(), "killed at {at}");
        assert!(succeeds(words(&to)), "killed at {at}");
        assert_eq!(server.rows(&to, SUMS), rows(run.as_ref(), SUMS), "killed at {at}");
        let checked = server.ended(&["archive", "--check", &to]);
        assert_eq!((checked.code, &*checked.out), (0, ""), "killed at {at}");
        assert_eq!(server.objects(&prefix), whole, "killed at {at}");
    }
    assert!(before_commit > 1, "{before_commit}");
}

#[test]
fn what_a_store_refuses_is_said_without_secrets() {
    let Some(server) = Moto::start() else { return };
    let run = runs().run();
    let run = run.to_str().unwrap();
    let missing = server.ended(&["archive", run, "--to", "s3://nobody/a"]);
    assert_eq!(missing.code, 1);
    assert!(missing.err.contains("there is no bucket `nobody`"), "{}", missing.err);
    let queried = server.ended(&["s3://nobody/a", "SELECT 1 FROM runs"]);
    assert_eq!(queried.code, 1);
    assert!(queried.err.contains("there is no bucket `nobody`"), "{}", queried.err);
    for ended in [missing, queried] {
        assert!(!(ended.out + &ended.err).contains(SECRET));
    }
}

#[test]
fn a_server_that_is_not_there_is_named_as_that() {
    let run = runs().run();
    let words = ["archive", run.to_str().unwrap(), "--to", "s3://jobs/a"];
    let ended = of(at_port(free_port(), &words).output().unwrap());
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("cannot reach the store of s3://jobs/a"), "{}", ended.err);
    assert!(!ended.err.contains(SECRET));
    let mut plain = at_port(free_port(), &words);
    let ended = of(plain.env_remove("AWS_ALLOW_HTTP").output().unwrap());
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("is without TLS"), "{}", ended.err);
}

#[test]
fn without_credentials_their_variables_are_named() {
    let run = runs().run();
    let words = ["archive", run.to_str().unwrap(), "--to", "s3://jobs/a"];
    let mut command = at_port(free_port(), &words);
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
    // Where a machine in a cloud gives the role that it has.
    command.env("AWS_METADATA_ENDPOINT", format!("http://127.0.0.1:{}", free_port()));
    let ended = of(command.output().unwrap());
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("no credentials for s3://jobs/a"), "{}", ended.err);
    assert!(ended.err.contains("AWS_ACCESS_KEY_ID"), "{}", ended.err);
}
