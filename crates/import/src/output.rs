//! Writes one file of the run: interns its names, and collects rows until a block is full.

use crate::error::ImportError;
use crate::event::Event;
use crate::losses::{LossReason, Tally};
use crate::text;
use tprof_trace::model::{Loss, NameId};
use tprof_trace::{TraceRow, TraceWriter};

/// Rows in a block.
const BLOCK_ROWS: usize = 1 << 14;
/// Longest name in bytes. The writer would cut longer names, and cut arguments would not be JSON.
const MAX_NAME_BYTES: usize = 256 << 10;
/// Largest total size of distinct names and arguments of a file in bytes. It bounds memory, because
/// all of them are in memory.
const MAX_NAMES_BYTES: usize = 1 << 30;

/// Writer of one file, with state that all kinds of rows share.
pub(crate) struct Output {
    pub writer: TraceWriter,
    pub tally: Tally,
    /// Whether an event was read from the source.
    pub began: bool,
    /// Bytes of names so far.
    names_bytes: usize,
    string: String,
    json: Vec<u8>,
}

impl Output {
    /// Begins to fill a file.
    pub fn new(writer: TraceWriter) -> Output {
        Output {
            writer,
            tally: Tally::default(),
            began: false,
            names_bytes: 0,
            string: String::new(),
            json: Vec::new(),
        }
    }

    /// Interns the content of a JSON string.
    #[inline]
    pub fn name(&mut self, raw: &[u8]) -> NameId {
        match std::str::from_utf8(raw) {
            Ok(text) if !raw.contains(&b'\\') => self.plain_name(text),
            _ => {
                let mut text = std::mem::take(&mut self.string);
                text.clear();
                if text::unescape(raw, &mut text) {
                    self.tally.count_loss(LossReason::BytesMended);
                }
                let name = self.plain_name(&text);
                self.string = text;
                name
            }
        }
    }

    /// Interns a text.
    #[inline]
    pub fn plain_name(&mut self, text: &str) -> NameId {
        let pending = self.writer.pending_bytes();
        if self.names_bytes > MAX_NAMES_BYTES {
            self.tally.count_loss(LossReason::NamesFull);
            return NameId(0);
        }
        if text.len() > MAX_NAME_BYTES {
            self.tally.count_loss(LossReason::NameTooLong);
        }
        let name = self.writer.name(text);
        self.names_bytes += self.writer.pending_bytes() - pending;
        name
    }

    /// Interns the members of `args` that no field took.
    #[inline]
    pub fn args(&mut self, event: &Event<'_>) -> NameId {
        let mut json = std::mem::take(&mut self.json);
        let (refused, mended) = event.rest(&mut json);
        self.tally.count_losses(LossReason::ArgumentsRefused, refused.into());
        self.tally.count_losses(LossReason::BytesMended, mended.into());
        let name = self.json_name(&json);
        self.json = json;
        name
    }

    /// Writes the losses that were counted so far.
    pub fn write_losses(&mut self, time_ns: u64) {
        for loss in self.tally.losses() {
            let (what, why) = (self.plain_name(loss.what), self.plain_name(&loss.why));
            self.writer.loss(Loss { time_ns, process: None, what, count: loss.count, why });
        }
    }

    /// Interns JSON. JSON that is too long is left out, because cut JSON would be invalid.
    pub fn json_name(&mut self, json: &[u8]) -> NameId {
        if json.len() > MAX_NAME_BYTES {
            self.tally.count_loss(LossReason::ArgumentsTooLong);
            return NameId(0);
        }
        match std::str::from_utf8(json) {
            Ok(text) => self.plain_name(text),
            Err(_) => NameId(0),
        }
    }
}

/// Rows of a large table that wait for their block.
#[derive(Debug)]
pub(crate) struct Rows<R> {
    rows: Vec<R>,
}

impl<R> Default for Rows<R> {
    fn default() -> Rows<R> {
        Rows { rows: Vec::new() }
    }
}

impl<R: TraceRow + BlockOrder> Rows<R> {
    /// Adds a row; a full block is sorted and written.
    #[inline]
    pub fn push(&mut self, row: R, output: &mut Output) -> Result<(), ImportError> {
        self.rows.push(row);
        if self.rows.len() == BLOCK_ROWS { self.write(output) } else { Ok(()) }
    }

    /// Writes the pending rows.
    pub fn write(&mut self, output: &mut Output) -> Result<(), ImportError> {
        output.tally.kept += self.rows.len() as u64;
        if !self.rows.is_sorted_by_key(R::order) {
            self.rows.sort_by_key(R::order);
        }
        Ok(output.writer.write(&mut self.rows)?)
    }
}

/// Defines a row's order within its block.
pub(crate) trait BlockOrder {
    /// Orders by time. Of two spans that begin together the longer one comes first, because it
    /// contains the other.
    fn order(&self) -> (u64, u64);
}

macro_rules! by_start {
    ($($row:ident)*) => { $(
        impl BlockOrder for tprof_trace::model::$row {
            fn order(&self) -> (u64, u64) {
                (self.start_ns, !self.duration_ns)
            }
        }
    )* };
}
by_start! { Span Kernel MemoryCopy Synchronization DeviceSpan }

macro_rules! by_time {
    ($($row:ident $time:ident,)*) => { $(
        impl BlockOrder for tprof_trace::model::$row {
            fn order(&self) -> (u64, u64) {
                (self.$time, 0)
            }
        }
    )* };
}
by_time! { FlowPoint time_ns, DeviceAllocation time_ns, Collective start_ns, Sample time_ns, }
