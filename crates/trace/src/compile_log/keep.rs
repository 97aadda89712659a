//! Copies a log of `torch.compile` into a run, compressed and with a bounded length.

use super::source::CUT_LINE;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// The ending of the file names of logs in a run.
pub const KEPT_ENDING: &str = ".zst";

/// Writes a log's text to a new file, compressed by zstd. If the text is longer than `limit` bytes,
/// the last line tells how many more there were. Returns this number.
pub fn keep(source: impl Read, path: &Path, limit: u64) -> io::Result<u64> {
    let file = File::options().write(true).create_new(true).open(path)?;
    // Remove the file after an error; otherwise a part of a log would pass for the whole.
    write(source, file, limit).inspect_err(|_| drop(std::fs::remove_file(path)))
}

fn write(source: impl Read, file: File, limit: u64) -> io::Result<u64> {
    let mut kept = zstd::stream::write::Encoder::new(file, 3)?;
    let mut source = BufReader::with_capacity(256 << 10, source);
    let taken = io::copy(&mut source.by_ref().take(limit), &mut kept)?;
    let beyond = if taken == limit { io::copy(&mut source, &mut io::sink())? } else { 0 };
    if beyond > 0 {
        writeln!(kept, "\n{CUT_LINE}{beyond}")?;
    }
    kept.finish()?.sync_all()?;
    Ok(beyond)
}

#[cfg(test)]
mod tests {
    use super::super::Bounds;
    use super::*;

    #[test]
    fn bytes_beyond_the_limit_are_counted_but_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let line = "V1122 08:36:34.041000 7 a.py:1] {\"str\": [\"a\", 0]}\n".repeat(100);
        let whole = dir.path().join("whole.log.zst");
        assert_eq!(keep(line.as_bytes(), &whole, 1 << 20).unwrap(), 0);
        let log = super::super::open(&whole, Bounds::default()).unwrap();
        assert_eq!((log.events["str"].count, log.bytes_not_kept), (100, 0));
        let cut = dir.path().join("cut.log.zst");
        let beyond = keep(line.as_bytes(), &cut, 530).unwrap();
        assert_eq!(beyond, line.len() as u64 - 530);
        let log = super::super::open(&cut, Bounds::default()).unwrap();
        assert_eq!((log.events["str"].count, log.bytes_not_kept), (10, beyond));
    }
}
