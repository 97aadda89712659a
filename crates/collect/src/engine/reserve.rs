//! Destination on the disk for a run's last words: its losses and `run.json`, which a disk that the
//! run itself has filled would not take.
//!
//! The room is a file without a name, so that it is free again however the collector ends.

use crate::os::sys;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A block of most file systems: nothing takes less.
const BLOCK_BYTES: u64 = 4096;
/// Blocks that a trace file's losses and the newest part of its index take at its end.
const BLOCKS_PER_FILE: u64 = 3;

/// See the module.
pub struct Reserve {
    /// The file; `None` where no such file can be had.
    held: Option<OwnedFd>,
    bytes: u64,
}

impl Reserve {
    /// Reserves nothing yet, on the disk of a run's directory.
    pub fn new(directory: &Path) -> Reserve {
        Reserve { held: nameless(directory).ok().map(OwnedFd::from), bytes: 0 }
    }

    /// Reserves space for a `run.json` of `info_bytes`, which grows at its end, and for so many
    /// files. Where there is less space, the reserve stays as it is.
    pub fn hold(&mut self, info_bytes: usize, files: usize) {
        let bytes = room_for(info_bytes) + files as u64 * BLOCKS_PER_FILE * BLOCK_BYTES;
        if bytes > self.bytes
            && let Some(held) = &self.held
            && sys::allocate(held, bytes).is_ok()
        {
            self.bytes = bytes;
        }
    }

    /// Releases the space that the trace files need to end.
    pub fn reserve_for_info(&mut self, info_bytes: usize) {
        let bytes = room_for(info_bytes).min(self.bytes);
        if let Some(held) = self.held.take().map(File::from) {
            // If the file cannot be cut, all of it is released.
            self.held = held.set_len(bytes).is_ok().then(|| held.into());
        }
    }

    /// Gives up the rest.
    pub fn release(&mut self) {
        self.held = None;
    }
}

fn room_for(info_bytes: usize) -> u64 {
    (info_bytes as u64 * 2).next_multiple_of(BLOCK_BYTES) + BLOCK_BYTES
}

/// A file in a directory that no name leads to.
fn nameless(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    let made = options.clone().custom_flags(libc::O_TMPFILE).open(directory);
    made.or_else(|_| {
        // File systems without such files.
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
    fn what_is_held_has_no_name_and_grows_with_what_it_is_for() {
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
