//! Compares the recorded device memory of all sources with what the program did on the stand-ins.

use super::*;
use tprof_trace::model::DeviceAllocation;

const MIB: u64 = 1 << 20;

/// Runs the program that allocates memory in these ways.
fn took(major: u32, words: &[&str], env: &[(&str, &str)]) -> Result<(Scratch, Ran), String> {
    let scratch = Scratch::new();
    let (mut job, log) = memory(major, words, &scratch)?;
    for (name, value) in env {
        job = job.env(name, value);
    }
    let traced = traced(&job, GPU, &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let ran = read(traced, &log, 0);
    Ok((scratch, ran))
}

/// Returns the report's row of an allocator.
fn pool(report: &Value, allocator: &str) -> Value {
    let rows = report["tables"]["pools"].as_array().unwrap();
    let row = rows.iter().find(|row| row["allocator"] == allocator);
    row.unwrap_or_else(|| panic!("no {allocator} in {rows:#?}")).clone()
}

fn sources(report: &Value) -> [u64; 3] {
    let row = &report["tables"]["sources"][0];
    ["both", "only_cupti", "only_hooks"].map(|key| number(row, key))
}

#[test]
fn memory_of_a_library_with_its_own_runtime_counts_beside_the_programs() {
    for major in [12, 13] {
        let (_scratch, ran) = need_some!(took(major, &["workspace"], &[]));
        let mut rows = rows::<DeviceAllocation>(&ran.file);
        rows.sort_by_key(|row| row.time_ns);
        // Each change is recorded once, by CUPTI or by a hook, in the order in which the changes
        // were made.
        let changes_in_log: Vec<(bool, u64)> = of_kind(&ran.log, "memory")
            .into_iter()
            .map(|line| (line["operation"] == 2, number(line, "address")))
            .collect();
        let changes_in_run: Vec<(bool, u64)> =
            rows.iter().map(|row| (row.free, row.address)).collect();
        assert_eq!(changes_in_run, changes_in_log);
        // The program's own allocations have stacks; the library's have none.
        let with_stack = rows.iter().filter(|row| row.stack != 0).count();
        assert_eq!((rows.len(), with_stack), (6, 3), "{rows:#?}");
        let report = document("device-memory", &ran.traced.run);
        assert_eq!(sources(&report), [3, 3, 0]);
        let device = pool(&report, "device");
        assert_eq!(number(&device, "last_bytes"), 5 * MIB);
        assert_eq!(number(&device, "peak_bytes"), 5 * MIB);
        let notes = report["notes"].to_string();
        assert!(notes.contains("3 changes were recorded only by CUPTI"), "{notes}");
    }
}

#[test]
fn pools_show_the_bytes_that_they_hold_and_that_are_allocated() {
    let (_scratch, ran) = need_some!(took(13, &["pool"], &[]));
    let report = document("device-memory", &ran.traced.run);
    assert_eq!(sources(&report), [15, 0, 0]);
    let row = pool(&report, "pool");
    let of = |key: &str| number(&row, key) / MIB;
    assert_eq!([of("peak_bytes"), of("last_bytes"), of("peak_reserved_bytes")], [40, 11, 64]);
    assert_eq!(of("unused_at_peak_bytes"), 24);
    assert_eq!((number(&row, "allocations"), number(&row, "frees")), (9, 6));
}

#[test]
fn arrays_other_processes_memory_and_pinned_memory_are_recorded() {
    // No documentation says whether CUPTI records these, so the result must be the same with and
    // without its records.
    for faults in ["", "everything"] {
        let env = [("FAKE_CUPTI_FAULTS", faults)];
        let (_scratch, ran) = need_some!(took(12, &["arrays", "register", "ipc"], &env));
        let report = document("device-memory", &ran.traced.run);
        let of = |allocator: &str, keys: [&str; 3]| {
            let row = pool(&report, allocator);
            keys.map(|key| row[key].as_u64())
        };
        const COUNTS: [&str; 3] = ["last_bytes", "allocations", "frees"];
        // One block of a mebibyte, and two arrays, one of which is freed.
        assert_eq!(of("device", COUNTS), [Some(MIB + (128 << 10)), Some(3), Some(1)], "{faults}");
        assert_eq!(of("registered", COUNTS), [Some(MIB), Some(2), Some(1)], "{faults}");
        // The size of another process's memory is unknown, and not zero.
        assert_eq!(of("imported", COUNTS), [None, Some(2), Some(1)], "{faults}");
        let counts = if faults.is_empty() { [1, 0, 9] } else { [10, 0, 0] };
        assert_eq!(sources(&report), counts, "{faults}");
        let mut kinds = BTreeMap::new();
        for row in rows::<DeviceAllocation>(&ran.file) {
            *kinds.entry(format!("{:?}", row.kind)).or_insert(0) += 1;
            assert!(row.free || row.stack != 0, "{row:?}");
        }
        let wanted = [("Array", 3), ("Device", 4), ("Pinned", 3)];
        assert!(kinds.iter().map(|(kind, n)| (&kind[..], *n)).eq(wanted), "{kinds:?}");
    }
}

#[test]
fn physical_memory_lives_until_its_last_handle_and_mapping() {
    // Each way in which a program finds the driver's functions.
    for (word, find, faults) in [
        ("virtual", "", ""),
        ("virtual", "entry", ""),
        ("virtual", "proc", ""),
        ("virtual", "proc1", ""),
        ("direct", "", ""),
        ("virtual", "", "everything"),
    ] {
        let env = [("FAKE_CUPTI_FAULTS", faults)];
        let (_scratch, ran) = need_some!(took(13, &[word, find, "both"], &env));
        let rows = rows::<DeviceAllocation>(&ran.file);
        assert!(rows.iter().all(|row| row.allocator == Allocator::Virtual), "{rows:#?}");
        // The changes are those that the driver made, one by one.
        let change = |line: &&Value| (line["operation"] == 2, number(line, "start"));
        let mut changes_in_log: Vec<_> = of_kind(&ran.log, "memory").iter().map(change).collect();
        let mut changes_in_run: Vec<_> = rows.iter().map(|row| (row.free, row.time_ns)).collect();
        changes_in_log.sort_unstable();
        changes_in_run.sort_unstable();
        assert_eq!(
            (changes_in_run.len(), changes_in_log.len()),
            (2 * 7, 2 * 7),
            "{word} {find} {faults}"
        );
        // An allocation is stamped after the call, and a free before it.
        for ((free, wanted), (also, got)) in changes_in_log.iter().zip(&changes_in_run) {
            let (early, late) = if *free { (got, wanted) } else { (wanted, got) };
            assert!(free == also && *early <= late + JOIN_SLACK_NS, "{wanted}, not {got}");
        }
        let report = document("device-memory", &ran.traced.run);
        let row = pool(&report, "virtual");
        assert_eq!(number(&row, "last_bytes"), 2 * 2 * MIB, "{word} {find} {faults}");
        assert_eq!((number(&row, "allocations"), number(&row, "frees")), (8, 6));
        let sites = report["tables"]["sites"].as_array().unwrap();
        assert!(sites[0]["stack"].as_str().unwrap().contains("segments"), "{sites:#?}");
    }
}

#[test]
fn arrays_of_levels_and_memory_by_the_drivers_functions_are_recorded() {
    // No documentation says whether CUPTI records these, so both cases are tested.
    for faults in ["", "everything"] {
        let env = [("FAKE_CUPTI_FAULTS", faults)];
        let (_scratch, ran) = need_some!(took(13, &["levels", "drivers"], &env));
        let report = document("device-memory", &ran.traced.run);
        let of = |allocator: &str| {
            let row = pool(&report, allocator);
            ["last_bytes", "allocations", "frees"].map(|key| number(&row, key))
        };
        // 64 by 32, 32 by 16 and 16 by 8 elements of 8 bytes; and 32 by 32 by 16 of 8.
        assert_eq!(of("device"), [2_688 * 8 + (128 << 10), 4, 2], "{faults}");
        assert_eq!(of("pool"), [6 * MIB, 3, 1], "{faults}");
        let rows = rows::<DeviceAllocation>(&ran.file);
        assert_eq!(rows.len(), 6 + 4, "{rows:#?}");
        assert!(rows.iter().all(|row| row.free || row.stack != 0), "{rows:#?}");
        let arrays = rows.iter().filter(|row| row.kind == MemoryKind::Array).count();
        assert_eq!(arrays, 6, "{rows:#?}");
    }
}

#[test]
fn memory_that_nccl_allocates_for_the_program_is_one_row() {
    let scratch = Scratch::new();
    // The stand-in for NCCL calls the runtime by its public names.
    let (job, log) = need_some!(comms(12, &[], &scratch));
    let traced = traced(&job, GPU, &scratch);
    let ran = read(traced, &log, 0);
    let rows = rows::<DeviceAllocation>(&ran.file);
    let taken: Vec<_> = rows.iter().map(|row| (row.free, row.bytes)).collect();
    assert_eq!(taken, [(false, Some(1 << 16)), (true, None)], "{rows:#?}");
    let report = document("device-memory", &ran.traced.run);
    let site = report["tables"]["sites"][0]["stack"].as_str().unwrap();
    assert!(site.contains("main"), "{site}");
}

#[test]
fn records_of_a_context_are_flushed_before_the_context_ends() {
    for word in ["reset", "destroy"] {
        let env = [("FAKE_CUPTI_FAULTS", "reset")];
        let (_scratch, ran) = need_some!(took(12, &["workspace", word], &env));
        // Only CUPTI recorded the memory of the library.
        let changes_in_log = of_kind(&ran.log, "memory");
        let addresses = |lines: &mut dyn Iterator<Item = u64>| {
            let mut all: Vec<u64> = lines.collect();
            all.sort_unstable();
            all
        };
        let taken = |line: &&&Value| line["operation"] == 1;
        let wanted =
            addresses(&mut changes_in_log.iter().filter(taken).map(|line| number(line, "address")));
        let rows = rows::<DeviceAllocation>(&ran.file);
        let got =
            addresses(&mut rows.iter().filter(|r| !r.free && r.address != 0).map(|r| r.address));
        assert_eq!((got.len(), &got), (4, &wanted), "{word}");
    }
}

#[test]
fn driver_functions_that_are_looked_up_by_name_still_work() {
    let scratch = Scratch::new();
    for words in [&["virtual", "workspace"][..], &["direct", "arrays", "pool"]] {
        let (job, _) = need_some!(memory(12, words, &scratch));
        assert_unchanged(&job, &[GPU, &[]], &scratch);
    }
}

#[test]
fn a_reset_by_the_driver_frees_all_live_memory() {
    let (_scratch, ran) = need_some!(took(12, &["workspace", "pool", "reset"], &[]));
    let report = document("device-memory", &ran.traced.run);
    for allocator in ["device", "pool"] {
        assert_eq!(number(&pool(&report, allocator), "last_bytes"), 0, "{allocator}");
    }
}

#[test]
fn memory_of_a_context_is_on_its_device_and_freed_with_it() {
    for (words, device) in [(&["context"][..], 0), (&["context", "workspace"], 1)] {
        let env = [("FAKE_CUDA_DEVICES", if device == 1 { "2" } else { "1" })];
        let (_scratch, ran) = need_some!(took(12, words, &env));
        let all = rows::<DeviceAllocation>(&ran.file);
        let in_contexts = |row: &&DeviceAllocation| {
            !row.free && matches!(row.bytes, Some(bytes) if bytes == MIB || bytes == 5 * MIB)
        };
        let taken: Vec<_> = all.iter().filter(in_contexts).filter(|row| row.stack != 0).collect();
        assert!(
            taken.len() >= 4 && taken.iter().all(|row| row.device == Some(device)),
            "{taken:#?}"
        );
        // Each of the context's blocks is freed once, although CUPTI records the frees, too.
        for row in taken {
            let after = |free: &&DeviceAllocation| {
                free.free && free.address == row.address && free.time_ns >= row.time_ns
            };
            let next = all
                .iter()
                .filter(|other| {
                    !other.free && other.address == row.address && other.time_ns > row.time_ns
                })
                .map(|other| other.time_ns)
                .min();
            let until = next.unwrap_or(u64::MAX);
            let frees = all.iter().filter(after).filter(|free| free.time_ns < until).count();
            assert_eq!(frees, 1, "{row:#?} in {all:#?}");
        }
        let report = document("device-memory", &ran.traced.run);
        let rest = if words.len() > 1 { 5 } else { 0 };
        assert_eq!(number(&pool(&report, "device"), "last_bytes"), (7 + rest) * MIB, "{words:?}");
    }
}

#[test]
fn the_drivers_memory_in_use_is_shown_beside_the_recorded_memory() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(memory(13, &["workspace", "virtual", "pool", "wait"], &scratch));
    let run = traced(&job, &["--activities", "gpu", "--gpu-interval", "100ms"], &scratch);
    assert_eq!(run.outcome.code, Some(0), "{:?}", run.outcome);
    let ran = read(run, &log, 0);
    let report = document("device-memory", &ran.traced.run);
    let row = &report["tables"]["in_use"][0];
    // Blocks of 2 and 3 MiB, one segment of 2 MiB, and the memory that the pool holds.
    assert_eq!(number(row, "recorded_bytes"), (2 + 3 + 2 + 64) * MIB, "{row}");
    let readings = of_kind(&ran.log, "nvml").into_iter();
    let used = readings.filter(|line| line["key"] == "gpu_memory_used_bytes");
    let used: Vec<f64> = used.map(|line| line["value"].as_f64().unwrap()).collect();
    assert!(used.contains(&row["used_bytes"].as_f64().unwrap()), "{row} not in {used:?}");
    let rest = number(row, "used_bytes") - number(row, "recorded_bytes");
    assert_eq!(number(row, "unexplained_bytes"), rest);
}

/// Runs with CUPTI's records of the calls, which have no arguments, and without these records.
#[test]
fn requests_for_more_memory_than_the_device_has_are_recorded() {
    const MOST: u64 = 1 << 50;
    for faults in ["", "subscriber"] {
        let env = [("FAKE_CUPTI_FAULTS", faults)];
        let (_scratch, ran) = need_some!(took(13, &["greedy"], &env));
        let lacked = |span: &Span| {
            let args: Value = serde_json::from_str(ran.file.name(span.args)).unwrap_or_default();
            // CUPTI's names of these calls lack the version.
            let name = ran.file.name(span.name).trim_end_matches("_v2").to_owned();
            (span.start_ns, (name, args["bytes"].as_u64()))
        };
        let spans = rows::<Span>(&ran.file);
        let failed: Vec<&Span> = spans.iter().filter(|span| span.status == Some(2)).collect();
        let by_time: BTreeMap<u64, _> = failed.iter().map(|span| lacked(span)).collect();
        let wanted = [
            ("cudaMalloc", MOST),
            ("cudaMallocAsync", MOST + MIB),
            ("cudaMallocFromPoolAsync", MOST + 2 * MIB),
            ("cudaMallocManaged", MOST + 3 * MIB),
            ("cuMemAlloc", MOST + 4 * MIB),
            ("cuMemAllocAsync", MOST + 5 * MIB),
            ("cuMemCreate", 1 << 63),
        ];
        let wanted = wanted.map(|(name, bytes)| (name.to_owned(), Some(bytes)));
        assert_eq!(by_time.into_values().collect::<Vec<_>>(), wanted, "{faults}");
        for span in failed {
            let stack = ran.file.stack(span.process, span.stack).expect("a stack of the call");
            let symbols =
                stack.frames.iter().flat_map(|frame| ran.file.symbols(span.process, *frame));
            let functions: Vec<&str> =
                symbols.map(|symbol| ran.file.name(symbol.function)).collect();
            assert!(functions.contains(&"greedy"), "{functions:?}");
        }
        let findings = document("findings", &ran.traced.run).to_string();
        let told = [
            "Each asked for 1.0 PiB to",
            "The process held 8.0 MiB of device 0",
            "most of it: 1 block of together 5.0 MiB by hold, 1 block of together 3.0 MiB by keep",
        ];
        assert!(told.iter().all(|text| findings.contains(text)), "{findings}");
    }
}
