//! Reads the text of a file, plain or compressed. The file's first bytes decide which, not its
//! name.

use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Bytes of a file to read at a time.
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

/// Opens the text of a file. The checksum of a compressed file is verified at its end.
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

/// Returns a description of the damage if a compressed file is damaged; `None` if the disk caused
/// the error.
pub(crate) fn damage(error: &io::Error) -> Option<String> {
    match error.kind() {
        _ if error.raw_os_error().is_some() => None,
        io::ErrorKind::UnexpectedEof => Some("the compressed stream was cut off".to_owned()),
        _ => Some(format!("the compressed stream is damaged ({error})")),
    }
}

/// Reads a text up to where its file is damaged.
pub(crate) struct ReadUntilDamage {
    text: Box<dyn Read + Send>,
    /// Description of the damage.
    pub damage: Option<String>,
}

impl ReadUntilDamage {
    /// Opens the text of a file.
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

/// Decodes all members of a gzip file, one after another, because `gzip >>` creates several. Zeros
/// after the last member are padding, which `gzip` itself ignores too.
struct GzipMembers<R: BufRead> {
    /// Decoder of the current member; `None` at the end.
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
