//! `tprof open`: shows a run in Perfetto's page, or in one of tprof's own.

mod args;
mod serve;
mod show;

pub use args::OpenArgs;
pub use show::run;
