//! Stores the output of a child process: in memory if it is small, otherwise in a file without a
//! name. Such a file disappears even if the server is killed.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::FileExt;

use bytes::Bytes;

/// Largest output that is stored in memory, bytes.
const SMALL: u64 = 256 << 10;
/// Bytes of a file to read at once.
const PIECE: usize = 64 << 10;

/// Output of a child process.
#[derive(Debug)]
pub struct Output {
    length: u64,
    storage: Storage,
}

#[derive(Debug)]
enum Storage {
    Memory(Bytes),
    File(File),
}

impl Output {
    /// Reads the output from a file that was written completely. Large output stays in the file.
    pub fn of(mut file: File) -> io::Result<Output> {
        let length = file.metadata()?.len();
        if length > SMALL {
            return Ok(Output { length, storage: Storage::File(file) });
        }
        let mut text = Vec::with_capacity(length as usize);
        file.rewind()?;
        file.read_to_end(&mut text)?;
        Ok(Output { length, storage: Storage::Memory(text.into()) })
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Number of bytes that the output takes in memory.
    pub fn memory_bytes(&self) -> u64 {
        match &self.storage {
            Storage::Memory(bytes) => bytes.len() as u64,
            Storage::File(_) => 0,
        }
    }

    /// Returns the whole output, or an error if it has more than `most` bytes.
    pub fn read_all(&self, most: u64) -> io::Result<Bytes> {
        if self.length > most {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the answer is too large"));
        }
        match &self.storage {
            Storage::Memory(bytes) => Ok(bytes.clone()),
            Storage::File(file) => {
                let mut text = vec![0; self.length as usize];
                file.read_exact_at(&mut text, 0)?;
                Ok(text.into())
            }
        }
    }

    /// Returns a reader that holds one piece in memory at a time.
    pub fn reader(&self) -> impl Read + '_ {
        BufReader::with_capacity(PIECE, Reader { output: self, offset: 0 })
    }

    /// Returns the piece at an offset; empty at the end.
    pub fn piece(&self, offset: u64) -> io::Result<Bytes> {
        match &self.storage {
            Storage::Memory(bytes) => Ok(bytes.slice((offset.min(self.length) as usize)..)),
            Storage::File(file) => {
                let size = self.length.saturating_sub(offset).min(PIECE as u64) as usize;
                let mut piece = vec![0; size];
                file.read_exact_at(&mut piece, offset)?;
                Ok(piece.into())
            }
        }
    }
}

struct Reader<'a> {
    output: &'a Output,
    offset: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.output.length.saturating_sub(self.offset);
        let count = left.min(into.len() as u64) as usize;
        match &self.output.storage {
            Storage::Memory(bytes) => {
                let from = self.offset as usize;
                into[..count].copy_from_slice(&bytes[from..from + count]);
            }
            Storage::File(file) => file.read_exact_at(&mut into[..count], self.offset)?,
        }
        self.offset += count as u64;
        Ok(count)
    }
}
