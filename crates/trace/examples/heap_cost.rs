//! Measures the cost of writing and reading heap events: nanoseconds and bytes per event.
//!
//! `cargo run --release -p tprof-trace --example heap_cost [EVENTS]`

use std::hint::black_box;
use std::time::Instant;
use tprof_trace::{HeapBlock, TraceFile, TraceHeader, TraceWriter};

/// A xorshift generator, as in the workloads.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// An event that is ready to be recorded. It is small, so that reading it adds little to the
/// measured cost.
#[derive(Clone, Copy)]
struct Event {
    /// Nanoseconds since the event before it.
    step: u32,
    size: u32,
    /// Stack of an allocation; 0 for a free.
    stack: u32,
    distance: u32,
}

/// Returns events of a program that frees each block right after allocating it.
fn tight(events: usize) -> Vec<Event> {
    let mut random = Random(1);
    (0..events)
        .map(|event| {
            let step = 10 + (random.next() % 21) as u32;
            match event % 2 {
                0 => Event { step, size: 64, stack: 1, distance: 0 },
                _ => Event { step, size: 0, stack: 0, distance: 1 },
            }
        })
        .collect()
}

/// Returns events of a program that has 100,000 live blocks and replaces a random one each time.
/// Sizes are geometric, and there are 1,665 stacks.
fn mixed(events: usize) -> Vec<Event> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut live = vec![u32::MAX; 100_000];
    let mut ordinal = 0;
    let mut list = Vec::with_capacity(events + 1);
    while list.len() < events {
        let r = random.next();
        let slot = (r % 100_000) as usize;
        if live[slot] != u32::MAX {
            let step = 60 + (random.next() % 60) as u32;
            list.push(Event { step, size: 0, stack: 0, distance: ordinal - live[slot] });
        }
        let exponent = 4 + (((r >> 32) & 0xfff) | 0x800).trailing_zeros();
        let size = (1 << exponent) + ((r >> 20) & ((1 << exponent) - 1));
        let (depth, entry) = ((r >> 53) % 26, (r >> 50) & 7);
        let stack = 1 + (depth * 64 + entry * 8 + (size & 7)) % 1665;
        let step = 80 + (random.next() % 221) as u32;
        list.push(Event { step, size: size as u32, stack: stack as u32, distance: 0 });
        live[slot] = ordinal;
        ordinal += 1;
    }
    list
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let events = std::env::args().nth(1).map_or(Ok(4_000_000), |text| text.parse())?;
    let path = std::env::temp_dir().join(format!("heap_cost-{}.tprof", std::process::id()));
    for (name, list) in [("tight", tight(events)), ("mixed", mixed(events))] {
        for threads in [1, 2] {
            let mut best = (f64::MAX, f64::MAX, f64::MAX);
            let mut bytes = 0;
            for _ in 0..5 {
                let mut writer = TraceWriter::create(&path, &TraceHeader::default())?;
                let mut block = HeapBlock::new(0);
                let (mut append, mut time_ns) = (0.0, 1 << 50);
                let begin = Instant::now();
                for part in list.chunks(1 << 16) {
                    let chunk = Instant::now();
                    for event in part {
                        time_ns += u64::from(event.step);
                        let thread = event.step & (threads - 1);
                        match event.stack {
                            0 => block.free(time_ns, thread, event.distance.into(), false),
                            stack => block.alloc(time_ns, thread, event.size.into(), stack, false),
                        }
                    }
                    append += chunk.elapsed().as_secs_f64();
                    writer.heap(&mut block)?;
                }
                let write = begin.elapsed().as_secs_f64();
                bytes = writer.bytes_written();
                writer.finish()?;
                let file = TraceFile::open(&path)?;
                let begin = Instant::now();
                let sum = file.heap_events().fold(0, |sum, event| sum ^ black_box(event).time_ns);
                black_box(sum);
                let read = begin.elapsed().as_secs_f64();
                best = (best.0.min(write), best.1.min(append), best.2.min(read));
                std::fs::remove_file(&path)?;
            }
            let each = |seconds: f64| seconds * 1e9 / list.len() as f64;
            println!(
                "{name}, {threads} thread(s): write {:.2} ns/event (append {:.2}), {:.3} bytes/event, read {:.2} ns/event",
                each(best.0),
                each(best.1),
                bytes as f64 / list.len() as f64,
                each(best.2),
            );
        }
    }
    Ok(())
}
