//! Tests of the samples of GPU instructions (`--gpu-stalls`): the stand-in for CUPTI's PC Sampling
//! API adds known samples for each run of a kernel, and its log says which runs were sampled.

use super::*;
use crate::export::flame_sum;
use tprof_tests::{document_with, profiled};

const STALLS: &[&str] = &["--activities", "gpu", "--cuda-graphs", "node", "--gpu-stalls"];
const GEMM: &str = "_Z4gemmPKfS0_Pfiii";
const RELU: &str = "_Z4reluPfi";
/// What each run adds. Of the samples of `gemm`, 12 have a reason that counts; 5 are counted once
/// more because nothing was issued in their cycle.
const TRUTH: &str = "_Z4gemmPKfS0_Pfiii:16:long_scoreboard=6;\
    _Z4gemmPKfS0_Pfiii:16:long_scoreboard_not_issued=5;\
    _Z4gemmPKfS0_Pfiii:16:selected=2;\
    _Z4gemmPKfS0_Pfiii:32:barrier=3;\
    _Z4gemmPKfS0_Pfiii:48:not_selected=1;\
    _Z4reluPfi:0:math_pipe_throttle=3;\
    _Z4reluPfi:0:selected=1";
/// Enough steps that sampling begins long before the last one.
const STEPS: &str = "300";

/// Runs the training program with samples.
fn sampled(
    words: &[&str],
    options: &[&str],
    env: &[(&str, &str)],
) -> Result<(Scratch, Ran), String> {
    let scratch = Scratch::new();
    let (mut job, log) = train(13, words, &scratch)?;
    for (name, value) in [("FAKE_CUPTI_STALLS", TRUTH)].iter().chain(env) {
        job = job.env(name, value);
    }
    let traced = traced(&job, options, &scratch);
    let ran = read(traced, &log, 0);
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    Ok((scratch, ran))
}

/// Number of runs of a kernel that the stand-in sampled.
fn runs(ran: &Ran, kernel: &str) -> u64 {
    of_kind(&ran.log, "sampled").iter().filter(|line| line["name"] == kernel).count() as u64
}

fn calls(ran: &Ran, name: &str) -> usize {
    of_kind(&ran.log, "pc sampling").iter().filter(|line| line["call"] == name).count()
}

fn table<'a>(report: &'a Value, key: &str) -> &'a [Value] {
    report["tables"][key].as_array().unwrap_or_else(|| panic!("no {key} in {report}"))
}

fn row<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    let is_it = |row: &&Value| row["name"].as_str().unwrap_or_default().starts_with(name);
    rows.iter().find(is_it).unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

/// What `tprof report kernels --stalls` prints.
fn text(ran: &Ran) -> String {
    let run = &ran.traced.run;
    let job = tprof(["report", "kernels", "--stalls"]).arg(run);
    job.run_in(run.parent().unwrap()).stdout
}

#[track_caller]
fn assert_share(row: &Value, key: &str, wanted: f64) {
    let share = row[key].as_f64().unwrap_or_else(|| panic!("no {key} in {row}"));
    assert!((share - wanted).abs() < 1e-9, "{key} is {share}, not {wanted}");
}

#[test]
fn shares_of_stalls_are_those_of_the_samples() {
    let (_scratch, ran) = need_some!(sampled(&[STEPS], STALLS, &[]));
    let (gemms, relus) = (runs(&ran, GEMM), runs(&ran, RELU));
    assert!(gemms > 0 && relus > 0, "nothing was sampled");
    let report = document("kernels", &ran.traced.run);
    let kernels = table(&report, "stall_kernels");
    assert_eq!(kernels.len(), 2, "{kernels:?}");
    let gemm = row(kernels, "gemm(");
    assert_eq!(number(gemm, "samples"), 12 * gemms);
    let all = (12 * gemms + 4 * relus) as f64;
    assert_share(gemm, "share", (12 * gemms) as f64 / all);
    assert_share(gemm, "memory_share", 0.5);
    assert_share(gemm, "issued_share", 2.0 / 12.0);
    assert_share(gemm, "barrier_share", 0.25);
    assert_share(gemm, "ready_share", 1.0 / 12.0);
    assert_share(gemm, "math_share", 0.0);
    assert_eq!(gemm["reason"], "long_scoreboard");
    let relu = row(kernels, "relu(");
    assert_eq!(
        (number(relu, "samples"), &relu["reason"]),
        (4 * relus, &"math_pipe_throttle".into())
    );
    let reasons = table(&report, "stalls");
    let memory = reasons.iter().find(|row| row["reason"] == "long_scoreboard").unwrap();
    assert_eq!((number(memory, "samples"), number(memory, "not_issued")), (6 * gemms, 5 * gemms));
    assert_eq!(memory["group"], "memory");
    let [of_device] = table(&report, "stall_sampling") else { panic!("one device is sampled") };
    assert_eq!(number(of_device, "period_cycles"), 1 << 20);
    assert_eq!(number(of_kind(&ran.log, "sampling period")[0], "power"), 20);
    // Of CUPTI's samples, those in whose cycle nothing was issued are in the sum once more.
    assert_eq!(number(of_device, "samples"), number(of_device, "recorded"));
    let notes = report["notes"].to_string();
    assert!(notes.contains("recorded kernels have no samples"), "{notes}");
    // Without lines, places are offsets in the function.
    let places = table(&report, "stall_places");
    let offsets: Vec<u64> = places
        .iter()
        .filter(|row| row["kernel"].as_str().unwrap().starts_with("gemm("))
        .map(|row| number(row, "offset_bytes"))
        .collect();
    assert_eq!(offsets, [16, 32, 48]);
    assert_eq!(losses(&ran, "GPU", ""), 0);
    assert_kernels(&ran);
}

#[test]
fn without_the_option_no_function_of_pc_sampling_is_called() {
    let (_scratch, ran) = need_some!(sampled(&["20"], GPU, &[]));
    assert!(of_kind(&ran.log, "pc sampling").is_empty() && of_kind(&ran.log, "sampled").is_empty());
    let report = document_with("kernels", &ran.traced.run, &["--stalls"]);
    assert!(table(&report, "stall_kernels").is_empty());
    let report = document("kernels", &ran.traced.run);
    assert!(report["tables"].get("stall_kernels").is_none(), "nobody asked for it");
    let text = text(&ran);
    assert!(text.contains("`--gpu-stalls`"), "{text}");
}

#[test]
fn the_period_is_the_users() {
    let options = ["--activities", "gpu", "--gpu-stalls=4096"];
    let (_scratch, ran) = need_some!(sampled(&[STEPS], &options, &[]));
    assert_eq!(number(of_kind(&ran.log, "sampling period")[0], "power"), 12);
}

#[test]
fn closed_counters_are_one_sentence_and_no_zero() {
    let faulty = [("FAKE_CUPTI_FAULTS", "refuse=cuptiPCSamplingEnable:35")];
    let (_scratch, ran) = need_some!(sampled(&[STEPS], STALLS, &faulty));
    assert!(blind(&ran, "only administrators read a GPU's performance counters"));
    assert_eq!(calls(&ran, "cuptiPCSamplingEnable"), 1, "it is asked once");
    let text = text(&ran);
    assert!(text.contains("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"), "{text}");
    assert_kernels(&ran);
}

#[test]
fn a_device_that_cannot_be_sampled_is_named_with_cuptis_result() {
    let call = "cuptiPCSamplingSetConfigurationAttribute";
    for (faults, why) in [
        ("refuse=cuptiPCSamplingEnable:27".to_owned(), "cuptiPCSamplingEnable: CUPTI_ERROR_NOT"),
        (format!("refuse={call}:27"), "cuptiPCSamplingSetConfigurationAttribute: CUPTI_ERROR_NOT"),
    ] {
        let (_scratch, ran) =
            need_some!(sampled(&[STEPS], STALLS, &[("FAKE_CUPTI_FAULTS", &faults)]));
        assert!(blind(&ran, why), "{why}");
        assert_eq!(calls(&ran, "cuptiPCSamplingEnable"), 1);
    }
}

#[test]
fn dropped_and_foreign_samples_are_stated() {
    let faulty = [("FAKE_CUPTI_FAULTS", "lose=2,foreign=7")];
    let (_scratch, ran) = need_some!(sampled(&[STEPS], STALLS, &faulty));
    let all = of_kind(&ran.log, "sampled").len() as u64;
    assert!(all > 0);
    assert_eq!(losses(&ran, "samples of GPU instructions", "no room"), 2 * all);
    let report = document("kernels", &ran.traced.run);
    let [of_device] = table(&report, "stall_sampling") else { panic!("one device is sampled") };
    let numbers = ["dropped", "other"].map(|key| number(of_device, key));
    assert_eq!(numbers, [2 * all, 7 * all]);
    let notes = report["notes"].to_string();
    assert!(notes.contains("dropped") && notes.contains("not the program's"), "{notes}");
}

#[test]
fn a_full_buffer_is_stated() {
    let faulty = [("FAKE_CUPTI_FAULTS", "full")];
    let (_scratch, ran) = need_some!(sampled(&[STEPS], STALLS, &faulty));
    assert!(blind(&ran, "a device's buffer was full 1 times"));
}

#[test]
fn samples_arrive_in_any_number_of_answers_and_at_the_end() {
    for faults in ["places=1", "rest", ""] {
        let (_scratch, ran) =
            need_some!(sampled(&[STEPS], STALLS, &[("FAKE_CUPTI_FAULTS", faults)]));
        let report = document("kernels", &ran.traced.run);
        let gemm = row(table(&report, "stall_kernels"), "gemm(");
        assert_eq!(number(gemm, "samples"), 12 * runs(&ran, GEMM), "{faults}");
        assert_eq!(calls(&ran, "cuptiPCSamplingDisable"), 1, "{faults}");
    }
}

#[test]
fn places_are_source_lines_where_the_module_has_them() {
    let scratch = Scratch::new();
    let (source, code) = (scratch.join("kernel.c"), scratch.join("kernel.o"));
    std::fs::write(
        &source,
        "void gemm(volatile int *a) __asm__(\"_Z4gemmPKfS0_Pfiii\");\n\
         void gemm(volatile int *a) {\n\
         a[0] = a[1] + 1;\n\
         a[2] = a[3] + 2;\n\
         a[4] = a[5] + 3;\n\
         }\n",
    )
    .unwrap();
    let made = std::process::Command::new("gcc")
        .args(["-c", "-g", "-gdwarf-4", "-O0", "-ffunction-sections", "-o"])
        .args([&code, &source])
        .status();
    assert!(made.unwrap().success());
    let env = [("FAKE_CUPTI_CUBIN", code.to_str().unwrap())];
    let (_scratch, ran) = need_some!(sampled(&[STEPS], STALLS, &env));
    let report = document("kernels", &ran.traced.run);
    let places = table(&report, "stall_places");
    let lines: Vec<u64> = places
        .iter()
        .filter(|row| row["kernel"].as_str().unwrap().starts_with("gemm("))
        .map(|row| {
            assert!(row["file"].as_str().unwrap().ends_with("/kernel.c"), "{row}");
            number(row, "line")
        })
        .collect();
    assert!(!lines.is_empty() && lines.iter().all(|line| (2..=6).contains(line)), "{lines:?}");
    let relu = places.iter().find(|row| row["kernel"].as_str().unwrap().starts_with("relu("));
    assert_eq!(number(relu.unwrap(), "offset_bytes"), 0, "the module has no such function");
    assert_eq!(losses(&ran, "line tables", ""), 0);
    // Exports have the same samples by kernel, place and reason.
    let run = &ran.traced.run;
    let words = ["export", "--to", "folded", "--weight", "stalls", "-o", "-"];
    let folded = tprof(words).arg(run).run_in(run.parent().unwrap()).stdout;
    let stacks: Vec<(Vec<&str>, u64)> = folded
        .lines()
        .map(|line| {
            let (frames, samples) = line.rsplit_once(' ').unwrap();
            (frames.split(';').rev().collect(), samples.parse().unwrap())
        })
        .collect();
    let sum = |kernel: &str, of: &dyn Fn(&str, &str) -> bool| -> u64 {
        let is_of = |frames: &[&str]| frames[2].starts_with(kernel) && of(frames[1], frames[0]);
        stacks.iter().filter(|(frames, _)| is_of(frames)).map(|(_, samples)| samples).sum()
    };
    let is_line = |place: &str, _: &str| place.starts_with("kernel.c:");
    assert_eq!(sum("gemm(", &is_line), 12 * runs(&ran, GEMM), "{folded}");
    assert_eq!(sum("gemm(", &|_, why| why == "memory: long_scoreboard"), 6 * runs(&ran, GEMM));
    assert_eq!(sum("relu(", &|place, _| place == "+0x0"), 4 * runs(&ran, RELU), "{folded}");
    let job = tprof(["export", "--to", "flame", "--json"]).arg(run);
    job.run_in(run.parent().unwrap()).expect_code(0);
    let flame: Value =
        serde_json::from_str(&std::fs::read_to_string(run.join("flame.json")).unwrap()).unwrap();
    let profiles = flame["profiles"].as_array().unwrap();
    let stalls = profiles.iter().find(|profile| profile["key"] == "stalls").unwrap();
    let all = 12 * runs(&ran, GEMM) + 4 * runs(&ran, RELU);
    assert_eq!(flame_sum(stalls, 0, "self"), all);
    // `selected` and `not_selected` are no stalls.
    assert_eq!(flame_sum(stalls, 1, "self"), 9 * runs(&ran, GEMM) + 3 * runs(&ran, RELU));
}

#[test]
fn beside_another_client_nothing_is_sampled_and_the_run_says_so() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(profiled(13, &["3"], &scratch));
    let traced = traced(&job.env("FAKE_CUPTI_STALLS", TRUTH), STALLS, &scratch);
    let ran = read(traced, &log, 0);
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert!(blind(&ran, "another client of CUPTI is in the process"));
    let enabled = calls(&ran, "cuptiPCSamplingEnable");
    assert_eq!(enabled, calls(&ran, "cuptiPCSamplingDisable"), "what began has ended");
}

#[test]
fn beside_an_injected_library_of_the_jobs_own_nothing_is_called() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(train(13, &["20"], &scratch));
    let job = job.env("CUDA_INJECTION64_PATH", "/no/such/tool.so").env("FAKE_CUPTI_STALLS", TRUTH);
    let ran = read(traced(&job, STALLS, &scratch), &log, 0);
    assert!(blind(&ran, "the job injects a library of its own into CUDA"));
    assert!(of_kind(&ran.log, "pc sampling").is_empty());
}

#[test]
fn sampling_ends_before_a_context_does_and_begins_again() {
    let (_scratch, ran) = need_some!(sampled(&["60", "reset"], STALLS, &[]));
    let sampling = of_kind(&ran.log, "pc sampling");
    assert!(sampling.iter().all(|line| line["result"] == 0), "{sampling:?}");
    let enabled = calls(&ran, "cuptiPCSamplingEnable");
    assert_eq!(enabled, calls(&ran, "cuptiPCSamplingDisable"));
}

#[test]
fn while_recording_is_off_nothing_is_sampled() {
    let options = [STALLS, &["--paused"]].concat();
    let (_scratch, ran) = need_some!(sampled(&["100"], &options, &[]));
    assert_eq!(calls(&ran, "cuptiPCSamplingEnable"), 0);
}
