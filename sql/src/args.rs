//! Parses the command line of `tprof-sql`, which is that of `tprof sql`.

use clap::Parser;
use tprof_ui::args::{ArchiveArgs, SqlArgs};

/// The command line of `tprof-sql`.
#[derive(Parser, Debug)]
#[command(
    name = "tprof-sql",
    version,
    about = "Queries runs of tprof with SQL; `tprof sql` starts it.",
    max_term_width = 80
)]
pub struct Cli {
    /// Options of the command.
    #[command(flatten)]
    pub args: SqlArgs,
}

/// Options of `tprof-sql archive`.
#[derive(Parser, Debug)]
#[command(
    name = "tprof-sql archive",
    version,
    about = "Adds runs to an archive that SQL can query; `tprof archive` starts it.",
    max_term_width = 80
)]
pub struct ArchiveCli {
    /// Options of the command.
    #[command(flatten)]
    pub args: ArchiveArgs,
}
