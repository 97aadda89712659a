//! Writes a made-up run of which only the figures of its steps are kept, as `--keep` leaves it:
//! `history_run DIR SECONDS [RANKS]`. A step takes about a second. From three fifths of the job on
//! it takes a quarter longer, device memory grows all the time, one step is extreme, and from three
//! quarters on the others wait for rank 1. Tests and pages show it.

use std::path::Path;

use tprof_trace::model::*;
use tprof_trace::run::{Completeness, RUN_VERSION, RunInfo};
use tprof_trace::{TraceHeader, TraceWriter, info_text};

const START: u64 = 5_000_000_000;
const START_UNIX: u64 = 1_700_000_000_000_000_000;
const S: u64 = 1_000_000_000;
const GIB: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "history_run DIR SECONDS [RANKS]";
    let directory = Path::new(arguments.first().ok_or(usage)?);
    let seconds: u64 = arguments.get(1).ok_or(usage)?.parse()?;
    let ranks: u32 = arguments.get(2).map_or(Ok(2), |ranks| ranks.parse())?;
    std::fs::create_dir_all(directory)?;
    for rank in 0..ranks {
        write(directory, rank, seconds)?;
    }
    let info = RunInfo {
        version: RUN_VERSION,
        tprof: env!("CARGO_PKG_VERSION").to_owned(),
        host: "node-1".to_owned(),
        command: vec!["made-up".to_owned(), "history".to_owned()],
        start_ns: START,
        start_unix_ns: START_UNIX,
        end_ns: Some(START + seconds * S),
        finished: true,
        completeness: Completeness::default(),
        files: (0..ranks).map(|rank| format!("rank-{rank}.tprof")).collect(),
        ..RunInfo::default()
    };
    std::fs::write(directory.join("run.json"), info_text(&info)?)?;
    Ok(())
}

fn write(directory: &Path, rank: u32, seconds: u64) -> Result<(), Box<dyn std::error::Error>> {
    let header = TraceHeader {
        host: "node-1".to_owned(),
        rank: Some(rank),
        start_ns: START,
        start_unix_ns: START_UNIX,
        tprof: env!("CARGO_PKG_VERSION").to_owned(),
        ..TraceHeader::default()
    };
    let mut writer = TraceWriter::create(&directory.join(format!("rank-{rank}.tprof")), &header)?;
    let command = writer.name("python3 train.py");
    writer.process(&Process {
        process: 0,
        pid: 4100 + rank,
        parent: 4000,
        rank: Some(rank),
        command,
        exe: command,
        start_ns: START,
        memory: MemoryRecording::Off,
    });
    let (mut rows, mut start_ns) = (Vec::new(), START);
    for step in 0.. {
        let row = row(rank, step, start_ns, seconds);
        if row.end_ns() > START + seconds * S {
            break;
        }
        start_ns = row.end_ns();
        rows.push(row);
    }
    writer.write(&mut rows)?;
    writer.finish()?;
    Ok(())
}

fn row(rank: u32, step: u64, start_ns: u64, seconds: u64) -> HistoryRow {
    let passed = (start_ns - START) as f64 / (seconds * S) as f64;
    // A jitter of a few percent that doesn't repeat.
    let jitter = (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 50_000_000;
    let (slower, is_late) = (passed >= 0.6, passed >= 0.75);
    let mut length_ns = if slower { 1_150_000_000 } else { 900_000_000 } + jitter;
    if step == seconds / 3 {
        length_ns = 9 * S;
    }
    // While the others wait for rank 1, it computes and they are in the operation.
    let waits = if is_late && rank != 1 { 0.3 } else { 0.1 };
    let part = |share: f64| Some((length_ns as f64 * share) as u64);
    HistoryRow {
        start_ns,
        duration_ns: length_ns,
        source: HistorySource::Explicit,
        first_step: step,
        steps: 1,
        steps_ns: length_ns,
        shortest_ns: length_ns,
        median_ns: length_ns,
        longest_ns: length_ns,
        longest_step: step,
        devices: Some(1),
        busy_ns: part(0.92),
        compute_ns: part(0.85 - waits),
        communication_ns: part(waits + 0.05),
        exposed_communication_ns: part(waits),
        copied_bytes: Some(64 << 20),
        collectives: Some(12),
        collective_bytes: Some(GIB),
        collective_ns: part(0.01),
        cpu_ns: part(1.3),
        heap_bytes: Some(3 * GIB + (jitter << 2)),
        resident_bytes: Some(5 * GIB + (jitter << 3)),
        read_bytes: Some(200 << 20),
        written_bytes: Some(1 << 20),
        device_memory_bytes: Some(48 * GIB + (passed * 20.0 * GIB as f64) as u64),
        temperature_celsius: Some(61 + jitter / 25_000_000),
        power_milliwatts: Some(560_000 + jitter / 1_000),
        sm_clock_hz: Some(1_980_000_000),
        throttle_reasons: Some(0),
        ..HistoryRow::default()
    }
}
