//! `tprof completions` and `tprof man`. Both are generated from the same definitions as the help.

mod args;
mod man;
mod report_words;
mod script;

pub use args::{CompletionsArgs, ManArgs};
pub use man::man;
pub use script::completions;
