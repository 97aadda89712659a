//! Tests of the limits of the memory that one report and the server itself may use.

use std::fs;
use std::io::BufWriter;
use std::path::Path;

use tprof_tests::{Scratch, Served, Synthetic, tprof};

use super::{copy, imported, recorded};

#[test]
fn a_report_that_takes_too_much_memory_is_ended_and_explained() {
    let scratch = Scratch::new();
    let (trace, directory) = (scratch.join("trace.json"), scratch.join("runs"));
    let mut file = BufWriter::new(fs::File::create(&trace).unwrap());
    Synthetic { rank: 0, ranks: 1, steps: 3000 }.write(&mut file).unwrap();
    drop(file);
    let run = directory.join("large");
    fs::create_dir(&directory).unwrap();
    let import = tprof([Path::new("import"), &trace, Path::new("-o"), &run]);
    import.run_in(scratch.path()).expect_code(0);
    copy(recorded(), &directory, "recorded");
    let served = Served::start(&directory, &["--memory-limit", "64M"]);
    let large = served.id_of(&run);
    let failure =
        served.get(&format!("/api/v1/runs/{large}/report/critical-path")).expect_failure(507);
    assert!(failure["why"].as_str().unwrap().contains("64 MiB"), "{failure}");
    assert!(failure["try"].as_str().unwrap().contains("--memory-limit"), "{failure}");
    // The next report needs less and gets its answer.
    let small = served.id_of(Path::new("recorded"));
    served.get(&format!("/api/v1/runs/{small}/report/summary")).expect(200);
    assert_eq!(fs::read_dir(served.temporary()).unwrap().count(), 0);
}

#[test]
fn the_server_itself_stays_small_with_ten_runs_open() {
    let scratch = Scratch::new();
    let directory = scratch.join("runs");
    for number in 0..5 {
        copy(recorded(), &directory, &format!("recorded-{number}"));
        copy(imported(), &directory, &format!("imported-{number}"));
    }
    let served = Served::start(&directory, &[]);
    let list = served.json("/api/v1/runs");
    let runs = list["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 10);
    let mut streams = Vec::new();
    for run in runs {
        let id = run["id"].as_u64().unwrap();
        for path in ["report/summary", "page/timeline", "page/report", "heat?metric=step_ns"] {
            served.get(&format!("/api/v1/runs/{id}/{path}")).expect(200);
        }
        let mut stream = served.begin(&format!("/api/v1/runs/{id}/events"));
        assert_eq!(stream.event().unwrap().0, "start");
        streams.push(stream);
    }
    assert!(served.peak_bytes() < 200 << 20, "{} MiB", served.peak_bytes() >> 20);
}
