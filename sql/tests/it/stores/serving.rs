//! Tests `tprof serve` with an archive in a store.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use super::Store;
use crate::runs::{RANKS, runs};
use crate::serve::refused;
use crate::served::{Process, Served, command, tprof, wait_until};
use crate::servers::free_port;

pub fn a_bucket_is_served_and_its_keys_are_in_no_argument_and_no_answer(store: &Store) {
    let (Some(tprof), Some(server)) = (tprof(), (store.start)()) else { return };
    let (run, to) = (runs().run(), store.at("served"));
    assert_eq!(store.ended(&server, &["archive", run.to_str().unwrap(), "--to", &to]).code, 0);
    let served = Served::start(store.with(command(&tprof, &["serve", &to]), server.port));
    let list = served.whole_list(1);
    assert_eq!((&list[0]["summary"], &list[0]["ranks"]), (&"ready".into(), &RANKS.into()));
    let mut lines = Vec::new();
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| served.get("/api/v1/runs/1/report/breakdown"));
        while !asked.is_finished() {
            lines.extend(served.descendants());
        }
        asked.join().unwrap()
    });
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["tables"]["breakdown"].as_array().unwrap().len(), RANKS as usize);
    assert!(lines.iter().any(|(_, line)| line.contains(&to)), "{lines:?}");
    for path in ["/", "/api/v1", "/api/v1/runs", "/api/v1/runs/1/report/breakdown"] {
        assert!(!served.get(path).text.contains(store.secret), "{path}");
    }
    assert!(!lines.iter().any(|(_, line)| line.contains(store.secret)), "{lines:?}");
    // After the store has gone, known data stays, and new requests are answered with the reason.
    drop(server);
    let gone = served.get("/api/v1/runs/1/report/kernels");
    assert_eq!(gone.status, 502, "{}", gone.text);
    let (what, ..) = gone.error();
    assert!(what.contains("cannot reach the store") && !gone.text.contains(store.secret), "{what}");
    assert_eq!(served.get("/api/v1/runs/1/report/breakdown").status, 200);
    assert_eq!(served.json("/api/v1/runs")["runs"].as_array().unwrap().len(), 1);
}

pub fn a_server_of_an_archive_that_is_not_there_does_not_start(store: &Store) {
    let Some(tprof) = tprof() else { return };
    let to = store.at("a");
    let serve = command(&tprof, &["serve", "--no-browser", &to]);
    let gone = refused(&mut store.with(serve, free_port()));
    assert!(gone.contains(&format!("cannot reach the store of {to}")), "{gone}");
    assert!(!gone.contains(store.secret), "{gone}");
}

pub fn a_server_of_a_bucket_that_is_not_there_does_not_start(store: &Store) {
    let (Some(tprof), Some(server)) = (tprof(), (store.start)()) else { return };
    let to = format!("{}://nobody/a", store.scheme);
    let serve = command(&tprof, &["serve", "--no-browser", &to]);
    let missing = refused(&mut store.with(serve, server.port));
    assert!(missing.contains("there is no bucket `nobody`"), "{missing}");
    assert!(!missing.contains(store.secret), "{missing}");
}

pub fn a_server_whose_store_never_answers_ends_at_once_with_all_it_started(store: &Store) {
    let Some(tprof) = tprof() else { return };
    // This server accepts connections, and does nothing else.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = silent.local_addr().unwrap().port();
    let serve = command(&tprof, &["serve", "--no-browser", &store.at("a")]);
    let child = store.with(serve, port).stdout(Stdio::null()).spawn().unwrap();
    let mut served = Process(child);
    let (mut stream, _) = silent.accept().unwrap();
    let mut request = [0; 16];
    assert!(stream.read(&mut request).unwrap() > 0);
    let children = served.descendants();
    assert!(!children.is_empty());
    served.kill();
    wait_until("all have ended", || {
        children.iter().all(|(pid, _)| !Path::new(&format!("/proc/{pid}")).exists())
    });
}
