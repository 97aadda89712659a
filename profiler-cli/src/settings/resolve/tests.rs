use super::*;
use crate::settings::sources::{from_flags, from_variables};
use crate::settings::{gpu, table};
use std::path::Path;
use std::time::Duration;

fn flags(options: RunOptions) -> Result<Resolved, Failure> {
    layers(options, &[], "")
}

fn layers(
    options: RunOptions,
    variables: &[(&str, &str)],
    file: &str,
) -> Result<Resolved, Failure> {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("tprof.toml"), file).expect("a file");
    let variables = variables.iter().map(|(name, text)| (name.into(), text.into()));
    let file = sources::from_file(None, directory.path())?;
    let variables = from_variables(variables)?;
    from_layers([file, variables, from_flags(options)], &["/bin/my job".into()], Path::new("/w"))
}

fn variable(name: &str, text: &str) -> Result<Resolved, Failure> {
    layers(RunOptions::default(), &[(name, text)], "")
}

fn file(text: &str) -> Result<Resolved, Failure> {
    layers(RunOptions::default(), &[], text)
}

fn mem(text: &str) -> RunOptions {
    RunOptions::new([(&table::MEM, Some(text.into()))])
}

#[test]
fn defaults_are_the_documented_ones() {
    let resolved = flags(RunOptions::default()).unwrap();
    assert_eq!(resolved.config.mem, MemMode::Sampled { interval: DEFAULT_SAMPLE_INTERVAL });
    assert_eq!(resolved.config.activities, ALL);
    assert_eq!(resolved.config.on_full, OnFull::Wait);
    let output = resolved.config.output.to_str().unwrap();
    assert!(output.starts_with("/w/tprof-my_job-2"), "{output}");
}

#[test]
fn flag_wins_over_variable_over_file() {
    let file = "mem = 'off'\non-full = 'drop'\nstacks = 'fp'";
    let variables = [("TPROF_MEM", "sampled"), ("TPROF_ON_FULL", "wait")];
    let resolved = layers(mem("exact"), &variables, file).unwrap();
    assert_eq!(resolved.config.mem, MemMode::Exact);
    assert_eq!(resolved.config.on_full, OnFull::Wait);
    assert_eq!(resolved.config.stacks, StackMode::Fp);
}

#[test]
fn every_setting_is_a_variable_and_a_key() {
    for (name, text) in [
        ("output", "'d'"),
        ("force", "true"),
        ("activities", "['mem']"),
        ("mem", "'sampled=64K'"),
        ("stacks", "'dwarf'"),
        ("sample-rate", "999"),
        ("rss-interval", "'50ms'"),
        ("gpu-interval", "2"),
        ("max-size", "'2GiB'"),
        ("duration", "5"),
        ("delay", "'1m30s'"),
        ("paused", "true"),
        ("on-full", "'drop'"),
        ("table-cache", "'off'"),
        ("export", "'chrome'"),
        ("redact", "true"),
        ("quiet", "true"),
    ] {
        file(&format!("{name} = {text}")).unwrap();
        let plain = text.trim_matches(['\'', '[', ']']);
        variable(&super::variable(name), plain).unwrap();
    }
}

#[test]
fn errors_about_bad_values_name_their_source() {
    let failure = flags(mem("exakt")).unwrap_err();
    assert_eq!(failure.what, "bad value `exakt` for --mem");
    assert_eq!(failure.hint.as_deref(), Some("--mem=exact"));
    let failure = variable("TPROF_ON_FULL", "wiat").unwrap_err();
    assert_eq!(failure.what, "bad value `wiat` for TPROF_ON_FULL");
    assert_eq!(failure.hint.as_deref(), Some("TPROF_ON_FULL=wait"));
    let failure = file("duration = 'soon'").unwrap_err();
    assert!(failure.what.starts_with("bad value `soon` for `duration` in "), "{failure}");
    assert_eq!(failure.hint.as_deref(), Some("duration = \"2s\""));
    for (name, text) in [
        ("TPROF_MAX_SIZE", "0"),
        ("TPROF_MAX_SIZE", "12 parsecs"),
        ("TPROF_DURATION", "0s"),
        ("TPROF_MEM", "sampled=0"),
        ("TPROF_MEM", "sampled="),
        ("TPROF_PAUSED", "maybe"),
        ("TPROF_OUTPUT", ""),
        ("TPROF_ACTIVITIES", ""),
        ("TPROF_ACTIVITIES", "mem,"),
        ("TPROF_EXPORT", "pdf"),
        ("TPROF_SAMPLE_RATE", "0"),
        ("TPROF_SAMPLE_RATE", "-1"),
        ("TPROF_SAMPLE_RATE", "fast"),
        ("TPROF_SAMPLE_RATE", "99999999999"),
        ("TPROF_RSS_INTERVAL", "0"),
        ("TPROF_RSS_INTERVAL", "9ms"),
        ("TPROF_RSS_INTERVAL", "61s"),
        ("TPROF_RSS_INTERVAL", "often"),
        ("TPROF_GPU_INTERVAL", "99ms"),
        ("TPROF_GPU_INTERVAL", "2m"),
    ] {
        let failure = variable(name, text).unwrap_err();
        assert_eq!(failure.what, format!("bad value `{text}` for {name}"));
        assert!(failure.cause.is_some() && failure.hint.is_some());
    }
}

#[test]
fn names_are_read_in_any_case() {
    let activities = |text: &str| variable("TPROF_ACTIVITIES", text).unwrap().config.activities;
    assert_eq!(activities("CPU,Mem"), [Activity::Cpu, Activity::Mem]);
    assert_eq!(activities("CUDA"), [Activity::Gpu]);
    assert_eq!(flags(mem("Exact")).unwrap().config.mem, MemMode::Exact);
    assert_eq!(flags(mem("SAMPLED=64k")).unwrap().config.mem, MemMode::Sampled { interval: 65536 });
    assert_eq!(variable("TPROF_STACKS", "FP").unwrap().config.stacks, StackMode::Fp);
    let counters = variable("TPROF_COUNTERS", "Cycles").unwrap().config.counters;
    assert_eq!(counters, [PerfEvent::Cycles]);
}

#[test]
fn an_overridden_bad_value_is_still_refused() {
    assert!(layers(mem("exact"), &[("TPROF_MEM", "x")], "").is_err());
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    let failure = variable("TPROF_ACTIVITES", "mem").unwrap_err();
    assert_eq!(failure.what, "unknown variable TPROF_ACTIVITES");
    assert!(failure.hint.unwrap().starts_with("TPROF_ACTIVITIES"));
    let failure = file("max_size = '1G'").unwrap_err();
    assert!(failure.what.starts_with("unknown key `max_size`"), "{failure}");
    assert_eq!(failure.hint.as_deref(), Some("max-size = \"1G\""));
}

#[test]
fn variables_of_other_parts_of_tprof_are_ignored() {
    for name in ["TPROF_CUPTI", "TPROF_TEST_BIN", "TPROF_SESSION", "TPROF_LIB_DIR", "MY_TPROF_X"] {
        variable(name, "anything").unwrap();
    }
}

#[test]
fn an_outer_recording_does_not_choose_the_output() {
    let outer = [("TPROF_SESSION", "/tmp/x"), ("TPROF_OUTPUT", "/outer")];
    let resolved = layers(RunOptions::default(), &outer, "").unwrap();
    assert!(!resolved.config.output.starts_with("/outer"));
}

#[test]
fn files_that_are_not_toml_are_refused_with_the_line() {
    let failure = file("mem = 'exact'\nstacks =").unwrap_err();
    assert!(failure.cause.unwrap().starts_with("line 2: "));
    let failure = file("mem = { a = 1 }").unwrap_err();
    assert!(failure.cause.unwrap().contains("type table"));
}

#[test]
fn the_printed_configuration_reads_back() {
    let options = RunOptions::new([
        (&table::MEM, Some("sampled=64K".into())),
        (&table::OUTPUT, Some("a \"b\"".into())),
        (&table::MAX_SIZE, Some("3G".into())),
        (&table::DELAY, Some("250ms".into())),
        (&table::RSS_INTERVAL, Some("1500ms".into())),
        (&gpu::GPU_INTERVAL, Some("1m".into())),
        (&table::PAUSED, Some("true".into())),
        (&table::EXPORT, Some("folded".into())),
    ]);
    let first = flags(options).unwrap();
    let text = first.to_toml();
    let second = file(&text).unwrap();
    assert_eq!(first.config, second.config, "{text}");
    assert_eq!(first.export, second.export);
}

#[test]
fn a_paused_run_refuses_delay_and_duration() {
    let idle = |paused: bool, delay: Option<u64>, duration: Option<u64>| {
        let layers = [Vec::new(), Vec::new(), Vec::new()];
        let mut resolved = from_layers(layers, &[], Path::new("/w")).unwrap();
        resolved.config.paused = paused;
        resolved.config.delay = delay.map(Duration::from_secs);
        resolved.config.duration = duration.map(Duration::from_secs);
        super::idle(&resolved.config)
    };
    assert_eq!(idle(true, Some(1), None), Some("delay"));
    assert_eq!(idle(true, None, Some(1)), Some("duration"));
    assert_eq!(
        [idle(true, None, None), idle(true, Some(0), None), idle(false, Some(1), Some(1))],
        [None; 3]
    );
}

#[test]
fn the_last_source_decides_whether_a_run_is_replaced() {
    let mode = |variables: &[(&str, &str)], file: &str| {
        layers(RunOptions::default(), variables, file).map(|resolved| resolved.config.if_exists)
    };
    assert_eq!(mode(&[("TPROF_FORCE", "false")], "force = true").unwrap(), IfExists::Rename);
    assert_eq!(mode(&[("TPROF_FORCE", "0")], "if-exists = 'join'").unwrap(), IfExists::Join);
    assert_eq!(mode(&[("TPROF_IF_EXISTS", "fail")], "force = true").unwrap(), IfExists::Fail);
    assert_eq!(mode(&[], "force = true\nif-exists = 'force'").unwrap(), IfExists::Force);
    let both = mode(&[], "force = true\nif-exists = 'fail'").unwrap_err();
    assert!(format!("{both:?}").contains("exclude each other"), "{both:?}");
}
