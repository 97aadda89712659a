//! Options of `tprof open`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

use crate::commands::export::SliceArgs;

/// What `tprof open` shows a run in.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum View {
    /// Perfetto's page
    #[default]
    Perfetto,
    /// Threads, streams and memory over time
    Timeline,
    /// Flame graphs
    Flame,
    /// All reports, with links to the two others
    Report,
}

/// `tprof open`.
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// Run directory, one of its files, or a foreign trace
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub path: PathBuf,
    /// What to open it in
    #[arg(long = "as", value_name = "PAGE", value_enum, default_value_t = View::Perfetto)]
    pub view: View,
    /// Which part.
    #[command(flatten)]
    pub slice: SliceArgs,
    /// Start no browser, print the address alone
    #[arg(long)]
    pub no_browser: bool,
    /// End when the browser has fetched the page or the trace
    #[arg(long)]
    pub once: bool,
    /// Port on 127.0.0.1 [default: 9001 for perfetto, whose page fetches from no other; else any]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Page to open, if you serve Perfetto's yourself [default: ui.perfetto.dev]
    #[arg(long, value_name = "URL")]
    pub ui: Option<String>,
}
