//! Tests that records of operators become rows once their names are known.

use super::*;
use tprof_trace::TraceFile;
use tprof_wire::interned::{WORDS, pack};
use tprof_wire::operators::Input;
use tprof_wire::record::ExtKind;

fn define(interned: &mut Interned, id: u32, kind: ExtKind, bytes: &[u8]) {
    let mut words = [0; WORDS];
    let used = pack(bytes, &mut words);
    let definition = crate::targets::interned::Definition::decode(kind, &words[..used]).unwrap();
    interned.define(id, definition, &mut Losses::default());
}

#[test]
fn an_operator_waits_for_its_name_and_is_counted_if_it_never_comes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rank-0.tprof");
    let mut writer = TraceWriter::create(&path, &Default::default()).unwrap();
    let (mut operators, mut interned) = (Operators::new(3), Interned::default());
    let over = |name, sizes, sequence| FinishedOperator {
        kind: SpanKind::Operator,
        name,
        inputs: Inputs { sequence, sizes },
        thread: 1,
        start_ns: 100,
        duration_ns: 50,
    };
    operators.over(over(1, 2, 8), &mut interned, &mut writer);
    operators.over(over(9, 0, 0), &mut interned, &mut writer);
    operators.over(over(0, 0, 0), &mut interned, &mut writer);
    operators.write(1, false, &mut interned, &mut writer).unwrap();
    define(&mut interned, 1, ExtKind::Name, b"aten::mm");
    let words = [Input::Tensor { dims: 1, of: 6 }.pack(), 7];
    define(&mut interned, 2, ExtKind::Sizes, &words.map(u64::to_ne_bytes).concat());
    let mut losses = Losses::default();
    operators.finish(1_000, &mut interned, &mut writer, &mut losses);
    writer.finish().unwrap();
    let lost: Vec<_> = losses.iter().map(|(what, _, count)| (what, count)).collect();
    assert_eq!(lost, [("operators and ranges", 2)]);
    let file = TraceFile::open(&path).unwrap();
    let rows: Vec<Span> = file.blocks::<Span>().flatten().collect();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((file.name(row.name), row.sequence, row.process), ("aten::mm", Some(7), 3));
    assert_eq!(file.name(row.args), r#"{"Input Dims":[[7]],"Input type":["float"]}"#);
}
