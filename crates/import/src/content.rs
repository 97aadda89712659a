//! Recognizes files by their content, because users rename files.

use crate::pickle;
use crate::window::Window;
use std::path::Path;
use std::sync::Arc;
use tprof_trace::compile_log;

/// Number of bytes of text to inspect in a file that the user didn't name but whose directory they
/// named.
const LOOKED_AT: usize = 64 << 10;

/// Content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// JSON, which may be a trace.
    Json,
    Snapshot,
    /// A log of `torch.compile`.
    Log,
}

/// Returns the content of a plain file, compressed or not; `None` if it is unknown.
pub(crate) fn of_file(path: &Path) -> Option<Content> {
    of_window(&beginning(path)?)
}

/// Whether a file contains a trace or a snapshot, whatever its name is. Most JSON files aren't
/// traces, so the text must contain an event or the list of events.
pub(crate) fn is_trace_or_snapshot(path: &Path) -> bool {
    let Some(window) = beginning(path) else { return false };
    let bytes = &window.bytes()[..window.bytes().len().min(LOOKED_AT)];
    let holds = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    match of_window(&window) {
        Some(Content::Json) => holds(b"\"traceEvents\"") || holds(b"\"ph\""),
        content => content == Some(Content::Snapshot),
    }
}

fn beginning(path: &Path) -> Option<Window> {
    // Don't read a pipe: this would consume its data, or wait for its writer.
    if !std::fs::metadata(path).is_ok_and(|data| data.is_file()) {
        return None;
    }
    let mut window = Window::open(path, u64::MAX, Arc::default()).ok()?;
    window.more().ok()?;
    Some(window)
}

fn of_window(window: &Window) -> Option<Content> {
    let bytes = window.bytes();
    if pickle::is_pickle(bytes) {
        return Some(Content::Snapshot);
    }
    if compile_log::is_compile_log(bytes) {
        return Some(Content::Log);
    }
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    matches!(text.first(), Some(b'{' | b'[')).then_some(Content::Json)
}

/// Returns the format of an archive or of an unsupported compression, which has to be unpacked
/// first.
pub fn packed_as(path: &Path) -> Option<&'static str> {
    const FORMATS: [(&[u8], &str); 5] = [
        (b"PK\x03\x04", "zip archive"),
        (b"7z\xbc\xaf\x27\x1c", "7z archive"),
        (b"\xfd7zXZ\0", "xz file"),
        (b"BZh", "bzip2 file"),
        (b"\x04\x22\x4d\x18", "lz4 file"),
    ];
    let window = beginning(path)?;
    let bytes = window.bytes();
    if bytes.get(257..262) == Some(b"ustar") {
        return Some("tar archive");
    }
    FORMATS.iter().find(|(start, _)| bytes.starts_with(start)).map(|(_, name)| *name)
}
