//! Finds a new image its rank, its file and its row.

use super::Tracked;
use crate::config::MemMode;
use crate::elf;
use crate::engine::Engine;
use crate::gpu::Gpu;
use crate::out::files::Holds;
use crate::out::story::{Place, Story};
use crate::session::server::Attached;
use crate::target::calls::Calls;
use crate::target::code::Code;
use crate::target::ledger::Ledger;
use crate::target::process::Image;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::Ordering::*;
use tprof_trace::model::*;
use tprof_trace::run::{Blind, ProcessInfo};
use tprof_wire::handshake::hello_flags;

impl Tracked {
    /// Finds a new image its file, and writes its row.
    pub fn place(attached: Attached, engine: &mut Engine, now: u64) -> Option<Tracked> {
        let Engine { images, files, story, config, session, allocators, .. } = engine;
        let same_pid = story.image_of(attached.pid);
        let parent_image = same_pid.or_else(|| story.image_of(attached.parent));
        let ancestors = ancestry(story, attached.pid, attached.parent);
        let environment = &attached.ranks;
        if environment.local {
            // Whoever began workers is a launcher, whatever its environment says.
            for ancestor in &ancestors {
                let Some(file) = story.place_of(*ancestor).filter(|p| !p.is_worker).map(|p| p.file)
                else {
                    continue;
                };
                if files.open.get(file).is_some_and(|f| matches!(f.holds, Holds::Rank(_))) {
                    files.becomes_launcher(file);
                }
            }
        }
        let parent =
            parent_image.and_then(|p| story.place_of(p)).map(|p| (p.file, p.rank, p.is_worker));
        let chosen = match (environment.rank, parent) {
            (None, Some((file, ..))) => Ok(file),
            (None, None) => files.unranked(),
            (Some(rank), Some((file, Some(of_parent), worker)))
                if rank == of_parent && worker == environment.local =>
            {
                let _ = rank;
                Ok(file)
            }
            (Some(rank), parent) => match files.newest_of(rank) {
                // Unknown parents: processes started one after another by hand
                // share a file while one of them lives.
                Some(file) if files.open[file].live > 0 || parent.is_none() => Ok(file),
                _ => files.rank(rank),
            },
        };
        let file = match chosen {
            Ok(file) => file,
            Err(e) => {
                story.complain(&e.to_string());
                story.is_blind(Blind {
                    process: format!(
                        "{} {}",
                        attached.pid,
                        attached.command.first().cloned().unwrap_or_default()
                    ),
                    what: "everything".to_owned(),
                    why: format!("no trace file: {e}"),
                });
                return None;
            }
        };
        let inherited = parent.and_then(|p| p.1);
        let rank = environment.rank.or(inherited);
        let is_worker = environment.local;
        let command = shown_command(&attached.command, config.redact);
        let open = files.open.get_mut(file)?;
        let index = open.processes;
        open.processes += 1;
        open.live += 1;
        let memory = match config.memory() {
            MemMode::Off => MemoryRecording::Off,
            MemMode::Sampled { interval } => MemoryRecording::Sampled { interval },
            MemMode::Exact => MemoryRecording::Exact,
        };
        let own_malloc = attached.hello.flags & hello_flags::OWN_MALLOC != 0;
        if own_malloc || attached.hello.flags & hello_flags::NO_REAL_MALLOC != 0 {
            story.is_blind(Blind {
                process: format!("{} {}", attached.pid, base_name(&attached.command)),
                what: "allocations".to_owned(),
                why: "the executable brings its own malloc, which it calls directly".to_owned(),
            });
        }
        let program = attached.program.filter(|_| !own_malloc);
        let allocator = program.and_then(|file| allocators.of(file));
        if let Some(allocator) = &allocator {
            story.is_blind(Blind {
                process: format!("{} {}", attached.pid, base_name(&attached.command)),
                what: "allocations".to_owned(),
                why: elf::own_allocator("the executable", allocator),
            });
        }
        let memory = match own_malloc || allocator.is_some() {
            true => MemoryRecording::Off,
            false => memory,
        };
        if let Some(owner) = &attached.nvtx_owner {
            story.is_blind_once(Blind {
                process: "all that were started so".to_owned(),
                what: "NVTX ranges".to_owned(),
                why: owner.clone(),
            });
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
        story.began(
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
            Place { file, rank, is_worker },
        );
        let forked_from = parent_image.filter(|_| attached.hello.flags & hello_flags::FORKED != 0);
        let modules =
            forked_from.and_then(|p| images.get(&p)).map(|t| t.code.in_force()).unwrap_or_default();
        let interpreter =
            forked_from.and_then(|p| images.get(&p)).and_then(|t| t.code.interpreter());
        let is_on = session.page().recording.load(Relaxed) != 0;
        let is_late = attached.hello.flags & hello_flags::LATE != 0;
        let cpu_before_ns = same_pid.map_or(0, |_| attached.cpu_ns);
        let mut tracked = Tracked {
            number: attached.image,
            pid: attached.pid,
            image: Image::new(attached.region, index),
            file,
            end: None,
            asked_modules: false,
            begun_with: attached.begun_with,
            modules_open: 0,
            same_namespace: attached.hello.pid == attached.pid,
            watched: attached.watched,
            start_ns: attached.time_ns,
            ledger: Ledger::default(),
            whole_life: is_on && !is_late,
            memory,
            calls: Calls::new(index),
            code: Code::new(index, config.redact),
            modules_wanted_seen: 0,
            mappers: HashSet::new(),
            last_totals: None,
            threads_checked_ns: now,
            lost: 0,
            counts_missed: is_on && memory != MemoryRecording::Off,
            missed: 0,
            notes_lost: 0,
            children_lost: 0,
            exe: attached.exe,
            gpu: Gpu::new(index, format!("{} {}", attached.pid, base_name(&attached.command))),
            agent: None,
            tids: HashMap::new(),
            rss: 0,
            cpu_ns: attached.cpu_ns - cpu_before_ns,
            cpu_before_ns,
        };
        let resident = attached.resident_bytes.filter(|bytes| *bytes > 0);
        tracked.note(attached.time_ns, &[(counter::RSS_BYTES, resident)], files);
        if let Some(open) = files.open.get_mut(file) {
            tracked.code.inherit(&modules, attached.time_ns, &mut open.writer);
        }
        if let Some(modules) = attached.modules {
            tracked.code.hear(attached.time_ns, modules);
        }
        if let Some(interpreter) = interpreter {
            tracked.code.interprets(interpreter);
        }
        Some(tracked)
    }
}

/// Known images that lead to this process, nearest first.
fn ancestry(story: &mut Story, pid: u32, parent: u32) -> Vec<u64> {
    let mut found = Vec::new();
    let mut pid = pid;
    let mut parent = parent;
    for _ in 0..64 {
        if let Some(image) = story.image_of(pid) {
            found.push(image);
        }
        let Some(image) = story.image_of(parent) else { break };
        found.push(image);
        let Some(next) = story.process(image).map(|p| p.parent) else { break };
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

fn shown_command(command: &[String], redact: bool) -> String {
    if redact { base_name(command) } else { command.join(" ") }
}
