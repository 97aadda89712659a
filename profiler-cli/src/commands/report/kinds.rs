//! The kinds of `tprof report`.

use std::ffi::OsStr;
use tprof_analyze::Kind;

/// Returns the name of each kind of report, and what it shows.
pub fn report_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    let own = [
        ("summary", "wall time, processes, ranks, completeness, overhead (default)"),
        ("memory", "peak, live, churn, top sites, growth, timeline"),
    ];
    own.into_iter().chain(tprof_analyze::KINDS.iter().map(|kind| (kind.name, kind.about)))
}

/// Whether a word is the name of a kind.
pub fn is_kind(word: &OsStr) -> bool {
    report_kinds().any(|(kind, _)| kind == word)
}

/// Returns the names of the kinds.
pub fn report_kind_names() -> Vec<&'static str> {
    report_kinds().map(|(name, _)| name).collect()
}

/// Returns the list of kinds for the help.
pub fn kinds_help() -> String {
    let width = report_kinds().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, about)| format!("\n  {name:<width$}  {about}");
    let several = "Name several kinds (`kernels,steps`) or `all`: the run is read only once.\n\
                   An option that ends in (cpu) applies to the kind cpu only, and so on.";
    format!("Kinds:{}\n\n{several}", report_kinds().map(line).collect::<String>())
}

/// The two kinds of report that are not documents.
pub const REPORTS: [Kind; 2] = [Kind::Summary, Kind::Memory];

/// Returns the name of a kind of [`REPORTS`].
pub fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Summary => "summary",
        Kind::Memory => "memory",
    }
}
