//! The part of a trace's text that is in memory.

use crate::error::ImportError;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of text that are fetched at a time: they stay in the second-level cache.
const CHUNK_BYTES: usize = 256 << 10;
/// Longest event or value that is read as a whole.
pub(crate) const MAX_VALUE_BYTES: usize = 64 << 20;

/// Reads a file and counts its bytes, for the progress line.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(out)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A sliding window over the text of a file, plain or gzipped.
pub(crate) struct Window {
    path: PathBuf,
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// First byte that was not consumed yet.
    start: usize,
    /// One past the last byte that was read.
    end: usize,
    /// Offset of `buffer[0]` in the text.
    offset: u64,
    /// Text that may still be read.
    left: u64,
    limit: u64,
    ended: bool,
    /// Why the text ended before its end, if it did.
    cut: Option<String>,
}

impl Window {
    /// Opens a file; at most `limit` bytes of its text are read.
    pub fn open(path: &Path, limit: u64, read: Arc<AtomicU64>) -> Result<Window, ImportError> {
        let failed =
            |what| move |source| ImportError::Io { path: path.to_path_buf(), what, source };
        let file = tprof_trace::open_input(path).map_err(failed("open"))?;
        let mut file = BufReader::with_capacity(64 << 10, Counted { file, read });
        let gzipped = file.fill_buf().map_err(failed("read"))?.starts_with(&[0x1f, 0x8b]);
        let source: Box<dyn Read + Send> =
            if gzipped { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
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
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was read and not consumed.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes bytes.
    #[inline(always)]
    pub fn consume(&mut self, count: usize) {
        self.start += count;
    }

    /// Where the window begins in the text.
    pub fn offset(&self) -> u64 {
        self.offset + self.start as u64
    }

    /// Why the text ended early: a truncated or damaged gzip stream.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Whether the window holds as much as it may.
    pub fn is_full(&self) -> bool {
        self.end - self.start >= MAX_VALUE_BYTES
    }

    /// Reads on; false at the end of the text.
    pub fn more(&mut self) -> Result<bool, ImportError> {
        if self.ended {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.offset += self.start as u64;
            (self.start, self.end) = (0, self.end - self.start);
        }
        // Twice as much each time, so that a long value is not read too often.
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

    /// A damaged stream ends the text; trouble with the disk ends the import.
    fn fail(&mut self, source: io::Error) -> Result<(), ImportError> {
        use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
        self.ended = true;
        self.cut = Some(match source.kind() {
            UnexpectedEof => "the gzip stream was cut off".to_owned(),
            InvalidData | InvalidInput => format!("the gzip stream is damaged ({source})"),
            _ => return Err(ImportError::Io { path: self.path.clone(), what: "read", source }),
        });
        Ok(())
    }
}
