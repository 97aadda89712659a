//! Sums up the samples of GPU instructions that the agent of a process sends (`--gpu-stalls`), adds
//! source lines, and writes rows once a minute.
//!
//! CUPTI's samples have no time and no run of a kernel. The agent reads them once a second, and rows
//! are sums over up to a minute, so that a file grows with the code that runs and not with the
//! samples.

use crate::output::losses::Losses;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use tprof_symbols::{CubinLines, demangle};
use tprof_trace::TraceWriter;
use tprof_trace::kernel_name::canonical;
use tprof_trace::model::{KernelStall, NameId, ProcessIndex, Property, property};
use tprof_wire::gpu;

/// Longest time that one row sums up, ns.
const ROW_NS: u64 = 60_000_000_000;
/// Most sums in memory. If there are more, rows are written early.
const SUMS: usize = 1 << 18;
/// Most functions and reasons with names. Samples of others are counted as lost.
const NAMES: usize = 1 << 20;
/// Most modules of a process whose lines are in memory.
const MODULES: usize = 1024;

const SAMPLES: &str = "samples of GPU instructions";

/// Where samples are taken: an instruction of a device, and a reason.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct StallKey {
    device: u32,
    function: u32,
    module: u64,
    offset: u64,
    reason: u32,
}

/// Texts with numbers of their own, since the agent may assign a number again.
#[derive(Default)]
struct Numbered {
    numbers: HashMap<Box<str>, u32>,
    texts: Vec<(Box<str>, Option<NameId>)>,
}

impl Numbered {
    fn number(&mut self, text: &str) -> Option<u32> {
        if let Some(number) = self.numbers.get(text) {
            return Some(*number);
        }
        let number = u32::try_from(self.texts.len()).ok().filter(|at| (*at as usize) < NAMES)?;
        self.numbers.insert(text.into(), number);
        self.texts.push((text.into(), None));
        Some(number)
    }

    fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", |text| &*text.0)
    }

    fn name(
        &mut self,
        number: u32,
        writer: &mut TraceWriter,
        shown: impl Fn(&str) -> String,
    ) -> NameId {
        let Some((text, name)) = self.texts.get_mut(number as usize) else {
            return NameId::default();
        };
        *name.get_or_insert_with(|| writer.name(&shown(text)))
    }
}

/// The code of a module.
enum Module {
    /// Its file, which wasn't read yet.
    Saved(PathBuf),
    /// It has line information that could not be saved.
    Unsaved,
    /// Its file was read, and these are its lines.
    Read(Box<CubinLines>),
    /// Its file could not be read.
    Unreadable,
}

/// What CUPTI said about the samples of a context.
#[derive(Clone, Copy, Default)]
struct Totals {
    from_ns: u64,
    period: u32,
    total: u64,
    dropped: u64,
    other: u64,
    recorded: u64,
    full: u64,
}

/// The samples of one process.
pub struct Stalls {
    process: ProcessIndex,
    session: PathBuf,
    redact: bool,
    sums: HashMap<StallKey, u64>,
    functions: Numbered,
    reasons: Numbered,
    modules: HashMap<u64, Module>,
    /// Number of modules beyond the number that is kept.
    forgotten: u64,
    /// Number of modules whose lines were read.
    modules_read: usize,
    totals: BTreeMap<(u32, u32), Totals>,
    /// Time of the first sample that isn't written, and of the last, ns.
    unwritten_ns: (u64, u64),
    nameless: u64,
}

impl Stalls {
    /// Returns the state of a process without samples, whose agent saves files in the directory
    /// `session`. With `redact`, only names of source files are kept.
    pub fn new(process: ProcessIndex, session: &Path, redact: bool) -> Stalls {
        Stalls {
            process,
            session: session.to_owned(),
            redact,
            sums: HashMap::new(),
            functions: Numbered::default(),
            reasons: Numbered::default(),
            modules: HashMap::new(),
            forgotten: 0,
            modules_read: 0,
            totals: BTreeMap::new(),
            unwritten_ns: (0, 0),
            nameless: 0,
        }
    }

    /// Adds the samples of an instruction. `text` returns a text that the agent has defined. Returns
    /// `None` if the payload is malformed.
    pub fn take<'t>(
        &mut self,
        reasons: u32,
        payload: &[u64],
        time_ns: u64,
        text: impl Fn(u32) -> Option<&'t str>,
    ) -> Option<()> {
        let place = gpu::PcSamples::unpack(payload)?;
        let pairs = payload.get(gpu::PcSamples::WORDS..)?.get(..reasons as usize)?;
        if self.sums.is_empty() {
            self.unwritten_ns.0 = time_ns;
        }
        self.unwritten_ns.1 = time_ns;
        let function = text(place.function).and_then(|text| self.functions.number(text));
        for (reason, samples) in pairs.iter().copied().map(gpu::unpack_reason) {
            let reason = text(reason).and_then(|text| self.reasons.number(text));
            let (Some(function), Some(reason)) = (function, reason) else {
                self.nameless = self.nameless.saturating_add(samples.into());
                continue;
            };
            let key = StallKey {
                device: place.device,
                function,
                module: place.cubin,
                offset: place.offset,
                reason,
            };
            let sum = self.sums.entry(key).or_insert(0);
            *sum = sum.saturating_add(samples.into());
        }
        Some(())
    }

    /// Adds what CUPTI said about an answer.
    pub fn add_totals(&mut self, totals: &gpu::PcTotals, time_ns: u64) {
        let new = || Totals { from_ns: time_ns, ..Totals::default() };
        let sum = self.totals.entry((totals.device, totals.context)).or_insert_with(new);
        sum.period = totals.period;
        let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
        add(&mut sum.total, totals.total);
        add(&mut sum.dropped, totals.dropped);
        add(&mut sum.other, totals.other);
        add(&mut sum.recorded, totals.recorded);
        add(&mut sum.full, u64::from(totals.full != 0));
    }

    /// Notes that the code of a module was saved, or could not be.
    pub fn has_module(&mut self, saved: &gpu::Cubin) {
        let number = saved.number & !gpu::CUBIN_NUMBERED;
        let path = self.session.join(format!("cubin-{:016x}-{number:016x}", saved.key));
        let module = if saved.is_saved != 0 { Module::Saved(path) } else { Module::Unsaved };
        if self.modules.len() < 64 * MODULES {
            self.modules.insert(saved.number, module);
        } else {
            self.forgotten += 1;
            if let Module::Saved(path) = module {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Whether rows are due.
    pub fn is_due(&self) -> bool {
        let (from_ns, to_ns) = self.unwritten_ns;
        !self.sums.is_empty()
            && (self.sums.len() >= SUMS || to_ns.saturating_sub(from_ns) >= ROW_NS)
    }

    /// Returns the rows of all samples since the last call, in order of functions and instructions.
    pub fn rows(&mut self, writer: &mut TraceWriter) -> Vec<KernelStall> {
        let mut sums: Vec<(StallKey, u64)> = self.sums.drain().collect();
        sums.sort_unstable();
        let mut rows = Vec::with_capacity(sums.len());
        for (key, samples) in sums {
            let (file, line) = self.line(&key, writer);
            rows.push(KernelStall {
                time_ns: self.unwritten_ns.1,
                process: self.process,
                device: key.device,
                kernel: self
                    .functions
                    .name(key.function, writer, |raw| canonical(&demangle(raw)).into_owned()),
                module: key.module,
                offset: key.offset,
                reason: self.reasons.name(key.reason, writer, str::to_owned),
                samples,
                file,
                line,
            });
        }
        rows
    }

    fn line(&mut self, key: &StallKey, writer: &mut TraceWriter) -> (NameId, u32) {
        let Some(module) = self.modules.get_mut(&key.module) else {
            return (NameId::default(), 0);
        };
        if let Module::Saved(path) = module {
            let lines = if self.modules_read < MODULES { read_lines(path) } else { None };
            self.modules_read += usize::from(lines.is_some());
            // Nobody else reads the file, and the directory may be in memory.
            let _ = std::fs::remove_file(&*path);
            *module = lines.map_or(Module::Unreadable, |lines| Module::Read(Box::new(lines)));
        }
        let function = self.functions.text(key.function).as_bytes();
        let Module::Read(lines) = module else { return (NameId::default(), 0) };
        let Some((file, line)) = lines.line(function, key.offset) else {
            return (NameId::default(), 0);
        };
        let name = Path::new(file).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        (writer.name(if self.redact { name } else { file }), line)
    }

    /// Writes what CUPTI said about the samples, and counts the losses. Called when the process has
    /// ended and all rows are written.
    pub fn finish(&mut self, writer: &mut TraceWriter, losses: &mut Losses) {
        for (&(device, context), totals) in &self.totals {
            let value = serde_json::json!({
                "process": self.process, "device": device, "context": context,
                "from_ns": totals.from_ns,
                "period_cycles": 1u64.checked_shl(totals.period).unwrap_or(0),
                "total": totals.total, "dropped": totals.dropped, "other": totals.other,
                "recorded": totals.recorded, "buffer_full": totals.full,
            });
            self.write_property(&value, writer);
        }
        let dropped = self.totals.values().map(|totals| totals.dropped).sum();
        let unread = |module: &&Module| matches!(module, Module::Unsaved | Module::Unreadable);
        let unread = self.modules.values().filter(unread).count() as u64;
        let unread = unread + self.forgotten;
        for (what, why, count) in [
            (SAMPLES, "the device had no room for them", dropped),
            (SAMPLES, "names of their functions or reasons were lost", self.nameless),
            ("line tables of GPU code", "their files could not be written or read", unread),
        ] {
            if count > 0 {
                losses.lose(what, why, count);
            }
        }
        self.modules.retain(|_, module| {
            if let Module::Saved(path) = module {
                let _ = std::fs::remove_file(path);
            }
            false
        });
    }

    /// Number of times that a device's buffer was full when samples were read.
    pub fn full(&self) -> u64 {
        self.totals.values().map(|totals| totals.full).sum()
    }

    /// Writes why there are no samples, or none from a time on, for the report.
    pub fn write_why(&self, text: &str, from_ns: Option<u64>, writer: &mut TraceWriter) {
        let value =
            serde_json::json!({ "process": self.process, "why": text, "until_ns": from_ns });
        self.write_property(&value, writer);
    }

    fn write_property(&self, value: &serde_json::Value, writer: &mut TraceWriter) {
        let key = writer.name(property::PC_SAMPLING);
        let value = writer.name(&value.to_string());
        writer.property(Property { key, value });
    }
}

/// Reads the lines of a saved module. The job may have put anything there, such as a pipe or a file
/// that grows.
fn read_lines(path: &Path) -> Option<CubinLines> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    const FLAGS: i32 = 0o400000 | 0o4000; // NOFOLLOW, NONBLOCK
    let file = std::fs::OpenOptions::new().read(true).custom_flags(FLAGS).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(gpu::MAX_CUBIN_BYTES).read_to_end(&mut bytes).ok()?;
    CubinLines::parse(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: u32) -> Option<&'static str> {
        [None, Some("_Z4gemmPf"), Some("reason_a"), Some("reason_b")].get(id as usize).copied()?
    }

    fn payload(offset: u64, reasons: &[(u32, u32)]) -> Vec<u64> {
        let place = gpu::PcSamples { cubin: 7, offset, device: 0, function: 1 };
        let pairs = reasons.iter().map(|(reason, samples)| gpu::pack_reason(*reason, *samples));
        place.pack().into_iter().chain(pairs).collect()
    }

    #[test]
    fn samples_of_an_instruction_and_reason_are_summed() {
        let mut stalls = Stalls::new(0, Path::new("/nowhere"), false);
        stalls.take(2, &payload(16, &[(2, 3), (3, 1)]), 5, text).unwrap();
        stalls.take(1, &payload(16, &[(2, 4)]), 6, text).unwrap();
        let mut sums: Vec<u64> = stalls.sums.values().copied().collect();
        sums.sort_unstable();
        assert_eq!(sums, [1, 7]);
        assert!(!stalls.is_due());
        stalls.take(1, &payload(32, &[(2, 1)]), 5 + ROW_NS, text).unwrap();
        assert!(stalls.is_due());
    }

    #[test]
    fn malformed_payloads_are_refused_and_nameless_samples_counted() {
        let mut stalls = Stalls::new(0, Path::new("/nowhere"), false);
        assert!(stalls.take(2, &payload(16, &[(2, 3)]), 5, text).is_none());
        assert!(stalls.take(1, &[1, 2], 5, text).is_none());
        stalls.take(1, &payload(16, &[(9, 3)]), 5, text).unwrap();
        assert_eq!((stalls.nameless, stalls.sums.len()), (3, 0));
    }
}
