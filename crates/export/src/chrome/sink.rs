//! Writes a file's text, compressed by gzip or plain.

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::output::Output;

/// Compression level. Level 6 takes three times the CPU time and halves the size.
const LEVEL: u32 = 1;

/// The destination of a file's text.
pub(super) enum Sink {
    Gzip(Box<GzEncoder<Output>>),
    Plain(Output),
}

impl Sink {
    /// Creates a sink that compresses if the file's final name ends in `.gz`.
    pub fn new(output: Output, path: &Path) -> Sink {
        match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz")) {
            true => Sink::Gzip(Box::new(GzEncoder::new(output, Compression::new(LEVEL)))),
            false => Sink::Plain(output),
        }
    }

    /// Returns the number of bytes written to the file so far.
    pub fn bytes(&self) -> u64 {
        match self {
            Sink::Gzip(gzip) => gzip.get_ref().bytes(),
            Sink::Plain(output) => output.bytes(),
        }
    }

    /// Finishes the text and returns the file, which still has its temporary name.
    pub fn finish(self) -> io::Result<Output> {
        match self {
            Sink::Gzip(gzip) => gzip.finish(),
            Sink::Plain(output) => Ok(output),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Gzip(gzip) => gzip.write(bytes),
            Sink::Plain(output) => output.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Sink::Gzip(gzip) => gzip.flush(),
            Sink::Plain(output) => output.flush(),
        }
    }
}
