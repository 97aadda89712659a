//! States what is recorded of a process's operators, and why not more: as a property of its file,
//! and a mark where that changes.

use super::version;
use crate::out::files::OpenFile;
use crate::targets::interned::Interned;
use serde_json::{Value, json};
use std::path::Path;
use tprof_trace::model::{Mark, MarkKind, ProcessIndex};
use tprof_wire::operators::{mode, note, unread};

/// The key of the property.
pub const KEY: &str = "pytorch";

/// A note about what is recorded of operators.
#[derive(Clone, Copy, Debug)]
pub struct OperatorNote {
    /// One of the numbers in [`note`].
    pub what: u32,
    /// A number, see there.
    pub number: u64,
    /// Another one, or the id of a text.
    pub other: u64,
}

/// What is known of it so far.
#[derive(Debug, Default)]
pub struct Recorded {
    version: Option<String>,
    mode: &'static str,
    why: Option<String>,
    /// The process was forked while its parent registered callbacks, and has not registered its
    /// own since: some or all are missing.
    pub forked: bool,
}

impl Recorded {
    /// Takes a record.
    pub fn take(
        &mut self,
        note: OperatorNote,
        process: ProcessIndex,
        time_ns: u64,
        interned: &Interned,
        file: &mut OpenFile,
    ) {
        match note.what {
            note::ARMED => {
                self.forked = false;
                self.mode = if note.number == u64::from(mode::SHAPES) { "shapes" } else { "names" };
            }
            note::NO_SYMBOLS => {
                self.mode = "off";
                self.why = Some("this PyTorch exports no at::addGlobalCallback".to_owned());
            }
            // The fact is of the file, which its parent shares.
            note::FORKED => {
                self.forked = true;
                return;
            }
            note::NO_SIZES => self.why = Some(no_sizes(note.number).to_owned()),
            note::OVER_BUDGET => {
                self.mode = "ranges";
                let (taken, elapsed) = (note.number, note.other.max(1));
                let percent = taken as f64 * 100.0 / elapsed as f64;
                let why = format!(
                    "operators took {percent:.1} % of a thread's time, more than 1 %; \
                     --operators names records them all"
                );
                let name = file.writer.name(&format!("no more operators: {why}"));
                let (process, kind) = (Some(process), MarkKind::Mark);
                file.writer.mark(Mark { time_ns, process, name, kind });
                self.why = Some(why);
            }
            _ => return,
        }
        if note.what != note::OVER_BUDGET
            && let Some(path) = u32::try_from(note.other).ok().and_then(|id| interned.text(id))
        {
            self.version = version::beside(Path::new(path));
        }
        file.write_property(KEY, &self.property(process).to_string());
    }

    fn property(&self, process: ProcessIndex) -> Value {
        json!({
            "process": process,
            "version": self.version,
            "operators": self.mode,
            "why": self.why,
        })
    }
}

fn no_sizes(why: u64) -> &'static str {
    match why {
        unread::NO_FUNCTION => "no sizes: this PyTorch lacks a function that reads them",
        unread::THROWN => "no sizes: this PyTorch raised an exception in the test of reading them",
        _ => "no sizes: this PyTorch has them where they could not be found",
    }
}
