//! Access control: no other user can read a run, make tprof follow a link, or control a run.

use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use tprof_tests::{
    EXACT, Job, Live, Refused, Scratch, am_root, mode_of, need, program, run_info, tprof,
    traced_job,
};

fn start(run: &Path, scratch: &Scratch) -> (Live, Value) {
    // The umask permits everything, so tprof itself must restrict the permissions.
    let job =
        Job::new(program("steady")).arg("200").under(["sh", "-c", "umask 0; exec \"$@\"", "sh"]);
    let mut live = Live::start(&traced_job(&job, EXACT, run), &scratch.cwd());
    live.wait_for("ready");
    let info = run_info(run, |info| info["session"].as_str().is_some_and(|path| !path.is_empty()));
    (live, info)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn only_its_owner_can_read_the_session_directory() {
    let scratch = Scratch::new();
    let (live, info) = start(&scratch.run(), &scratch);
    let session = PathBuf::from(info["session"].as_str().unwrap());
    assert_eq!(mode_of(&session), 0o700, "{}", session.display());
    for path in files(&session) {
        let mode = mode_of(&path);
        assert_eq!(mode & 0o077, 0, "{} has mode {mode:o}", path.display());
        if path.is_file() {
            // Libraries may be executable for their owner.
            assert!(
                mode == 0o600 || path.extension().is_some_and(|e| e == "so"),
                "{}: {mode:o}",
                path.display()
            );
        }
    }
    assert_eq!(live.finish().code, Some(48));
    assert!(!session.exists(), "{} is left behind", session.display());
}

#[test]
fn only_their_owner_can_read_the_files_of_a_run() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let (live, _) = start(&run, &scratch);
    assert_eq!(live.finish().code, Some(48));
    for path in files(&run) {
        assert_eq!(mode_of(&path) & 0o077, 0, "{} has mode {:o}", path.display(), mode_of(&path));
    }
    assert_eq!(mode_of(&run) & 0o022, 0, "{:o}", mode_of(&run));
}

#[test]
fn tprof_follows_no_link_in_the_run_directory() {
    let scratch = Scratch::new();
    let precious = scratch.write("precious", "untouched\n");
    let nowhere = scratch.join("made-through-a-link");
    let names = ["rank-0.tprof", "run.json", "run.json.tmp", "run.json.new", ".run.json", "lock"];
    for target in [&precious, &nowhere] {
        for options in [EXACT, &["--mem", "exact", "--force"]] {
            for name in names {
                let run = scratch.run();
                fs::create_dir(&run).unwrap();
                symlink(target, run.join(name)).unwrap();
                let _ =
                    traced_job(&Job::new(program("short")), options, &run).run_in(scratch.cwd());
                assert_eq!(
                    fs::read_to_string(&precious).unwrap(),
                    "untouched\n",
                    "{name} {options:?}"
                );
                assert!(!nowhere.exists(), "{name} {options:?}");
                fs::remove_dir_all(&run).unwrap();
            }
        }
    }
}

const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

#[test]
fn ctl_refuses_other_users() {
    need!(am_root(), Refused::Root);
    let scratch = Scratch::new();
    let run = scratch.run();
    let (mut live, info) = start(&run, &scratch);
    let session = PathBuf::from(info["session"].as_str().unwrap());
    // The session directory is also opened to everyone, because the collector must check the peer
    // itself.
    for open in [false, true] {
        if open {
            fs::set_permissions(&run, PermissionsExt::from_mode(0o777)).unwrap();
            fs::set_permissions(&session, PermissionsExt::from_mode(0o777)).unwrap();
            for path in files(&run).into_iter().chain(files(&session)) {
                fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
            }
        }
        for words in
            [&["ctl", "status"][..], &["ctl", "stop"], &["ctl", "start"], &["ctl", "mark", "mine"]]
        {
            let outcome = tprof(words).arg(&run).under(NOBODY).run_in("/tmp");
            assert_eq!(outcome.code, Some(125), "{words:?}, doors open: {open}: {outcome:?}");
            assert!(!outcome.stderr.is_empty() && outcome.stdout.is_empty(), "{outcome:?}");
        }
    }
    live.obey("a");
    let own = tprof(["ctl", "status"]).arg(&run).run_in(scratch.path());
    assert_eq!(own.code, Some(0), "{own:?}");
    assert_eq!(live.finish().code, Some(48));
    let report = tprof_tests::memory_report(&run);
    let kept = report.sites(|frame| frame.starts_with("victim_keep"));
    assert_eq!(kept.iter().map(|site| site["allocations"].as_i64().unwrap()).sum::<i64>(), 1000);
}

/// Sends data to the session's socket that a hostile client might send.
const RUBBISH: &str = "
import os, socket, struct, sys
path = sys.argv[1]
magic = 0x3168_6d73_666f_7270
messages = [b'', b'x', os.urandom(48), b'\\0' * 48, b'{' * 100000,
    struct.pack('<Q10I', magic, 1, 2, *[0xffffffff] * 8)[:48] + b'{\"\\xff' + b'[' * 100000 + b'\\n',
    struct.pack('<Q10I', magic, 1, 1, *[0xffffffff] * 8)[:48],
    struct.pack('<Q10I', magic, 999, 1, *[0] * 8)[:48],
    struct.pack('<Q10I', magic, 1, 77, *[0] * 8)[:48]]
for message in messages:
    for kind in socket.SOCK_STREAM, socket.SOCK_SEQPACKET:
        client = socket.socket(socket.AF_UNIX, kind)
        client.settimeout(2)
        try:
            client.connect(path)
            client.sendall(message)
            client.recv(100)
        except OSError:
            pass
        client.close()
idle = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(50)]
for client in idle:
    try:
        client.connect(path)
    except OSError:
        pass
print('sent', flush=True)
sys.stdin.read()
";

#[test]
fn rubbish_on_the_socket_does_not_stop_a_run() {
    let scratch = Scratch::new();
    let run = scratch.run();
    let (mut live, info) = start(&run, &scratch);
    let socket = Path::new(info["session"].as_str().unwrap()).join("sock");
    let mut rude =
        Live::start(&Job::new("python3").args(["-c", RUBBISH]).arg(&socket), scratch.path());
    rude.wait_for("sent");
    // Fifty clients that connected and send nothing are still connected.
    live.obey("a");
    live.obey("c");
    let own = tprof(["ctl", "status"]).arg(&run).run_in(scratch.path());
    assert_eq!(own.code, Some(0), "{own:?}");
    rude.finish();
    live.obey("f");
    let outcome = live.finish();
    assert_eq!(outcome.code, Some(48), "{outcome:?}");
    let report = tprof_tests::memory_report(&run);
    let forked = report.processes("steady").len();
    assert_eq!(forked, 2, "{}", report.0["processes"]);
}
