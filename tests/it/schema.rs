//! What is printed as JSON keeps to the schemas in `docs/schema`, and these are those of the code:
//! `UPDATE_GOLDEN=1` writes them anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

use jsonschema::Validator;
use serde_json::Value;
use tprof_analyze::diff::{Comparison, ManyRuns, Side, SideOptions};
use tprof_analyze::document::{LineTables, Options};
use tprof_analyze::memory::snapshot;
use tprof_analyze::schema::{self, TablesSchema};
use tprof_analyze::{KINDS, Kind, ReportRequest, read_together};
use tprof_tests::{EXACT, Job, Scratch, foreign, many_ranks, need, tprof, traced};

use tprof_trace::model::*;
use tprof_trace::{RunDir, TraceHeader, TraceWriter};

use crate::agree::traces;

/// Kinds that are no tables.
const REPORTS: [&str; 2] = ["summary", "memory"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn imported(trace: &Path, scratch: &Scratch, name: &str) -> PathBuf {
    let run = scratch.join(name);
    let job = tprof(["import"]).arg(trace).arg("-o").arg(&run);
    job.run_in(scratch.path()).expect_code(0);
    run
}

/// Runs that have, together, every table.
fn corpus(scratch: &Scratch) -> Vec<PathBuf> {
    let from = root().join("crates/import/tests/corpus");
    let names = ["kineto.json", "chrome.json", "snapshot-newer.pickle", "snapshot-older.pickle"];
    let mut traces: Vec<PathBuf> = names.iter().map(|name| from.join(name)).collect();
    traces.push(root().join("crates/trace/tests/compile/torch-2.8.log.zst"));
    let made = [
        foreign::first_kineto(12),
        foreign::accelerator(
            2,
            ["mtia_runtime", "mtia_ccp_events", "gpu_memcpy"],
            ["bmm_kernel", "Memcpy HtoD"],
        ),
        foreign::own_all_reduces(),
        foreign::gloo(8, 300),
    ];
    for (at, trace) in made.iter().enumerate() {
        traces.push(scratch.join(format!("made-{at}.json")));
        trace.write(&traces[traces.len() - 1]);
    }
    let mixtures = scratch.join("mixtures");
    fs::create_dir(&mixtures).unwrap();
    traces.extend(traces::write_all(&mixtures, 6));
    let mut runs = Vec::new();
    for (at, trace) in traces.iter().enumerate() {
        // Some are runs already.
        let mut files = fs::read_dir(trace).into_iter().flatten().map(|file| file.unwrap().path());
        runs.push(match files.any(|file| file.extension().is_some_and(|of| of == "tprof")) {
            true => trace.clone(),
            false => imported(trace, scratch, &format!("run-{at}")),
        });
    }
    let ranks = scratch.join("ranks");
    many_ranks(&imported(&traces[4], scratch, "one"), &ranks, 3).unwrap();
    runs.push(ranks);
    let sampled = scratch.join("sampled");
    fs::create_dir(&sampled).unwrap();
    sampled_rank(&sampled.join("rank-0.tprof"));
    runs.push(sampled);
    runs
}

/// A rank with what imported traces lack: CPU samples of Python, in steps, ranges, imports and a data
/// loader; a multiplication before the steps; counted events; launches of a graph; what a collective
/// chose, and its channels.
fn sampled_rank(path: &Path) {
    const START: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;
    let header = TraceHeader {
        rank: Some(0),
        start_ns: START,
        start_unix_ns: START,
        ..TraceHeader::default()
    };
    let mut writer = TraceWriter::create(path, &header).unwrap();
    let command = writer.name("python3 train.py");
    writer.process(&Process {
        process: 0,
        pid: 50,
        parent: 1,
        rank: Some(0),
        command,
        exe: NameId(0),
        start_ns: START,
        memory: MemoryRecording::Off,
    });
    writer.thread(&Thread { thread: 0, process: 0, tid: 50, start_ns: START });
    let frames = [
        ("main", "train.py"),
        ("_find_and_load", "<frozen importlib._bootstrap>"),
        ("<module>", "/usr/lib/python3/dist-packages/numpy/__init__.py"),
        ("_next_data", "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py"),
        ("read", ""),
    ];
    for (at, (function, file)) in frames.into_iter().enumerate() {
        let module = if file.is_empty() { "/usr/lib/libc.so.6" } else { "[python]" };
        let [function, file, module] = [function, file, module].map(|text| writer.name(text));
        let (address, line) = (at as u64 + 1, 7);
        writer.symbol(&Symbol { process: 0, address, depth: 0, function, file, line, module });
    }
    // Innermost first: an import, the program, its loader, a read of that.
    for (stack, frames) in [(1, vec![3, 2, 1]), (2, vec![1]), (3, vec![4, 1]), (4, vec![5, 4, 1])] {
        writer.stack(&Stack { process: 0, stack, end: 0, frames });
    }
    let (step, range, domain) = (writer.name("step"), writer.name("forward"), writer.name("rust"));
    let (event, algorithm, all_reduce) =
        (writer.name("page-faults"), writer.name("RING"), writer.name("all_reduce"));
    let (launch, kernel) =
        (writer.name("cudaGraphLaunch"), writer.name("ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
    let mut samples = Vec::new();
    let mut take = |at_ms: u64, stack, state| {
        let time_ns = START + at_ms * MS;
        samples.push(Sample {
            time_ns,
            stack,
            weight_ns: MS,
            state,
            cpu: Some(0),
            ..Sample::default()
        });
    };
    (1..50).for_each(|at| take(at, 1, ThreadState::Running));
    for at in 50..200 {
        match at % 4 {
            0 => take(at, 3, ThreadState::Running),
            1 => take(at, 4, ThreadState::Io),
            _ => take(at, 2, ThreadState::Running),
        }
    }
    writer.write(&mut samples).unwrap();
    let (mut spans, mut kernels, mut collectives, mut channels) = (vec![], vec![], vec![], vec![]);
    let mut events = Vec::new();
    let asked = [property::EVENTS, r#"{"cycles":null,"page-faults":null}"#];
    let [key, value] = asked.map(|text| writer.name(text));
    writer.property(Property { key, value });
    let counters = ["loss", counter::RSS_BYTES].map(|name| writer.name(name));
    for number in 0..14 {
        let at = START + (55 + 10 * number) * MS;
        writer.mark(Mark { time_ns: at, process: Some(0), name: step, kind: MarkKind::Step });
        for name in counters {
            let (time_ns, value) = (at + MS, 1.5);
            writer.counter(Counter { time_ns, process: Some(0), device: None, name, value });
        }
        let span = Span { start_ns: at, duration_ns: 4 * MS, ..Span::default() };
        spans.push(Span { kind: SpanKind::Nvtx, name: range, category: domain, ..span });
        let correlation = Some(number);
        spans.push(Span {
            kind: SpanKind::Runtime,
            duration_ns: MS,
            name: launch,
            correlation,
            start_ns: at + MS,
            ..span
        });
        for node in 0..2 {
            kernels.push(Kernel {
                start_ns: at + (2 + 2 * node) * MS,
                duration_ns: MS,
                stream: 7,
                name: kernel,
                correlation,
                graph: Some(1),
                graph_node: Some(node),
                grid: [8, 1, 1],
                block: [64, 1, 1],
                ..Kernel::default()
            });
        }
        collectives.push(Collective {
            start_ns: at + MS,
            duration_ns: Some(MS),
            thread: Some(0),
            name: all_reduce,
            communicator: Some(1),
            bytes: Some(4096),
            group_size: Some(2),
            stream: Some(7),
            correlation,
            algorithm: Some(algorithm),
            protocol: Some(algorithm),
            channels: Some(2),
            ..Collective::default()
        });
        channels.push(ChannelWork {
            start_ns: at + MS,
            duration_ns: MS,
            name: all_reduce,
            bytes: Some(64),
            ..ChannelWork::default()
        });
        events.push(EventSample {
            time_ns: at + MS,
            stack: 2,
            event,
            count: 10,
            ..EventSample::default()
        });
    }
    let [name, category, args] = [
        "cublasGemmEx",
        "cublas",
        r#"{"m":2,"n":3,"k":5,"batch":1,"transposed":"NN","a":"Half","b":"Half","c":"Half","flops":60}"#,
    ]
    .map(|text| writer.name(text));
    // Before the first step.
    let multiplied = Span { start_ns: START + 10 * MS, duration_ns: MS, ..Span::default() };
    spans.push(Span { kind: SpanKind::Other, name, category, args, ..multiplied });
    writer.write(&mut spans).unwrap();
    writer.write(&mut kernels).unwrap();
    writer.write(&mut collectives).unwrap();
    writer.write(&mut channels).unwrap();
    writer.write(&mut events).unwrap();
    writer.process_end(0, START + 210 * MS, ProcessEnd::Exited(0));
    writer.finish().unwrap();
}

/// Schemas of the code, by the names of their files.
fn made(runs: &[PathBuf]) -> BTreeMap<String, Value> {
    let mut tables: BTreeMap<&str, TablesSchema> = BTreeMap::new();
    for run in runs {
        let rank = RunDir::open(run).unwrap().files().iter().find_map(|file| file.rank);
        for options in variants(rank) {
            let kinds: Vec<_> = KINDS.iter().collect();
            let wanted = ReportRequest { reports: &[Kind::Summary, Kind::Memory], kinds: &kinds };
            let made = read_together(run, &wanted, &options, None).unwrap();
            for document in &made.documents {
                tables.entry(document.kind).or_default().see(&document.tables);
            }
            let held = snapshot::KIND.make(run, &options, None).unwrap();
            tables.entry(held.kind).or_default().see(&held.tables);
        }
        let side = |path| Side::read(path, &SideOptions::default()).unwrap();
        for other in [&runs[0], run] {
            let comparison = Comparison::of(side(run), side(other));
            tables.entry("diff").or_default().see(&comparison.tables);
        }
        let many = ManyRuns::of(vec![side(run), side(&runs[0])], &["a".to_owned(), "b".to_owned()]);
        tables.entry("compare").or_default().see(&many.tables);
    }
    assert_no_table_is_unseen(&tables);
    let kinds = REPORTS.into_iter().chain(KINDS.iter().map(|kind| kind.name));
    let mut schemas: BTreeMap<String, Value> = BTreeMap::new();
    schemas.insert("several".to_owned(), schema::several(kinds));
    for kind in REPORTS {
        schemas.insert(kind.to_owned(), schema::report(kind));
    }
    for (kind, tables) in tables {
        let made = match kind {
            "diff" => tables.comparison(),
            "compare" => tables.many_runs(),
            "snapshot" => tables.document(kind, "tprof ctl snapshot --json"),
            _ => tables.document(kind, &format!("tprof report {kind} --json")),
        };
        schemas.insert(kind.to_owned(), made);
    }
    schemas
}

/// What a person may ask for that changes which tables or columns there are.
fn variants(rank: Option<u32>) -> Vec<Options> {
    let data = || Options { data: true, ..Options::default() };
    vec![
        data(),
        Options { rank, ..data() },
        Options { lines: LineTables::Only, ..data() },
        Options { lines: LineTables::Too, ..data() },
        Options { hta: true, ..data() },
    ]
}

/// What makes a table, its key first.
const MAKERS: [&str; 7] =
    ["Table::new(", " gauges(", " costs(", " sequences(", " table(", "(functions(", " over_ranks("];

/// A table that the sources name and no run has would have no schema.
fn assert_no_table_is_unseen(tables: &BTreeMap<&str, TablesSchema>) {
    let seen: BTreeSet<&str> = tables.values().flat_map(|tables| tables.keys()).collect();
    let mut unseen = Vec::new();
    let mut folders = vec![root().join("crates/analyze/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = fs::read_to_string(&path).unwrap();
            let shipped = source.split("#[cfg(test)]").next().unwrap_or_default();
            let made = MAKERS.iter().flat_map(|maker| shipped.split(maker).skip(1));
            for place in made {
                let Some(key) = place.trim_start().strip_prefix('"') else { continue };
                let key = key.split('"').next().unwrap_or_default();
                if !seen.contains(key) {
                    unseen.push(format!("{key} ({})", path.display()));
                }
            }
        }
    }
    assert!(unseen.is_empty(), "no run of this test has: {}", unseen.join(", "));
}

fn file(name: &str) -> PathBuf {
    root().join("docs/schema").join(format!("{name}.json"))
}

fn schema_of(name: &str) -> Value {
    let path = file(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// JSON for people: what fits a line is on one.
fn pretty(value: &Value, indent: usize, to: &mut String) {
    const WIDTH: usize = 110;
    let short = value.to_string();
    if indent + short.len() <= WIDTH {
        *to += &short;
        return;
    }
    let pad = " ".repeat(indent + 2);
    let (open, close, members): (_, _, Vec<(String, &Value)>) = match value {
        Value::Object(all) => {
            ('{', '}', all.iter().map(|(key, value)| (format!("\"{key}\": "), value)).collect())
        }
        Value::Array(all) => ('[', ']', all.iter().map(|value| (String::new(), value)).collect()),
        _ => return *to += &short,
    };
    to.push(open);
    for (at, (key, value)) in members.into_iter().enumerate() {
        *to += if at == 0 { "\n" } else { ",\n" };
        *to += &pad;
        *to += &key;
        pretty(value, indent + 2, to);
    }
    to.push('\n');
    *to += &pad[2..];
    to.push(close);
}

/// Checks what is printed against a schema, which must be a right one itself.
struct Checked(BTreeMap<String, Validator>);

impl Checked {
    fn assert(&mut self, name: &str, printed: &Value) {
        let validator = self.0.entry(name.to_owned()).or_insert_with(|| {
            let mut schema = schema_of(name);
            if name == "several" {
                files_alone(&mut schema);
            }
            jsonschema::draft202012::meta::validate(&schema)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            jsonschema::draft202012::new(&schema).unwrap()
        });
        let wrong: Vec<String> = (validator.iter_errors(printed))
            .map(|error| {
                format!(
                    "{}: {}",
                    error.instance_path(),
                    error.to_string().chars().take(300).collect::<String>()
                )
            })
            .collect();
        assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    }

    /// All reports of a run as the program prints them.
    fn assert_reports(&mut self, run: &Path, more: &[&str]) {
        let printed = printed(&["report", "all", "--json"], &[run], more);
        for (kind, report) in printed["reports"].as_object().unwrap() {
            self.assert(kind, report);
        }
        self.assert("several", &printed);
    }
}

/// Replaces references to schemas of reports, which must be there, by what anything matches.
fn files_alone(several: &mut Value) {
    let kinds = several.pointer_mut("/properties/reports/properties").unwrap();
    for (kind, schema) in kinds.as_object_mut().unwrap() {
        assert_eq!(schema["$ref"], format!("{kind}.json"));
        assert!(file(kind).exists(), "{kind}");
        *schema = true.into();
    }
}

fn printed(words: &[&str], runs: &[&Path], more: &[&str]) -> Value {
    let job = tprof(words.iter().copied()).args(runs).args(more);
    let text = job.run_in(env::temp_dir()).expect_code(0).stdout;
    serde_json::from_str(&text).unwrap()
}

#[test]
fn schemas_are_those_of_the_code() {
    let scratch = Scratch::new();
    let runs = corpus(&scratch);
    for (name, schema) in made(&runs) {
        let mut text = String::new();
        pretty(&schema, 0, &mut text);
        text.push('\n');
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(file(&name).parent().unwrap()).unwrap();
            fs::write(file(&name), &text).unwrap();
        }
        let kept = fs::read_to_string(file(&name)).unwrap_or_default();
        assert!(kept == text, "docs/schema/{name}.json: UPDATE_GOLDEN=1 writes it anew");
    }
}

#[test]
fn what_is_printed_of_traces_keeps_to_the_schemas() {
    let scratch = Scratch::new();
    let runs = corpus(&scratch);
    let mut checked = Checked(BTreeMap::new());
    for run in &runs {
        checked.assert_reports(run, &[]);
        checked.assert("diff", &printed(&["diff", "--json"], &[&runs[0], run], &[]));
        checked.assert("compare", &printed(&["compare", "--json"], &[&runs[0], run, run], &[]));
    }
    for more in [["--hta"].as_slice(), &["--rank", "0"], &["--lines"], &["--top", "1"]] {
        checked.assert_reports(&runs[runs.len() - 1], more);
    }
    checked.assert("ls", &printed(&["ls", "--json"], &[scratch.path()], &[]));
}

/// Samples, memory, steps, spans and counters of a program, and a process that is killed.
const PROGRAM: &str = "
import os, tprof, time
kept = []
for step in range(12):
    tprof.step(step)
    tprof.counter('loss', float('nan') if step == 3 else 1.0 / (step + 1))
    tprof.counter('tokens', 512 * step)
    with tprof.range('forward'):
        kept.append(bytearray(1 << 20))
        sum(i * i for i in range(60_000))
    time.sleep(0.002)
tprof.mark('done')
if os.fork() == 0:
    os.kill(os.getpid(), 9)
os.wait()
";

#[test]
fn what_is_printed_of_real_runs_keeps_to_the_schemas() {
    need!(Path::new("/usr/bin/python3").exists(), "there is no /usr/bin/python3");
    let module = root().join("python");
    let job = Job::new("/usr/bin/python3").args(["-B", "-c", PROGRAM]).env("PYTHONPATH", module);
    let mut checked = Checked(BTreeMap::new());
    let mut runs = Vec::new();
    let scratches = [Scratch::new(), Scratch::new(), Scratch::new()];
    for (mode, scratch) in
        [EXACT, &["--mem", "sampled"], &["--mem", "off"]].into_iter().zip(&scratches)
    {
        let run = traced(&job, mode, scratch).run;
        checked.assert_reports(&run, &[]);
        checked.assert("ls", &printed(&["ls", "--json"], &[scratch.path()], &[]));
        runs.push(run);
    }
    for other in &runs {
        checked.assert("diff", &printed(&["diff", "--json"], &[&runs[0], other], &[]));
    }
    for more in [["--lines"].as_slice(), &["--mine"], &["--thread", "main"]] {
        checked.assert("cpu", &printed(&["report", "cpu", "--json"], &[&runs[0]], more));
    }
}

#[test]
fn a_member_without_a_schema_fails() {
    let mut steps = schema_of("steps");
    let row = steps.pointer_mut("/properties/tables/properties/steps/items/properties").unwrap();
    assert!(row.as_object_mut().unwrap().remove("duration_ns").is_some());
    let scratch = Scratch::new();
    let trace = scratch.join("trace.json");
    foreign::first_kineto(3).write(&trace);
    let printed = printed(&["report", "steps", "--json"], &[&trace], &[]);
    assert!(jsonschema::draft202012::new(&schema_of("steps")).unwrap().is_valid(&printed));
    assert!(!jsonschema::draft202012::new(&steps).unwrap().is_valid(&printed));
}
