//! `sdk-bench CONTENDER PAIRS` begins and ends PAIRS spans; one event is a pair. The contender
//! `empty` is the loop without spans. The output has the form of `scripts/bench/programs/loop.h`.

use std::hint::black_box;
use std::time::{Duration, Instant};

const SLICES: u64 = 256;

extern "C" {
    fn clock_gettime(clock: i32, into: *mut [i64; 2]) -> i32;
}

/// Returns the CPU time of this thread.
fn cpu() -> Duration {
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = [0; 2];
    // SAFETY: `time` is a valid `timespec` with the two 64-bit fields of 64-bit Linux, and the call
    // only writes it.
    unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time[0] as u64, time[1] as u32)
}

#[inline(always)]
fn timed(pairs: u64, mut span: impl FnMut(u64)) {
    let per_slice = (pairs / SLICES).max(1);
    (0..1000).for_each(&mut span);
    let mut slices = Vec::with_capacity(SLICES as usize);
    let (cpu_began, began) = (cpu(), Instant::now());
    for slice in 0..SLICES {
        let began = Instant::now();
        for at in 0..per_slice {
            span(black_box(slice ^ at));
        }
        slices.push(began.elapsed().as_nanos() as u64);
    }
    let (wall, cpu) = (began.elapsed().as_nanos(), (cpu() - cpu_began).as_nanos());
    slices.sort_unstable();
    let slice = slices[slices.len() / 4] * SLICES;
    let events = per_slice * SLICES;
    eprintln!("loop_wall_ns={wall}\nloop_cpu_ns={cpu}\nloop_slice_ns={slice}\nevents={events}");
}

fn main() {
    let mut words = std::env::args().skip(1);
    let contender = words.next().unwrap_or_default();
    let pairs = words.next().and_then(|word| word.parse().ok()).unwrap_or(10_000_000);
    match contender.as_str() {
        "empty" => timed(pairs, |at| {
            black_box(at);
        }),
        "tprof" => timed(pairs, |at| {
            let _span = tprof::span!("span");
            black_box(at);
        }),
        "tprof-args" => timed(pairs, |at| {
            let _span = tprof::span!("span", at = at & 1023, half = 0.5);
            black_box(at);
        }),
        "tprof-name" => timed(pairs, |at| {
            let _span = tprof::span("a name of the run time");
            black_box(at);
        }),
        "tprof-gauge" => timed(pairs, |at| tprof::gauge!("gauge").set(black_box(at))),
        "tracy" => {
            let _client = tracy_client::Client::start();
            timed(pairs, |at| {
                let _span = tracy_client::span!("span", 0);
                black_box(at);
            });
        }
        "puffin" | "puffin-on" => {
            puffin::set_scopes_on(contender == "puffin-on");
            timed(pairs, |at| {
                if at & 4095 == 0 {
                    puffin::GlobalProfiler::lock().new_frame();
                }
                puffin::profile_scope!("span");
                black_box(at);
            });
        }
        "tracing" | "tracing-on" => {
            if contender == "tracing-on" {
                let all = tracing_subscriber::registry();
                tracing::subscriber::set_global_default(all).expect("the first");
            }
            timed(pairs, |at| {
                let _span = tracing::info_span!("span").entered();
                black_box(at);
            });
        }
        "nvtx" => timed(pairs, |at| {
            nvtx::range_push!("span");
            black_box(at);
            nvtx::range_pop!();
        }),
        _ => panic!("no contender {contender}"),
    }
}
