//! TensorBoard reads the same figures from an export as the reports have.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tprof_tests::{
    EXACT, Job, Live, Scratch, document, foreign, need, need_some, tensorboard, tprof, traced,
    traced_job, wait_until,
};

const RANK: &str = "rank-0";

/// Writes a log directory of a run or trace, and returns TensorBoard's view of it.
fn exported(run: &Path, scratch: &Scratch) -> Result<Value, String> {
    let logs = scratch.join("logs");
    let job = tprof(["export", "--to", "tensorboard", "-o"]).arg(&logs).arg(run);
    job.run_in(scratch.path()).expect_code(0);
    tensorboard(&logs)
}

/// Returns the points of a curve: step and value.
fn points(read: &Value, tag: &str) -> Vec<(u64, f64)> {
    let of = &read[RANK]["scalars"][tag];
    let of = of.as_array().unwrap_or_else(|| panic!("no {tag} in {}", read[RANK]["scalars"]));
    of.iter().map(|point| (point[0].as_u64().unwrap(), point[2].as_f64().unwrap())).collect()
}

/// Returns a column of a report's table by `step`, as 32-bit numbers in a unit.
fn column(rows: &Value, key: &str, unit: f64) -> Vec<(u64, f64)> {
    let rows = rows.as_array().unwrap().iter();
    let known = rows.filter(|row| row[key].is_number());
    let point = |row: &Value| {
        let value = (row[key].as_f64().unwrap() / unit) as f32;
        (row["step"].as_u64().unwrap(), f64::from(value))
    };
    known.map(point).collect()
}

#[test]
fn tensorboard_has_the_figures_of_each_step_on_a_device() {
    let scratch = Scratch::new();
    let trace = scratch.join("trace.json");
    foreign::first_kineto(12).write(&trace);
    let read = need_some!(exported(&trace, &scratch));
    let steps = document("steps", &trace);
    let rows = &steps["tables"]["device_time_by_step"];
    assert_eq!(rows.as_array().unwrap().len(), 12);
    for (tag, key, unit) in [
        ("step_time_ms", "duration_ns", 1e6),
        ("compute_ms", "compute_ns", 1e6),
        ("exposed_communication_ms", "exposed_communication_ns", 1e6),
        ("exposed_copies_ms", "exposed_copies_ns", 1e6),
        ("gpu_idle_ms", "idle_ns", 1e6),
        ("gpu_busy", "gpu_busy", 1.0),
        ("launches", "launches", 1.0),
    ] {
        assert_eq!(points(&read, &format!("step/{tag}")), column(rows, key, unit), "{key}");
    }
    for row in rows.as_array().unwrap() {
        let of = |key: &str| row[key].as_u64().unwrap();
        let parts = ["compute_ns", "exposed_communication_ns", "exposed_copies_ns", "idle_ns"];
        assert_eq!(parts.map(of).iter().sum::<u64>(), of("duration_ns"), "{row}");
    }
    assert!(
        read["."]["text"]["summary"][0][2][0].as_str().unwrap().starts_with("## tprof summary")
    );
}

const PROGRAM: &str = "
import tprof
seen = 0
for step in range(12):
    tprof.step(100 + step)
    held = bytearray(1 << 20)
    seen += 4096
    tprof.counter('loss', 1.0 / (step + 1))
    tprof.counter('tokens', seen)
";

#[test]
fn tensorboard_has_the_values_that_a_program_names() {
    need!(Path::new("/usr/bin/python3").exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let job = Job::new("/usr/bin/python3").args(["-B", "-c", PROGRAM]).env("PYTHONPATH", module);
    let run = traced(&job, EXACT, &scratch).run;
    let read = need_some!(exported(&run, &scratch));
    let losses: Vec<f64> = (0..12).map(|step| f64::from(1.0 / (step + 1) as f32)).collect();
    let values = |tag| points(&read, tag).iter().map(|point| point.1).collect::<Vec<f64>>();
    assert_eq!(values("time/loss"), losses);
    // The last step has no end.
    let by_step: Vec<(u64, f64)> = (100..111).zip(losses).collect();
    assert_eq!(points(&read, "step_mean/loss"), by_step);
    let times = points(&read, "step/step_time_ms");
    assert_eq!(times.len(), 11);
    // The first step has no rate, because the value before it is unknown.
    let rates = points(&read, "step/tokens_per_s");
    assert_eq!(rates.len(), 10);
    for ((step, rate), (of, ms)) in rates.iter().zip(&times[1..]) {
        assert_eq!(step, of);
        let tokens = rate * ms / 1e3;
        assert!((tokens - 4096.0).abs() < 0.1, "{tokens} tokens in step {step}");
    }
    for (step, bytes) in points(&read, "step_peak/heap_bytes") {
        assert!(bytes > f64::from(1 << 20), "{bytes} in step {step}");
    }
}

const VALUES: &str = "
import array, sys, tprof
class Array:
    pass
def grads(step):
    return [step + 0.1 * at for at in range(31)]
for step in range(3):
    tprof.step(10 + step)
    tprof.histogram('grad/a b', grads(step))
    tprof.histogram('given', array.array('d', [1.0] * 4), step=70 + step)
tprof.histogram('odd', iter([float('nan'), float('inf'), -2, 2**70, None]), step=5)
tprof.histogram('none', [], 1)
tprof.histogram('nothing', 7)
tprof.histogram('nothing', 7)
try:
    import numpy
    tprof.histogram('numpy', numpy.arange(3_000_001, dtype='int32').reshape(1, -1), step=1)
    tprof.histogram('numpy', numpy.array([[1 + 1j]]), step=2)
except ImportError:
    pass
try:
    tprof.histogram(7, [1.0])
except TypeError as error:
    print(error)
";

#[test]
fn tensorboard_has_the_histograms_that_a_program_records() {
    need!(Path::new("/usr/bin/python3").exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let python = need_some!(tprof_tests::client_python());
    let job = Job::new(python).args(["-B", "-c", VALUES]).env("PYTHONPATH", module);
    let native = job.run_in(scratch.cwd()).expect_code(0);
    assert_eq!((native.stdout.as_str(), native.stderr.as_str()), ("a name must be str\n", ""));
    let traced = traced(&job, &["--mem", "off"], &scratch);
    assert_eq!(traced.outcome.stdout, native.stdout);
    let refused: Vec<&str> =
        traced.outcome.stderr.lines().filter(|line| line.contains("is not recorded")).collect();
    assert_eq!(refused.len(), 2, "{:?}", traced.outcome.stderr);
    assert!(refused[0].starts_with("tprof: the histogram 'nothing' is not recorded: TypeError"));
    let export = tprof(["export", "--to", "tensorboard", "-o"]).arg(scratch.join("noted"));
    let export = export.arg(&traced.run).run_in(scratch.path()).expect_code(0);
    assert!(export.stderr.contains("3 values are not in the histograms `odd`"), "{export:?}");
    let last = export.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("network") && last.contains("torch-tb-profiler"), "{last}");
    let read = need_some!(exported(&traced.run, &scratch));
    let of = |tag: &str| read[RANK]["histograms"][tag].as_array().cloned().unwrap_or_default();
    // Returns the buckets as TensorBoard has them: their limits, and the number of values in each.
    let buckets = |point: &Value| -> Vec<[f64; 3]> {
        let rows = point[2].as_array().unwrap().iter();
        rows.map(|row| [0, 1, 2].map(|at| row[at].as_f64().unwrap())).collect()
    };
    let count = |point: &Value| buckets(point).iter().map(|bucket| bucket[2]).sum::<f64>();
    let grads = of("grad/a b");
    let steps =
        |points: &[Value]| points.iter().map(|at| at[0].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!(steps(&grads), [10, 11, 12]);
    for (point, step) in grads.iter().zip(0..) {
        let all = buckets(point);
        let (first, last) = (all[0], all[all.len() - 1]);
        assert!((first[0] - f64::from(step)).abs() < 0.2, "{all:?}");
        assert!((last[1] - f64::from(step + 3)).abs() < 1e-6, "{all:?}");
        assert_eq!(count(point), 31.0);
    }
    let given = of("given");
    assert_eq!(steps(&given), [70, 71, 72]);
    assert!(given.iter().all(|point| count(point) == 4.0), "{given:?}");
    assert_eq!((steps(&of("odd")), count(&of("odd")[0])), (vec![5], 2.0));
    assert!(of("none").is_empty());
    let numpy = of("numpy");
    assert_eq!((steps(&numpy), count(&numpy[0])), (vec![1], 3_000_001.0));
    // The values are evenly distributed, so all buckets have the same number.
    assert!(buckets(&numpy[0]).iter().all(|bucket| (bucket[2] - 100_000.0).abs() < 2.0));
}

/// Makes steps until its input ends.
const UNTIL_TOLD: &str = "
import select, sys, tprof
while not select.select([sys.stdin], [], [], 0.02)[0]:
    tprof.step()
    tprof.counter('loss', 0.5)
";

#[test]
fn tensorboards_log_grows_while_the_job_runs() {
    need!(Path::new("/usr/bin/python3").exists(), "there is no /usr/bin/python3");
    let scratch = Scratch::new();
    let run = scratch.run();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let job = Job::new("/usr/bin/python3").args(["-B", "-c", UNTIL_TOLD]).env("PYTHONPATH", module);
    let job = traced_job(&job, &["--export", "tensorboard"], &run);
    let live = Live::start(&job, &scratch.cwd());
    let has = |tag: &str| {
        let files = fs::read_dir(run.join("tensorboard").join(RANK)).into_iter().flatten();
        let mut all = files.map(|file| fs::read(file.unwrap().path()).unwrap());
        all.any(|bytes| bytes.windows(tag.len()).any(|part| part == tag.as_bytes()))
    };
    wait_until("steps and values are there", || has("step/step_time_ms") && has("time/loss"));
    assert!(!has("step_mean/loss"), "means are only written at the end");
    live.finish().expect_code(0);
    assert!(has("step_mean/loss") && run.join("tensorboard/rank-0.pt.trace.json.gz").exists());
    let read = need_some!(tensorboard(&run.join("tensorboard")));
    let steps = document("steps", &run);
    let times = column(&steps["tables"]["steps"], "duration_ns", 1e6);
    assert_eq!(points(&read, "step/step_time_ms"), times, "each step is there once");
    assert!(read["."]["text"]["summary"].is_array());
}
