//! Tests the reader of compile logs with logs of `scripts/compile/job.py` that three versions of
//! PyTorch wrote. The job has two graph breaks, three recompilations of one function and one of
//! another.

use std::io::Read;
use std::path::PathBuf;
use tprof_trace::compile_log::{
    Bounds, CacheOutcome, CompileLog, EventUse, GraphStage, KernelLanguage, open, process_of,
};

const VERSIONS: [&str; 3] = ["2.15", "2.8", "2.4"];

fn path(version: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/compile/torch-{version}.log.zst"))
}

fn log(version: &str) -> CompileLog {
    open(&path(version), Bounds::default()).unwrap()
}

fn read(text: &[u8]) -> CompileLog {
    tprof_trace::compile_log::read(text, Bounds::default()).unwrap()
}

fn text(version: &str) -> Vec<u8> {
    let mut text = Vec::new();
    let file = std::fs::File::open(path(version)).unwrap();
    zstd::stream::read::Decoder::new(file).unwrap().read_to_end(&mut text).unwrap();
    text
}

fn function_of(log: &CompileLog, id: tprof_trace::compile_log::CompileId) -> &str {
    let frame = log.frames.iter().find(|frame| frame.id == id && !frame.is_backward).unwrap();
    frame.function.as_deref().unwrap()
}

#[test]
fn every_line_and_event_of_each_version_is_known() {
    for version in VERSIONS {
        let log = log(version);
        let unknown: Vec<_> =
            log.events.iter().filter(|(_, row)| row.usage == EventUse::Unknown).collect();
        assert!(unknown.is_empty(), "{version}: {unknown:?}");
        assert_eq!((log.damaged, log.is_cut, log.bytes_not_kept), (0, false, 0), "{version}");
        assert_eq!(log.bytes, text(version).len() as u64, "{version}");
        let of_events: u64 = log.events.values().map(|row| row.bytes).sum();
        assert_eq!(of_events, log.bytes, "{version}");
        assert_eq!(process_of(&path(version)), log.pid);
        assert_eq!(log.pid.is_some(), version != "2.4");
    }
}

#[test]
fn functions_are_compiled_with_their_time_by_phase() {
    for version in VERSIONS {
        let log = log(version);
        let forward: Vec<_> = log.frames.iter().filter(|frame| !frame.is_backward).collect();
        let ids: Vec<String> = forward.iter().map(|frame| frame.id.to_string()).collect();
        let all = ["0/0", "1/0", "2/0", "3/0", "3/1", "3/2", "3/3", "4/0", "4/1"];
        assert_eq!(ids, all, "{version}");
        assert_eq!(forward[3].function.as_deref(), Some("recompiles"));
        assert!(forward[3].file.as_deref().unwrap().ends_with("job.py"));
        for frame in &log.frames {
            let phases = frame.phases;
            let parts = [phases.dynamo_us, phases.aot_us, phases.inductor_us, phases.kernels_us];
            let total = frame.total_us.unwrap();
            assert_eq!(parts.into_iter().flatten().sum::<u64>(), total, "{version} {frame:?}");
            let (first, last) = log.extent_unix_us.unwrap();
            let start = frame.start_unix_us.unwrap();
            assert!(first <= start && start + total <= last + 1_000_000, "{version} {frame:?}");
        }
    }
}

#[test]
fn both_graph_breaks_have_their_source_lines() {
    for version in VERSIONS {
        let log = log(version);
        let lines: Vec<_> = log.graph_breaks.iter().map(|one| one.line.unwrap()).collect();
        assert_eq!(lines, [14, 16], "{version}");
        assert!(
            log.graph_breaks.iter().all(|one| one.file.as_deref().unwrap().ends_with("job.py"))
        );
        let reasons: Vec<_> = log.graph_breaks.iter().map(|one| one.reason.as_deref()).collect();
        match version {
            "2.4" => assert_eq!(reasons, [None, None]),
            _ => {
                let call = "Call to `torch._dynamo.graph_break()`";
                assert_eq!(reasons, [Some("Data-dependent branching"), Some(call)]);
                assert!(log.graph_breaks.iter().all(|one| !one.hints.is_empty()));
            }
        }
    }
}

#[test]
fn recompilations_have_the_guard_that_failed() {
    for version in VERSIONS {
        let log = log(version);
        let functions: Vec<_> =
            log.recompiled.iter().map(|one| function_of(&log, one.id)).collect();
        assert_eq!(functions, ["recompiles", "recompiles", "recompiles", "forward"], "{version}");
        let first = |at: usize| log.recompiled[at].reasons.first().map_or("", String::as_str);
        if version != "2.4" {
            assert_eq!(first(0), "3/0: tensor 'x' size mismatch at index 0. expected 4, actual 8");
            assert!(first(1).starts_with("3/1: option == 'double'"), "{}", first(1));
            assert_eq!(first(2), "3/2: tensor 'x' dtype mismatch. expected Float, actual Double");
            assert_eq!(first(3), "4/0: tensor 'x' size mismatch at index 0. expected 4, actual 6");
        }
    }
}

#[test]
fn caches_kernels_and_operators_are_found() {
    let outcomes = |version: &str, wanted| {
        log(version).caches.iter().filter(|one| one.outcome == wanted).count()
    };
    assert_eq!((outcomes("2.15", CacheOutcome::Miss), outcomes("2.8", CacheOutcome::Hit)), (0, 0));
    assert!(outcomes("2.15", CacheOutcome::Hit) >= 18 && outcomes("2.8", CacheOutcome::Miss) >= 18);
    for version in VERSIONS {
        let log = log(version);
        let kernels = || log.code.iter().filter_map(|code| code.kernels.as_ref()).flatten();
        assert_eq!(log.code.len(), 11, "{version}");
        let of = |language| kernels().filter(|kernel| kernel.language == language).count();
        assert!(of(KernelLanguage::Cpp) >= 9 && of(KernelLanguage::Extern) >= 4, "{version}");
        let traced = log
            .graphs
            .iter()
            .find(|(id, stage, _)| id.to_string() == "0/0" && *stage == GraphStage::Traced);
        assert_eq!(traced.unwrap().2.values().sum::<u64>(), 3, "{version}: {traced:?}");
        // Both multiplications of the model are on the same line of the job.
        let addmm: Vec<_> = kernels().filter(|kernel| kernel.name.ends_with(".addmm")).collect();
        assert!(
            addmm.iter().all(|one| one.sources == ["/tmp/tprof-compile/job.py:32"]),
            "{addmm:?}"
        );
        assert!(!addmm.is_empty());
    }
}

#[test]
fn an_incomplete_log_is_read_up_to_its_last_line() {
    let text = text("2.8");
    // The first half of a log, as a killed process leaves it. It ends within a line.
    let half = read(&text[..text.len() / 2]);
    assert!(half.is_cut && half.damaged == 0, "{} {}", half.is_cut, half.damaged);
    assert!(!half.frames.is_empty() && half.frames.len() < log("2.8").frames.len());
    assert!(half.extent_unix_us.is_some());
    // A hole stands for the text that the run didn't store. After it come the lines that the job
    // wrote later.
    let mut holed = text[..20_000].to_vec();
    holed.resize(70_000, 0);
    holed.extend_from_slice(&text[70_000..]);
    let holed = read(&holed);
    assert!(holed.bytes_not_kept >= 50_000, "{}", holed.bytes_not_kept);
    assert!(!holed.frames.is_empty());
    let mut noisy = b"Traceback (most recent call last):\n\tx\nV1\n{}\n".to_vec();
    noisy.extend_from_slice(&text);
    noisy.extend_from_slice(b"tprof: bytes not kept: 77\n");
    let noisy = read(&noisy);
    assert!(noisy.damaged >= 3, "{}", noisy.damaged);
    assert_eq!((noisy.bytes_not_kept, noisy.frames.len()), (77, log("2.8").frames.len()));
}

#[test]
fn content_beyond_a_bound_is_left_out_and_counted() {
    let (text, all) = (text("2.8"), log("2.8"));
    assert_eq!((all.left_out.count(), all.is_read_in_part), (0, false));
    for kept in [0, 1 << 10, 4 << 10, 16 << 10, all.kept_bytes / 2] {
        let bounds = Bounds { kept, ..Bounds::default() };
        let log = tprof_trace::compile_log::read(&*text, bounds).unwrap();
        assert!(log.kept_bytes <= kept, "{} of {kept}", log.kept_bytes);
        let rows = |log: &CompileLog| {
            log.frames.len() + log.graph_breaks.len() + log.recompiled.len() + log.caches.len()
        };
        assert!(log.left_out.rows > 0 && rows(&log) < rows(&all), "{:?}", log.left_out);
        // These facts take no memory, so the bound doesn't affect them.
        assert_eq!((&log.events, log.bytes, log.damaged), (&all.events, all.bytes, 0));
    }
}

#[test]
fn a_text_is_read_up_to_its_bound() {
    // 4 MiB of text in a few compressed kilobytes.
    let line = "V1122 08:36:34.041000 7 a.py:1] {\"str\": [\"a\", 0]}\n";
    let whole = line.repeat((4 << 20) / line.len());
    let packed = zstd::encode_all(whole.as_bytes(), 3).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), packed).unwrap();
    let read = |text: u64| open(file.path(), Bounds { text, ..Bounds::default() }).unwrap();
    let part = read(1 << 20);
    assert_eq!((part.bytes, part.is_read_in_part, part.is_cut), (1 << 20, true, false));
    assert_eq!((part.events["str"].count, part.damaged), ((1 << 20) / line.len() as u64, 0));
    let all = read(whole.len() as u64);
    assert_eq!((all.bytes, all.is_read_in_part), (whole.len() as u64, false));
}

#[test]
fn lists_of_a_hostile_log_are_bounded_and_counted() {
    let line = "V1122 08:36:34.041000 7 a.py:1] ";
    let many = "\"x\",".repeat(1000);
    let stack = "{\"line\": 1},".repeat(1000);
    let text = format!(
        "{line}{{\"dynamo_start\": {{\"stack\": [{stack}{{\"line\": 9, \"name\": \"f\"}}]}}, \"frame_id\": 0}}\n\
         {line}{{\"compilation_metrics\": {{\"restart_reasons\": [{many}\"x\"]}}, \"frame_id\": 0}}\n\
         {line}{{\"artifact\": {{\"name\": \"recompile_reasons\"}}, \"has_payload\": \"0\"}}\n\t[{many}\"x\"]\n\
         {line}{{\"dynamo_output_graph\": {{}}, \"has_payload\": \"0\"}}\n{}\
         {line}{{\"inductor_output_code\": {{}}, \"has_payload\": \"0\"}}\n{}\
         tprof: bytes not kept: 18446744073709551615\ntprof: bytes not kept: 7\n\0\0\0\n",
        (0..11_000).map(|at| format!("\ty = x.f{at}()\n")).collect::<String>(),
        "\ta = async_compile.triton(\n".repeat(20_001),
    );
    let log = read(text.as_bytes());
    let frame = &log.frames[0];
    assert_eq!((frame.line, frame.function.as_deref()), (Some(9), Some("f")));
    assert_eq!((frame.restart_reasons.len(), log.recompiled[0].reasons.len()), (64, 64));
    // Calls beyond the maximum number of names are counted as well.
    let operators = &log.graphs[0].2;
    assert_eq!((operators.len(), operators["(others)"]), (10_001, 1000));
    // The code was cut, so its number of kernels is unknown.
    assert_eq!(log.code[0].kernels, None);
    assert_eq!((log.left_out.parts, log.left_out.rows), (937 * 2 + 20_001, 0));
    assert_eq!(log.bytes_not_kept, u64::MAX);
}

/// Returns the log lines at the beginning and the end of each compilation. The lines are 0.1 s
/// apart.
fn compilations(of: &[(&str, u32, u32, &str)]) -> String {
    let line = |at: usize, json: String| {
        format!("V1122 08:36:{:02}.{}00000 7 a.py:1] {json}\n", at / 10, at % 10)
    };
    let mut text = String::new();
    for (at, (function, frame, compile, figures)) in of.iter().enumerate() {
        let id = format!("\"frame_id\": {frame}, \"frame_compile_id\": {compile}, \"attempt\": 0");
        if *compile > 0 {
            let reasons = format!(
                "{{\"artifact\": {{\"name\": \"recompile_reasons\"}}, {id}, \"has_payload\": \"0\"}}"
            );
            text += &line(2 * at, reasons);
            text += &format!("\t[\"{frame}/{}: size of {function}\"]\n", compile - 1);
        }
        text += &line(2 * at, format!("{{\"dynamo_start\": {{\"stack\": []}}, {id}}}"));
        let metrics = format!("\"co_name\": \"{function}\", \"co_firstlineno\": 3, {figures}");
        text += &line(2 * at + 1, format!("{{\"compilation_metrics\": {{{metrics}}}, {id}}}"));
    }
    text
}

#[test]
fn reused_numbers_are_different_compilations() {
    let took = "\"duration_us\": 5000";
    let text = compilations(&[
        ("f", 0, 0, took),
        ("f", 0, 1, took),
        ("g", 1, 0, took),
        // This compilation comes after `torch._dynamo.reset()`.
        ("g", 0, 0, took),
        ("f", 1, 0, took),
        ("f", 1, 1, took),
        // The recompilations of this function are isolated, so it reuses a number too.
        ("f", 1, 0, took),
        ("f", 1, 1, took),
    ]);
    let log = read(text.as_bytes());
    let ids: Vec<String> = log.frames.iter().map(|frame| frame.id.to_string()).collect();
    assert_eq!(ids, ["0/0", "0/1", "1/0", "0/0#2", "1/0#2", "1/1", "1/0#3", "1/1#2"]);
    assert!(log.frames.iter().all(|frame| (frame.total_us, frame.attempts) == (Some(5000), 1)));
    let again: Vec<_> = log
        .recompiled
        .iter()
        .map(|one| (one.id.to_string(), function_of(&log, one.id), one.reasons[0].as_str()))
        .collect();
    let expected = [("0/1", "0/0"), ("1/1", "1/0"), ("1/1#2", "1/0")];
    let expected = expected.map(|(id, of)| (id.to_owned(), "f", format!("{of}: size of f")));
    assert!(again.iter().zip(&expected).all(|(a, b)| (&a.0, a.1, a.2) == (&b.0, b.1, &b.2)));
    assert_eq!(again.len(), 3);
}

#[test]
fn two_logs_in_one_file_have_twice_as_many_compilations() {
    for version in VERSIONS {
        let (text, once) = (text(version), log(version));
        let twice = read(&[&text[..], &text[..]].concat());
        let total =
            |log: &CompileLog| log.frames.iter().filter_map(|one| one.total_us).sum::<u64>();
        assert_eq!(total(&twice), 2 * total(&once), "{version}");
        assert_eq!(twice.frames.len(), 2 * once.frames.len(), "{version}");
        assert_eq!(twice.recompiled.len(), 2 * once.recompiled.len(), "{version}");
        let mut ids: Vec<_> = twice.recompiled.iter().map(|one| one.id).collect();
        ids.dedup();
        assert_eq!(ids.len(), twice.recompiled.len(), "{version}");
    }
}

#[test]
fn each_part_of_a_split_graph_has_its_backward_graph() {
    let mut text = compilations(&[("f", 0, 0, "\"duration_us\": 5000")]);
    for us in [100, 200, 300] {
        text += &format!(
            "V1122 08:36:40.000000 7 a.py:1] {{\"bwd_compilation_metrics\": {{\"duration_us\": {us}, \
             \"is_forward\": false}}, \"frame_id\": 0, \"frame_compile_id\": 0}}\n"
        );
    }
    let log = read(text.as_bytes());
    let rows: Vec<_> = log.frames.iter().map(|one| (one.is_backward, one.total_us)).collect();
    let expected = [(false, 5000), (true, 100), (true, 200), (true, 300)];
    assert_eq!(rows, expected.map(|(is_backward, us)| (is_backward, Some(us))));
}

#[test]
fn the_duration_is_found_in_the_field_of_each_version() {
    let start = 1_763_800_594_000_000_u64;
    let text = compilations(&[
        (
            "a",
            0,
            0,
            "\"dynamo_cumulative_compile_time_us\": 1650000, \"aot_autograd_cumulative_compile_time_us\": 1300000, \"inductor_cumulative_compile_time_us\": 700000",
        ),
        (
            "b",
            1,
            0,
            "\"entire_frame_compile_time_s\": 0.5, \"dynamo_cumulative_compile_time_us\": 400000",
        ),
        ("c", 2, 0, &format!("\"start_time_us\": {start}, \"end_time_us\": {}", start + 70)),
        ("d", 3, 0, "\"duration_us\": null, \"guard_count\": 4"),
    ]);
    let log = read(text.as_bytes());
    let times: Vec<_> = log.frames.iter().map(|one| one.total_us).collect();
    assert_eq!(times, [Some(1_650_000), Some(500_000), Some(70), None]);
    let phases = log.frames[0].phases;
    let parts = [phases.dynamo_us, phases.aot_us, phases.inductor_us, phases.kernels_us];
    assert_eq!(parts, [Some(350_000), Some(600_000), Some(700_000), None]);
    assert!(log.frames.iter().all(|one| one.is_ended));
    // A frame without a duration ends when its metrics were written.
    let last = &log.frames[3];
    assert_eq!(last.end_unix_us.unwrap() - last.start_unix_us.unwrap(), 100_000);
    let cut = text.rsplit_once("V1122").unwrap().0;
    assert!(!read(cut.as_bytes()).frames[3].is_ended);
}

#[test]
fn a_run_of_compiled_code_is_not_a_compilation() {
    let event = "bwd_compilation_metrics_runtime";
    let line = format!(
        "V1122 08:36:34.041000 7 a.py:1] {{\"{event}\": {{\"runtime_cudagraphify_time_us\": 5, \
         \"is_runtime\": true}}, \"frame_id\": 0, \"frame_compile_id\": 0}}\n"
    );
    let log = read(line.as_bytes());
    assert_eq!((log.events[event].count, log.frames.len()), (1, 0), "{log:?}");
}

#[test]
fn unknown_events_are_counted_by_name() {
    let line = "V1122 08:36:34.041000 7 a.py:1] ";
    let text = format!(
        "{line}{{\"quantum_graph\": {{\"x\": [1]}}, \"has_payload\": \"0\"}}\n\tpayload\n\
         {line}{{\"frame_id\": 1}}\n{line}{{\"dynamo_start\": {{\"stack\": null}}, \"rank\": 3}}\n"
    );
    let log = read(text.as_bytes());
    let row = &log.events["quantum_graph"];
    assert_eq!((row.usage, row.count, row.bytes > 60), (EventUse::Unknown, 1, true));
    assert_eq!((log.damaged, log.rank, log.frames.len()), (1, Some(3), 1));
    // No event in this log shows the year of its prefixes.
    assert_eq!((log.extent_unix_us, log.frames[0].start_unix_us), (None, None));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(
        cuts in proptest::collection::vec((0_usize..100_000, 0_u8..=255), 0..40),
        length in 0_usize..100_000,
    ) {
        let mut text = text("2.4");
        for (at, byte) in cuts {
            if let Some(there) = text.get_mut(at) {
                *there = byte;
            }
        }
        text.truncate(length);
        let log = read(&text);
        proptest::prop_assert_eq!(log.bytes, text.len() as u64);
        let of_events: u64 = log.events.values().map(|row| row.bytes).sum();
        proptest::prop_assert!(of_events <= log.bytes);
    }
}
