//! `tprof import`: imports traces, memory snapshots and logs of other tools as a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tprof_facts::units::{count, parse_size, recorded};
use tprof_import::{Imported, Options};
use tprof_trace::compile_log::COMPILE_DIRECTORY;
use tprof_ui::errors::{Failure, print_stderr};

use crate::runs::foreign::import;
use clap::Args;

/// The end of the help.
const IMPORT_NOTES: &str = "\
Reads Kineto and Chrome trace JSON, memory snapshots of PyTorch
(torch.cuda.memory._dump_snapshot), and logs of torch.compile (TORCH_TRACE),
plain or compressed with gzip or zstd. A file's type is recognized by its
content. In a directory, files with the usual names are read, or all files if
none has one. The rank of a file comes from its `distributedInfo`, otherwise
from its name (rank-3, worker3), otherwise from its order on the command line
(with a warning).

`report`, `diff`, `export` and `open` also read such files directly. Import
once to read a trace several times.

Example:
  tprof import traces/ -o r1; tprof report r1";

/// Arguments of `tprof import`.
#[derive(Args, Debug)]
#[command(after_help = IMPORT_NOTES)]
pub struct ImportArgs {
    /// Trace files, memory snapshots, logs of torch.compile, or directories of them
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// Run directory to create
    #[arg(short, long, value_name = "RUN", value_hint = clap::ValueHint::DirPath)]
    pub output: PathBuf,
    /// Replace an existing run
    #[arg(long)]
    pub force: bool,
    /// Largest decompressed size of one file [default: 64GiB; snapshots: 2GiB]
    #[arg(long, value_name = "SIZE")]
    pub max_input: Option<String>,
    /// Do not print a summary
    #[arg(short, long)]
    pub quiet: bool,
}

/// Imports files into a run directory.
pub fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let mut options = Options::new(env!("CARGO_PKG_VERSION"));
    if let Some(text) = &args.max_input {
        options.max_input_bytes = parse_size(text).ok_or_else(|| {
            Failure::new(format!("bad value `{text}` for --max-input"))
                .cause("the value is not a size")
                .hint("--max-input 8GiB")
        })?;
    }
    make_room(&args.output, args.force)?;
    let imported = import(&args.files, &args.output, &options)?;
    if !args.quiet {
        print_stderr(&summary(&imported, &args.output));
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a directory that is not empty. With `force`, removes an old run from it, but refuses
/// other files.
fn make_room(output: &Path, force: bool) -> Result<(), Failure> {
    let cannot = |error: std::io::Error| {
        Failure::new(format!("cannot write `{}`", output.display()))
            .because(&error, "-o with a writable directory")
    };
    let entries = match fs::read_dir(output) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return crate::runs::directory::check_parent(output);
        }
        Err(error) => return Err(cannot(error)),
    };
    for entry in entries {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let of_a_run = name.ends_with(".tprof")
            || name.starts_with("run") && name.ends_with(".json")
            || name.ends_with(".partial")
            || name == COMPILE_DIRECTORY && path.is_dir();
        if !force || !of_a_run {
            let failure = Failure::new(format!("`{}` exists", output.display()));
            return Err(if of_a_run {
                failure.cause("it holds a run").hint("--force to replace it, or another -o")
            } else {
                failure
                    .cause(format!("it holds `{name}`, which is not part of a run"))
                    .hint("-o with another path")
            });
        }
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(cannot)?;
    }
    Ok(())
}

/// Returns lines that say what was imported and what was not.
fn summary(imported: &Imported, output: &Path) -> String {
    let files = match imported.files.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let mut text = format!("tprof: imported {} of {files}\n", recorded(imported.recorded));
    for note in &imported.notes {
        text += &format!("note: {note}\n");
    }
    for loss in &imported.losses {
        let count = if loss.count == 0 { String::new() } else { count(loss.count) + " " };
        text += &format!("not kept: {count}{}: {}\n", loss.what, loss.why);
    }
    text + &format!("tprof report {}\n", crate::terminal::quote::word(output.as_os_str()))
}
