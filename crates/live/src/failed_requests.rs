//! Follows requests of a rank for device memory that failed: their number, and the last one with
//! the line that asked.

use std::fs::File;

use serde_json::Value;
use tprof_facts::frames::layer;
use tprof_facts::labels::base_name;
use tprof_facts::owner::{Code, line_of_program};
use tprof_facts::units::{bytes, counted};
use tprof_trace::model::{AllocatorEvent, ProcessIndex, StackId};
use tprof_trace::{StackFunction, TailDecoder, TailUpdate, TraceTail};

use crate::snapshot::OutOfMemory;

/// The functions of a stack may reach the file a little later than the request. After this many
/// further polls, the event is shown without a line.
const MOST_POLLS: u32 = 3;

/// The failed requests of a rank.
#[derive(Debug, Default)]
pub struct FailedRequests {
    /// `time_ns` is on the file's clock.
    last: Option<OutOfMemory>,
    /// Process and stack of the last one.
    stack: (ProcessIndex, StackId),
    /// Number of polls that looked for the line; `None` if the event of the last one was shown.
    polls: Option<u32>,
    /// Number of requests since the last event.
    new: u64,
}

impl FailedRequests {
    /// Adds the new rows of the rank's file.
    pub fn add(
        &mut self,
        news: &TailUpdate,
        tail: &mut TraceTail,
        file: &File,
        decoder: &mut TailDecoder,
    ) {
        let mut action = None;
        for row in &news.allocator_events {
            // An imported snapshot has many rows of few other actions.
            if action.as_ref().is_none_or(|(id, _)| *id != row.action) {
                action = Some((row.action, tail.name(news, file, decoder, row.action) == "oom"));
            }
            if action.is_some_and(|(_, is_failure)| is_failure) {
                let args = tail.name(news, file, decoder, row.args);
                self.failed(row, &serde_json::from_str(&args).unwrap_or_default());
            }
        }
    }

    fn failed(&mut self, row: &AllocatorEvent, args: &Value) {
        let count = self.last.as_ref().map_or(0, |last| last.count) + 1;
        self.last = Some(OutOfMemory {
            count,
            time_ns: row.time_ns,
            asked_bytes: row.bytes,
            device: row.device,
            allocated_bytes: args["allocated"].as_u64(),
            reserved_bytes: args["reserved"].as_u64(),
            free_bytes: row.device_free_bytes,
            line: None,
        });
        self.stack = (row.process, row.stack);
        self.polls = Some(0);
        self.new += 1;
    }

    /// Looks for the line of the last request. Returns the time and the text of an event once the
    /// line is known, or won't become known.
    pub fn settle(
        &mut self,
        tail: &mut TraceTail,
        file: &File,
        decoder: &mut TailDecoder,
        is_closed: bool,
    ) -> Option<(u64, String)> {
        let polls = self.polls?;
        let last = self.last.as_mut()?;
        let (process, stack) = self.stack;
        if stack != 0 {
            last.line = line(&tail.stack_functions(file, decoder, process, stack));
        }
        if last.line.is_none() && stack != 0 && polls < MOST_POLLS && !is_closed {
            self.polls = Some(polls + 1);
            return None;
        }
        self.polls = None;
        let new = std::mem::take(&mut self.new);
        let time_ns = last.time_ns.unwrap_or_else(|| tail.last_ns());
        Some((time_ns, OutOfMemory { count: new, ..last.clone() }.sentence()))
    }

    /// Returns the state for a snapshot; `since_start` converts a time of the file.
    pub fn state(&self, since_start: impl Fn(u64) -> u64) -> Option<OutOfMemory> {
        let last = self.last.clone()?;
        Some(OutOfMemory { time_ns: last.time_ns.map(since_start), ..last })
    }
}

impl OutOfMemory {
    /// Describes the requests in a sentence.
    pub fn sentence(&self) -> String {
        let device = self.device.map_or("of the host".to_owned(), |at| format!("of GPU {at}"));
        let asked = bytes(self.asked_bytes);
        let mut text = match self.count {
            1 => format!("a request for {asked} {device} failed"),
            count => {
                let failed = counted(count, "request", "requests");
                format!("{failed} for device memory failed, the last for {asked} {device}")
            }
        };
        if let Some(line) = &self.line {
            text.push_str(&format!(" at {line}"));
        }
        let figures = [
            ("allocated", self.allocated_bytes),
            ("reserved", self.reserved_bytes),
            ("free on the device", self.free_bytes),
        ];
        let known =
            figures.iter().filter_map(|(what, of)| Some(format!("{} {what}", bytes((*of)?))));
        let known: Vec<String> = known.collect();
        if !known.is_empty() {
            text.push_str(&format!("; {}", known.join(", ")));
        }
        text
    }
}

/// Returns the line of the program in a stack.
fn line(functions: &[StackFunction]) -> Option<String> {
    let code = |of: &StackFunction| {
        let layer = layer(&of.module, &of.file, of.address);
        (layer, base_name(&of.module).to_owned())
    };
    let codes: Vec<_> = functions.iter().map(code).collect();
    let frames: Vec<(Code<'_>, u32)> = (functions.iter().zip(&codes))
        .map(|(of, (layer, module))| (Code { layer: *layer, file: &of.file, module }, of.line))
        .collect();
    let StackFunction { function, file, line, .. } = &functions[line_of_program(&frames)?];
    Some(format!("{file}:{line} ({function})"))
}
