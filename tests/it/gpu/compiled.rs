//! Tests of a CUDA program that NVIDIA's own compiler made. On NVIDIA's own runtime the program
//! fails because there is no device; on the stand-ins it runs to its end.

use super::*;
use tprof_tests::{compiled, cuda_libraries};

/// Rounds of two launches, by each of two threads.
const ROUNDS: u64 = 25;
const LAUNCHES: u64 = 2 * 2 * ROUNDS;
/// The kernels, which are launched equally often.
const KERNELS: [&str; 2] = ["add(float*, float)", "void scale<float>(float*, float)"];
/// Options for default streams, and the call to which nvcc compiles `<<<>>>` with them.
const STREAMS: [(&str, &str); 2] =
    [("legacy", "__cudaLaunchKernel"), ("per-thread", "__cudaLaunchKernel_ptsz")];

fn shared(streams: &str) -> Result<PathBuf, String> {
    compiled("launches", &["-cudart=shared", &format!("--default-stream={streams}")])
}

/// Returns the launches that a run recorded, by name and thread.
fn launches(file: &TraceFile) -> BTreeMap<(String, ThreadIndex), u64> {
    let mut counts = BTreeMap::new();
    for span in rows::<Span>(file) {
        let name = file.name(span.name);
        if span.kind == SpanKind::Runtime && is_launch(name) {
            *counts.entry((name.to_owned(), span.thread)).or_default() += 1;
        }
    }
    counts
}

#[track_caller]
fn assert_launches(file: &TraceFile, name: &str) {
    let found = launches(file);
    let of_name = found.keys().all(|(found, _)| found == name);
    let counts: Vec<u64> = found.values().copied().collect();
    assert!(of_name && counts == [LAUNCHES / 2; 2], "{name}: {found:?}");
}

#[test]
fn launches_on_nvidias_runtime_are_recorded_though_they_fail() {
    for (streams, name) in STREAMS {
        let (scratch, program) = (Scratch::new(), need_some!(shared(streams)));
        let job = Job::new(program)
            .arg(ROUNDS.to_string())
            .env("LD_LIBRARY_PATH", need_some!(cuda_libraries()));
        let native = job.run_in(scratch.cwd());
        assert!(native.stdout.starts_with(&format!("{LAUNCHES} launches, ")), "{native:?}");
        let traced = traced(&job, GPU, &scratch);
        assert_eq!(traced.outcome, native);
        let file = TraceFile::open(&traced.run.join("rank-0.tprof")).unwrap();
        assert_launches(&file, name);
        let spans = rows::<Span>(&file);
        let launched = spans.iter().filter(|span| is_launch(file.name(span.name)));
        // cudaErrorNoDevice or cudaErrorInsufficientDriver.
        assert!(launched.into_iter().all(|span| matches!(span.status, Some(100 | 35))));
    }
}

#[test]
fn launches_of_a_compiled_program_are_recorded_kernel_by_kernel() {
    let home = need_some!(stand_ins());
    for (streams, name) in STREAMS {
        let (scratch, program) = (Scratch::new(), need_some!(shared(streams)));
        let log = scratch.join("log");
        std::fs::create_dir_all(&log).unwrap();
        let job = Job::new(program)
            .arg(ROUNDS.to_string())
            .env("LD_LIBRARY_PATH", home.join("13"))
            .env("FAKE_CUDA_LOG", &log);
        let traced = traced(&job, GPU, &scratch);
        let printed = format!("{LAUNCHES} launches, 0 calls failed\n");
        assert_eq!((traced.outcome.code, &traced.outcome.stdout), (Some(0), &printed));
        let ran = read(traced, &log, 0);
        assert_launches(&ran.file, name);
        assert_calls(&ran);
        let mut kernels = BTreeMap::new();
        for kernel in rows::<Kernel>(&ran.file) {
            *kernels.entry(ran.file.name(kernel.name).to_owned()).or_insert(0) += 1;
        }
        assert_eq!(kernels, KERNELS.map(|name| (name.to_owned(), LAUNCHES / 2)).into());
        // Reports may infer steps from the rounds, and list the other launches separately.
        let tables = &document("launches", &ran.traced.run)["tables"];
        let sum = |table: &str, key| {
            let rows = tables[table].as_array().into_iter().flatten();
            rows.filter(|row| row["name"] == name).map(|row| number(row, key)).sum::<u64>()
        };
        let calls = sum("launches", "calls") + sum("outside_of_steps", "outside_count");
        assert_eq!(calls, LAUNCHES, "{tables}");
        assert_eq!(losses(&ran, "GPU", ""), 0);
    }
}

#[test]
fn without_cupti_the_hooks_count_a_compiled_programs_launches() {
    let home = need_some!(stand_ins());
    for (streams, name) in STREAMS {
        let (scratch, program) = (Scratch::new(), need_some!(shared(streams)));
        let job = Job::new(program)
            .arg(ROUNDS.to_string())
            .env("LD_LIBRARY_PATH", home.join("13"))
            .env("FAKE_CUPTI_FAULTS", "refuse=cuptiActivityRegisterCallbacks:39");
        let traced = traced(&job, GPU, &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        let file = TraceFile::open(&traced.run.join("rank-0.tprof")).unwrap();
        assert_launches(&file, name);
        let spans = rows::<Span>(&file);
        assert!(spans.iter().all(|span| span.status == Some(0)));
        // Each launch has its kernel's name, although the program passes a handle.
        let mut kernels = BTreeMap::new();
        for span in spans.iter().filter(|span| is_launch(file.name(span.name))) {
            let args: Value = serde_json::from_str(file.name(span.args)).unwrap();
            *kernels.entry(args["kernel"].as_str().unwrap().to_owned()).or_insert(0) += 1;
        }
        // The hooks have the names of stubs, which have no return type.
        let plain = |name: &str| name.trim_start_matches("void ").to_owned();
        assert_eq!(kernels, KERNELS.map(|name| (plain(name), LAUNCHES / 2)).into());
    }
}

#[test]
fn a_program_with_the_runtime_in_it_is_unchanged() {
    for (streams, _) in STREAMS {
        let options = ["-cudart=static", &format!("--default-stream={streams}")];
        let (scratch, program) = (Scratch::new(), need_some!(compiled("launches", &options)));
        let job = Job::new(program).arg(ROUNDS.to_string());
        let native = job.run_in(scratch.cwd());
        assert!(native.stdout.starts_with(&format!("{LAUNCHES} launches, ")), "{native:?}");
        let traced = traced(&job, GPU, &scratch);
        assert_eq!(traced.outcome, native);
        // The hooks don't see calls within the program itself.
        let file = TraceFile::open(&traced.run.join("rank-0.tprof")).unwrap();
        assert!(launches(&file).is_empty());
    }
}
