//! All printed JSON conforms to the schema that `tprof report --schema` prints. The schema is made
//! from a list of tables, which must match the tables in the code; `UPDATE_GOLDEN=1` rewrites the
//! list.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::{Value, json};
use tprof_analyze::{KINDS, Kind, ReportRequest, document, make_reports};
use tprof_diff::{Comparison, ManyRuns, Side, SideOptions};
use tprof_document::{LineTables, Options};
use tprof_metrics::memory::snapshot;
use tprof_schema::TableList;
use tprof_trace::model::*;
use tprof_trace::{RunDir, TraceHeader, TraceWriter};

use jsonschema::Validator;
use tprof_tests::{EXACT, Job, Scratch, foreign, many_ranks, need, tprof, traced};

use tprof_fixture::job::SimulatedJob;

use crate::agree::traces;
use crate::{hosts, pipeline};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn imported(trace: &Path, scratch: &Scratch, name: &str) -> PathBuf {
    let run = scratch.join(name);
    let job = tprof(["import"]).arg(trace).arg("-o").arg(&run);
    job.run_in(scratch.path()).expect_code(0);
    run
}

/// Returns runs that together have every table.
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
        // Some of the inputs are runs already.
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
    let hosts = scratch.join("hosts");
    SimulatedJob { steps: 10, late: Some((1, 5_000_000)), ..hosts::job() }.write(&hosts).unwrap();
    runs.push(hosts);
    let pipeline = scratch.join("pipeline");
    pipeline::job().write(&pipeline).unwrap();
    runs.push(pipeline);
    runs
}

/// Writes a rank with events that imported traces lack: CPU samples of Python, in steps, ranges,
/// imports and a data loader; a multiplication before the steps; counted events; launches of a graph;
/// the choices of a collective, its channels and connections; bytes of the network.
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
    // Frames are innermost first: an import, the program, its loader, and a read of the loader.
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
    let facts = r#"{"traffic":null,"traffic_every_ms":100,"line_rates":{"eth0":1000000000}}"#;
    let [key, value] = [property::MACHINE, facts].map(|text| writer.name(text));
    writer.property(Property { key, value });
    for quantity in [counter::NETWORK_RECEIVED_BYTES, counter::NETWORK_SENT_BYTES] {
        let name = writer.name(&format!("{quantity}{}eth0", counter::PLACE));
        for (time_ns, value) in [(START, 0.0), (START + 200 * MS, 1e6)] {
            writer.counter(Counter { time_ns, process: None, device: None, name, value });
        }
    }
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
    stalls(&mut writer, START + MS);
    // A file by which ranks share memory.
    let (file, kind) = (writer.name("/dev/shm/nccl-1"), FileKind::Device);
    let mapped =
        FileCalls { file, kind, operation: FileOperation::Map, calls: 1, ..FileCalls::default() };
    writer.write(&mut vec![FileCalls { start_ns: START + MS, ..mapped }]).unwrap();
    let transport = writer.name("NET/IB/0/GDRDMA");
    let connection = Connection { sends: true, transport, channels: 2, ..Connection::default() };
    writer.write(&mut vec![connection]).unwrap();
    writer.write(&mut collectives).unwrap();
    writer.write(&mut channels).unwrap();
    writer.write(&mut events).unwrap();
    writer.process_end(0, START + 210 * MS, ProcessEnd::Exited(0));
    writer.finish().unwrap();
}

/// Writes samples of a kernel's instructions: at a source line, and at an instruction without one.
fn stalls(writer: &mut TraceWriter, time_ns: u64) {
    let names = ["sampled_kernel", "smsp__pcsamp_warps_issue_stalled_wait", "/src/kernel.py"];
    let [kernel, reason, file] = names.map(|name| writer.name(name));
    let row = KernelStall { time_ns, kernel, reason, samples: 3, ..KernelStall::default() };
    let mut rows = vec![row, KernelStall { file, line: 7, ..row }];
    writer.write(&mut rows).unwrap();
    let sampled = json!({
        "process": 0, "device": 0, "context": 1, "period_cycles": 1024, "total": 8, "dropped": 1,
        "other": 1, "recorded": 6, "buffer_full": 0,
    });
    let [key, value] = [property::PC_SAMPLING, &sampled.to_string()].map(|text| writer.name(text));
    writer.property(Property { key, value });
}

/// Returns all tables that the runs have.
fn made(runs: &[PathBuf]) -> TableList {
    let mut list = TableList::default();
    for run in runs {
        let rank = RunDir::open(run).unwrap().files().iter().find_map(|file| file.rank);
        for options in variants(rank) {
            let kinds: Vec<_> = KINDS.iter().collect();
            let wanted = ReportRequest { reports: &[Kind::Summary, Kind::Memory], kinds: &kinds };
            let made = make_reports(run, &wanted, &options, None).unwrap();
            for document in &made.documents {
                list.see(document.kind, &document.tables);
            }
            let held = document(&snapshot::KIND, run, &options, None).unwrap();
            list.see(held.kind, &held.tables);
        }
        let side = |path| Side::read(path, &SideOptions::default()).unwrap();
        for other in [&runs[0], run] {
            list.see("diff", &Comparison::of(side(run), side(other)).tables);
        }
        let many = ManyRuns::of(vec![side(run), side(&runs[0])], &["a".to_owned(), "b".to_owned()]);
        list.see("compare", &many.tables);
    }
    assert_no_table_is_unseen(&list);
    list
}

/// Returns the options that change which tables or columns there are.
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

/// Functions that make a table, with its key as first argument.
const MAKERS: [&str; 7] =
    ["Table::new(", " gauges(", " costs(", " sequences(", " table(", "(functions(", " over_ranks("];

/// Checks that every table in the sources is in some run, because the list would lack it otherwise.
fn assert_no_table_is_unseen(list: &TableList) {
    let seen: BTreeSet<&str> = list.tables().collect();
    let mut unseen = Vec::new();
    let crates = ["document", "metrics", "findings", "analyze", "diff"];
    let mut folders: Vec<_> =
        crates.iter().map(|name| root().join("crates").join(name).join("src")).collect();
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

/// Returns the schema that the program prints.
fn schema() -> Value {
    printed(&["report", "--schema"], &[], &[])
}

/// Checks documents against the schema, and the schema against the rules of JSON Schema.
struct Checked(Value);

impl Checked {
    fn new() -> Checked {
        let schema = schema();
        jsonschema::draft202012::meta::validate(&schema).unwrap();
        assert!(jsonschema::draft202012::new(&schema).is_ok());
        Checked(schema)
    }

    /// Returns the validator of one of the definitions.
    fn validator(&self, name: &str) -> Validator {
        let (draft, definitions) = (&self.0["$schema"], &self.0["$defs"]);
        assert!(definitions[name].is_object(), "{name}");
        let schema = json!({
            "$schema": draft, "$ref": format!("#/$defs/{name}"), "$defs": definitions,
        });
        jsonschema::draft202012::new(&schema).unwrap()
    }

    fn assert(&self, name: &str, printed: &Value) {
        let wrong: Vec<String> = (self.validator(name).iter_errors(printed))
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

    /// Checks all reports of a run as the program prints them.
    fn assert_reports(&self, run: &Path, more: &[&str]) {
        let printed = printed(&["report", "all", "--json"], &[run], more);
        for (kind, report) in printed["reports"].as_object().unwrap() {
            self.assert(kind, report);
        }
        self.assert("several", &printed);
    }
}

fn printed(words: &[&str], runs: &[&Path], more: &[&str]) -> Value {
    let job = tprof(words.iter().copied()).args(runs).args(more);
    let text = job.run_in(env::temp_dir()).expect_code(0).stdout;
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_list_of_tables_matches_the_code() {
    let scratch = Scratch::new();
    let text = made(&corpus(&scratch)).text();
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(TableList::FILE, &text).unwrap();
    }
    let kept = fs::read_to_string(TableList::FILE).unwrap();
    assert!(kept == text, "other tables or columns: UPDATE_GOLDEN=1 writes {}", TableList::FILE);
}

#[test]
fn documents_of_traces_conform_to_the_schemas() {
    let scratch = Scratch::new();
    let runs = corpus(&scratch);
    let checked = Checked::new();
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

/// A program with samples, memory, steps, spans and counters, and a process that is killed.
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
fn documents_of_real_runs_conform_to_the_schemas() {
    need!(Path::new("/usr/bin/python3").exists(), "there is no /usr/bin/python3");
    let module = root().join("python");
    let job = Job::new("/usr/bin/python3").args(["-B", "-c", PROGRAM]).env("PYTHONPATH", module);
    let checked = Checked::new();
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
    let scratch = Scratch::new();
    let trace = scratch.join("trace.json");
    foreign::first_kineto(3).write(&trace);
    let printed = printed(&["report", "steps", "--json"], &[&trace], &[]);
    let mut checked = Checked::new();
    assert!(checked.validator("steps").is_valid(&printed));
    let row = "/$defs/steps/properties/tables/properties/steps/items/properties";
    let row = checked.0.pointer_mut(row).unwrap().as_object_mut().unwrap();
    assert!(row.remove("duration_ns").is_some());
    assert!(!checked.validator("steps").is_valid(&printed));
}
