//! Lists the reports and formats that this program can make, for `tprof serve`.

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};
use tprof_analyze::KINDS;
use tprof_document::Shown;

use super::report::report_kinds;
use crate::runs::formats::{FORMATS, Format};

/// Name of the hidden command.
pub const CATALOGUE: &str = "__catalogue";

/// Prints the kinds of report, with the titles and headings of their tables, and the formats as JSON.
pub fn run() -> anyhow::Result<ExitCode> {
    let kinds = report_kinds().map(|(name, about)| {
        let kind = KINDS.iter().find(|kind| kind.name == name);
        let tables = kind.map(|kind| kind.tables()).unwrap_or_default();
        json!({ "name": name, "about": about, "shown": json!(Shown(&tables)) })
    });
    let kinds: Vec<Value> = kinds.collect();
    let format = |one: &Format| {
        json!({
            "name": one.name, "about": one.about, "file": one.goes,
            "is_one_file": one.is_one_file(),
        })
    };
    let formats = FORMATS.iter().filter(|format| format.is_of_a_run()).map(format);
    let all = json!({
        "tprof": env!("CARGO_PKG_VERSION"),
        "kinds": kinds,
        "formats": formats.collect::<Vec<_>>(),
    });
    writeln!(std::io::stdout(), "{all}")?;
    Ok(ExitCode::SUCCESS)
}
