//! Options of `tprof completions` and `tprof man`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `tprof completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: Shell,
}

/// Shells that completions are made for.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// `tprof man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write one page per command into this directory
    #[arg(short, long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub output: Option<PathBuf>,
}
