//! Defines the names of log files, and opens their text.

use super::line;
use crate::plain_file::open_plain;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// The directory of a run that contains logs. It has a directory for each host; in an import, for
/// each rank.
pub const COMPILE_DIRECTORY: &str = "compile";
/// The prefix of the names of PyTorch's log files.
pub const LOG_PREFIX: &str = "dedicated_log_torch_trace_";
/// The line that tprof writes at the end of a log of which it stores only the beginning. A number of
/// bytes follows.
pub const CUT_LINE: &str = "tprof: bytes not kept: ";

/// Whether a text begins as a log of `torch.compile` does.
pub fn is_compile_log(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    line::split(&bytes[..end]).is_some_and(|(_, json)| json.starts_with(b"{\""))
}

/// Returns the pid of the process that wrote a log, from its first line; `None` for another file.
pub fn process_of(path: &Path) -> Option<u32> {
    let mut start = Vec::new();
    text(path).ok()?.take(4096).read_to_end(&mut start).ok()?;
    let end = start.iter().position(|&byte| byte == b'\n').unwrap_or(start.len());
    line::split(&start[..end])?.0.pid
}

/// Opens the text of a file, plain or compressed by zstd.
pub fn text(path: &Path) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(256 << 10, open_plain(path)?);
    Ok(match file.fill_buf()?.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        true => {
            let decoder = zstd::stream::read::Decoder::with_buffer(file)?;
            Box::new(BufReader::with_capacity(256 << 10, decoder))
        }
        false => Box::new(file),
    })
}
