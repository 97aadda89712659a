//! The list of `tprof export`'s formats. Help, completions and errors are generated from it, so a
//! new format is one more entry.

use tprof_export::{
    ExportError, Options, Written, chrome, flame, folded, perfetto, pprof, speedscope, timeline,
    torch_snapshot,
};
use tprof_tables::{csv, json, parquet};
use tprof_trace::RunDir;

/// A format of `tprof export`.
pub struct Format {
    /// Name that `--to` takes.
    pub name: &'static str,
    /// Description of the format, for a line of the help.
    pub about: &'static str,
    /// Name of the file or directory that it writes into the run directory if there is no `-o`.
    pub goes: &'static str,
    /// Options that this format supports, but not all formats do.
    pub takes: &'static [FormatOption],
    /// The code that writes the format.
    pub writer: Writer,
}

/// An option that only some formats support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatOption {
    /// The option `--weight`.
    Weight,
    /// The option `--against`.
    Against,
    /// The option `--max-size`.
    MaxSize,
    /// The option `--json`.
    Json,
    /// The options `--steps`, `--from-time` and `--to-time`.
    Times,
    /// The option `--compact`.
    Compact,
}

/// The code that writes a format.
pub enum Writer {
    /// The export library writes the format, from the trace alone.
    Library(fn(&RunDir, &Options<'_>) -> Result<Written, ExportError>),
    /// This program writes the report page, from results of analysis.
    ReportPage,
    /// The export library writes the format, from the trace and results of analysis.
    TensorBoard,
    /// This program writes the sizes of operators' inputs, from results of analysis.
    Shapes,
    /// `tprof-serve` writes the format, from a directory of runs.
    Site,
}

/// All formats, in the order of the help.
pub const FORMATS: &[Format] = &[
    Format {
        name: "perfetto",
        about: "all ranks in one file, for ui.perfetto.dev",
        goes: "trace.pftrace.gz",
        takes: &[FormatOption::MaxSize, FormatOption::Times],
        writer: Writer::Library(perfetto::export),
    },
    Format {
        name: "chrome",
        about: "Chrome JSON, as torch.profiler writes it",
        goes: "rank-N.trace.json.gz",
        takes: &[FormatOption::MaxSize, FormatOption::Times],
        writer: Writer::Library(chrome::export),
    },
    Format {
        name: "tensorboard",
        about: "curves and histograms; traces for its plugin",
        goes: "tensorboard/",
        takes: &[FormatOption::MaxSize, FormatOption::Times],
        writer: Writer::TensorBoard,
    },
    Format {
        name: "speedscope",
        about: "spans and samples, for speedscope.app",
        goes: "trace.speedscope.json",
        takes: &[FormatOption::Times],
        writer: Writer::Library(speedscope::export),
    },
    Format {
        name: "pprof",
        about: "samples and allocations, for go tool pprof",
        goes: "trace.pb.gz",
        takes: &[FormatOption::Times],
        writer: Writer::Library(pprof::export),
    },
    Format {
        name: "folded",
        about: "collapsed stacks, for flame graph tools",
        goes: "stacks.folded",
        takes: &[FormatOption::Weight, FormatOption::Times],
        writer: Writer::Library(folded::export),
    },
    Format {
        name: "flame",
        about: "flame graphs, an interactive HTML page",
        goes: "flame.html",
        takes: &[FormatOption::Against, FormatOption::Json, FormatOption::Times],
        writer: Writer::Library(flame::export),
    },
    Format {
        name: "timeline",
        about: "threads, streams, memory: interactive page",
        goes: "timeline.html",
        takes: &[FormatOption::MaxSize, FormatOption::Times],
        writer: Writer::Library(timeline::export),
    },
    Format {
        name: "torch-memory-snapshot",
        about: "blocks of PyTorch's allocator, for memory_viz",
        goes: "rank-N.memory.pickle",
        takes: &[],
        writer: Writer::Library(torch_snapshot::export),
    },
    Format {
        name: "report",
        about: "all reports, a printable HTML page",
        goes: "report.html",
        takes: &[],
        writer: Writer::ReportPage,
    },
    Format {
        name: "shapes",
        about: "operators' input sizes with counts, as JSON",
        goes: "shapes.json",
        takes: &[],
        writer: Writer::Shapes,
    },
    Format {
        name: "parquet",
        about: "tables for DuckDB, Polars and pandas",
        goes: "parquet/",
        takes: &[FormatOption::Times, FormatOption::Compact],
        writer: Writer::Library(parquet::export),
    },
    Format {
        name: "csv",
        about: "the same tables as CSV",
        goes: "csv/",
        takes: &[FormatOption::Times],
        writer: Writer::Library(csv::export),
    },
    Format {
        name: "json",
        about: "the same tables in one JSON document",
        goes: "tables.json.gz",
        takes: &[FormatOption::Times],
        writer: Writer::Library(json::export),
    },
    Format {
        name: "site",
        about: "a directory of runs as pages, no server",
        goes: "site/",
        takes: &[],
        writer: Writer::Site,
    },
];

impl Format {
    /// Whether the format is always a single file. The other formats are written to stdout as a tar
    /// archive.
    pub fn is_one_file(&self) -> bool {
        !self.goes.ends_with('/') && !self.goes.contains("-N.")
    }

    /// Whether the format shows ranks on one axis of time, so that the clocks of their hosts must
    /// agree.
    pub fn is_on_one_axis(&self) -> bool {
        matches!(self.name, "perfetto" | "chrome" | "timeline")
    }

    /// Whether the input of the format is one run, and not a directory of runs.
    pub fn is_of_a_run(&self) -> bool {
        !matches!(self.writer, Writer::Site)
    }
}

/// Finds the format of this name.
pub fn find(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// Returns the names of formats that support an option.
pub fn names_with(option: FormatOption) -> Vec<&'static str> {
    let takes = |format: &&Format| format.takes.contains(&option);
    FORMATS.iter().filter(takes).map(|format| format.name).collect()
}

/// Returns the names of all formats.
pub fn names() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.name)
}

/// Returns the names of formats for a single run.
pub fn of_a_run() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().filter(|format| format.is_of_a_run()).map(|format| format.name)
}

/// Longest name that fits into the names' column of the help.
const LONGEST: usize = 12;

/// Returns the list of formats at the end of `tprof export --help`.
pub fn help() -> String {
    let widest = |length: fn(&Format) -> usize| FORMATS.iter().map(length).max().unwrap_or(0);
    let in_column = |format: &Format| Some(format.name.len()).filter(|width| *width <= LONGEST);
    let name_width = FORMATS.iter().filter_map(in_column).max().unwrap_or(0);
    let file_width = widest(|format| format.goes.len());
    let mut text = "Formats, with the file in the run directory if -o is absent:\n".to_owned();
    for Format { name, about, goes, .. } in FORMATS {
        // A longer name has its own line, so that no line exceeds 80 columns.
        let name = match name.len() > name_width {
            true => {
                text += &format!("  {name}\n");
                ""
            }
            false => name,
        };
        text += &format!("  {name:name_width$}  {goes:file_width$}  {about}\n");
    }
    text + "\
\n-o - writes to stdout: one file, or a tar archive if the format has several files
(a directory, or rank-N). The parent of an -o directory must exist.

A slice contains every event that overlaps it, not cut at its edges. Times count from the start
of the run: 1.5s, 300ms, 2m. Steps are the numbered steps of each rank. Lists
may contain ranges: 0,4-7.

Examples:
  tprof export r1 --to perfetto --steps 5-6
  tprof export r2 --to flame --against r1
  tprof export r1 --to chrome --rank 0 --from-time 10s --max-size 100M
  tprof export r1 --to csv -o - | tar -x
  tprof export runs/ --to site -o public"
}
