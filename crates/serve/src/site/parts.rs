//! The requests that the pages make, and the files that answer them in a site without a server.

use std::collections::HashMap;

use crate::answers::{PAGES, STEP_METRICS};
use crate::app::Catalogue;
use crate::runs::RegisteredRun;

/// Largest number of comparisons, each of which reads both runs twice.
const MAX_PAIRS: usize = 50;

/// A part of a site that the pages request.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// A document, by its path below `/api/v1`.
    Document(String),
    /// A page by its path below `/api/v1`, and its file in the site.
    Page(String, String),
    /// A document that is the same as another: its path, and the path of the other.
    Same(String, String),
}

impl Part {
    fn document(path: impl Into<String>) -> Part {
        Part::Document(path.into())
    }
}

/// Returns the name of a document as `pages/data.js` derives it from a path below `/api/v1`: it
/// requests `data/NAME.js`.
pub fn name(path: &str) -> String {
    if path.is_empty() {
        return "index".to_owned();
    }
    let kept = |c: char| c.is_ascii_alphanumeric() || "_./=-".contains(c);
    let parts = path.replacen('?', "/", 1).replace('&', "/");
    parts.chars().map(|c| if kept(c) { c } else { '_' }).collect()
}

/// All parts of a site.
#[derive(Debug, Default)]
pub struct Parts {
    /// All parts, in the order in which they are written. Parts of one run are adjacent.
    pub all: Vec<Part>,
    /// Compared runs, before and after.
    pub pairs: Vec<(u32, u32)>,
    /// Number of comparisons beyond the limit.
    pub pairs_left_out: usize,
}

/// Returns the parts for these runs, newest first.
pub fn parts(catalogue: &Catalogue, runs: &[RegisteredRun]) -> Parts {
    let mut parts =
        Parts { all: vec![Part::document(""), Part::document("runs")], ..Parts::default() };
    for run in runs {
        parts.all.extend(of_run(catalogue, run.id));
    }
    // All runs of a command share a history.
    let mut newest: HashMap<&[String], u32> = HashMap::new();
    // The run after the current one that has the same command. Runs are visited newest first.
    let mut after: HashMap<&[String], u32> = HashMap::new();
    for run in runs {
        let command = run.entry.command.as_slice();
        let history = |id: u32| format!("history?run={id}");
        parts.all.push(match newest.get(command) {
            Some(first) => Part::Same(history(run.id), history(*first)),
            None => Part::document(history(run.id)),
        });
        newest.entry(command).or_insert(run.id);
        let readable = run.entry.state != "damaged" && !command.is_empty();
        if readable && let Some(next) = after.insert(command, run.id) {
            match parts.pairs.len() < MAX_PAIRS {
                true => parts.pairs.push((run.id, next)),
                false => parts.pairs_left_out += 1,
            }
        }
    }
    for (a, b) in &parts.pairs {
        parts.all.push(Part::document(format!("diff?a={a}&b={b}")));
        let file = format!("pages/flame-{a}-{b}.html");
        parts.all.push(Part::Page(format!("diff/flame?a={a}&b={b}"), file));
    }
    parts
}

fn of_run(catalogue: &Catalogue, id: u32) -> impl Iterator<Item = Part> {
    let kinds = catalogue.kinds.iter();
    let reports = kinds.map(move |kind| Part::document(format!("runs/{id}/report/{}", kind.name)));
    let heat = STEP_METRICS
        .map(|metric| Part::document(format!("runs/{id}/heat?metric={metric}&over=step")));
    let pages = PAGES.map(|page| {
        Part::Page(format!("runs/{id}/page/{page}"), format!("pages/{id}/{page}.html"))
    });
    [Part::document(format!("runs/{id}"))].into_iter().chain(reports).chain(heat).chain(pages)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::runs::{Entry, Stamp};

    #[test]
    fn names_match_those_that_the_pages_request() {
        assert_eq!(name(""), "index");
        assert_eq!(name("runs/7/report/critical-path"), "runs/7/report/critical-path");
        assert_eq!(name("runs/7/heat?metric=a&over=step"), "runs/7/heat/metric=a/over=step");
        assert_eq!(name("diff?a=1&b=2"), "diff/a=1/b=2");
        assert_eq!(name("history?run=<b>?%20é"), "history/run=_b___20_");
    }

    #[test]
    fn runs_of_a_command_share_a_history_and_are_compared() {
        let run = |id: u32, command: &str, state: &'static str| RegisteredRun {
            id,
            stamp: Stamp::default(),
            entry: Arc::new(Entry { command: vec![command.to_owned()], state, ..Entry::default() }),
        };
        let runs = [
            run(4, "a", "finished"),
            run(3, "b", "finished"),
            run(2, "a", "damaged"),
            run(1, "a", "cut off"),
        ];
        let parts = parts(&Catalogue::default(), &runs);
        assert_eq!(parts.pairs, [(1, 4)]);
        let has = |part| assert!(parts.all.contains(&part), "{part:?}");
        has(Part::document("history?run=4"));
        has(Part::document("history?run=3"));
        has(Part::Same("history?run=2".to_owned(), "history?run=4".to_owned()));
        has(Part::Same("history?run=1".to_owned(), "history?run=4".to_owned()));
        has(Part::document("diff?a=1&b=4"));
    }

    #[test]
    fn the_number_of_comparisons_is_limited() {
        let entry = Arc::new(Entry { command: vec!["a".to_owned()], ..Entry::default() });
        let run = |id| RegisteredRun { id, stamp: Stamp::default(), entry: Arc::clone(&entry) };
        let runs: Vec<RegisteredRun> = (0..60).rev().map(run).collect();
        let parts = parts(&Catalogue::default(), &runs);
        assert_eq!((parts.pairs.len(), parts.pairs_left_out), (MAX_PAIRS, 9));
        assert_eq!(parts.pairs[0], (58, 59));
    }
}
