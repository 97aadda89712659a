//! The text of a file, plain or compressed. What it is shows in its first bytes, whatever its name.

use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Bytes of a file that are read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// Reads a file and counts its bytes, for the progress line.
struct CountingReader {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(out)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// The text of a file. At its end the checksums of a compressed one are checked.
pub(crate) fn text(path: &Path, read: Arc<AtomicU64>) -> io::Result<Box<dyn Read + Send>> {
    let file = CountingReader { file: tprof_trace::open_input(path)?, read };
    let mut file = BufReader::with_capacity(BUFFER_BYTES, file);
    let start = file.fill_buf()?;
    Ok(if start.starts_with(&GZIP) {
        Box::new(GzipMembers { decoder: Some(GzDecoder::new(file)) })
    } else if start.starts_with(&ZSTD) {
        Box::new(zstd::stream::read::Decoder::with_buffer(file)?)
    } else {
        Box::new(file)
    })
}

/// What is wrong with a compressed file; none if its disk is at fault.
pub(crate) fn damage(error: &io::Error) -> Option<String> {
    match error.kind() {
        _ if error.raw_os_error().is_some() => None,
        io::ErrorKind::UnexpectedEof => Some("the compressed stream was cut off".to_owned()),
        _ => Some(format!("the compressed stream is damaged ({error})")),
    }
}

/// A text that ends where its file is damaged.
pub(crate) struct ReadUntilDamage {
    text: Box<dyn Read + Send>,
    /// What is wrong there.
    pub damage: Option<String>,
}

impl ReadUntilDamage {
    /// The text of a file.
    pub fn open(path: &Path) -> io::Result<ReadUntilDamage> {
        Ok(ReadUntilDamage { text: text(path, Arc::default())?, damage: None })
    }
}

impl Read for ReadUntilDamage {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.damage.is_some() {
            return Ok(0);
        }
        match self.text.read(out) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                self.damage = damage(&error);
                if self.damage.is_some() { Ok(0) } else { Err(error) }
            }
            result => result,
        }
    }
}

/// The members of a gzip file, one after another: `gzip >>` makes several. Zeros after the last
/// one are padding, as `gzip` itself has it.
struct GzipMembers<R: BufRead> {
    /// The member that is read; none at the end.
    decoder: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for GzipMembers<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let count = decoder.read(out)?;
            if count > 0 || out.is_empty() {
                return Ok(count);
            }
            if let Some(decoder) = self.decoder.take() {
                self.decoder = next_member(decoder.into_inner())?;
            }
        }
        Ok(0)
    }
}

fn next_member<R: BufRead>(mut file: R) -> io::Result<Option<GzDecoder<R>>> {
    loop {
        let bytes = file.fill_buf()?;
        match bytes.iter().position(|byte| *byte != 0) {
            Some(0) => return Ok(Some(GzDecoder::new(file))),
            Some(_) => {
                let why = "other data follows its end";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            None if bytes.is_empty() => return Ok(None),
            None => {
                let count = bytes.len();
                file.consume(count);
            }
        }
    }
}
