//! Adds a new image to the run: finds its rank and its file, writes its row, and begins to follow
//! it.

use super::interned::Interned;
use super::operators::Operators;
use super::spans::Spans;
use super::target::{CountedLosses, ModuleQuestions, Target, Targets, Usage};
use crate::config::{Config, MemMode};
use crate::gpu::{Gpu, NCCL_CHOICES};
use crate::output::destination::Output;
use crate::output::files::FileOwner;
use crate::output::module_names::HookedImage;
use crate::output::processes::{Assignment, Processes};
use crate::targets::attached::Attached;
use crate::targets::calls::Calls;
use crate::targets::code::Code;
use crate::targets::cpu_rows::CpuRows;
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
    /// Whether recording is on.
    pub recording: bool,
    /// The known allocators of programs.
    pub allocators: &'a mut Allocators,
}

impl Target {
    /// Adds a new image to the run; `None` if no file can be created for it.
    pub fn place(attached: Attached, run: PlacedIn<'_>, now: u64) -> Option<Target> {
        let PlacedIn { targets, out, config, recording, allocators } = run;
        let Output { files, processes, .. } = out;
        let same_pid = processes.image_of(attached.pid);
        let parent_image = same_pid.or_else(|| processes.image_of(attached.parent));
        let ancestors = ancestry(processes, attached.pid, attached.parent);
        let named = attached.rank;
        for ancestor in &ancestors {
            let of_ancestor = processes.assignment_of(*ancestor);
            let launched = |of: &Assignment| {
                named.zip(of.rank).is_some_and(|(rank, of_it)| rank.is_launched_by(&of_it))
            };
            let Some(Assignment { file, .. }) = of_ancestor.filter(launched) else { continue };
            if files.open.get(file).is_some_and(|f| matches!(f.owner, FileOwner::Rank(_))) {
                files.becomes_launcher(file);
                processes.launch(file);
            }
        }
        let parent = parent_image.and_then(|p| processes.assignment_of(p));
        let chosen = match (named, parent) {
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
        };
        let file = match chosen {
            Ok(file) => file,
            Err(e) => {
                processes.losses.complain(&e.to_string());
                processes.losses.add_blind(BlindSpot {
                    process: format!("{} {}", attached.pid, base_name(&attached.command)),
                    what: "everything".to_owned(),
                    why: format!("no trace file: {e}"),
                });
                return None;
            }
        };
        let assigned = named.or(parent.and_then(|p| p.rank));
        let command = shown_command(&attached.command, config.redact);
        let open = files.open.get_mut(file)?;
        let is_rank = matches!(open.owner, FileOwner::Rank(_));
        let rank = assigned.filter(|_| is_rank).map(|rank| rank.number);
        let index = open.processes;
        open.processes += 1;
        open.live += 1;
        let memory = match config.memory() {
            MemMode::Off => MemoryRecording::Off,
            MemMode::Sampled { interval } => MemoryRecording::Sampled { interval },
            MemMode::Exact => MemoryRecording::Exact,
        };
        processes.bent += u64::from(attached.has_faketime);
        let own_malloc = attached.hello.flags & hello_flags::OWN_MALLOC != 0;
        if own_malloc || attached.hello.flags & hello_flags::NO_REAL_MALLOC != 0 {
            processes.losses.add_blind(BlindSpot {
                process: format!("{} {}", attached.pid, base_name(&attached.command)),
                what: "allocations".to_owned(),
                why: "the executable has its own malloc and calls it directly".to_owned(),
            });
        }
        let program = attached.program.filter(|_| !own_malloc);
        let allocator = program.and_then(|file| allocators.of(file));
        if let Some(allocator) = &allocator {
            processes.losses.add_blind(BlindSpot {
                process: format!("{} {}", attached.pid, base_name(&attached.command)),
                what: "allocations".to_owned(),
                why: elf::own_allocator("the executable", allocator),
            });
        }
        let memory = match own_malloc || allocator.is_some() {
            true => MemoryRecording::Off,
            false => memory,
        };
        let owners = [
            ("NVTX ranges", &attached.nvtx_owner),
            ("ITT tasks", &attached.itt_owner),
            (NCCL_CHOICES, &attached.nccl_owner),
        ];
        for (what, owner) in owners {
            if let Some(owner) = owner {
                processes.losses.add_blind_once(BlindSpot {
                    process: "all that were started so".to_owned(),
                    what: what.to_owned(),
                    why: owner.clone(),
                });
            }
        }
        let (command_id, exe_id) = (
            open.writer.name(&command),
            open.writer.name(if config.redact { "" } else { &attached.exe }),
        );
        open.writer.process(&Process {
            process: index,
            pid: attached.pid,
            parent: attached.parent,
            rank,
            command: command_id,
            exe: exe_id,
            start_ns: attached.time_ns,
            memory,
        });
        processes.began(
            attached.image,
            ProcessInfo {
                pid: attached.pid,
                parent: attached.parent,
                rank,
                command,
                ended_by: "running".to_owned(),
                start_ns: attached.time_ns,
                ..ProcessInfo::default()
            },
            Assignment { file, rank: assigned },
        );
        let forked_from = parent_image.filter(|_| attached.hello.flags & hello_flags::FORKED != 0);
        let modules = forked_from
            .and_then(|p| targets.get(&p))
            .map(|t| t.code.in_force())
            .unwrap_or_default();
        let interpreter =
            forked_from.and_then(|p| targets.get(&p)).and_then(|t| t.code.interpreter());
        let segments = forked_from
            .and_then(|p| targets.get(&p))
            .map(|t| t.segments.clone())
            .unwrap_or_default();
        if let Some(why_not) = attached.why_not_hooked {
            let image = HookedImage {
                own_pid: attached.hello.pid,
                process: format!("{} {}", attached.pid, base_name(&attached.command)),
                start_ns: attached.time_ns,
                forked_from,
                why_not,
                ran_torch: false,
            };
            processes.hooked.began(attached.image, image);
        }
        let is_late = attached.hello.flags & hello_flags::LATE != 0;
        let cpu_before_ns = same_pid.map_or(0, |_| attached.cpu_ns);
        let off = attached.region.header().off.load(Relaxed);
        let mut target = Target {
            number: attached.image,
            pid: attached.pid,
            hooks: Image::new(attached.region, index),
            agent: None,
            file,
            forked_from,
            end: None,
            modules: ModuleQuestions {
                begun_with: attached.begun_with,
                ..ModuleQuestions::default()
            },
            watched: attached.watched,
            start_ns: attached.time_ns,
            cpu_rows: CpuRows::new(ThreadTable::new(attached.hello.pid == attached.pid)),
            whole_life: recording && !is_late && !config.is_in_part(),
            is_late,
            peak: (0, 0),
            segments,
            memory,
            calls: Calls::new(index),
            interned: Interned::default(),
            operators: Operators::new(index),
            spans: Spans::new(index, memory).switched_by(config, off),
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
            gpu: Gpu::new(index, format!("{} {}", attached.pid, base_name(&attached.command))),
            usage: Usage {
                cpu_ns: attached.cpu_ns - cpu_before_ns,
                cpu_before_ns,
                ..Usage::default()
            },
        };
        let resident = attached.resident_bytes.filter(|bytes| *bytes > 0);
        target.write_readings(out, attached.time_ns, &[(counter::RSS_BYTES, resident)]);
        target.observe_transfers(out, now);
        if let Some(open) = out.files.open.get_mut(file) {
            target.code.inherit(&modules, attached.time_ns, &mut open.writer);
            target.spans.begin(attached.time_ns, &mut open.writer);
        }
        if let Some(modules) = attached.modules {
            target.code.take_modules(attached.time_ns, modules);
        }
        if let Some(interpreter) = interpreter {
            target.code.interprets(interpreter);
        }
        Some(target)
    }
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
