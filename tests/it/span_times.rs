//! `report spans` divides the time within spans into time on a core, waits, and time on devices.

use serde_json::Value;
use std::collections::BTreeMap;
use tprof_tests::{
    Job, Scratch, document, has_native_or_skip, need_some, page_contents, program, rank_file, rows,
    tprof, traced, train,
};
use tprof_trace::model::{Kernel, MemoryCopy, Span};

use crate::export::chrome;

fn spans(document: &Value) -> BTreeMap<String, Value> {
    let rows = document["tables"]["spans"].as_array().unwrap().iter();
    rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row.clone())).collect()
}

/// Returns a value, and its stated error.
fn bounded(row: &Value, key: &str) -> (i64, i64) {
    let value = row[key].as_i64().unwrap_or_else(|| panic!("no {key}: {row:#}"));
    (value, row[format!("error_{key}")].as_i64().unwrap_or(0))
}

/// CPU time of a span by the program's own clocks, and its time on a core, which is at least as long,
/// both in ns.
#[derive(Clone, Copy, Debug)]
struct Own {
    cpu_ns: i64,
    on_core_ns: i64,
}

impl Own {
    fn plus(self, other: Own) -> Own {
        Own { cpu_ns: self.cpu_ns + other.cpu_ns, on_core_ns: self.on_core_ns + other.on_core_ns }
    }

    /// Checks that a row has this time on a core, within its error and the time that the program
    /// spends between its clocks' readings and the span's ends.
    fn agrees(self, row: &Value) {
        let (value, error) = bounded(row, "cpu_ns");
        let slack = 2 * error + 2_000_000 + self.cpu_ns / 50;
        let (least, most) = (self.cpu_ns - slack, self.cpu_ns.max(self.on_core_ns) + slack);
        assert!((least..=most).contains(&value), "{value} \u{b1} {error}, not {self:?}: {row:#}");
    }
}

#[test]
fn time_within_spans_is_that_of_the_programs_own_clocks() {
    let scratch = Scratch::new();
    let options = ["--mem", "off", "--sample-rate", "997"];
    let run = traced(&Job::new(program("span_times")), &options, &scratch);
    let own: BTreeMap<String, Own> = (run.outcome.stdout.lines())
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let ns = |at: usize| words[at].parse().unwrap();
            (words[0].to_owned(), Own { cpu_ns: ns(1), on_core_ns: ns(2) })
        })
        .collect();
    let document = document("spans", &run.run);
    if !has_native_or_skip(&document) {
        return;
    }
    let found = spans(&document);
    let (spin, sleep) = (&found["spin"], &found["sleep"]);
    own["mixed"].agrees(&found["mixed"]);
    own["other"].agrees(&found["other"]);
    // Spans within `mixed` count for their own names, too.
    own["spin"].plus(own["mixed"]).agrees(spin);
    assert!(bounded(sleep, "cpu_ns").0 < own["sleep"].cpu_ns + 50_000_000, "{sleep:#}");
    for (name, least) in [("sleep", 400_000_000), ("read", 90_000_000), ("naps", 40_000_000)] {
        let (waited, error) = bounded(&found[name], "waited_ns");
        // A sleep counts from the moment at which the thread sets its timer, when the thread is
        // still on its core. Once the thread was off its core for 9 us less than 400 ms.
        let off_core = least - own[name].cpu_ns;
        assert!(waited + error >= off_core, "{name}: {waited} \u{b1} {error} of {off_core}");
        let (cpu, _) = bounded(&found[name], "cpu_ns");
        assert!(cpu < least / 2, "{name}: {cpu} on a core");
    }
    for (name, row) in found.iter().filter(|(name, _)| *name != "handed") {
        let kinds = ["lock_ns", "io_ns", "sleep_ns", "poll_ns", "gil_ns", "device_ns", "other_ns"];
        let parts: i64 = kinds.iter().map(|kind| bounded(row, kind).0).sum();
        assert_eq!(parts, bounded(row, "waited_ns").0, "{name}");
        let total = row["total_ns"].as_i64().unwrap();
        let (cpu, error) = bounded(row, "cpu_ns");
        let all = cpu + bounded(row, "ready_ns").0 + bounded(row, "waited_ns").0;
        let slack = error + bounded(row, "waited_ns").1 + bounded(row, "ready_ns").1;
        assert!((all - total).abs() <= slack, "{name}: {all} of {total}: {row:#}");
        assert!(row["kernels"].is_null() && row["kernels_missing"].is_string(), "{row:#}");
    }
    let handed = &found["handed"];
    assert!(handed["cpu_ns_missing"].as_str().unwrap().contains("any thread"), "{handed:#}");
}

#[test]
fn without_samples_the_time_on_a_core_is_unknown() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("span_times")), &["--activities", "nvtx,mem"], &scratch);
    let found = spans(&document("spans", &run.run));
    for key in ["cpu_ns", "ready_ns", "waited_ns", "sleep_ns"] {
        let row = &found["spin"];
        let why = row[format!("{key}_missing")].as_str();
        assert!(row[key].is_null() && why.unwrap().contains("--activities cpu"), "{row:#}");
    }
}

#[test]
fn work_launched_within_spans_is_counted_there() {
    for major in [12, 13] {
        let scratch = Scratch::new();
        let (job, _) = need_some!(train(major, &["6", "spans"], &scratch));
        let run = traced(&job, &["--mem", "off"], &scratch);
        let found = spans(&document("spans", &run.run));
        let kernels = |name: &str| found[name]["kernels"].as_u64();
        // The work is a copy in, five kernels of `forward`, one kernel of the optimizer, and a copy
        // out.
        assert_eq!(
            [kernels("step"), kernels("forward"), kernels("nothing")],
            [Some(6 * 8), Some(6 * 5), Some(0)],
            "CUDA {major}"
        );
        let file = rank_file(&run.run, 0);
        let launched_in = |name: &str| {
            let spans: Vec<Span> = rows(&file);
            let of = spans.iter().filter(|span| file.name(span.name) == name);
            let of: Vec<_> =
                of.map(|span| span.start_ns..span.start_ns + span.duration_ns).collect();
            let calls = spans.iter().filter(|call| of.iter().any(|of| of.contains(&call.start_ns)));
            calls.filter_map(|call| call.correlation).collect::<Vec<_>>()
        };
        let launched = launched_in("step");
        let mut work: Vec<(u64, u64)> = (rows::<Kernel>(&file).iter())
            .filter(|row| row.correlation.is_some_and(|number| launched.contains(&number)))
            .map(|row| (row.start_ns, row.start_ns + row.duration_ns))
            .collect();
        work.extend(
            (rows::<MemoryCopy>(&file).iter())
                .filter(|row| row.correlation.is_some_and(|number| launched.contains(&number)))
                .map(|row| (row.start_ns, row.start_ns + row.duration_ns)),
        );
        work.sort();
        let (mut busy_ns, mut until_ns) = (0, 0);
        for (start_ns, end_ns) in work {
            busy_ns += end_ns.saturating_sub(start_ns.max(until_ns));
            until_ns = until_ns.max(end_ns);
        }
        assert_eq!(found["step"]["busy_ns"].as_u64(), Some(busy_ns), "CUDA {major}");
    }
}

#[test]
fn the_slowest_spans_have_their_place_in_the_timeline() {
    let scratch = Scratch::new();
    let run = traced(&Job::new(program("span_times")), &["--mem", "off"], &scratch).run;
    let document = document("spans", &run);
    let slowest = document["tables"]["slowest_spans"].as_array().unwrap();
    let row = slowest.iter().find(|row| row["name"] == "read").unwrap();
    let text = |key: &str| row[key].as_str().unwrap();
    let export = |words: &[&str]| {
        tprof(["export"]).arg(&run).args(words).run_in(scratch.cwd()).expect_code(0);
    };
    // A printed time can be used as an option: the part from that time on contains the whole span.
    let part = scratch.join("part");
    let times = ["--from-time", text("from_time"), "--to-time", text("to_time")];
    export(&[&["--to", "chrome", "-o", part.to_str().unwrap()], &times[..]].concat());
    let part = chrome(&part.join("rank-0.trace.json.gz"));
    let events = part["traceEvents"].as_array().unwrap().iter();
    let lasted: Vec<u64> = (events.filter(|event| event["name"] == "read" && event["ph"] == "X"))
        .map(|event| (event["dur"].as_f64().unwrap() * 1000.0).round() as u64)
        .collect();
    assert_eq!(lasted, [row["duration_ns"].as_u64().unwrap()]);
    let printed = tprof(["report", "spans"]).arg(&run).run_in(scratch.cwd()).expect_code(0).stdout;
    assert!(printed.contains("--from-time") && printed.contains(text("from_time")), "{printed}");

    // The page has the slowest span, and leads to a timeline only if there is one.
    let page = scratch.join("report.html");
    let report = ["--to", "report", "-o", page.to_str().unwrap()];
    export(&report);
    assert_eq!(page_contents(&page)["site"]["timeline"], Value::Null);
    std::fs::remove_file(&page).unwrap();
    export(&["--to", "timeline", "-o", scratch.join("timeline.html").to_str().unwrap()]);
    export(&report);
    let contents = page_contents(&page);
    assert_eq!(contents["site"]["timeline"], "timeline.html");
    let spans = &contents["data"]["runs/1/report/spans"]["tables"]["slowest_spans"];
    assert_eq!(spans[0], slowest[0]);
}
