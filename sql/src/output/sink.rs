//! A shared stream of bytes, which the writers of several results use one after another.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A stream of bytes; all clones are the same stream.
#[derive(Clone)]
pub struct Sink {
    to: Arc<Mutex<Box<dyn Write + Send>>>,
    /// Whether the reader has closed the stream. It is stored here because the writers' errors keep
    /// only the text of the I/O error, not its kind.
    is_unread: Arc<AtomicBool>,
}

impl Sink {
    /// Creates a sink that writes to a file or pipe in large pieces.
    pub fn new(to: impl Write + Send + 'static) -> Sink {
        Sink::of(Box::new(BufWriter::with_capacity(1 << 16, to)))
    }

    fn of(to: Box<dyn Write + Send>) -> Sink {
        Sink { to: Arc::new(Mutex::new(to)), is_unread: Arc::default() }
    }

    /// Whether the reader has closed the stream.
    pub fn is_unread(&self) -> bool {
        self.is_unread.load(Ordering::Relaxed)
    }

    fn with<T>(&self, act: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut **to).inspect_err(|error| {
            if error.kind() == io::ErrorKind::BrokenPipe {
                self.is_unread.store(true, Ordering::Relaxed);
            }
        })
    }

    /// Creates a sink that writes to memory, and returns that memory.
    pub fn memory() -> (Sink, Arc<Mutex<Vec<u8>>>) {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        (Sink::of(Box::new(Bytes(Arc::clone(&bytes)))), bytes)
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|to| to.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(|to| to.flush())
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
