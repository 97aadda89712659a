//! Programs that confine themselves run as without tprof, and tprof records as much of them as
//! their own rules permit.

use crate::sums::{Recorded, exact_in_threads, recorded};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::Command;
use tprof_tests::{
    DEFAULT, EXACT, Job, Outcome, Refused, Scratch, am_root, assert_unchanged, memory_report,
    need_some, program, report, skip_for, tprof_at, traced,
};

/// Each way in which `sandboxed` asks for seccomp.
const WAYS: [&str; 9] =
    ["nothing", "probe", "refused", "open", "no_sockets", "enough", "narrow", "tsync", "strict"];

fn sandboxed(how: &str, what: &str) -> Job {
    Job::new(program("sandboxed")).args([how, what])
}

#[test]
fn children_with_their_own_thread_pointer_end_as_without_tprof() {
    for how in WAYS {
        assert_unchanged(&sandboxed(how, "bare"), &[EXACT, DEFAULT], &Scratch::new());
    }
}

#[test]
fn threads_that_begin_in_a_sandbox_end_as_without_tprof() {
    for how in WAYS {
        assert_unchanged(&sandboxed(how, "threads"), &[EXACT, DEFAULT], &Scratch::new());
    }
}

#[test]
fn filters_that_fail_or_permit_everything_cost_no_events() {
    for how in ["nothing", "probe", "refused", "open", "strict"] {
        let job = sandboxed(how, "threads");
        let (report, _) = exact_in_threads(&job);
        let Recorded { run, _scratch, .. } = recorded(&job, DEFAULT);
        let sampled = self::report(&run);
        assert_eq!(sampled.lost(), 0, "{how}: {}", sampled.0["completeness"]);
        assert_eq!(sampled.total("allocations"), report.total("allocations"), "{how}");
    }
}

/// Number of blocks of the only forked child.
const FORKED: i64 = 2001;

/// The filter `enough` kills the process for any system call that neither the program nor the
/// library is known to make.
#[test]
fn threads_are_recorded_where_a_filter_stops_new_processes() {
    for how in ["no_sockets", "enough"] {
        let Recorded { run, wanted, _scratch } = recorded(&sandboxed(how, "threads"), EXACT);
        let report = memory_report(&run);
        assert_eq!(report.lost(), 0, "{how}: {}", report.0["completeness"]);
        assert_eq!(report.in_victims("allocations"), wanted.allocations - FORKED, "{how}");
        let why = report.blind("child of").expect("the forked child is named");
        assert!(why.contains("seccomp"), "{why}");
    }
}

#[test]
fn events_that_a_filter_forbids_to_record_are_counted_as_lost() {
    for how in ["narrow", "tsync"] {
        for options in [EXACT, DEFAULT] {
            let Recorded { run, wanted, _scratch } = recorded(&sandboxed(how, "threads"), options);
            let report = memory_report(&run);
            let events = wanted.allocations + wanted.frees - 2 * FORKED + 1;
            let known = report.total("allocations") + report.total("frees") + report.lost();
            assert!(known >= events, "{how}: {known} of {events}: {}", report.0["completeness"]);
            assert!(report.blind("child of").is_some(), "{how}: {}", report.0["completeness"]);
        }
    }
}

/// NVTX ranges are recorded by another library of tprof's, which has no hooks that could notice a
/// filter.
#[test]
fn ranges_of_nvtx_in_a_sandbox_end_no_process_and_are_recorded() {
    let scratch = Scratch::new();
    let job = Job::new(program("nvtx")).arg(scratch.join("log")).args(["push", "narrow", "20000"]);
    assert_eq!(job.run_in(scratch.cwd()).code, Some(0));
    for options in [EXACT, DEFAULT, &["--activities", "nvtx"]] {
        let run = traced(&job, options, &scratch);
        assert_eq!((run.outcome.code, run.outcome.signal), (Some(0), None), "{:?}", run.outcome);
        let report = report(&run.run);
        assert_eq!(report.lost(), 0, "{options:?}: {}", report.0["completeness"]);
        let recorded = report.0["completeness"]["recorded"].as_i64().unwrap();
        assert!(recorded >= 20_004, "{options:?}: {}", report.0["completeness"]);
    }
}

/// An ordinary user, which a browser's sandbox requires, and a home directory of that user.
struct Ordinary {
    scratch: Scratch,
    words: Vec<String>,
    tprof: PathBuf,
}

impl Ordinary {
    fn new() -> Ordinary {
        const NOBODY: u32 = 65534;
        let scratch = Scratch::new();
        let (home, tprof) = (scratch.join("home"), scratch.join("tprof"));
        fs::create_dir(&home).unwrap();
        // Other users may not have access to the place where the tests were built.
        fs::copy(tprof_at(), &tprof).unwrap();
        fs::set_permissions(&tprof, fs::Permissions::from_mode(0o755)).unwrap();
        let mut words: Vec<String> =
            ["env", "-i", "PATH=/usr/bin:/bin", "LANG=C.UTF-8"].map(str::to_owned).to_vec();
        words.push(format!("HOME={}", home.display()));
        if am_root() {
            chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
            let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
            words.splice(0..0, user.map(str::to_owned));
        }
        Ordinary { scratch, words, tprof }
    }

    /// Runs a script as that user, natively or recorded; the program's messages go to `errors`.
    fn run(&self, script: &str, arguments: &[&str], traced: Option<&[&str]>) -> Outcome {
        let home = self.scratch.join("home");
        let mut words = self.words.clone();
        if let Some(options) = traced {
            words.extend([self.tprof.display().to_string(), "run".into(), "--quiet".into()]);
            words.extend(options.iter().map(|option| (*option).to_owned()));
            words.extend(["--force".into(), "-o".into(), home.join("run").display().to_string()]);
            words.push("--".into());
        }
        let script = format!("exec 2>{}/errors; {script}", home.display());
        Job::sh(&script).args(arguments).under(words).limit(240).run_in(&home)
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.scratch.join("home/errors")).unwrap_or_default()
    }
}

fn browser() -> Result<String, String> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let found = names.iter().find(|name| {
        let path = Command::new("sh").args(["-c", "command -v \"$1\"", "sh", name]).output();
        path.is_ok_and(|out| out.status.success())
    });
    found.map(|name| (*name).to_owned()).ok_or_else(|| "no Chromium is installed".to_owned())
}

/// Loads a page that fills itself by a script, and prints the resulting page.
const LOAD: &str = r#"profile=$(mktemp -d)
"$1" --headless --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --user-data-dir="$profile" --dump-dom \
    'data:text/html,<p id=sum></p><script>document.getElementById("sum").textContent = 6 * 7</script>'
code=$?; rm -rf "$profile"; exit $code"#;

#[test]
fn a_sandboxed_browser_loads_a_page() {
    let browser = need_some!(browser());
    let user = Ordinary::new();
    let native = user.run(LOAD, &[&browser], None);
    if native.code != Some(0) || !native.stdout.contains("<p id=\"sum\">42</p>") {
        // These are the first steps of a namespace sandbox, as the same user.
        let probe = user.run("unshare --user --pid --net --fork true", &[], None);
        let why = user.errors();
        if probe.code != Some(0) {
            return skip_for(Refused::UserNamespaces, &why);
        }
        return skip_for(Refused::Untraced, &format!("{browser}: {native:?}"));
    }
    for options in [DEFAULT, EXACT] {
        let traced = user.run(LOAD, &[&browser], Some(options));
        assert!(traced == native, "{options:?}: {traced:?}\n{}", user.errors());
    }
    // Root can read any run.
    let report = report(&user.scratch.join("home/run"));
    let renderers = report.processes("--type=renderer").len();
    let zygotes = report.processes("--type=zygote").len();
    assert!(zygotes > 0, "renderers {renderers}: {}", report.0["processes"]);
    // Chromium has an allocator of its own, and its confined children may not attach; the report
    // names both.
    let blind = report.0["completeness"]["blind"].to_string();
    assert!(blind.contains("has its own malloc"), "{blind}");
}
