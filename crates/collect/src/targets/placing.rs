//! Adds a new image to the run: finds its rank and its file, writes its row, and begins to follow
//! it.

use super::budget::ProcessBudget;
use super::interned::Interned;
use super::operators::Operators;
use super::spans::Spans;
use super::target::{CountedLosses, ModuleQuestions, Target, Targets, Usage};
use crate::config::{Config, MemMode};
use crate::error::CollectError;
use crate::gpu::{Gpu, NCCL_CHOICES};
use crate::output::destination::Output;
use crate::output::files::{FileOwner, Files};
use crate::output::losses::Losses;
use crate::output::module_names::HookedImage;
use crate::output::own_program::is_own;
use crate::output::processes::{Assignment, Processes};
use crate::output::ranks::Rank;
use crate::targets::attached::Attached;
use crate::targets::calls::Calls;
use crate::targets::code::Code;
use crate::targets::cpu_rows::CpuRows;
use crate::targets::file_calls::FileWork;
use crate::targets::image::Image;
use crate::targets::thread_table::ThreadTable;
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use tprof_os::proc;
use tprof_symbols::Allocators;
use tprof_symbols::elf;
use tprof_trace::model::*;
use tprof_trace::run::{BlindSpot, ProcessInfo};
use tprof_wire::handshake::hello_flags;

/// The parts of the run that decide which file an image belongs to and how it is recorded.
pub struct PlacedIn<'a> {
    /// The attached images.
    pub targets: &'a Targets,
    /// The files and processes of the run, to which the image is added.
    pub out: &'a mut Output,
    /// Options of the run.
    pub config: &'a Config,
    /// The session's directory.
    pub session: &'a Path,
    /// Whether recording is on.
    pub recording: bool,
    /// The known allocators of programs.
    pub allocators: &'a mut Allocators,
}

impl Target {
    /// Adds a new image to the run; `None` if no file can be created for it.
    pub fn place(mut attached: Attached, run: PlacedIn<'_>, now: u64) -> Option<Target> {
        let PlacedIn { targets, out, config, session, recording, allocators } = run;
        let label = format!("{} {}", attached.pid, base_name(&attached.command));
        let same_pid = out.processes.image_of(attached.pid);
        let parent_image = same_pid.or_else(|| out.processes.image_of(attached.parent));
        find_launchers(&attached, out);
        let place = assign(&attached, parent_image, &label, out)?;
        out.processes.bent += u64::from(attached.has_faketime);
        let losses = &mut out.processes.losses;
        let memory = memory_recording(&mut attached, &label, config, allocators, losses);
        report_owners(&attached, losses);
        if config.io && attached.hello.flags & hello_flags::OTHER_FILE_CALLS != 0 {
            const WHY: &str = "a library that isn't libc defines functions with their names, so \
                those are called as if tprof weren't there";
            losses.add_blind(blind_spot(&label, "some calls on files", WHY.to_owned()));
        }
        let index = add_row(&attached, place, memory, config.redact, out)?;
        let forked_from = parent_image.filter(|_| attached.hello.flags & hello_flags::FORKED != 0);
        let parent = forked_from.and_then(|image| targets.get(&image));
        if let Some(why_not) = attached.why_not_hooked {
            let image = HookedImage {
                own_pid: attached.hello.pid,
                process: label.clone(),
                start_ns: attached.time_ns,
                forked_from,
                why_not,
                ran_torch: false,
            };
            out.processes.hooked.began(attached.image, image);
        }
        let is_late = attached.hello.flags & hello_flags::LATE != 0;
        let cpu_before_ns = same_pid.map_or(0, |_| attached.cpu_ns);
        let off = attached.region.header().off.load(Relaxed);
        let same_pids = attached.hello.pid == attached.pid;
        let mut target = Target {
            number: attached.image,
            pid: attached.pid,
            hooks: Image::new(attached.region, index),
            agent: None,
            file: place.file,
            forked_from,
            end: None,
            modules: ModuleQuestions {
                begun_with: attached.begun_with,
                ..ModuleQuestions::default()
            },
            watched: attached.watched,
            start_ns: attached.time_ns,
            cpu_rows: CpuRows::new(ThreadTable::new(same_pids)),
            whole_life: recording && !is_late && !config.is_in_part(),
            is_late,
            peak: (0, 0),
            segments: parent.map(|parent| parent.segments.clone()).unwrap_or_default(),
            memory,
            calls: Calls::new(index),
            nccl_log: attached.nccl_log,
            interned: Interned::default(),
            operators: Operators::new(index),
            spans: Spans::new(index, memory).switched_by(config, off),
            file_work: FileWork::new(
                index,
                attached.pid,
                attached.parent,
                config.redact,
                same_pids,
                attached.working_directory,
                parent.map(|parent| &parent.file_work),
            ),
            code: Code::new(index, config.redact),
            mappers: HashSet::new(),
            last_totals: None,
            last_recording: None,
            threads_checked_ns: now,
            counted: CountedLosses {
                with_missed: recording && memory != MemoryRecording::Off,
                ..CountedLosses::default()
            },
            exe: attached.exe,
            gpu: Gpu::new(index, label, session, config.redact),
            budget: ProcessBudget::default(),
            usage: Usage {
                cpu_ns: attached.cpu_ns - cpu_before_ns,
                cpu_before_ns,
                ..Usage::default()
            },
        };
        let resident = attached.resident_bytes.filter(|bytes| *bytes > 0);
        target.write_readings(out, attached.time_ns, &[(counter::RSS_BYTES, resident)]);
        out.transfers.begins(attached.pid, attached.parent);
        if attached.hello.flags & hello_flags::FORKED != 0 {
            target.begin_transfers_at_zero(out, attached.time_ns);
        }
        target.observe_transfers(out, now);
        if let Some(open) = out.files.open.get_mut(place.file) {
            let inherited = parent.map(|parent| parent.code.in_force()).unwrap_or_default();
            target.code.inherit(&inherited, attached.time_ns, &mut open.writer);
            target.spans.begin(attached.time_ns, &mut open.writer);
        }
        if let Some(modules) = attached.modules {
            target.code.take_modules(attached.time_ns, modules);
        }
        if let Some(interpreter) = parent.and_then(|parent| parent.code.interpreter()) {
            target.code.interprets(interpreter);
        }
        Some(target)
    }
}

/// Finds those ancestors of a new image that have launched its rank. They belong to no rank.
fn find_launchers(attached: &Attached, out: &mut Output) {
    let Output { files, processes, .. } = out;
    for ancestor in ancestry(processes, attached.pid, attached.parent) {
        let launched = |of: &Assignment| {
            attached.rank.zip(of.rank).is_some_and(|(rank, of_it)| rank.is_launched_by(&of_it))
        };
        let of_ancestor = processes.assignment_of(ancestor).filter(launched);
        let Some(Assignment { file, .. }) = of_ancestor else { continue };
        if files.open.get(file).is_some_and(|f| matches!(f.owner, FileOwner::Rank(_))) {
            files.becomes_launcher(file);
            processes.launch(file);
        }
    }
}

/// Returns the file and the rank of a new image. Reports the image as missing if no file can be
/// created for it.
fn assign(
    attached: &Attached,
    parent_image: Option<u64>,
    label: &str,
    out: &mut Output,
) -> Option<Assignment> {
    let parent = parent_image.and_then(|p| out.processes.assignment_of(p));
    match choose_file(attached.rank, parent, &mut out.files) {
        Ok(file) => Some(Assignment { file, rank: attached.rank.or(parent.and_then(|p| p.rank)) }),
        Err(e) => {
            let losses = &mut out.processes.losses;
            losses.complain(&e.to_string());
            losses.add_blind(blind_spot(label, "everything", format!("no trace file: {e}")));
            None
        }
    }
}

/// Returns the file of an image with the rank that its environment names.
fn choose_file(
    named: Option<Rank>,
    parent: Option<Assignment>,
    files: &mut Files,
) -> Result<usize, CollectError> {
    match (named, parent) {
        (None, Some(parent)) => Ok(parent.file),
        (None, None) => files.unranked(),
        (Some(rank), Some(Assignment { file, rank: Some(of_parent) }))
            if rank.is_same(&of_parent) && !rank.is_launched_by(&of_parent) =>
        {
            Ok(file)
        }
        (Some(rank), parent) => match files.newest_of(&rank) {
            // The ranks of such processes may have no common parent, because somebody started
            // them by hand. If so, processes of one rank share a file as long as one of them
            // lives.
            Some(file) if files.open[file].live > 0 || parent.is_none() => Ok(file),
            _ => files.rank(rank),
        },
    }
}

/// Returns how the memory of a new image is recorded. Reports its allocations as missing if its
/// executable has an allocator of its own.
fn memory_recording(
    attached: &mut Attached,
    label: &str,
    config: &Config,
    allocators: &mut Allocators,
    losses: &mut Losses,
) -> MemoryRecording {
    // The memory of a `tprof ctl` that the job runs is no part of the job's.
    let own = is_own(Path::new(&attached.exe));
    let mut report = |why| {
        if !own {
            losses.add_blind(blind_spot(label, "allocations", why));
        }
    };
    let own_malloc = attached.hello.flags & hello_flags::OWN_MALLOC != 0;
    if own_malloc || attached.hello.flags & hello_flags::NO_REAL_MALLOC != 0 {
        report("the executable has its own malloc and calls it directly".to_owned());
    }
    let program = attached.program.take().filter(|_| !own_malloc);
    let allocator = program.and_then(|file| allocators.of(file));
    if let Some(allocator) = &allocator {
        report(elf::own_allocator("the executable", allocator));
    }
    match config.memory() {
        _ if own_malloc || allocator.is_some() => MemoryRecording::Off,
        MemMode::Off => MemoryRecording::Off,
        MemMode::Sampled { interval } => MemoryRecording::Sampled { interval },
        MemMode::Exact => MemoryRecording::Exact,
    }
}

/// Reports what other libraries receive instead of tprof.
fn report_owners(attached: &Attached, losses: &mut Losses) {
    for (what, owner) in [
        ("NVTX ranges", &attached.nvtx_owner),
        ("ITT tasks", &attached.itt_owner),
        (NCCL_CHOICES, &attached.nccl_owner),
    ] {
        if let Some(owner) = owner {
            losses.add_blind_once(blind_spot("all that were started so", what, owner.clone()));
        }
    }
}

/// Adds a new image to its file and to the table of processes, and returns its index in the file.
fn add_row(
    attached: &Attached,
    place: Assignment,
    memory: MemoryRecording,
    redact: bool,
    out: &mut Output,
) -> Option<ProcessIndex> {
    let open = out.files.open.get_mut(place.file)?;
    let is_rank = matches!(open.owner, FileOwner::Rank(_));
    let rank = place.rank.filter(|_| is_rank).map(|rank| rank.number);
    let index = open.processes;
    open.processes += 1;
    open.live += 1;
    let command = shown_command(&attached.command, redact);
    let row = Process {
        process: index,
        pid: attached.pid,
        parent: attached.parent,
        rank,
        command: open.writer.name(&command),
        exe: open.writer.name(if redact { "" } else { &attached.exe }),
        start_ns: attached.time_ns,
        memory,
    };
    open.writer.process(&row);
    let info = ProcessInfo {
        pid: attached.pid,
        parent: attached.parent,
        rank,
        command,
        ended_by: "running".to_owned(),
        start_ns: attached.time_ns,
        own: is_own(Path::new(&attached.exe)),
        ..ProcessInfo::default()
    };
    out.processes.began(attached.image, info, place);
    Some(index)
}

fn blind_spot(process: &str, what: &str, why: String) -> BlindSpot {
    BlindSpot::new(process, what, why)
}

/// Returns the known images of this process and its ancestors, nearest first.
fn ancestry(processes: &mut Processes, pid: u32, parent: u32) -> Vec<u64> {
    let mut found = Vec::new();
    let mut pid = pid;
    let mut parent = parent;
    for _ in 0..64 {
        if let Some(image) = processes.image_of(pid) {
            found.push(image);
        }
        let Some(image) = processes.image_of(parent) else { break };
        found.push(image);
        let Some(next) = processes.process(image).map(|p| p.parent) else { break };
        if next == parent {
            break;
        }
        (pid, parent) = (parent, next);
    }
    found
}

fn base_name(command: &[String]) -> String {
    let first = command.first().map_or("", String::as_str);
    Path::new(first)
        .file_name()
        .map_or_else(|| first.to_owned(), |n| n.to_string_lossy().into_owned())
}

/// Returns only the program of a command. If a process has changed its title, its command is one
/// word that includes the arguments.
fn redacted(command: &[String]) -> String {
    match command {
        [title] => proc::program_of(title),
        command => base_name(command),
    }
}

fn shown_command(command: &[String], redact: bool) -> String {
    match redact {
        true => redacted(command),
        false => command.join(" "),
    }
}
