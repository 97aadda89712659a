//! tprof removes the files that it makes in shared places when it ends. The next tprof removes
//! those of a killed one, and only its user can access them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use tprof_tests::{
    EXACT, Job, Live, Opened, Refused, Scratch, am_root, kill, need, program, run_info, tprof,
    traced, traced_job, wait_until,
};

/// Returns the directories in a place, by name.
fn directories_in(place: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

/// Makes a private folder in which tprof creates its sessions and temporary directories.
fn place(scratch: &Scratch) -> PathBuf {
    let place = scratch.join("runtime");
    fs::create_dir_all(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o700)).unwrap();
    place
}

fn with_place(job: Job, place: &Path) -> Job {
    job.env("XDG_RUNTIME_DIR", place).env("TMPDIR", place)
}

/// Starts a job under tprof, with its session in `place`.
fn live(scratch: &Scratch, place: &Path, name: &str) -> (Live, PathBuf) {
    let run = scratch.join(name);
    let job = traced_job(&Job::new(program("steady")).arg("200"), EXACT, &run);
    let mut live = Live::start(&with_place(job, place), &scratch.cwd());
    live.wait_for("ready");
    run_info(&run, |info| info["session"].as_str().is_some_and(|path| !path.is_empty()));
    (live, run)
}

/// Makes a run, kills its collector, and returns the directory that the collector left.
fn killed(scratch: &Scratch, place: &Path, name: &str) -> PathBuf {
    let before = directories_in(place);
    let (live, _) = live(scratch, place, name);
    let fresh = directories_in(place).into_iter().find(|path| !before.contains(path)).unwrap();
    kill(live.pid(), 9);
    live.finish();
    assert!(fresh.join("sock").exists());
    fresh
}

#[track_caller]
fn run_something(scratch: &Scratch, place: &Path, name: &str) {
    let job = traced_job(&Job::new("true"), EXACT, &scratch.join(name));
    assert_eq!(with_place(job, place).run_in(scratch.cwd()).code, Some(0));
}

#[test]
fn the_next_run_sweeps_what_a_killed_collector_left() {
    let scratch = Scratch::new();
    let place = place(&scratch);
    let session = killed(&scratch, &place, "killed");
    assert!(session.exists());
    run_something(&scratch, &place, "next");
    assert_eq!(directories_in(&place), [] as [PathBuf; 0]);
}

#[test]
fn the_session_of_another_live_run_is_not_swept() {
    let scratch = Scratch::new();
    let place = place(&scratch);
    let (neighbour, run) = live(&scratch, &place, "neighbour");
    run_something(&scratch, &place, "other");
    assert_eq!(directories_in(&place).len(), 1);
    tprof(["ctl", "status"]).arg(&run).run_in(scratch.path()).expect_code(0);
    assert_eq!(neighbour.finish().code, Some(48));
    assert_eq!(directories_in(&place), [] as [PathBuf; 0]);
}

#[test]
fn foreign_and_similarly_named_directories_are_not_swept() {
    need!(am_root(), Refused::Root);
    let scratch = Scratch::new();
    let place = place(&scratch);
    let foreign = killed(&scratch, &place, "foreign");
    for path in directories_in(&foreign).into_iter().chain([foreign.clone()]) {
        chown(&path, Some(65534), Some(65534)).unwrap();
    }
    let alike = place.join("tprof-AbCdEf");
    fs::create_dir(&alike).unwrap();
    fs::set_permissions(&alike, fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["sock", "owner"] {
        fs::write(alike.join(name), "mine").unwrap();
    }
    let before = directories_in(&place);
    run_something(&scratch, &place, "next");
    assert_eq!(directories_in(&place), before);
    assert!(foreign.join("sock").exists() && alike.join("sock").exists());
}

/// Runs `tprof open` on a small run, with a browser that writes its arguments to a file.
fn open(scratch: &Scratch, place: &Path, given: &Path) -> Opened {
    let browser = scratch.join("browser.sh");
    let script = "#!/bin/sh\n\
        { tr '\\0' '\\n' < /proc/$$/cmdline; grep SigBlk /proc/self/status; } > \"$GIVEN.new\"\n\
        cp -p \"$1\" \"$GIVEN.page\"; mv \"$GIVEN.new\" \"$GIVEN\"\n";
    fs::write(&browser, script).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let run = traced(&Job::new(program("thread_names")), EXACT, scratch).run;
    let variables =
        [("BROWSER", &*browser), ("GIVEN", given), ("TMPDIR", place), ("XDG_RUNTIME_DIR", place)];
    let opened = Opened::start(&run, &["--as", "flame"], &variables);
    wait_until("the browser was started", || given.exists());
    opened
}

#[test]
fn only_the_user_can_read_the_file_with_the_address_of_open() {
    let scratch = Scratch::new();
    let place = place(&scratch);
    let given = scratch.join("given");
    let mut opened = open(&scratch, &place, &given);
    let url = &opened.url;
    let token = url.rsplit('/').nth(1).unwrap();
    assert_eq!(token.len(), 32, "{url}");
    let written = fs::read_to_string(&given).unwrap();
    assert!(!written.contains(token), "the browser's arguments show the token: {written}");
    assert!(
        written.contains("SigBlk:\t0000000000000000"),
        "the browser was started with blocked signals: {written}"
    );
    let page = scratch.join("given.page");
    assert!(fs::read_to_string(&page).unwrap().contains(url), "the page leads to the address");
    assert_eq!(fs::metadata(&page).unwrap().mode() & 0o777, 0o600);
    let folders = directories_in(&place);
    assert_eq!(folders.len(), 1, "{folders:?}");
    assert_eq!(fs::metadata(&folders[0]).unwrap().mode() & 0o777, 0o700);
    kill(opened.pid(), 15);
    let status = opened.ended();
    assert_eq!(status.code(), Some(0), "`tprof open` ends cleanly");
    assert_eq!(directories_in(&place), [] as [PathBuf; 0], "its directory is left behind");
}

#[test]
fn leftovers_of_a_killed_open_are_swept() {
    let scratch = Scratch::new();
    let place = place(&scratch);
    let mut opened = open(&scratch, &place, &scratch.join("given"));
    kill(opened.pid(), libc::SIGKILL);
    opened.ended();
    assert_eq!(directories_in(&place).len(), 1);
    run_something(&scratch, &place, "next");
    assert_eq!(directories_in(&place), [] as [PathBuf; 0]);
}
