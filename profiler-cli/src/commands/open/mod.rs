//! `tprof open`: shows a run in Perfetto, or in one of tprof's own pages.

mod args;
mod serve;
mod show;

pub use args::OpenArgs;
pub use show::run;
