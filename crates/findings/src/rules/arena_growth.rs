//! Judges the arenas of Python's interpreter, for the rule HeapGrowth. Small objects lie in these
//! mappings and not in the heap, so a leak of tuples, strings or dictionaries grows there.

use tprof_facts::units::{bytes, count, counted, duration};
use tprof_metrics::memory::arenas::Arenas;

use super::growing::{grows_from, until_release};
use super::growth_time::{self, Grown, GrowthTime, LEAST_RISES, counts, not_steady, too_short};
use super::likely_line::{likely_line_at, with_samples};
use crate::finding::{Finding, SourceLine};
use crate::scene::Scene;
use crate::verdict::Verdict;

const WHAT: &str = "the arenas of Python's interpreter grow";
const RESTS: &str = "the arenas of Python's interpreter do not grow";

/// The growth of the interpreter's arenas, and the line that mapped most of them.
pub(super) enum ArenaVerdict {
    /// They grow all the time.
    Grow(Box<Finding>),
    /// They can't be judged.
    Unchecked(Verdict),
    /// They don't grow all the time. The text says what they do.
    Rest(String),
    /// There are none: the job doesn't run CPython, or not with its own allocator.
    None,
}

/// Judges the arenas of the scene's rank.
pub(super) fn judge(scene: &Scene<'_>, time: &GrowthTime) -> ArenaVerdict {
    let arenas = match Arenas::of(scene.rank.file) {
        Ok(arenas) => arenas,
        Err(why) => return ArenaVerdict::Unchecked(Verdict::unchecked(why, "an undamaged file")),
    };
    let levels = arenas.levels(&time.moments);
    if levels.iter().all(|level| *level == 0) {
        return ArenaVerdict::None;
    }
    let end = until_release(&levels);
    let from = grows_from(&levels[..end], LEAST_RISES, counts);
    let first = from.unwrap_or(0);
    let (low, high) = (levels[first], levels[end - 1]);
    let is_large = counts(low, high);
    if from.is_none() || !is_large {
        let rest = not_steady(WHAT, RESTS, high.saturating_sub(low), is_large);
        return ArenaVerdict::Rest(match arenas.without_stack {
            0 => rest,
            some => format!(
                "{rest}, without {} that have no stack",
                counted(some, "mapping of their size", "mappings of their size")
            ),
        });
    }
    let (first_ns, last_ns) = (time.moments[first], time.moments[end - 1]);
    let (bytes_grown, intervals) = (high - low, (end - 1 - first).max(1));
    let grown = Grown {
        bytes: bytes_grown,
        per_step: bytes_grown as f64 / intervals as f64,
        life_ns: last_ns - first_ns,
    };
    let sites = arenas.came(first_ns, last_ns);
    let most = sites.iter().find_map(|site| Some((site.line.clone()?, site.bytes)));
    // The line has most of the arenas, or the growth may be that of a start.
    let is_own = most.as_ref().is_some_and(|(_, of)| *of * 2 > bytes_grown);
    if !time.tells_growth(grown.life_ns, is_own) {
        return ArenaVerdict::Unchecked(too_short(WHAT, grown));
    }
    let left_ns = time.full_in_ns(scene, grown);
    let line = most.map(|((function, file, line), of)| (SourceLine { function, file, line }, of));
    let likely = match &line {
        Some(_) => None,
        None => {
            let moments = arenas.moments(first_ns, last_ns);
            with_samples(scene.rank, |cpu| likely_line_at(scene.rank.file, cpu, moments))
        }
    };
    let by = match (&line, &likely) {
        (Some((line, of)), _) => {
            format!(" The most, {}, were mapped while {} ran.", bytes(*of), line.named())
        }
        (None, Some(likely)) => format!(
            " {} of {} in the interpreter within 10 ms of the moments at which they were mapped \
             are in {}.",
            count(likely.samples),
            counted(likely.of, "CPU sample", "CPU samples"),
            likely.line.named()
        ),
        (None, None) => String::new(),
    };
    let seen = format!(
        "Arenas, the mappings in which Python's interpreter keeps objects of up to 512 bytes, grow \
         from {} to {} in {} ({}{}). They are not part of the heap.{by}",
        bytes(low),
        bytes(high),
        duration(grown.life_ns),
        time.rate(grown),
        growth_time::full_words(left_ns),
    );
    let of_live = bytes_grown as f64 / high.max(1) as f64;
    let mut finding = scene
        .finding("the memory of small Python objects grows all the time")
        .about("arenas")
        .bytes(bytes_grown, growth_time::share(left_ns, of_live))
        .seen(seen)
        .advice(advice(line.is_some()))
        .on_line(line.map(|(line, _)| line).or(likely.map(|likely| likely.line)));
    finding.keep = true;
    ArenaVerdict::Grow(Box::new(finding))
}

fn advice(is_known: bool) -> String {
    let kept = "Release small objects that are kept: tuples, strings, numbers and dictionaries, in \
                lists, dictionaries and caches that only grow. An arena counts for the line that \
                needed a new one, so lines that keep little may be among them.";
    match is_known {
        true => kept.to_owned(),
        false => format!("{kept} Recorded with `--stacks python` they have Python's line."),
    }
}
