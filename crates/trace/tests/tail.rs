//! Tests reading files that grow. Each new row is returned once, and all rows together are the same
//! as when the whole file is read.

use crate::common;
use proptest::prelude::*;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tprof_trace::model::*;
use tprof_trace::{
    TailDecoder, TailOptions, TailUpdate, TraceError, TraceFile, TraceHeader, TraceTail,
    TraceWriter,
};

const UPDATE: &str = "Optimizer.step#SGD.step";

fn wanted(kind: SpanKind, name: &str) -> bool {
    kind == SpanKind::Annotation && name.starts_with("Optimizer.step#")
}

const WANTS: TailOptions =
    TailOptions { spans: Some(wanted), samples: true, allocator_events: true };

/// Writes a file of many small blocks, as a collector does.
fn written(path: &Path, rounds: u64) -> TraceWriter {
    let mut writer = TraceWriter::create(path, &common::header()).unwrap();
    let name = writer.name("python train.py");
    writer.process(&common::process(0, name));
    for at in 0..rounds {
        let time_ns = common::START + 1000 * at;
        // The filter also checks the kind of a span: an operator with this name isn't wanted.
        let kinds = [SpanKind::Annotation, SpanKind::Operator];
        let named = [UPDATE, "forward", &format!("layer {at}")].map(|name| writer.name(name));
        let mut spans: Vec<Span> = named
            .into_iter()
            .filter(|_| at % 3 != 1)
            .flat_map(|name| kinds.map(|kind| (name, kind)))
            .map(|(name, kind)| Span {
                start_ns: time_ns,
                duration_ns: 5,
                kind,
                name,
                ..Span::default()
            })
            .collect();
        writer.write(&mut spans).unwrap();
        let moment = Sample { time_ns, stack: 1, weight_ns: 9, ..Sample::default() };
        writer.write(&mut vec![moment; (at % 4) as usize]).unwrap();
        let (name, step) = (writer.name("rss_bytes"), writer.name(&format!("step {at}")));
        let process = Some(0);
        writer.counter(Counter { time_ns, process, device: None, name, value: at as f64 });
        writer.mark(Mark { time_ns, process, name: step, kind: MarkKind::Step });
        writer.totals(HeapTotals { time_ns, allocations: at, ..HeapTotals::default() });
        if at % 5 == 4 {
            let (what, why) = (writer.name("events"), writer.name(&format!("why {at}")));
            writer.loss(Loss { time_ns, process: None, what, count: at, why });
        }
        writer.flush().unwrap();
    }
    writer.process_end(0, common::START + 1_000_000, ProcessEnd::Exited(3));
    writer.flush().unwrap();
    writer
}

/// Returns the bytes of such a file. If `finished`, the end of the file is included.
fn bytes(finished: bool) -> &'static [u8] {
    static BYTES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-0.tprof");
        let writer = written(&path, 12);
        let open = std::fs::read(&path).unwrap();
        writer.finish().unwrap();
        [open, std::fs::read(&path).unwrap()]
    });
    &BYTES[usize::from(finished)]
}

/// A growing file, and the text of what was read from it.
struct Growing {
    _directory: tempfile::TempDir,
    path: PathBuf,
    tail: TraceTail,
    decoder: TailDecoder,
    lines: Vec<String>,
    restarts: usize,
}

impl Growing {
    fn new() -> Growing {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-0.tprof");
        File::create(&path).unwrap();
        let tail = TraceTail::new(&path, WANTS);
        let decoder = TailDecoder::new().unwrap();
        Growing { _directory: directory, path, tail, decoder, lines: Vec::new(), restarts: 0 }
    }

    fn append(&self, bytes: &[u8]) {
        File::options().append(true).open(&self.path).unwrap().write_all(bytes).unwrap();
    }

    /// Reads what was added, and returns the number of rows.
    fn read(&mut self) -> usize {
        let before = self.lines.len();
        loop {
            let file = File::open(&self.path).unwrap();
            let news = self.tail.read_more(&file, &mut self.decoder).unwrap();
            if news.restarted {
                self.lines.clear();
                self.restarts += 1;
            }
            self.take(&news, &file);
            if !news.more {
                return self.lines.len().saturating_sub(before);
            }
        }
    }

    fn take(&mut self, news: &TailUpdate, file: &File) {
        let Growing { tail, decoder, lines, .. } = self;
        let mut name = |id: NameId| tail.name(news, file, decoder, id);
        lines.extend(news.processes.iter().map(|row| format!("{row:?} {}", name(row.command))));
        lines.extend(news.process_ends.iter().map(|row| format!("{row:?}")));
        lines.extend(news.counters.iter().map(|row| format!("{row:?} {}", name(row.name))));
        lines.extend(news.totals.iter().map(|row| format!("{row:?}")));
        lines.extend(news.marks.iter().map(|row| format!("{row:?} {}", name(row.name))));
        let loss = |row: &Loss| format!("{row:?} {} {}", name(row.what), name(row.why));
        lines.extend(news.losses.iter().map(loss));
        lines.extend(news.spans.iter().map(|(row, name)| format!("{row:?} {name}")));
        lines.extend(news.samples.iter().map(|row| format!("{row:?}")));
    }

    /// Returns what was read so far, sorted so that the order doesn't depend on the calls.
    fn sorted(&self) -> Vec<String> {
        let mut lines = self.lines.clone();
        lines.sort();
        lines
    }
}

/// Returns the same for a file that is read as a whole.
fn whole(path: &Path) -> Vec<String> {
    let file = TraceFile::open(path).unwrap();
    let mut lines: Vec<String> = Vec::new();
    for row in file.processes() {
        lines.push(format!("{row:?} {}", file.name(row.command)));
        let end = file.process_end(row.process);
        lines.extend(end.map(|(end_ns, end)| format!("{:?}", (row.process, end_ns, end))));
    }
    let named = |row: &dyn std::fmt::Debug, id| format!("{row:?} {}", file.name(id));
    lines.extend(file.counters().iter().map(|row| named(row, row.name)));
    lines.extend(file.totals().iter().map(|row| format!("{row:?}")));
    lines.extend(file.marks().iter().map(|row| named(row, row.name)));
    let loss = |row: &Loss| format!("{row:?} {} {}", file.name(row.what), file.name(row.why));
    lines.extend(file.losses().iter().map(loss));
    let spans = file.blocks::<SpanOutline>().flatten();
    let spans = spans.filter(|row| wanted(row.kind, file.name(row.name)));
    lines.extend(spans.map(|row| named(&row, row.name)));
    lines.extend(file.blocks::<SampleMoment>().flatten().map(|row| format!("{row:?}")));
    lines.sort();
    lines
}

#[test]
fn each_block_is_read_once_as_soon_as_it_is_whole() {
    let bytes = bytes(false);
    let mut growing = Growing::new();
    let blocks: Vec<usize> =
        (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"tpB\xf1")).collect();
    let mut from = 0;
    for to in blocks[1..].iter().copied().chain([bytes.len()]) {
        growing.append(&bytes[from..to - 1]);
        growing.read();
        assert_eq!(growing.read(), 0, "nothing was added");
        growing.append(&bytes[to - 1..to]);
        growing.read();
        from = to;
        std::fs::write(growing.path.with_extension("cut"), &bytes[..to]).unwrap();
        assert_eq!(growing.sorted(), whole(&growing.path.with_extension("cut")), "until {to}");
    }
    assert_eq!((growing.tail.damaged(), growing.restarts), (0, 0));
    let file = TraceFile::open(&growing.path).unwrap();
    assert_eq!(growing.tail.events(), file.recorded().events);
    assert_eq!(growing.tail.last_ns(), file.last_ns());
    assert_eq!(growing.tail.header(), Some(&common::header()));
    assert!(!growing.tail.is_closed());
    growing.append(&self::bytes(true)[bytes.len()..]);
    assert_eq!((growing.read(), growing.tail.is_closed()), (0, true));
}

#[test]
fn a_name_from_an_earlier_call_is_found_again() {
    let mut growing = Growing::new();
    growing.append(bytes(false));
    let file = File::open(&growing.path).unwrap();
    let news = growing.tail.read_more(&file, &mut growing.decoder).unwrap();
    let (id, other) = (news.counters[0].name, news.losses[1].why);
    let none = TailUpdate::default();
    let names = [id, other, id].map(|id| growing.tail.name(&none, &file, &mut growing.decoder, id));
    assert_eq!(names, ["rss_bytes", "why 9", "rss_bytes"]);
    assert_eq!(growing.tail.name(&none, &file, &mut growing.decoder, NameId(0)), "");
    assert_eq!(growing.tail.name(&none, &file, &mut growing.decoder, NameId(1 << 20)), "");
}

#[test]
fn a_damaged_block_is_counted_and_all_others_are_read() {
    let sound = bytes(false);
    let blocks: Vec<usize> =
        (0..sound.len()).filter(|at| sound[*at..].starts_with(b"tpB\xf1")).collect();
    for at in blocks.iter().step_by(7) {
        for within in [0, 17, 61, 66] {
            let mut bytes = sound.to_vec();
            bytes[at + within] ^= 0x40;
            let mut growing = Growing::new();
            let half = at + 70;
            growing.append(&bytes[..half]);
            growing.read();
            growing.append(&bytes[half..]);
            growing.read();
            // The reader searches for blocks behind the damage once the file stops growing.
            growing.read();
            assert_eq!(growing.sorted(), whole(&growing.path), "byte {within} of {at}");
            // The reader doesn't notice damage in a payload that it doesn't decode.
            assert!(within == 66 || growing.tail.damaged() > 0);
        }
    }
}

#[test]
fn a_file_that_began_again_is_read_from_its_start() {
    let mut growing = Growing::new();
    growing.append(bytes(true));
    growing.read();
    let before = growing.sorted();
    // The file becomes shorter.
    std::fs::write(&growing.path, &bytes(true)[..2000]).unwrap();
    growing.read();
    assert_eq!((growing.sorted(), growing.restarts), (whole(&growing.path), 1));
    growing.append(&bytes(true)[2000..]);
    growing.read();
    assert_eq!((growing.sorted(), growing.restarts), (before, 1));
    // Replace the file by another file that is longer.
    let other = growing.path.with_extension("other");
    let mut writer = TraceWriter::create(&other, &TraceHeader::default()).unwrap();
    let name = writer.name("other");
    let mark = Mark { time_ns: 1, process: None, name, kind: MarkKind::Mark };
    writer.mark(mark);
    writer.finish().unwrap();
    let mut longer = std::fs::read(&other).unwrap();
    longer.resize(bytes(true).len() + 100, 0);
    std::fs::write(&growing.path, longer).unwrap();
    growing.read();
    assert_eq!(growing.lines, [format!("{mark:?} other")]);
    assert_eq!(growing.restarts, 2);
}

#[test]
fn a_file_that_is_not_a_trace_is_refused() {
    let growing = |bytes: &[u8]| {
        let mut growing = Growing::new();
        growing.append(bytes);
        let file = File::open(&growing.path).unwrap();
        growing.tail.read_more(&file, &mut growing.decoder).map(|news| news.marks.len())
    };
    assert!(matches!(growing(b"{\"traceEvents\":[]}"), Err(TraceError::NotTprof { .. })));
    let mut newer = bytes(true).to_vec();
    newer[10] = 9;
    assert!(matches!(growing(&newer), Err(TraceError::Newer { needed: 9, .. })));
    assert_eq!(growing(b"TPROF\0\r\n").unwrap(), 0);
    assert_eq!(growing(b"").unwrap(), 0);
}

#[test]
fn a_long_file_is_read_in_several_calls() {
    let mut growing = Growing::new();
    std::fs::remove_file(&growing.path).unwrap();
    let mut writer = TraceWriter::create(&growing.path, &TraceHeader::default()).unwrap();
    for block in 0..40u64 {
        let name = writer.name("value");
        for at in 0..1 << 15 {
            let time_ns = (block << 15) + at;
            writer.counter(Counter { time_ns, process: None, device: None, name, value: 0.0 });
        }
        writer.flush().unwrap();
    }
    writer.finish().unwrap();
    let file = File::open(&growing.path).unwrap();
    let first = growing.tail.read_more(&file, &mut growing.decoder).unwrap();
    assert!(first.more && first.counters.len() < 40 << 15);
    let mut count = first.counters.len();
    while let news = growing.tail.read_more(&file, &mut growing.decoder).unwrap()
        && !news.counters.is_empty()
    {
        count += news.counters.len();
    }
    assert_eq!((count, growing.tail.is_closed()), (40 << 15, true));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_way_to_grow_gives_the_rows_of_the_whole_file(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12), finished: bool) {
        let bytes = bytes(finished);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let mut growing = Growing::new();
        let mut from = 0;
        for to in cuts.into_iter().chain([bytes.len()]) {
            growing.append(&bytes[from..to]);
            growing.read();
            from = to;
        }
        prop_assert_eq!(growing.sorted(), whole(&growing.path));
        prop_assert_eq!((growing.restarts, growing.tail.damaged()), (0, 0));
    }

    #[test]
    fn hostile_bytes_are_read_as_by_the_reader_of_whole_files(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = bytes(false).to_vec();
        // Make the checksums valid, as a hostile writer would. Otherwise they would stop all random
        // damage.
        let blocks: Vec<usize> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"tpB\xf1")).collect();
        for (at, value) in flips {
            let block = blocks[at.index(blocks.len())];
            let end = blocks.iter().copied().find(|next| *next > block).unwrap_or(bytes.len());
            bytes[block + 4 + at.index(end - block - 4)] = value;
        }
        for (at, block) in blocks.iter().copied().enumerate() {
            let end = blocks.get(at + 1).copied().unwrap_or(bytes.len());
            let crc = crc32fast::hash(&bytes[block + 64..end]).to_le_bytes();
            bytes[block + 48..block + 52].copy_from_slice(&crc);
            let crc = crc32fast::hash(&bytes[block..block + 60]).to_le_bytes();
            bytes[block + 60..block + 64].copy_from_slice(&crc);
        }
        let mut growing = Growing::new();
        let cut = cut.index(bytes.len());
        growing.append(&bytes[..cut]);
        growing.read();
        growing.append(&bytes[cut..]);
        for _ in 0..3 {
            growing.read();
        }
    }
}
