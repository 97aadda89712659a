//! Writes a report as one self-contained HTML page of tables and plots, which can also be printed.
//!
//! The caller computes the figures and fills in a [`ReportPage`], which this module converts to
//! markup. All text is escaped. Without scripts, a page shows everything, but its tables cannot be
//! sorted.

mod charts;
mod content;
mod html;
mod roofline;

use std::path::PathBuf;

use tprof_trace::RunDir;

pub use content::{
    Chart, Completeness, Fact, ReportPage, RooflinePoint, Section, Table, TableCell,
};

use crate::page::{Page, Payload, run_title};
use crate::{ExportError, Options};

/// Returns the path of a run's page. Returns an error if the file exists.
pub fn path(run: &RunDir, options: &Options<'_>) -> Result<PathBuf, ExportError> {
    options.without_max_bytes("report")?;
    crate::page::path(run, options, "report.html")
}

/// Writes the page.
pub fn write(
    run: &RunDir,
    report: &ReportPage,
    path: &std::path::Path,
) -> Result<Option<PathBuf>, ExportError> {
    let title = run_title(run);
    let body = html::body(&title, report);
    let page = Page {
        title: &format!("{title} – report – tprof"),
        body: &body,
        style: concat!(include_str!("page/document.css"), include_str!("report_page/report.css")),
        scripts: &[include_str!("report_page/report.js")],
    };
    page.save(path, &Payload::default())
}
