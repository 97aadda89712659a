//! Options of `tprof open`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

use crate::commands::export::SliceArgs;

/// Pages of `tprof open`.
#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum View {
    /// Perfetto's own page (ui.perfetto.dev)
    #[default]
    Perfetto,
    /// Threads, streams and memory over time
    Timeline,
    /// Interactive flame graphs
    Flame,
    /// All reports, with links to timeline and flame graph
    Report,
}

/// Arguments of `tprof open`.
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// Run directory, one of its files, or a Kineto or Chrome trace
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub path: PathBuf,
    /// Page to open
    #[arg(long = "as", value_name = "PAGE", value_enum, default_value_t = View::Perfetto)]
    pub view: View,
    /// Part of the run to show.
    #[command(flatten)]
    pub slice: SliceArgs,
    /// Print the address and do not start a browser
    #[arg(long)]
    pub no_browser: bool,
    /// Exit when the browser has fetched the page or the trace
    #[arg(long)]
    pub once: bool,
    /// Port on 127.0.0.1 [default: 9001 for Perfetto, which accepts no other; otherwise any]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Address of your own Perfetto server [default: ui.perfetto.dev]
    #[arg(long, value_name = "URL")]
    pub ui: Option<String>,
}
