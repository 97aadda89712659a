//! Test program that records spans, values and allocations through the crate `tprof`: `sdk MODE`.
//!
//! - `all`: planted spans, steps, values, work, pools and allocations, from several threads.
//! - `odd`: spans dropped in another order and 100 deep, threads that end within a span, values
//!   that aren't finite numbers, long names, steps whose numbers decrease.
//! - `fork`: a child within its parent's span. `off`: recording switched off for a while.
//! - `calls`: prints the system calls and the allocations of a child that records 20 events of each
//!   kind, after it has recorded the same events before. The parent traces the child.
//! - `nvtx`: spans, marks and steps, some dropped in another order.
//! - `threads N`: N threads, each with a span and a counter.
#![allow(unsafe_code)]

use std::alloc::System;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tprof::{Category, Dtype};

#[global_allocator]
static ALLOCATOR: tprof::Alloc<System> = tprof::Alloc(System);

const TIMES: u64 = 100;

fn take(bytes: usize) {
    drop(black_box(Vec::<u8>::with_capacity(bytes)));
}

fn worker() {
    for at in 0..TIMES {
        let outer = tprof::span!(category: Category::Compute, "outer", at = at, even = at % 2 == 0);
        take(50);
        {
            let _inner = tprof::span!("inner");
            for _ in 0..4 {
                take(100);
            }
            tprof::work(1000, Dtype::Bf16);
        }
        tprof::work(10, Dtype::Bf16);
        outer.record("half", at as f64 / 2.0);
        tprof::counter!("samples").add(3);
    }
}

/// Records spans with secret texts, which must not appear in a redacted run, and with numbers.
fn secret() {
    let path = String::from("/sesame-text");
    drop(tprof::span!(category: Category::Io, "described", path = path.as_str(), batch = 3));
    drop(tprof::span!(category: Category::Custom("sesame-category"), "custom", loss = f64::NAN));
    let later = tprof::span!("later");
    later.record("path", path.as_str());
    later.record("batch", 3);
}

fn all() {
    println!("recording {}", tprof::is_recording());
    let workers: Vec<_> = (0..4).map(|_| std::thread::spawn(worker)).collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    for number in 0..5_u64 {
        tprof::step(number);
        let _load = tprof::span!(category: Category::DataLoad, "load", of = "train", small = -3_i8);
        tprof::gauge!("loss").set(1.0 / (number + 1) as f64);
        std::thread::sleep(Duration::from_millis(2));
    }
    let upload = tprof::start("upload");
    upload.record("bytes", 4096_u64);
    std::thread::spawn(move || upload.end()).join().unwrap();
    let began = Instant::now();
    std::thread::sleep(Duration::from_millis(20));
    let ended = Instant::now();
    std::thread::sleep(Duration::from_millis(20));
    tprof::complete("decode", began, ended);
    let sum = tprof::time("timed", || (0..10_u64).sum::<u64>());
    tprof::mark!("instant");
    tprof::mark(&format!("sum {sum}"));
    let pool = tprof::pool!("kv-cache");
    let blocks: Vec<u64> = (1..=8).map(|at| at << 20).collect();
    blocks.iter().for_each(|block| pool.took(*block, 1 << 20));
    std::thread::spawn(move || blocks[..6].iter().for_each(|block| pool.gave(*block)))
        .join()
        .unwrap();
    pool.gave(77_u64);
    println!("heap {}", tprof::heap().is_some_and(|heap| heap.peak_bytes >= heap.live_bytes));
}

fn histograms() {
    let values: Vec<f32> = (0..=60_u8).map(f32::from).chain([f32::NAN]).collect();
    tprof::histogram("weights", &values, None);
    tprof::histogram("weights", &values, Some(9));
    tprof::stop_recording();
    tprof::histogram("weights", &values, Some(10));
    tprof::start_recording();
    tprof::histogram::<u64>("none", &[], None);
    tprof::mark!("instant");
}

#[allow(clippy::vec_init_then_push)]
fn odd() {
    let first = tprof::span!("first");
    let second = tprof::span!("second");
    let third = tprof::span!("third");
    drop(first);
    std::thread::sleep(Duration::from_millis(5));
    drop(third);
    drop(second);
    drop(tprof::span!("after"));
    let deep: Vec<_> = (0..100).map(|at| tprof::span(&format!("deep {at}"))).collect();
    drop(deep);
    drop(tprof::span!("last"));
    std::thread::spawn(|| std::mem::forget(tprof::span!("left"))).join().unwrap();
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5] {
        tprof::gauge!("odd").set(value);
        drop(tprof::span!("valued", value = value));
    }
    drop(tprof::span(&"n".repeat(3 << 20)));
    drop(tprof::span!("texts", empty = "", long = "t".repeat(1 << 20).as_str()));
    for number in [7, 3, u64::MAX, 3] {
        tprof::step(number);
    }
    let many = tprof::span!("many");
    (0..40_u32).for_each(|at| many.record(&format!("key {at}"), at));
    drop(many);
    tprof::start("never ended").record("kept", true);
    std::mem::forget(tprof::start("open"));
}

fn fork() {
    let around = tprof::span!("around");
    // SAFETY: the child has only this thread, and ends with `_exit`, so locks of other threads
    // don't matter.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let child = tprof::span!("child");
        // The span began in the parent, so this process must not end it.
        drop(around);
        drop(child);
        drop(tprof::span!("child after"));
        tprof::counter!("forked").add(1);
        // SAFETY: `_exit` takes a number and ends the child, without running its exit handlers.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid local variable to write to.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    drop(around);
    drop(tprof::span!("parent after"));
    tprof::counter!("forked").add(1);
    println!("child {status}");
}

fn off() {
    let seen = tprof::span!("seen");
    tprof::stop_recording();
    let is_off = !tprof::is_recording();
    drop(tprof::span!("unseen", argument = 1));
    tprof::counter!("switched").add(5);
    take(7777);
    drop(seen);
    let is_on = tprof::start_recording();
    tprof::counter!("switched").add(2);
    drop(tprof::span!("seen after"));
    println!("off {is_off} on {is_on}");
}

/// Emits one event of each kind.
fn events() {
    for at in 0..20_u64 {
        let _outer = tprof::span!("quiet", at = at, text = "same", half = 0.5, flag = true);
        let _inner = tprof::span!(category: Category::Io, "within");
        tprof::mark!("mark");
        tprof::gauge!("gauge").set(at);
        tprof::counter!("counter").add(1);
        tprof::work(1, Dtype::F32);
        tprof::pool!("pool").took(at, 1);
        tprof::pool!("pool").gave(at);
        tprof::time("timed", || ());
        tprof::start("started").end();
        tprof::complete("completed", Instant::now(), Instant::now());
    }
}

/// Prints the system calls that a child makes between two marker calls. The child makes the marker's
/// system call for no other purpose.
fn calls() {
    const MARKER: libc::c_long = libc::SYS_sched_get_priority_max;
    // SAFETY: the call takes only a number.
    let marker = || unsafe { libc::syscall(MARKER, 0) };
    // SAFETY: `calls` runs in a process with one thread, so fork leaves no lock behind.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: PTRACE_TRACEME takes no pointers; the parent below traces this child.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        // A chunk holds the records of some twenty rounds. The pauses give the collector time to
        // read each chunk.
        for _ in 0..50 {
            events();
            std::thread::sleep(Duration::from_millis(2));
        }
        // SAFETY: `raise` takes a number; the signal stops this process.
        unsafe { libc::raise(libc::SIGSTOP) };
        let scope = tprof::heap_scope();
        marker();
        events();
        marker();
        let allocations = scope.heap().map(|heap| heap.allocations);
        println!("allocations {allocations:?}");
        std::process::exit(0);
    }
    let (mut status, mut within, mut count, mut names) = (0, false, 0, Vec::new());
    loop {
        // SAFETY: `status` is a valid local variable to write to.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            break;
        }
        let mut signal = libc::WSTOPSIG(status);
        if signal == libc::SIGTRAP {
            signal = 0;
            // SAFETY: the traced child is stopped, and `registers` is a valid local structure to
            // write to.
            let number = unsafe {
                let mut registers: libc::user_regs_struct = std::mem::zeroed();
                libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &mut registers);
                registers.orig_rax as libc::c_long
            };
            if number == MARKER {
                // A traced call stops the child at its beginning and at its end, so the second
                // stop is the end of the first marker.
                count += 1;
                within = count == 2;
            } else if within {
                names.push(number);
            }
        } else if signal == libc::SIGSTOP {
            signal = 0;
        }
        // SAFETY: PTRACE_SYSCALL takes no pointers; the traced child is stopped.
        unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, signal) };
    }
    println!("markers {count} calls {names:?}");
}

fn nvtx() {
    let outer = tprof::span!(category: Category::Compute, "outer", unseen = 1);
    let inner = tprof::span!("inner");
    tprof::mark!("mark");
    drop(outer);
    drop(inner);
    drop(tprof::span!("after"));
    let upload = tprof::start("upload");
    tprof::step(5);
    tprof::next_step();
    upload.end();
    tprof::gauge!("unseen").set(1);
    tprof::counter!("unseen").add(1);
    tprof::stop_recording();
    drop(tprof::span!("unseen"));
    println!("{} {:?}", tprof::start_recording(), tprof::heap());
}

fn threads(count: u64) {
    let all: Vec<_> = (0..count)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..1000 {
                    let _span = tprof::span!("threaded");
                    tprof::counter!("threaded").add(1);
                }
            })
        })
        .collect();
    all.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Profiles a part of this program and prints what the report has of the part and of the rest.
fn results() {
    let work = |name: &str| tprof::time(name, || std::hint::black_box(vec![1_u8; 4 << 20]).len());
    work("before");
    let (bytes, report) =
        tprof::Profile::new().report("spans").run(|| work("inside") + work("inside"));
    work("behind");
    println!("{bytes} {:?}", report.why_missing());
    println!("{}", report.to_string().lines().nth(1).unwrap_or_default());
    let json = report.json().unwrap_or_default();
    let has = |name: &str| json.contains(&format!("\"name\": \"{name}\""));
    println!("{} {} {}", has("before"), has("inside"), has("behind"));
    println!("{:?}", report.allocated_bytes().map(|bytes| (8 << 20..9 << 20).contains(&bytes)));
    println!(
        "{:?} {}",
        report.device_time(),
        report.findings().iter().all(|one| !one.headline.is_empty())
    );
}

fn main() {
    let mut words = std::env::args().skip(1);
    let mode = words.next().unwrap_or_default();
    match mode.as_str() {
        "all" => all(),
        "secret" => secret(),
        "odd" => odd(),
        "histograms" => histograms(),
        "fork" => fork(),
        "off" => off(),
        "calls" => calls(),
        "nvtx" => nvtx(),
        "results" => results(),
        "threads" => threads(words.next().and_then(|word| word.parse().ok()).unwrap_or(4)),
        _ => println!("recording {}", tprof::is_recording()),
    }
}
