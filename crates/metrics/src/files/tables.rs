//! Makes the tables of the report `io`.

use tprof_document::{Body, Cell, Column, RankContext, Table, Unit, View};
use tprof_facts::{files, units};
use tprof_trace::model::{FileKind, FileOperation};

use super::rates::Rates;
use super::steps::{StepFiles, mean_text};
use super::sums::{FileSums, RankFiles};
use super::uses::Use;
use crate::host::code_line;

const NOT_RECORDED: &str = "calls on files were not recorded";
const NO_FILES: &str = "no call on a file was recorded";
const NO_PEERS: &str = "no call on a socket or pipe was recorded";
const NO_LINE: &str = "no stack with a line was taken of these calls";
const NO_STORAGE: &str = "the kernel's count of the thread's reads from storage is not known";
const NO_FILE_SYSTEM: &str = "the mounts of the process could not be read";
const NO_STORAGE_CALLS: &str = "no large request to a file system's storage was recorded";
const NO_STEPS: &str = "no steps were recorded";
const NO_COUNT: &str = "the kernel's count of the processes' bytes was not read";
/// Bytes below which a difference to the kernel's count isn't mentioned.
const FEW_BYTES: u64 = 1 << 20;

pub(super) fn body(parts: &[(RankContext, RankFiles)]) -> Body {
    let is_recorded = parts.iter().any(|(_, part)| part.is_recorded);
    let why = |none: &str| if is_recorded { none } else { NOT_RECORDED }.to_owned();
    let mut of_files = files_table(why(NO_FILES));
    let mut peers = peers_table(why(NO_PEERS));
    let mut storage = storage_table(why(NO_STORAGE_CALLS));
    let mut steps = steps_table(why(NO_STEPS));
    let mut counted = counted_table();
    for (at, part) in parts {
        for (of, sums) in &part.sums {
            match of.kind {
                FileKind::Socket | FileKind::Pipe => peers.row(peer_row(at, of, sums)),
                _ => of_files.row(file_row(at, of, sums)),
            }
        }
        part.rates.iter().for_each(|rates| storage.row(storage_row(at, rates)));
        if part.is_recorded {
            counted.row(counted_row(at, part));
            part.steps.iter().for_each(|step| steps.row(step_row(at, step)));
        }
    }
    let order = |table: &mut Table| {
        let at = table.place("ns");
        let key = |row: &Vec<Cell>| {
            at.and_then(|at| row[at].value()).and_then(|value| value.number()).unwrap_or(0.0)
        };
        table.rows.sort_by(|a, b| key(b).total_cmp(&key(a)));
    };
    [&mut of_files, &mut peers].into_iter().for_each(order);
    let of_steps = |(at, part): &(RankContext, RankFiles)| {
        let text = mean_text(&part.steps).filter(|_| part.is_recorded)?;
        Some(format!("{}: {text}", at.label))
    };
    let notes = parts.iter().filter_map(of_steps);
    let notes = notes.chain(parts.iter().filter_map(|(at, part)| unseen_note(at, part)));
    let notes = notes.chain(parts.iter().filter_map(|(at, part)| uring_note(at, part))).collect();
    Body { tables: vec![of_files, peers, storage, steps, counted], notes }
}

/// The columns of both tables; `name` is the key of the one that names the file or peer.
fn columns(name: &'static str, heading: &'static str, of_calls: Vec<Column>) -> Vec<Column> {
    let mut columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("operation", "what", Unit::Text),
        Column::new("calls", "calls", Unit::Count),
        Column::data("failed", Unit::Count),
        Column::new("bytes", "bytes", Unit::Bytes),
        Column::new("ns", "time", Unit::Duration),
        Column::data("longest_ns", Unit::Duration),
        Column::new("bytes_per_call", "a call", Unit::Bytes),
        Column::new("bytes_per_s", "rate", Unit::BytesPerSecond),
        Column::data("kind", Unit::Text),
    ];
    columns.extend(of_calls);
    columns.push(Column::new(name, heading, Unit::Name));
    columns.extend(code_line::columns("line"));
    columns
}

fn cells(at: &RankContext, of: &Use, sums: &FileSums, of_calls: Vec<Cell>) -> Vec<Cell> {
    let name = if of.file.is_empty() { "(unknown)" } else { &of.file };
    let mut cells = vec![
        at.label.as_str().into(),
        files::operation(of.operation).into(),
        sums.calls.into(),
        sums.failed.into(),
        sums.bytes.into(),
        sums.ns.into(),
        sums.longest_ns.into(),
        Cell::applies(sums.bytes_per_call().map(|bytes| bytes.round() as u64)),
        Cell::applies(sums.rate().filter(|_| of.operation != FileOperation::Map)),
        files::kind(of.kind).unwrap_or("unknown").into(),
    ];
    cells.extend(of_calls);
    cells.push(name.into());
    cells.extend(code_line::cells(of.line.as_ref(), NO_LINE));
    cells
}

fn files_table(why: String) -> Table {
    let of_files = vec![
        Column::new("cached_share", "cached", Unit::Share),
        Column::data("storage_bytes", Unit::Bytes),
        Column::data("jumps", Unit::Count),
        Column::data("files", Unit::Count),
        Column::data("file_system", Unit::Text),
    ];
    Table::new("files", "Files, by the time in calls", columns("path", "file", of_files))
        .about(
            "time: summed over threads; cached: the share of what was read that the kernel had in \
             memory; line: that of the calls of which a stack was taken",
        )
        .empty(why)
}

fn file_row(at: &RankContext, of: &Use, sums: &FileSums) -> Vec<Cell> {
    let reads = matches!(of.operation, FileOperation::Read | FileOperation::Fault);
    let of_reads = |cell: Cell| if reads { cell } else { Cell::applies(None::<u64>) };
    let is_known = sums.known_bytes > 0;
    let of_files = vec![
        of_reads(Cell::known(sums.cached_share(), NO_STORAGE)),
        of_reads(Cell::known(Some(sums.storage_bytes).filter(|_| is_known), NO_STORAGE)),
        sums.jumps.into(),
        Cell::applies(sums.files),
        Cell::known(Some(&*of.file_system).filter(|name| !name.is_empty()), NO_FILE_SYSTEM),
    ];
    cells(at, of, sums, of_files)
}

fn peers_table(why: String) -> Table {
    Table::new(
        "peers",
        "Sockets and pipes, by the time in calls",
        columns("peer", "peer", Vec::new()),
    )
    .about("time: summed over threads, with the waits for the other side")
    .empty(why)
}

fn peer_row(at: &RankContext, of: &Use, sums: &FileSums) -> Vec<Cell> {
    cells(at, of, sums, Vec::new())
}

fn storage_table(why: String) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("operation", "what", Unit::Text),
        Column::new("bytes", "bytes", Unit::Bytes),
        Column::new("ns", "time", Unit::Duration),
        Column::new("bytes_per_s", "rate", Unit::BytesPerSecond),
        Column::new("best_bytes_per_s", "at best", Unit::BytesPerSecond),
        Column::data("slow_ns", Unit::Duration),
        Column::data("slow_bytes", Unit::Bytes),
        Column::new("file_system", "file system", Unit::Name),
    ];
    Table::new("storage", "File systems, by the time in large requests", columns)
        .about(
            "requests of 64 KiB or more that weren't served from the page cache; time: with at \
             least one thread in such a call",
        )
        .empty(why)
}

fn storage_row(at: &RankContext, rates: &Rates) -> Vec<Cell> {
    let operation = if rates.writes { FileOperation::Write } else { FileOperation::Read };
    let of_reads = |value: u64| Cell::applies(rates.best.map(|_| value));
    vec![
        at.label.as_str().into(),
        files::operation(operation).into(),
        rates.bytes.into(),
        rates.ns.into(),
        Cell::applies(rates.mean()),
        Cell::applies(rates.best),
        of_reads(rates.slow_ns),
        of_reads(rates.slow_bytes),
        rates.file_system.as_str().into(),
    ]
}

fn steps_table(why: String) -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("step", "step", Unit::Id),
        Column::new("duration_ns", "step time", Unit::Duration),
        Column::new("read_bytes", "read", Unit::Bytes),
        Column::new("read_ns", "in", Unit::Duration),
        Column::new("written_bytes", "written", Unit::Bytes),
        Column::new("write_ns", "in", Unit::Duration),
        Column::new("received_bytes", "received", Unit::Bytes),
        Column::new("sent_bytes", "sent", Unit::Bytes),
    ];
    Table::new("steps", "Steps", columns).view(View::Data).empty(why)
}

fn step_row(at: &RankContext, step: &StepFiles) -> Vec<Cell> {
    vec![
        at.label.as_str().into(),
        step.number.into(),
        step.duration_ns.into(),
        step.read.into(),
        step.read_ns.into(),
        step.written.into(),
        step.write_ns.into(),
        step.received.into(),
        step.sent.into(),
    ]
}

fn counted_table() -> Table {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::data("read_bytes", Unit::Bytes),
        Column::data("recorded_read_bytes", Unit::Bytes),
        Column::data("written_bytes", Unit::Bytes),
        Column::data("recorded_written_bytes", Unit::Bytes),
    ];
    Table::new("counted", "Bytes by the kernel's count and of recorded calls", columns)
        .view(View::Data)
        .empty(NOT_RECORDED)
}

fn counted_row(at: &RankContext, part: &RankFiles) -> Vec<Cell> {
    let of = &part.unseen;
    vec![
        at.label.as_str().into(),
        Cell::known(of.read, NO_COUNT),
        of.recorded_read.into(),
        Cell::known(of.written, NO_COUNT),
        of.recorded_written.into(),
    ]
}

/// What the kernel calls the descriptor of a queue of `io_uring`, which a program maps.
const URING: &str = "anon_inode:[io_uring]";

/// Says that the program may transfer bytes that nothing counts.
fn uring_note(at: &RankContext, part: &RankFiles) -> Option<String> {
    part.sums.iter().any(|(of, _)| of.file == URING).then(|| {
        format!(
            "{} uses io_uring: what that transfers is in no row, and not in the kernel's count",
            at.label
        )
    })
}

/// Says which bytes no recorded call transferred.
fn unseen_note(at: &RankContext, part: &RankFiles) -> Option<String> {
    let of = part.is_recorded.then_some(&part.unseen)?;
    let missing = |kernel: Option<u64>, recorded: u64| {
        let kernel = kernel?;
        let bytes = kernel.saturating_sub(recorded);
        (bytes >= FEW_BYTES && bytes * 50 >= kernel)
            .then(|| (units::bytes(bytes), units::bytes(kernel)))
    };
    let read = missing(of.read, of.recorded_read)
        .map(|(bytes, all)| format!("at least {bytes} of {all} that were read"));
    let written = missing(of.written, of.recorded_written)
        .map(|(bytes, all)| format!("at least {bytes} of {all} that were written"));
    let parts: Vec<String> = read.into_iter().chain(written).collect();
    (!parts.is_empty()).then(|| {
        format!(
            "{}: {} are in no row, by the kernel's count: libc's own calls (`printf`, `getline`) \
             and direct system calls are not recorded",
            at.label,
            parts.join(" and ")
        )
    })
}
