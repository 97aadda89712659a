//! Tests servers that are missing, that end, or that break the connection.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{Sail, server, with_server};
use crate::prompt::Terminal;
use crate::runs::{of, program, runs};
use crate::servers::free_port;

#[test]
fn a_missing_server_is_named_and_a_token_is_not() {
    let set = runs().set();
    let port = free_port();
    let mut command = with_server(port, &[set.to_str().unwrap(), "SELECT count(*) FROM runs"]);
    let ended = of(command.env("SPARK_CONNECT_AUTHENTICATE_TOKEN", "s3cret").output().unwrap());
    assert_eq!(ended.code, 1);
    let what = format!("cannot reach the Spark Connect server 127.0.0.1:{port}");
    assert!(ended.err.contains(&what) && ended.err.contains("refused"), "{}", ended.err);
    assert!(!ended.err.contains("s3cret"));
    let mut wrong = program([set.to_str().unwrap(), "SELECT 1", "--remote=http://a/;token=s3cret"]);
    let wrong = of(wrong.output().unwrap());
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(!wrong.err.contains("s3cret"), "{}", wrong.err);
    // This server speaks another protocol.
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let other = of(with_server(port, &[set.to_str().unwrap(), "SELECT count(*) FROM runs"])
        .output()
        .unwrap());
    assert_eq!((other.code, &*other.out), (1, ""), "{}", other.err);
    assert!(other.err.contains(&format!("127.0.0.1:{port}")), "{}", other.err);
}

/// Returns a query that takes hours and no memory.
fn long(rows: u64) -> String {
    format!(
        "SELECT count(*) AS n, sum(a.id % 7 * (b.id % 11)) AS s FROM range({rows}) a CROSS JOIN range({rows}) b"
    )
}

#[test]
fn a_server_that_is_killed_in_a_query_leaves_no_result() {
    let Some(mut server) = Sail::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("result.csv");
    let query = long(10_000_000);
    let words = [query.as_str(), "--format=csv", "-o", file.to_str().unwrap()];
    let mut child = server.program(&words).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(child.try_wait().unwrap().is_none(), "the query is not long enough");
    server.0.child.kill().unwrap();
    server.0.child.wait().unwrap();
    let ended = of(child.wait_with_output().unwrap());
    assert_eq!((ended.code, &*ended.out), (1, ""), "{}", ended.err);
    assert!(ended.err.contains("kept no part of the result"), "{}", ended.err);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn tables_and_views_are_registered_again_after_a_restart() {
    let Some(mut server) = Sail::start() else { return };
    let port = server.0.port;
    let mut restart = || {
        server.0.child.kill().unwrap();
        server.0.child.wait().unwrap();
        server = Sail::start_at(port).unwrap();
    };
    let (set, remote) = (runs().set(), format!("--remote=sc://127.0.0.1:{port}"));
    let mut prompt = Terminal::of(&[set.to_str().unwrap(), &remote], "cat");
    prompt.type_in("CREATE VIEW mine AS SELECT rank FROM stragglers WHERE rank >= 0;\r");
    prompt.until("tprof> ");
    prompt.type_in("CREATE VIEW other AS SELECT rank + 100 AS more FROM mine;\r");
    prompt.until("tprof> ");
    prompt.type_in("SELECT count(*) AS n, max(more) AS last FROM other;\r");
    prompt.until("8   107");
    prompt.until("tprof> ");
    restart();
    // The statement names only a view over another view. The tables behind both must be registered
    // too.
    prompt.type_in("SELECT count(*) AS n, max(more) AS last FROM other;\r");
    let before = prompt.until("8   107");
    assert!(before.contains("was started again"), "{before}");
    prompt.until("tprof> ");
    restart();
    // An error in a statement is still an error after the restart.
    prompt.type_in("SELECT nothing_of_it FROM mine;\r");
    prompt.until("there is no column `nothing_of_it`");
    prompt.until("tprof> ");
    prompt.type_in("SELECT count(*) + 40 AS n FROM ranks;\r");
    prompt.until("48");
    prompt.until("tprof> ");
    assert_eq!(prompt.leave().0, 0);
}

#[test]
fn ctrl_c_ends_the_query_on_the_server() {
    let Some(server) = Sail::start() else { return };
    // Sail stops a computation only between two batches. A product of tables has no batch for
    // hours, so this query uses `range`.
    let query = "SELECT sum(id % 7) AS s FROM range(1000000000000)";
    let mut command = server.program(&[query]);
    let child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let pid = server.0.child.id();
    let used = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let idle = used();
    while used() < idle + 100 {
        std::thread::sleep(Duration::from_millis(50));
    }
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let ended = of(child.wait_with_output().unwrap());
    assert_eq!((ended.code, &*ended.out), (130, ""), "{}", ended.err);
    // The server is idle if for a while it uses no more CPU than a server that does nothing.
    let is_resting = || {
        let before = used();
        std::thread::sleep(Duration::from_millis(500));
        used() < before + 10
    };
    assert!((0..60).any(|_| is_resting()), "the server goes on");
}

/// Forwards a connection, and cuts it when the server has sent this many bytes. The counter is the
/// number of connections that are still to be cut.
fn cutting(to: u16, bytes: usize, cuts: usize) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let left = Arc::new(AtomicUsize::new(cuts));
    let of_thread = Arc::clone(&left);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (from_client, to_server) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut &from_client, &mut &to_server);
                let _ = to_server.shutdown(Shutdown::Write);
            });
            let left = Arc::clone(&of_thread);
            std::thread::spawn(move || {
                let (mut buffer, mut passed) = ([0; 4096], 0);
                while let Ok(read @ 1..) = (&server).read(&mut buffer) {
                    passed += read;
                    let is_cut = passed > bytes
                        && left
                            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                            .is_ok();
                    if is_cut || (&client).write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    (port, left)
}

#[test]
fn a_broken_connection_is_resumed_or_there_is_no_result() {
    let Some(server) = server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let query = "SELECT id, concat('row ', CAST(id AS STRING)) AS text FROM range(200000) \
                 ORDER BY id";
    let whole = server.csv(&runs().set(), query);
    assert_eq!(whole.lines().count(), 200_001);
    let mut mended = 0;
    for bytes in [2_000, 200_000, 2_000_000] {
        let (port, left) = cutting(server.0.port, bytes, 1);
        let file = directory.path().join(format!("{bytes}.csv"));
        let words = [query, "--format=csv", "-o", file.to_str().unwrap()];
        let ended = of(with_server(port, &words).output().unwrap());
        assert_eq!(left.load(Ordering::SeqCst), 0, "nothing was cut at {bytes}");
        match ended.code {
            0 => {
                assert!(std::fs::read_to_string(&file).unwrap() == whole, "{bytes}");
                mended += 1;
            }
            _ => {
                assert!(ended.err.contains("kept no part of the result"), "{}", ended.err);
                assert!(!file.exists());
            }
        }
    }
    eprintln!("{mended} of 3 connections were mended");
}
