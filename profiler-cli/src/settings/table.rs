//! The table of all settings of a run: their names, help texts, parsers and formatters.
//!
//! A setting is an option of `tprof run` (`--max-size`), a variable (`TPROF_MAX_SIZE`) and a key of
//! `tprof.toml` (`max-size`). All three, the help, the completions and `--dry-run` are derived from
//! this table; a new setting is one more entry.

use super::events;
use super::gpu::{CUDA_CALLS, CUDA_GRAPHS, GPU_INTERVAL, GPU_METRICS, GPU_STALLS, NCCL};
use super::pytorch::{COMPILE, KINETO, MODULES, OPERATORS};
use super::schedule::{self, CAPTURE_ENDS, UNITS};
use super::setting::{Group, Setting, ValueKind};
use super::values::{
    self, ACTIVITIES, IF_EXISTS_MODES, MEM_MODES, ON_FULL, ON_OR_OFF, OVERHEADS, STACK_MODES,
    TABLE_CACHE_MODES, name_of,
};
use crate::launch::caches;
use crate::runs::formats;
use std::path::PathBuf;
use tprof_collect::{IfExists, MemMode, OnHang, RSS_INTERVALS};
use tprof_facts::units::{exact_duration, exact_size};

/// All settings in the order of the help, those of a group together.
pub const SETTINGS: [&Setting; 43] = [
    &OUTPUT,
    &FORCE,
    &ACTIVITY,
    &MEM,
    &STACKS,
    &SAMPLE_RATE,
    &DURATION,
    &SCHEDULE,
    &EXPORT,
    &QUIET,
    &COUNTERS,
    &OPERATORS,
    &MODULES,
    &KINETO,
    &COMPILE,
    &IO,
    &GPU_METRICS,
    &CUDA_GRAPHS,
    &CUDA_CALLS,
    &GPU_STALLS,
    &NCCL,
    &ON_HANG,
    &ON,
    &REDACT,
    &DELAY,
    &PAUSED,
    &KEEP,
    &WAIT,
    &WARMUP,
    &ACTIVE,
    &REPEAT,
    &UNIT,
    &CAPTURE_RANGE,
    &CAPTURE_END,
    &FOLLOW,
    &MAX_SIZE,
    &RSS_INTERVAL,
    &GPU_INTERVAL,
    &OVERHEAD,
    &BUDGET,
    &ON_FULL_BUFFER,
    &IF_EXISTS,
    &TABLE_CACHE,
];

/// Finds the setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.into_iter().find(|setting| setting.name == name)
}

/// Directory of the run.
pub static OUTPUT: Setting = Setting {
    name: "output",
    short: Some('o'),
    group: Group::First,
    help: "Run directory [default: tprof-COMMAND-TIME]",
    kind: ValueKind::Directory,
    set: |resolved, given| {
        if given.text.is_empty() {
            return Err(given.refuse("the path is empty", "DIR"));
        }
        resolved.config.output = PathBuf::from(&given.text);
        Ok(())
    },
    show: |resolved| Some(resolved.config.output.to_string_lossy().into_owned().into()),
};

/// How to continue if the output directory already contains a run.
pub static IF_EXISTS: Setting = Setting {
    name: "if-exists",
    short: None,
    group: Group::Where,
    help: "If DIR already holds a run: rename (record into DIR-2 and so on), join (add to that run), force (replace it) or fail [default: rename]",
    kind: ValueKind::Text("MODE", || values::names(&IF_EXISTS_MODES)),
    set: |resolved, given| {
        resolved.config.if_exists = values::one_of(given, &IF_EXISTS_MODES)?;
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.config.if_exists, &IF_EXISTS_MODES).into()),
};

/// Whether to replace an existing run.
pub static FORCE: Setting = Setting {
    name: "force",
    short: None,
    group: Group::First,
    help: "Replace an existing run (same as --if-exists force)",
    kind: ValueKind::Switch,
    set: |resolved, given| {
        let force = values::flag(given)?;
        match resolved.config.if_exists {
            _ if force => resolved.config.if_exists = IfExists::Force,
            IfExists::Force => resolved.config.if_exists = IfExists::Rename,
            _ => {}
        }
        Ok(())
    },
    show: |_| None,
};

/// Activities to record.
pub static ACTIVITY: Setting = Setting {
    name: "activities",
    short: None,
    group: Group::First,
    help: "What to record: a list of cpu, gpu (or cuda), mem, comm, nvtx [default: all]",
    kind: ValueKind::Text("LIST", || values::names(&ACTIVITIES)),
    set: |resolved, given| {
        resolved.config.activities = values::activities(given)?;
        Ok(())
    },
    show: |resolved| {
        let names = resolved.config.activities.iter().map(|one| name_of(*one, &ACTIVITIES));
        Some(names.collect::<Vec<_>>().into())
    },
};

/// How to record allocations.
pub static MEM: Setting = Setting {
    name: "mem",
    short: None,
    group: Group::First,
    help: "Which allocations to record: exact, sampled, sampled=BYTES or off [default: sampled]",
    kind: ValueKind::Text("MODE", || values::names(&MEM_MODES)),
    set: |resolved, given| {
        resolved.config.mem = values::mem(given)?;
        Ok(())
    },
    show: |resolved| {
        Some(match resolved.config.mem {
            MemMode::Sampled { interval } => format!("sampled={}", exact_size(interval)).into(),
            mode => name_of(mode, &MEM_MODES).into(),
        })
    },
};

/// How to unwind stacks.
pub static STACKS: Setting = Setting {
    name: "stacks",
    short: None,
    group: Group::First,
    help: "How to take stacks: auto (by unwind tables), fp (by frame pointers only), dwarf (same as auto), python (auto, with the Python lines of allocations) or off (take none) [default: auto]",
    kind: ValueKind::Text("MODE", || values::names(&STACK_MODES)),
    set: |resolved, given| {
        resolved.config.stacks = values::one_of(given, &STACK_MODES)?;
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.config.stacks, &STACK_MODES).into()),
};

/// CPU samples per second.
pub static SAMPLE_RATE: Setting = Setting {
    name: "sample-rate",
    short: None,
    group: Group::First,
    help: "CPU samples per second and thread [default: 99]",
    kind: ValueKind::Number("HZ"),
    set: |resolved, given| {
        resolved.config.sample_rate = values::rate(given)?;
        Ok(())
    },
    show: |resolved| Some(i64::from(resolved.config.sample_rate).into()),
};

/// Events to count.
pub static COUNTERS: Setting = Setting {
    name: "counters",
    short: None,
    group: Group::What,
    help: "Events to count: auto, none, or a list such as cycles,page-faults [default: auto]",
    kind: ValueKind::Text("LIST", Vec::new),
    set: |resolved, given| {
        resolved.config.counters = values::counters(given)?;
        Ok(())
    },
    show: |resolved| {
        let counters = &resolved.config.counters;
        Some(match counters.is_empty() {
            true => "none".into(),
            false => counters.iter().map(|event| event.name()).collect::<Vec<_>>().into(),
        })
    },
};

/// Whether to record calls on files and sockets.
pub static IO: Setting = Setting {
    name: "io",
    short: None,
    group: Group::What,
    help: "Record reads, writes and other calls on files and sockets for `tprof report io`: on or off [default: on]",
    kind: ValueKind::Text("MODE", || values::names(&ON_OR_OFF)),
    set: |resolved, given| {
        resolved.config.io = values::one_of(given, &ON_OR_OFF)?;
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.config.io, &ON_OR_OFF).into()),
};

/// How the overhead of recording is determined.
pub static OVERHEAD: Setting = Setting {
    name: "overhead",
    short: None,
    group: Group::HowMuch,
    help: "How to find what recording costs a step: estimate, or paired (leaves 5 of 20 steps unrecorded) [default: estimate]",
    kind: ValueKind::Text("HOW", || values::names(&OVERHEADS)),
    set: |resolved, given| {
        resolved.parts.paired = values::one_of(given, &OVERHEADS)?;
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.parts.paired, &OVERHEADS).into()),
};

/// How much of the job's CPU time recording may cost.
pub static BUDGET: Setting = Setting {
    name: "budget",
    short: None,
    group: Group::HowMuch,
    help: "Share of the job's CPU time that recording may cost, such as 1%. While it costs more, first operators, then stacks of allocations, then CPU samples are recorded less, and reports say from when on",
    kind: ValueKind::Number("PERCENT"),
    set: |resolved, given| {
        resolved.config.budget_percent = Some(values::percent(given)?);
        Ok(())
    },
    show: |resolved| Some(format!("{}%", resolved.config.budget_percent?).into()),
};

/// When the job counts as hanging, and what happens then.
pub static ON_HANG: Setting = Setting {
    name: "on-hang",
    short: None,
    group: Group::What,
    help: "If no rank does anything for this time, write what each waits for, like `tprof where`; with ,stop, also end the job: 5m,stop",
    kind: ValueKind::Text("TIME[,stop]", Vec::new),
    set: |resolved, given| {
        resolved.config.on_hang = Some(events::on_hang(given)?);
        Ok(())
    },
    show: |resolved| {
        let OnHang { after, stop } = resolved.config.on_hang?;
        let stop = if stop { ",stop" } else { "" };
        Some(format!("{}{stop}", exact_duration(after)).into())
    },
};

/// Events at which what the ranks do, and what is kept, is written.
pub static ON: Setting = Setting {
    name: "on",
    short: None,
    group: Group::What,
    help: "When this happens, write what each rank does and, with --keep, what is kept: slow-step=3x (a step takes 3 times as long as usual), hang=5m; with --keep also oom, error (a process fails, and the job goes on), signal=USR2",
    kind: ValueKind::Text("EVENTS", || vec!["slow-step=", "hang=", "oom", "error", "signal="]),
    set: events::set_events,
    show: |resolved| Some(events::shown_events(&resolved.config)?.into()),
};

/// How much is kept of what happens.
pub static KEEP: Setting = Setting {
    name: "keep",
    short: None,
    group: Group::When,
    help: "Keep only the last part: 120s, steps=50, 2GiB, or several of them. `--on` and `tprof ctl dump` write it as a run of its own",
    kind: ValueKind::Text("LIMITS", Vec::new),
    set: |resolved, given| {
        resolved.config.keep = Some(events::keep(given)?);
        Ok(())
    },
    show: |resolved| Some(resolved.config.keep?.to_string().into()),
};

/// Time between readings of RSS.
pub static RSS_INTERVAL: Setting = Setting {
    name: "rss-interval",
    short: None,
    group: Group::HowMuch,
    help: "Time between readings of RSS and cgroup, 10ms to 1m [default: 100ms]",
    kind: ValueKind::Number("TIME"),
    set: |resolved, given| {
        resolved.config.rss_interval = values::interval(given, RSS_INTERVALS)?;
        Ok(())
    },
    show: |resolved| Some(exact_duration(resolved.config.rss_interval).into()),
};

/// Size of the run in bytes at which recording stops.
pub static MAX_SIZE: Setting = Setting {
    name: "max-size",
    short: None,
    group: Group::HowMuch,
    help: "Stop recording when the run's files reach this size, e.g. 2GiB",
    kind: ValueKind::Number("SIZE"),
    set: |resolved, given| {
        resolved.config.max_size = Some(values::size(given)?);
        Ok(())
    },
    show: |resolved| Some(exact_size(resolved.config.max_size?).into()),
};

/// Time after which recording stops.
pub static DURATION: Setting = Setting {
    name: "duration",
    short: None,
    group: Group::First,
    help: "Stop recording after this time, e.g. 90s or 5m",
    kind: ValueKind::Number("TIME"),
    set: |resolved, given| {
        resolved.config.duration = Some(values::duration(given, false)?);
        Ok(())
    },
    show: |resolved| Some(exact_duration(resolved.config.duration?).into()),
};

/// Time after which recording begins.
pub static DELAY: Setting = Setting {
    name: "delay",
    short: None,
    group: Group::When,
    help: "Start recording after this time",
    kind: ValueKind::Number("TIME"),
    set: |resolved, given| {
        resolved.config.delay = Some(values::duration(given, true)?);
        Ok(())
    },
    show: |resolved| Some(exact_duration(resolved.config.delay?).into()),
};

/// Whether to wait for `tprof ctl start` before recording.
pub static PAUSED: Setting = Setting {
    name: "paused",
    short: None,
    group: Group::When,
    help: "Do not record until `tprof ctl start`; what the heap holds then stays unknown",
    kind: ValueKind::Switch,
    set: |resolved, given| {
        resolved.config.paused = values::flag(given)?;
        Ok(())
    },
    show: |resolved| Some(resolved.config.paused.into()),
};

/// Which steps of the job to record.
pub static SCHEDULE: Setting = Setting {
    name: "schedule",
    short: None,
    group: Group::First,
    help: "Record only some steps, like torch.profiler's schedule: wait=3,warmup=1,active=3,repeat=1,skip-first=0",
    kind: ValueKind::Text("PARTS", Vec::new),
    set: |resolved, given| resolved.parts.read(given),
    show: |resolved| Some(resolved.parts.text()?.into()),
};

/// Number of steps to skip at the beginning of each cycle.
pub static WAIT: Setting = Setting {
    name: "wait",
    short: None,
    group: Group::When,
    help: "Steps to leave out at the start of a cycle (same as --schedule wait=N)",
    kind: ValueKind::Number("N"),
    set: |resolved, given| resolved.parts.read_part(given),
    show: |_| None,
};

/// Number of steps to skip right before the recorded ones.
pub static WARMUP: Setting = Setting {
    name: "warmup",
    short: None,
    group: Group::When,
    help: "Steps to leave out after --wait, in which unwind tables are prepared (same as --schedule warmup=N)",
    kind: ValueKind::Number("N"),
    set: |resolved, given| resolved.parts.read_part(given),
    show: |_| None,
};

/// Number of steps to record in each cycle.
pub static ACTIVE: Setting = Setting {
    name: "active",
    short: None,
    group: Group::When,
    help: "Steps to record after --warmup (same as --schedule active=N)",
    kind: ValueKind::Number("N"),
    set: |resolved, given| resolved.parts.read_part(given),
    show: |_| None,
};

/// Number of cycles.
pub static REPEAT: Setting = Setting {
    name: "repeat",
    short: None,
    group: Group::When,
    help: "Number of cycles, 0 for no limit (same as --schedule repeat=N)",
    kind: ValueKind::Number("N"),
    set: |resolved, given| resolved.parts.read_part(given),
    show: |_| None,
};

/// Unit that the parts of a schedule count.
pub static UNIT: Setting = Setting {
    name: "unit",
    short: None,
    group: Group::When,
    help: "What a schedule counts: {values} [default: step]",
    kind: ValueKind::Text("UNIT", || values::names(&UNITS)),
    set: |resolved, given| {
        resolved.parts.unit = Some(schedule::unit(given)?);
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.parts.unit?, &UNITS).into()),
};

/// Range in the program that is recorded.
pub static CAPTURE_RANGE: Setting = Setting {
    name: "capture-range",
    short: None,
    group: Group::When,
    help: "Record only inside a range: cudaProfilerApi, nvtx:NAME, range:NAME or step:A-B",
    kind: ValueKind::Text("RANGE", || vec!["cudaProfilerApi", "nvtx:", "range:", "step:"]),
    set: |resolved, given| {
        resolved.parts.range = Some(schedule::range(given)?);
        Ok(())
    },
    show: |resolved| Some(schedule::range_text(resolved.parts.range.as_ref()?).into()),
};

/// Action at the end of the captured range.
pub static CAPTURE_END: Setting = Setting {
    name: "capture-end",
    short: None,
    group: Group::When,
    help: "What to do when that range ends: {values} [default: stop]",
    kind: ValueKind::Text("ACTION", || values::names(&CAPTURE_ENDS)),
    set: |resolved, given| {
        resolved.parts.end = Some(values::one_of(given, &CAPTURE_ENDS)?);
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.parts.end?, &CAPTURE_ENDS).into()),
};

/// Whether the run continues until all processes of the job have ended.
pub static FOLLOW: Setting = Setting {
    name: "follow",
    short: None,
    group: Group::When,
    help: "Record until the last process of the job ends, daemons included",
    kind: ValueKind::Switch,
    set: |resolved, given| {
        resolved.config.follow = values::flag(given)?;
        Ok(())
    },
    show: |resolved| Some(resolved.config.follow.into()),
};

/// How a thread of the job continues when its buffer is full.
pub static ON_FULL_BUFFER: Setting = Setting {
    name: "on-full",
    short: None,
    group: Group::HowMuch,
    help: "When a buffer is full, wait (up to 2 s) or drop the event [default: wait]",
    kind: ValueKind::Text("MODE", || values::names(&ON_FULL)),
    set: |resolved, given| {
        resolved.config.on_full = values::one_of(given, &ON_FULL)?;
        Ok(())
    },
    show: |resolved| Some(name_of(resolved.config.on_full, &ON_FULL).into()),
};

/// Whether to cache data about libraries between runs.
pub static TABLE_CACHE: Setting = Setting {
    name: "table-cache",
    short: None,
    group: Group::Where,
    help: "Cache unwind tables, symbols and source lines of libraries between runs: {values} [default: on]",
    kind: ValueKind::Text("MODE", || values::names(&TABLE_CACHE_MODES)),
    set: |resolved, given| {
        let is_on = values::one_of(given, &TABLE_CACHE_MODES)?;
        resolved.config.table_cache = is_on.then(caches::tables).flatten();
        Ok(())
    },
    show: |resolved| {
        let is_on = resolved.config.table_cache.is_some();
        Some(name_of(is_on, &TABLE_CACHE_MODES).into())
    },
};

/// Format to export after the run.
pub static EXPORT: Setting = Setting {
    name: "export",
    short: None,
    group: Group::First,
    help: "After the run, export it as {values}",
    kind: ValueKind::Text("FORMAT", || formats::of_a_run().collect()),
    set: |resolved, given| {
        let formats: Vec<_> = formats::of_a_run().map(|name| (name, name)).collect();
        resolved.export = Some(values::one_of(given, &formats)?.to_owned());
        Ok(())
    },
    show: |resolved| Some(resolved.export.clone()?.into()),
};

/// Whether to leave out arguments, directories and environment.
pub static REDACT: Setting = Setting {
    name: "redact",
    short: None,
    group: Group::What,
    help: "Leave arguments, directories, environment and texts out of the run; names of \
           programs, scripts, libraries, functions, threads, spans and hosts stay",
    kind: ValueKind::Switch,
    set: |resolved, given| {
        resolved.config.redact = values::flag(given)?;
        Ok(())
    },
    show: |resolved| Some(resolved.config.redact.into()),
};

/// Whether to print no summary.
pub static QUIET: Setting = Setting {
    name: "quiet",
    short: Some('q'),
    group: Group::First,
    help: "Do not print a summary",
    kind: ValueKind::Switch,
    set: |resolved, given| {
        resolved.quiet = values::flag(given)?;
        Ok(())
    },
    show: |resolved| Some(resolved.quiet.into()),
};
