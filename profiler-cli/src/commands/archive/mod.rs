//! `tprof archive`. `tprof-sql` executes it, because that program contains the clients of object
//! stores.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use tprof_ui::args::ArchiveArgs;

use super::sql::exec_tprof_sql;

/// Replaces this process with `tprof-sql archive`.
pub fn run(args: &ArchiveArgs) -> anyhow::Result<ExitCode> {
    exec_tprof_sql("archive", &words(args))
}

/// Returns the command line for `tprof-sql`, without the program.
fn words(args: &ArchiveArgs) -> Vec<OsString> {
    let mut words = vec![OsString::from("archive")];
    let mut value = |name: &str, value: Option<&OsStr>| {
        if let Some(value) = value {
            let mut word = OsString::from(format!("{name}="));
            word.push(value);
            words.push(word);
        }
    };
    value("--list", args.list.as_deref());
    value("--check", args.check.as_deref());
    if let Some(to) = &args.to {
        value("--to", Some(to));
        value("--raw", Some(args.raw.join(",").as_ref()));
    }
    let switches = [("--json", args.json), ("--ids", args.ids), ("--unfinished", args.unfinished)];
    words.extend(switches.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name.into()));
    words.push("--".into());
    words.extend(args.runs.iter().map(Into::into));
    words
}
