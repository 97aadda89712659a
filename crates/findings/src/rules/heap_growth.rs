//! HeapGrowth: live bytes of the heap, or the arenas of Python's interpreter, rise throughout the
//! judged time.

use std::ops::Range;

use tprof_facts::frames::Layer;
use tprof_facts::functions::in_sentence;
use tprof_facts::units::{bytes, counted, duration};
use tprof_metrics::memory::growth::Growth;
use tprof_metrics::memory::growth_at;
use tprof_rank::samples::Func;

use super::arena_growth::{self, ArenaVerdict};
use super::growing::{grows_from, until_release};
use super::growth_time::{self, Grown, GrowthTime, LEAST_RISES, counts, not_steady, too_short};
use super::likely_line::{likely_line, with_samples};
use crate::finding::SourceLine;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// The rule that judges live bytes at each step, or at regular moments of the judged time.
pub(super) struct HeapGrowth;

impl Rule for HeapGrowth {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "HeapGrowth",
            found_if: "live heap rises steadily until the end of the judged time (four steps or 10 s; 1 \
                 s where a line of the user's own takes it), by 1 MiB and 5 % of what is live at \
                 its end; or the mappings of Python's interpreter for small objects (its arenas) \
                 do",
            gain: "none in time: `size_bytes` is what came; the share follows from the time until \
                   memory is full, see below",
            needs: "allocations",
            remedy: "release what the line keeps",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let Some(time) = GrowthTime::of(scene) else {
            return Verdict::nothing_to_judge("no time is judged");
        };
        let heap = heap(scene, &time);
        match (heap, arena_growth::judge(scene, &time)) {
            (Verdict::Found(mut findings), ArenaVerdict::Grow(finding)) => {
                findings.push(*finding);
                Verdict::Found(findings)
            }
            (Verdict::NoProblem(_), ArenaVerdict::Grow(finding)) => Verdict::Found(vec![*finding]),
            (Verdict::NoProblem(_), ArenaVerdict::Unchecked(unchecked)) => unchecked,
            (Verdict::NoProblem(heap), ArenaVerdict::Rest(arenas)) => {
                Verdict::no_problem(format!("{heap}; {arenas}"))
            }
            // What the heap lacks, a recording without allocations, the arenas lack too.
            (heap, _) => heap,
        }
    }
}

/// Judges the heap, which is without the interpreter's arenas.
fn heap(scene: &Scene<'_>, time: &GrowthTime) -> Verdict {
    let growth_within =
        |within: Range<usize>| growth_at(scene.rank.file, scene.clock, time.within(within));
    let all = 0..time.moments.len();
    let growth = growth_within(all.clone()).and_then(|whole| {
        let end = until_release(&whole.levels);
        let from = grows_from(&whole.levels[..end], LEAST_RISES, counts);
        let within = from.unwrap_or(0)..end;
        let is_all = within == all;
        Ok((from, if is_all { whole } else { growth_within(within)? }))
    });
    let (from, growth) = match growth {
        Ok(growth) => growth,
        Err(why) => {
            return Verdict::unchecked(why, "recorded allocations (`tprof run --mem sampled`)");
        }
    };
    let bytes_grown = growth.growth_bytes.get().unwrap_or(0).max(0) as u64;
    let last = growth.last_bytes.get().unwrap_or(0);
    let is_large = counts(last.saturating_sub(bytes_grown), last);
    if from.is_none() || !is_large {
        return Verdict::no_problem(not_steady(
            "the live heap grows",
            "the live heap does not grow",
            bytes_grown,
            is_large,
        ));
    }
    let life_ns = growth.last_ns.saturating_sub(growth.first_ns);
    let grown = Grown { bytes: bytes_grown, per_step: growth.bytes_per_interval, life_ns };
    let site = site(&growth);
    let is_known = site.as_ref().is_some_and(|(line, _)| !line.file.is_empty());
    if !time.tells_growth(life_ns, is_known) {
        return too_short("the live heap grows", grown);
    }
    let left_ns = time.full_in_ns(scene, grown);
    let likely = if is_known { None } else { likely(scene, &growth) };
    let is_python = scene.host().is_some_and(|host| host.visible.python);
    let of_live = bytes_grown as f64 / last.max(1) as f64;
    let mut finding = scene
        .finding("the heap grows all the time")
        .bytes(bytes_grown, growth_time::share(left_ns, of_live))
        .seen(seen(&growth, &time.rate(grown), left_ns, site.as_ref(), likely.as_ref()))
        .advice(advice(is_known, is_python))
        .in_pytorch(if is_python { KEPT_TENSORS } else { "" })
        .on_line(likely.or(site.map(|(line, _)| line)));
    finding.keep = true;
    Verdict::Found(vec![finding])
}

/// Formats what was seen of a heap that grows.
fn seen(
    growth: &Growth,
    rate: &str,
    left_ns: Option<f64>,
    site: Option<&(SourceLine, u64)>,
    likely: Option<&SourceLine>,
) -> String {
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
    let most = match (site, growth.sites.len()) {
        (None, _) => String::new(),
        (Some((line, of)), 1) => {
            format!(" It is allocated by {}: {}.", in_sentence(&line.function), bytes(*of))
        }
        (Some((line, of)), sites) => format!(
            " It is allocated at {}, each with more live bytes at the end; most of it by {}: {}.",
            counted(sites as u64, "call stack", "call stacks"),
            in_sentence(&line.function),
            bytes(*of)
        ),
    };
    let likely = match likely {
        Some(line) => format!(" CPU samples in the same functions are below {}.", line.named()),
        None => String::new(),
    };
    format!(
        "Live heap grows from {} to {} in {} ({rate}{estimate}{}{uncertain}).{most}{likely}",
        bytes(growth.first_bytes.get().unwrap_or(0)),
        bytes(growth.last_bytes.get().unwrap_or(0)),
        duration(growth.last_ns.saturating_sub(growth.first_ns)),
        growth_time::full_words(left_ns),
    )
}

/// What Python programs with PyTorch often keep.
const KEPT_TENSORS: &str =
    "a loss that is kept keeps its whole graph: keep loss.item() or loss.detach() instead.";

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
    let stack = &growth.sites.first()?.stack;
    with_samples(scene.rank, |cpu| likely_line(cpu, process, stack)).filter(is_own)
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
