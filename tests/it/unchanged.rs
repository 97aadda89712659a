//! The job is unchanged: its output and its end are the same with and without tprof, whatever it
//! does.

use tprof_tests::{
    DEFAULT, EXACT, Job, Kind, Refused, Scratch, assert_unchanged, build, can_mount, need,
    need_some, program, wait_until,
};

/// The options with which most victims are run.
const BOTH: &[&[&str]] = &[EXACT, DEFAULT];
/// Memory modes with and without stacks, a full ring that drops events, and no memory recording.
const EVERY: &[&[&str]] = &[
    EXACT,
    DEFAULT,
    &["--mem", "exact", "--stacks", "off"],
    &["--mem", "sampled=4096", "--stacks", "off"],
    &["--mem", "exact", "--on-full", "drop"],
    &["--mem", "off"],
];

fn victim(name: &str) -> Job {
    Job::new(program(name))
}

macro_rules! unchanged {
    ($($fact:ident: $modes:expr, $job:expr;)*) => { $(
        #[test]
        fn $fact() {
            assert_unchanged(&$job, $modes, &Scratch::new());
        }
    )* };
}

unchanged! {
    returning_from_main: EVERY, victim("leave").arg("return");
    exit: BOTH, victim("leave").arg("exit");
    underscore_exit: BOTH, victim("leave").arg("_exit");
    capital_exit: BOTH, victim("leave").arg("_Exit");
    quick_exit: BOTH, victim("leave").arg("quick_exit");
    exit_by_system_call: BOTH, victim("leave").arg("exit_group");
    abort: BOTH, victim("leave").arg("abort");
    sigkill_of_itself: EVERY, victim("leave").arg("kill");
    sigterm_of_itself: BOTH, victim("leave").arg("term");
    a_segmentation_fault: BOTH, victim("leave").arg("segv");
    pthread_exit_of_main: BOTH, victim("leave").arg("pthread_exit");
    exit_with_busy_threads: EVERY, victim("exit_race");
    underscore_exit_with_busy_threads: BOTH, victim("exit_race").arg("_exit");
    quick_exit_with_busy_threads: BOTH, victim("exit_race").arg("quick_exit");
    constructors_and_destructors: BOTH, victim("constructors");
    forked_children: EVERY, victim("fork");
    forking_among_threads: EVERY, victim("fork_threads");
    vfork_and_exec: EVERY, victim("vfork_exec");
    exec_of_itself: BOTH, victim("exec_self");
    every_form_of_exec: BOTH, victim("exec_forms");
    posix_spawn: BOTH, victim("spawn");
    exec_with_an_empty_environment: BOTH, victim("exec_empty_env");
    waiting_for_any_child: EVERY, victim("children").arg("any");
    ignoring_sigchld: EVERY, victim("children").arg("ignored");
    destructors_of_thread_keys: BOTH, victim("tls_keys").arg("50");
    destructors_of_thread_locals: BOTH, victim("tls_cxx");
    stacks_of_16_kilobytes: EVERY, victim("small_stacks");
    threads_by_the_thousand: BOTH, victim("many_threads").args(["10000", "2000"]).limit(180);
    names_of_threads: BOTH, victim("thread_names");
    every_end_of_a_thread: BOTH, victim("thread_ends");
    blocks_freed_by_another_thread: BOTH, victim("handover").arg("100000");
    allocating_in_a_handler: EVERY, victim("handler_malloc").arg("500");
    mapping_in_a_handler: BOTH, victim("handler_map");
    jumping_out_of_a_handler: EVERY, victim("handler_jump");
    allocating_on_an_alternate_stack: BOTH, victim("altstack");
    calls_on_files_on_small_stacks: EVERY, victim("small_handler_stack");
    coroutines: EVERY, victim("coroutines");
    stacks_that_are_left_and_gone: EVERY, victim("stacks_gone");
    recursion_of_500_frames: EVERY, victim("deep");
    exceptions: BOTH, victim("exceptions");
    operators_new_and_delete: BOTH, victim("operators");
    every_allocator_function: EVERY, victim("families").args(["100", "pvalloc"]);
    mapping_and_moving: BOTH, victim("maps");
    errno: EVERY, victim("errno_kept");
    code_without_unwind_information: BOTH, victim("stacks_cut");
    a_plugin_bound_past_every_preload: BOTH, victim("deepbind").arg(program("plugin"));
    plugins_loaded_and_unloaded: BOTH,
        victim("dlopen_loop").arg("200").arg(program("plugin")).arg(program("other_plugin"));
    an_executable_with_a_malloc_of_its_own: BOTH, victim("own_malloc");
    strict_seccomp: EVERY, victim("seccomp").arg("strict");
    strict_seccomp_by_system_call: BOTH, victim("seccomp").arg("strict_syscall");
    a_seccomp_filter: BOTH, victim("seccomp").arg("filter");
    a_pipeline_cut_by_sigpipe: BOTH, Job::sh("seq 200000 | sort -rn | head -n 3; echo done");
    a_python_program: BOTH, Job::new("python3").args(["-c", PYTHON]);
}

const PYTHON: &str = "
import json, os, subprocess, sys, threading
words = [str(i) * 10 for i in range(20000)]
text = json.dumps({'words': words, 'depth': [[i] * 3 for i in range(1000)]})
assert json.loads(text)['words'] == words
threads = [threading.Thread(target=lambda: json.loads(text)) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(text), subprocess.run([sys.executable, '-c', 'print(6 * 7)'], capture_output=True).stdout)
print(sorted(os.listdir('/proc/self/fd'))[:3], file=sys.stderr)
sys.exit(17)
";

/// Defines tests of programs that need a compiler or a library that may be missing.
macro_rules! unchanged_if_built {
    ($($fact:ident: $name:expr, $kind:expr, $args:expr;)*) => { $(
        #[test]
        fn $fact() {
            let program = need_some!(build($name, $kind));
            assert_unchanged(&Job::new(program).args::<&str>($args), BOTH, &Scratch::new());
        }
    )* };
}

unchanged_if_built! {
    a_static_program: "leave", Kind::Static, ["exit"];
    a_static_program_that_forks: "fork", Kind::Static, [];
    a_program_of_32_bits: "leave", Kind::M32, ["exit"];
    a_program_of_32_bits_that_runs_others: "exec_forms", Kind::M32, [];
    a_musl_program: "leave", Kind::Musl, ["exit"];
    a_musl_program_that_is_killed: "leave", Kind::Musl, ["kill"];
    a_musl_program_with_threads: "thread_ends", Kind::Musl, [];
    a_static_musl_program: "leave", Kind::MuslStatic, ["exit"];
    a_program_with_libstdcxx_linked_in: "operators", Kind::StaticCxx, [];
    exceptions_with_libstdcxx_linked_in: "exceptions", Kind::StaticCxx, [];
    bundled_jemalloc: "bundled", Kind::Jemalloc, [];
    bundled_tcmalloc: "bundled", Kind::Tcmalloc, [];
    a_sanitizer_build: "asan_error", Kind::Asan, [];
    a_program_with_frame_pointers: "exceptions", Kind::FramePointers, [];
}

#[test]
fn a_sanitizer_still_finds_its_error() {
    let program = need_some!(build("asan_error", Kind::Asan));
    let scratch = Scratch::new();
    // The report contains pids and addresses, so only its kind is compared.
    let script = "\"$@\" 2>errors; code=$?; grep -o 'AddressSanitizer: heap-use-after-free' errors; exit $code";
    let direct = Job::sh(script).arg(&program).arg("now");
    let run = assert_unchanged(&direct, BOTH, &scratch);
    assert!(run.outcome.stdout.contains("heap-use-after-free"), "{:?}", run.outcome);
}

#[test]
fn a_sanitizer_build_started_by_another_program() {
    let program = need_some!(build("asan_error", Kind::Asan));
    assert_unchanged(&Job::sh("\"$1\"; echo \"ended $?\"").arg(program), BOTH, &Scratch::new());
}

/// Returns the path of a library of Debian, if it is installed.
fn library(name: &str) -> Result<String, String> {
    let path = format!("/usr/lib/{}-linux-gnu/{name}", std::env::consts::ARCH);
    if std::fs::exists(&path).unwrap_or(false) {
        Ok(path)
    } else {
        Err(format!("{path} is not installed"))
    }
}

#[test]
fn a_preloaded_jemalloc() {
    let library = need_some!(library("libjemalloc.so.2"));
    assert_unchanged(&victim("bundled").env("LD_PRELOAD", library), BOTH, &Scratch::new());
}

#[test]
fn a_preloaded_tcmalloc() {
    let library =
        need_some!(library("libtcmalloc_minimal.so.4").or_else(|_| library("libtcmalloc.so.4")));
    assert_unchanged(&victim("bundled").env("LD_PRELOAD", library), BOTH, &Scratch::new());
}

#[test]
fn a_container_whose_shared_memory_is_full() {
    need!(can_mount(), Refused::Mounts);
    let small = "mount -t tmpfs -o size=64m tmpfs /dev/shm && exec \"$@\"";
    let job = victim("shm_full").under(["unshare", "-m", "sh", "-c", small, "sh"]);
    assert_unchanged(&job, BOTH, &Scratch::new());
}

#[test]
fn two_thousand_short_processes() {
    let scratch = Scratch::new();
    let targets: String = (0..1000).map(|n| format!("t{n}: ; @$(SHORT)\n")).collect();
    let all: String = (0..1000).map(|n| format!(" t{n}")).collect();
    let makefile = scratch.write("Makefile", &format!("all:{all}\n{targets}"));
    let script = "i=0; while [ $i -lt 1000 ]; do \"$1\" || exit 9; i=$((i+1)); done; echo looped
        if command -v make >/dev/null; then make -s -j4 -f \"$2\" SHORT=\"$1\"; echo \"made $?\"; fi";
    let job = Job::sh(script).arg(program("short")).arg(makefile).limit(240);
    let run = assert_unchanged(&job, &[EXACT], &scratch);
    let wanted = if run.outcome.stdout.contains("made 0") { 2000 } else { 1000 };
    let report = tprof_tests::memory_report(&run.run);
    assert_eq!(report.lost(), 0, "{}", report.0["completeness"]);
    assert_eq!(report.in_victims("allocations"), wanted);
    // The command lines of the shell and of make contain the program's name as well.
    let short = report.processes("/short").into_iter();
    let short = short.filter(|p| !p["command"].as_str().unwrap().contains([' ', '=']));
    assert_eq!(short.count() as i64, wanted);
}

#[test]
fn a_daemon_left_behind() {
    let scratch = Scratch::new();
    let job = victim("daemon").arg("left");
    let native = job.run_in(scratch.cwd());
    assert_eq!(native.code, Some(0), "{native:?}");
    for options in BOTH {
        let traced = tprof_tests::traced(&job, options, &scratch);
        assert!(traced.outcome == native, "{:?}", traced.outcome);
        let file = scratch.join("cwd/left");
        wait_until(&format!("the daemon lives under {options:?}"), || {
            std::fs::read_to_string(&file).ok().as_deref() == Some("alive\n")
        });
    }
}
