//! Tests which slices Perfetto's arrows join.

use crate::common::{readers, write_two_threads};
use std::path::Path;
use tprof_export::{Options, chrome, perfetto};
use tprof_trace::RunDir;
use tprof_trace::model::*;

/// Returns the arrows that Perfetto finds in both formats. Each arrow is the names of the slices at
/// its two ends.
fn arrows(run: &Path) -> Option<[Vec<(String, String)>; 2]> {
    let opened = RunDir::open(run).unwrap();
    let to = |name: &str| Options { output: Some(run.join(name)), ..Options::default() };
    let pftrace = perfetto::export(&opened, &to("t.pftrace")).unwrap().paths[0].clone();
    let json = chrome::export(&opened, &to("t.json.gz")).unwrap().paths[0].clone();
    let sql = "select a.name a, b.name b from flow
        join slice a on a.id = slice_out join slice b on b.id = slice_in order by a.ts, b.ts";
    let of = |path: &Path| {
        let answers = readers::perfetto(path, &[sql])?;
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        Some(answers[0].iter().map(|row| (text(&row["a"]), text(&row["b"]))).collect())
    };
    Some([of(&pftrace)?, of(&json)?])
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn messages_that_reuse_an_id_are_separate_arrows() {
    let dir = tempfile::tempdir().unwrap();
    write_two_threads(&dir.path().join("rank-0.tprof"), |writer| {
        let (mut spans, mut points) = (Vec::new(), Vec::new());
        let (category, name) = (writer.name("net"), writer.name("message"));
        for message in 0..3 {
            for (thread, what, end) in [(0, "send", FlowEnd::Start), (1, "receive", FlowEnd::End)] {
                let start_ns = 10_000 * (message + 1) + 3_000 * u64::from(thread);
                let name_of_span = writer.name(&format!("{what} {message}"));
                let duration_ns = 1_000;
                let row = Span { start_ns, duration_ns, thread, ..Span::default() };
                spans.push(Span { name: name_of_span, kind: SpanKind::Operator, ..row });
                points.push(FlowPoint {
                    time_ns: start_ns,
                    thread: Some(thread),
                    end,
                    id: 5,
                    category,
                    name,
                    ..FlowPoint::default()
                });
            }
        }
        writer.write(&mut spans).unwrap();
        writer.write(&mut points).unwrap();
    });
    let Some(found) = arrows(dir.path()) else { return };
    let messages = [("send 0", "receive 0"), ("send 1", "receive 1"), ("send 2", "receive 2")];
    assert_eq!(found, [pairs(&messages), pairs(&messages)]);
}

#[test]
fn each_kernel_of_a_graph_has_an_arrow_from_its_launch() {
    let dir = tempfile::tempdir().unwrap();
    write_two_threads(&dir.path().join("rank-0.tprof"), |writer| {
        let (mut spans, mut kernels) = (Vec::new(), Vec::new());
        for launch in 0..2 {
            let (start_ns, correlation) = (10_000 * (launch + 1), Some(launch + 1));
            let name = writer.name(&format!("launch {launch}"));
            spans.push(Span {
                start_ns,
                duration_ns: 500,
                name,
                correlation,
                kind: SpanKind::Runtime,
                ..Span::default()
            });
            for node in 0..3 {
                let name = writer.name(&format!("kernel {launch}.{node}"));
                kernels.push(Kernel {
                    start_ns: start_ns + 1_000 * (node + 1),
                    duration_ns: 500,
                    name,
                    correlation,
                    stream: 7,
                    graph: Some(3),
                    ..Kernel::default()
                });
            }
        }
        writer.write(&mut spans).unwrap();
        writer.write(&mut kernels).unwrap();
    });
    let Some(found) = arrows(dir.path()) else { return };
    let each = [0, 1].map(|launch| {
        [0, 1, 2].map(|node| (format!("launch {launch}"), format!("kernel {launch}.{node}")))
    });
    assert_eq!(found, [each.concat(), each.concat()]);
}
