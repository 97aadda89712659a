//! Reserves disk space for the end of a run, so that its losses and `run.json` can be written even
//! if the run has filled the disk.
//!
//! A file without a name occupies the space, so the space is free again however the collector ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tprof_os::sys;

/// Size of a block on most file systems. A file takes at least one.
const BLOCK_BYTES: u64 = 4096;
/// Number of blocks that a trace file needs at its end, for its losses and the newest part of its
/// index.
const BLOCKS_PER_FILE: u64 = 3;

/// Disk space that is reserved for the end of a run.
pub struct Reserve {
    /// The file that occupies the space; `None` if no such file can be created.
    held: Option<OwnedFd>,
    bytes: u64,
}

impl Reserve {
    /// Creates an empty reserve on the disk of a run's directory.
    pub fn new(directory: &Path) -> Reserve {
        Reserve { held: nameless(directory).ok().map(OwnedFd::from), bytes: 0 }
    }

    /// Reserves space for a `run.json` of `info_bytes`, which still grows at the end, and for the
    /// ends of `files` trace files. If the disk has less space than that, the reserve stays as it
    /// is.
    pub fn hold(&mut self, info_bytes: usize, files: usize) {
        let bytes = room_for(info_bytes) + files as u64 * BLOCKS_PER_FILE * BLOCK_BYTES;
        if bytes > self.bytes
            && let Some(held) = &self.held
            && sys::allocate(held, bytes).is_ok()
        {
            self.bytes = bytes;
        }
    }

    /// Shrinks the reserve to the space for `run.json`, so that the trace files can use the rest
    /// for their ends.
    pub fn reserve_for_info(&mut self, info_bytes: usize) {
        let bytes = room_for(info_bytes).min(self.bytes);
        if let Some(held) = self.held.take().map(File::from) {
            // If the file can't be truncated, the whole reserve is released.
            self.held = held.set_len(bytes).is_ok().then(|| held.into());
        }
    }

    /// Releases the rest of the space.
    pub fn release(&mut self) {
        self.held = None;
    }
}

fn room_for(info_bytes: usize) -> u64 {
    (info_bytes as u64 * 2).next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES
}

/// Creates a file in a directory and removes its name, if it has one.
fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    let made = options.clone().custom_flags(libc::O_TMPFILE).open(directory);
    made.or_else(|_| {
        // The file system doesn't support `O_TMPFILE`.
        let path = directory.join(format!(".tprof-{}", std::process::id()));
        let file = options.create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        Ok(file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_has_no_name_and_grows_with_the_run() {
        let directory = tempfile::tempdir().unwrap();
        let mut reserve = Reserve::new(directory.path());
        reserve.hold(1000, 2);
        let first = reserve.bytes;
        assert!(first >= 2000 + 2 * BLOCK_BYTES, "{first}");
        reserve.hold(10, 0);
        assert_eq!(reserve.bytes, first, "what is held stays");
        reserve.hold(100_000, 2);
        assert!(reserve.bytes > 200_000);
        reserve.reserve_for_info(1000);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        reserve.release();
    }
}
