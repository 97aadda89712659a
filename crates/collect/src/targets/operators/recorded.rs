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
            note::TURNS => {
                let percent = note.other as f64 / 10_000.0;
                let steps = match note.number {
                    1 => "operators of all steps".to_owned(),
                    every => format!("operators of one step in {every}"),
                };
                // Those that were left out stay so where all are recorded again.
                self.mode = "steps";
                self.why = Some(format!(
                    "those of all steps take {percent:.1} % of a thread's time, and more than 1 % is \
                     too much: {steps} are recorded, where an optimizer, a data loader or \
                     torch.profiler marks steps; --operators names records them all"
                ));
                let name = file.writer.name(&format!("{steps} from here on"));
                let (process, kind) = (Some(process), MarkKind::Mark);
                file.writer.mark(Mark { time_ns, process, name, kind });
            }
            _ => return,
        }
        if note.what != note::TURNS
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
