//! What several writers, one after another, write into.

use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// A stream of bytes; all copies are the same stream.
#[derive(Clone)]
pub struct Sink(Arc<Mutex<Box<dyn Write + Send>>>);

impl Sink {
    /// Into a file or pipe, in large pieces.
    pub fn new(to: impl Write + Send + 'static) -> Sink {
        Sink(Arc::new(Mutex::new(Box::new(BufWriter::with_capacity(1 << 16, to)))))
    }

    /// Into memory.
    pub fn memory() -> (Sink, Arc<Mutex<Vec<u8>>>) {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        (Sink(Arc::new(Mutex::new(Box::new(Bytes(Arc::clone(&bytes)))))), bytes)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

struct Bytes(Arc<Mutex<Vec<u8>>>);

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
