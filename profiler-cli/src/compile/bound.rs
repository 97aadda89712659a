//! The bound of a log that a process of the job writes.
//!
//! The process keeps its file open, and must be able to go on: what is beyond the bound is given back
//! to the file system as a hole, while the job runs, and cut off at its end.

use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tprof_trace::compile_log::CUT_LINE;

/// What is kept of each process's log.
pub const MOST_BYTES: u64 = 256 << 20;
/// Less than this beyond the bound is left for the next time.
const LEAST_HOLE: u64 = 4 << 20;

/// Makes a hole of what is beyond the bound. A file system without holes keeps it until the job's end.
pub fn make_hole(log: &Path, bound: u64) -> io::Result<()> {
    let about = log.metadata()?;
    let blocks = about.blocks() * 512;
    if about.len() <= bound || blocks < bound + LEAST_HOLE.min(bound) {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).open(log)?;
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let length = i64::try_from(about.len() - bound).unwrap_or(i64::MAX);
    fallocate(&file, flags, bound as i64, length)?;
    Ok(())
}

/// Cuts a log at the bound, and counts in its last line what was beyond. Returns that.
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
    fn a_log_beyond_its_bound_is_written_on_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let bound = 1 << 20;
        // The job's own handle, which goes on behind the hole.
        let writer = File::create(&path).unwrap();
        let text = LINE.repeat(200_000);
        writer.write_all_at(text.as_bytes(), 0).unwrap();
        make_hole(&path, bound).unwrap();
        let after = path.metadata().unwrap();
        assert_eq!(after.len(), text.len() as u64);
        writer.write_all_at(LINE.as_bytes(), text.len() as u64).unwrap();
        let whole = text.len() as u64 + LINE.len() as u64;
        let read = |path: &Path| {
            read(BufReader::new(File::open(path).unwrap()), Bounds::default()).unwrap()
        };
        // As a launcher that was killed leaves it.
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
}
