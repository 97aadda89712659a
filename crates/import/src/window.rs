//! Keeps the part of a trace's text that is being read in memory.

use crate::error::ImportError;
use crate::source;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes of text to fetch at a time, which fit the second-level cache.
const CHUNK_BYTES: usize = 256 << 10;
/// Longest event or value that is read as a whole, in bytes.
pub(crate) const MAX_VALUE_BYTES: usize = 64 << 20;

/// A sliding window over the text of a file, plain or compressed.
pub(crate) struct Window {
    path: PathBuf,
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Index of the first byte that isn't consumed yet.
    start: usize,
    /// Index after the last byte that was read.
    end: usize,
    /// Offset in the text of `buffer[0]`.
    offset: u64,
    /// Bytes of text that may still be read.
    left: u64,
    limit: u64,
    ended: bool,
    /// The reason why the text ended too early, if it did.
    cut: Option<String>,
    /// Whether the text ended too early because the file itself is cut off.
    is_cut_off: bool,
}

impl Window {
    /// Opens a file; at most `limit` bytes of its text are read.
    pub fn open(path: &Path, limit: u64, read: Arc<AtomicU64>) -> Result<Window, ImportError> {
        let source = source::text(path, read).map_err(|source| ImportError::Io {
            path: path.to_path_buf(),
            what: "open",
            source,
        })?;
        Ok(Window {
            path: path.to_path_buf(),
            source,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            left: limit,
            limit,
            ended: false,
            cut: None,
            is_cut_off: false,
        })
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes that were read and aren't consumed yet.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes this many bytes, so that the window begins behind them.
    #[inline(always)]
    pub fn consume(&mut self, count: usize) {
        self.start += count;
    }

    /// Returns the offset of the window in the text.
    pub fn offset(&self) -> u64 {
        self.offset + self.start as u64
    }

    /// Returns the reason why the text ended too early or fails its checksum; `None` if the text is
    /// complete.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Whether the text ended too early because its file does.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// Whether the window has reached its largest size.
    pub fn is_full(&self) -> bool {
        self.end - self.start >= MAX_VALUE_BYTES
    }

    /// Reads more text. Returns false at the end of the text.
    pub fn more(&mut self) -> Result<bool, ImportError> {
        if self.ended {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.offset += self.start as u64;
            (self.start, self.end) = (0, self.end - self.start);
        }
        // Double the window each time, so that a long value is scanned only a few times.
        let wanted = (self.end + CHUNK_BYTES).max(self.end * 2).min(MAX_VALUE_BYTES);
        if self.buffer.len() < wanted || self.buffer.len() > 16 * wanted {
            self.buffer.resize(wanted, 0);
            self.buffer.shrink_to(16 * wanted);
        }
        while self.end < wanted && !self.ended {
            match self.source.read(&mut self.buffer[self.end..wanted]) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.end += count;
                    let left = self.left.checked_sub(count as u64);
                    let path = || self.path.clone();
                    self.left = left
                        .ok_or_else(|| ImportError::TooLarge { path: path(), limit: self.limit })?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => self.fail(error)?,
            }
        }
        Ok(true)
    }

    /// Handles a read error: a damaged stream ends the text, but a disk error ends the import.
    fn fail(&mut self, source: io::Error) -> Result<(), ImportError> {
        self.ended = true;
        let Some(damage) = source::damage(&source) else {
            return Err(ImportError::Io { path: self.path.clone(), what: "read", source });
        };
        self.is_cut_off = source.kind() == io::ErrorKind::UnexpectedEof;
        self.cut = Some(damage);
        Ok(())
    }
}
