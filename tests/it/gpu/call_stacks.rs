//! Tests of the stacks of calls in which a thread waits for a device. tprof samples these stacks by
//! the time that the calls take.

use super::*;
use std::process::Command;

/// A block of a kernel takes 80 us, so the job mostly waits for kernels.
const SLOW: [(&str, &str); 1] = [("FAKE_CUDA_BLOCK_NS", "80000")];

/// Returns the calls that wait for the device.
fn waits(file: &TraceFile) -> Vec<Span> {
    let names = ["cudaStreamSynchronize", "cudaEventSynchronize"];
    let is_wait =
        |span: &Span| span.kind == SpanKind::Runtime && names.contains(&file.name(span.name));
    rows::<Span>(file).into_iter().filter(is_wait).collect()
}

/// Returns the functions of a stack, innermost first.
fn functions(file: &TraceFile, span: &Span) -> Vec<String> {
    let stack = file.stack(span.process, span.stack).unwrap();
    let symbols = stack.frames.iter().flat_map(|frame| file.symbols(span.process, *frame));
    symbols.map(|symbol| file.name(symbol.function).to_owned()).collect()
}

#[test]
fn calls_that_wait_for_long_have_stacks() {
    for major in [12, 13] {
        let (_scratch, ran) = need_some!(ran(major, &["60"], &SLOW));
        // CUPTI recorded the rows.
        assert_calls(&ran);
        let waits = waits(&ran.file);
        let with_stack: Vec<&Span> = waits.iter().filter(|span| span.stack != 0).collect();
        // A stack is taken once per 30 million ticks, of a clock of 1 to 6 GHz; a longer call has
        // just one.
        let of = |most_ns: u64| waits.iter().map(|span| span.duration_ns.min(most_ns)).sum::<u64>();
        let (least, most) = (of(30_000_000) / 30_000_000, of(u64::MAX) / 5_000_000 + 1);
        let found = with_stack.len() as u64;
        assert!(least > 5 && (least..=most).contains(&found), "{least} {found} {most}");
        for span in with_stack {
            let functions = functions(&ran.file, span);
            assert!(functions.iter().any(|name| name == "train"), "{functions:?}");
        }
        let spans = rows::<Span>(&ran.file);
        let launched = |span: &&Span| is_launch(ran.file.name(span.name));
        assert!(spans.iter().filter(launched).all(|span| span.stack == 0));
    }
}

/// Python's functions are recorded even without `--stacks python`, because the few sampled calls
/// cost nothing.
#[test]
fn calls_in_which_python_waits_have_stacks_with_its_functions() {
    let home = need_some!(stand_ins());
    let scratch = Scratch::new();
    let library = scratch.join("libtrain.so");
    let mut compile = Command::new("gcc");
    compile.args(["-shared", "-fPIC", "-O1", "-g", "-DMAJOR=13", "-Dmain=train_main", "-o"]);
    compile.arg(&library).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/fake-cuda/train.c"));
    for name in ["libcudart.so.13", "libnccl.so.2"] {
        compile.arg(home.join("13").join(name));
    }
    compile.arg("-lpthread").arg("-ldl").arg("-Wl,-rpath-link").arg(home.join("13"));
    assert!(compile.status().unwrap().success());
    let script = scratch.join("trains.py");
    let text = "import ctypes, sys\n\
                def waits_for_the_device(library):\n    \
                words = (ctypes.c_char_p * 3)(b'train', b'60', None)\n    \
                return library.train_main(2, words)\n\
                sys.exit(waits_for_the_device(ctypes.CDLL(sys.argv[1])))\n";
    std::fs::write(&script, text).unwrap();
    let log = scratch.join("log");
    std::fs::create_dir(&log).unwrap();
    let job = Job::new("python3").arg(&script).arg(&library);
    let job = job.env("LD_LIBRARY_PATH", home.join("13")).env("FAKE_CUDA_LOG", &log);
    let run = traced(&job.env(SLOW[0].0, SLOW[0].1), GPU, &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let ran = read(run, &log, 0);
    let waits = waits(&ran.file);
    let stacks: Vec<Vec<String>> = waits
        .iter()
        .filter(|span| span.stack != 0)
        .map(|span| functions(&ran.file, span))
        .collect();
    let has = |name: &str| stacks.iter().filter(|all| all.iter().any(|f| f == name)).count();
    // The first call may come before the collector has found the interpreter.
    assert!(stacks.len() > 5 && has("train") == stacks.len(), "{stacks:?}");
    assert!(has("waits_for_the_device") + 3 >= stacks.len(), "{stacks:?}");
}
