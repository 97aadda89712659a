//! Writes a directory of runs as static pages. The program `tprof-serve` does this, because it
//! contains the pages.

use std::ffi::OsString;
use std::process::ExitCode;

use tprof_ui::errors::Failure;

use super::args::ExportArgs;
use crate::commands::serve;

/// Replaces this process with `tprof-serve`, which writes the pages.
pub fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let slice = &args.slice;
    let asked = [("--rank", slice.rank.is_some()), ("--steps-from", slice.steps_from.is_some())];
    if let Some((option, _)) = asked.into_iter().find(|(_, is_asked)| *is_asked) {
        return Err(Failure::new(format!("{option} does not apply to {}", args.to))
            .cause("a site always covers whole runs")
            .hint(format!("no {option}, or another format"))
            .into());
    }
    let mut words: Vec<OsString> = vec!["site".into()];
    if let Some(output) = &args.output {
        let mut word = OsString::from("--output=");
        word.push(output);
        words.push(word);
    }
    words.extend(args.force.then(|| "--force".into()));
    words.extend(["--".into(), (&args.path).into()]);
    serve::become_server(words)
}
