//! How NCCL moved data between ranks, as far as calls on files show it.
//!
//! No interface of NCCL tells which transport it chose for a communicator. But its own threads, whose
//! names begin with `NCCL` (`NCCL Progress`, `NCCL Sock…`: `ncclSetThreadName` in its sources), send
//! and receive by sockets if it found nothing better; for InfiniBand, a process opens
//! `/dev/infiniband/uverbs…` (libibverbs); and shared memory of two ranks on one host is a mapped
//! file `/dev/shm/nccl-…`. NVLink, and shared memory that CUDA allocates, make no such calls.

use std::collections::BTreeSet;

use tprof_document::{Cell, Column, Table, Unit};
use tprof_facts::units::counted;
use tprof_rank::{RankTrace, steps_of_one_process};
use tprof_trace::TraceFile;
use tprof_trace::model::{FileCalls, FileKind, FileOperation};

const THREADS: &str = "NCCL";
const VERBS: &str = "/dev/infiniband/uverbs";
const SHARED: &str = "/dev/shm/nccl-";
const BY_ADAPTER: &str =
    "the adapter moves these bytes without a call: `report machine` has those of its ports";
const IN_MEMORY: &str = "bytes in shared memory are moved without a call";
const NO_STEPS: &str = "no steps were recorded";

/// Bytes in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    received: u64,
    sent: u64,
}

impl Moved {
    fn add(&mut self, row: &FileCalls) {
        match row.operation {
            FileOperation::Read => self.received += row.bytes,
            _ => self.sent += row.bytes,
        }
    }
}

/// What a rank's calls on files say of NCCL's transports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transports {
    /// Names of NCCL's threads that used sockets.
    threads: BTreeSet<String>,
    /// What they transferred in all, and in steps.
    all: Moved,
    in_steps: Moved,
    steps: u64,
    /// Device files of InfiniBand that were opened.
    verbs: BTreeSet<String>,
    /// Files of shared memory that were mapped.
    shared: BTreeSet<String>,
}

impl Transports {
    /// Reads a rank's calls on files.
    pub fn of(rank: &RankTrace<'_>) -> Transports {
        let file = rank.file;
        let steps: Vec<_> = steps_of_one_process(rank).iter().map(|step| step.interval).collect();
        let mut found = Transports { steps: steps.len() as u64, ..Transports::default() };
        for row in file.blocks::<FileCalls>().flatten() {
            match row.operation {
                FileOperation::Read | FileOperation::Write if row.kind == FileKind::Socket => {
                    let Some(name) = thread(file, &row) else { continue };
                    if row.bytes > 0 && !found.threads.contains(name) {
                        found.threads.insert(name.to_owned());
                    }
                    found.all.add(&row);
                    let after = steps.partition_point(|step| step.start <= row.start_ns);
                    let of = after.checked_sub(1).map(|at| steps[at]);
                    if of.is_some_and(|step| row.start_ns < step.end) {
                        found.in_steps.add(&row);
                    }
                }
                FileOperation::Open if row.failed < row.calls => {
                    keep(&mut found.verbs, file.name(row.file), VERBS);
                }
                FileOperation::Map if row.failed < row.calls => {
                    keep(&mut found.shared, file.name(row.file), SHARED);
                }
                _ => {}
            }
        }
        found
    }

    /// Says over what NCCL moved data to other hosts, if calls on files show it.
    pub fn text(&self) -> Option<String> {
        let verbs = !self.verbs.is_empty();
        match self.all.sent.max(self.all.received) {
            // What a new communicator exchanges, and what keeps a connection alive.
            ..MUCH if verbs => Some("over InfiniBand".to_owned()),
            ..MUCH => None,
            _ if verbs => Some("over sockets, although the process opened InfiniBand".to_owned()),
            _ => Some("over sockets: no InfiniBand device was opened".to_owned()),
        }
    }
}

/// Bytes by sockets from which they count as a collective's data.
const MUCH: u64 = 1 << 20;

/// The name of the call's thread, if it is one of NCCL's.
fn thread<'a>(file: &'a TraceFile, row: &FileCalls) -> Option<&'a str> {
    file.thread_name(row.thread).filter(|name| name.starts_with(THREADS))
}

fn keep(paths: &mut BTreeSet<String>, path: &str, prefix: &str) {
    if path.starts_with(prefix) && !paths.contains(path) {
        paths.insert(path.to_owned());
    }
}

/// Makes the table; `None` if no rank's calls show a transport.
pub(super) fn transports_table<'a>(
    parts: impl Iterator<Item = (&'a str, &'a Transports)>,
) -> Option<Table> {
    let columns = vec![
        Column::new("rank", "rank", Unit::Text),
        Column::new("transport", "transport", Unit::Text),
        Column::new("step_received_bytes", "in, a step", Unit::Bytes),
        Column::new("step_sent_bytes", "out, a step", Unit::Bytes),
        Column::data("received_bytes", Unit::Bytes),
        Column::data("sent_bytes", Unit::Bytes),
        Column::new("evidence", "seen by", Unit::Name),
    ];
    let mut table = Table::new(
        "comm_transports",
        "How NCCL moved data, by calls on files",
        columns,
    )
    .about(
        "NVLink and memory that CUDA shares make no such calls: they may be in use without a row",
    );
    for (label, of) in parts {
        if !of.threads.is_empty() {
            let a_step = |bytes: u64| match bytes.checked_div(of.steps) {
                Some(bytes) => Cell::from(bytes),
                None => Cell::missing(NO_STEPS),
            };
            let threads = counted(of.threads.len() as u64, "thread", "threads");
            let first = of.threads.first().map_or("", String::as_str);
            table.row(vec![
                label.into(),
                "sockets".into(),
                a_step(of.in_steps.received),
                a_step(of.in_steps.sent),
                of.all.received.into(),
                of.all.sent.into(),
                format!("{threads} of NCCL: {first}").into(),
            ]);
        }
        for (paths, transport, why) in
            [(&of.verbs, "InfiniBand", BY_ADAPTER), (&of.shared, "shared memory", IN_MEMORY)]
        {
            let Some(first) = paths.first() else { continue };
            let evidence = match paths.len() {
                1 => first.clone(),
                more => format!("{first} and {} more", more - 1),
            };
            let mut row = vec![label.into(), transport.into()];
            row.extend((0..4).map(|_| Cell::missing(why)));
            row.push(evidence.into());
            table.row(row);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sent: u64, verbs: &[&str]) -> Transports {
        Transports {
            threads: BTreeSet::from(["NCCL Progress 0".to_owned()]),
            all: Moved { received: 0, sent },
            verbs: verbs.iter().map(|path| (*path).to_owned()).collect(),
            ..Transports::default()
        }
    }

    #[test]
    fn few_bytes_by_sockets_are_not_a_collectives_data() {
        assert_eq!(of(5000, &[]).text(), None);
        assert_eq!(of(5000, &["/dev/infiniband/uverbs0"]).text().unwrap(), "over InfiniBand");
        assert!(of(MUCH, &[]).text().unwrap().starts_with("over sockets: no InfiniBand"));
    }

    #[test]
    fn bytes_that_no_call_moves_are_unknown() {
        let part = of(5000, &["/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1"]);
        let table = transports_table([("rank 0", &part)].into_iter()).unwrap();
        let cell = |row: usize, key: &str| &table.rows[row][table.place(key).unwrap()];
        assert_eq!(cell(0, "sent_bytes"), &5000_u64.into());
        assert_eq!(cell(0, "step_sent_bytes"), &Cell::missing(NO_STEPS));
        assert_eq!(cell(1, "sent_bytes"), &Cell::missing(BY_ADAPTER));
        assert_eq!(cell(1, "evidence"), &"/dev/infiniband/uverbs0 and 1 more".into());
        assert!(transports_table([("rank 0", &Transports::default())].into_iter()).is_none());
    }
}
