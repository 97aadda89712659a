//! A Rust job that spends its time in one known way, and measures it itself.
//!
//! Proves: `tprof report findings` names the line of a Rust program. The first argument chooses the
//! way. The report must name the line that ends in `HERE` and the way. The job prints lines
//! `expect KEY=SECONDS`. With `calm` as second argument it does the same without the cause.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const PASSES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(30);

#[inline(never)]
fn victim_mixes(mut state: u64, rounds: u32) -> u64 {
    for _ in 0..rounds {
        state = (state ^ (state >> 7)).wrapping_mul(0x9e37_79b9) + (state % 17) / 3; // HERE hot
    }
    state
}

fn hot(calm: bool) {
    let rounds = if calm { 1 } else { 500 };
    let began = Instant::now();
    let mut state = 1;
    for _ in 0..rounds {
        state = victim_mixes(state, 400_000);
    }
    println!("expect cpu={:.6}", cpu_s());
    if calm {
        std::thread::sleep(Duration::from_secs(1));
    }
    println!("# {state} {:?}", began.elapsed());
}

/// Returns the CPU time of this thread.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

#[inline(never)]
fn victim_receives(end: &mut UnixStream) -> u8 {
    let mut byte = [0];
    end.read_exact(&mut byte).unwrap(); // HERE socket
    byte[0]
}

fn socket(calm: bool) {
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        for _ in 0..PASSES {
            if !calm {
                std::thread::sleep(PAUSE);
            }
            theirs.write_all(b"x").unwrap();
        }
    });
    let mut waited = Duration::ZERO;
    for _ in 0..PASSES {
        let began = Instant::now();
        victim_receives(&mut ours);
        waited += began.elapsed();
        if calm {
            std::thread::sleep(PAUSE);
        }
    }
    server.join().unwrap();
    println!("expect socket={:.6}", waited.as_secs_f64());
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let calm = arguments.get(2).is_some_and(|word| word == "calm");
    match arguments[1].as_str() {
        "hot" => hot(calm),
        _ => socket(calm),
    }
}
