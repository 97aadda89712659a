use super::*;
use tprof_wire::calls::{FUNCTIONS, Number};

fn note(number: Number, result: u32, detail: u64) -> CallNote {
    let number = number as u32;
    let function = &FUNCTIONS[number as usize];
    let (end, kind, stack) = (0, 0, 0);
    CallNote::Call { function, number, end, result, kind, stream: 0, detail, stack }
}

#[test]
fn traces_call_the_same_functions_launches_as_the_hooks() {
    for function in FUNCTIONS {
        let launches = matches!(function.does, Effect::Launches { .. });
        let is_named_so = tprof_trace::calls::is_launch(function.name.text());
        assert_eq!(launches, is_named_so, "{}", function.name.text());
    }
}

#[test]
fn arguments_are_kept_until_cupti_reports_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &Default::default()).unwrap();
    let (clock, mut calls) = (Clock::new(), Calls::new(0));
    let note = note(Number::cudaMalloc, 2, 1 << 50);
    calls.take(note, 0, 1_000_000_000, &clock, &mut writer);
    let call = calls.stack_of_call.take().expect("its arguments");
    assert_eq!((call.name, call.args == NameId(0)), ("cudaMalloc", false));
}

#[test]
fn launches_are_counted_from_the_moment_when_cupti_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &Default::default()).unwrap();
    let (clock, mut calls) = (Clock::new(), Calls::new(0));
    let note = || note(Number::cudaLaunchKernel, 0, 0);
    for at in 0..10 {
        calls.take(note(), 0, 1_000_000_000 + at, &clock, &mut writer);
    }
    // Only now does the agent report that CUPTI has recorded since the fifth call.
    calls.cupti_calls_from_ns = Some(1_000_000_005);
    calls.take(note(), 0, 1_000_000_010, &clock, &mut writer);
    calls.write(2_000_000_000, true, &mut writer).unwrap();
    assert_eq!(calls.coverage.finish(1_000_000_011), (Vec::new(), 6));
    writer.finish().unwrap();
    let file = tprof_trace::TraceFile::open(&path).unwrap();
    assert_eq!(file.row_count::<Span>(), 5);
}
