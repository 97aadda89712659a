//! `tprof doctor --run-kernel` runs a kernel on each device and compares it with its recording.

use super::*;

/// Runs the doctor. Returns the exit status, and the checks of kernels.
fn run_kernel(env: &[(&str, &Path)]) -> (Option<i32>, Vec<Value>) {
    let scratch = Scratch::new();
    let mut job = tprof(["doctor", "--json", "--run-kernel"]);
    for (name, value) in env {
        job = job.env(name, value);
    }
    let outcome = job.run_in(scratch.cwd());
    let doctor: Value = serde_json::from_str(&outcome.stdout).unwrap();
    (outcome.code, doctor["run_kernel"].as_array().unwrap().clone())
}

fn found(check: &Value) -> &str {
    check["found"].as_str().unwrap()
}

#[test]
fn kernels_are_recorded_as_they_ran_on_each_device() {
    let home = need_some!(stand_ins());
    for major in ["12", "13"] {
        let path = ("LD_LIBRARY_PATH", home.join(major));
        let (code, checks) =
            run_kernel(&[(path.0, &path.1), ("FAKE_CUDA_DEVICES", Path::new("2"))]);
        assert_eq!((code, checks.len()), (Some(0), 2), "{checks:?}");
        for (device, check) in checks.iter().enumerate() {
            let line = format!(
                "device {device}, Simulated GPU: all 262,147 values are correct; recorded 3 of 3 \
                 kernels, 1 of 1 copy in and 1 of 1 out of 1.0 MiB"
            );
            assert_eq!((&check["verdict"], found(check)), (&"ok".into(), line.as_str()));
        }
    }
}

#[test]
fn wrong_numbers_and_missing_records_fail() {
    let home = need_some!(stand_ins());
    let path = ("LD_LIBRARY_PATH", home.join("12"));
    let path = (path.0, path.1.as_path());
    let (code, checks) = run_kernel(&[path, ("FAKE_CUDA_WRONG", Path::new("1"))]);
    assert_eq!((code, &checks[0]["verdict"]), (Some(1), &"part".into()), "{checks:?}");
    assert!(found(&checks[0]).contains("values are wrong; recorded 3 of 3"), "{checks:?}");

    let absent = Path::new("/opt/cuda/libcupti.so.12");
    let (code, checks) = run_kernel(&[path, ("TPROF_CUPTI", absent)]);
    assert_eq!((code, &checks[0]["verdict"]), (Some(1), &"part".into()), "{checks:?}");
    assert!(found(&checks[0]).contains("correct; recorded 0 of 3 kernels"), "{checks:?}");
    assert!(checks[0]["hint"].as_str().unwrap().contains("libcupti.so.12"), "{checks:?}");
}

#[test]
fn settings_of_the_user_do_not_reach_the_run() {
    let home = need_some!(stand_ins());
    let path = home.join("12");
    let (code, checks) = run_kernel(&[
        ("LD_LIBRARY_PATH", &path),
        ("TPROF_PAUSED", Path::new("true")),
        ("TPROF_MAX_SIZE", Path::new("1KiB")),
    ]);
    assert_eq!((code, &checks[0]["verdict"]), (Some(0), &"ok".into()), "{checks:?}");
}

#[test]
fn without_a_driver_the_kernels_are_skipped_and_the_doctor_fails() {
    let (code, checks) = run_kernel(&[]);
    if checks.iter().all(|check| check["verdict"] == "ok") {
        assert_eq!(code, Some(0), "{checks:?}");
        return; // this machine has a GPU
    }
    assert_eq!((code, checks.len()), (Some(1), 1), "{checks:?}");
    assert!(found(&checks[0]).starts_with("skipped: no NVIDIA driver"), "{checks:?}");
}
