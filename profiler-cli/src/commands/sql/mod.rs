//! `tprof sql`. The program `tprof-sql` executes it; it is separate because its query engine is
//! larger than everything else in tprof.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use tprof_ui::args::SqlArgs;
use tprof_ui::errors::{Failure, reason};

/// Name of the program with the query engine.
const PROGRAM: &str = "tprof-sql";
/// Exit status of a wrong command line, as in other SQL programs.
pub const MISUSE: u8 = 2;

/// Replaces this process with `tprof-sql`.
pub fn run(args: &SqlArgs) -> anyhow::Result<ExitCode> {
    exec_tprof_sql("sql", &words(args))
}

/// Replaces this process with `tprof-sql`, which is in the directory of this program or in PATH.
pub fn exec_tprof_sql(command: &str, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe()?;
    let beside = own.with_file_name(PROGRAM);
    let program = if beside.is_file() { beside } else { PathBuf::from(PROGRAM) };
    let error = Command::new(&program).args(words).exec();
    if error.kind() != ErrorKind::NotFound {
        return Err(Failure::new(format!("cannot start {PROGRAM}")).cause(reason(&error)).into());
    }
    let what = format!("`tprof {command}` needs the program {PROGRAM}, which is not installed");
    Err(Failure::new(what)
        .cause("it contains a query engine; tprof looks for it beside itself and on PATH")
        .hint(
            "install the package tprof-sql from where you got tprof (pip: tprof[sql]), or in \
             tprof's sources: cargo install --path sql",
        )
        .into())
}

/// Returns the command line for `tprof-sql sql`.
fn words(args: &SqlArgs) -> Vec<OsString> {
    let mut words = vec![OsString::from(format!("--format={}", args.format.name()))];
    let mut value = |name: &str, value: Option<&OsStr>| {
        if let Some(value) = value {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            words.push(word);
        }
    };
    value("--file", args.file.as_deref().map(AsRef::as_ref));
    value("--output", args.output.as_deref().map(AsRef::as_ref));
    value("--memory-limit", args.memory_limit.as_deref().map(AsRef::as_ref));
    value(
        "--threads",
        args.threads.map(|threads| threads.to_string()).as_deref().map(AsRef::as_ref),
    );
    value("--remote", args.remote.as_deref().map(AsRef::as_ref));
    args.run.iter().for_each(|id| value("--run", Some(id.as_ref())));
    args.remote_data.iter().for_each(|one| value("--remote-data", Some(one.as_os_str())));
    if args.views {
        words.push("--views".into());
    }
    words.push("--".into());
    words.extend(args.words.iter().cloned());
    words
}
