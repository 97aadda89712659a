//! Errors for traces that cannot be imported.

use tprof_facts::units::bytes;
use tprof_import::ImportError;
use tprof_ui::errors::Failure;

use crate::runs::failure::{packed, trace_failure};
use crate::terminal::quote;

/// Returns the error for traces of which nothing was imported.
pub fn failure(error: &ImportError) -> Failure {
    match error {
        ImportError::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::new(format!("cannot read `{}`", path.display()))
                .cause("no such file or directory")
                .hint("a trace of torch.profiler (JSON), or its directory")
        }
        ImportError::Io { path, what, source } => {
            Failure::new(format!("cannot {what} `{}`", path.display()))
                .because(source, "another file, or another -o")
        }
        ImportError::NotATrace { path, offset, why } => packed(path).unwrap_or_else(|| {
            Failure::new(format!("cannot import `{}`", path.display()))
                .cause(format!("{why}, at byte {offset} of its JSON"))
                .hint("a trace of export_chrome_trace (torch.profiler)")
        }),
        ImportError::NotASnapshot { path, offset, why, is_cut } => {
            let at = offset.map_or_else(String::new, |offset| format!(", at byte {offset}"));
            Failure::new(format!("cannot import `{}`", path.display()))
                .cause(format!("{why}{at}"))
                .hint(match is_cut {
                    true => "the whole file: copy it again, or dump it again",
                    false => "a file of torch.cuda.memory._dump_snapshot (PyTorch)",
                })
        }
        ImportError::NotTwice { path } => {
            Failure::new(format!("cannot import `{}`", path.display()))
                .cause("some of its times are impossible, and a pipe can't be read a second time")
                .hint("write it to a file, and import that")
        }
        ImportError::TooLarge { path, limit } => {
            Failure::new(format!("cannot import `{}`", path.display()))
                .cause(format!("the file contains more than {}, decompressed", bytes(*limit)))
                .hint("a larger --max-input, if you trust the file")
        }
        ImportError::NoTraces { path, within, unread } => {
            let failure = Failure::new(format!("`{}` contains nothing to import", path.display()));
            match (within.first(), unread.first()) {
                (None, None) => failure
                    .cause("the directory contains no trace (*.json, *.json.gz), snapshot (*.pickle) or log of TORCH_TRACE (*.log)")
                    .hint("the output directory of torch.profiler"),
                (None, Some(first)) => failure
                    .cause(format!("cannot read {first}"))
                    .hint("the output directory of torch.profiler"),
                (Some(first), _) => failure
                    .cause(format!("the traces are in {} subdirectories", within.len()))
                    .hint(format!("tprof import {}", quote::word(first.as_os_str()))),
            }
        }
        ImportError::Trace(error) => {
            let failure = trace_failure(std::path::Path::new(""), error);
            Failure { what: error.to_string(), ..failure }
        }
    }
}
