//! The report page: every kind of report, in the order in which a reader asks.

use std::path::Path;

use tprof_analyze::document::{
    Cell, Column, Document, LineTables, Options as Analyze, Table, Unit, Value, View,
};
use tprof_analyze::{KINDS, Kind, Reading, Report, Wanted, read_together};
use tprof_export::report_page::{self, Chart, Complete, Fact, ReportPage, Section};
use tprof_export::{Options, Written};
use tprof_facts::frames::NO_STACK;
use tprof_facts::labels::base_name;
use tprof_facts::units::{bytes, count, duration, percent};
use tprof_trace::RunDir;
use tprof_trace::live::collector_lives;
use tprof_trace::run::blind_alike;

use super::args::ExportArgs;
use super::{failure, host_charts, places, roofline_chart};
use crate::commands::report::document::shown_cell;
use crate::runs::failure::analyze_failure;
use crate::terminal::errors::Failure;

/// Rows of a table that a page holds.
const MOST_ROWS: usize = 100;
/// Frames of a stack under the pointer.
const MOST_FRAMES: usize = 40;
/// Columns of a step plot.
const MOST_STEPS: usize = 120;
/// Rows of a stack plot.
const MOST_RANKS: usize = 64;

/// A figure that was not measured.
const UNKNOWN: &str = "unknown";

/// What comes first; other kinds follow in their own order.
const ORDER: [&str; 10] = [
    "findings",
    "host",
    "breakdown",
    "steps",
    "kernels",
    "operators",
    "roofline",
    "comm",
    "stragglers",
    "idle",
];

/// Writes `report.html`.
pub fn export(run: &RunDir, args: &ExportArgs, options: &Options<'_>) -> anyhow::Result<Written> {
    let rank = one_rank(args, "the report page")?;
    let path =
        report_page::path(run, options).map_err(|error| failure::failure(&args.path, &error))?;
    let failed = |error: &tprof_analyze::AnalyzeError| analyze_failure(&args.path, error);
    let mut kinds: Vec<_> = KINDS.iter().collect();
    kinds.sort_by_key(|kind| {
        ORDER.iter().position(|name| *name == kind.name).unwrap_or(ORDER.len())
    });
    let lines = LineTables::Too;
    let steps_from = options.slice.steps_from;
    let is_running = Some(collector_lives as _);
    let asked = Analyze { rank, lines, steps_from, is_running, ..Analyze::default() };
    let wanted = Wanted { reports: &[Kind::Memory], kinds: &kinds };
    let made = read_together(run.path(), &wanted, &asked, options.symbols)
        .map_err(|error| failed(&error))?;
    let report = &made.reports[0];
    let mut page = head(report);
    let links = links(&path);
    let has_timeline = links.iter().any(|(_, file)| file == places::TIMELINE);
    for (kind, document) in kinds.iter().zip(made.documents) {
        page.facts.extend(headline(&document));
        if document.kind == "threads" {
            page.facts.extend(cpu_used(&document, &report.run.wall_ns));
        }
        let places = has_timeline.then(|| places::of(&document));
        let chart = roofline_chart::of(&document, has_timeline);
        let mut section = section(kind.about, document, places.as_deref());
        section.charts.extend(chart.filter(|_| kind.name == "roofline"));
        page.sections.push(section);
    }
    // What is known comes first.
    page.facts.sort_by_key(|fact| fact.value == UNKNOWN);
    let at = page.sections.iter().position(|part| part.key == "kernels").unwrap_or(0);
    page.sections.insert(at, memory(report));
    page.links = links;
    let path = report_page::write(run, &page, &path)
        .map_err(|error| failure::failure(&args.path, &error))?;
    Ok(Written { paths: path.into_iter().collect(), ..Written::default() })
}

/// The rank of what covers whole ranks: one, or all.
pub(super) fn one_rank(args: &ExportArgs, what: &str) -> Result<Option<u32>, Failure> {
    let Some(text) = args.slice.rank.as_deref() else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        Failure::new(format!("{what} covers one rank or all, not `{text}`"))
            .cause("--rank has more than one rank")
            .hint("--rank 0, or no --rank")
    })
}

/// Pages that lie beside this one.
fn links(path: &Path) -> Vec<(String, String)> {
    let beside = |name: &str| path.with_file_name(name).is_file();
    [("Timeline", places::TIMELINE), ("Flame graph", "flame.html")]
        .into_iter()
        .filter(|(_, file)| beside(file))
        .map(|(name, file)| (name.to_owned(), file.to_owned()))
        .collect()
}

fn head(report: &Report) -> ReportPage {
    let run = &report.run;
    let hosts = run.hosts.iter().filter(|host| !host.is_empty()).cloned().collect::<Vec<_>>();
    let mut about = vec![run.state.to_owned()];
    if !hosts.is_empty() {
        about.push(format!("on {}", hosts.join(", ")));
    }
    if !run.recorded_by.is_empty() {
        about.push(match run.imported.as_slice() {
            [] => format!("recorded by tprof {}", run.recorded_by),
            [one] => format!("imported by tprof {} from {}", run.recorded_by, base_name(one)),
            [first, rest @ ..] => format!(
                "imported by tprof {} from {} and {} more",
                run.recorded_by,
                base_name(first),
                rest.len()
            ),
        });
    }
    let ranks = report.ranks.iter().filter(|rank| rank.rank.is_some()).count();
    let facts = vec![
        fact("Ran", &run.wall_ns, |ns| duration(*ns), ""),
        Fact { name: "Ranks".into(), value: count(ranks as u64), remark: String::new() },
        Fact {
            name: "Processes".into(),
            value: count(report.process_count as u64),
            remark: of_processes(report),
        },
        heap_peak(report),
        fact(
            "Overhead",
            &report.overhead.fraction.value,
            |share| match report.overhead.fraction.bounds() {
                Some((low, high)) => format!("{} to {}", percent(low), percent(high)),
                None => percent(*share),
            },
            "of the job's CPU time",
        ),
        fact("Waits for the collector", &report.overhead.wait_ns.value, |ns| duration(*ns), ""),
        fact(
            "The collector's CPU time",
            &report.overhead.collector_cpu_ns.value,
            |ns| duration(*ns),
            "on processors that the job may need",
        ),
    ];
    ReportPage {
        about: about.join(", "),
        facts,
        complete: complete(report),
        ..ReportPage::default()
    }
}

/// Of the rank with the most.
fn heap_peak(report: &Report) -> Fact {
    let peaks = report.ranks.iter().map(|rank| &rank.host_memory.peak_bytes);
    let most = peaks.clone().filter(|peak| peak.value().is_some()).max_by_key(|peak| peak.value());
    let unknown = Reading::missing("no rank file could be read");
    let peak = most.or_else(|| peaks.clone().next()).unwrap_or(&unknown);
    fact(
        "Heap peak",
        peak,
        |held| bytes(*held),
        if report.ranks.len() > 1 { "highest of all ranks" } else { "" },
    )
}

fn of_processes(report: &Report) -> String {
    let killed = match report.killed.len() {
        0 => None,
        1 => Some("1 process was ended by a signal".to_owned()),
        many => Some(format!("{many} processes were ended by signals")),
    };
    let images = report.processes.len();
    let images =
        (images > report.process_count).then(|| format!("{} program images", count(images as u64)));
    images.into_iter().chain(killed).collect::<Vec<_>>().join("; ")
}

fn fact<T>(name: &str, reading: &Reading<T>, show: impl Fn(&T) -> String, remark: &str) -> Fact {
    let (value, remark) = match reading {
        Reading::Is(value) => (show(value), remark.to_owned()),
        Reading::Estimate { value, error } => {
            (format!("~{}", show(value)), format!("{remark} ± {}", show(error)).trim().to_owned())
        }
        Reading::Missing(why) => (UNKNOWN.to_owned(), why.clone()),
    };
    Fact { name: name.to_owned(), value, remark }
}

fn complete(report: &Report) -> Complete {
    let seen = &report.completeness;
    let recorded = format!("{} recorded", seen.recorded_words());
    let mut gaps: Vec<String> = (seen.losses.iter())
        .map(|loss| match loss.count {
            0 => format!("lost: {}, count unknown ({})", loss.what, loss.why),
            lost => format!("lost: {} {} ({})", count(lost), loss.what, loss.why),
        })
        .collect();
    let blind = blind_alike(&seen.blind).into_iter();
    gaps.extend(blind.map(|(what, whom, why)| format!("{whom}: {what} not recorded: {why}")));
    gaps.extend(report.problems.iter().cloned());
    gaps.extend(report.notes.iter().cloned());
    let but_for = seen.but_for();
    let whole = seen.complete || but_for.is_some();
    let sentence = match (seen.complete, but_for) {
        (true, _) => format!("Complete: {recorded}, no event lost, every process recorded."),
        (false, Some(gaps)) => format!("Complete but for {gaps}: {recorded}."),
        (false, None) => format!(
            "Not complete: {recorded}, at least {} lost; the run {}.",
            count(seen.lost),
            match report.run.state {
                "finished" => "finished",
                "running" => "is in progress",
                _ => "was cut off",
            }
        ),
    };
    Complete { whole, sentence, gaps }
}

/// The figure of a report that belongs on top of the page.
fn headline(document: &Document) -> Option<Fact> {
    let (name, table, key, remark) = match document.kind {
        "breakdown" => ("GPU idle", "breakdown", "idle_share", "highest of all ranks"),
        "steps" => ("Median step", "step_times", "median_ns", "longest of all ranks"),
        _ => return None,
    };
    let table = document.tables.iter().find(|one| one.key == table)?;
    let at = column(table, key)?;
    let most = table.rows.iter().map(|row| &row[at]).filter(|cell| cell.value().is_some()).max_by(
        |a, b| {
            let number = |cell: &Cell| cell.value().and_then(Value::number).unwrap_or(0.0);
            number(a).total_cmp(&number(b))
        },
    )?;
    let remark = if table.rows.len() > 1 { remark } else { "" };
    Some(Fact {
        name: name.to_owned(),
        value: shown_cell(most, &table.columns[at]),
        remark: remark.to_owned(),
    })
}

/// CPU time of all threads, and the time for which they were ready without a core.
fn cpu_used(document: &Document, wall_ns: &Reading<u64>) -> Vec<Fact> {
    let Some(table) = document.tables.iter().find(|table| table.key == "threads") else {
        return Vec::new();
    };
    let sum = |key: &str| -> u64 {
        let Some(at) = column(table, key) else { return 0 };
        let numbers = table.rows.iter().filter_map(|row| row[at].value()?.number());
        numbers.sum::<f64>() as u64
    };
    let (running, ready) = (sum("running_ns"), sum("ready_ns"));
    if table.rows.is_empty() {
        return Vec::new();
    }
    let cores = match wall_ns.value().filter(|ns| **ns > 0) {
        Some(ns) => format!("{:.2} cores on average", running as f64 / *ns as f64),
        None => String::new(),
    };
    let fact = |name: &str, ns: u64, remark: String| Fact {
        name: name.to_owned(),
        value: duration(ns),
        remark,
    };
    vec![
        fact("CPU used", running, cores),
        fact("Waiting for a core", ready, "all threads added up".to_owned()),
    ]
}

/// `places`: where a finding's place lies on the timeline, by the finding's number; none without
/// a timeline.
fn section(about: &str, document: Document, places: Option<&[(u64, String)]>) -> Section {
    let tables: Vec<&Table> = document
        .tables
        .iter()
        .filter(|table| matches!(table.view, View::Rows | View::Groups | View::Cards | View::Lines))
        .collect();
    let is_empty = document.tables.iter().all(|table| table.rows.is_empty());
    let linked = |of: &Table| match places {
        Some(places) => places::linked(table(of), of, places),
        None => table(of),
    };
    let why = document.tables.iter().map(|table| table.empty.as_str()).find(|why| !why.is_empty());
    Section {
        key: document.kind.to_owned(),
        title: title(document.kind),
        notes: [about.to_owned()].into_iter().chain(document.notes.iter().cloned()).collect(),
        charts: charts(&document),
        tables: tables.into_iter().map(linked).collect(),
        empty: match is_empty {
            true => why.unwrap_or("no such event was recorded").to_owned(),
            false => String::new(),
        },
    }
}

/// `text`, or its first characters and an ellipsis.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Functions of the innermost frames, without where they stand in the source.
fn short(names: &[&str]) -> String {
    let function = |name: &&str| {
        let function = name.rsplit_once(" (").map_or(*name, |(function, _)| function);
        cut(function, 80)
    };
    names.iter().take(4).map(function).collect::<Vec<_>>().join(" ‹ ")
}

/// `Breakdown`; `GPU queue` repeats the name of the kind.
fn title(kind: &str) -> String {
    let known = match kind {
        "host" => "Where the driving thread's time went",
        "breakdown" => "Where GPU time went",
        "comm" => "Communication",
        "kernels" => "Kernels and copies",
        "idle" => "Idle GPU time",
        "overlap" => "Communication hidden behind compute",
        "bandwidth" => "Memory bandwidth of copies",
        "queue" => "Launch queues",
        "roofline" => "Distance to the roof",
        "flops" => "Operations from sizes",
        "cpu" => "CPU time",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let mut letters = kind.chars();
    letters.next().map_or(String::new(), |first| {
        first.to_uppercase().chain(letters).collect::<String>().replace('-', " ")
    })
}

fn table(table: &Table) -> report_page::Table {
    let shown: Vec<(usize, &Column)> =
        table.columns.iter().enumerate().filter(|(_, column)| !column.heading.is_empty()).collect();
    let mut reasons: Vec<String> = Vec::new();
    let rows = table.rows.iter().take(table.counted(MOST_ROWS).1).map(|row| {
        let cell = |(at, column): &(usize, &Column)| {
            let cell = &row[*at];
            if let Cell::Missing(why) = cell {
                let reason = format!("{}: {why}", column.heading);
                if !reasons.contains(&reason) && reasons.len() < 5 {
                    reasons.push(reason);
                }
            }
            page_cell(cell, column, table.view)
        };
        shown.iter().map(cell).collect()
    });
    let rows = rows.collect();
    report_page::Table {
        title: table.title.clone(),
        about: match &table.folded {
            Some(folded) => format!("{}; {}", table.about, folded.line),
            None => table.about.clone(),
        },
        headings: (shown.iter())
            .map(|(_, column)| {
                (column.heading.to_owned(), matches!(column.unit, Unit::Text | Unit::Name))
            })
            .collect(),
        rows,
        cards: table.view == View::Cards,
        severities: severities(table),
        left_out: table.counted(MOST_ROWS).0.saturating_sub(MOST_ROWS),
        reasons,
        empty: table.empty.clone(),
    }
}

/// The severity of each row, where a table has one.
fn severities(table: &Table) -> Vec<String> {
    let Some(at) = column(table, "severity") else { return Vec::new() };
    table.rows.iter().map(|row| shown_cell(&row[at], &table.columns[at])).collect()
}

fn page_cell(cell: &Cell, column: &Column, view: View) -> report_page::TableCell {
    // A card has room for sentences, a table has not.
    let room = if matches!(view, View::Cards | View::Lines) { 4_000 } else { 240 };
    let number = cell.value().and_then(Value::number);
    let text = match cell {
        Cell::Empty => String::new(),
        cell => cut(&shown_cell(cell, column), room),
    };
    let title = match cell {
        Cell::Missing(why) => why.clone(),
        Cell::Is(Value::Text(name)) if name.len() > 30 => cut(name, 600),
        _ => String::new(),
    };
    let share = number.filter(|_| column.unit == Unit::Share && column.key.contains("share"));
    report_page::TableCell { text, number, share, title, href: String::new() }
}

fn charts(document: &Document) -> Vec<Chart> {
    let find = |key: &str| document.tables.iter().find(|table| table.key == key);
    let mut charts: Vec<Chart> = document
        .tables
        .iter()
        .filter(|table| table.view == View::Curve)
        .filter_map(curves)
        .collect();
    if document.kind == "breakdown" {
        charts.extend(find("breakdown").and_then(stacks));
    }
    if document.kind == "host" {
        charts.extend(host_charts::all(document, MOST_RANKS));
    }
    if document.kind == "steps" {
        charts.extend(find("steps").and_then(steps));
    }
    charts
}

fn column(table: &Table, key: &str) -> Option<usize> {
    table.columns.iter().position(|column| column.key == key)
}

/// Shares of each rank's device time, those that have a heading.
fn stacks(table: &Table) -> Option<Chart> {
    let rank = column(table, "rank")?;
    let device = column(table, "device");
    let parts: Vec<(usize, &Column)> = (table.columns.iter().enumerate())
        .filter(|(_, column)| column.unit == Unit::Share && !column.heading.is_empty())
        .collect();
    let mut rows: Vec<(String, Vec<f64>)> = (table.rows.iter())
        .map(|row| {
            let number = |at: usize| row[at].value().and_then(Value::number);
            let rank = shown_cell(&row[rank], &table.columns[rank]);
            let label = match device.and_then(number) {
                Some(device) => format!("{rank}, GPU {device}"),
                None => rank,
            };
            (label, parts.iter().map(|(at, _)| number(*at).unwrap_or(0.0)).collect())
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let all = rows.len();
    rows.truncate(MOST_RANKS);
    let title = match all > MOST_RANKS {
        true => format!("GPU time of the {MOST_RANKS} ranks with the most idle time, of {all}"),
        false => "GPU time by rank, by idle time".to_owned(),
    };
    let named = |(at, (_, column)): (usize, &(usize, &Column))| {
        (format!("part{at}"), column.heading.to_owned())
    };
    let parts = parts.iter().enumerate().map(named).collect();
    Some(Chart::Stacks { title, parts, rows })
}

/// Times of the first rank's steps.
fn steps(table: &Table) -> Option<Chart> {
    let [rank, step, time] =
        [column(table, "rank")?, column(table, "step")?, column(table, "duration_ns")?];
    let remark = column(table, "remark");
    let first = table.rows.first()?[rank].clone();
    let of_first: Vec<_> = table.rows.iter().filter(|row| row[rank] == first).collect();
    let columns = of_first.iter().take(MOST_STEPS).filter_map(|row| {
        let value = row[time].value().and_then(Value::number)?;
        let label = shown_cell(&row[step], &table.columns[step]);
        let text = shown_cell(&row[time], &table.columns[time]);
        let stands_out =
            remark.is_some_and(|at| shown_cell(&row[at], &table.columns[at]).len() > 1);
        Some((label, value, text, stands_out))
    });
    let columns: Vec<_> = columns.collect();
    let whose = shown_cell(&first, &table.columns[rank]);
    let cut = match of_first.len() > MOST_STEPS {
        true => format!(", the first {MOST_STEPS} of {}", of_first.len()),
        false => String::new(),
    };
    let title = format!("Step times of {whose}{cut}; outliers are highlighted");
    Some(Chart::Columns { title, columns })
}

/// A table of curves, its columns over the first one.
fn curves(table: &Table) -> Option<Chart> {
    const POINTS: usize = 300;
    let number =
        |row: &[Cell], at: usize| row.get(at).and_then(Cell::value).and_then(Value::number);
    let times: Vec<f64> = table.rows.iter().filter_map(|row| number(row, 0)).collect();
    let (first, last) = (*times.first()?, *times.last()?);
    let scale = (POINTS - 1) as f64 / (last - first).max(1.0);
    let shown =
        table.columns.iter().enumerate().skip(1).filter(|(_, column)| !column.heading.is_empty());
    let curves = shown.take(4).map(|(at, column)| {
        let mut points: Vec<Option<f64>> = vec![None; POINTS];
        for row in &table.rows {
            if let (Some(time), Some(value)) = (number(row, 0), number(row, at)) {
                let slot = &mut points[(((time - first) * scale) as usize).min(POINTS - 1)];
                *slot = Some(slot.map_or(value, |other| other.max(value)));
            }
        }
        let mut held = None;
        for point in &mut points {
            held = point.or(held);
            *point = held;
        }
        let most = points.iter().flatten().copied().fold(0.0, f64::max);
        let peak = shown_cell(&most.into(), column);
        (column.heading.to_owned(), peak, points)
    });
    let ends = [first, last].map(|ns| duration(ns.max(0.0) as u64));
    Some(Chart::Curves { title: table.title.clone(), ends, curves: curves.collect() })
}

/// Host memory: curves, figures and owners at the peak of each rank.
fn memory(report: &Report) -> Section {
    let mut section = Section {
        key: "memory".to_owned(),
        title: "Memory over time".to_owned(),
        ..Section::default()
    };
    let mut off = 0;
    for rank in &report.ranks {
        let line = &rank.timeline;
        let series = [
            match line.resident_bytes.value() {
                Some(_) => ("resident", &line.resident_bytes),
                None => ("RSS (shared pages count per process)", &line.rss_bytes),
            },
            ("heap", &line.heap_bytes),
            ("mapped", &line.mapped_bytes),
        ];
        let known = series.into_iter().filter_map(|(name, series)| {
            let values = series.value()?;
            let peak = values.iter().flatten().max()?;
            let points = values.iter().map(|value| value.map(|value| value as f64)).collect();
            Some((name.to_owned(), bytes(*peak), points))
        });
        let mut curves: Vec<(String, String, Vec<Option<f64>>)> = known.collect();
        // Mapped bytes are often many times the others, which would lie flat.
        if curves.len() > 1 {
            curves.retain(|(name, ..)| name != "mapped");
        }
        if let Some(points) = curves.first().map(|curve| curve.2.len() as u64) {
            let end_ns = line.start_ns + line.bucket_ns * points;
            let ends = [duration(line.start_ns), duration(end_ns)];
            section.charts.push(Chart::Curves {
                title: format!("Host memory of {}", rank.label),
                ends,
                curves,
            });
        }
        if rank.host_memory.recording == "off" {
            off += 1;
            continue;
        }
        section.tables.push(owners(rank));
    }
    if section.charts.is_empty() && section.tables.is_empty() {
        section.empty = match off {
            0 => "no process was recorded".to_owned(),
            _ => "allocations were not recorded; `tprof run --mem sampled` (or exact) records them"
                .to_owned(),
        };
    }
    section
}

/// Who held memory when a rank held most.
fn owners(rank: &tprof_analyze::summary::Rank) -> report_page::Table {
    let heap = &rank.host_memory;
    let cell = |reading: &Reading<u64>, show: fn(u64) -> String| report_page::TableCell {
        text: match reading {
            Reading::Is(value) => show(*value),
            Reading::Estimate { value, .. } => format!("~{}", show(*value)),
            Reading::Missing(_) => "?".to_owned(),
        },
        number: reading.value().map(|value| *value as f64),
        share: None,
        title: match reading {
            Reading::Missing(why) => why.clone(),
            _ => String::new(),
        },
        href: String::new(),
    };
    let peak = cell(&heap.peak_bytes, bytes).text;
    let rows = heap.sites.iter().take(MOST_ROWS).map(|site| {
        let names: Vec<&str> = site.stack.iter().map(|frame| &**frame).collect();
        let mut at_peak = cell(&site.peak_bytes, bytes);
        let whole = heap.peak_bytes.value().copied().unwrap_or(0);
        at_peak.share =
            (site.peak_bytes.value()).filter(|_| whole > 0).map(|held| *held as f64 / whole as f64);
        let stack = report_page::TableCell {
            text: if names.is_empty() { NO_STACK.to_owned() } else { short(&names) },
            title: names.iter().take(MOST_FRAMES).copied().collect::<Vec<_>>().join("\n"),
            ..report_page::TableCell::default()
        };
        vec![
            at_peak,
            cell(&site.live_bytes, bytes),
            cell(&site.bytes, bytes),
            cell(&site.allocations, count),
            stack,
        ]
    });
    report_page::Table {
        title: format!("{}: allocation sites of its {peak} peak", rank.label),
        about: format!(
            "{} recording{}; innermost function first, full stack as a tooltip",
            heap.recording,
            if heap.recording == "sampled" { ", estimates" } else { "" },
        ),
        headings: [
            ("at the peak", false),
            ("live at exit", false),
            ("allocated", false),
            ("calls", false),
            ("from", true),
        ]
        .map(|(heading, words)| (heading.to_owned(), words))
        .to_vec(),
        rows: rows.collect(),
        left_out: heap.sites_total.saturating_sub(heap.sites.len().min(MOST_ROWS)),
        empty: "no allocation was recorded".to_owned(),
        ..report_page::Table::default()
    }
}
