//! HotFunction: one function of the user's own code takes much of the driving thread's CPU time.

use std::collections::BTreeMap;

use tprof_facts::frames::NO_NAME;
use tprof_facts::functions::in_sentence;
use tprof_facts::units::{counted, duration, percent};
use tprof_metrics::host::{AUTOGRAD, Place, WallTime};
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::{Part, is_collective_module};

use super::host_part::{amount, finding_at, host, is_found, line, too_few, too_little};
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;

/// Beginnings of the names of system libraries. How long their functions take depends on the
/// caller.
const SYSTEM: [&str; 6] = ["libc.", "libc-", "libm.", "libstdc++", "libpthread", "ld-linux"];

/// Maximum number of functions that have a finding.
const MOST: usize = 3;
/// The smallest share of the judged time with which a function has a finding. Time without a core is
/// left out, so that a busy machine doesn't hide a hot function.
const LEAST_SHARE: f64 = 0.05;

/// The rule that judges time on a core by function and line of the user's own code.
pub(super) struct HotFunction;

impl Rule for HotFunction {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "HotFunction",
            found_if: "functions of the user's own code (three at most) with 5 % of the driving thread's \
                 time and more on a core, where time without a core is not counted",
            gain: "`wall_ns` of its lines on a core, native callees included; with a device no more \
                 than the idle time by `python` and its like that samples have there",
            needs: "CPU samples, with a quarter of the time at most `unknown`",
            remedy: "vectorize, compile or cache it; leave it out of the loop",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        let host = match host(scene) {
            Ok(host) => host,
            Err(verdict) => return verdict,
        };
        let mut functions: BTreeMap<(&str, &str), Vec<(&Place, &WallTime)>> = BTreeMap::new();
        for (place, time) in host.ledger.places(None) {
            if counts(place) && !place.function.is_empty() {
                functions.entry((&place.file, &place.function)).or_default().push((place, time));
            }
        }
        let sum =
            |places: &[(&Place, &WallTime)]| places.iter().map(|(_, t)| t.running_ns).sum::<u64>();
        let mut functions: Vec<Vec<(&Place, &WallTime)>> = functions.into_values().collect();
        functions.sort_rows_by_key(|places| std::cmp::Reverse(sum(places)));
        let most_ns = functions.first().map_or(0, |places| sum(places));
        functions.retain(|places| {
            let share = sum(places) as f64 / host.ledger.with_core_ns().max(1) as f64;
            share >= LEAST_SHARE && is_found(host, sum(places))
        });
        let samples =
            |places: &[(&Place, &WallTime)]| places.iter().map(|(_, t)| t.samples).sum::<u64>();
        let few = functions.first().and_then(|places| too_few(scene, samples(places)));
        functions.retain(|places| too_few(scene, samples(places)).is_none());
        if functions.is_empty() {
            return few.unwrap_or_else(|| too_little(host, most_ns, "the hottest function"));
        }
        let found = functions.iter().take(MOST).map(|places| {
            let ns = sum(places);
            let hottest = hottest_line(places);
            let library = library(places);
            let function = &hottest.0.function;
            let below = match &library {
                Some((name, of)) => format!("; {} of it in {name}", duration(*of)),
                None => String::new(),
            };
            let is_python = hottest.0.file.ends_with(".py");
            let library = library.filter(|(_, of)| *of * 2 > ns).map(|(name, _)| name);
            let module = module_without_names(function);
            let advice = match module {
                Some(module) => format!(
                    "Install the debug information of {module}, or build it with -g: the functions \
                     and lines of this code then have names. `tprof report cpu` has its callers."
                ),
                None => advice(is_python, library.as_deref()),
            };
            let what = match module {
                Some(_) => "code whose functions have no names takes much of the CPU time",
                None => "one function takes much of the CPU time",
            };
            let most = match hottest.0.line {
                0 => String::new(),
                _ => format!(
                    "; line with most of it: {} ({})",
                    hottest.0.shown(),
                    duration(hottest.1)
                ),
            };
            let is_there = |place: &Place| {
                counts(place)
                    && (&place.function, &place.file) == (&hottest.0.function, &hottest.0.file)
            };
            finding_at(scene, host, what, ns, is_there)
                .about(function.clone())
                .seen(format!(
                    "{} ran for {}, {} of its thread's CPU time, by {}{most}{below}.",
                    in_sentence(function),
                    amount(host, ns),
                    percent(ns as f64 / host.ledger.running_ns.max(1) as f64),
                    counted(samples(places), "sample", "samples"),
                ))
                .advice(advice)
                .on_line(line(hottest.0))
        });
        Verdict::Found(found.collect())
    }
}

/// Formats the advice, in the terms of the line's language. `library` is the library that takes
/// most of the time below the line; `None` if that is at most half of the function's time.
fn advice(is_python: bool, library: Option<&str>) -> String {
    match (library, is_python) {
        // A system function that compares or copies memory takes longer if its input is larger, so
        // advise to give it less.
        (Some(name), _) if SYSTEM.iter().any(|start| name.starts_with(start)) || !is_python => {
            format!(
                "Most of it is code of {name} below this line: call it less often, for less data, \
                 or find what it is called for in another way (a hash table, an index, a cache)."
            )
        }
        (Some(name), _) => format!(
            "Most of it is compiled code of {name} below this line: call it with larger inputs or \
             less often, or give it more threads if cores are free."
        ),
        (None, true) => "Change what this line does: another algorithm, a vectorised call, a \
                     cache, or compiled code. `tprof report cpu` has its callers."
            .to_owned(),
        (None, false) => "Change what this line does: another algorithm or data structure, less \
                     work in each call, or several threads. `tprof report cpu` has its callers."
            .to_owned(),
    }
}

/// Returns the module of `(gzip, no name)`, which stands for all functions of that module that have
/// no name; `None` for a function with a name.
fn module_without_names(function: &str) -> Option<&str> {
    function.strip_prefix('(')?.strip_suffix(NO_NAME)
}

/// Returns the line of a function with the most time, and that time.
fn hottest_line<'p>(places: &[(&'p Place, &WallTime)]) -> (&'p Place, u64) {
    let of_line = |line: u32| -> u64 {
        places.iter().filter(|(place, _)| place.line == line).map(|(_, time)| time.running_ns).sum()
    };
    // `max_by_key` returns the last of equal lines. Reverse the order to get the first one.
    let hottest =
        places.iter().rev().map(|(place, _)| *place).max_by_key(|place| of_line(place.line));
    let hottest = hottest.unwrap_or(places[0].0);
    (hottest, of_line(hottest.line))
}

/// Returns the library that takes most of the time below a function, and that time.
fn library(places: &[(&Place, &WallTime)]) -> Option<(String, u64)> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (place, time) in places.iter().filter(|(place, _)| place.part != Part::Python) {
        // If the function calls nothing, `library` is the module of the compiled function itself,
        // so it doesn't count.
        if !place.library.is_empty() && !place.below.is_empty() {
            *sums.entry(&place.library).or_default() += time.running_ns;
        }
    }
    sums.into_iter().max_by_key(|(_, ns)| *ns).map(|(name, ns)| (name.to_owned(), ns))
}

/// Whether this rule judges the place. Other rules judge garbage collection, saving, and ranks that
/// wait for each other by spinning in a library that communicates. Launches of PyTorch's backward
/// passes don't count, because no line of the user's own code makes them.
fn counts(place: &Place) -> bool {
    let is_of_backward = place.is_of_waiter && place.thread.starts_with(AUTOGRAD);
    let communicates = is_collective_module(&place.library);
    let is_left_to_others = place.part == Part::Gc || place.saves || communicates;
    place.part.is_running() && !is_left_to_others && !is_of_backward
}
