//! Samples of devices' counters (`--gpu-metrics`), compared with what CUPTI's stand-in must have
//! counted (a simulation): each kernel has known values, and the stand-ins log when kernels ran.

use crate::devices::rows;
use serde_json::Value;
use tprof_tests::{Job, Scratch, document, need_some, stand_ins, tprof, traced, train, what_ran};

const METRICS: &[&str] = &["--activities", "gpu", "--gpu-metrics=500us"];

/// What the stand-in counts while a kernel runs, by a part of its name: SMs, tensor cores, bytes a
/// second that memory reads and writes.
const KERNELS: [(&str, [f64; 4]); 4] = [
    ("gemm", [0.95, 0.7, 1e12, 2e11]),
    ("softmax", [0.9, 0.0, 2e12, 1e12]),
    ("relu", [0.1, 0.0, 1e9, 0.0]),
    ("sgd", [0.5, 0.0, 1.5e12, 1.5e12]),
];
const KEYS: [&str; 4] =
    ["sm_active", "tensor_active", "dram_read_bytes_per_second", "dram_written_bytes_per_second"];

/// A training job with kernels of milliseconds, and the stand-ins' log.
fn training(
    steps: &str,
    words: &[&str],
    env: &[(&str, &str)],
    scratch: &Scratch,
) -> Result<(Job, std::path::PathBuf), String> {
    let (_, log) = train(12, &[], scratch)?;
    let home = stand_ins()?;
    let mut job = Job::new(home.join("train-12"))
        .arg(steps)
        .args(words)
        .env("LD_LIBRARY_PATH", home.join("12"))
        .env("FAKE_CUDA_LOG", &log)
        .env("FAKE_CUDA_BLOCK_NS", "200000");
    for (name, value) in env {
        job = job.env(name, value);
    }
    Ok((job, log))
}

fn values_of(name: &str) -> [f64; 4] {
    KERNELS.iter().find(|(part, _)| name.contains(part)).unwrap_or_else(|| panic!("{name}")).1
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a figure of a kernel is right. The clocks of the two processes were read some microseconds
/// apart, so a sample at a kernel's end may have a part of what ran next to it.
fn is_close(found: f64, key: usize, truth: f64) -> bool {
    let most = KERNELS.iter().map(|(_, values)| values[key]).fold(0.0, f64::max);
    (found - truth).abs() <= most * 0.01
}

#[test]
fn each_kernel_has_its_own_figures() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(training("60", &["spans", "steps"], &[], &scratch));
    let run = traced(&job, METRICS, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = document("kernels", &run.run);
    let measured = rows(&report, "measured");
    assert!(measured.len() >= 4, "{report}");
    for row in measured {
        let name = row["name"].as_str().unwrap();
        assert!(row["sampled_runs"].as_u64().unwrap() > 20, "{row}");
        for (at, (key, truth)) in KEYS.iter().zip(values_of(name)).enumerate() {
            let found = row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
            assert!(is_close(found, at, truth), "{name} {key}: {found} {truth}");
        }
    }

    // A device's samples are the means of what ran in them, whoever ran it.
    let log = what_ran(&log);
    let gpu = document("gpu", &run.run);
    let mut parts = rows(&gpu, "units").iter();
    let steps = parts.find(|row| row["part"] == "steps").unwrap_or_else(|| panic!("{gpu}"));
    let sampled_ns = steps["sampled_ns"].as_f64().unwrap();
    assert!(sampled_ns > steps["window_ns"].as_f64().unwrap() * 0.3, "{steps}");
    let busy: f64 = log
        .iter()
        .filter(|line| line["what"] == "kernel")
        .map(|line| line["end"].as_f64().unwrap() - line["start"].as_f64().unwrap())
        .sum();
    assert!(busy > 0.0 && steps["sm_active"].as_f64().unwrap() > 0.2, "{steps}");
    let [how] = rows(&gpu, "sampling") else { panic!("{gpu}") };
    assert_eq!((&how["interval_ns"], &how["overflows"]), (&500_000.into(), &0.into()));
    assert_eq!((&how["lost_ns"], &how["chip"]), (&0.into(), &"SIM100".into()));
    assert!(how["clock_width_ns"].as_u64().unwrap() < 1_000_000, "{how}");

    // What does not fit into one pass, and what the chip lacks, has its sentence.
    let text = words(&tprof(["report", "gpu"]).arg(&run.run).run_in(scratch.path()).stdout);
    for sentence in [
        "not among the samples of GPU 0: fp16_active: it does not fit into one pass with the others",
        "CUPTI has no metric for it on this chip",
    ] {
        assert!(text.contains(sentence), "{text}");
    }
}

#[test]
fn a_devices_means_are_those_of_its_samples() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(training("60", &[], &[], &scratch));
    let run = traced(&job, METRICS, &scratch);
    let file = tprof_trace::TraceFile::open(&run.run.join("rank-0.tprof")).unwrap();
    let mut samples: Vec<(u64, f64)> = file
        .counters()
        .iter()
        .filter(|row| file.name(row.name) == "gpu_dram_read_bytes_per_second")
        .map(|row| (row.time_ns, row.value))
        .collect();
    samples.sort_by_key(|row| row.0);
    assert!(samples.len() > 500, "{}", samples.len());
    assert!(samples.last().unwrap().1.is_nan(), "the end of the last sample is written");
    let kernels: Vec<(u64, u64, f64)> = what_ran(&log)
        .iter()
        .filter(|line| line["what"] == "kernel")
        .map(|line| {
            let time = |key: &str| line[key].as_u64().unwrap();
            (time("start"), time("end"), values_of(line["name"].as_str().unwrap())[2])
        })
        .collect();
    // The clocks of the two processes were read some microseconds apart.
    let (mut far, mut all) = (0, 0);
    for pair in samples.windows(2).filter(|pair| pair[1].0 - pair[0].0 < 600_000) {
        let (from, until) = (pair[0].0, pair[1].0);
        let area: f64 = kernels
            .iter()
            .map(|(start, end, value)| {
                (end.min(&until).saturating_sub(*start.max(&from))) as f64 * value
            })
            .sum();
        let truth = area / (until - from) as f64;
        all += 1;
        far += usize::from((pair[0].1 - truth).abs() > 0.05 * 2e12);
    }
    assert!(all > 400 && far * 100 <= all, "{far} of {all}");
}

#[test]
fn a_full_buffer_is_stated_and_no_sample_is_invented() {
    let scratch = Scratch::new();
    let faults = [("FAKE_CUPTI_FAULTS", "pmfull=4")];
    let (job, _) = need_some!(training("80", &[], &faults, &scratch));
    let run = traced(&job, METRICS, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = document("gpu", &run.run);
    let [how] = rows(&report, "sampling") else { panic!("{report}") };
    assert!(how["overflows"].as_u64().unwrap() > 0, "{how}");
    let lost_ns = how["lost_ns"].as_u64().unwrap();
    assert!(lost_ns > 50_000_000, "{how}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("samples of GPU 0's counters are missing for"), "{notes}");
    // Kernels keep exact figures: what was lost belongs to no sample.
    for row in rows(&document("kernels", &run.run), "measured") {
        let truth = values_of(row["name"].as_str().unwrap())[0];
        assert!(is_close(row["sm_active"].as_f64().unwrap(), 0, truth), "{row}");
    }
}

#[test]
fn a_crash_of_cupti_harms_neither_job_nor_recording() {
    let scratch = Scratch::new();
    let faults = [("FAKE_CUPTI_FAULTS", "pmabort=5")];
    let (job, _) = need_some!(training("80", &[], &faults, &scratch));
    let run = traced(&job, METRICS, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = document("gpu", &run.run);
    let notes = report["notes"].to_string();
    let sentence = "the sampling of GPUs' counters ended early: the process that samples has ended";
    assert!(notes.contains(sentence), "{notes}");
    // From then on, NVML's means count again.
    let mut parts = rows(&report, "units").iter();
    let steps = parts.find(|row| row["part"] == "steps").unwrap_or_else(|| panic!("{report}"));
    assert!(steps["sampled_ns"].as_f64().unwrap() > steps["window_ns"].as_f64().unwrap() * 0.5);
    let kernels = document("kernels", &run.run);
    assert_eq!(kernels["completeness"]["lost"], 0, "{kernels}");
}

/// Runs a job whose devices can't be sampled. Returns the report's text.
fn refused(faults: &str, cupti: &str) -> Result<String, String> {
    let scratch = Scratch::new();
    let (mut job, _) = training("60", &[], &[("FAKE_CUPTI_FAULTS", faults)], &scratch)?;
    if !cupti.is_empty() {
        job = job.env("TPROF_CUPTI", stand_ins()?.join(cupti));
    }
    let run = traced(&job, METRICS, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = document("gpu", &run.run);
    assert!(rows(&report, "sampling").is_empty(), "{report}");
    // NVML's means are still there.
    let mut parts = rows(&report, "units").iter();
    assert!(parts.any(|row| row["sm_active"].is_number()), "{report}");
    let kernels: Value = document("kernels", &run.run);
    assert!(rows(&kernels, "measured").is_empty(), "{kernels}");
    Ok(words(&tprof(["report", "gpu"]).arg(&run.run).run_in(scratch.path()).stdout))
}

#[test]
fn what_prevents_sampling_is_one_sentence() {
    for (faults, cupti, sentence) in [
        (
            "refuse=cuptiPmSamplingEnable:35",
            "",
            "its counters are open to administrators only: run as root",
        ),
        ("refuse=cuptiPmSamplingEnable:7", "", "another program samples its counters already"),
        (
            "refuse=cuptiProfilerHostInitialize:15",
            "",
            "CUPTI finds no libnvperf_host.so and libnvperf_target.so",
        ),
        (
            "",
            "no-pm/libcupti.so.12",
            "this CUPTI has no PM sampling, which CUDA 12.6 and newer have",
        ),
    ] {
        let text = need_some!(refused(faults, cupti));
        let whole = format!("the counters of GPU 0 were not sampled: {sentence}");
        assert!(text.contains(&whole), "{sentence}: {text}");
    }
}

#[test]
fn two_ranks_on_one_device_have_one_sampler_and_no_figures_of_kernels() {
    let scratch = Scratch::new();
    let (_, log) = need_some!(training("1", &[], &[], &scratch));
    let home = need_some!(stand_ins());
    let program = home.join("train-12");
    let both = format!("RANK=0 '{0}' 60 & RANK=1 '{0}' 60 & wait", program.display());
    let job = Job::new("sh")
        .args(["-c", &both])
        .env("LD_LIBRARY_PATH", home.join("12"))
        .env("WORLD_SIZE", "2")
        .env("FAKE_CUDA_LOG", &log)
        .env("FAKE_CUDA_BLOCK_NS", "200000");
    let run = traced(&job, METRICS, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let enabled = what_ran(&log).iter().filter(|line| line["what"] == "pm enable").count();
    assert_eq!(enabled, 1);
    let gpu = document("gpu", &run.run);
    assert_eq!(rows(&gpu, "sampling").len(), 1, "{gpu}");
    let kernels = document("kernels", &run.run);
    assert!(rows(&kernels, "measured").is_empty(), "{kernels}");
    let notes = kernels["notes"].to_string();
    assert!(notes.contains("because they use the same GPU"), "{notes}");
}

#[test]
fn without_the_option_nothing_of_it_is_loaded() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(training("10", &[], &[], &scratch));
    let run = traced(&job, &["--activities", "gpu"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let of_sampling = what_ran(&log).iter().any(|line| line["what"].to_string().contains("pm "));
    assert!(!of_sampling);
    let file = tprof_trace::TraceFile::open(&run.run.join("rank-0.tprof")).unwrap();
    assert!(!file.properties().any(|(key, _)| key == "gpu_metrics"));
}

#[test]
fn the_doctor_says_whether_counters_can_be_sampled() {
    let home = need_some!(stand_ins());
    let scratch = Scratch::new();
    let doctor = |faults: &str, cupti: &str| {
        let doctor = tprof(["doctor"])
            .env("LD_LIBRARY_PATH", home.join("12"))
            .env("TPROF_CUPTI", home.join(cupti))
            .env("FAKE_CUPTI_FAULTS", faults);
        words(&doctor.run_in(scratch.path()).stdout)
    };
    let (new, old) = ("12/libcupti.so.12", "no-pm/libcupti.so.12");
    for (faults, cupti, sentence) in [
        (
            "",
            new,
            "--gpu-metrics can sample 13 counters of SIM100 at once, without gpu_fp16_active",
        ),
        (
            "refuse=cuptiPmSamplingGetCounterAvailability:35",
            new,
            "--gpu-metrics cannot sample: its counters are open to administrators only",
        ),
        ("", old, "--gpu-metrics cannot sample: this CUPTI has no PM sampling"),
    ] {
        let text = doctor(faults, cupti);
        assert!(text.contains(sentence), "{text}");
    }
}
