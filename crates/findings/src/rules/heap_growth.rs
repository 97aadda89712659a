//! HeapGrowth: live bytes rise throughout the judged time.

use std::ops::Range;

use rustc_hash::FxHashMap;
use tprof_facts::frames::Layer;
use tprof_facts::units::{bytes, counted, duration};
use tprof_metrics::memory::growth::Growth;
use tprof_metrics::memory::timeline::Cgroup;
use tprof_metrics::memory::{Moments, growth_at};
use tprof_rank::samples::Func;
use tprof_trace::TraceFile;
use tprof_trace::model::counter;

use super::growing::{grows_from, until_release};
use super::likely_line::likely_line;
use crate::finding::SourceLine;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The smallest growth that counts, because any program grows by a few bytes.
const LEAST_BYTES: u64 = 1 << 20;
/// The smallest growth that counts, as a share of the live bytes at the end.
const LEAST_OF_LIVE: f64 = 0.05;
/// The smallest number of rises that the growth must consist of. Data that is loaded once makes one
/// rise, or two if it is loaded in halves.
const LEAST_RISES: usize = 3;
/// If there are at least this many steps, memory is compared at their boundaries.
const LEAST_STEPS: usize = 4;
/// Without enough steps, the judged time is divided into this many equal parts.
const PARTS: u64 = 256;
/// Without enough steps and with a judged time shorter than this, the growth may belong to the
/// start of a job, which fills libraries and caches once. Such growth counts only if a line of the
/// user's own code allocates the memory and the growth lasts for at least [`LEAST_NS`].
const LONG_NS: u64 = 10_000_000_000;
const LEAST_NS: u64 = 1_000_000_000;
/// A growing heap costs no time until memory is full. If the size of memory is unknown, this is the
/// maximum share of the finding, so its severity is at most medium.
const MOST_SHARE: f64 = 0.099;
/// If the size of memory is known, growth that fills it in an hour has this share, which makes the
/// severity high. Growth that fills it in half of that time has twice the share.
const SHARE_OF_HOUR: f64 = 0.1;
/// With fewer steps than this, in less than [`LONG_NS`], the report doesn't predict when memory
/// will be full.
const MANY_STEPS: usize = 20;
/// The maximum share of a finding: not quite all of the time.
const LONGEST_SHARE: f64 = 0.99;
const MINUTE_NS: f64 = 6e10;
const HOUR_NS: f64 = 3.6e12;

/// The rule that judges live bytes at each step, or at regular moments of the judged time.
pub(super) struct HeapGrowth;

impl Rule for HeapGrowth {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "HeapGrowth",
            found_if: "live heap rises steadily until the end of the judged time (four steps or 10 s; 1 \
                 s where a line of the user's own takes it), by 1 MiB and 5 % of what is live at \
                 its end",
            gain: "none in time: `size_bytes` is what came; the share follows from the time until \
                   memory is full, see below",
            needs: "allocations",
            remedy: "release what the line keeps",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let Some(moments) = moments(scene) else {
            return Verdict::nothing_to_judge("no time is judged");
        };
        let by_step = scene.steps >= LEAST_STEPS;
        let growth_within = |within: Range<usize>| {
            let times = moments[within].to_vec();
            let moments = if by_step { Moments::steps(times) } else { Moments::even(times) };
            growth_at(scene.rank.file, scene.clock, moments)
        };
        let growth = growth_within(0..moments.len()).and_then(|all| {
            let end = until_release(&all.levels);
            let from = grows_from(&all.levels[..end], LEAST_RISES, counts);
            let within = from.unwrap_or(0)..end;
            let is_all = within == (0..moments.len());
            Ok((from, if is_all { all } else { growth_within(within)? }))
        });
        let (from, growth) = match growth {
            Ok(growth) => growth,
            Err(why) => {
                return Verdict::unchecked(why, "recorded allocations (`tprof run --mem sampled`)");
            }
        };
        let grown = growth.growth_bytes.get().unwrap_or(0).max(0) as u64;
        let last = growth.last_bytes.get().unwrap_or(0);
        if from.is_none() || !counts(last.saturating_sub(grown), last) {
            let grows = counts(last.saturating_sub(grown), last);
            let how = if grows { ", but not steadily, or it ends" } else { "" };
            return Verdict::no_problem(format!("live heap grows by {}{how}", bytes(grown)));
        }
        let of_live = grown as f64 / last.max(1) as f64;
        let life_ns = growth.last_ns.saturating_sub(growth.first_ns);
        let site = site(&growth);
        let is_known = site.as_ref().is_some_and(|(line, _)| !line.file.is_empty());
        // Growth in only a part of a long judged time isn't the growth of a start, so use the
        // length of the whole judged time.
        let judged_ns = moments.last().zip(moments.first()).map_or(0, |(last, first)| last - first);
        let goes_on = by_step || judged_ns >= LONG_NS;
        if !(goes_on || is_known && life_ns >= LEAST_NS) {
            return Verdict::unchecked(
                format!(
                    "live heap grows by {} in {}, too short a time to tell growth that goes on",
                    bytes(grown),
                    duration(life_ns)
                ),
                "a run of 10 s, four steps, or a line that allocates (`--stacks python`)",
            );
        }
        let rate = match by_step {
            true => format!("{} a step", bytes(growth.bytes_per_interval as u64)),
            false => {
                let rate = grown as f64 * MINUTE_NS / life_ns.max(1) as f64;
                format!("{} a minute", bytes(rate as u64))
            }
        };
        let estimate = match growth.growth_bytes.error() {
            Some(error) => {
                format!(", estimated from samples: growth \u{b1} {}", bytes(error.unsigned_abs()))
            }
            None => String::new(),
        };
        let uncertain = match &growth.uncertain {
            Some(why) => format!("; it may be less or more: {why}"),
            None => String::new(),
        };
        let is_long = judged_ns >= LONG_NS || scene.steps >= MANY_STEPS;
        let left_ns = full_in_ns(scene, grown, life_ns).filter(|_| is_long);
        let full = match left_ns {
            Some(left_ns) => format!("; memory is full in {} at that rate", long(left_ns)),
            None => String::new(),
        };
        let seen = format!(
            "Live heap grows from {} to {} in {} ({rate}{estimate}{full}{uncertain}); {}.{}",
            bytes(growth.first_bytes.get().unwrap_or(0)),
            bytes(last),
            duration(life_ns),
            counted(growth.sites.len() as u64, "site grows", "sites grow"),
            match &site {
                Some((line, of)) => format!(" Most of it by {}: {}.", line.function, bytes(*of)),
                None => String::new(),
            }
        );
        let likely = if is_known { None } else { likely(scene, &growth) };
        let sampled = match &likely {
            Some(line) => format!(
                " CPU samples in the same functions are below {} ({}).",
                line.function,
                line.shown()
            ),
            None => String::new(),
        };
        let is_python = scene.host().is_some_and(|host| host.visible.python);
        let advice = advice(is_known, is_python);
        let share = match left_ns {
            Some(left_ns) => (SHARE_OF_HOUR * HOUR_NS / left_ns.max(1.0)).min(LONGEST_SHARE),
            None => of_live.min(MOST_SHARE),
        };
        let mut finding = scene
            .finding("the heap grows all the time")
            .bytes(grown, share)
            .seen(seen + &sampled)
            .advice(advice)
            .in_pytorch(if is_python { KEPT_TENSORS } else { "" })
            .on_line(likely.or(site.map(|(line, _)| line)));
        finding.keep = true;
        Verdict::Found(vec![finding])
    }
}

/// Whether the growth is larger than the growth of any program.
fn counts(first: u64, last: u64) -> bool {
    let grown = last.saturating_sub(first);
    grown >= LEAST_BYTES && grown as f64 >= LEAST_OF_LIVE * last as f64
}

/// Returns the time until memory is full if the heap keeps growing, ns. Memory is limited by the
/// cgroup, or by the machine if the cgroup has no limit. Returns `None` if neither limit is known.
fn full_in_ns(scene: &Scene<'_>, grown: u64, life_ns: u64) -> Option<f64> {
    let file = scene.rank.file;
    let cgroup = Cgroup::of(file);
    let limit = cgroup.limit_bytes.get().filter(|limit| *limit > 0);
    let (all, used) = match (limit, cgroup.last_bytes.get()) {
        (Some(limit), Some(used)) => (limit, used),
        _ => (scene.machine.memory_bytes?, resident(file)?),
    };
    let left = all.saturating_sub(used) as f64;
    Some(left / (grown as f64 / life_ns.max(1) as f64))
}

/// Returns the last resident memory of a rank's processes, in bytes. A page that several processes
/// share counts for each of them.
fn resident(file: &TraceFile) -> Option<u64> {
    let of = file.counters().iter().filter(|row| file.name(row.name) == counter::RSS_BYTES);
    let mut last: FxHashMap<_, (u64, u64)> = FxHashMap::default();
    for row in of {
        let one = last.entry(row.process).or_default();
        if row.time_ns >= one.0 {
            *one = (row.time_ns, row.value as u64);
        }
    }
    (!last.is_empty()).then(|| last.values().map(|(_, bytes)| bytes).sum())
}

/// Formats a time coarsely, because the rate isn't exact: `20 min`, `3 h`, `12 days`.
fn long(ns: f64) -> String {
    match ns / MINUTE_NS {
        minutes if minutes < 1.0 => "less than a minute".to_owned(),
        minutes if minutes < 120.0 => format!("{minutes:.0} min"),
        minutes if minutes < 48.0 * 60.0 => format!("{:.0} h", minutes / 60.0),
        minutes => format!("{:.0} days", minutes / 1440.0),
    }
}

/// What Python programs with PyTorch often keep.
const KEPT_TENSORS: &str = "losses that are kept keep their graphs; keep .item() or .detach().";

/// Formats the advice, in the terms of the program's language.
fn advice(is_known: bool, is_python: bool) -> String {
    let kept = match is_python {
        true => "Release what this line keeps: lists, dictionaries and caches that only grow.",
        false => {
            "Release what this line takes: containers and caches that only grow, and what is \
             allocated and not given back."
        }
    };
    let line = match (is_known, is_python) {
        (false, true) => " Recorded with `--stacks python` it has Python's line.",
        (false, false) => " Compiled with debug information (`-g`) it has a line.",
        (true, _) => "",
    };
    format!("{kept} `tprof report memory` has all sites that grow.{line}")
}

/// Returns the start of each step except the first, and the end of the last step. Without enough
/// steps, returns regular moments of the judged time.
fn moments(scene: &Scene<'_>) -> Option<Vec<u64>> {
    let window = scene.window.span()?;
    if scene.steps >= LEAST_STEPS {
        let mut times: Vec<u64> = scene.later_steps.iter().map(|step| step.start).collect();
        times.extend(scene.later_steps.last().map(|step| step.end.saturating_sub(1)));
        return Some(times);
    }
    let part = window.length() / PARTS;
    Some((0..=PARTS).map(|at| window.start + at * part).collect())
}

/// Returns the user's own line at the site that grows most, with the site's bytes. If the site has
/// no line of the user, returns its innermost function without a line.
fn site(growth: &Growth) -> Option<(SourceLine, u64)> {
    let site = growth.sites.first()?;
    let lines: Vec<SourceLine> = site.stack.iter().filter_map(|frame| line(frame)).collect();
    // A line of the interpreter or of a library doesn't show who keeps the memory.
    let own = lines.iter().find(|line| is_own(line));
    let whole = || SourceLine {
        function: site.stack.first().map_or(String::new(), |frame| frame.to_string()),
        file: String::new(),
        line: 0,
    };
    Some((own.cloned().unwrap_or_else(whole), site.growth_bytes.get()?.max(0) as u64))
}

/// Guesses the Python line of the site that grows most, if the site's stack has no Python frame.
fn likely(scene: &Scene<'_>, growth: &Growth) -> Option<SourceLine> {
    let process = scene.host()?.driver.process;
    likely_line(&scene.rank.cpu, process, &growth.sites.first()?.stack).filter(is_own)
}

/// Parses a frame `f (a.py:3)`.
fn line(frame: &str) -> Option<SourceLine> {
    let (function, place) = frame.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = place.rsplit_once(':')?;
    Some(SourceLine {
        function: function.to_owned(),
        file: file.to_owned(),
        line: line.parse().ok()?,
    })
}

fn is_own(line: &SourceLine) -> bool {
    let layer = if line.file.ends_with(".py") { Layer::Python } else { Layer::Native };
    let func = Func { name: "".into(), file: line.file.as_str().into(), module: "".into(), layer };
    func.is_own()
}
