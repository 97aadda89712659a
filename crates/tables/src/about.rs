//! Lists the tables, with the meaning of their columns.

use crate::column::{Column, ColumnAbout, identity};
use crate::columns::{device, files, history, host, host_times, small};
use crate::each::RANK_TABLES;
use crate::run::{RUN_TABLES, run_columns};

/// Version of the tables. It rises when a column is removed or changes its meaning.
pub const VERSION: u32 = 2;

/// The description of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableAbout {
    /// Name of the table.
    pub name: &'static str,
    /// Description of what a row is.
    pub about: &'static str,
    /// Whether the table has rows for each rank, or rows for the run as a whole.
    pub scope: Scope,
    /// Descriptions of the table's columns.
    pub columns: Vec<ColumnAbout>,
}

/// The part of a run that a table's rows describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Each rank's file has its own rows.
    Rank,
    /// The rows describe the run as a whole.
    Run,
}

impl TableAbout {
    /// Returns the name of the column that orders the rows in time, in nanoseconds since the run
    /// began; `None` if the table has no such column.
    pub fn time(&self) -> Option<&'static str> {
        let has = |name: &&str| self.columns.iter().any(|column| column.name == *name);
        ["start_ns", "time_ns"].into_iter().find(|name| has(name))
    }
}

/// Returns the descriptions of all tables: those of ranks, then those of runs.
pub fn catalogue() -> Vec<TableAbout> {
    let of_rank = RANK_TABLES.map(|name| TableAbout {
        name,
        about: about(name),
        scope: Scope::Rank,
        columns: rank_columns(name),
    });
    let of_run = RUN_TABLES.map(|(name, about)| TableAbout {
        name,
        about,
        scope: Scope::Run,
        columns: run_columns(name),
    });
    of_rank.into_iter().chain(of_run).collect()
}

/// Whether there is a table of this name.
pub fn is_table(name: &str) -> bool {
    RANK_TABLES.contains(&name) || RUN_TABLES.iter().any(|(table, _)| *table == name)
}

/// Returns the names of the columns of a table that each rank has.
pub(crate) fn column_names(table: &str) -> Vec<&'static str> {
    rank_columns(table).iter().map(|column| column.name).collect()
}

fn rank_columns(name: &str) -> Vec<ColumnAbout> {
    match name {
        "spans" => of(host::SPANS),
        "kernels" => of(device::KERNELS),
        "kernel_stalls" => of(device::KERNEL_STALLS),
        "copies" => of(device::COPIES),
        "synchronizations" => of(device::SYNCHRONIZATIONS),
        "device_spans" => of(device::DEVICE_SPANS),
        "collectives" => of(host::COLLECTIVES),
        "collective_runs" => of(host::COLLECTIVE_RUNS),
        "channel_work" => of(host::CHANNEL_WORK),
        "file_calls" => of(files::FILE_CALLS),
        "steps" => of(small::STEPS),
        "history" => of(history::HISTORY),
        "device_allocations" => of(device::ALLOCATIONS),
        "samples" => of(host::SAMPLES),
        "event_samples" => of(host::EVENT_SAMPLES),
        "flow_points" => of(host::FLOW_POINTS),
        "heap_events" => of(host::HEAP_EVENTS),
        "map_events" => of(host::MAP_EVENTS),
        "heap_totals" => of(small::HEAP_TOTALS),
        "counters" => of(small::COUNTERS),
        "thread_counts" => of(host::THREAD_COUNTS),
        "marks" => of(small::MARKS),
        "losses" => of(small::LOSSES),
        "processes" => of(small::PROCESSES),
        "threads" => of(small::THREADS),
        "devices" => of(small::DEVICES),
        "streams" => of(small::STREAMS),
        "external_ids" => of(small::EXTERNAL_IDS),
        "communicators" => of(small::COMMUNICATORS),
        "connections" => of(small::CONNECTIONS),
        "host_times" => of(host_times::HOST_TIMES),
        "stack_frames" => of(small::STACK_FRAMES),
        "properties" => of(small::PROPERTIES),
        _ => Vec::new(),
    }
}

fn of<R>(columns: &[Column<R>]) -> Vec<ColumnAbout> {
    identity::<R>().iter().chain(columns).map(ColumnAbout::from).collect()
}

fn about(name: &str) -> &'static str {
    match name {
        "spans" => {
            "intervals on host threads: CUDA calls, operators, annotations, NVTX ranges, Python functions"
        }
        "kernels" => "kernels, as they ran on devices",
        "kernel_stalls" => {
            "samples of kernels' instructions, summed over up to a minute (`--gpu-stalls`)"
        }
        "copies" => "copies and memsets, as they ran on devices",
        "synchronizations" => "waits for devices",
        "device_spans" => "annotations as devices saw them, and ranges of counters",
        "collectives" => "calls of collectives and point-to-point operations",
        "collective_runs" => {
            "collectives and point-to-point operations as they ran: a kernel each, or work on the host"
        }
        "channel_work" => "what single channels of NCCL did",
        "file_calls" => {
            "calls on files, pipes and sockets: those of a thread on a file within 10 ms are one row"
        }
        "steps" => "training steps",
        "history" => {
            "figures of steps for the whole job, also where `--keep` deleted the rest: a row for a step or, of steps below a second, for a second (`tprof report history`)"
        }
        "device_allocations" => "device memory taken and given back",
        "samples" => "stacks of threads at moments, and their waits",
        "event_samples" => "hardware and kernel events, counted",
        "flow_points" => "ends of arrows between spans",
        "heap_events" => "allocations and frees, where each was recorded",
        "map_events" => "mappings of memory",
        "heap_totals" => "sums of allocations, now and then",
        "counters" => "quantities that were read now and then",
        "thread_counts" => "what the kernel counted of each thread",
        "marks" => "moments that the program or the recorder named",
        "losses" => "what was lost",
        "processes" => "program images: an exec begins another",
        "threads" => "threads",
        "devices" => "devices",
        "streams" => "streams of devices",
        "external_ids" => "operators' numbers by call",
        "communicators" => "groups of ranks",
        "connections" => "how NCCL connected ranks, by its own log (`--nccl log`)",
        "host_times" => "wall time of the thread that drives a rank, by part",
        "stack_frames" => "functions of stacks",
        "properties" => "facts about the file",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::Sink;
    use crate::context::Context;
    use crate::each::RankTables;

    /// A sink that only lists the columns of the tables that it gets.
    #[derive(Default)]
    struct List(Vec<(&'static str, Vec<ColumnAbout>)>);

    impl Sink for List {
        type Error = std::convert::Infallible;

        fn table<R>(
            &mut self,
            name: &'static str,
            columns: &[Column<R>],
            _: &Context<'_>,
            _: &mut dyn Iterator<Item = Vec<R>>,
        ) -> Result<(), Self::Error> {
            self.0.push((name, columns.iter().map(ColumnAbout::from).collect()));
            Ok(())
        }
    }

    #[test]
    fn the_catalogue_lists_exactly_the_columns_that_are_read() {
        use tprof_trace::{RunDir, TraceHeader, TraceWriter};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rank-0.tprof");
        TraceWriter::create(&path, &TraceHeader::default()).unwrap().finish().unwrap();
        let run = RunDir::open(&path).unwrap();
        let slice = tprof_export::Slice::default();
        let selection = tprof_export::Selection::new(&run, &slice, None).unwrap();
        let part = selection.open(selection.files[0]).unwrap();
        let mut list = List::default();
        let context = Context::of("a", &part);
        let Ok(()) = RankTables::of(&context, &part, Vec::new()).each(&mut list);
        let known = catalogue().into_iter().filter(|table| table.scope == Scope::Rank);
        let known: Vec<_> = known.map(|table| (table.name, table.columns)).collect();
        assert_eq!(list.0, known);
    }

    #[test]
    fn every_table_has_columns_and_a_description() {
        for table in catalogue() {
            assert!(!table.about.is_empty(), "{}", table.name);
            assert!(table.columns.len() > 1, "{}", table.name);
            let mut names: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
            assert_eq!(names[0], "run", "{}", table.name);
            names.sort_unstable();
            names.dedup();
            assert_eq!(
                names.len(),
                table.columns.len(),
                "{}: two columns have one name",
                table.name
            );
        }
    }

    #[test]
    fn the_documentation_lists_every_column() {
        let mut list = String::new();
        for table in catalogue() {
            list += &format!(
                "\n**{}**: {}\n\n| column | type | what |\n|---|---|---|\n",
                table.name, table.about
            );
            for ColumnAbout { name, kind, about } in
                table.columns.iter().filter(|of| of.name != "run")
            {
                let is_who = matches!(*name, "rank" | "instance" | "host");
                if !(is_who && table.name != "ranks") {
                    list += &format!("| `{name}` | {} | {about} |\n", kind.name());
                }
            }
        }
        let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exports.md");
        let text = std::fs::read_to_string(&docs).unwrap();
        let (_, found) = text.split_once("raises it.\n").unwrap();
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            let before = &text[..text.len() - found.len()];
            std::fs::write(&docs, format!("{before}{list}")).unwrap();
            return;
        }
        assert_eq!(
            found.trim(),
            list.trim(),
            "docs/exports.md, from `### Columns` on: UPDATE_GOLDEN=1 writes it"
        );
    }
}
