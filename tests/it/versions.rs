//! If two copies of tprof with different versions meet, such as a wheel's and the system's, the
//! error names both versions.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tprof_tests::{EXACT, Job, Scratch, assert_refused, need_some, run_info, tprof, traced};
use tprof_wire::handshake::{Hello, Role};

use crate::python_stacks::pythons;

/// A Python program that sends a `Hello` to a session's socket, or serves a socket without reading a
/// request.
const TALK: &str = "
import os, socket, sys
hello = bytes.fromhex(sys.argv[2])
end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
if sys.argv[1] == 'send':
    end.connect(os.environ['TPROF_SESSION'] + '/sock')
    end.send(hello)
    end.recv(64)
else:
    end.bind(sys.argv[1])
    end.listen()
    print('ready', flush=True)
    client, _ = end.accept()
    client.recv(len(hello))
    while client.recv(1 << 16, socket.MSG_PEEK) == b'':
        pass
";

/// Returns the message that a library of another version sends.
fn hello() -> String {
    let hello = Hello { version: 99, ..Hello::new(Role::Target, 1) };
    hello.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_process_with_another_versions_library_is_named_with_both_versions() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let job = Job::new("env").arg("LD_PRELOAD=/nowhere/libtprof_preload.so");
    let job = job.arg(&python).args(["-c", TALK, "send", &hello()]);
    let run = traced(&job, EXACT, &scratch);
    let info = run_info(&run.run, |_| true);
    let blind = info["completeness"]["blind"].as_array().unwrap();
    let own = tprof_wire::WIRE_VERSION;
    let words = format!("another tprof's library: its interface has version 99, this one's {own}");
    assert!(blind.iter().any(|row| row["why"].as_str().unwrap().contains(&words)), "{blind:?}");
}

#[test]
fn a_command_for_another_versions_run_names_both() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let run = traced(&Job::new("true"), EXACT, &scratch).run;
    let mut info = run_info(&run, |_| true);
    let session = scratch.join("session");
    std::fs::create_dir(&session).unwrap();
    info["finished"] = false.into();
    info["tprof"] = "9.9.9".into();
    info["session"] = session.to_str().unwrap().into();
    std::fs::write(run.join("run.json"), info.to_string()).unwrap();
    let server = Job::new(&python).args(["-c", TALK]).arg(session.join("sock")).arg(hello());
    let mut server = tprof_tests::Live::start(&server, &scratch.cwd());
    server.wait_for("ready");
    let words = format!("it is tprof 9.9.9, and this is tprof {}", env!("CARGO_PKG_VERSION"));
    let refused = tprof(["ctl", "status"]).arg(&run).run_in(scratch.cwd());
    assert_refused(&refused, &[&words]);
    assert_eq!(server.finish().code, Some(0));
}

#[test]
fn a_module_newer_than_the_run_names_both() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let module = scratch.join("site/tprof");
    std::fs::create_dir_all(&module).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tprof");
    for file in ["__init__.py", "_abi.py", "_library.py"] {
        let text = std::fs::read_to_string(source.join(file)).unwrap();
        // The module expects a word of the table that this library's table doesn't have.
        let newer = text.replace("\n_PYTHON_WORD = 11", "\n_PYTHON_WORD = 99");
        assert_eq!(file == "_library.py", newer != text);
        std::fs::write(module.join(file), newer).unwrap();
    }
    let about = scratch.join("site/tprof-9.9.9.dist-info");
    std::fs::create_dir(&about).unwrap();
    let text = "Metadata-Version: 2.1\nName: tprof\nVersion: 9.9.9\n";
    std::fs::write(about.join("METADATA"), text).unwrap();
    let job = Job::new(&python).args([
        "-B",
        "-c",
        "import tprof; tprof.step(); print(tprof.is_recording())",
    ]);
    let outcome = traced(&job.env("PYTHONPATH", scratch.join("site")), EXACT, &scratch).outcome;
    assert_eq!((outcome.code, &*outcome.stdout), (Some(0), "False\n"));
    let words =
        format!("the module is of tprof 9.9.9, and the run of tprof {}", env!("CARGO_PKG_VERSION"));
    assert!(outcome.stderr.contains(&words), "{}", outcome.stderr);
}

#[test]
fn a_module_runs_the_program_that_was_installed_with_it() {
    let python = need_some!(pythons().pop().ok_or("there is no Python"));
    let scratch = Scratch::new();
    let (venv, user) = (scratch.join("venv"), scratch.join("user"));
    let made = Job::new(&python).args(["-m", "venv", "--without-pip", "--system-site-packages"]);
    made.arg(&venv).run_in(scratch.cwd()).expect_code(0);
    let python = Job::new(venv.join("bin/python")).env("PYTHONUSERBASE", &user);
    let site = ["-c", "import site; print(site.getusersitepackages(), end='')"];
    let site = python.clone().args(site).run_in(scratch.cwd()).expect_code(0).stdout;
    let module = Path::new(&site).join("tprof");
    std::fs::create_dir_all(&module).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tprof");
    for file in ["__init__.py", "__main__.py", "_abi.py", "_binary.py"] {
        std::fs::copy(source.join(file), module.join(file)).unwrap();
    }
    // Another tprof is installed beside this Python.
    for (home, word) in [(&venv, "venv"), (&user, "user")] {
        let program = home.join("bin/tprof");
        std::fs::create_dir_all(home.join("bin")).unwrap();
        std::fs::write(&program, format!("#!/bin/sh\necho {word} $1\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let outcome = python.args(["-m", "tprof", "ls"]).run_in(scratch.cwd());
    assert_eq!((outcome.code, &*outcome.stdout), (Some(0), "user ls\n"), "{outcome:?}");
}
