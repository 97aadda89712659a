//! A server that ends leaves no process behind, however it ends.

use std::fs;
use std::path::Path;

use tprof_tests::{Live, Scratch, Served, children_of, tprof, wait_until};

use super::runs;

/// Starts a server that calls a stand-in for `tprof`, whose reports and exports never end. The
/// stand-in is `tprof open`, which leaves a folder of its own if it is killed. That folder is outside
/// of the server's, which must be empty afterwards.
fn endless(scratch: &Scratch, options: &[&str], directory: &Path) -> Served {
    use std::os::unix::fs::PermissionsExt;
    let real = tprof_tests::tprof_at();
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' __catalogue '*) exec '{0}' \"$@\";; esac\n\
         while [ \"$1\" != -- ]; do limits=\"$limits $1\"; shift; done\n\
         TMPDIR='{2}' exec '{0}' $limits -- open --no-browser --port 0 '{1}'\n",
        real.display(),
        directory.join("recorded").display(),
        scratch.path().display()
    );
    let program = scratch.write("endless", &script);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let server = real.with_file_name("tprof-serve");
    let job = tprof_tests::Job::new(server).args(["serve", "--no-browser"]).args(options);
    Served::of(job.env("TPROF_PROGRAM", &program).arg(directory))
}

#[test]
fn the_children_of_a_killed_server_end_too() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = endless(&scratch, &[], &directory);
    let request = served.request("GET", "/api/v1/runs/1/report/summary").bytes();
    let address = served.address.clone();
    let asking = std::thread::spawn(move || tprof_tests::exchange(&address, &request));
    wait_until("a child", || !children_of(served.pid()).is_empty());
    let left = served.killed();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(asking.join().unwrap().status, 0);
}

#[test]
fn a_report_that_takes_too_long_is_ended_and_explained() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = endless(&scratch, &["--time-limit", "3s"], &directory);
    let failure = served.get("/api/v1/runs/1/report/summary").expect_failure(504);
    assert!(failure["why"].as_str().unwrap().contains("3 s"), "{failure}");
    assert!(failure["try"].as_str().unwrap().contains("--time-limit"), "{failure}");
    wait_until("the child ends", || served.descendants().is_empty());
    served.assert_answers();
    assert_eq!(fs::read_dir(served.temporary()).unwrap().count(), 0);
}

#[test]
fn a_client_that_disconnects_ends_the_report_that_it_asked_for() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let served = endless(&scratch, &[], &directory);
    let stream = std::net::TcpStream::connect(&served.address).unwrap();
    use std::io::Write;
    (&stream).write_all(&served.request("GET", "/api/v1/runs/1/report/summary").bytes()).unwrap();
    wait_until("a child", || !children_of(served.pid()).is_empty());
    drop(stream);
    wait_until("the child ends", || children_of(served.pid()).is_empty());
    served.assert_answers();
}

#[test]
fn a_signal_ends_the_server_even_with_open_streams() {
    for signal in [libc_signal::INT, libc_signal::TERM, libc_signal::HUP] {
        let scratch = Scratch::new();
        let directory = runs(&scratch);
        let served = Served::start(&directory, &[]);
        let id = served.id_of(&directory.join("recorded"));
        let mut streams: Vec<_> =
            (0..3).map(|_| served.begin(&format!("/api/v1/runs/{id}/events"))).collect();
        for stream in &mut streams {
            assert_eq!(stream.event().unwrap().0, "start");
        }
        let idle = std::net::TcpStream::connect(&served.address).unwrap();
        let outcome = served.end(signal);
        assert_eq!((outcome.code, outcome.signal), (Some(0), None), "{outcome:?}");
        assert_eq!(outcome.stderr, "");
        drop((idle, streams));
    }
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let scratch = Scratch::new();
    let directory = runs(&scratch);
    let job = tprof(["serve", "--no-browser"]).arg(&directory);
    let job = job.under(["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]);
    let mut live = Live::start(&job, scratch.path());
    live.wait_for("http");
    assert!(tprof_tests::kill(live.pid(), libc_signal::HUP));
    assert!(tprof_tests::kill(live.pid(), libc_signal::TERM));
    assert_eq!(live.ended().code, Some(0));
}

mod libc_signal {
    pub const HUP: i32 = 1;
    pub const INT: i32 = 2;
    pub const TERM: i32 = 15;
}
