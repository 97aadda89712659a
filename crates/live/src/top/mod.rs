//! `tprof top`: shows what the ranks of a run are doing: on a terminal, or as text or JSON where
//! standard output is not a terminal.
//!
//! `args` has the options, `error` the errors. `asking` asks why ranks stand still. `source` provides snapshots of a run on this host or
//! another; `cells` formats numbers; `view` is the state of the screen. `table` and `phrases` build
//! the parts of a screen; `text` and `draw` put them together; `screen` controls the terminal.

mod args;
mod error;

mod asking;
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

/// Shows a run until the user ends the program, or, as JSON, until the run ends.
pub fn run(args: &TopArgs) -> Result<(), TopError> {
    let Some(run) = &args.run else { return Err(TopError::no_run()) };
    let is_text =
        !args.json && (args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal());
    let mut source = Source::open(run, &args.program, args.once || is_text)?;
    if args.json {
        return lines(&mut source, args.once);
    }
    if is_text {
        let snapshot = source.next()?.ok_or_else(|| TopError::ended(run))?;
        return written(text::text(&snapshot).as_bytes());
    }
    screen::show(source, run)
}

/// Prints each snapshot as a line, the first one with the history, until the run is over.
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
    // Serialization cannot fail, because all keys of maps are strings.
    serde_json::to_vec(snapshot).unwrap_or_default()
}

/// Writes to standard output. If the reader of a pipe has gone, the program exits quietly.
fn written(bytes: &[u8]) -> Result<(), TopError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(TopError::output(&error)),
        Ok(()) => Ok(()),
    }
}
