//! Writes input files for tests and for measurements that a person runs by hand:
//!
//! ```text
//! make-traces kineto STEPS FILE.json [RANK RANKS]   a trace as torch.profiler writes it
//! make-traces ranks RUN COUNT OUT                   a run of COUNT ranks from an imported one
//! ```

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::ExitCode;
use tprof_tests::{Synthetic, many_ranks};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let made = match words[..] {
        ["kineto", steps, path] => kineto(steps, path, "0", "1"),
        ["kineto", steps, path, rank, ranks] => kineto(steps, path, rank, ranks),
        ["ranks", run, count, out] => number(count).and_then(|count| {
            many_ranks(Path::new(run), Path::new(out), count).map_err(|error| error.to_string())
        }),
        _ => Err("usage: make-traces kineto STEPS FILE [RANK RANKS]\n       make-traces ranks RUN COUNT OUT"
            .to_owned()),
    };
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn kineto(steps: &str, path: &str, rank: &str, ranks: &str) -> Result<(), String> {
    let trace =
        Synthetic { rank: number(rank)?, ranks: number(ranks)?, steps: number(steps)?.into() };
    let file = File::create(path).map_err(|error| format!("{path}: {error}"))?;
    trace.write(&mut BufWriter::new(file)).map_err(|error| format!("{path}: {error}"))?;
    Ok(())
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}
