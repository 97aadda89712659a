//! Tests that CUDA graphs are recorded as a whole, and that work which devices start by themselves
//! is named as missing.

use super::*;
use tprof_tests::profiled;

/// Runs the training program with these arguments under tprof, which records graphs as it does by
/// default.
fn by_default(major: u32, words: &[&str], env: &[(&str, &str)]) -> Result<(Scratch, Ran), String> {
    let scratch = Scratch::new();
    let (mut job, log) = train(major, words, &scratch)?;
    for (name, value) in env {
        job = job.env(name, value);
    }
    let traced = traced(&job, &["--activities", "gpu"], &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let ran = read(traced, &log, 0);
    Ok((scratch, ran))
}

fn of_graphs(ran: &Ran) -> Vec<Kernel> {
    rows::<Kernel>(&ran.file).into_iter().filter(|row| row.graph.is_some()).collect()
}

#[test]
fn a_graph_is_recorded_as_a_whole_from_its_first_node_to_its_last() {
    for (major, fault) in [(12, ""), (13, ""), (13, "hoststart")] {
        let env = [("FAKE_CUPTI_FAULTS", fault)];
        let (_scratch, ran) = need_some!(by_default(major, &["7", "graph"], &env));
        let graphs = of_graphs(&ran);
        let facts = |row: &Kernel| {
            assert_eq!((ran.file.name(row.name), row.graph_node), ("CUDA graph 1", None));
            assert_eq!((row.device, row.context, row.registers), (0, 1, None));
            ((row.correlation.unwrap(), row.stream, row.duration_ns), row.start_ns)
        };
        let of_line = |line: &&Value| {
            let n = |key: &str| number(line, key);
            ((n("correlation"), n("stream"), n("end") - n("start")), n("start"))
        };
        let wanted: Vec<_> = of_kind(&ran.log, "graph").iter().map(of_line).collect();
        assert_eq!(wanted.len(), 7);
        assert_same(wanted, graphs.iter().map(facts).collect(), uncertainty(&ran.file));
        // The call that launched a graph is known, and kernels outside of graphs are still
        // recorded.
        let spans = rows::<Span>(&ran.file);
        for row in &graphs {
            let call = spans.iter().find(|span| span.correlation == row.correlation).unwrap();
            assert_eq!(ran.file.name(call.name), "cudaGraphLaunch");
        }
        let beside = rows::<Kernel>(&ran.file).iter().filter(|row| row.graph.is_none()).count();
        assert_eq!(beside, 7);
        assert_eq!(losses(&ran, "", ""), 0);
    }
}

#[test]
fn a_cupti_that_may_crash_on_whole_graphs_records_their_nodes() {
    for version in ["18", "22"] {
        let env = [("FAKE_CUPTI_VERSION", version)];
        let (_scratch, ran) = need_some!(by_default(12, &["7", "graph"], &env));
        assert_kernels(&ran);
        assert_eq!(of_graphs(&ran).len(), 7 * 5);
    }
}

#[test]
fn a_cupti_that_refuses_whole_graphs_records_their_nodes() {
    let env = [("FAKE_CUPTI_FAULTS", "refuse=cuptiActivityEnable/51:1")];
    let (_scratch, ran) = need_some!(by_default(13, &["7", "graph"], &env));
    assert_kernels(&ran);
    assert_eq!(of_graphs(&ran).len(), 7 * 5);
    assert_eq!(losses(&ran, "", ""), 0);
}

#[test]
fn a_jobs_profiler_gets_graph_nodes_and_tprof_the_whole_graphs() {
    for major in [12, 13] {
        let scratch = Scratch::new();
        let (job, log) = need_some!(profiled(major, &["2", "graph"], &scratch));
        let traced = traced(&job, &["--activities", "gpu"], &scratch);
        assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
        // Each session has 36 kernels, and two runs of a graph of four kernels.
        let sessions = traced.outcome.stdout.matches("44 kernels, 12 copies, 12 fills").count();
        assert_eq!(sessions, 2, "{:?}", traced.outcome);
        let ran = read(traced, &log, 0);
        let graphs = of_graphs(&ran);
        let nodes = graphs.iter().filter(|row| row.graph_node.is_some()).count();
        assert_eq!(nodes, 2 * 2 * 4, "nodes in the sessions");
        assert_eq!(
            graphs.len() - nodes,
            4 * 2,
            "whole graphs before, between and after the sessions"
        );
        assert_eq!(losses(&ran, "", ""), 0);
    }
}

#[test]
fn whole_graphs_are_recorded_again_after_a_client_detached_cupti() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(profiled(13, &["2", "graph", "finalize", "long"], &scratch));
    let traced = traced(&job, &["--activities", "gpu"], &scratch);
    assert_eq!(traced.outcome.code, Some(0), "{:?}", traced.outcome);
    let ran = read(traced, &log, 0);
    let graphs = of_graphs(&ran);
    let nodes = graphs.iter().filter(|row| row.graph_node.is_some()).count();
    assert_eq!(nodes, 2 * 2 * 4, "nodes in the sessions");
    // The graph runs twice in each stretch without a session. The runs of the first stretch are
    // recorded, and those of the last one, which is long after the second session. Runs right after
    // a session lie in a gap, which tprof names.
    let whole: Vec<_> = graphs.iter().filter(|row| row.graph_node.is_none()).collect();
    // The highest correlation tells which graph was launched last. Times do not, since a kernel on
    // another stream may run after it.
    let of_launches = of_kind(&ran.log, "graph");
    let last = of_launches.iter().map(|line| number(line, "correlation")).max().unwrap();
    assert!(whole.iter().any(|row| row.correlation == Some(last)), "{last}: {whole:?}");
    assert!((4..=8).contains(&whole.len()), "{whole:?}");
    assert!(blind(&ran, "another client detached CUPTI from the process"));
}

#[test]
fn work_that_devices_start_is_missing_and_its_set_up_is_counted() {
    let words = ["3", "graph", "device", "conditions", "nested"];
    for faults in ["", "refuse=cuptiActivityRegisterCallbacks:39"] {
        let (_scratch, ran) = need_some!(by_default(13, &words, &[("FAKE_CUPTI_FAULTS", faults)]));
        let info = run_info(&ran.traced.run, |info| info["finished"] == true);
        let list = info["completeness"]["blind"].as_array().unwrap();
        let found: Vec<&str> = list
            .iter()
            .filter(|entry| entry["why"].as_str().unwrap().contains("the device starts them"))
            .map(|entry| entry["what"].as_str().unwrap())
            .collect();
        let wanted = [
            "launches of graphs by kernels (1 graphs instantiated for it)",
            "how often conditional nodes of graphs ran (1 conditions made)",
            "kernels that kernels launch (1 limits set for them)",
        ];
        assert_eq!(found, wanted, "{faults}");
    }
    let (_scratch, ran) = need_some!(by_default(13, &["3", "graph"], &[]));
    assert!(!blind(&ran, "the device starts them"));
}

#[test]
fn work_that_devices_start_is_named_if_the_driver_prepared_it() {
    let scratch = Scratch::new();
    let (job, log) = need_some!(memory(12, &["graphs"], &scratch));
    let traced = traced(&job, &["--activities", "gpu"], &scratch);
    assert_eq!(traced.outcome.stdout, "graphs: 2 for kernels, 1 condition\n");
    let ran = read(traced, &log, 0);
    let info = run_info(&ran.traced.run, |info| info["finished"] == true);
    let list = info["completeness"]["blind"].to_string();
    assert!(
        list.contains("launches of graphs by kernels (2 graphs instantiated for it)"),
        "{list}"
    );
    assert!(list.contains("(1 conditions made)"), "{list}");
}

#[test]
fn records_of_kernels_that_kernels_launched_are_counted_as_not_kept() {
    let (_scratch, ran) = need_some!(by_default(12, &["5"], &[("FAKE_CUPTI_FAULTS", "nested=9")]));
    assert_kernels(&ran);
    assert!(losses(&ran, "kernels", "kernels launched them") > 5);
    assert_eq!(losses(&ran, "", "unknown"), 0);
}
