//! Reads the kernel's log from `/dev/kmsg`, from the moment on at which it is opened.
//!
//! Each reader of that device has its own position, so reading takes nothing from others. A line is
//! `PRIORITY,NUMBER,TIME_US,FLAGS;TEXT`, and lines that begin with a space follow with more about it
//! (Documentation/ABI/testing/dev-kmsg of the kernel). Programs may write to the device too; such
//! lines have a priority of 8 or more.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Larger than any line that the kernel returns (`PRINTK_MESSAGE_MAX` is 2048).
const BUFFER: usize = 16 << 10;
/// Most bytes of a line that never ends. They can't come from the kernel.
const MOST_PARTIAL: usize = 16 << 10;
/// Most bytes that one call of [`KernelLog::read`] reads.
const MOST_BYTES: usize = 1 << 20;
/// Priorities from this on are of lines that programs wrote: the facility is above the 3 bits of
/// the level, and the kernel's is 0.
const FIRST_OF_PROGRAMS: u64 = 8;

/// A line of the kernel's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelLine {
    /// Number of the line. The next line has the next number, unless lines were overwritten.
    pub number: u64,
    /// When the line was logged, ns since boot on the kernel's own clock. That clock drifts away
    /// from CLOCK_MONOTONIC.
    pub logged_ns: u64,
    /// Whether the kernel wrote the line, and not a program.
    pub is_of_kernel: bool,
    /// The text, with the kernel's escapes (`\x0a`).
    pub text: String,
}

/// An open log of the kernel.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
    /// The beginning of a line whose end was not read yet.
    partial: Vec<u8>,
    /// Number of the next line, once one was read.
    next: Option<u64>,
}

/// What a call of [`KernelLog::read`] read.
#[derive(Debug, Default)]
pub struct KernelLogReading {
    /// The lines, in order.
    pub lines: Vec<KernelLine>,
    /// Number of lines that the kernel overwrote before they were read.
    pub lost: u64,
    /// Number of lines that could not be parsed.
    pub malformed: u64,
    /// Bytes that were read.
    pub bytes: usize,
}

impl KernelLog {
    /// Opens the log behind its last line. `path` is `/dev/kmsg`, except in tests.
    pub fn open(path: &Path) -> io::Result<KernelLog> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        // A pipe has no position. Everything in it is new.
        let _ = file.seek(SeekFrom::End(0));
        Ok(KernelLog { file, partial: Vec::new(), next: None })
    }

    /// Returns a second descriptor, by which another thread can wait until there is something to
    /// read.
    pub fn waiter(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Reads the lines that were logged since the last call, without waiting.
    pub fn read(&mut self) -> KernelLogReading {
        let mut reading = KernelLogReading::default();
        let mut buffer = vec![0; BUFFER];
        while reading.bytes < MOST_BYTES {
            match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => {
                    reading.bytes += bytes;
                    self.take(&buffer[..bytes], &mut reading);
                }
                // Lines were overwritten. The number of the next one tells how many, if the number
                // of the last one is known.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                    reading.lost += u64::from(self.next.is_none());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        reading
    }

    /// Splits bytes into lines. A read of the device returns one line, one of a pipe any bytes.
    fn take(&mut self, bytes: &[u8], reading: &mut KernelLogReading) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MOST_PARTIAL.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.last() != Some(&b'\n') {
                continue;
            }
            let line = std::mem::take(&mut self.partial);
            let line = line.strip_suffix(b"\n").unwrap_or(&line);
            // Such lines are properties of the line before.
            if line.is_empty() || line[0] == b' ' {
                continue;
            }
            let Some(line) = parse(line) else {
                reading.malformed += 1;
                continue;
            };
            if let Some(next) = self.next {
                reading.lost += line.number.saturating_sub(next);
            }
            self.next = Some(line.number.saturating_add(1));
            reading.lines.push(line);
        }
    }
}

/// Parses a line without its line break; `None` if it isn't one.
pub fn parse(line: &[u8]) -> Option<KernelLine> {
    let at = line.iter().position(|byte| *byte == b';')?;
    let (head, text) = (std::str::from_utf8(&line[..at]).ok()?, &line[at + 1..]);
    let mut fields = head.split(',');
    let mut number = || fields.next()?.parse::<u64>().ok();
    let (priority, number, logged_us) = (number()?, number()?, number()?);
    Some(KernelLine {
        number,
        logged_ns: logged_us.checked_mul(1000)?,
        is_of_kernel: priority < FIRST_OF_PROGRAMS,
        text: String::from_utf8_lossy(text).into_owned(),
    })
}

/// Converts the kernel's times of lines to CLOCK_MONOTONIC.
///
/// The kernel's clock counts from boot as CLOCK_MONOTONIC does, but the time service doesn't correct
/// it, so after weeks they may differ by seconds. Each line gives bounds of the difference: it was
/// logged after the last reading that didn't have it, and before the reading that has it.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelClock {
    /// Bounds of CLOCK_MONOTONIC minus the kernel's clock, ns.
    bounds_ns: Option<(i64, i64)>,
}

impl KernelClock {
    /// Converts the time of a line that was logged between two readings.
    pub fn convert(&mut self, logged_ns: u64, after_ns: u64, before_ns: u64) -> u64 {
        let apart = |ns: u64| (ns as i64).wrapping_sub(logged_ns as i64);
        let (low, high) = (apart(after_ns), apart(before_ns));
        let bounds = match self.bounds_ns {
            // The clocks drift, so old bounds may contradict new ones.
            Some((l, h)) if l.max(low) <= h.min(high) => (l.max(low), h.min(high)),
            _ => (low, high.max(low)),
        };
        self.bounds_ns = Some(bounds);
        let difference_ns = 0_i64.clamp(bounds.0, bounds.1);
        let time_ns = (logged_ns as i64).wrapping_add(difference_ns).max(0) as u64;
        time_ns.clamp(after_ns, before_ns.max(after_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const XID: &[u8] = b"4,1234,5000000,-;NVRM: Xid (PCI:0000:3b:00): 79, off the bus";

    #[test]
    fn a_line_is_parsed_into_its_parts() {
        let line = parse(XID).unwrap();
        assert_eq!((line.number, line.logged_ns, line.is_of_kernel), (1234, 5_000_000_000, true));
        assert!(line.text.starts_with("NVRM: Xid"));
        let caller = parse(b"6,7,8,c,caller=T12;text; with a semicolon").unwrap();
        assert_eq!((caller.number, caller.text.as_str()), (7, "text; with a semicolon"));
        assert!(!parse(b"12,7,8,-;systemd[1]: Started").unwrap().is_of_kernel);
    }

    #[test]
    fn malformed_lines_are_refused_without_a_panic() {
        let lines: [&[u8]; 9] = [
            b"",
            b";",
            b";text",
            b"4,5;text",
            b"4,5,;text",
            b"-1,5,6,-;text",
            b"4,5,18446744073709551615,-;too late",
            b"4,99999999999999999999,6,-;text",
            b"\xff\xfe,5,6,-;text",
        ];
        for line in lines {
            assert_eq!(parse(line), None, "{:?}", String::from_utf8_lossy(line));
        }
        assert_eq!(parse(b"4,5,6,-;\xff\x00").unwrap().text, "\u{fffd}\0");
    }

    #[test]
    fn only_lines_after_opening_are_read_and_overwritten_ones_are_counted() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut writer = file.reopen().unwrap();
        writer.write_all(b"4,1,1,-;before\n").unwrap();
        let mut log = KernelLog::open(file.path()).unwrap();
        assert!(log.read().lines.is_empty());
        // The end of the last line is not there yet.
        writer.write_all(b"4,2,2,-;one\n SUBSYSTEM=pci\n\nno line\n4,6,3,-;tw").unwrap();
        let reading = log.read();
        let texts = |reading: &KernelLogReading| -> Vec<String> {
            reading.lines.iter().map(|line| line.text.clone()).collect()
        };
        assert_eq!((texts(&reading), reading.lost, reading.malformed), (vec!["one".into()], 0, 1));
        writer.write_all(b"o\n").unwrap();
        let reading = log.read();
        assert_eq!((texts(&reading), reading.lost), (vec!["two".into()], 3));
        // A line without an end doesn't fill the memory.
        writer.write_all(&vec![b'x'; 3 << 20]).unwrap();
        while log.read().bytes > 0 {}
        assert_eq!(log.partial.len(), MOST_PARTIAL);
    }

    #[test]
    fn a_drifting_clock_is_corrected_by_the_times_of_readings() {
        const SECOND: u64 = 1_000_000_000;
        // The kernel's clock is right: its time is taken.
        let mut clock = KernelClock::default();
        assert_eq!(clock.convert(5 * SECOND, 4 * SECOND, 6 * SECOND), 5 * SECOND);
        // It is 3 s behind, and the reading came 1 ms after the line.
        let mut clock = KernelClock::default();
        let ms = SECOND / 1000;
        assert_eq!(clock.convert(5 * SECOND, 8 * SECOND - ms, 8 * SECOND + ms), 8 * SECOND - ms);
        // A later line that was read late profits from that.
        let time_ns = clock.convert(9 * SECOND, 11 * SECOND, 13 * SECOND);
        assert!(time_ns.abs_diff(12 * SECOND) <= ms, "{time_ns}");
        // Impossible times stay between the readings.
        for logged_ns in [0, u64::MAX, i64::MAX as u64] {
            let time_ns = KernelClock::default().convert(logged_ns, 10, 20);
            assert!((10..=20).contains(&time_ns), "{logged_ns}: {time_ns}");
        }
    }
}
