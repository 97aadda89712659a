//! What the units of devices did and the energy that they took, as tprof samples them from outside
//! the job, are compared with what NVML's stand-in counted (a simulation). Its devices go through
//! three phases: idle, bound by memory, bound by tensor cores.

use crate::devices::{GPU, ran, recorded, rows, training};
use serde_json::Value;
use tprof_tests::{Scratch, document, need_some, stand_ins, tprof, traced, what_ran};
use tprof_trace::TraceFile;
use tprof_trace::model::Counter;

/// Runs a training job with this fault, and returns its report `gpu` and the text of it.
fn reported(fault: &str) -> Result<(Value, String), String> {
    let (scratch, run, _) = ran("40", &[("FAKE_NVML_FAULTS", fault)])?;
    let text = tprof(["report", "gpu"]).arg(&run.run).run_in(scratch.path()).stdout;
    Ok((document("gpu", &run.run), text))
}

/// Returns the row of a device for the whole run.
fn of_run<'d>(report: &'d Value, table: &str, gpu: usize) -> &'d Value {
    let mut all = rows(report, table).iter();
    all.find(|row| row["part"] == "run" && row["gpu"] == gpu).unwrap_or_else(|| panic!("{report}"))
}

/// Returns the mean of a counter over time, if each value holds until the next.
fn mean_by_time(file: &TraceFile, gpu: u32, name: &str) -> f64 {
    let of = |row: &&Counter| row.device == Some(gpu) && file.name(row.name) == name;
    let mut rows: Vec<(u64, f64)> =
        file.counters().iter().filter(of).map(|row| (row.time_ns, row.value)).collect();
    rows.sort_by_key(|row| row.0);
    let held = |pair: &[(u64, f64)]| (pair[1].0 - pair[0].0) as f64;
    let all: f64 = rows.windows(2).map(held).sum();
    rows.windows(2).map(|pair| pair[0].1 * held(pair)).sum::<f64>() / all
}

#[test]
fn means_and_energy_are_what_the_devices_counted() {
    let scratch = Scratch::new();
    let devices = [("FAKE_CUDA_DEVICES", "2")];
    let (job, log) = need_some!(training("150", &devices, &scratch));
    let run = traced(&job, GPU, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let log = what_ran(&log);
    let report = document("gpu", &run.run);
    let file = TraceFile::open(&run.run.join("rank-0.tprof")).unwrap();
    for gpu in 0..2 {
        let (row, links) = (of_run(&report, "units", gpu), of_run(&report, "links", gpu));
        let samples: Vec<&Value> = log
            .iter()
            .filter(|line| line["what"] == "nvml sample" && line["device"] == gpu)
            .collect();
        let at = |sample: &Value| sample["time_ns"].as_f64().unwrap();
        let sampled_ns = row["sampled_ns"].as_f64().unwrap();
        assert!(sampled_ns > 2e9, "{row}");
        // Samples are 100 ms apart at least, so this is the last one that counts.
        let first = samples[0];
        let apart = |sample: &Value| (at(sample) - at(first) - sampled_ns).abs();
        let last = samples.iter().min_by(|a, b| apart(a).total_cmp(&apart(b))).unwrap();
        assert!(apart(last) < 5e7, "{}", apart(last));
        let keys = [
            "sm_active",
            "sm_occupancy",
            "tensor_active",
            "tensor_hmma_active",
            "tensor_imma_active",
            "tensor_dfma_active",
            "dram_bandwidth_utilization",
            "fp64_active",
            "fp32_active",
            "fp16_active",
            "integer_active",
            "pcie_rx_bytes_per_second",
            "pcie_tx_bytes_per_second",
            "nvlink_rx_bytes_per_second",
            "nvlink_tx_bytes_per_second",
        ];
        for key in keys {
            let sum = |sample: &Value| sample[format!("gpu_{key}")].as_f64().unwrap();
            let truth = (sum(last) - sum(first)) / (at(last) - at(first));
            let row = if key.ends_with("_per_second") { links } else { row };
            let mean = row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
            // The two look at the clock one after the other, which takes long on a busy machine. So
            // this shows that each metric is in its place; the mean itself is that of the samples.
            assert!((mean - truth).abs() <= truth * 0.15 + 0.005, "{key}: {mean} {truth}");
            let of_samples = mean_by_time(&file, gpu as u32, &format!("gpu_{key}"));
            assert!((mean - of_samples).abs() <= of_samples * 1e-9, "{key}: {mean} {of_samples}");
            assert_eq!(truth == 0.0, key == "tensor_dfma_active", "{key}");
        }
        // The counter began before the run.
        let energies = &recorded(&run.run)[&(gpu as u64, "gpu_energy_joules".to_owned())];
        assert!(energies[0] > 7e6, "{energies:?}");
        let energy = energies[energies.len() - 1] - energies[0];
        assert!((row["energy_joules"].as_f64().unwrap() - energy).abs() < 1e-3, "{row}");
        assert_eq!(row["energy_source"], "counter");
    }
    // Only the first device was used.
    let steps: Vec<_> =
        rows(&report, "units").iter().filter(|row| row["part"] == "steps").collect();
    let [steps] = steps[..] else { panic!("{report}") };
    assert_eq!((&steps["gpu"], &steps["rank"]), (&0.into(), &"rank 0".into()));
    let (count, window_ns) =
        (steps["steps"].as_f64().unwrap(), steps["window_ns"].as_f64().unwrap());
    assert!(count >= 140.0, "{steps}");
    let watts = steps["step_energy_joules"].as_f64().unwrap() / (window_ns / count / 1e9);
    assert!((300.0..480.0).contains(&watts), "{watts} W, of 100, 400 and 650: {steps}");
    assert!(steps["sampled_ns"].as_f64().unwrap() > window_ns * 0.7, "{steps}");
    assert!(steps["sampled_ns"].as_f64().unwrap() <= window_ns, "{steps}");

    // The same stands beside the device's time.
    let time = document("gpu-time", &run.run);
    let [window] = rows(&time, "windows") else { panic!("{time}") };
    for key in ["sm_active", "sm_occupancy", "tensor_active", "dram_bandwidth_utilization"] {
        assert_eq!(window[key], steps[key], "{key}");
    }
    let text = tprof(["report", "gpu-time"]).arg(&run.run).run_in(scratch.path()).stdout;
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("the GPU's units were active: SMs "), "{text}");

    // And the rows of the history have both.
    let history = document("history", &run.run);
    let known = |key: &str| {
        let all = rows(&history, "over_time").iter();
        all.filter(|row| row[key].is_number()).count()
    };
    assert!(known("sm_active") > 0 && known("tensor_active") > 0, "{history}");
    let ranks = rows(&history, "history");
    assert!(ranks[0]["step_energy_joules"].as_f64().unwrap() > 0.0, "{history}");
    assert!(ranks[0]["energy_source"].as_str().unwrap().contains("counter"), "{history}");
}

#[test]
fn a_device_that_does_not_tell_what_its_units_do_says_so_once() {
    let why = "the device has no GPM, which Hopper and newer devices have";
    let (report, text) = need_some!(reported("nogpm"));
    let row = of_run(&report, "units", 0);
    assert!(row["sm_active"].is_null(), "{row}");
    assert!(rows(&report, "links").is_empty(), "{report}");
    assert_eq!(row["sm_active_missing"], why);
    assert_eq!(row["energy_source"], "counter");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words.matches(why).count(), 1, "{text}");
    assert!(!words.contains("tensor"), "{text}");
}

#[test]
fn a_driver_without_these_functions_is_no_error() {
    let scratch = Scratch::new();
    let (job, _) = need_some!(training("40", &[], &scratch));
    let home = need_some!(stand_ins());
    let path = format!("{}:{}", home.join("no-gpm").display(), home.join("12").display());
    let run = traced(&job.env("LD_LIBRARY_PATH", &path), GPU, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let report = document("gpu", &run.run);
    assert!(rows(&report, "gpus")[0]["mean_power_watts"].is_number(), "{report}");
    let row = of_run(&report, "units", 0);
    assert!(row["sm_active"].is_null(), "{row}");
    assert_eq!(row["sm_active_missing"], "this driver has no nvmlGpmQueryDeviceSupport");
    let series = recorded(&run.run);
    assert!(!series.keys().any(|(_, name)| name == "gpu_sm_active"), "{series:?}");
    let notes = report["notes"].to_string();
    assert_eq!(notes.matches("nvmlGpmQueryDeviceSupport").count(), 1, "{notes}");
}

#[test]
fn a_metric_without_a_value_is_missing_and_not_zero() {
    for (fault, key, why) in [
        ("nometric=5", "tensor_active", "Not Supported"),
        ("nan=10", "dram_bandwidth_utilization", "NVML's value is NaN"),
    ] {
        let (report, _) = need_some!(reported(fault));
        let row = of_run(&report, "units", 0);
        assert!(row[key].is_null() && row["sm_active"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row[format!("{key}_missing")], why);
    }
}

#[test]
fn without_a_counter_of_energy_the_power_tells_it() {
    let (report, _) = need_some!(reported("noenergy"));
    let row = of_run(&report, "units", 0);
    assert_eq!(row["energy_source"], "power");
    let watts =
        row["energy_joules"].as_f64().unwrap() / (row["energy_known_ns"].as_f64().unwrap() / 1e9);
    // The stand-in reports 301.5 W and one more at each reading.
    assert!((301.0..310.0).contains(&watts), "{row}");
    let (report, _) = need_some!(reported("noenergy,nopower"));
    let row = of_run(&report, "units", 0);
    assert!(row["energy_joules"].is_null(), "{row}");
    assert_eq!(row["energy_joules_missing"], "Not Supported");
}

#[test]
fn the_doctor_says_which_devices_tell_what_their_units_do() {
    let home = need_some!(stand_ins());
    let scratch = Scratch::new();
    let doctor = |fault: &str, path: &str| {
        let doctor = tprof(["doctor"])
            .env("LD_LIBRARY_PATH", path)
            .env("FAKE_NVML_FAULTS", fault)
            .env("FAKE_CUDA_DEVICES", "2");
        let text = doctor.run_in(scratch.path()).stdout;
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let new = home.join("12").display().to_string();
    let old = format!("{}:{new}", home.join("no-gpm").display());
    for (fault, path, words) in [
        ("", &new, "GPU 0, 1 (Simulated GPU): activity of SMs"),
        ("nogpm", &new, "cannot be sampled: the device has no GPM"),
        ("", &old, "cannot be sampled: this driver has no nvmlGpmQueryDeviceSupport"),
    ] {
        let text = doctor(fault, path);
        assert!(text.contains(words), "{text}");
    }
}
