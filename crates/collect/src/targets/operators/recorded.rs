//! Describes which operators of a process are recorded, and why not all. The description is a
//! property of the file. If the process changes which steps it records, a mark shows when.

use super::version;
use crate::output::files::OpenFile;
use crate::targets::interned::Interned;
use serde_json::{Value, json};
use std::path::Path;
use tprof_facts::thinned::{ThinnedPart, Thinning};
use tprof_trace::model::{Mark, MarkKind, ProcessIndex};
use tprof_wire::operators::{mode, note, unread};

/// The key of the property.
pub const KEY: &str = "pytorch";

/// A process's note about which operators it records.
#[derive(Clone, Copy, Debug)]
pub struct OperatorNote {
    /// The kind of note, one of the numbers in [`note`].
    pub what: u32,
    /// A number that depends on the kind of note.
    pub number: u64,
    /// Another number, or the id of a text.
    pub other: u64,
}

/// What is known so far about how a process records its operators.
#[derive(Debug, Default)]
pub struct Recorded {
    version: Option<String>,
    mode: &'static str,
    why: Option<String>,
    /// Whether the process was forked while its parent had callbacks registered, and has not
    /// registered its own since then. If so, some or all of its operators are missing.
    pub forked: bool,
    /// The option with which operators of all steps became too expensive; `None` under `auto`.
    by_budget: Option<String>,
    /// Whether `--budget` has ended the recording of operators.
    have_ended: bool,
}

impl Recorded {
    /// Whether the process has registered callbacks with PyTorch.
    pub fn is_armed(&self) -> bool {
        !matches!(self.mode, "" | "off")
    }

    /// Applies a note, and writes the file's property if the note changes it.
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
            // The property is left as it is, because it belongs to the file, which the child shares
            // with its parent.
            note::FORKED => {
                self.forked = true;
                return;
            }
            // The process wrote it before it saw that operators have ended.
            note::TURNS if self.have_ended => return,
            note::NO_SIZES => self.why = Some(no_sizes(note.number).to_owned()),
            note::TURNS => {
                let percent = note.other as f64 / 10_000.0;
                let steps = match note.number {
                    1 => "operators of all steps".to_owned(),
                    every => format!("operators of one step in {every}"),
                };
                // The mode stays `steps` even if the process records all operators again later,
                // because some are missing by then.
                self.mode = "steps";
                let (too_much, all) = match &self.by_budget {
                    Some(option) => ("too much for ".to_owned() + option, "without it all are"),
                    None => (
                        "and more than 0.5 % is too much".to_owned(),
                        "--operators names records them all",
                    ),
                };
                self.why = Some(format!(
                    "those of all steps take {percent:.1} % of a thread's time, {too_much}: {steps} \
                     are recorded, where an optimizer, a data loader or torch.profiler marks steps; \
                     {all}"
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

    /// Applies a change by `--budget`, and writes the file's property if operators change.
    pub fn thin(&mut self, by: &Thinning, process: ProcessIndex, file: &mut OpenFile) {
        match by.part {
            ThinnedPart::OperatorsOfAllSteps => return self.by_budget = Some(by.option()),
            ThinnedPart::Operators if self.is_armed() => {}
            _ => return,
        }
        (self.mode, self.have_ended) = ("ranges", true);
        self.why = Some(format!("from some moment on without operators: {}", by.reason()));
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
