//! `tprof top`: what the ranks of a run do now, in a terminal; as text or JSON where there is none.
//!
//! `args` are the options, `error` is what goes wrong; `source` gives snapshots, of this host or
//! another; `cells` writes numbers, `view` is what is chosen and in which order; `table` and `words` are
//! what a picture consists of, `text` and `draw` make one; `screen` is the terminal.

mod args;
mod error;

mod cells;
mod source;

mod view;

mod phrases;
mod table;

mod draw;
mod text;

mod screen;

use std::io::{self, IsTerminal, Write};

pub use args::TopArgs;
pub use error::TopError;

use crate::snapshot::{RunState, Snapshot};
use source::Source;

/// Shows a run until a person ends it; as JSON until the run ends.
pub fn run(args: &TopArgs) -> Result<(), TopError> {
    let Some(run) = &args.run else { return Err(TopError::no_run()) };
    let mut source = Source::open(run)?;
    if args.json {
        return lines(&mut source, args.once);
    }
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let snapshot = source.next()?.ok_or_else(|| TopError::ended(run))?;
        return written(text::text(&snapshot).as_bytes());
    }
    screen::show(source, run)
}

/// A snapshot a line, the first with the history, until the run is over.
fn lines(source: &mut Source, once: bool) -> Result<(), TopError> {
    loop {
        let Some(snapshot) = source.next()? else { return Ok(()) };
        let mut line = json(&snapshot);
        line.push(b'\n');
        written(&line)?;
        if once || snapshot.state != RunState::Running {
            return Ok(());
        }
    }
}

fn json(snapshot: &Snapshot) -> Vec<u8> {
    // Nothing of it fails to serialise: maps have texts as keys.
    serde_json::to_vec(snapshot).unwrap_or_default()
}

/// Writes to standard output; a reader that is gone ends the program as it would end any.
fn written(bytes: &[u8]) -> Result<(), TopError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(TopError::output(&error)),
        Ok(()) => Ok(()),
    }
}
