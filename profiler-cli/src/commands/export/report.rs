//! The report page, with every kind of report.

use std::path::Path;

use tprof_analyze::{KINDS, Kind, Report, ReportRequest, make_reports};
use tprof_document::{Cell, Document, LineTables, Options as Analyze, Table, Value, View};
use tprof_export::report_page::{self, Completeness, Fact, ReportPage, Section};
use tprof_export::{Options, Written};
use tprof_facts::labels::base_name;
use tprof_facts::units::{bytes, count, duration, percent};
use tprof_rank::base::reading::Reading;
use tprof_rank::run::step_cost::StepCost;
use tprof_trace::RunDir;
use tprof_trace::live::is_collector_alive;
use tprof_trace::run::group_blind_spots;
use tprof_ui::errors::Failure;

use super::args::ExportArgs;
use super::page_table::page_table;
use super::{charts, evidence_links, failure, memory_section, roofline_chart};
use crate::commands::report::document::shown_cell;
use crate::runs::failure::analyze_failure;

/// Text for a figure that was not measured.
const UNKNOWN: &str = "unknown";

/// Kinds of report that come first, in this order. The others follow in the order of the list of
/// kinds.
const ORDER: [&str; 11] = [
    "findings",
    "gpu-time",
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

/// Writes the page `report.html`.
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
    let is_running = Some(is_collector_alive as _);
    let asked = Analyze { rank, lines, steps_from, is_running, ..Analyze::default() };
    let wanted = ReportRequest { reports: &[Kind::Memory], kinds: &kinds };
    let made = make_reports(run.path(), &wanted, &asked, options.symbols)
        .map_err(|error| failed(&error))?;
    let report = &made.reports[0];
    let mut page = head(report, made.step.as_ref());
    let links = links(&path);
    let has_timeline = links.iter().any(|(_, file)| file == evidence_links::TIMELINE);
    for (kind, document) in kinds.iter().zip(made.documents) {
        page.facts.extend(headline(&document));
        if document.kind == "threads" {
            page.facts.extend(cpu_used(&document, &report.run.wall_ns));
        }
        let places = has_timeline.then(|| evidence_links::of(&document));
        let chart = roofline_chart::of(&document, has_timeline);
        let mut section = section(kind.about, document, places.as_deref());
        section.charts.extend(chart.filter(|_| kind.name == "roofline"));
        page.sections.push(section);
    }
    // Figures of the job come first, then the cost of recording, then what is unknown.
    page.facts.sort_by_key(|fact| (fact.value == UNKNOWN, fact.name.starts_with("Overhead")));
    let at = page.sections.iter().position(|part| part.key == "kernels").unwrap_or(0);
    page.sections.insert(at, memory_section::of(report));
    page.sections.push(cost(report, made.step.as_ref()));
    page.links = links;
    let path = report_page::write(run, &page, &path)
        .map_err(|error| failure::failure(&args.path, &error))?;
    Ok(Written { paths: path.into_iter().collect(), ..Written::default() })
}

/// Returns the rank that `--rank` selects, or `None` for all ranks. Fails for several ranks,
/// because the data can't be limited to several. `what` names the data in the error.
pub(super) fn one_rank(args: &ExportArgs, what: &str) -> Result<Option<u32>, Failure> {
    let Some(text) = args.slice.rank.as_deref() else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        Failure::new(format!("{what} covers one rank or all, not `{text}`"))
            .cause("--rank has more than one rank")
            .hint("--rank 0, or no --rank")
    })
}

/// Returns links to those of the other pages that are in the same directory.
fn links(path: &Path) -> Vec<(String, String)> {
    let beside = |name: &str| path.with_file_name(name).is_file();
    [("Timeline", evidence_links::TIMELINE), ("Flame graph", "flame.html")]
        .into_iter()
        .filter(|(_, file)| beside(file))
        .map(|(name, file)| (name.to_owned(), file.to_owned()))
        .collect()
}

fn head(report: &Report, step: Option<&StepCost>) -> ReportPage {
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
    let mut facts = vec![
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
    ];
    facts.extend(step.map(|step| Fact {
        name: "Overhead, of a step".into(),
        value: match step.bounds() {
            Some((low, high)) => format!("{} to {}", duration(low), duration(high)),
            None => "unknown".to_owned(),
        },
        remark: step.brief(),
    }));
    ReportPage {
        about: about.join(", "),
        facts,
        complete: complete(report),
        ..ReportPage::default()
    }
}

/// Builds the section on what recording cost, by part.
fn cost(report: &Report, step: Option<&StepCost>) -> Section {
    let shown = |what: &str, ns: &Reading<u64>| {
        Some(sentence(&format!("{what} {}", duration(*ns.value()?))))
    };
    let over = &report.overhead;
    let of_steps = step.map(|step| sentence(&format!("{}: {}", step.rank, step.text)));
    let waits = shown("threads of the job waited for the collector for", &over.wait_ns.value);
    let collector = "the collector's CPU time, on processors that the job may need, was";
    let collector = shown(collector, &over.collector_cpu_ns.value);
    let notes: Vec<String> = of_steps.into_iter().chain(waits).chain(collector).collect();
    let empty = if notes.is_empty() { "no part of it is known" } else { "" };
    Section {
        key: "cost".to_owned(),
        title: "What recording cost".to_owned(),
        empty: empty.to_owned(),
        notes,
        ..Section::default()
    }
}

/// Makes a sentence of a note: with a capital letter, unless it begins with a name, and a full stop.
fn sentence(note: &str) -> String {
    let end = if note.ends_with(['.', '?', '!', ':']) { "" } else { "." };
    let first = note.split(' ').next().unwrap_or_default();
    match first.chars().all(|c| c.is_ascii_lowercase() || matches!(c, ',' | ':' | '\'' | '-')) {
        true => format!(
            "{}{}{end}",
            note[..1.min(note.len())].to_uppercase(),
            &note[1.min(note.len())..]
        ),
        false => format!("{note}{end}"),
    }
}

/// Returns the highest heap peak of all ranks.
fn heap_peak(report: &Report) -> Fact {
    let heaps = report.ranks.iter().map(|rank| &rank.host_memory);
    let known = heaps.clone().filter(|heap| heap.peak_bytes.value().is_some());
    let most = known.max_by_key(|heap| heap.peak_bytes.value().copied());
    let heap = most.or_else(|| heaps.clone().next());
    let unknown = Reading::missing("no rank file could be read");
    let of = if report.ranks.len() > 1 { "highest of all ranks" } else { "" };
    let caution = heap.and_then(|heap| heap.caution());
    let remark = [of.to_owned()].into_iter().filter(|of| !of.is_empty()).chain(caution);
    let remark = remark.collect::<Vec<_>>().join("; ");
    fact("Heap peak", heap.map_or(&unknown, |heap| &heap.peak_bytes), |held| bytes(*held), &remark)
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

fn complete(report: &Report) -> Completeness {
    let seen = &report.completeness;
    let recorded = format!("{} recorded", seen.recorded_words());
    let mut gaps: Vec<String> = (seen.losses.iter())
        .map(|loss| match loss.count {
            0 => format!("lost: {}, count unknown ({})", loss.what, loss.why),
            lost => format!("lost: {} {} ({})", count(lost), loss.what, loss.why),
        })
        .collect();
    let blind = group_blind_spots(&seen.blind).into_iter();
    gaps.extend(blind.map(|(what, whom, why)| format!("{whom}: {what} not recorded: {why}")));
    gaps.extend(report.problems.iter().cloned());
    gaps.extend(report.notes.iter().cloned());
    let rest = match (seen.complete, seen.is_whole()) {
        (true, _) => ", no event lost, every process recorded".to_owned(),
        (false, true) => String::new(),
        (false, false) => format!(
            ", at least {} lost; the run {}",
            count(seen.lost),
            match report.run.state {
                "finished" => "finished",
                "running" => "is in progress",
                _ => "was cut off",
            }
        ),
    };
    let sentence = format!("{}: {recorded}{rest}.", seen.verdict);
    Completeness { whole: seen.is_whole(), sentence, gaps }
}

/// Returns the figure of a report that is shown at the top of the page, if the report has one.
fn headline(document: &Document) -> Option<Fact> {
    let (name, table, key, remark) = match document.kind {
        "gpu-time" => ("GPU idle", "windows", "idle_share", "highest of all ranks"),
        "steps" => ("Median step", "step_times", "median_ns", "longest of all ranks"),
        _ => return None,
    };
    let table = document.tables.iter().find(|one| one.key == table)?;
    let at = table.place(key)?;
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

/// Returns the CPU time of all threads, and the time that they were ready without a core.
fn cpu_used(document: &Document, wall_ns: &Reading<u64>) -> Vec<Fact> {
    let Some(table) = document.tables.iter().find(|table| table.key == "threads") else {
        return Vec::new();
    };
    let sum = |key: &str| -> u64 {
        let Some(at) = table.place(key) else { return 0 };
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

/// Builds the section of a report. `places` are the links to the timeline, with the number of the
/// finding; `None` if there is no timeline.
fn section(about: &str, document: Document, places: Option<&[(u64, String)]>) -> Section {
    let tables: Vec<&Table> = document
        .tables
        .iter()
        .filter(|table| matches!(table.view, View::Rows | View::Groups | View::Cards | View::Lines))
        .collect();
    let is_empty = document.tables.iter().all(|table| table.rows.is_empty());
    let linked = |of: &Table| match places {
        Some(places) => evidence_links::linked(page_table(of), of, places),
        None => page_table(of),
    };
    // A table with the section's title needs no heading of its own.
    let titled = |mut table: report_page::Table| {
        if table.title == title(document.kind) {
            table.title.clear();
        }
        table
    };
    let why = document.tables.iter().map(|table| table.empty.as_str()).find(|why| !why.is_empty());
    Section {
        key: document.kind.to_owned(),
        title: title(document.kind),
        notes: [about]
            .into_iter()
            .chain(document.notes.iter().map(String::as_str))
            .map(sentence)
            .collect(),
        charts: charts::all(&document),
        tables: tables.into_iter().map(linked).map(titled).collect(),
        empty: match is_empty {
            true => why.unwrap_or("no such event was recorded").to_owned(),
            false => String::new(),
        },
    }
}

/// Returns the title for a kind of report.
fn title(kind: &str) -> String {
    let known = match kind {
        "host" => "Where the driving thread's time went",
        "gpu-time" => "Where GPU time went",
        "breakdown" => "GPU time by kind of work",
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
