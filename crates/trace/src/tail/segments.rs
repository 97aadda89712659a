//! Reads what was added to the segments of a file that keeps only its last part.

use super::{Place, TailDecoder, TailUpdate, TraceTail};
use crate::file::{BLOCK_HEADER_BYTES, BlockHeader};
use crate::kept;
use crate::plain_file::open_plain;
use crate::recorded::is_event;
use crate::scan::{IndexRow, Source};
use rustc_hash::FxHashSet;
use std::fs::File;
use std::io;

/// The reader's position in a segment.
#[derive(Debug, Default)]
pub(super) struct SegmentPlace {
    offset: u64,
    /// Checksum and size of each block that was read. At the end of the run the blocks are appended
    /// to the file, and must not be read again.
    blocks: FxHashSet<(u32, u32)>,
}

impl TraceTail {
    /// Reads what was added to the segments since the last call.
    pub(super) fn read_segments(
        &mut self,
        decoder: &mut TailDecoder,
        news: &mut TailUpdate,
    ) -> io::Result<()> {
        let Some(directory) = kept::directory_of(&self.path, &self.at.header.segments) else {
            return Ok(());
        };
        if self.at.closed || news.more {
            return Ok(());
        }
        let numbers = kept::segments(&directory)?;
        // At the end of the run the segments are appended to the file one by one, so those that are
        // gone are forgotten only if others follow.
        if let Some(oldest) = numbers.first() {
            self.at.segments.retain(|number, _| number >= oldest);
        }
        for number in numbers {
            match open_plain(&kept::segment(&directory, number)) {
                Ok(file) => self.read_segment(number, file, decoder, news)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_segment(
        &mut self,
        number: u64,
        file: File,
        decoder: &mut TailDecoder,
        news: &mut TailUpdate,
    ) -> io::Result<()> {
        let length = file.metadata()?.len();
        let mut place = self.at.segments.remove(&number).unwrap_or_default();
        let source = Source::of(file, length);
        while place.offset + BLOCK_HEADER_BYTES as u64 <= length {
            let offset = place.offset;
            let mut head = [0; BLOCK_HEADER_BYTES];
            source.read_exact_at(&mut head, offset)?;
            let Ok(header) = BlockHeader::parse(&head) else { break };
            let end = offset + header.bytes();
            if end > length {
                break;
            }
            // Old segments make room for new ones, so that all of them together may decode to more
            // than the file.
            let decoded = self.at.decoded;
            self.at.is_in_segment = true;
            let taken = self.take(&source, &IndexRow { offset, header }, decoder, news);
            self.at.is_in_segment = false;
            self.at.decoded = decoded;
            self.at.damaged += u64::from(taken.is_err());
            if is_event(header.table) {
                self.at.events += u64::from(header.rows);
            }
            self.at.last_ns = self.at.last_ns.max(header.last_ns);
            place.offset = end;
            place.blocks.insert((header.payload_crc, header.stored_len));
        }
        self.at.segments.insert(number, place);
        Ok(())
    }

    /// Returns the size of the segments that have not been appended to the file yet, bytes.
    pub(super) fn segment_bytes(&self) -> u64 {
        let segments = self.at.segments.values().filter(|_| !self.at.closed);
        segments.map(|place| place.offset).sum()
    }

    /// Whether a block of the file was read as a part of a segment.
    pub(super) fn is_of_segment(&self, header: &BlockHeader) -> bool {
        let Place { segments, .. } = &self.at;
        let block = (header.payload_crc, header.stored_len);
        kept::passes(header.table) && segments.values().any(|place| place.blocks.contains(&block))
    }
}
