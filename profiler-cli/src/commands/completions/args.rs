//! Options of `tprof completions` and `tprof man`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments of `tprof completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Shell to complete for
    pub shell: Shell,
}

/// Shells with completion scripts.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// Script for bash
    Bash,
    /// Script for zsh
    Zsh,
    /// Script for fish
    Fish,
}

/// Arguments of `tprof man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write one page per command into this directory
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub output: Option<PathBuf>,
}
