//! HotFunction: one function of the user's own has much of the driving thread's CPU time.

use std::collections::BTreeMap;

use tprof_facts::functions::in_sentence;
use tprof_facts::units::{counted, duration, percent};

use super::host_part::{amount, finding_at, host, is_found, line, too_few, too_little};
use crate::findings::rule::Rule;
use crate::findings::scene::Scene;
use crate::findings::verdict::Verdict;
use crate::host::{AUTOGRAD, Place, WallTime};
use crate::rank::samples::Part;

/// Beginnings of the names of libraries of the system, whose functions only do what they are asked.
const SYSTEM: [&str; 6] = ["libc.", "libc-", "libm.", "libstdc++", "libpthread", "ld-linux"];

/// Functions that are named, most.
const MOST: usize = 3;
/// A function is found from this share of the judged time on.
const LEAST_SHARE: f64 = 0.05;

/// Time on a core by function and line of the user's own code.
pub(super) struct HotFunction;

impl Rule for HotFunction {
    fn name(&self) -> &'static str {
        "HotFunction"
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
        functions.sort_by_key(|places| std::cmp::Reverse(sum(places)));
        let most_ns = functions.first().map_or(0, |places| sum(places));
        functions.retain(|places| {
            let share = sum(places) as f64 / host.ledger.wall_ns.max(1) as f64;
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
            let advice = advice(is_python, library.as_deref());
            let is_there = |place: &Place| {
                counts(place)
                    && (&place.function, &place.file) == (&hottest.0.function, &hottest.0.file)
            };
            finding_at(scene, host, "one function takes much of the CPU time", ns, is_there)
                .about(function.clone())
                .seen(format!(
                    "{} ran for {}, {} of its thread's CPU time, by {}; line with most of it: \
                     {} ({}){below}.",
                    in_sentence(function),
                    amount(host, ns),
                    percent(ns as f64 / host.ledger.running_ns.max(1) as f64),
                    counted(samples(places), "sample", "samples"),
                    hottest.0.shown(),
                    duration(hottest.1),
                ))
                .advice(advice)
                .on_line(line(hottest.0))
        });
        Verdict::Found(found.collect())
    }
}

/// The advice, in the terms of the line's language; `library` has most of the time below it.
fn advice(is_python: bool, library: Option<&str>) -> String {
    match (library, is_python) {
        // A function that compares or copies memory takes longer the more it is given.
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

/// The line of a function with most time.
fn hottest_line<'p>(places: &[(&'p Place, &WallTime)]) -> (&'p Place, u64) {
    let of_line = |line: u32| -> u64 {
        places.iter().filter(|(place, _)| place.line == line).map(|(_, time)| time.running_ns).sum()
    };
    // The first of equal lines is the hottest.
    let hottest =
        places.iter().rev().map(|(place, _)| *place).max_by_key(|place| of_line(place.line));
    let hottest = hottest.unwrap_or(places[0].0);
    (hottest, of_line(hottest.line))
}

/// The library with most of the time below a function.
fn library(places: &[(&Place, &WallTime)]) -> Option<(String, u64)> {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for (place, time) in places.iter().filter(|(place, _)| place.part != Part::Python) {
        // A function of compiled code has a module itself.
        if !place.library.is_empty() && !place.below.is_empty() {
            *sums.entry(&place.library).or_default() += time.running_ns;
        }
    }
    sums.into_iter().max_by_key(|(_, ns)| *ns).map(|(name, ns)| (name.to_owned(), ns))
}

/// Whether this rule judges the place: other rules judge collections and saving, and the launches
/// of PyTorch's backward passes, which no line of the user's own makes.
fn counts(place: &Place) -> bool {
    let is_of_backward = place.is_of_waiter && place.thread.starts_with(AUTOGRAD);
    place.part.is_running() && place.part != Part::Gc && !place.saves && !is_of_backward
}
