//! Limits the size of the logs that a job's processes write.
//!
//! A process keeps its log open and must be able to continue writing. So while the job runs, the
//! part of a log beyond the bound is turned into a hole in the file, which takes no disk space. At
//! the end, the hole is cut off.

use nix::fcntl::{FallocateFlags, fallocate};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tprof_trace::compile_log::CUT_LINE;

/// Number of bytes to keep of the log of each process.
pub const MOST_BYTES: u64 = 256 << 20;
/// If the part beyond the bound is smaller than this, it is left for a later check.
const LEAST_HOLE: u64 = 4 << 20;

/// Logs may grow only while this many bytes are free in the file system, because PyTorch prints an
/// error for each event that it can't write. The number is more than the processes of a job write
/// between two checks.
const LEAST_FREE: u64 = 64 << 20;

/// The bounds of a run's logs, while the job runs.
#[derive(Debug, Default)]
pub struct LogBounds {
    /// Bounds of logs that may not grow because the file system is almost full. The bound of a log
    /// is its length when that was noticed.
    low: BTreeMap<PathBuf, u64>,
}

impl LogBounds {
    /// Applies the bounds to logs in a directory whose file system has `free` free bytes.
    pub fn keep(&mut self, logs: &[PathBuf], free: Option<u64>) {
        let is_low = free.is_some_and(|free| free < LEAST_FREE);
        for log in logs {
            let length = || log.metadata().map_or(0, |about| about.len());
            if is_low && !self.low.contains_key(log) {
                self.low.insert(log.clone(), length().min(MOST_BYTES));
            }
            let least = if is_low { 0 } else { LEAST_HOLE };
            // If the file system doesn't support holes, the log is only cut at the end.
            let _ = make_hole(log, self.of(log), least);
        }
    }

    /// Returns the number of bytes to keep of a log.
    pub fn of(&self, log: &Path) -> u64 {
        self.low.get(log).copied().unwrap_or(MOST_BYTES)
    }

    /// Whether a log was bounded because the file system was almost full.
    pub fn is_low(&self, log: &Path) -> bool {
        self.low.contains_key(log)
    }
}

/// Returns the number of bytes in a file system that users may still write.
pub fn free_bytes(directory: &Path) -> Option<u64> {
    let about = nix::sys::statvfs::statvfs(directory).ok()?;
    Some(about.blocks_available() as u64 * about.fragment_size() as u64)
}

/// Turns the part of a log beyond the bound into a hole, unless it is shorter than `least`. On a
/// file system without holes, this fails and the part stays until the job ends.
fn make_hole(log: &Path, bound: u64, least: u64) -> io::Result<()> {
    let about = log.metadata()?;
    let blocks = about.blocks() * 512;
    if about.len() <= bound || blocks < bound + least.min(bound) {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).open(log)?;
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let length = i64::try_from(about.len() - bound).unwrap_or(i64::MAX);
    fallocate(&file, flags, bound as i64, length)?;
    Ok(())
}

/// Cuts a log at the bound, and appends a line that says how many bytes were cut. Returns that
/// number.
pub fn cut(log: &Path, bound: u64) -> io::Result<u64> {
    let length = log.metadata()?.len();
    if length <= bound {
        return Ok(0);
    }
    let file = File::options().write(true).open(log)?;
    file.set_len(bound)?;
    let mut end = OpenOptions::new().append(true).open(log)?;
    writeln!(end, "\n{CUT_LINE}{}", length - bound)?;
    Ok(length - bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufReader;
    use std::os::unix::fs::FileExt;
    use tprof_trace::compile_log::{Bounds, read};

    const LINE: &str = "V1122 08:36:34.041000 7 a.py:1] {\"str\": [\"a\", 0]}\n";

    #[test]
    fn the_job_can_write_beyond_the_bound_and_the_excess_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let bound = 1 << 20;
        // The job's file handle, which continues to write after the hole.
        let writer = File::create(&path).unwrap();
        let text = LINE.repeat(200_000);
        writer.write_all_at(text.as_bytes(), 0).unwrap();
        make_hole(&path, bound, LEAST_HOLE).unwrap();
        let after = path.metadata().unwrap();
        assert_eq!(after.len(), text.len() as u64);
        writer.write_all_at(LINE.as_bytes(), text.len() as u64).unwrap();
        let whole = text.len() as u64 + LINE.len() as u64;
        let read = |path: &Path| {
            read(BufReader::new(File::open(path).unwrap()), Bounds::default()).unwrap()
        };
        // If the launcher is killed, the log stays in this state.
        let holed = read(&path);
        assert_eq!(holed.bytes, whole);
        if after.blocks() * 512 < bound + (1 << 20) {
            assert!(holed.bytes_not_kept >= whole - bound - LINE.len() as u64, "{holed:?}");
        }
        assert_eq!(cut(&path, bound).unwrap(), whole - bound);
        let kept = read(&path);
        assert_eq!(kept.bytes_not_kept, whole - bound);
        assert_eq!(kept.events["str"].count, bound / LINE.len() as u64);
        assert_eq!(cut(&path, whole).unwrap(), 0);
    }

    #[test]
    fn logs_stop_growing_when_the_file_system_is_almost_full() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let logs = std::slice::from_ref(&path);
        let text = LINE.repeat(20_000);
        let length = text.len() as u64;
        let writer = File::create(&path).unwrap();
        let mut bounds = LogBounds::default();
        writer.write_all_at(text.as_bytes(), 0).unwrap();
        bounds.keep(logs, Some(1 << 40));
        bounds.keep(logs, None);
        assert!(!bounds.is_low(&path) && bounds.of(&path) == MOST_BYTES);
        bounds.keep(logs, Some(1000));
        writer.write_all_at(text.as_bytes(), length).unwrap();
        bounds.keep(logs, Some(1000));
        assert_eq!((bounds.is_low(&path), bounds.of(&path)), (true, length));
        let log = || read(File::open(&path).map(BufReader::new).unwrap(), Bounds::default());
        let log = || log().unwrap();
        let has_holes = path.metadata().unwrap().blocks() * 512 < length + length / 2;
        assert_eq!(has_holes, log().bytes_not_kept > 0);
        assert_eq!(cut(&path, bounds.of(&path)).unwrap(), length);
        assert_eq!((log().bytes_not_kept, log().events["str"].count), (length, 20_000));
        assert!(free_bytes(dir.path()).is_some());
    }
}
