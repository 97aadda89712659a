//! Assigns each CPU sample to the program image that was running.
//!
//! A sample names only a pid. An image attaches a little after its exec, and some images never
//! attach: static programs, or all of `tprof attach`. So a sample waits a moment for its image to
//! attach. If that doesn't happen, the process gets a row that has only samples.

use crate::output::destination::Output;
use crate::output::own_program::is_own;
use crate::targets::code::Code;
use crate::targets::code::Unresolved;
use crate::targets::cpu_rows::{CpuRows, RowSink};
use crate::targets::target::{Target, Targets};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use tprof_os::proc;
use tprof_os::sys;
use tprof_sampler::cpu::{CpuSample, SamplerEvent};
use tprof_trace::model::*;
use tprof_trace::run::{BlindSpot, ProcessInfo};
use tprof_unwind::modules::LoadedModule;

/// Time that samples wait for a process that isn't expected to attach, ns.
const HOLD_NS: u64 = 250_000_000;
/// Time that samples wait for a process that is expected to attach, ns. It attaches after its
/// libraries were loaded and their constructors ran. That takes seconds if there are many libraries
/// and none is in the page cache.
const LOAD_NS: u64 = 60_000_000_000;
/// If more samples than this wait, none waits beyond [`HOLD_NS`].
const MAX_HELD: usize = 16_384;

/// A program that did not attach, so only its samples are recorded.
struct SampledOnly {
    pid: u32,
    file: usize,
    index: ProcessIndex,
    code: Code,
    cpu_rows: CpuRows,
    /// Index of its row in the table of processes.
    row: usize,
}

/// A [`SampledOnly`] program that has ended. The collector waits to learn how it ended.
struct EndedProgram {
    /// Index of the program in [`Attribution::sampled_only`].
    program: usize,
    end_ns: u64,
}

/// The owner of the samples that a program's threads gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Unknown,
    /// The attached image of this number.
    Image(u64),
    /// The program at this index in [`Attribution::sampled_only`].
    SampledOnly(usize),
}

/// The time in which a pid ran one program. A pid begins the next epoch with each exec.
struct Epoch {
    since_ns: u64,
    owner: Owner,
    /// Modules that were loaded before the owner was known, each with the time of its loading, ns.
    modules: Vec<(u64, LoadedModule)>,
}

/// Samples that wait until their owner is known.
#[derive(Default)]
struct HeldSamples {
    /// When the first of these samples arrived, ns.
    since_ns: u64,
    samples: Vec<CpuSample>,
}

/// The programs and threads of one pid.
#[derive(Default)]
struct SampledPid {
    parent: u32,
    /// The file that the parent's rows are written to.
    file: Option<usize>,
    /// The programs that the pid ran, in order.
    epochs: Vec<Epoch>,
    /// Names of its threads by tid.
    names: HashMap<u32, String>,
}

/// Assigns samples to process images.
#[derive(Default)]
pub struct Attribution {
    pids: HashMap<u32, SampledPid>,
    /// Samples whose owner is not known yet, by pid and index of the program's epoch.
    held: BTreeMap<(u32, usize), HeldSamples>,
    sampled_only: Vec<SampledOnly>,
    ended_programs: Vec<EndedProgram>,
    redact: bool,
}

/// The parts of the engine that samples are written to.
pub struct Destination<'a> {
    /// The attached images.
    pub targets: &'a mut Targets,
    /// The destination of rows.
    pub out: &'a mut Output,
}

impl Attribution {
    /// Returns an attribution without any samples.
    pub fn new(redact: bool) -> Attribution {
        Attribution { redact, ..Attribution::default() }
    }

    /// Handles one event of the sampler.
    pub fn take(&mut self, event: SamplerEvent, to: &mut Destination<'_>) {
        match event {
            SamplerEvent::Forked { pid, parent, time_ns } => {
                let file = self.file_of(parent, to);
                let known = SampledPid { parent, file, ..SampledPid::default() };
                self.pids.insert(pid, known);
                self.begins(pid, time_ns);
            }
            SamplerEvent::Replaced(pid, time_ns) => self.begins(pid, time_ns),
            SamplerEvent::Ended(pid, time_ns) => self.ended(pid, time_ns, to),
            SamplerEvent::Named(pid, tid, time_ns, name) => self.named(pid, tid, time_ns, name, to),
            SamplerEvent::ModuleLoaded(load) => {
                let known = self.known(load.pid);
                let Some(epoch) = known.epochs.last_mut() else { return };
                let owner = epoch.owner;
                if owner == Owner::Unknown {
                    epoch.modules.push((load.time_ns, load.module));
                } else if let Some(code) = self.code_of(owner, to) {
                    code.take_modules(load.time_ns, vec![load.module]);
                }
            }
            SamplerEvent::Samples(all) => {
                let now = sys::monotonic_ns();
                for taken in all {
                    // The sampler reports a wait only when the wait is over. Therefore a sample
                    // belongs to the program that ran at the sample's time, which may not be the
                    // one that runs now.
                    let epochs = &self.known(taken.pid).epochs;
                    let began = epochs.partition_point(|epoch| epoch.since_ns <= taken.time_ns);
                    let program = began.saturating_sub(1);
                    let held = self.held.entry((taken.pid, program));
                    let held =
                        held.or_insert_with(|| HeldSamples { since_ns: now, samples: Vec::new() });
                    held.samples.push(taken);
                }
            }
            SamplerEvent::EventShares(shares) => {
                let shares: BTreeMap<_, _> =
                    shares.into_iter().map(|(event, share)| (event.name(), share)).collect();
                let value = serde_json::json!(shares).to_string();
                for open in &mut to.out.files.open {
                    open.write_property(property::EVENT_SHARES, &value);
                }
            }
            SamplerEvent::KernelNamesHidden(why) => {
                let value = serde_json::json!(why).to_string();
                for open in &mut to.out.files.open {
                    open.write_property(property::KERNEL_NAMES_HIDDEN, &value);
                }
            }
            // The engine handles it.
            SamplerEvent::RateChanged(..) => {}
            SamplerEvent::Lost(what, why, count) => to.out.processes.losses.lose(what, why, count),
            SamplerEvent::Missing(process, what, why) => {
                to.out.processes.losses.add_blind(BlindSpot::new(
                    if process.is_empty() { "all processes".to_owned() } else { process },
                    what,
                    why,
                ))
            }
        }
    }

    /// Returns the pids of the sampled processes, each with the earliest time at which it is known
    /// to have run, ns; `u64::MAX` if no such time is known.
    pub fn pids(&self) -> impl Iterator<Item = (u32, u64)> {
        // The first epoch starts at 0 if the sampler did not see the program begin.
        let since =
            |known: &SampledPid| known.epochs.first().map(|e| e.since_ns).filter(|ns| *ns > 0);
        self.pids.iter().map(move |(pid, known)| (*pid, since(known).unwrap_or(u64::MAX)))
    }

    /// Returns the state of a pid, which has at least one epoch. Creates it if the pid is new.
    fn known(&mut self, pid: u32) -> &mut SampledPid {
        let known = self.pids.entry(pid).or_default();
        if known.epochs.is_empty() {
            known.epochs.push(Epoch { since_ns: 0, owner: Owner::Unknown, modules: Vec::new() });
        }
        known
    }

    /// Records that a process begins a program, by a fork or an exec.
    fn begins(&mut self, pid: u32, since_ns: u64) {
        let epoch = Epoch { since_ns, owner: Owner::Unknown, modules: Vec::new() };
        self.pids.entry(pid).or_default().epochs.push(epoch);
    }

    /// Records that a process ended, and writes all of its samples.
    fn ended(&mut self, pid: u32, time_ns: u64, to: &mut Destination<'_>) {
        self.assign(to, Some(pid), u64::MAX);
        let Some(known) = self.pids.remove(&pid) else { return };
        for epoch in known.epochs {
            if let Owner::SampledOnly(program) = epoch.owner {
                self.ended_programs.push(EndedProgram { program, end_ns: time_ns });
            }
        }
    }

    /// Writes how programs that did not attach ended. The parent reports the status only when it
    /// reaps the process, some time after the end. For programs that ended before `until_ns` the
    /// collector waits no longer, and writes what it knows.
    pub fn write_ends(&mut self, until_ns: u64, out: &mut Output) {
        self.ended_programs.retain(|left| {
            let Some(own) = self.sampled_only.get(left.program) else { return false };
            let Some(end) =
                out.processes.sampled_ended(own.row, left.end_ns, left.end_ns < until_ns)
            else {
                return true;
            };
            if let Some(open) = out.files.open.get_mut(own.file) {
                open.writer.process_end(own.index, left.end_ns, end);
            }
            false
        });
    }

    fn named(&mut self, pid: u32, tid: u32, time_ns: u64, name: String, to: &mut Destination<'_>) {
        let known = self.known(pid);
        let owner = known.epochs.last().map_or(Owner::Unknown, |e| e.owner);
        known.names.insert(tid, name.clone());
        let (cpu_rows, file) = match owner {
            Owner::Image(image) => match to.targets.get(&image) {
                Some(target) => (&target.cpu_rows, target.file),
                None => return,
            },
            Owner::SampledOnly(at) => {
                let own = &self.sampled_only[at];
                (&own.cpu_rows, own.file)
            }
            Owner::Unknown => return,
        };
        if let Some(open) = to.out.files.open.get_mut(file) {
            cpu_rows.name(tid, time_ns, &name, open);
        }
    }

    fn code_of<'a>(
        &'a mut self,
        owner: Owner,
        to: &'a mut Destination<'_>,
    ) -> Option<&'a mut Code> {
        match owner {
            Owner::Unknown => None,
            Owner::Image(image) => to.targets.get_mut(&image).map(|t| &mut t.code),
            Owner::SampledOnly(at) => self.sampled_only.get_mut(at).map(|o| &mut o.code),
        }
    }

    /// Returns the file that a process's rows are written to, if it is known already.
    fn file_of(&self, pid: u32, to: &Destination<'_>) -> Option<usize> {
        let known = self.pids.get(&pid);
        let owner = known.and_then(|p| p.epochs.iter().rev().find(|e| e.owner != Owner::Unknown));
        match owner.map(|e| e.owner) {
            Some(Owner::SampledOnly(at)) => self.sampled_only.get(at).map(|o| o.file),
            Some(Owner::Image(image)) => to.out.processes.assignment_of(image).map(|p| p.file),
            _ => to
                .out
                .processes
                .image_of(pid)
                .and_then(|image| to.out.processes.assignment_of(image))
                .map(|p| p.file)
                .or_else(|| known.and_then(|p| p.file)),
        }
    }

    /// Writes the held samples whose owner is known by now, and those that have waited long enough
    /// at `now_ns`. If `only` is a pid, writes only the samples of that process.
    pub fn assign(&mut self, to: &mut Destination<'_>, only: Option<u32>, now_ns: u64) {
        let pids = only.map_or(0..=u32::MAX, |pid| pid..=pid);
        let programs = (*pids.start(), 0)..=(*pids.end(), usize::MAX);
        let waiting: Vec<_> =
            self.held.range(programs).map(|(key, of)| (*key, of.since_ns)).collect();
        let is_full = self.held.values().map(|of| of.samples.len()).sum::<usize>() > MAX_HELD;
        for ((pid, program), since_ns) in waiting {
            let waited = now_ns.saturating_sub(since_ns);
            let loads = || waited <= LOAD_NS && !is_full && to.out.processes.may_attach(pid);
            let force = waited > HOLD_NS && !loads();
            let mut owner = self.owner(pid, program, false, to);
            let last = self.known(pid).epochs.len() - 1;
            // Between its fork and its exec, a child runs its parent's code under its own pid. The
            // stacks of these samples would be resolved with the wrong modules, so they are
            // dropped.
            let is_before = owner == Owner::Unknown && program < last;
            if owner == Owner::Unknown && force {
                owner = self.owner(pid, last, true, to);
            }
            if owner == Owner::Unknown && !force {
                continue;
            }
            for mut taken in self.held.remove(&(pid, program)).unwrap_or_default().samples {
                if is_before {
                    taken.frames.clear();
                }
                match owner {
                    Owner::Unknown => lose_sample(&taken, "no trace file could be made", to),
                    owner => self.write(owner, taken, to),
                }
            }
        }
    }

    /// Returns the owner of a program's samples. With `force`, a program that did not attach gets a
    /// row now.
    fn owner(&mut self, pid: u32, program: usize, force: bool, to: &mut Destination<'_>) -> Owner {
        let known = self.known(pid);
        let program = program.min(known.epochs.len() - 1);
        let epoch = &known.epochs[program];
        if epoch.owner != Owner::Unknown {
            return epoch.owner;
        }
        let from = epoch.since_ns;
        let until = known.epochs.get(program + 1).map_or(u64::MAX, |next| next.since_ns);
        let mut images = to.targets.iter().rev().filter(|(_, t)| t.pid == pid);
        let image = images.find(|(_, t)| (from..until).contains(&t.start_ns)).map(|(n, _)| *n);
        let owner = match image {
            Some(image) => Owner::Image(image),
            None if force => match self.make_row(pid, program, to) {
                Some(at) => Owner::SampledOnly(at),
                None => return Owner::Unknown,
            },
            None => return Owner::Unknown,
        };
        let epoch = &mut self.known(pid).epochs[program];
        epoch.owner = owner;
        let modules = std::mem::take(&mut epoch.modules);
        if let Some(code) = self.code_of(owner, to) {
            for (time_ns, module) in modules {
                code.take_modules(time_ns, vec![module]);
            }
        }
        owner
    }

    /// Creates a row for a process that did not attach, and returns its index in `sampled_only`.
    fn make_row(&mut self, pid: u32, program: usize, to: &mut Destination<'_>) -> Option<usize> {
        let known = self.file_of(pid, to);
        let file = match known {
            Some(file) => file,
            None => to.out.files.unranked().ok()?,
        };
        let inherited = self.in_force_of_parent(pid, program, to);
        let known = self.known(pid);
        let (parent, since_ns) = (known.parent, known.epochs[program].since_ns);
        let name = known.names.get(&pid).cloned().unwrap_or_default();
        let open = to.out.files.open.get_mut(file)?;
        let index = open.processes;
        open.processes += 1;
        // The child has ended, so its command line can't be read. If this is its first program, it
        // is the one that its parent ran.
        let of_parent = to.out.processes.image_of(parent).filter(|_| program == 0);
        let of_parent = of_parent.and_then(|image| to.out.processes.process(image));
        let gone = || of_parent.map_or(name, |parent| parent.command.clone());
        let (command, exe) = match proc::words_of(pid) {
            words if words.is_empty() => (gone(), String::new()),
            words => (words.join(" "), proc::exe_of(pid)),
        };
        let command = match self.redact {
            true => proc::program_of(&command),
            false => command,
        };
        let rank = open.rank();
        let process = Process {
            process: index,
            pid,
            parent,
            rank,
            command: open.writer.name(&command),
            exe: open.writer.name(if self.redact { "" } else { &exe }),
            start_ns: since_ns,
            memory: MemoryRecording::Off,
        };
        open.writer.process(&process);
        let mut code = Code::new(index, self.redact);
        code.inherit(&inherited, since_ns, &mut open.writer);
        let info = ProcessInfo {
            pid,
            parent,
            rank,
            command,
            ended_by: "unknown".to_owned(),
            start_ns: since_ns,
            own: is_own(Path::new(&exe)),
            ..ProcessInfo::default()
        };
        let row = to.out.processes.sampled(info, file);
        let cpu_rows = CpuRows::default();
        self.sampled_only.push(SampledOnly { pid, file, index, code, cpu_rows, row });
        Some(self.sampled_only.len() - 1)
    }

    /// Returns the modules that a forked child has inherited from its parent. After an exec there
    /// are none.
    fn in_force_of_parent(
        &mut self,
        pid: u32,
        program: usize,
        to: &mut Destination<'_>,
    ) -> Vec<std::sync::Arc<crate::targets::code::MappedModule>> {
        let parent = self.pids.get(&pid).map_or(0, |p| p.parent);
        if program > 0 || parent == 0 {
            return Vec::new();
        }
        let owner = self.pids.get(&parent).and_then(|p| p.epochs.last()).map(|e| e.owner);
        let code = self.code_of(owner.unwrap_or(Owner::Unknown), to);
        code.map(|c| c.in_force()).unwrap_or_default()
    }

    /// Writes a sample to the rows of its owner.
    fn write(&mut self, owner: Owner, taken: CpuSample, to: &mut Destination<'_>) {
        let owner = match owner {
            Owner::Image(image) => Owner::Image(later_image(image, &taken, to.targets)),
            owner => owner,
        };
        let names = match self.pids.get(&taken.pid) {
            Some(known) => &known.names,
            None => return,
        };
        let (file, process, pid, code, cpu_rows) = match owner {
            Owner::Unknown => return,
            Owner::Image(image) => match to.targets.get_mut(&image) {
                Some(t) if !t.spans.was_on(taken.time_ns) => return,
                Some(t) => (t.file, t.hooks.index, t.pid, &mut t.code, &mut t.cpu_rows),
                None => return lose_sample(&taken, "they came after their process's end", to),
            },
            Owner::SampledOnly(at) => {
                let own = &mut self.sampled_only[at];
                (own.file, own.index, own.pid, &mut own.code, &mut own.cpu_rows)
            }
        };
        let Some(open) = to.out.files.open.get_mut(file) else { return };
        let redact = self.redact;
        cpu_rows.take(taken, &mut RowSink { open, process, pid, code, names, redact });
    }

    /// Writes stacks and modules of processes that did not attach, and returns the frames that need
    /// names.
    pub fn flush_own(&mut self, until_ns: u64, out: &mut Output) -> Vec<Unresolved> {
        let mut all = Vec::new();
        for own in &mut self.sampled_only {
            let Some(open) = out.files.open.get_mut(own.file) else { continue };
            own.code.write_stacks(&mut open.writer);
            own.code.learn(until_ns, &mut open.writer);
            let places = own.code.drain_unnamed();
            if !places.is_empty() {
                let target = (own.file as u64) << 32 | u64::from(own.index);
                all.push(Unresolved { target, places });
            }
        }
        all
    }
}

/// Returns the image that a sample belongs to. It isn't the first image of its pid if the process
/// executed another program before the sampler watched it, so that it saw no exec.
fn later_image(image: u64, taken: &CpuSample, targets: &Targets) -> u64 {
    let was_replaced = |target: &Target| target.end.as_ref().is_some_and(|end| end.exec);
    if !targets.get(&image).is_none_or(was_replaced) {
        return image;
    }
    let is_later = |target: &Target| target.pid == taken.pid && target.start_ns <= taken.time_ns;
    let later = targets.range(image + 1..).rev().find(|(_, target)| is_later(target));
    later.map_or(image, |(number, _)| *number)
}

/// Counts a sample that can't be written as a loss.
fn lose_sample(taken: &CpuSample, why: &'static str, to: &mut Destination<'_>) {
    let what = if taken.cpu.is_some() { "CPU samples" } else { "times of threads" };
    to.out.processes.losses.lose(what, why, 1);
}
