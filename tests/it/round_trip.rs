//! A trace that is imported and exported has the same content when it is imported again.

use std::path::{Path, PathBuf};
use tprof_tests::foreign::{accelerator, first_kineto};
use tprof_tests::{Refused, Scratch, skip, tprof};
use tprof_trace::model::*;
use tprof_trace::{TraceFile, TraceRow};

/// Everything that a Kineto trace may contain, and a malicious name.
const TRACE: &str = r#"{
 "schemaVersion": 1, "record_shapes": 1, "traceName": "x\u00e9.json",
 "deviceProperties": [{"id": 0, "name": "GPU", "totalGlobalMem": 1024, "numSms": 80, "warpSize": 32}],
 "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 4},
 "traceEvents": [
 {"ph":"X","cat":"cpu_op","name":"aten::add","pid":100,"tid":100,"ts":1700000000000010.125,"dur":50.5,
  "args":{"External id":5,"Ev Idx":4,"Sequence number":9,"Fwd thread id":0,"Input Dims":[[1],[]],"Concrete Inputs":"a\"b"}},
 {"ph":"X","cat":"python_function","name":"train.py(3): step","pid":100,"tid":100,"ts":1700000000000005,"dur":100,
  "args":{"Python id":1,"Python parent id":null}},
 {"ph":"X","cat":"python_function","name":"f","pid":100,"tid":100,"ts":1700000000000006,"dur":90,
  "args":{"Python id":2,"Python parent id":1,"Call stack":"a.py(1): f;b.py(2): g"}},
 {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":100,"tid":100,"ts":1700000000000020,"dur":5.001,
  "args":{"External id":5,"cbid":211,"correlation":77}},
 {"ph":"s","id":77,"pid":100,"tid":100,"ts":1700000000000020,"cat":"ac2g","name":"ac2g"},
 {"ph":"X","cat":"kernel","name":"<img src=x onerror=alert(1)>\u0001","pid":0,"tid":7,"ts":1700000000000040,"dur":8.25,
  "args":{"External id":5,"device":0,"context":1,"stream":7,"correlation":77,"registers per thread":16,"shared memory":48,
  "blocks per SM":0.3,"warps per SM":1.2,"grid":[24,1,1],"block":[128,2,1],"est. achieved occupancy %":2,"graph id":3,"graph node id":8}},
 {"ph":"f","id":77,"pid":0,"tid":7,"ts":1700000000000040,"cat":"ac2g","name":"ac2g","bp":"e"},
 {"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pinned -> Device)","pid":0,"tid":7,"ts":1700000000000050,"dur":2,
  "args":{"device":0,"context":1,"stream":7,"correlation":78,"bytes":4096,"memory bandwidth (GB/s)":2.5}},
 {"ph":"X","cat":"gpu_memset","name":"Memset (Device)","pid":0,"tid":7,"ts":1700000000000053,"dur":1,
  "args":{"device":0,"context":1,"stream":7,"correlation":79,"bytes":128}},
 {"ph":"X","cat":"cuda_sync","name":"Stream Wait Event","pid":0,"tid":7,"ts":1700000000000060,"dur":1,
  "args":{"cuda_sync_kind":"Stream Wait Event","stream":7,"correlation":80,"device":0,"context":1,
  "wait_on_stream":20,"wait_on_cuda_event_record_corr_id":70,"wait_on_cuda_event_id":6}},
 {"ph":"X","cat":"cuda_sync","name":"Context Sync","pid":0,"tid":-1,"ts":1700000000000062,"dur":1,
  "args":{"cuda_sync_kind":"Context Sync","stream":-1,"correlation":81,"device":0,"context":1}},
 {"ph":"X","cat":"gpu_user_annotation","name":"step","pid":0,"tid":7,"ts":1700000000000038,"dur":30,"args":{"External id":5}},
 {"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":100,"tid":100,"ts":1700000000000070,
  "args":{"Device Type":1,"Device Id":0,"Addr":1234567,"Bytes":512,"Total Allocated":512,"Total Reserved":1024}},
 {"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":100,"tid":100,"ts":1700000000000071,
  "args":{"Device Type":0,"Device Id":-1,"Addr":1234567,"Bytes":-512,"Total Allocated":0}},
 {"ph":"s","id":1,"pid":100,"tid":100,"ts":1700000000000010.125,"cat":"fwdbwd","name":"fwdbwd"},
 {"ph":"f","id":1,"pid":100,"tid":101,"ts":1700000000000080,"cat":"fwdbwd","name":"fwdbwd","bp":"e"},
 {"ph":"X","cat":"user_annotation","name":"nccl:all_reduce","pid":100,"tid":101,"ts":1700000000000080,"dur":3,"args":{"External id":6}},
 {"ph":"X","cat":"odd","name":"","pid":100,"tid":101,"ts":1700000000000084,"dur":0},
 {"ph":"C","name":"load","pid":100,"ts":1700000000000090,"args":{"value":0.5}},
 {"ph":"M","name":"process_name","pid":100,"tid":0,"ts":0,"args":{"name":"python3"}},
 {"ph":"M","name":"thread_name","pid":100,"tid":101,"ts":0,"args":{"name":"autograd"}},
 {"ph":"M","name":"process_labels","pid":0,"tid":0,"ts":0,"args":{"labels":"GPU 0"}},
 {"ph":"X","cat":"Trace","ts":1700000000000000,"dur":200,"pid":"Spans","tid":"PyTorch Profiler","name":"PyTorch Profiler (0)","args":{"Op count":0}},
 {"ph":"X","cat":"Trace","ts":1700000000000001,"dur":100,"pid":"Spans","tid":"__cupti_profiler__","name":"__cupti_profiler__ (-1)","args":{"Op count":0}},
 {"ph":"i","s":"g","name":"Iteration Start: PyTorch Profiler","pid":"Traces","tid":"Trace PyTorch Profiler","ts":1700000000000000}
 ], "displayTimeUnit": "ms"}"#;

fn import(trace: &Path, run: &Path, scratch: &Scratch) -> TraceFile {
    let job = tprof(["import"]).arg(trace).arg("-o").arg(run);
    job.run_in(scratch.path()).expect_code(0);
    let rank = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let rank = rank.into_iter().find(|path| path.extension().is_some_and(|e| e == "tprof"));
    TraceFile::open(&rank.unwrap()).unwrap()
}

fn export(run: &Path, to: &Path, scratch: &Scratch) -> PathBuf {
    let job = tprof(["export", "--to", "chrome"]).arg(run).arg("-o").arg(to);
    job.run_in(scratch.path()).expect_code(0);
    to.join("rank-3.trace.json.gz")
}

/// Returns all rows of a table with their names resolved, sorted.
fn rows<R: TraceRow + Clone + std::fmt::Debug>(
    file: &TraceFile,
    names: impl Fn(&R) -> Vec<NameId>,
) -> Vec<String> {
    let text = |row: &R| {
        let names: Vec<&str> = names(row).into_iter().map(|name| file.name(name)).collect();
        // The numbers of names and threads differ between files, so they are replaced.
        let row = with_tids(&format!("{row:?}"), file);
        let plain = row.split("NameId(").enumerate().map(|(at, part)| match at {
            0 => part,
            _ => part.split_once(')').map_or(part, |(_, rest)| rest),
        });
        format!("{} {names:?}", plain.collect::<String>())
    };
    let mut rows: Vec<String> = file.rows::<R>().0.iter().map(text).collect();
    rows.sort();
    rows
}

/// Returns a row's text with the id and the name of its thread in place of the thread's number.
fn with_tids(row: &str, file: &TraceFile) -> String {
    let fields = [" thread: Some(", " thread: "];
    let Some(field) = fields.into_iter().find(|field| row.contains(field)) else {
        return row.to_owned();
    };
    let (before, rest) = row.split_once(field).unwrap();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap();
    let (number, after) = rest.split_at(end);
    let Ok(number) = number.parse::<ThreadIndex>() else { return row.to_owned() };
    let thread = file.threads().iter().find(|thread| thread.thread == number).unwrap();
    format!("{before}{field}{} {:?}{after}", thread.tid, file.thread_name(number))
}

/// Returns everything in a file that came from its trace.
fn all(file: &TraceFile) -> Vec<Vec<String>> {
    let named = |text: &str| {
        // The order of keys has no meaning, so objects are parsed.
        serde_json::from_str::<serde_json::Value>(text).map_or(text.to_owned(), |v| v.to_string())
    };
    let properties = file.properties().filter(|(key, _)| *key != "tprof.import");
    let stacks = file.stacks().iter().map(|stack| {
        let symbols = stack.frames.iter().flat_map(|frame| file.symbols(0, *frame));
        format!("{:?}", symbols.map(|s| (file.name(s.function), s.line)).collect::<Vec<_>>())
    });
    let threads = file.threads().iter().map(|t| (t.tid, file.thread_name(t.thread)));
    vec![
        rows::<Span>(file, |r| vec![r.name, r.category, r.args]),
        rows::<Kernel>(file, |r| vec![r.name, r.args]),
        rows::<MemoryCopy>(file, |r| vec![r.name, r.args]),
        rows::<Synchronization>(file, |r| vec![r.name, r.args]),
        rows::<DeviceSpan>(file, |r| vec![r.name, r.category, r.args]),
        rows::<Collective>(file, |r| vec![r.name, r.element_type]),
        rows::<DeviceAllocation>(file, |_| vec![]),
        rows::<FlowPoint>(file, |r| vec![r.category, r.name]),
        file.counters()
            .iter()
            .map(|r| format!("{} {:?}", r.time_ns, (file.name(r.name), r.value)))
            .collect(),
        file.marks().iter().map(|r| format!("{} {}", r.time_ns, file.name(r.name))).collect(),
        properties.map(|(key, value)| format!("{key} {}", named(value))).collect(),
        stacks.collect(),
        threads.map(|thread| format!("{thread:?}")).collect(),
        file.processes().iter().map(|p| format!("{} {}", p.pid, file.name(p.command))).collect(),
    ]
}

#[test]
fn import_export_import_changes_nothing() {
    let scratch = Scratch::new();
    let trace = scratch.join("trace.json");
    std::fs::write(&trace, TRACE).unwrap();
    let first = import(&trace, &scratch.join("first"), &scratch);
    let again = export(&scratch.join("first"), &scratch.join("out"), &scratch);
    let second = import(&again, &scratch.join("second"), &scratch);
    for (before, after) in all(&first).iter().zip(&all(&second)) {
        assert_eq!(before, after);
    }
    // A third round gives the same file: the output does not depend on the number of rounds.
    let third = export(&scratch.join("second"), &scratch.join("out2"), &scratch);
    assert_eq!(std::fs::read(&again).unwrap(), std::fs::read(&third).unwrap());
}

#[test]
fn real_traces_survive_an_export_and_an_import() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let data = std::env::var_os("TPROF_SHARED_DATA").map_or(beside, PathBuf::from);
    if !data.join("kineto").is_dir() {
        return skip(Refused::RealTraces);
    }
    for set in ["nccl_a100", "event_sync_multi_cp", "cupti_counters", "triton", "amd_mi250"] {
        assert_survives(&data.join("kineto").join(set), set, &Scratch::new());
    }
}

/// Checks that a trace is the same after an export and another import.
fn assert_survives(trace: &Path, what: &str, scratch: &Scratch) {
    let first = import(trace, &scratch.join("first"), scratch);
    let out = scratch.join("out");
    let job = tprof(["export", "--to", "chrome"]).arg(scratch.join("first")).arg("-o").arg(&out);
    job.run_in(scratch.path()).expect_code(0);
    let second = import(&out, &scratch.join("second"), scratch);
    for (before, after) in all(&first).iter().zip(&all(&second)) {
        assert_eq!(before.len(), after.len(), "{what}");
        for (before, after) in before.iter().zip(after) {
            assert_eq!(before, after, "{what}");
        }
    }
}

#[test]
fn traces_of_old_pytorch_and_accelerators_survive_a_round_trip() {
    let mtia = accelerator(
        3,
        ["mtia_runtime", "mtia_ccp_events", "mtia_ccp_events"],
        ["fc_kernel", "dma_in"],
    );
    for (what, mut made) in [("PyTorch 1.8", first_kineto(3)), ("MTIA", mtia)] {
        // A counter of a device belongs to no process.
        made.event(
            r#""ph":"C","cat":"mtia_counters","name":"HBM","pid":2,"ts":1100000,"args":{"value":7}"#,
        );
        let scratch = Scratch::new();
        let trace = scratch.join("trace.json");
        made.write(&trace);
        assert_survives(&trace, what, &scratch);
    }
}
