//! Programs that do much with files and sockets are unchanged, and the bytes of a program are those
//! that strace sees.

use std::collections::BTreeMap;
use std::path::Path;

use tprof_tests::{Job, Refused, Scratch, assert_unchanged, document, need, traced};

const IO: &[&[&str]] = &[&[], &["--io", "off"]];

/// Runs a script of these tools natively and traced.
fn assert_tools_unchanged(tools: &[&str], script: &str) {
    let scratch = Scratch::new();
    for tool in tools {
        let found = Job::sh("command -v \"$1\"").arg(tool).run_in(scratch.cwd());
        need!(found.code == Some(0), format!("there is no {tool} (scripts/test-deps.sh)"));
    }
    // Each run has a directory of its own.
    let job = Job::sh(&format!("set -e; cd \"$(mktemp -d -p .)\"; {script}"));
    let run = assert_unchanged(&job, IO, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
}

#[test]
fn a_database_in_a_file() {
    assert_tools_unchanged(
        &["sqlite3"],
        "sqlite3 a.db 'create table t(x, y); begin; \
           with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000) \
           insert into t select i, hex(i * i) from n; commit; create index by_y on t(y); \
           delete from t where x % 3 = 0; vacuum; \
           select count(*), sum(x) from t; pragma integrity_check'; wc -c <a.db",
    );
}

#[test]
fn a_repository_of_git() {
    assert_tools_unchanged(
        &["git"],
        "export HOME=\"$PWD\" GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a \
           GIT_COMMITTER_EMAIL=a@b GIT_AUTHOR_DATE='2026-12-01T00:00:00 +0000' GIT_COMMITTER_DATE='2026-12-01T00:00:00 +0000'; \
         git init -q -b main r; cd r; \
         for i in 1 2 3 4 5; do seq $((i * 100)) >$i; git add -A; git commit -qm \"change $i\"; done; \
         git gc -q; git clone -q . ../c; cd ../c; git fsck; git log --format='%H %s'; git status --short",
    );
}

#[test]
fn a_download_by_curl() {
    // The shell says `Terminated` of the server only if it hasn't noticed its end before it waits.
    assert_tools_unchanged(
        &["curl", "python3"],
        "mkdir served; seq 100000 >served/a; : >port; \
         python3 -c 'import functools, http.server as h, os; \
s = h.HTTPServer((\"127.0.0.1\", 0), functools.partial(h.SimpleHTTPRequestHandler, directory=\"served\")); \
open(\"port\", \"w\").write(str(s.server_port)); s.serve_forever()' 2>/dev/null & \
         server=$!; while [ ! -s port ]; do sleep 0.05; done; \
         curl -s \"http://127.0.0.1:$(cat port)/a\" | sha256sum; \
         curl -s -o b -w '%{http_code} %{size_download}\\n' \"http://127.0.0.1:$(cat port)/a\"; \
         cmp served/a b; kill $server; wait $server 2>/dev/null || echo \"status $?\"",
    );
}

#[test]
fn a_redis_server_and_its_client() {
    assert_tools_unchanged(
        &["redis-server", "redis-cli"],
        "redis-server --port 0 --unixsocket \"$PWD/s\" --appendonly yes --save '' --daemonize no >/dev/null & \
         while ! redis-cli -s s ping >/dev/null 2>&1; do sleep 0.05; done; \
         seq 2000 | sed 's/.*/SET key:& value:&/' | redis-cli -s s | sort | uniq -c; \
         redis-cli -s s dbsize; redis-cli -s s get key:77; redis-cli -s s bgsave >/dev/null; \
         while redis-cli -s s info persistence | grep -q rdb_bgsave_in_progress:1; do sleep 0.05; done; \
         redis-cli -s s info persistence | grep -e rdb_last_bgsave_status -e rdb_saves; \
         redis-cli -s s shutdown; wait",
    );
}

/// Calls and bytes of a file: read, and written.
type Sums = BTreeMap<(String, &'static str), [u64; 2]>;

fn add(sums: &mut Sums, path: &str, operation: &'static str, calls: u64, bytes: u64) {
    let Some((_, name)) = path.rsplit_once("set/") else { return };
    let name = if name.starts_with("small/") { "small/*" } else { name };
    let sum = sums.entry((name.to_owned(), operation)).or_default();
    sum[0] += calls;
    sum[1] += bytes;
}

/// Reads the lines of `strace -f -y`: `71 read(3</path>, …, 4096) = 100`.
fn of_strace(log: &str) -> Sums {
    let mut sums = Sums::new();
    for line in log.lines() {
        let Some((call, result)) = line.rsplit_once(" = ") else { continue };
        let Ok(bytes) = result.split(' ').next().unwrap_or_default().parse() else { continue };
        let mut paths = call.split('<').skip(1).filter_map(|rest| Some(rest.split_once('>')?.0));
        let (first, second) = (paths.next().unwrap_or_default(), paths.next().unwrap_or_default());
        let name = call.split_whitespace().nth(1).unwrap_or_default();
        let name = name.split('(').next().unwrap_or_default();
        match name {
            "sendfile" => {
                add(&mut sums, second, "read", 1, bytes);
                add(&mut sums, first, "write", 1, bytes);
            }
            "copy_file_range" => {
                add(&mut sums, first, "read", 1, bytes);
                add(&mut sums, second, "write", 1, bytes);
            }
            _ if name.contains("read") => add(&mut sums, first, "read", 1, bytes),
            _ => add(&mut sums, first, "write", 1, bytes),
        }
    }
    sums
}

#[test]
fn calls_and_bytes_of_a_data_set_are_those_of_strace() {
    const CALLS: &str = "trace=read,readv,pread64,preadv,preadv2,write,writev,pwrite64,pwritev,\
                         pwritev2,sendfile,copy_file_range";
    let scratch = Scratch::new();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/dataset.py");
    let found = Job::sh("command -v strace").run_in(scratch.cwd());
    need!(found.code == Some(0), "there is no strace (scripts/test-deps.sh)");
    let words = ["-f", "-y", "-o", "log", "-e", CALLS, "python3"];
    let alone = Job::new("strace").args(words).arg(&program).arg("traced/set");
    let alone = alone.run_in(scratch.path());
    need!(alone.code == Some(0), Refused::Untraced);
    let log = std::fs::read(scratch.join("log")).unwrap();
    let wanted = of_strace(&String::from_utf8_lossy(&log));
    assert_eq!(wanted.len(), 7, "{wanted:?}");

    let job = Job::new("python3").arg(&program).arg("recorded/set");
    let run = traced(&job, &[], &scratch);
    assert_eq!(run.outcome.stdout, alone.stdout);
    let mut sums = Sums::new();
    for row in document("io", &run.run)["tables"]["files"].as_array().unwrap() {
        let operation = match row["operation"].as_str().unwrap() {
            "read" => "read",
            "write" => "write",
            _ => continue,
        };
        let of = |key: &str| row[key].as_u64().unwrap();
        add(&mut sums, row["path"].as_str().unwrap(), operation, of("calls"), of("bytes"));
    }
    assert_eq!(sums, wanted);
}
