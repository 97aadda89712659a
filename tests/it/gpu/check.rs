//! Runs the check that users run on a real GPU (docs/gpu-check.md) on the stand-ins, from its
//! package. Its parts must work together. Its judge, which only has the archive, must fail on each
//! planted fault.

use super::*;
use std::process::Command;
use tprof_tests::{nvcc, skip, tprof_at};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/gpu-check");

/// Returns the output of a command; panics with the output if the command failed.
#[track_caller]
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Returns the only entry of a folder with this beginning.
fn entry(folder: &Path, beginning: &str) -> PathBuf {
    let mut found = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(beginning));
    let one = found.next().unwrap_or_else(|| panic!("no {beginning} in {folder:?}"));
    assert!(found.next().is_none());
    one
}

#[test]
fn steps_that_hang_end_and_archives_name_nobody() {
    printed(Command::new("python3").arg(format!("{SCRIPTS}/test_parts.py")));
}

#[test]
fn a_floor_records_what_tprof_asked_for_and_differences_are_of_the_same_round() {
    printed(Command::new("python3").arg(format!("{SCRIPTS}/test_recording.py")));
}

#[test]
fn a_machine_that_lacks_something_is_named_and_leaves_an_archive() {
    printed(Command::new("python3").arg(format!("{SCRIPTS}/test_hostile.py")));
}

#[test]
fn the_package_checks_a_machine_and_its_judge_fails_on_each_planted_fault() {
    let home = need_some!(stand_ins());
    let scratch = Scratch::new();
    let archive = scratch.join("package.tar.gz");
    let mut package = Command::new(format!("{SCRIPTS}/package.sh"));
    package.arg("-t").arg(tprof_at()).env("TRUTH_ARCH", "compute_90");
    // NVIDIA's static runtime asks the driver for tables that no header documents (cuGetExportTable).
    let inside = ["target/release/examples/libfake_cudart.a", "13/major.o"];
    let inside = inside.map(|name| home.join(name).display().to_string());
    package.env("TRUTH_STATIC", inside.join(" "));
    match nvcc() {
        Ok(nvcc) => drop(package.arg("-n").arg(nvcc)),
        Err(why) => skip(why),
    }
    printed(package.arg(&archive));
    let empty = scratch.join("empty");
    std::fs::create_dir(&empty).unwrap();
    printed(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&empty));
    let unpacked = entry(&empty, "tprof-gpu-check-");

    // The check runs without this machine's environment, and without the sources.
    let mut check = Command::new("sh");
    check.arg(unpacked.join("scripts/gpu-check.sh")).arg("--quick");
    check.arg("--cuda").arg(home.join("12")).arg("--cuda").arg(home.join("13"));
    check.current_dir(&empty).env_clear();
    check.env("PATH", "/usr/bin:/bin").env("FAKE_CUDA_BLOCK_NS", "500000");
    // What the stand-in says of the kernels of which it is known why their warps wait.
    check.env(
        "FAKE_CUPTI_STALLS",
        "stall_memory:64:long_scoreboard=90;stall_memory:64:selected=9;\
         stall_math:32:math_pipe_throttle=50;stall_math:32:not_selected=200;\
         stall_dependency:16:wait=30;stall_dependency:16:selected=40;\
         stall_dependency:16:wait_not_issued=30",
    );
    let text = printed(&mut check);
    let bundle = entry(&empty, "gpu-check-simulated-");
    assert!(text.contains("ok           truth-12: kernels are CUPTI's records"), "{text}");
    for form in ["", "-static", "-threads"].iter().filter(|_| nvcc().is_ok()) {
        let whole = format!("ok           truth-13{form}: nothing of the device is lost");
        assert!(text.contains(&whole), "{text}");
    }
    // The cost of recording is listed by part, and beside a floor that records what tprof asks CUPTI
    // for.
    let costs = "ms a step, 540 copies within the device, without PyTorch";
    let rows = ["native", "floor: all that tprof asks for", "tprof, paused", "tprof, only the GPU"];
    let table = text.split_once(costs).unwrap_or_else(|| panic!("{text}")).1;
    assert!(rows.iter().all(|row| table.lines().any(|line| line.starts_with(row))), "{text}");
    assert!(text.contains("ok           recording: CUPTI accepts what the floor"), "{text}");
    // Simulated samples show that the part works, not that a device's reasons are right.
    for found in ["stall_memory waits for memory", "stall_math waits for math"] {
        assert!(text.contains(&format!("ok           stalls: {found}")), "{text}");
    }
    // Parts that cannot run here have not passed.
    assert!(text.contains("not checked  PyTorch"), "{text}");
    assert!(text.contains("not checked  facts of the machine"), "{text}");

    // Offline: only the archive and the judge.
    let judge = unpacked.join("scripts/gpu-check/judge.py");
    let again = printed(Command::new("python3").arg(judge).arg(&bundle));
    assert_eq!(again.lines().last(), text.lines().find(|line| line.ends_with(" not checked")));
    let faults =
        printed(Command::new("python3").arg(format!("{SCRIPTS}/test_judge.py")).arg(&bundle));
    assert!(faults.contains("each check failed on its fault"), "{faults}");

    // The replay repeats what CUPTI did in the recording.
    let again = replayed(home, &bundle);
    assert!(again.contains("ok           the same records come in the same buffers"), "{again}");
}

/// Returns the output of the replay of an archive's recordings.
fn replayed(home: &Path, archive: &Path) -> String {
    let mut replay = Command::new("python3");
    printed(replay.arg(format!("{SCRIPTS}/replay.py")).arg(tprof_at()).arg(home).arg(archive))
}

/// Replays the recordings of CUPTI 12.6 and 13.0 on an H200, and those that are kept of other
/// devices.
#[test]
fn recordings_of_real_cuptis_replay_without_a_loss() {
    let home = need_some!(stand_ins());
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/gpu");
    let kept = std::fs::read_dir(kept).unwrap().map(|entry| entry.unwrap().path());
    let archives = kept.filter(|path| path.to_str().is_some_and(|name| name.ends_with(".tar.gz")));
    let mut recordings = 0;
    for archive in archives {
        let text = replayed(home, &archive);
        let of = |line: &str| text.matches(&format!("ok           {line}")).count();
        let count = text.matches("== ").count();
        assert_eq!(of("the same records come in the same buffers"), count, "{text}");
        assert_eq!(of("replay: nothing of the device is lost"), count, "{text}");
        recordings += count;
    }
    assert!(recordings >= 2);
}
