//! Tests of `--modules`. The start-up hook in Python must name calls of modules and change nothing
//! else, on every installed Python. Only the tests of recorded modules need PyTorch itself.

use std::path::{Path, PathBuf};

use tprof_tests::{Job, Refused, Scratch, document, need, skip, traced};

use crate::python_stacks::pythons;

const OPTIONS: [&str; 5] = ["--modules", "--mem", "off", "--activities", "mem"];

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/modules").join(name)
}

/// Returns the ranges that a job prints under tprof; all other output must be the same as without
/// tprof.
fn ranges(job: &Job) -> Vec<String> {
    let scratch = Scratch::new();
    let native = job.run_in(scratch.cwd()).expect_code(0);
    let run = traced(job, &OPTIONS, &scratch);
    let what = job.name();
    assert_eq!(run.outcome.code, Some(0), "{what}: {:?}", run.outcome);
    let (ranges, rest): (Vec<&str>, Vec<&str>) =
        run.outcome.stdout.lines().partition(|line| line.starts_with("range "));
    assert_eq!(rest, native.stdout.lines().collect::<Vec<_>>(), "{what}");
    ranges.into_iter().map(|line| line["range ".len()..].to_owned()).collect()
}

/// Returns the ranges of a call of the program's `Net` under that name.
fn net(name: &str) -> Vec<String> {
    let range = |depth: usize, path: &str, class: &str| {
        format!("{}nn.Module: {name}{path} ({class})", "  ".repeat(depth))
    };
    vec![
        range(0, "", "Net"),
        range(1, ".body", "Body"),
        range(2, ".body.first", "Add"),
        range(2, ".body.fails", "Fails"),
        range(1, ".last", "Add"),
        range(1, ".Add", "Add"),
        range(1, ".late", "Add"),
    ]
}

fn all_ranges() -> Vec<String> {
    let inner = net("Net")[1..4].iter().map(|range| range["  ".len()..].to_owned()).collect();
    // When a module is freed, another module can get its number.
    let calls = [net("Net"), net("Net"), net("Net#2"), inner, net("Net#2"), net("Net"), net("Net")];
    let refused = "nn.Module: Net (Net)".to_owned();
    calls.concat().into_iter().chain([refused]).collect()
}

fn job(python: &Path) -> Job {
    Job::new(python).arg("-B")
}

#[test]
fn calls_have_paths_of_modules_and_python_is_as_without_the_hook() {
    need!(!pythons().is_empty(), "there is no Python");
    for python in pythons() {
        let job = job(&python).arg(program("program.py"));
        assert_eq!(ranges(&job), all_ranges(), "{python:?}");
    }
}

#[test]
fn the_jobs_own_start_up_hook_runs_under_its_name() {
    need!(!pythons().is_empty(), "there is no Python");
    for python in pythons() {
        let own = Scratch::new();
        let source = "import sys\nmark = 7\nsys.customized = sys.path[:1]\n";
        own.write("sitecustomize.py", source);
        let job = job(&python).arg(program("program.py")).env("PYTHONPATH", own.path());
        assert_eq!(ranges(&job), all_ranges(), "{python:?}");
        // A start-up hook that fails is reported as it would be without tprof.
        own.write("sitecustomize.py", "import no_such_module\n");
        let scratch = Scratch::new();
        let native = job.run_in(scratch.cwd());
        let run = traced(&job, &OPTIONS, &scratch);
        assert!(native.stderr.contains("no_such_module"), "{native:?}");
        // Python may or may not warn about the fork.
        let error = |text: &str| text.lines().take(2).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(error(&run.outcome.stderr), error(&native.stderr), "{python:?}");
    }
}

#[test]
fn a_python_that_ignores_start_up_hooks_runs_as_without_tprof() {
    let Some(python) = pythons().pop() else { return skip("there is no Python from 3.8 on") };
    for switch in ["-I", "-E"] {
        let job = job(&python).arg(switch).arg(program("program.py"));
        assert_eq!(ranges(&job), Vec::<String>::new(), "{switch}");
    }
    // In these modes Python runs no code that could remove the hook's directory from sys.path. So
    // the whole output may differ, and the test only looks for these lines.
    let scratch = Scratch::new();
    let run = traced(&job(&python).arg("-S").arg(program("program.py")), &OPTIONS, &scratch);
    assert!(run.outcome.stdout.contains("value 14 11 15\n"), "{:?}", run.outcome);
    assert!(!run.outcome.stdout.contains("range "), "{:?}", run.outcome);
    let replaced = Job::new("env").args(["-u", "PYTHONPATH"]).arg(&python).arg("-B");
    assert_eq!(ranges(&replaced.arg(program("program.py"))), Vec::<String>::new());
}

#[test]
fn a_job_without_pytorch_is_named() {
    let scratch = Scratch::new();
    let run = traced(&Job::new("true"), &["--modules"], &scratch);
    let document = document("annotations", &run.run);
    let blind = &document["completeness"]["blind"];
    assert_eq!(blind[0]["what"], "names of modules (--modules)", "{blind}");
    assert_eq!(blind[0]["why"], "no process ran operators of PyTorch", "{blind}");
}

#[test]
fn pytorchs_modules_are_recorded_and_a_python_without_the_hook_is_named() {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else {
        return skip(Refused::PyTorch);
    };
    let job = Job::new(&python).arg("-B").arg(program("../modules_trained.py"));
    let scratch = Scratch::new();
    let native = job.run_in(scratch.cwd()).expect_code(0);
    let run = traced(&job, &["--modules", "--mem", "off"], &scratch);
    assert_eq!(run.outcome.stdout, native.stdout);
    let found = document("annotations", &run.run);
    let rows = found["tables"]["modules"].as_array().unwrap();
    let runs = |path: &str, class: &str| {
        let row = rows.iter().find(|row| row["path"] == path && row["class"] == class);
        row.map(|row| row["runs"].as_u64().unwrap())
    };
    // The job runs twelve steps, and the loader gives two batches.
    assert_eq!(runs("Net", "Net"), Some(14), "{rows:#?}");
    assert_eq!(runs("Net.mlp.layers.1", "Linear"), Some(14), "{rows:#?}");
    assert_eq!(runs("CrossEntropyLoss", "CrossEntropyLoss"), Some(12), "{rows:#?}");
    let scratch = Scratch::new();
    let isolated = Job::new(&python).args(["-B", "-I"]).arg(program("../modules_trained.py"));
    let run = traced(&isolated, &["--modules", "--mem", "off"], &scratch);
    assert_eq!(run.outcome.stdout, native.stdout);
    let found = document("annotations", &run.run);
    let blind = found["completeness"]["blind"].as_array().unwrap();
    let named = blind.iter().any(|one| one["why"].as_str().unwrap().contains("with -I"));
    assert!(named, "{blind:#?}");
}

#[test]
fn compiling_exporting_and_tracing_are_as_without_the_hook() {
    let Some(python) = std::env::var_os("TPROF_TEST_TORCH") else {
        return skip(Refused::PyTorch);
    };
    let job = Job::new(&python).arg("-B").arg(program("../modules_compiled.py")).limit(500);
    let scratch = Scratch::new();
    let native = job.run_in(scratch.cwd()).expect_code(0);
    let run = traced(&job, &["--modules", "--mem", "off"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    assert_eq!(run.outcome.stdout, native.stdout);
    let found = document("annotations", &run.run);
    let rows = found["tables"]["modules"].as_array().unwrap();
    let runs = |class: &str| {
        let row = rows.iter().find(|row| row["path"] == "Net" && row["class"] == class);
        row.and_then(|row| row["runs"].as_u64())
    };
    // The calls without compilation, and three calls of the module that `torch.compile` made.
    assert!(runs("Net") >= Some(6), "{rows:#?}");
    assert_eq!(runs("OptimizedModule"), Some(3), "{rows:#?}");
}
