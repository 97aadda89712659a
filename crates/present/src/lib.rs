//! The page that shows the reports of runs.
//!
//! One page with one set of scripts shows all reports: `tprof serve` sends it, `tprof export DIR
//! --to site` writes it next to its data, and `tprof export RUN --to report` writes it with its data
//! inside ([`one_file`]). The scripts (`pages/*.js`) draw the documents of `tprof report --json`,
//! which have the titles, headings and units too (`shown`).
//!
//! - `shell`: the page, made of its parts;
//! - `figures`: the figures of a run that its overview and lists of runs show.

mod figures;
mod shell;

pub use figures::{FIGURE_KEYS, figures, run_row};
pub use shell::{one_file, shell, static_shell};
