//! Verdicts from dumps of PyTorch's Flight Recorder: those that PyTorch wrote (`flight_recorder/`), and
//! JSON with what only NCCL writes.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tprof_import::flight_recorder::{DumpsError, has_dumps, standstill};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flight_recorder").join(name)
}

#[track_caller]
fn judged(path: &Path) -> Value {
    assert!(has_dumps(path), "{}", path.display());
    standstill(path).unwrap().json(None)
}

/// Kind, rank and line of the verdict.
fn verdict(answer: &Value) -> (&str, Option<u64>, Option<u64>) {
    let verdict = &answer["verdict"];
    (verdict["kind"].as_str().unwrap(), verdict["rank"].as_u64(), verdict["line"].as_u64())
}

#[track_caller]
fn says(answer: &Value, words: &[&str]) {
    let text = answer["verdict"]["text"].as_str().unwrap();
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

#[test]
fn dumps_of_pytorch_have_the_verdict_of_its_own_analysis() {
    let of = "of group 0 (default_pg)";
    for (name, kind, rank, line, words) in [
        ("healthy", "healthy", None, None, &["the last is all_reduce 2"][..]),
        ("late", "late_rank", Some(1), Some(63), &["rank 1 has not entered all_reduce 3", of]),
        ("json", "late_rank", Some(1), None, &["rank 1 has not entered all_reduce 3", of]),
        ("ring", "late_rank", Some(1), Some(63), &["rank 1 has not entered all_reduce 11", of]),
        ("mismatch", "mismatch", Some(1), Some(70), &["2) has all_reduce", "rank 1 has broadcast"]),
        (
            "sizes",
            "mismatch",
            Some(1),
            Some(74),
            &["rank 0 has broadcast of Float [8]", "Float [16]"],
        ),
        ("types", "mismatch", Some(1), Some(76), &["has all_reduce of Float [8, 4]", "Int [8, 4]"]),
        ("stuck", "network", None, Some(80), &["all 2 ranks are in all_reduce 3", of]),
        (
            "groups",
            "late_rank",
            Some(2),
            Some(87),
            &["has not entered all_reduce 2 of group 2 (pair 2)"],
        ),
    ] {
        let answer = judged(&fixture(name));
        assert_eq!(verdict(&answer), (kind, rank, line), "{name}: {answer:#}");
        says(&answer, words);
        assert_eq!(answer["not_answered"], json!([]), "{name}");
    }
}

/// Copies dumps, which then are from now.
fn copied(name: &str, ranks: &[u32]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for rank in ranks {
        let file = format!("fr_rank_{rank}");
        fs::copy(fixture(name).join(&file), directory.path().join(&file)).unwrap();
    }
    directory
}

#[test]
fn a_rank_without_a_dump_may_be_the_one_that_others_wait_for() {
    for (path, ranks) in [("late", &[0, 2][..]), ("late", &[2])] {
        let directory = copied(path, ranks);
        let answer = judged(directory.path());
        assert_eq!(verdict(&answer), ("unknown", None, Some(67)), "{answer:#}");
        says(&answer, &["There is no dump of rank", "1", "which may be what the others wait for"]);
        assert!(answer["not_answered"][0]["ranks"].as_array().unwrap().contains(&json!(1)));
    }
    // A late rank is one, whatever others do.
    let directory = copied("late", &[0, 1]);
    assert_eq!(verdict(&judged(directory.path())).1, Some(1));
    let answer = standstill(directory.path()).unwrap();
    assert!(answer.text(None).contains("no dump: rank 2: "), "{}", answer.text(None));
    // One file is enough to say where its rank is.
    let answer = judged(&fixture("mismatch/fr_rank_2"));
    assert_eq!(answer["ranks"][0]["collective"]["operation"], "all_reduce");
    assert_eq!(answer["not_answered"][0]["ranks"], json!([0, 1]));
}

#[test]
fn what_dumps_lack_is_said() {
    let notes = |name: &str| judged(&fixture(name))["notes"].to_string();
    assert!(notes("ring").contains("older operations are missing in the dumps of ranks 0-1"));
    assert!(!notes("late").contains("older"));
    assert!(notes("late").contains("ranks 0-2 (format 2.10), files of "), "{}", notes("late"));
    assert!(notes("sends").contains("dumps of gloo have no sends and receives"));
}

/// An entry of NCCL.
fn entry(name: &str, number: u64, state: &str) -> Value {
    let (is_p2p, second) = (name.contains("->") || name.contains("<-"), 1_000_000_000);
    let started = if state == "scheduled" { 0 } else { (number + 1) * second };
    json!({
        "process_group": ["7", "tp"], "profiling_name": format!("nccl:{name}"), "is_p2p": is_p2p,
        "collective_seq_id": number, "p2p_seq_id": number, "state": state, "retired": false,
        "time_created_ns": number * second, "time_discovered_started_ns": started,
        "time_discovered_completed_ns": if state == "completed" { (number + 2) * second } else { 0 },
        "input_sizes": [[4]], "input_dtypes": ["Half"], "output_sizes": [[4]], "output_dtypes": ["Half"],
    })
}

/// Writes a dump of each rank of a group: its entries, of which the first has this record's number.
fn dumps(of_ranks: &[(u64, Vec<Value>)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let ranks: Vec<usize> = (0..of_ranks.len()).collect();
    for (rank, (first, entries)) in of_ranks.iter().enumerate() {
        let mut entries = entries.clone();
        (*first..).zip(&mut entries).for_each(|(id, entry)| entry["record_id"] = id.into());
        let group = json!({ "name": "7", "desc": "tp", "ranks": format!("{ranks:?}") });
        let dump = json!({
            "version": "2.10", "pg_config": { "7": group }, "pg_status": { "0": {} },
            "entries": entries,
        });
        fs::write(directory.path().join(format!("rank_{rank}.json")), dump.to_string()).unwrap();
    }
    directory
}

#[test]
fn a_device_that_has_not_begun_what_others_are_in_holds_them_up() {
    let of = |state| (0, vec![entry("all_reduce", 1, "completed"), entry("all_reduce", 2, state)]);
    let answer = judged(dumps(&[of("started"), of("scheduled"), of("started")]).path());
    assert_eq!(verdict(&answer), ("kernel", Some(1), None), "{answer:#}");
    says(
        &answer,
        &["the device of rank 1 has not begun all_reduce 2 of group 7 (tp)", "2 ranks wait"],
    );
    // Without timing, no rank tells that it has begun.
    let untimed = |state: &str| {
        let mut entry = entry("all_reduce", 1, state);
        entry["time_discovered_started_ns"] = 0.into();
        (0, vec![entry])
    };
    let answer = judged(dumps(&[untimed("scheduled"), untimed("scheduled")]).path());
    assert_eq!(verdict(&answer).0, "network");
    // The others have left it.
    let answer = judged(dumps(&[of("completed"), of("started"), of("completed")]).path());
    assert_eq!(verdict(&answer), ("network", Some(1), None), "{answer:#}");
    says(&answer, &["Rank 1 is in all_reduce 2", "which 2 of its 3 ranks have left"]);
}

#[test]
fn an_operation_that_is_open_for_a_moment_is_none_to_wait_for() {
    let of = |state| (0, vec![entry("all_reduce", 1, "completed"), entry("all_reduce", 2, state)]);
    let directory = dumps(&[of("started"), (0, vec![entry("all_reduce", 1, "completed")])]);
    let written = |age_ms: u64| {
        for rank in 0..2 {
            let path = directory.path().join(format!("rank_{rank}.json"));
            let file = fs::File::options().append(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(age_ms)).unwrap();
        }
    };
    // The last event is at 3 s.
    for (at_ms, kind, age_ns) in
        [(3_500, "late_rank", 1_500_000_000), (60_000, "late_rank", 58_000_000_000_u64)]
    {
        written(at_ms);
        let answer = judged(directory.path());
        assert_eq!(verdict(&answer).0, kind, "{answer:#}");
        assert_eq!(answer["ranks"][0]["collective"]["age_ns"], age_ns);
    }
    let mut begun = entry("all_reduce", 2, "started");
    begun["time_discovered_started_ns"] = 2_000_000_000.into();
    let short = dumps(&[(0, vec![begun]), (0, vec![])]);
    let file = short.path().join("rank_0.json");
    let file = fs::File::options().append(true).open(file).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(2_500)).unwrap();
    let answer = judged(short.path());
    assert_eq!(verdict(&answer).0, "healthy", "{answer:#}");
    says(&answer, &["none was open for a second"]);
}

#[test]
fn a_receive_that_nobody_sends_names_the_sender() {
    let receives = |count: u64| {
        (1..=count)
            .map(|n| entry("recv 0<-1", n, if n < count { "completed" } else { "started" }))
            .collect::<Vec<_>>()
    };
    let sends = |count: u64| (1..=count).map(|n| entry("send 1->0", n, "completed")).collect();
    let answer = judged(dumps(&[(0, receives(3)), (0, sends(2))]).path());
    assert_eq!(verdict(&answer), ("late_rank", Some(1), None), "{answer:#}");
    says(&answer, &["rank 1 has not entered send/recv 3 of group 7 (tp), rank 1 to rank 0"]);
    // Both are in it.
    let mut waiting = sends(2);
    waiting.push(entry("send 1->0", 3, "started"));
    assert_eq!(verdict(&judged(dumps(&[(0, receives(3)), (0, waiting)]).path())).0, "network");
    // With older entries missing, the receive is matched with what is not over.
    let answer = judged(dumps(&[(90, receives(3)), (40, sends(2))]).path());
    says(
        &answer,
        &["send/recv 1 of group 7 (tp), rank 1 to rank 0, counted from the first that is"],
    );
    // A sender without any entry left is not blamed.
    let answer =
        judged(dumps(&[(90, receives(3)), (40, vec![entry("barrier", 9, "completed")])]).path());
    assert_eq!(verdict(&answer).0, "unknown", "{answer:#}");
    assert!(answer["notes"].to_string().contains("by rank 1 is unknown"), "{answer:#}");
}

#[test]
fn a_batch_has_the_state_of_its_end() {
    let batch = |state: &str| {
        let mut end = entry("coalesced", 1, state);
        end["is_p2p"] = true.into();
        vec![entry("send 1->0", 1, "scheduled"), entry("recv 1<-0", 1, "scheduled"), end]
    };
    let other = vec![entry("recv 0<-1", 1, "completed"), entry("send 0->1", 1, "completed")];
    let answer = judged(dumps(&[(0, other.clone()), (0, batch("completed"))]).path());
    assert_eq!(verdict(&answer).0, "healthy", "{answer:#}");
    let answer = judged(dumps(&[(0, other), (0, batch("started"))]).path());
    assert_eq!(verdict(&answer), ("network", Some(1), None), "{answer:#}");
    // Collectives in a batch share a number.
    let coalesced = |last: &str| {
        (0, vec![entry("_all_gather_base", 4, "scheduled"), entry(last, 4, "started")])
    };
    let answer =
        judged(dumps(&[coalesced("ALLGATHER_coalesced"), coalesced("ALLGATHER_coalesced")]).path());
    assert_eq!(answer["ranks"][1]["collective"]["tensors"], "Half [4]; Half [4]");
}

#[test]
fn an_operation_that_ended_without_a_rank_counts_as_open() {
    // gloo retires what has timed out, as it does what is over.
    let of = |count| {
        (1..=count)
            .map(|number| {
                let mut entry = entry("all_reduce", number, "scheduled");
                entry["profiling_name"] = "gloo:all_reduce".into();
                entry["retired"] = true.into();
                entry
            })
            .collect::<Vec<_>>()
    };
    let answer = judged(dumps(&[(0, of(2)), (0, of(1))]).path());
    assert_eq!(verdict(&answer), ("late_rank", Some(1), None), "{answer:#}");
    assert!(answer["notes"].to_string().contains("they timed out or failed"), "{answer:#}");
    assert_eq!(verdict(&judged(dumps(&[(0, of(2)), (0, of(2))]).path())).0, "healthy");
}

#[test]
fn files_that_are_no_dumps_are_named() {
    let directory = copied("late", &[0, 1, 2]);
    let bytes = fs::read(fixture("late/fr_rank_1")).unwrap();
    let one = directory.path().join("fr_rank_1");
    for cut in 0..bytes.len() {
        fs::write(&one, &bytes[..cut]).unwrap();
        let answer = standstill(directory.path()).unwrap();
        assert!(!answer.has(1) && answer.not_answered.iter().any(|of| of.ranks == [1]), "{cut}");
    }
    fs::write(&one, bytes.escape_ascii().to_string().replace("2.10", "9.9")).unwrap();
    assert!(!has_dumps(&one));
    fs::write(&one, json!({ "version": "9.9", "pg_config": {}, "entries": [] }).to_string())
        .unwrap();
    let answer = standstill(directory.path()).unwrap();
    assert!(answer.text(None).contains("it has format 9.9, and tprof reads format 2"));
    assert!(matches!(standstill(&one), Err(DumpsError::NotADump { .. })));
    fs::rename(&one, directory.path().join("other_1")).unwrap();
    fs::copy(fixture("late/fr_rank_1"), directory.path().join("other_1")).unwrap();
    let several = standstill(directory.path()).err().unwrap().to_string();
    assert!(several.contains("several names: fr_rank_, other_"), "{several}");
    let unnamed = directory.path().join("dump");
    fs::copy(fixture("late/fr_rank_1"), &unnamed).unwrap();
    assert!(matches!(standstill(&unnamed), Err(DumpsError::NoRank { .. })));
    fs::write(directory.path().join("run.json"), "{}").unwrap();
    assert!(!has_dumps(directory.path()), "a run");
    assert!(!has_dumps(&fixture("late/../../corpus")), "traces and snapshots");
}
