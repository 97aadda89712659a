//! GPU utilization, memory and power, which tprof samples from outside the job, are compared with
//! the log of the values that NVML's stand-in returned (a simulation).

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tprof_tests::{
    Job, Scratch, Traced, document, need_some, stand_ins, tprof, traced, train, what_ran,
};
use tprof_trace::TraceFile;
use tprof_trace::model::counter;

pub(crate) const GPU: &[&str] = &["--activities", "gpu"];

/// Returns a training job with this number of steps of 22 ms, which begins after NVML has been read
/// for the first time; and the stand-ins' log.
pub(crate) fn training(
    steps: &str,
    env: &[(&str, &str)],
    scratch: &Scratch,
) -> Result<(Job, PathBuf), String> {
    const WAIT: &str =
        "until [ -s \"$FAKE_CUDA_LOG/nvml.jsonl\" ]; do sleep 0.01; done; exec \"$@\"";
    let (_, log) = train(12, &[], scratch)?;
    let home = stand_ins()?;
    let mut job = Job::new("sh")
        .args(["-c", WAIT, "sh"])
        .arg(home.join("train-12"))
        .arg(steps)
        .env("LD_LIBRARY_PATH", home.join("12"))
        .env("FAKE_CUDA_LOG", &log);
    for (name, value) in [("FAKE_CUDA_BLOCK_NS", "100000")].iter().chain(env) {
        job = job.env(name, value);
    }
    Ok((job, log))
}

/// Runs such a training job under tprof. Returns the run and the values that NVML's stand-in
/// returned.
pub(crate) fn ran(
    steps: &str,
    env: &[(&str, &str)],
) -> Result<(Scratch, Traced, Vec<Value>), String> {
    let scratch = Scratch::new();
    let (job, log) = training(steps, env, &scratch)?;
    let run = traced(&job, GPU, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let values = what_ran(&log).into_iter().filter(|line| line["what"] == "nvml").collect();
    Ok((scratch, run, values))
}

pub(crate) type Series = BTreeMap<(u64, String), Vec<f64>>;

/// Returns values by device and name, in order, without repeated values: an unchanged value is not
/// written each time.
fn changes(values: impl Iterator<Item = (u64, String, f64)>) -> Series {
    let mut series = Series::new();
    for (device, name, value) in values {
        let list = series.entry((device, name)).or_default();
        if list.last() != Some(&value) {
            list.push(value);
        }
    }
    series
}

pub(crate) fn recorded(run: &Path) -> Series {
    let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
    let mut rows: Vec<_> = file.counters().iter().filter(|row| row.device.is_some()).collect();
    rows.sort_by_key(|row| row.time_ns);
    assert!(rows.iter().all(|row| row.process.is_none()));
    let of_row = |row: &&tprof_trace::model::Counter| {
        (u64::from(row.device.unwrap()), file.name(row.name).to_owned(), row.value)
    };
    changes(rows.iter().map(of_row))
}

fn returned(log: &[Value]) -> Series {
    changes(log.iter().map(|line| {
        let key = line["key"].as_str().unwrap().to_owned();
        (line["device"].as_u64().unwrap(), key, line["value"].as_f64().unwrap())
    }))
}

pub(crate) fn rows<'d>(report: &'d Value, table: &str) -> &'d [Value] {
    report["tables"][table].as_array().unwrap()
}

/// Number of the quantities of a device.
const QUANTITIES: usize = 8 + 1 + counter::GPU_MEANS.len();

/// Whether a quantity is read ten times a second unless `--gpu-interval` says otherwise.
fn is_read_often(name: &str) -> bool {
    name == counter::GPU_ENERGY || counter::GPU_MEANS.contains(&name)
}

#[test]
fn values_of_the_library_are_recorded_and_reported() {
    let (scratch, run, log) = need_some!(ran("60", &[("FAKE_CUDA_DEVICES", "2")]));
    let (returned, recorded) = (returned(&log), recorded(&run.run));
    assert_eq!(returned.keys().collect::<Vec<_>>(), recorded.keys().collect::<Vec<_>>());
    assert_eq!(recorded.len(), 2 * QUANTITIES);
    for (key, values) in &recorded {
        // The last readings may have come after the end of the run.
        let returned = &returned[key];
        let after = if is_read_often(&key.1) { 5 } else { 1 };
        assert!(
            returned.starts_with(values) && returned.len() - values.len() <= after,
            "{key:?}: {returned:?}"
        );
    }
    let report = document("gpu", &run.run);
    let gpus = rows(&report, "gpus");
    assert_eq!(gpus.len(), 2);
    for (index, gpu) in gpus.iter().enumerate() {
        let of = |name: &str| &recorded[&(index as u64, name.to_owned())];
        let most = |name: &str| of(name).iter().copied().fold(0.0, f64::max);
        assert_eq!(gpu["gpu"], index);
        assert_eq!(gpu["name"], "Simulated GPU");
        assert_eq!(gpu["highest_utilization"].as_f64(), Some(most("gpu_utilization")));
        assert_eq!(gpu["peak_memory_bytes"].as_f64(), Some(most("gpu_memory_used_bytes")));
        assert_eq!(gpu["highest_power_watts"].as_f64(), Some(most("gpu_power_watts")));
        assert_eq!(gpu["limit_power_watts"].as_f64(), Some(700.0));
        assert_eq!(gpu["memory_bytes"].as_u64(), Some(80 << 30));
        assert!(gpu["throttled"].is_number(), "{gpu}");
    }
    // Devices are matched by UUID, which CUPTI records as well. The program could use both devices.
    assert_eq!(gpus[0]["visible_to"], "rank 0 as 0");
    assert_eq!(gpus[1]["visible_to_missing"], "no recorded process uses it");

    // The summary has the values in short form.
    let summary = document("summary", &run.run);
    for (short, gpu) in summary["gpus"].as_array().unwrap().iter().zip(gpus) {
        for key in [
            "gpu",
            "visible_to",
            "mean_utilization",
            "highest_utilization",
            "peak_memory_bytes",
            "memory_bytes",
            "throttled",
        ] {
            assert_eq!(short[key], gpu[key], "{key}: {short}");
        }
    }
    let text = tprof(["report"]).arg(&run.run).run_in(scratch.path()).stdout;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains("GPU sampled over the whole run: utilisation ") && words.contains(" of 80"),
        "{text}"
    );
    assert!(words.contains("throttled"), "{text}");

    // The exported counters are on the devices of the stream lanes.
    let out = scratch.join("out");
    let export = tprof(["export", "--to", "chrome", "-o"]).arg(&out).arg(&run.run);
    export.run_in(scratch.path()).expect_code(0);
    let trace = crate::export::chrome(&out.join("rank-0.trace.json.gz"));
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let mut points: Vec<&Value> = events
        .filter(|event| event["ph"] == "C" && event["name"].as_str().unwrap().starts_with("gpu_"))
        .collect();
    points.sort_by(|a, b| a["ts"].as_f64().unwrap().total_cmp(&b["ts"].as_f64().unwrap()));
    let exported = changes(points.into_iter().map(|event| {
        let (pid, value) = (event["pid"].as_u64().unwrap(), event["args"]["value"].as_f64());
        // A device without a recorded process has no stream lanes, so it has a lane of its own beside
        // the others.
        (pid % 1000, event["name"].as_str().unwrap().to_owned(), value.unwrap())
    }));
    assert_eq!(exported, recorded);
}

#[test]
fn devices_are_read_at_the_requested_rate() {
    // The interval by the facts, and the shortest time between readings of what is read rarely and of
    // what is read often.
    let every = |options: &[&str]| -> Result<(u64, u64, u64), String> {
        let scratch = Scratch::new();
        let (job, _) = training("60", &[], &scratch)?;
        let run = traced(&job, &[GPU, options].concat(), &scratch).run;
        let file = TraceFile::open(&run.join("rank-0.tprof")).unwrap();
        let facts = file.properties().filter(|(key, _)| *key == "nvml").last().unwrap().1;
        let facts: Value = serde_json::from_str(facts).unwrap();
        let shortest = |is_counted: fn(&str) -> bool| {
            let all = file.counters().iter().filter(|row| row.device.is_some());
            let counted = all.filter(|row| is_counted(file.name(row.name)));
            let mut times: Vec<u64> = counted.map(|row| row.time_ns).collect();
            times.sort_unstable();
            times.dedup();
            times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(u64::MAX)
        };
        let rarely = shortest(|name| !is_read_often(name));
        let often = shortest(|name| counter::GPU_MEANS.contains(&name));
        Ok((facts["every_ms"].as_u64().unwrap(), rarely, often))
    };
    let tenth = 100_000_000..500_000_000;
    let (every_ms, rarely, often) = need_some!(every(&["--gpu-interval", "100ms"]));
    assert_eq!(every_ms, 100);
    assert!(tenth.contains(&rarely) && tenth.contains(&often), "{rarely} and {often} ns");
    let (every_ms, rarely, often) = need_some!(every(&[]));
    assert_eq!(every_ms, 500);
    assert!(rarely >= 500_000_000 && tenth.contains(&often), "{rarely} and {often} ns");
    let (every_ms, rarely, often) = need_some!(every(&["--gpu-interval", "300ms"]));
    assert_eq!(every_ms, 300);
    assert!(rarely >= 300_000_000 && tenth.contains(&often), "{rarely} and {often} ns");
}

#[test]
fn values_that_a_device_does_not_report_are_missing_with_the_reason() {
    let (_scratch, run, _) = need_some!(ran("20", &[("FAKE_NVML_FAULTS", "nopower")]));
    let report = document("gpu", &run.run);
    let [gpu] = rows(&report, "gpus") else { panic!("{report}") };
    assert!(gpu["mean_power_watts"].is_null(), "{gpu}");
    assert_eq!(gpu["mean_power_watts_missing"], "Not Supported");
    assert!(gpu["mean_utilization"].is_number(), "{gpu}");

    // The device is lost after its first reading: that reading is kept, and the other values have the
    // reason why they are missing.
    let (_scratch, run, log) = need_some!(ran("20", &[("FAKE_NVML_FAULTS", "lost=1")]));
    let report = document("gpu", &run.run);
    let [gpu] = rows(&report, "gpus") else { panic!("{report}") };
    assert_eq!(returned(&log)[&(0, "gpu_utilization".to_owned())].len(), 1);
    assert!(gpu["mean_utilization"].is_number(), "{gpu}");
    assert_eq!(gpu["mean_power_watts_missing"], "GPU is lost");
}

#[test]
fn memory_in_use_leaves_out_the_reserve_where_the_driver_reports_it() {
    const RESERVED: f64 = (613 << 20) as f64;
    for (fault, reserve) in [("", 0.0), ("old", RESERVED)] {
        let (scratch, run, log) = need_some!(ran("20", &[("FAKE_NVML_FAULTS", fault)]));
        let series = &recorded(&run.run);
        assert_eq!(series.len(), QUANTITIES, "{fault}: {series:?}");
        for (key, values) in series {
            assert!(returned(&log)[key].starts_with(values), "{fault}: {key:?}");
        }
        let used = &series[&(0, "gpu_memory_used_bytes".to_owned())];
        assert!(used.iter().all(|used| (used - reserve) % f64::from(1 << 30) == 0.0), "{used:?}");
        let text = tprof(["report", "gpu"]).arg(&run.run).run_in(scratch.path()).stdout;
        assert_eq!(text.contains("the driver's own reserve"), fault == "old", "{text}");
    }
}

#[test]
fn without_a_driver_values_of_gpus_are_missing_and_not_zero() {
    let refused = ("FAKE_NVML_FAULTS", "init=9");
    let none = ("FAKE_NVML_FAULTS", "none");
    for (fault, why) in [(refused, "Driver Not Loaded"), (none, "has no device")] {
        let (_scratch, run, _) = need_some!(ran("20", &[fault]));
        let report = document("gpu", &run.run);
        assert!(rows(&report, "gpus").is_empty());
        assert!(report["tables"]["gpus_missing"].as_str().unwrap().contains(why), "{report}");
        // The reason is printed once, if devices were used.
        let text = tprof(["report"]).arg(&run.run).run_in(run.run.parent().unwrap()).stdout;
        assert_eq!(text.matches(why).count(), 1, "{text}");
    }
    let scratch = Scratch::new();
    let run = traced(&Job::sh("sleep 1"), GPU, &scratch);
    let text = tprof(["report", "gpu"]).arg(&run.run).run_in(scratch.path()).stdout;
    assert!(text.contains("no NVIDIA driver"), "{text}");
    // The report of a job without a GPU has no line about GPUs.
    let text = tprof(["report"]).arg(&run.run).run_in(scratch.path()).stdout;
    assert!(!text.contains("sampled"), "{text}");
    let run = {
        let scratch = Scratch::new();
        let run = traced(&Job::sh("exit 0"), &["--activities", "mem"], &scratch);
        (document("gpu", &run.run), scratch)
    };
    let why = run.0["tables"]["gpus_missing"].as_str().unwrap();
    assert!(why.contains("--activities gpu"), "{why}");
}
