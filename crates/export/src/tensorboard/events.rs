//! Writes an event file of TensorBoard: scalars, histograms, texts and a graph, as
//! `tensorboard/compat/proto/event.proto` and `summary.proto` define them.
//!
//! Scalars and histograms use the form of TensorFlow 1 and of PyTorch's `SummaryWriter`, which
//! every TensorBoard reads.

use std::collections::HashMap;
use std::io::{self, Write};

use super::analysis::CounterKey;
use super::histogram::Histogram;
use super::progress::Progress;
use super::record;
use crate::proto::Proto;

/// Numbers of the fields of the message `Event`.
mod event {
    pub const WALL_TIME: u32 = 1;
    pub const STEP: u32 = 2;
    pub const FILE_VERSION: u32 = 3;
    pub const GRAPH: u32 = 4;
    pub const SUMMARY: u32 = 5;
}

/// Numbers of the fields of `Summary`, `Summary.Value`, `SummaryMetadata` and its `PluginData`.
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

/// Numbers of the fields of `TensorProto` and `TensorShapeProto`, and the type of a string.
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
    /// Number of a training step. Curves over the run's time have milliseconds since its beginning.
    pub step: u64,
    /// Seconds since 1970.
    pub wall_s: f64,
}

/// Name and description of a curve, histogram or text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    /// Name; TensorBoard groups tags by the part before `/`.
    pub name: String,
    /// Description as Markdown.
    pub about: String,
}

/// Quotes a name from the program as code in Markdown.
pub(super) fn code(name: &str) -> String {
    format!("`{}`", name.replace('`', "'"))
}

/// An event file that is being written.
pub(super) struct EventFile<W> {
    to: W,
    proto: Proto,
    /// How far the file went when it was opened. Points up to its times are not written again.
    progress: Progress,
    /// Time of the newest point since then by tag, seconds since 1970.
    newest_s: HashMap<String, f64>,
    /// Number of values that were left out because they do not fit a 32-bit float.
    pub left_out: u64,
}

impl<W: Write> EventFile<W> {
    /// Begins a new file. `wall_s` is the time of its first event, seconds since 1970.
    pub fn begin(to: W, wall_s: f64) -> io::Result<EventFile<W>> {
        let mut file = EventFile::resume(to, Progress::default());
        file.proto.double(event::WALL_TIME, wall_s);
        file.proto.text(event::FILE_VERSION, "brain.Event:2");
        file.write()?;
        Ok(file)
    }

    /// Continues a file that contains `progress`; `to` writes at its end.
    pub fn resume(to: W, progress: Progress) -> EventFile<W> {
        let (proto, newest_s) = (Proto::default(), HashMap::new());
        EventFile { to, proto, progress, newest_s, left_out: 0 }
    }

    /// Writes a point of a curve, as a 32-bit float. A value that doesn't fit is left out and
    /// counted.
    pub fn scalar(&mut self, tag: &Tag, at: EventTime, value: f64) -> io::Result<()> {
        let rounded = value as f32;
        if value.is_finite() && !rounded.is_finite() {
            self.left_out += 1;
            return Ok(());
        }
        self.value(tag, "scalars", at, |proto| proto.float(summary::SIMPLE_VALUE, rounded))
    }

    /// Writes a histogram.
    pub fn histogram(&mut self, tag: &Tag, at: EventTime, of: &Histogram) -> io::Result<()> {
        let limits: Vec<f64> = of.buckets.iter().map(|bucket| bucket.0).collect();
        let counts: Vec<f64> = of.buckets.iter().map(|bucket| bucket.1 as f64).collect();
        self.value(tag, "histograms", at, |proto| {
            let open = proto.open(summary::HISTOGRAM);
            // The fields of `HistogramProto`, in order.
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

    /// Writes the graph of the rank's model, an encoded `GraphDef`, unless the file already has
    /// one.
    pub fn graph(&mut self, wall_s: f64, graph: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.progress.has_graph, true) {
            return Ok(());
        }
        self.proto.double(event::WALL_TIME, wall_s);
        self.proto.blob(event::GRAPH, graph);
        self.write()
    }

    /// Returns the names of counters' curves that the file uses, so that more can be added.
    pub fn names(&mut self) -> &mut HashMap<CounterKey, String> {
        &mut self.progress.names
    }

    /// Ends writing, and returns what the file contains now.
    pub fn finish(self) -> (W, Progress) {
        let mut progress = self.progress;
        progress.until_s.extend(self.newest_s);
        (self.to, progress)
    }

    /// Writes a value for the plugin of TensorBoard that shows it, unless the file already has the
    /// tag's values up to this time. `write` writes the value's own fields.
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
        self.proto.close(value);
        self.proto.close(summary);
        self.write()
    }

    /// Writes the event that was built.
    fn write(&mut self) -> io::Result<()> {
        record::write(&mut self.to, self.proto.bytes())?;
        self.proto.clear();
        Ok(())
    }
}
