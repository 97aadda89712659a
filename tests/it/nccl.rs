//! Tests of what NCCL reports to tprof's profiler plugin, in every version of the interface. A
//! stand-in loads plugins as NCCL does (a simulation).

use crate::calls::rows;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tprof_tests::{Job, Scratch, Traced, comms, need_some, run_info, stand_ins, traced};
use tprof_trace::TraceFile;
use tprof_trace::model::{ChannelWork, ChannelWorkKind, Collective, Connection};

const COMM: &[&str] = &["--activities", "gpu,comm,mem"];

/// Returns two ranks that train for three steps: a broadcast, then six all-reduces in groups of
/// two.
fn two_ranks(version: &str, scratch: &Scratch) -> Result<Job, String> {
    ranks_of("train-12", version, scratch)
}

fn ranks_of(program: &str, version: &str, scratch: &Scratch) -> Result<Job, String> {
    let home = stand_ins()?;
    let both = format!(
        "RANK=0 {0} 3 nccl & first=$!; RANK=1 {0} 3 nccl; second=$?; wait $first && exit $second",
        home.join(program).display()
    );
    Ok(Job::sh(&both)
        .env("WORLD_SIZE", "2")
        .env("MEETING", scratch.join("meeting"))
        .env("LD_LIBRARY_PATH", home.join("12"))
        .env("FAKE_NCCL_PROFILER", version))
}

fn text(file: &TraceFile, name: Option<tprof_trace::model::NameId>) -> &str {
    name.map_or("", |name| file.name(name))
}

/// Checks the rows of both ranks: seven operations, each with the algorithm and protocol that NCCL
/// chose.
fn assert_chosen(traced: &Traced, with_stream: bool) {
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let mut identities = BTreeSet::new();
    for rank in [0, 1] {
        let (file, rows) = rows::<Collective>(&traced.run, rank);
        let of = |row: &Collective| {
            let texts =
                (file.name(row.name), text(&file, row.algorithm), text(&file, row.protocol));
            (texts, row.sequence, row.bytes, row.channels)
        };
        let chosen: Vec<_> = rows.iter().map(of).collect();
        let (large, small) = (Some(4096 * 4), Some(4));
        let mut wanted = vec![(("broadcast", "RING", "SIMPLE"), Some(0), large, Some(2))];
        for step in 0..3 {
            wanted.push((("all_reduce", "RING", "SIMPLE"), Some(2 * step), large, Some(2)));
            wanted.push((("all_reduce", "RING", "LL"), Some(2 * step + 1), small, Some(2)));
        }
        assert_eq!(chosen, wanted, "rank {rank}");
        for row in &rows {
            assert_eq!(row.group_size, Some(2));
            assert!(row.thread.is_some() && row.duration_ns.is_some());
            assert_eq!(row.stream.is_some(), with_stream);
        }
        assert_eq!((rows[0].peer, rows[1].peer), (Some(0), None), "only the broadcast has a root");
        let communicators = file.communicators();
        assert_eq!(communicators.len(), 1, "{communicators:?}");
        assert_eq!((communicators[0].size, communicators[0].rank), (Some(2), Some(rank)));
        assert_eq!(file.name(communicators[0].name), "world");
        assert!(rows.iter().all(|row| row.communicator == Some(communicators[0].communicator)));
        identities.insert(communicators[0].communicator);
    }
    assert_eq!(identities.len(), 1, "one communicator for both ranks");
}

#[test]
fn every_version_of_the_plugin_adds_the_algorithm_that_nccl_chose() {
    for version in ["1", "2", "3", "4", "5", "6"] {
        let scratch = Scratch::new();
        let job = need_some!(two_ranks(version, &scratch));
        eprintln!("version {version}");
        assert_chosen(&traced(&job, COMM, &scratch), true);
    }
}

/// Links NCCL into the program, so that no hook sees its calls.
fn static_ranks(version: &str, scratch: &Scratch) -> Result<Job, String> {
    let home = stand_ins()?;
    let program = scratch.join("train-static");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/fake-cuda/train.c");
    let library = home.join("12/libcudart.so.12");
    let compiled = Job::new("gcc")
        .args(["-O1", "-g", source])
        .arg(home.join("target/release/examples/libfake_nccl.a"))
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .arg(format!("-Wl,-rpath-link,{}", home.join("12").display()))
        .run_in(scratch.path());
    assert_eq!(compiled.code, Some(0), "{compiled:?}");
    ranks_of(program.to_str().unwrap_or_default(), version, scratch)
}

#[test]
fn operations_of_a_statically_linked_nccl_are_recorded() {
    for (version, with_stream) in [("4", false), ("6", true)] {
        let scratch = Scratch::new();
        let job = need_some!(static_ranks(version, &scratch));
        assert_chosen(&traced(&job, COMM, &scratch), with_stream);
    }
}

/// Builds a plugin of the job's own with this version, which counts its events in a file.
fn own_plugin(version: u32, name: &str, scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (library, counts) = (scratch.join(name), scratch.join("own-plugin"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/nccl_plugin.c");
    let compiled = Job::new("gcc")
        .args(["-shared", "-fPIC", source, &format!("-DVERSION={version}"), "-o"])
        .arg(&library)
        .run_in(scratch.path());
    assert_eq!(compiled.code, Some(0), "{compiled:?}");
    (library, counts)
}

fn assert_left_alone(job: &Job, counts: &Path, why: &str, scratch: &Scratch) {
    let traced = traced(job, COMM, scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    assert_eq!(
        std::fs::read_to_string(counts).unwrap_or_default(),
        "7\n7\n",
        "the job's plugin counts its events"
    );
    let (file, rows) = rows::<Collective>(&traced.run, 0);
    let names: Vec<&str> = rows.iter().map(|row| file.name(row.name)).collect();
    assert_eq!(names[..2], ["broadcast", "all_reduce"]);
    assert_eq!((names.len(), rows[0].algorithm), (7, None), "only the hooks recorded rows");
    let info = run_info(&traced.run, |info| info["finished"] == true);
    let entries = info["completeness"]["blind"].as_array().unwrap();
    let noted = entries.iter().filter(|entry| {
        let has = |key: &str, text: &str| entry[key].as_str().is_some_and(|s| s.contains(text));
        has("what", "NCCL's algorithms") && has("why", why)
    });
    assert!(noted.count() > 0, "{entries:?}");
}

#[test]
fn a_plugin_that_the_job_names_is_left_alone() {
    let scratch = Scratch::new();
    let (library, counts) = own_plugin(4, "own.so", &scratch);
    let job = need_some!(two_ranks("6", &scratch));
    let job = job.env("NCCL_PROFILER_PLUGIN", &library).env("OWN_PLUGIN_COUNTS", &counts);
    assert_left_alone(&job, &counts, "names another plugin (own.so)", &scratch);
}

#[test]
fn a_plugin_in_nccls_default_place_of_any_version_is_left_alone() {
    for version in [3, 6] {
        let scratch = Scratch::new();
        let (library, counts) = own_plugin(version, "libnccl-profiler.so", &scratch);
        let home = need_some!(stand_ins());
        let path = format!("{}:{}", home.join("12").display(), library.parent().unwrap().display());
        let job = need_some!(two_ranks("6", &scratch));
        let job = job.env("LD_LIBRARY_PATH", path).env("OWN_PLUGIN_COUNTS", &counts);
        assert_left_alone(&job, &counts, "is the job's own: libnccl-profiler.so", &scratch);
    }
}

#[test]
fn work_on_channels_is_recorded_on_request() {
    for version in ["2", "4", "6"] {
        let scratch = Scratch::new();
        let job = need_some!(two_ranks(version, &scratch));
        let options = [COMM, &["--nccl", "proxy,kernels"]].concat();
        let traced = traced(&job, &options, &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        let (file, work) = rows::<ChannelWork>(&traced.run, 0);
        let of = |kind| work.iter().filter(move |row| row.kind == kind);
        // Seven operations on two channels; kernels are reported since version 3.
        let kernels = if version == "2" { 0 } else { 14 };
        assert_eq!(of(ChannelWorkKind::Kernel).count(), kernels, "version {version}");
        for kind in [ChannelWorkKind::Send, ChannelWorkKind::Receive] {
            assert_eq!(of(kind).count(), 14, "version {version}: {work:?}");
            for row in of(kind) {
                assert_eq!((row.steps, row.peer), (Some(2), Some(1)));
                let waits = [row.device_wait_ns, row.peer_wait_ns, row.network_ns];
                let waited: u64 = waits.into_iter().flatten().sum();
                assert!(row.network_ns.unwrap() > 0 && row.device_wait_ns.unwrap() > 0);
                assert!(waited <= row.duration_ns);
                // The other rank of a send is reported since version 4.
                let has_peer = kind == ChannelWorkKind::Send && version != "2";
                assert_eq!(row.peer_wait_ns.unwrap() > 0, has_peer);
            }
        }
        let (_, collectives) = rows::<Collective>(&traced.run, 0);
        for row in &work {
            let of = |collective: &&Collective| {
                (collective.name, collective.sequence, collective.communicator)
                    == (row.name, row.sequence, row.communicator)
            };
            let collective = collectives.iter().find(of);
            let collective = collective.unwrap_or_else(|| panic!("{}", file.name(row.name)));
            assert!(row.channel < 2 && row.bytes.unwrap_or(0) <= collective.bytes.unwrap());
        }
        for row in of(ChannelWorkKind::Kernel) {
            assert_eq!(row.duration_ns, 40_000, "kernels are timed by the device's clock");
        }
    }
    let scratch = Scratch::new();
    let job = need_some!(two_ranks("6", &scratch));
    let traced = traced(&job, COMM, &scratch);
    assert_eq!(
        rows::<ChannelWork>(&traced.run, 0).1.len(),
        0,
        "channels are not recorded by default, because that costs more"
    );
}

/// NCCL's own log tells the transport of each connection. The plugin and the hooks number
/// communicators differently, and the log has both numbers.
#[test]
fn connections_of_nccls_log_are_those_of_the_communicator() {
    const LOG: &[&str] = &["--activities", "gpu,comm,mem", "--nccl", "log"];
    for version in ["none", "1", "6"] {
        let (native, scratch) = (Scratch::new(), Scratch::new());
        let wanted = need_some!(two_ranks(version, &native)).run_in(native.cwd());
        let job = need_some!(two_ranks(version, &scratch));
        let traced = traced(&job, LOG, &scratch);
        assert_eq!(traced.outcome, wanted, "NCCL logs into the run, not among the job's output");
        for rank in [0_u32, 1] {
            let (file, rows) = rows::<Connection>(&traced.run, rank);
            let communicator = Some(file.communicators()[0].communicator);
            assert_eq!(file.communicators().len(), 1, "version {version}");
            let of = |row: &Connection| {
                assert_eq!(row.communicator, communicator, "version {version}");
                (row.from, row.to, row.sends, file.name(row.transport), row.channels)
            };
            let told: BTreeSet<_> = rows.iter().map(of).collect();
            let other = 1 - rank;
            let wanted = BTreeSet::from([
                (Some(rank), Some(other), true, "P2P/CUMEM", 2),
                (Some(other), Some(rank), false, "NET/Socket/0", 2),
            ]);
            assert_eq!(told, wanted, "version {version}");
        }
        let run = traced.run.to_str().unwrap();
        let report =
            tprof_tests::tprof(["report", "comm", run, "--csv", "--table", "comm_connections"])
                .run_in(scratch.path());
        let row = report.stdout.lines().nth(1).unwrap_or_default();
        assert!(row.ends_with(",2,P2P/CUMEM,2,2,4"), "{report:?}");
        assert_eq!(std::fs::read_dir(traced.run.join("nccl")).unwrap().count(), 2);
    }
}

/// tprof reads the log that a job asked for itself, and leaves it where it is. If the job's own
/// settings leave no log, the run says so.
#[test]
fn a_jobs_own_settings_of_nccls_log_are_left_alone() {
    let scratch = Scratch::new();
    let own = scratch.join("own.%p");
    let job = need_some!(two_ranks("6", &scratch))
        .env("NCCL_DEBUG", "info")
        .env("NCCL_DEBUG_FILE", own.to_str().unwrap());
    let traced_own = traced(&job, COMM, &scratch);
    assert_eq!(rows::<Connection>(&traced_own.run, 0).1.len(), 2);
    assert!(!traced_own.run.join("nccl").exists());

    // The collector's own standard error is a pipe, on which it must not wait.
    let scratch = Scratch::new();
    let job = need_some!(two_ranks("6", &scratch))
        .env("NCCL_DEBUG", "INFO")
        .env("NCCL_DEBUG_FILE", "/dev/stderr");
    let among_output = traced(&job, COMM, &scratch);
    assert!(among_output.outcome.stderr.contains("Init COMPLETE"));
    assert_eq!(rows::<Connection>(&among_output.run, 0).1.len(), 0);

    let scratch = Scratch::new();
    let job = need_some!(two_ranks("6", &scratch)).env("NCCL_DEBUG", "WARN");
    let traced = traced(&job, &["--activities", "gpu,comm,mem", "--nccl", "log"], &scratch);
    assert_eq!(rows::<Connection>(&traced.run, 0).1.len(), 0);
    let info = run_info(&traced.run, |info| info["finished"] == true);
    let blind = info["completeness"]["blind"].as_array().unwrap();
    let is_log =
        |blind: &&serde_json::Value| blind["what"].as_str().unwrap().contains("NCCL's log");
    let why = blind.iter().find(is_log).and_then(|blind| blind["why"].as_str());
    assert!(why.is_some_and(|why| why.starts_with("NCCL_DEBUG,")), "{blind:?}");
    assert!(!traced.run.join("nccl").exists());
}

#[test]
fn communicators_are_known_whichever_call_made_them() {
    for version in [None, Some("4"), Some("6")] {
        let scratch = Scratch::new();
        let (job, _) = need_some!(comms(12, &[], &scratch));
        let job = match version {
            Some(version) => job.env("FAKE_NCCL_PROFILER", version),
            None => job,
        };
        let traced = traced(&job, COMM, &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        let (file, rows) = rows::<Collective>(&traced.run, 0);
        let names: Vec<&str> = rows.iter().map(|row| file.name(row.name)).collect();
        let mut wanted = vec!["all_reduce"; 7];
        // `ncclBcast` calls `ncclBroadcast`, and they count as one broadcast.
        wanted.extend(["broadcast", "put_signal", "signal", "wait_signal"]);
        assert_eq!(names, wanted, "version {version:?}");
        let distinct: BTreeSet<_> = rows.iter().map(|row| row.communicator).collect();
        assert_eq!(distinct.len(), 7, "two splits of one colour are two communicators");
        assert!(rows.iter().all(|row| row.communicator.is_some()));
        let sized = rows[..7].iter().filter(|row| row.group_size == Some(1)).count();
        // The hooks don't know the size of a split communicator.
        assert_eq!(sized, if version.is_some() { 7 } else { 5 }, "version {version:?}");
        let known: BTreeSet<_> =
            file.communicators().iter().map(|row| Some(row.communicator)).collect();
        assert_eq!(known, distinct);
        assert_eq!(rows[8].bytes, Some(200), "bytes that a rank puts into another's memory");
    }
}

#[test]
fn refused_communicators_are_not_recorded_and_their_lists_not_read() {
    let (native, scratch) = (Scratch::new(), Scratch::new());
    let wanted = need_some!(comms(13, &["refused"], &native)).0.run_in(native.cwd());
    assert_eq!(wanted.stdout, "refused\ndone\n", "{wanted:?}");
    let (job, _) = need_some!(comms(13, &["refused"], &scratch));
    let traced = traced(&job, COMM, &scratch);
    assert_eq!(traced.outcome, wanted);
    let (file, rows) = rows::<Collective>(&traced.run, 0);
    assert_eq!(rows.len(), 11);
    // The first communicator, and the seven communicators of the other calls.
    let known: BTreeSet<_> = file.communicators().iter().map(|row| row.communicator).collect();
    assert!((7..=8).contains(&known.len()), "{known:?}");
}
