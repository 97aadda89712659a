//! Tests importing damaged and hostile traces. The result is an error that names the place, or a
//! count of the parts that were skipped. No trace causes a panic or exceeds the memory bound.

use crate::common::*;
use tprof_import::{ImportError, Options};
use tprof_trace::model::*;

const SPAN: &str = r#"{"ph":"X","cat":"cpu_op","name":"fine","pid":1,"tid":1,"ts":5,"dur":2}"#;

/// Imports an event between two good ones, which must both be in the run.
fn between(event: &str) -> Run {
    let run = import_events(&[SPAN, event, SPAN]);
    let spans = run.rows::<Span>();
    let good = spans.iter().filter(|span| run.name(span.name) == "fine").count();
    assert_eq!(good, 2, "{event}");
    run
}

#[track_caller]
fn refused(text: &[u8]) -> (u64, String) {
    match import_text(text) {
        Err(ImportError::NotATrace { offset, why, .. }) => (offset, why),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was imported"),
    }
}

#[test]
fn files_that_are_not_traces_are_refused_with_the_place() {
    assert_eq!(refused(b""), (0, "the file is empty".to_owned()));
    assert_eq!(refused(b"  hello").0, 2);
    assert_eq!(refused(b"{\"a\": 1}").1, "it has no list `traceEvents`");
    assert_eq!(refused(b"{\"a\": 1 2}").0, 8);
    assert_eq!(refused(b"{\"a\"").0, 1);
    assert_eq!(refused(b"[{\"ph\":").1, "it ends within its first event");
    assert_eq!(refused(b"{\"traceEvents\": [").1, "it ends before its first event");
    let no_event = "its list has no event, that is, no object with `ph`";
    for list in ["[1,2,3]", "[]", "[{}]", "[{\"id\": 1, \"name\": \"an issue\"}, 2]"] {
        assert_eq!(refused(list.as_bytes()).1, no_event, "{list}");
    }
    assert_eq!(refused(b"{\"traceEvents\": null}").1, "it has no list `traceEvents`");
    assert!(refused(&[0x1f, 0x8b, 8, 0, 0]).1.contains("stream was cut off"));
    assert!(refused(&[0x1f, 0x8b, 0xff, 0, 0, 0, 0, 0, 0, 0]).1.contains("damaged"));
}

#[test]
fn events_without_a_required_member_are_counted() {
    let cases = [
        (r#"{"cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":5,"dur":2}"#, "no phase"),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"dur":2}"#, "no time"),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":NaN,"dur":2}"#, "no time"),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":"soon","dur":2}"#, "no time"),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":1e300,"dur":2}"#, "out of range"),
        (
            r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":99999999999999999999,"dur":2}"#,
            "out of range",
        ),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":-5,"dur":2}"#, "out of range"),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":-2}"#, "negative"),
        // An unknown value must not become 0, which would count in an average.
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":5}"#, "no duration"),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":null}"#, "no duration"),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":1e400}"#, "out of range"),
        (r#"{"ph":"Q","name":"a","pid":1,"tid":1,"ts":5}"#, "nothing describes"),
        (r#"{"ph":"E","pid":1,"tid":1,"ts":5}"#, "an end without a beginning"),
        (r#"{"ph":"B","name":"a","pid":1,"tid":1,"ts":5}"#, "a beginning without an end"),
        (r#"{"ph":"C","name":"a","pid":1,"ts":5,"args":{"v":"x"}}"#, "no number"),
        ("17", "no object"),
        ("[1, 2]", "no object"),
        ("null", "no object"),
    ];
    for (event, why) in cases {
        let run = between(event);
        assert_eq!(run.lost(why), 1, "{event}");
        assert_eq!(run.info.completeness.lost, 1, "{event}");
        assert_eq!(run.rows::<Span>().len(), 2, "{event}");
    }
}

#[test]
fn odd_events_are_imported_and_reported() {
    let cases = [
        (r#"{"ph":"X","name":"a","name":"b","pid":1,"tid":1,"ts":5,"dur":1}"#, "given twice"),
        (
            r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":1,"args":{"correlation":1,"correlation":2}}"#,
            "given twice",
        ),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":1,"args":[1]}"#, "no object"),
        (r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":1,"args":{"x":[1}}}"#, "not JSON"),
        (
            r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":5,"dur":1,"esf":3}"#,
            "not in the description",
        ),
        (r#"{"ph":"X","name":"C:\x","pid":1,"tid":1,"ts":5,"dur":1}"#, "they were replaced"),
    ];
    for (event, why) in cases {
        let run = between(event);
        assert_eq!(run.lost(why), 1, "{event}");
        assert_eq!(run.info.completeness.lost, 0, "{event}");
        assert_eq!(run.rows::<Span>().len(), 3, "{event}");
    }
}

#[test]
fn invalid_numbers_become_text() {
    let run = between(
        r#"{"ph":"X","name":"z","pid":1,"tid":1,"ts":9,"dur":1,"args":{"a":NaN,"b":-Infinity,"c":1e999}}"#,
    );
    let span = run.rows::<Span>()[2];
    assert_eq!(run.name(span.args), r#"{"a":"NaN","b":"-Infinity","c":"1e999"}"#);
}

#[test]
fn events_next_to_broken_events_are_imported() {
    for event in [
        r#"{"ph":"X","name":"an "unescaped" name","pid":1,"tid":1,"ts":5,"dur":1}"#,
        r#"{"ph":"X",,}"#,
        r#"{"ph" "X"}"#,
        r#"{'ph': 'X'}"#,
        r#"{"ph":"X","args":{"a" 1}}"#,
        r#"}"#,
        r#"oops"#,
    ] {
        let run = between(event);
        assert!(run.lost("not JSON") >= 1, "{event}");
        assert!(run.info.completeness.lost >= 1, "{event}");
    }
}

#[test]
fn names_may_contain_any_bytes() {
    let mut text = br#"[{"ph":"X","pid":1,"tid":1,"ts":5,"dur":1,"args":{"k":"\u0007"#.to_vec();
    text.extend_from_slice(b"\x01\xff\"},\"name\":\"a\x02b\xfe\"}]");
    let run = import_text(&text).unwrap();
    let span = run.rows::<Span>()[0];
    assert_eq!(run.name(span.name), "a\u{2}b\u{fffd}");
    let args: serde_json::Value = serde_json::from_str(run.name(span.args)).unwrap();
    assert_eq!(args["k"], "\u{7}\u{1}\u{fffd}");
    assert_eq!(run.lost("they were replaced"), 2);
}

#[test]
fn deep_nesting_is_skipped() {
    let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    let event = |value: &str| {
        format!(
            r#"{{"ph":"X","name":"a","pid":1,"tid":1,"ts":9,"dur":1,"args":{{"d":{value},"e":1}}}}"#
        )
    };
    let run = between(&event(&deep(60)));
    assert_eq!(run.lost("nested too deeply"), 0);
    let run = between(&event(&deep(1_000_000)));
    assert_eq!(run.lost("nested too deeply"), 1);
    assert_eq!(run.name(run.rows::<Span>()[2].args), r#"{"e":1}"#);
    // Deep values at the top level are skipped too, and so are values that are never closed.
    let text = format!("{{\"x\": {}, \"traceEvents\": [{SPAN}]}}", deep(1_000_000));
    assert_eq!(import_text(text.as_bytes()).unwrap().lost("not JSON"), 1);
    assert_eq!(refused("[".repeat(1 << 20).as_bytes()).0, 1);
}

#[test]
fn strings_of_ten_megabytes_are_cut() {
    let long = "x".repeat(10 << 20);
    let run = between(&format!(
        r#"{{"ph":"X","name":"{long}","pid":1,"tid":1,"ts":9,"dur":1,"args":{{"a":"{long}"}}}}"#
    ));
    let span = run.rows::<Span>()[2];
    assert_eq!(run.name(span.name).len(), 256 << 10);
    assert_eq!(run.name(span.args), "");
    assert_eq!(run.lost("longer than 256 KiB"), 2);
}

#[test]
fn an_event_that_is_too_long_is_skipped() {
    let long = "x".repeat(70 << 20);
    let run = between(&format!(r#"{{"ph":"X","args":{{"a":["}}{long}"]}}}}"#));
    assert_eq!(run.lost("longer than 64 MiB"), 1);
}

#[test]
fn a_trace_is_imported_up_to_where_it_is_cut_off() {
    let whole = format!("{{\"traceEvents\": [{}]}}", vec![SPAN; 1000].join(","));
    for cut in [whole.len() - 1, whole.len() - 2, whole.len() - 10, 5000, 100] {
        let run = import_text(&whole.as_bytes()[..cut]).unwrap();
        let spans = run.rows::<Span>().len();
        assert!(
            spans <= 1000 && spans + 1 >= cut.saturating_sub(18) / (SPAN.len() + 1),
            "{cut}: {spans}"
        );
        let losses = &run.info.completeness.losses;
        assert!(
            losses.iter().any(|loss| loss.why.contains("cut off") && loss.count == 0),
            "{losses:?}"
        );
        assert!(run.imported.notes[0].contains("cut off"));
    }
    let zipped = gzip(whole.as_bytes());
    let run = import_files(&[("a.json.gz", &zipped[..zipped.len() / 2])]).unwrap();
    check(&run);
    assert!(run.rows::<Span>().len() < 1000);
    assert!(run.imported.notes[0].contains("cut off"));
    // A bare list may lack its closing bracket, because the format permits that.
    let run = import_text(format!("[{SPAN},\n").as_bytes()).unwrap();
    assert!(run.info.completeness.losses.is_empty());
}

#[test]
fn a_gzip_bomb_stops_at_the_limit() {
    let bomb = gzip(&[b"[".to_vec(), vec![b' '; 64 << 20]].concat());
    assert!(bomb.len() < 1 << 20);
    let options = Options { max_input_bytes: 1 << 20, ..Options::new("test") };
    let error = import_files_with(&[("bomb.json.gz", &bomb)], &options).err().unwrap();
    assert!(matches!(error, ImportError::TooLarge { limit: 1_048_576, .. }), "{error}");
}

#[test]
fn beginnings_and_ends_are_joined_thread_by_thread() {
    let run = import_events(&[
        r#"{"ph":"B","name":"a","pid":1,"tid":1,"ts":1}"#,
        r#"{"ph":"B","name":"b","pid":1,"tid":2,"ts":2}"#,
        r#"{"ph":"E","pid":1,"tid":1,"ts":3}"#,
        r#"{"ph":"E","pid":1,"tid":2,"ts":1}"#,
        r#"{"ph":"E","pid":1,"tid":3,"ts":9}"#,
    ]);
    assert_eq!(run.rows::<Span>().len(), 1);
    assert_eq!(run.lost("negative"), 1);
    assert_eq!(run.lost("an end without a beginning"), 1);
}

#[test]
fn pids_and_tids_may_be_any_number_or_text() {
    let run = import_events(&[
        r#"{"ph":"X","name":"a","pid":"Main","tid":"Loop","ts":1,"dur":1}"#,
        r#"{"ph":"X","name":"b","pid":1,"tid":-1029147072,"ts":2,"dur":1}"#,
        r#"{"ph":"X","name":"c","ts":3,"dur":1}"#,
        r#"{"ph":"X","name":"d","pid":[1],"tid":{},"ts":4,"dur":1}"#,
        r#"{"ph":"X","name":"e","pid":99999999999999999999,"tid":1.5,"ts":5,"dur":1}"#,
    ]);
    let spans = run.rows::<Span>();
    assert_eq!(spans.len(), 5);
    let file = run.file();
    assert_eq!(file.name(file.processes()[0].command), "Main");
    assert_eq!(file.thread_name(spans[0].thread), Some("Loop"));
    assert_eq!(file.threads()[spans[1].thread as usize].tid, -1_029_147_072_i32 as u32);
}

/// Returns kernels of one stream, given their starts and durations in us, on a date in 2026.
fn kernels(times: &[(u64, u64)]) -> Vec<String> {
    let kernel = |(start, duration): &(u64, u64)| {
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":{},"dur":{duration},"args":{{"device":0,"stream":7}}}}"#,
            if *start == 0 { 0 } else { 1_782_700_000_000_000 + start }
        )
    };
    times.iter().map(kernel).collect()
}

fn import_kernels(times: &[(u64, u64)]) -> (Run, Vec<u64>) {
    let events = kernels(times);
    let run = import_events(&events.iter().map(String::as_str).collect::<Vec<_>>());
    let mut kept: Vec<u64> = run.rows::<Kernel>().iter().map(|row| row.duration_ns).collect();
    kept.sort_unstable();
    (run, kept)
}

#[test]
fn times_that_were_not_set_are_counted_and_left_out() {
    // Half of the kernels have the time 0. They come first, last, or between the others.
    for zeros_at in [0, 2, 4] {
        let mut times = vec![(100, 80), (200, 80), (300, 80), (400, 80)];
        times.splice(zeros_at..zeros_at, [(0, 0), (0, 0), (0, 0), (0, 80)]);
        let (run, kept) = import_kernels(&times);
        assert_eq!((run.lost("never set"), run.info.completeness.lost), (4, 4));
        assert_eq!(kept, [80_000; 4]);
        let extent = run.info.end_ns.unwrap() - run.info.start_ns;
        assert_eq!(extent, 380_000);
    }
    // A time of 0 also counts as never set if a base was added to it. The same holds for a time
    // that the base turns into 0.
    let text = br#"{"baseTimeNanoseconds": 1782000000000000000, "traceEvents": [
        {"ph":"X","name":"a","pid":1,"tid":1,"ts":700000000000,"dur":5},
        {"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":0},
        {"ph":"i","name":"a","pid":1,"tid":1,"ts":-1782000000000000,"s":"g"},
        {"ph":"C","name":"a","pid":1,"ts":0,"args":{"value":5}},
        {"ph":"X","name":"a","pid":1,"tid":1,"ts":700000000009,"dur":5}]}"#;
    let run = import_text(text).unwrap();
    assert_eq!((run.lost("never set"), run.rows::<Span>().len()), (3, 2));
    assert_eq!(run.info.end_ns.unwrap() - run.info.start_ns, 14_000);
    assert!(run.file().marks().is_empty() && run.file().counters().is_empty());
}

#[test]
fn a_trace_may_begin_at_0() {
    let run = import_events(&[
        r#"{"ph":"i","name":"start","pid":1,"tid":1,"ts":0,"s":"p"}"#,
        r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":5}"#,
        r#"{"ph":"X","name":"b","pid":1,"tid":1,"ts":600000000,"dur":5}"#,
    ]);
    assert_eq!((run.info.completeness.lost, run.rows::<Span>().len()), (0, 2));
    assert_eq!(run.info.end_ns, Some(600_000_005_000));
}

#[test]
fn events_and_ends_of_another_decade_are_counted_and_left_out() {
    let far = 1_782_700_000_000_000;
    for (start, duration) in [(far, 80), (900, far), (900, 9_223_372_036_854_775)] {
        let (run, kept) = import_kernels(&[(100, 80), (200, 80), (start, duration), (300, 80)]);
        assert_eq!((run.lost("more than a year"), kept), (1, vec![80_000; 3]));
        assert_eq!(run.info.end_ns.unwrap() - run.info.start_ns, 280_000);
    }
    // One end comes decades after its beginning, another has the time 0.
    let run = import_events(&[
        r#"{"ph":"B","name":"a","pid":1,"tid":1,"ts":1782700000000000}"#,
        r#"{"ph":"E","name":"a","pid":1,"tid":1,"ts":3565400000000000}"#,
        r#"{"ph":"B","name":"a","pid":1,"tid":1,"ts":1782700000000001}"#,
        r#"{"ph":"E","name":"a","pid":1,"tid":1,"ts":0}"#,
        r#"{"ph":"X","name":"a","pid":1,"tid":1,"ts":1782700000000002,"dur":5}"#,
    ]);
    assert_eq!((run.lost("more than a year"), run.lost("never set")), (1, 1));
    assert_eq!((run.lost("without an end"), run.rows::<Span>().len()), (2, 1));
}

#[test]
fn work_that_overlaps_several_on_its_stream_is_counted_and_left_out() {
    let mut times: Vec<_> = (1..33).map(|number| (100 * number, 80)).collect();
    (times[4].1, times[20].1) = (900, 700);
    let (run, kept) = import_kernels(&times);
    assert_eq!((run.lost("overlap on one stream"), kept), (2, vec![80_000; 30]));
    assert_eq!(run.info.completeness.lost, 2);
    assert!(run.imported.notes.is_empty());
    // If all pieces overlap others, the number stands for several streams, and nothing is left out.
    let times: Vec<_> = (1..33).map(|number| (100 * number, 350)).collect();
    let (run, kept) = import_kernels(&times);
    assert_eq!((run.info.completeness.lost, kept.len()), (0, 32));
    assert!(run.imported.notes[0].contains("several streams"), "{:?}", run.imported.notes);
}

#[test]
fn work_that_overlaps_one_other_on_its_stream_is_kept_and_noted() {
    let note = |times: &[(u64, u64)]| {
        let (run, kept) = import_kernels(times);
        let left_out = times.len() - kept.len();
        assert_eq!(run.info.completeness.lost, left_out as u64);
        (run.imported.notes.join("\n"), left_out)
    };
    let next: Vec<_> = (1..21).map(|number| (100 * number, 170)).collect();
    for (times, count) in [
        (&next[..], 19),
        // The first list has the same kernel twice. The second has one kernel within another.
        (&[(100, 80), (200, 80), (200, 80), (300, 80)], 1),
        (&[(100, 80), (200, 80), (220, 40), (300, 80)], 1),
    ] {
        let (note, left_out) = note(times);
        let overlaps = note.contains("overlap") && note.contains(" one other on one stream");
        assert!(overlaps && note.starts_with(&format!("{count} kernel")), "{note}");
        assert_eq!(left_out, 0);
    }
    // Another kernel overlaps several and is left out.
    let mut times: Vec<_> = (1..33).map(|number| (100 * number, 80)).collect();
    (times[4].1, times[20].1) = (900, 170);
    let (note, left_out) = note(&times);
    assert!(note.starts_with("1 kernel or copy overlaps one other"), "{note}");
    assert_eq!(left_out, 1);
}

#[test]
fn work_without_a_duration_was_not_measured() {
    let base = r#"{"baseTimeNanoseconds": 1782000000000000000, "traceEvents": ["#;
    for (head, start) in [("[", 1_782_700_000_000_000_u64), (base, 700_000_000_000)] {
        let event = |category: &str, at: u64, duration: &str| {
            format!(
                r#"{{"ph":"X","cat":"{category}","name":"n","pid":0,"tid":7,"ts":{},"dur":{duration},"args":{{"device":0,"stream":7}}}}"#,
                start + at
            )
        };
        let events = [
            event("kernel", 100, "80"),
            event("kernel", 200, "0"),
            event("kernel", 300, "0.000"),
            event("gpu_memcpy", 400, "0"),
            event("gpu_memset", 500, "2"),
            event("kernel", 600, "0.001"),
            // A duration of 0 is valid here, because calls and waits may be shorter than the
            // clock's resolution.
            event("cuda_runtime", 700, "0"),
            event("cuda_sync", 800, "0"),
        ];
        let end = if head == "[" { "]" } else { "]}" };
        let run = import_text(format!("{head}{}{end}", events.join(",")).as_bytes()).unwrap();
        assert_eq!((run.lost("not measured"), run.info.completeness.lost), (3, 3));
        let kernels: Vec<u64> = run.rows::<Kernel>().iter().map(|row| row.duration_ns).collect();
        assert_eq!((kernels, run.rows::<MemoryCopy>().len()), (vec![80_000, 1], 1));
        assert_eq!((run.rows::<Span>().len(), run.rows::<Synchronization>().len()), (1, 1));
    }
}

#[test]
fn an_end_ends_the_span_that_it_names() {
    let begin =
        |name: &str, at: u64| format!(r#"{{"ph":"B","name":"{name}","pid":1,"tid":1,"ts":{at}}}"#);
    let end = |name: &str, at: u64| {
        let name = if name.is_empty() { String::new() } else { format!(r#""name":"{name}","#) };
        format!(r#"{{"ph":"E",{name}"pid":1,"tid":1,"ts":{at}}}"#)
    };
    let spans = |events: &[String]| {
        let run = import_events(&events.iter().map(String::as_str).collect::<Vec<_>>());
        let row = |row: &Span| (run.name(row.name).to_owned(), row.start_ns, row.duration_ns);
        let rows: Vec<_> = run.rows::<Span>().iter().map(row).collect();
        (rows, run.lost("an end without"), run.lost("a beginning without"))
    };
    let row =
        |name: &str, start: u64, end: u64| (name.to_owned(), 1000 * start, 1000 * (end - start));
    // If spans cross, the name of an end event says which span ends.
    let crossing = [begin("log", 1), begin("train", 2), end("log", 4), end("train", 1002)];
    assert_eq!(spans(&crossing), (vec![row("log", 1, 4), row("train", 2, 1002)], 0, 0));
    // An end event ends no span if no open span has its name.
    let other = [begin("train", 1), end("log", 3), end("train", 1001)];
    assert_eq!(spans(&other), (vec![row("train", 1, 1001)], 1, 0));
    // An inner span that never ends must not use the end event of a later span, whether that event
    // has a name or not.
    let unended = [
        begin("step", 1),
        begin("io", 2),
        end("step", 10),
        begin("step", 11),
        begin("load", 12),
        end("", 13),
        end("", 20),
        end("", 30),
    ];
    let found = vec![row("step", 1, 10), row("step", 11, 20), row("load", 12, 13)];
    assert_eq!(spans(&unended), (found, 1, 1));
    // If two spans have one name, the inner one ends first.
    let nested = [begin("f", 1), begin("f", 2), end("f", 3), end("f", 4)];
    assert_eq!(spans(&nested), (vec![row("f", 1, 4), row("f", 2, 3)], 0, 0));
}

/// Returns two gzipped traces. In the second, white space follows the text.
fn zipped(text: &str) -> [Vec<u8>; 2] {
    [text.to_owned(), format!("{text}\n\n")].map(|text| gzip(text.as_bytes()))
}

#[track_caller]
fn damage(name: &str, bytes: &[u8]) -> Vec<String> {
    let run = import_files(&[(name, bytes)]).unwrap();
    assert_eq!(run.rows::<Span>().len(), 1);
    run.info.completeness.losses.iter().map(|loss| loss.why.clone()).collect()
}

#[test]
fn the_checksum_of_a_compressed_file_is_checked() {
    let text = format!("{{\"traceEvents\": [{SPAN}]}}");
    for whole in zipped(&text) {
        assert!(damage("a.json.gz", &whole).is_empty());
        let length = whole.len();
        // These bytes belong to the checksum and to the length.
        for at in [length - 8, length - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            let losses = damage("a.json.gz", &bytes);
            assert!(losses.len() == 1 && losses[0].contains("checksum"), "{losses:?}");
        }
        for cut in [1, 8] {
            let losses = damage("a.json.gz", &whole[..length - cut]);
            assert!(losses.len() == 1 && losses[0].contains("cut off"), "{losses:?}");
        }
        // Zeros at the end are padding, as for `gzip` itself. Any other bytes are damage.
        assert!(damage("a.json.gz", &[&whole[..], &[0; 512]].concat()).is_empty());
        assert_eq!(damage("a.json.gz", &[&whole[..], b"more"].concat()).len(), 1);
    }
    // The checksum of every member of the file is verified.
    let parts = text.split_at(30);
    let [first, last] = [parts.0, parts.1].map(|part| gzip(part.as_bytes()));
    assert!(damage("a.json.gz", &[&first[..], &last].concat()).is_empty());
    let mut bytes = [&first[..], &last].concat();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(damage("a.json.gz", &bytes).len(), 1);
    // The checksum of a zstd file is verified too.
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    encoder.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
    let mut bytes = encoder.finish().unwrap();
    assert!(damage("a.json.zst", &bytes).is_empty());
    *bytes.last_mut().unwrap() ^= 1;
    // If a zstd file is short, none of its text can be read before its checksum is known to be
    // wrong.
    let error = import_files(&[("a.json.zst", &bytes)]).err().unwrap().to_string();
    assert!(error.contains("checksum"), "{error}");
}

#[test]
fn text_after_a_trace_is_a_loss() {
    let text = format!("{{\"traceEvents\": [{SPAN}]}}");
    for more in ["{}", ", 1", "\0", &text] {
        let run = import_text(format!("{text}\n{more}").as_bytes()).unwrap();
        let losses = &run.info.completeness.losses;
        assert!(losses.len() == 1 && losses[0].what.contains("rest"), "{losses:?}");
    }
}
