//! Compares all recorded rows with the log of what ran, record by record.

use super::*;

#[test]
fn all_work_is_recorded_once_on_cuda_12_and_13() {
    for major in [12, 13] {
        let words = ["8", "overlap", "memory", "threads"];
        let (_scratch, ran) = need_some!(ran(major, &words, &[]));
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        assert_eq!(of_kind(&ran.log, "kernel").len(), 2 * 8 * 6);
        assert_kernels(&ran);
        assert_copies(&ran);
        assert_waits(&ran);
        assert_calls(&ran);
        assert_eq!(losses(&ran, "GPU", ""), 0);
        let [device] = ran.file.devices() else { panic!("{:?}", ran.file.devices()) };
        assert_eq!(ran.file.name(device.name), "Simulated GPU");
        assert_eq!((device.processors, device.compute_major), (Some(132), Some(9)));
        assert_eq!(ran.file.streams().len(), of_kind(&ran.log, "stream").len());
        assert!(ran.file.property("cupti").unwrap().contains(&format!("libcupti.so.{major}")));
    }
}

#[test]
fn while_recording_is_off_cupti_collects_no_work() {
    for (options, collected) in [(&[][..], 11..=15), (&["--paused"], 4..=4)] {
        let scratch = Scratch::new();
        let (job, log) = need_some!(train(13, &["8"], &scratch));
        let ran = read(traced(&job, &[GPU, options].concat(), &scratch), &log, 0);
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        assert_eq!(of_kind(&ran.log, "kernel").len(), 8 * 6);
        let most_recent = number(of_kind(&ran.log, "kinds").last().unwrap(), "on");
        assert!(collected.contains(&most_recent), "{most_recent}: {options:?}");
        let recorded = if options.is_empty() { 8 * 6 } else { 0 };
        assert_eq!(rows::<Kernel>(&ran.file).len(), recorded, "{options:?}");
        assert_eq!(ran.file.devices().len(), 1);
    }
}

#[test]
fn reports_in_nsights_columns_agree_with_the_log() {
    let (_scratch, ran) = need_some!(ran(13, &["8", "overlap"], &[]));
    let sum = |lines: &[&Value], key: &str| lines.iter().map(|line| number(line, key)).sum::<u64>();
    let copies: Vec<&Value> =
        ran.log.iter().filter(|l| l["what"] == "copy" || l["what"] == "fill").collect();
    let report = document("memcpy", &ran.traced.run);
    let total = |table: &str, key: &str| {
        let rows = report["tables"][table].as_array().unwrap();
        rows.iter().map(|row| number(row, key)).sum::<u64>()
    };
    let times = sum(&copies, "end") - sum(&copies, "start");
    assert_eq!(total("cuda_gpu_mem_time_sum", "total_ns"), times);
    assert_eq!(total("cuda_gpu_mem_time_sum", "count"), copies.len() as u64);
    assert_eq!(total("cuda_gpu_mem_size_sum", "total_bytes"), sum(&copies, "bytes"));
    let report = document("api", &ran.traced.run);
    let rows = report["tables"]["cuda_api_sum"].as_array().unwrap();
    let launches = rows.iter().find(|row| row["name"] == "__cudaLaunchKernel").unwrap();
    assert_eq!((number(launches, "count"), &launches["interface"]), (8 * 6, &"runtime".into()));
    let report = document("kernels", &ran.traced.run);
    let rows = report["tables"]["kernels"].as_array().unwrap();
    let gemm = rows.iter().find(|row| row["name"].as_str().unwrap().starts_with("gemm(")).unwrap();
    let of_log = of_kind(&ran.log, "kernel").into_iter();
    let mut times: Vec<u64> = of_log
        .filter(|line| line["name"] == "_Z4gemmPKfS0_Pfiii")
        .map(|line| number(line, "end") - number(line, "start"))
        .collect();
    times.sort_unstable();
    assert_eq!(number(gemm, "count"), times.len() as u64);
    let middle = (times[times.len() / 2 - 1] + times[times.len() / 2]) as f64 / 2.0;
    assert_eq!(gemm["p50_ns"].as_f64(), Some(middle));
}

#[test]
fn a_reset_of_a_device_frees_the_live_memory_on_it() {
    for (major, devices) in [(12, "1"), (13, "2")] {
        let (_scratch, ran) =
            need_some!(ran(major, &["3", "reset"], &[("FAKE_CUDA_DEVICES", devices)]));
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        assert_calls(&ran);
        let report = document("device-memory", &ran.traced.run);
        let row = |device: Value| {
            let rows = report["tables"]["pools"].as_array().unwrap();
            let row = rows.iter().find(|row| row["device"] == device);
            let row = row.unwrap_or_else(|| panic!("no {device} in {rows:#?}"));
            ["reset_frees", "reset_bytes", "last_bytes"].map(|key| number(row, key))
        };
        assert_eq!(row(0.into()), [2, 2 << 20, 3 << 20]);
        let notes = report["notes"].to_string();
        match devices {
            // The host's blocks belong to the only device.
            "1" => {
                assert_eq!(row(Value::Null), [1, 1 << 16, 0]);
                assert!(notes.contains("1 device reset freed 3 blocks"), "{notes}");
            }
            _ => {
                assert_eq!(row(1.into()), [0, 0, 2 << 20]);
                assert_eq!(row(Value::Null), [0, 0, 1 << 16]);
                assert!(
                    notes.contains("of pinned host memory, 1 block is counted as live"),
                    "{notes}"
                );
            }
        }
    }
}

#[test]
fn kernels_before_a_reset_are_recorded_though_cupti_discards_them() {
    let faults = [("FAKE_CUPTI_FAULTS", "reset")];
    let (_scratch, ran) = need_some!(ran(13, &["3", "reset"], &faults));
    assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
    assert_kernels(&ran);
    assert_eq!(losses(&ran, "kernels", ""), 0);
}

#[test]
fn a_kernel_is_linked_to_the_call_that_launched_it() {
    let (_scratch, ran) = need_some!(ran(13, &["6"], &[]));
    let spans = rows::<Span>(&ran.file);
    for kernel in rows::<Kernel>(&ran.file) {
        let launch = spans.iter().find(|span| span.correlation == kernel.correlation).unwrap();
        assert_eq!(ran.file.name(launch.name), "__cudaLaunchKernel");
    }
}

#[test]
fn replays_of_a_graph_are_recorded_node_by_node() {
    let (_scratch, ran) = need_some!(ran(12, &["7", "graph"], &[]));
    assert_kernels(&ran);
    let of_graph = rows::<Kernel>(&ran.file).into_iter().filter(|k| k.graph.is_some());
    let mut nodes = BTreeMap::new();
    for kernel in of_graph {
        *nodes.entry(kernel.graph_node.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(nodes.into_values().collect::<Vec<_>>(), [7; 5]);
}

#[test]
fn late_and_out_of_order_buffers_change_nothing() {
    let faulty = [("FAKE_CUPTI_FAULTS", "late")];
    let (_scratch, ran) = need_some!(ran(12, &["20", "threads"], &faulty));
    assert_kernels(&ran);
    assert_copies(&ran);
    assert_waits(&ran);
    assert_calls(&ran);
}

#[test]
fn another_clock_of_cuptis_is_joined() {
    let clock = [("FAKE_CUPTI_OFFSET_NS", "-987654321987"), ("FAKE_CUPTI_DRIFT_PPM", "40")];
    let (_scratch, ran) = need_some!(ran(13, &["30"], &clock));
    let off = uncertainty(&ran.file);
    let mut wanted: Vec<u64> = kernels_of_log(&ran.log).iter().map(|(_, start)| *start).collect();
    let mut got: Vec<u64> = rows::<Kernel>(&ran.file).iter().map(|row| row.start_ns).collect();
    wanted.sort_unstable();
    got.sort_unstable();
    assert_eq!(wanted.len(), got.len());
    for (wanted, got) in wanted.iter().zip(&got) {
        assert!(wanted.abs_diff(*got) <= off, "{got}, not {wanted}, within {off}");
    }
}

#[test]
fn the_job_is_unchanged() {
    let scratch = Scratch::new();
    for words in [&["5"][..], &["5", "fork"], &["5", "exit"], &["5", "_exit"], &["5", "abort"]] {
        let (job, log) = need_some!(train(13, words, &scratch));
        assert_unchanged(&job, &[GPU, &[]], &scratch);
        let complaints = what_ran(&log).iter().filter(|l| l["what"] == "complaint").count();
        assert_eq!(complaints, 0, "{words:?}");
    }
}

#[test]
fn raw_buffers_are_kept_unchanged() {
    let raw = Scratch::new();
    let path = raw.join("raw.cupti");
    let keep = [("TPROF_CUPTI_RECORD", path.to_str().unwrap())];
    let (_scratch, ran) = need_some!(ran(12, &["6"], &keep));
    assert_kernels(&ran);
    let bytes = std::fs::read(&path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut buffers, mut texts, mut at) = (Vec::new(), BTreeMap::new(), 0);
    let mut journal = Vec::new();
    while at < bytes.len() {
        assert_eq!(&bytes[at..at + 8], b"TPROFRAW");
        let (kind, version, len) = (word(at + 8), word(at + 16), word(at + 20) as usize);
        assert_eq!(version, 28);
        let body = &bytes[at + 24..at + 24 + len];
        match kind {
            1 => buffers.push(body),
            2 => {
                let address = u64::from_ne_bytes(body[..8].try_into().unwrap());
                texts.insert(address, std::str::from_utf8(&body[8..]).unwrap());
            }
            3 => journal.extend(body.chunks_exact(40).map(|entry| {
                let wide = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().unwrap());
                (wide(0) as u32, [wide(16), wide(24), wide(32)])
            })),
            other => panic!("a block of kind {other}"),
        }
        at += 24 + len;
    }
    // Each kernel in the log has a record in a buffer, in the layout of CUPTI 12, and its name is
    // kept.
    for line in of_kind(&ran.log, "kernel") {
        let (start, end) = (number(line, "start"), number(line, "end"));
        let matches = |record: &[u8]| {
            let wide = |at: usize| u64::from_ne_bytes(record[at..at + 8].try_into().unwrap());
            let narrow = |at: usize| u32::from_ne_bytes(record[at..at + 4].try_into().unwrap());
            narrow(0) == 10
                && u64::from(narrow(92)) == number(line, "correlation")
                && wide(24).wrapping_sub(wide(16)) == end - start
                && texts.get(&wide(104)).is_some_and(|name| line["name"] == **name)
        };
        let found = buffers.iter().any(|buffer| {
            (0..buffer.len() / 8).any(|at| buffer.get(at * 8..at * 8 + 112).is_some_and(matches))
        });
        assert!(found, "{line}");
    }
    assert_journal(&journal, &buffers);
}

/// Checks the order of entries in the journal: set-up within one call, then buffers that are lent,
/// returned and read. Each read must report as many bytes as were kept of its buffer.
fn assert_journal(journal: &[(u32, [u64; 3])], buffers: &[&[u8]]) {
    const SET_UP: [u32; 4] = [1, 3, 4, 2];
    const REQUESTED: u32 = 7;
    const COMPLETED: u32 = 8;
    const READ: u32 = 12;
    let place = |what| journal.iter().position(|(found, _)| *found == what).unwrap();
    assert!(SET_UP.map(place).is_sorted(), "{journal:?}");
    let (mut lent, mut full, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for (what, [address, bytes, _]) in journal {
        match *what {
            REQUESTED => lent.push(*address),
            COMPLETED => {
                let at =
                    lent.iter().position(|lent| lent == address).expect("a buffer that was lent");
                lent.remove(at);
                full.push((*address, *bytes));
            }
            READ => {
                let at =
                    full.iter().position(|(full, _)| full == address).expect("a returned buffer");
                read.push(full.remove(at).1);
            }
            _ => {}
        }
    }
    assert!(full.is_empty(), "{full:?}");
    assert_eq!(read, buffers.iter().map(|buffer| buffer.len() as u64).collect::<Vec<_>>());
}

#[test]
fn each_rank_has_its_own_device_and_its_collectives_kernels() {
    let scratch = Scratch::new();
    let (_, log) = need_some!(train(13, &[], &scratch));
    let home = need_some!(stand_ins());
    let both = "RANK=0 \"$1\" 6 nccl & first=$!; RANK=1 \"$1\" 6 nccl; wait $first";
    let job = Job::sh(both)
        .arg(home.join("train-13"))
        .env("WORLD_SIZE", "2")
        .env("MEETING", scratch.join("meeting"))
        .env("LD_LIBRARY_PATH", home.join("13"))
        .env("FAKE_CUDA_DEVICES", "2")
        .env("FAKE_CUDA_LOG", &log);
    let run = traced(&job, &["--activities", "gpu,comm"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    for rank in [0, 1] {
        let path = run.run.join(format!("rank-{rank}.tprof"));
        let file = TraceFile::open(&path).unwrap();
        let pid = file.processes().iter().find(|p| p.rank == Some(rank)).unwrap().pid;
        let own: PathBuf = log.join(format!("{pid}.jsonl"));
        let text = std::fs::read_to_string(own).unwrap();
        let log: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let got = kernels_of_file(&file);
        assert!(got.iter().all(|(facts, _)| facts.1[1] == u64::from(rank)), "rank {rank}");
        let names = |all: &[(KernelFacts, u64)]| {
            all.iter().filter(|(f, _)| f.0.starts_with("nccl")).count()
        };
        assert_eq!(names(&got), 1 + 6);
        let strip = |all: Vec<(KernelFacts, u64)>| {
            let rest = all.into_iter().filter(|(facts, _)| !facts.0.contains("nccl"));
            rest.collect::<Vec<_>>()
        };
        assert_same(strip(kernels_of_log(&log)), strip(got), uncertainty(&file));
    }
    // Calls find their kernels through the launches: a group of two is one operation.
    let comm = document("comm", &run.run);
    let rows = comm["tables"]["comm"].as_array().unwrap();
    let of = |operation: &str| {
        let row = rows.iter().find(|row| row["operation"] == operation).unwrap();
        ["calls", "bytes", "group_size"].map(|key| number(row, key))
    };
    assert_eq!(of("broadcast Float"), [2, 4096 * 4, 2]);
    assert_eq!(of("all_reduce Float"), [2 * 6, 4096 * 4 + 4, 2]);
}

#[test]
fn driver_calls_and_cuptis_overhead_are_recorded_once() {
    let extra = [("FAKE_CUDA_DRIVER_CALLS", "1"), ("FAKE_CUPTI_FAULTS", "overhead=3")];
    for major in [12, 13] {
        let (_scratch, ran) = need_some!(ran(major, &["6", "threads"], &extra));
        assert_kernels(&ran);
        assert_calls(&ran);
        let spans = rows::<Span>(&ran.file);
        let of_row = |span: &Span| {
            let thread = ran.file.threads().iter().find(|t| t.thread == span.thread).unwrap();
            let name = ran.file.name(span.name).to_owned();
            let facts = (name, u64::from(thread.tid), span.correlation.unwrap(), span.duration_ns);
            (facts, span.start_ns)
        };
        let of_line = |line: &&Value| {
            let n = |key: &str| number(line, key);
            let name = line["name"].as_str().unwrap().to_owned();
            ((name, n("thread"), n("correlation"), n("end") - n("start")), n("start"))
        };
        let recorded = spans.iter().filter(|span| span.kind == SpanKind::Driver).map(of_row);
        let wanted = of_kind(&ran.log, "driver call");
        assert_eq!(wanted.len(), 2 * 6 * 6);
        let wanted = wanted.iter().map(of_line).collect();
        assert_same(wanted, recorded.collect(), uncertainty(&ran.file));
        // Each call of the driver lies in the runtime's call that made it.
        let tables = &document("api", &ran.traced.run)["tables"];
        let row_of = |table: &str| {
            let rows = tables[table].as_array().into_iter().flatten();
            rows.clone().find(|row| row["name"] == "cuLaunchKernel")
        };
        let driver = row_of("cuda_api_sum").unwrap();
        assert_eq!(driver["interface"], "driver");
        // Launches outside of the inferred steps are listed separately.
        let outside = row_of("outside_of_steps").map_or(0, |row| number(row, "outside_count"));
        assert_eq!(number(driver, "count") + outside, 72, "{tables}");

        let overhead: Vec<u64> = spans
            .iter()
            .filter(|span| span.kind == SpanKind::Overhead)
            .map(|span| span.duration_ns)
            .collect();
        let wanted: Vec<u64> =
            of_kind(&ran.log, "overhead").iter().map(|line| number(line, "length")).collect();
        assert_eq!((wanted.len(), overhead), (72 / 3, wanted));
    }
}

#[test]
fn copies_between_devices_name_both_devices() {
    for major in [12, 13] {
        let two = [("FAKE_CUDA_DEVICES", "2")];
        let (_scratch, ran) = need_some!(ran(major, &["5", "peer"], &two));
        assert_kernels(&ran);
        let wanted = of_kind(&ran.log, "peer copy").into_iter().map(|line| {
            let n = |key: &str| number(line, key);
            assert_eq!((n("from"), n("to"), n("device")), (0, 1, 0));
            ([n("bytes"), n("correlation"), n("stream"), n("end") - n("start")], n("start"))
        });
        let wanted: Vec<([u64; 4], u64)> = wanted.collect();
        assert_eq!(wanted.len(), 5);
        let copies = rows::<MemoryCopy>(&ran.file);
        let between = copies.iter().filter(|row| row.kind == CopyKind::PeerToPeer).map(|row| {
            assert_eq!((row.device, row.peer), (0, Some(1)));
            let facts = [row.bytes.unwrap(), row.correlation.unwrap(), row.stream, row.duration_ns];
            (facts, row.start_ns)
        });
        assert_same(wanted, between.collect(), uncertainty(&ran.file));
    }
}

#[test]
fn external_ids_are_recorded_once_and_reach_the_started_work() {
    for (major, words) in [(12, ["6", "external", "threads"]), (13, ["6", "external", "graph"])] {
        let (scratch, ran) = need_some!(ran(major, &words, &[]));
        assert_eq!(ran.traced.outcome.code, Some(0), "{:?}", ran.traced.outcome);
        assert_kernels(&ran);
        assert_calls(&ran);
        assert_eq!(losses(&ran, "GPU", ""), 0);
        let of_line = |line: &&Value| {
            let n = |key: &str| number(line, key);
            let kind = [ExternalKind::Custom0, ExternalKind::Custom1][n("kind") as usize - 3];
            (n("correlation"), kind, n("id"))
        };
        let mut wanted: Vec<_> = of_kind(&ran.log, "external").iter().map(of_line).collect();
        let mut got: Vec<_> = rows::<ExternalId>(&ran.file)
            .iter()
            .map(|row| (row.correlation, row.kind, row.id))
            .collect();
        wanted.sort_unstable();
        got.sort_unstable();
        assert!(wanted.len() > 6, "{wanted:?}");
        assert_eq!(got, wanted);

        // The innermost operator's id is on the call and on the work that the call started.
        let ids: BTreeMap<u64, u64> = wanted
            .iter()
            .filter(|(_, kind, _)| *kind == ExternalKind::Custom0)
            .map(|(correlation, _, id)| (*correlation, *id))
            .collect();
        let out = scratch.join("out");
        let export = tprof(["export", "--to", "chrome", "-o"]).arg(&out).arg(&ran.traced.run);
        let exported = export.run_in(scratch.path());
        assert_eq!(exported.code, Some(0), "{exported:?}");
        let trace = crate::export::chrome(&out.join("rank-0.trace.json.gz"));
        let mut seen = BTreeMap::<&str, usize>::new();
        for event in trace["traceEvents"].as_array().unwrap() {
            let (category, args) = (event["cat"].as_str().unwrap_or_default(), &event["args"]);
            let Some(correlation) = args["correlation"].as_u64() else { continue };
            assert_eq!(args["External id"].as_u64(), ids.get(&correlation).copied(), "{event}");
            *seen.entry(category).or_default() += usize::from(ids.contains_key(&correlation));
        }
        for category in ["kernel", "gpu_memcpy", "cuda_runtime"] {
            assert!(seen[category] >= 6, "{seen:?}");
        }
    }
}

#[test]
fn calls_that_only_query_the_driver_are_not_recorded() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(memory(13, &["virtual", "proc"], &scratch));
    let ran = read(traced(&job, GPU, &scratch), &log, 0);
    let is_question = |name: &str| name.starts_with("cuGetProcAddress");
    let calls = of_kind(&ran.log, "driver call");
    assert!(calls.iter().any(|line| is_question(line["name"].as_str().unwrap())), "{calls:?}");
    let spans = rows::<Span>(&ran.file);
    let names: Vec<&str> = spans.iter().map(|span| ran.file.name(span.name)).collect();
    assert!(names.contains(&"cuMemCreate"), "{names:?}");
    assert!(!names.iter().any(|name| is_question(name)), "{names:?}");
}
