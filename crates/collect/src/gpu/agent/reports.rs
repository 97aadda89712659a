//! Reports what a process's CUPTI agent says of itself, and what its records lack: as marks in the
//! file, as losses, and in the list of what could not be recorded.

use super::Gpu;
use crate::gpu::by_order::WithoutCall;
use crate::gpu::coverage::Gap;
use crate::output::losses::Losses;
use tprof_trace::TraceWriter;
use tprof_trace::model::*;
use tprof_trace::run::BlindSpot;
use tprof_wire::cupti;
use tprof_wire::gpu::trouble;

/// Names the data that only NCCL's log has, for the report.
pub const NCCL_LOG: &str = "connections of NCCL's log (--nccl log)";
/// Names the data that only NCCL's profiler plugin records, for the report.
pub const NCCL_CHOICES: &str = "NCCL's algorithms, protocols and channels";

/// Names what sampling of instructions records, for the report.
const STALLS: &str = "stalls of GPU kernels";

/// A note of the agent. The meaning of its values depends on what it says.
pub(super) struct AgentNote {
    /// What it says, as a constant of [`trouble`].
    pub what: u32,
    pub count: u64,
    /// Number of its text.
    pub text: u32,
    pub time_ns: u64,
}

impl Gpu {
    /// Adds something that isn't recorded of this process to the report of what is missing.
    pub fn add_blind(&self, what: &str, why: &str, losses: &mut Losses) {
        losses.add_blind(BlindSpot::new(self.label.clone(), what, why));
    }

    pub(super) fn mark(&self, time_ns: u64, text: &str, writer: &mut TraceWriter) {
        let (process, name) = (Some(self.rows.process), writer.name(text));
        writer.mark(Mark { time_ns, process, name, kind: MarkKind::Mark });
    }

    /// Handles a note of the agent.
    pub(super) fn take_note(
        &mut self,
        note: &AgentNote,
        writer: &mut TraceWriter,
        losses: &mut Losses,
    ) {
        self.learn(note);
        self.write_note(note, writer);
        self.report(note, losses);
    }

    /// Remembers what a note says of later records.
    fn learn(&mut self, note: &AgentNote) {
        match note.what {
            trouble::RECORDS_CALLS => {
                self.calls_from_ns.get_or_insert(note.time_ns);
                self.relies_on_hooks = note.count != 0;
            }
            trouble::USES => self.version = note.count,
            trouble::REFUSED => {
                let text = self.rows.texts.text(note.text).unwrap_or_default();
                self.records_memory &= !text.starts_with("device memory: ");
                if text.starts_with("kernels: ") {
                    self.launches.cannot_know();
                }
            }
            trouble::DROPPED | trouble::NO_TIMES => self.launches.counted += note.count,
            _ => {}
        }
    }

    /// Writes what a note says of the process to its file: which CUPTI records, whether that has a
    /// known fault, and what another client of CUPTI did.
    fn write_note(&self, note: &AgentNote, writer: &mut TraceWriter) {
        let text = match note.what {
            trouble::SHARED => "another client of CUPTI records too",
            trouble::DETACHED => "another client detaches CUPTI",
            trouble::ATTACHED => "CUPTI records again",
            trouble::USES => return self.write_version(note, writer),
            trouble::NO_STALLS => {
                return self.stalls.write_why(self.text(note.text), None, writer);
            }
            trouble::STALLS_END => {
                let from_ns = Some(note.time_ns);
                return self.stalls.write_why(self.text(note.text), from_ns, writer);
            }
            _ => return,
        };
        self.mark(note.time_ns, text, writer);
    }

    fn write_version(&self, note: &AgentNote, writer: &mut TraceWriter) {
        let version = u32::try_from(note.count).unwrap_or_default();
        if let Some(fault) = cupti::known_fault(version) {
            self.mark(note.time_ns, &format!("{}: {fault}", cupti::Release(version)), writer);
        }
        let key = writer.name("cupti");
        let value = serde_json::json!({
            "process": self.rows.process, "version": note.count, "path": self.text(note.text),
        });
        let value = writer.name(&value.to_string());
        writer.property(Property { key, value });
    }

    /// Adds what a note says is missing to the report of the run.
    fn report(&self, note: &AgentNote, losses: &mut Losses) {
        let (count, text) = (note.count, self.text(note.text));
        let (what, why) = match note.what {
            trouble::DROPPED => ("GPU records", "CUPTI had no room for them"),
            trouble::NO_TIMES => ("GPU records", "CUPTI gave them no times"),
            trouble::UNKNOWN_KIND => ("GPU records", "they are of kinds unknown to this tprof"),
            trouble::NO_BUFFER => (
                "requests of CUPTI's for a buffer",
                "all were full; the records that it cost are counted beside, if CUPTI does",
            ),
            trouble::NESTED_KERNELS => {
                ("kernels", "kernels launched them, and their records are not kept")
            }
            trouble::UNREADABLE => {
                let why = format!("CUPTI could not read its buffer on ({text})");
                return losses.lose("bytes of GPU records", &why, count);
            }
            trouble::NOT_ENDED => (
                "bytes of GPU records",
                "they are of work that had not ended when the process did, or when another client \
                 of CUPTI forced them out",
            ),
            trouble::SPARE_BUFFERS => (
                "bytes of GPU records",
                "all buffers were full, and CUPTI before 12.9 crashes without one",
            ),
            trouble::STALLS_UNREAD => {
                ("places of samples of GPU instructions", "the process ended before they were read")
            }
            trouble::NAMES_CUT => ("ends of names", "they were too long"),
            _ => return self.report_blind(note.what, count, text, losses),
        };
        losses.lose(what, why, count);
    }

    /// Adds what a note says can't be recorded, so that nobody knows how much is missing.
    fn report_blind(&self, what: u32, count: u64, text: &str, losses: &mut Losses) {
        let mut blind = |what: &str, why: &str| self.add_blind(what, why, losses);
        match what {
            trouble::NO_CUPTI => blind("what the GPU did", text),
            trouble::NO_STALLS => blind(STALLS, text),
            trouble::STALLS_END => blind("stalls of GPU kernels from some time on", text),
            trouble::REFUSED => {
                let (what, why) = text.split_once(": ").unwrap_or(("records of the GPU", text));
                blind(what, &format!("CUPTI refused it ({why}, {count})"));
            }
            trouble::NOT_CHAINED => blind("another injected library", text),
            trouble::OTHER_PROFILER => blind(NCCL_CHOICES, text),
            trouble::NOT_BY_HOOKS => {
                blind("CUDA calls by hooks, which CUPTI records instead", text)
            }
            trouble::NEWER => {
                let version = format!("{}.{}", count / 10_000, count % 10_000 / 100);
                blind(
                    "what a newer CUPTI may have added to its records",
                    &format!("CUPTI {version} is newer than 13.5, the newest that tprof supports"),
                );
            }
            trouble::DETACHED => blind(
                "GPU work after a call of cuptiFinalize, for up to a second",
                &format!("another client detached CUPTI from the process ({count} buffers lost)"),
            ),
            trouble::RESUMED => blind(
                "GPU work that no hooked call began, right after recording was switched on",
                &format!(
                    "CUPTI records from {:.1} ms after that on, at the latest",
                    count as f64 / 1e6
                ),
            ),
            _ => {}
        }
    }

    /// Writes the last samples of instructions, and reports what they lack.
    pub(super) fn finish_stalls(&mut self, writer: &mut TraceWriter, losses: &mut Losses) {
        self.write_stalls(writer, losses);
        self.stalls.finish(writer, losses);
        let full = self.stalls.full();
        if full > 0 {
            let why = format!(
                "a device's buffer was full {full} times, and CUPTI does not say how many samples \
                 that cost: a longer period needs less room (--gpu-stalls=CYCLES)"
            );
            self.add_blind(STALLS, &why, losses);
        }
    }

    /// Counts the work that could not be joined with the call that started it as a loss.
    pub fn count_unjoined(&self, always_on: bool, losses: &mut Losses) {
        const LINKS: &str = "links of device work to the calls that started it";
        let WithoutCall { unclear, unseen, unknown, contradicted, .. } = self.by_order.found;
        let unseen_why = match always_on {
            true => {
                "no hook saw the calls: a library may have a CUDA runtime of its own, which \
                     --cuda-calls cupti records"
            }
            false => "no hook saw the calls, or recording was off then",
        };
        for (why, count) in [
            ("calls and CUPTI's records of a stretch do not add up", unclear),
            (unseen_why, unseen),
            ("neither the kernel's name nor CUPTI's number of the stream is known", unknown),
            ("CUPTI recorded other calls of the same numbers later", contradicted),
        ] {
            if count > 0 {
                losses.lose(LINKS, why, count);
            }
        }
    }

    /// Counts the kernels that were launched but have no record as a loss.
    pub fn count_missing_kernels(&self, losses: &mut Losses) {
        let missing = self.launches.without_kernels()
            + self.by_order.found.missing_kernels.saturating_sub(self.launches.counted);
        if missing > 0 {
            let why = "they were launched, and CUPTI gave no record of them before the end";
            losses.lose("kernels", why, missing);
        }
    }

    /// Reports the intervals in which another client of CUPTI had taken the records. They are
    /// marked in the file and listed in the report, in seconds since the process began.
    pub fn write_gaps(
        &self,
        gaps: &[Gap],
        start_ns: u64,
        writer: &mut TraceWriter,
        losses: &mut Losses,
    ) {
        for gap in gaps {
            let since = |time_ns: u64| time_ns.saturating_sub(start_ns) as f64 / 1e9;
            let (from, to) = (since(gap.from_ns), since(gap.to_ns));
            let what = format!("what the GPU did from {from:.2} s to {to:.2} s after it began");
            let why = format!(
                "{} launches and copies brought no records: another client of CUPTI took them over",
                gap.calls
            );
            self.add_blind(&what, &why, losses);
            for (time_ns, text) in [
                (gap.from_ns, "another client of CUPTI takes the records over"),
                (gap.to_ns, "the last call without a record of CUPTI's"),
            ] {
                self.mark(time_ns, text, writer);
            }
        }
    }
}
