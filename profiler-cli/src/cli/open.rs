//! `tprof open`.

use clap::Args;
use std::path::PathBuf;

use super::SliceArgs;

/// `tprof open`.
#[derive(Args, Debug)]
pub struct OpenArgs {
    /// Run directory, one of its files, or a foreign trace
    #[arg(value_name = "RUN", value_hint = clap::ValueHint::AnyPath)]
    pub path: PathBuf,
    /// Which part.
    #[command(flatten)]
    pub slice: SliceArgs,
    /// Start no browser, print the address alone
    #[arg(long)]
    pub no_browser: bool,
    /// End when the page has fetched the trace
    #[arg(long)]
    pub once: bool,
    /// Port on 127.0.0.1; Perfetto's own page fetches from 9001 alone
    #[arg(long, value_name = "PORT", default_value_t = 9001)]
    pub port: u16,
    /// Page to open, if you serve Perfetto's yourself
    #[arg(long, value_name = "URL", default_value = "https://ui.perfetto.dev")]
    pub ui: String,
}
