//! Writes an event file: scalars, histograms and texts, as `tensorboard/compat/proto/event.proto`
//! and `summary.proto` define them.
//!
//! Scalars and histograms use the form of TensorFlow 1 and of PyTorch's `SummaryWriter`, which
//! every TensorBoard reads.

use std::collections::HashMap;
use std::io::{self, Write};

use super::analysis::CounterKey;
use super::histogram::Histogram;
use super::progress::Progress;
use super::record;
use crate::proto::{Open, Proto};

/// Fields of `Event`.
mod event {
    pub const WALL_TIME: u32 = 1;
    pub const STEP: u32 = 2;
    pub const FILE_VERSION: u32 = 3;
    pub const GRAPH: u32 = 4;
    pub const SUMMARY: u32 = 5;
}

/// Fields of `Summary`, `Summary.Value`, `SummaryMetadata`.
mod summary {
    pub const VALUE: u32 = 1;
    pub const TAG: u32 = 1;
    pub const SIMPLE_VALUE: u32 = 2;
    pub const HISTOGRAM: u32 = 5;
    pub const TENSOR: u32 = 8;
    pub const METADATA: u32 = 9;
    pub const PLUGIN: u32 = 1;
    pub const PLUGIN_NAME: u32 = 1;
    pub const DESCRIPTION: u32 = 3;
}

/// Fields of `TensorProto`, `TensorShapeProto`.
mod tensor {
    pub const TYPE: u32 = 1;
    pub const STRING: u64 = 7;
    pub const SHAPE: u32 = 2;
    pub const DIMENSION: u32 = 2;
    pub const SIZE: u32 = 1;
    pub const STRING_VALUE: u32 = 8;
}

/// Position of an event on TensorBoard's axes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct EventTime {
    /// Number of a training step, or milliseconds since the run began.
    pub step: u64,
    /// Seconds since 1970.
    pub wall_s: f64,
}

/// Name and description of a curve, histogram or text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub name: String,
    /// Description as Markdown.
    pub about: String,
}

/// Quotes a name from the program for Markdown.
pub(super) fn code(name: &str) -> String {
    format!("`{}`", name.replace('`', "'"))
}

/// An event file that is being written.
pub(super) struct EventFile<W> {
    to: W,
    proto: Proto,
    /// What the file contained before this append. Nothing up to the times in `progress` is written
    /// again.
    progress: Progress,
    /// Newest time that this append wrote, by tag.
    newest_s: HashMap<String, f64>,
    /// Number of values that were left out because they do not fit a 32-bit float.
    pub left_out: u64,
}

impl<W: Write> EventFile<W> {
    /// Begins a new file.
    pub fn begin(to: W, wall_s: f64) -> io::Result<EventFile<W>> {
        let mut file = EventFile::resume(to, Progress::default());
        file.proto.double(event::WALL_TIME, wall_s);
        file.proto.text(event::FILE_VERSION, "brain.Event:2");
        file.write()?;
        Ok(file)
    }

    /// Continues an existing file.
    pub fn resume(to: W, progress: Progress) -> EventFile<W> {
        let (proto, newest_s) = (Proto::default(), HashMap::new());
        EventFile { to, proto, progress, newest_s, left_out: 0 }
    }

    /// Writes a point of a curve. TensorBoard stores it as a 32-bit float.
    pub fn scalar(&mut self, tag: &Tag, at: EventTime, value: f64) -> io::Result<()> {
        let narrow = value as f32;
        if value.is_finite() && !narrow.is_finite() {
            self.left_out += 1;
            return Ok(());
        }
        self.value(tag, "scalars", at, |proto| proto.float(summary::SIMPLE_VALUE, narrow))
    }

    /// Writes a histogram.
    pub fn histogram(&mut self, tag: &Tag, at: EventTime, of: &Histogram) -> io::Result<()> {
        let limits: Vec<f64> = of.buckets.iter().map(|bucket| bucket.0).collect();
        let counts: Vec<f64> = of.buckets.iter().map(|bucket| bucket.1 as f64).collect();
        self.value(tag, "histograms", at, |proto| {
            let open = proto.open(summary::HISTOGRAM);
            proto.double(1, of.min);
            proto.double(2, of.max);
            proto.double(3, of.count as f64);
            proto.double(4, of.sum);
            proto.double(5, of.sum_of_squares);
            proto.doubles(6, &limits);
            proto.doubles(7, &counts);
            proto.close(open);
        })
    }

    /// Writes a text. TensorBoard shows it as Markdown.
    pub fn text(&mut self, tag: &Tag, at: EventTime, markdown: &str) -> io::Result<()> {
        self.value(tag, "text", at, |proto| {
            let open = proto.open(summary::TENSOR);
            proto.uint(tensor::TYPE, tensor::STRING);
            let shape = proto.open(tensor::SHAPE);
            let dimension = proto.open(tensor::DIMENSION);
            proto.uint(tensor::SIZE, 1);
            proto.close(dimension);
            proto.close(shape);
            proto.text(tensor::STRING_VALUE, markdown);
            proto.close(open);
        })
    }

    /// Writes the graph of the rank's model, a `GraphDef`, unless the file already has it.
    pub fn graph(&mut self, wall_s: f64, graph: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.progress.has_graph, true) {
            return Ok(());
        }
        self.proto.double(event::WALL_TIME, wall_s);
        self.proto.blob(event::GRAPH, graph);
        self.write()
    }

    /// Returns the names of counters' curves that the file uses.
    pub fn names(&mut self) -> &mut HashMap<CounterKey, String> {
        &mut self.progress.names
    }

    /// Ends the append, and returns what the file contains now.
    pub fn finish(self) -> (W, Progress) {
        let mut progress = self.progress;
        progress.until_s.extend(self.newest_s);
        (self.to, progress)
    }

    fn value(
        &mut self,
        tag: &Tag,
        plugin: &str,
        at: EventTime,
        write: impl FnOnce(&mut Proto),
    ) -> io::Result<()> {
        if self.progress.until_s.get(&tag.name).is_some_and(|until_s| at.wall_s <= *until_s) {
            return Ok(());
        }
        match self.newest_s.get_mut(&tag.name) {
            Some(newest_s) => *newest_s = newest_s.max(at.wall_s),
            None => {
                self.newest_s.insert(tag.name.clone(), at.wall_s);
            }
        }
        self.proto.double(event::WALL_TIME, at.wall_s);
        self.proto.uint(event::STEP, at.step);
        let summary = self.proto.open(event::SUMMARY);
        let value = self.proto.open(summary::VALUE);
        self.proto.text(summary::TAG, &tag.name);
        if self.progress.described.insert(tag.name.clone()) {
            let metadata = self.proto.open(summary::METADATA);
            let plugin_data = self.proto.open(summary::PLUGIN);
            self.proto.text(summary::PLUGIN_NAME, plugin);
            self.proto.close(plugin_data);
            self.proto.text(summary::DESCRIPTION, &tag.about);
            self.proto.close(metadata);
        }
        write(&mut self.proto);
        close(&mut self.proto, [value, summary]);
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        record::write(&mut self.to, self.proto.bytes())?;
        self.proto.clear();
        Ok(())
    }
}

fn close(proto: &mut Proto, open: [Open; 2]) {
    for open in open {
        proto.close(open);
    }
}
