//! Lists allocation sites: one table with stacks, and short lists in other orders.

use std::sync::Arc;

use tprof_facts::units::{bytes, count, percent};
use tprof_metrics::memory::HostMemory;
use tprof_metrics::memory::sites::Site;
use tprof_rank::base::reading::Reading;

use super::head::{cell, plural};
use super::{distinguish, frames};
use crate::terminal::page::Page;
use crate::terminal::table::{MORE, Table};

/// Number of rows in a short list.
const SHORT: usize = 5;

/// The note on small objects, which the sites of a Python program do not show.
const SMALL_OBJECTS: &str = "Python takes objects of up to 512 bytes out of pools of its own, so the \
    sites do not have them; `PYTHONMALLOC=malloc tprof run \u{2026}` records each.";
/// How to record the lines of Python.
const NO_LINES: &str = " `--stacks python` names the lines of Python.";

/// Adds a table of sites, sorted by their bytes at the peak, with stacks. `whose` is ` of rank 3`
/// or empty.
pub fn table(page: &mut Page, memory: &HostMemory, whose: &str, top: usize) {
    if memory.sites.is_empty() {
        page.heading("Sites");
        let why = match (&memory.allocations, memory.recording) {
            (Reading::Missing(why), _) => format!("unknown: {why}"),
            (_, "sampled") => "none: no allocation was sampled".to_owned(),
            _ => "none: nothing was allocated".to_owned(),
        };
        page.paragraph(2, &why);
        return;
    }
    let known = memory.sites.iter().any(|site| site.peak_bytes.get().is_some());
    let order = if known { "bytes live at the peak" } else { "bytes allocated" };
    page.caption(&format!("Top sites{whose}, by {order}{}", of(memory, top)));
    let mut sites: Vec<&Site> = memory.sites.iter().collect();
    if !known {
        sites.sort_by_key(|site| std::cmp::Reverse(site.bytes.get()));
    }
    sites.sort_by_key(|site| !is_sure(&site.peak_bytes));
    page.fixed(&format!(
        "  {:>10} {:>8} {:>11} {:>12} {:>12}{}",
        "at peak",
        "share",
        "allocated",
        "allocations",
        "live at exit",
        if estimates(memory) { "    \u{b1} of peak" } else { "" }
    ));
    sites.truncate(top);
    let stacks: Vec<&[Arc<str>]> = sites.iter().map(|site| &*site.stack).collect();
    let width = page.width() - 8;
    let lines: Vec<Vec<String>> = stacks.iter().map(|stack| frames::shown(stack, width)).collect();
    let apart = distinguish::functions(&stacks, &lines);
    for ((site, lines), function) in sites.into_iter().zip(lines).zip(apart) {
        page.fixed(&row(site, memory));
        for frame in lines {
            page.fixed(&format!("      {frame}"));
        }
        if let Some(function) = function {
            page.fixed(&format!("      distinguished by {}", frames::brief(function, width - 14)));
        }
    }
    if estimates(memory) {
        page.paragraph(
            2,
            "~ marks estimates from samples, within \u{b1} in 95 cases of 100; those that may be zero \
             come last. Sites are estimated one by one; their sum may exceed the peak.",
        );
    }
    let frames = || memory.sites.iter().flat_map(|site| site.stack.iter());
    let has_lines = frames().any(|frame| frames::is_python(frame));
    if has_lines || frames().any(|frame| frames::is_interpreter(frame)) {
        let lines = if has_lines { "" } else { NO_LINES };
        page.paragraph(2, &format!("{SMALL_OBJECTS}{lines}"));
    }
}

/// Whether a reading is not an estimate that may be zero as well.
fn is_sure(reading: &Reading<u64>) -> bool {
    match reading {
        Reading::Estimate { value, error } => error < value,
        _ => true,
    }
}

fn row(site: &Site, memory: &HostMemory) -> String {
    let share = match (site.peak_bytes.get(), memory.peak_bytes.get()) {
        // An estimate may exceed the total of which it is a part.
        (Some(part), Some(whole)) if whole > 0 => {
            let about = if site.peak_bytes.error().is_some() { "~" } else { "" };
            format!("{about}{}", percent((part as f64 / whole as f64).min(1.0)))
        }
        _ => String::new(),
    };
    let error = match &site.peak_bytes {
        Reading::Estimate { error, .. } => format!("  {:>12}", bytes(*error)),
        _ => String::new(),
    };
    format!(
        "  {:>10} {share:>8} {:>11} {:>12} {:>12}{error}",
        cell(&site.peak_bytes, bytes),
        cell(&site.bytes, bytes),
        cell(&site.allocations, count),
        cell(&site.live_bytes, bytes),
    )
}

/// A sort order of sites.
struct Order {
    heading: &'static str,
    value: fn(&Site) -> &Reading<u64>,
    show: fn(u64) -> String,
}

/// Adds a short list in each of the other orders.
pub fn lists(page: &mut Page, memory: &HostMemory) {
    let orders = [
        Order { heading: "Most bytes allocated", value: |site| &site.bytes, show: bytes },
        Order { heading: "Most allocations", value: |site| &site.allocations, show: count },
        Order { heading: "Most bytes live at exit", value: |site| &site.live_bytes, show: bytes },
    ];
    let wholes = [&memory.allocated_bytes, &memory.allocations, &memory.live_at_exit_bytes]
        .map(Reading::get);
    for (Order { heading, value, show }, whole) in orders.into_iter().zip(wholes) {
        let mut sites: Vec<&Site> =
            memory.sites.iter().filter(|site| value(site).get().is_some_and(|v| v > 0)).collect();
        if sites.is_empty() {
            continue;
        }
        sites.sort_by_key(|site| (!is_sure(value(site)), std::cmp::Reverse(value(site).get())));
        page.heading(heading);
        let mut table = Table::new(&["", "", ""]).names(2);
        sites.truncate(SHORT);
        let stacks: Vec<&[Arc<str>]> = sites.iter().map(|site| &*site.stack).collect();
        let names = distinguish::names(&stacks, page.width() - 26);
        for (site, name) in sites.iter().zip(names) {
            let beside = match (value(site), whole) {
                (Reading::Estimate { error, .. }, _) => format!("\u{b1} {}", show(*error)),
                (Reading::Is(part), Some(whole)) if whole > 0 => {
                    percent(*part as f64 / whole as f64)
                }
                _ => String::new(),
            };
            table.row(vec![cell(value(site), show), beside, name]);
        }
        page.rows(&table);
    }
}

fn estimates(memory: &HostMemory) -> bool {
    memory.sites.iter().any(|site| site.peak_bytes.error().is_some())
}

/// Returns ` (10 of 1,234 sites; --top N shows more)`, or an empty text if all sites are shown.
fn of(memory: &HostMemory, top: usize) -> String {
    let shown = top.min(memory.sites.len());
    // The report keeps only the largest sites.
    let how = if shown < memory.sites.len() { format!("; {MORE}") } else { String::new() };
    match shown < memory.sites_total {
        true => {
            format!(" ({shown} of {}{how})", plural(memory.sites_total as u64, "site", "sites"))
        }
        false => String::new(),
    }
}
