//! What a user reads when a trace cannot be imported.

use tprof_facts::units::bytes;
use tprof_import::ImportError;

use crate::runs::failure::trace_failure;
use crate::terminal::errors::{Failure, said};
use crate::terminal::quote;

/// Why nothing was imported.
pub fn failure(error: &ImportError) -> Failure {
    match error {
        ImportError::Io { path, source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Failure::new(format!("cannot read `{}`", path.display()))
                .cause("there is no such file or directory")
                .hint("a *.json or *.json.gz that torch.profiler wrote, or its directory")
        }
        ImportError::Io { path, what, source } => {
            Failure::new(format!("cannot {what} `{}`", path.display()))
                .cause(said(source))
                .hint("another file, or another -o")
        }
        ImportError::NotATrace { path, offset, why } => {
            Failure::new(format!("cannot import `{}`", path.display()))
                .cause(format!("{why}, at byte {offset} of its JSON"))
                .hint("a trace that torch.profiler's export_chrome_trace wrote")
        }
        ImportError::TooLarge { path, limit } => {
            Failure::new(format!("cannot import `{}`", path.display()))
                .cause(format!("it holds more than {} of JSON", bytes(*limit)))
                .hint("a larger --max-input, if the file can be trusted")
        }
        ImportError::NoTraces { path, within } => {
            let failure =
                Failure::new(format!("there is nothing to import in `{}`", path.display()));
            match within.first() {
                None => failure
                    .cause("it holds no trace (*.json, *.json.gz)")
                    .hint("the directory that torch.profiler wrote to"),
                Some(first) => failure
                    .cause(format!("its traces lie in {} directories within", within.len()))
                    .hint(format!("tprof import {}", quote::word(first.as_os_str()))),
            }
        }
        ImportError::Trace(error) => {
            let failure = trace_failure(std::path::Path::new(""), error);
            Failure { what: error.to_string(), ..failure }
        }
    }
}
