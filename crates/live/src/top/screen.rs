//! Controls the terminal: draws snapshots, reads keys, and restores the terminal on every exit.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::draw::draw;
use super::error::TopError;
use super::source::Source;
use super::view::View;
use crate::snapshot::{RunState, Snapshot};

/// How long to wait for a key before checking for a new snapshot.
const KEY_WAIT: Duration = Duration::from_millis(100);
/// Number of ranks that a page key moves.
const PAGE: isize = 10;

/// A snapshot, `None` after the last one, or an error.
type Next = Result<Option<Snapshot>, TopError>;

/// Shows a run until a key or a signal ends it.
pub fn show(mut source: Source, run: &OsStr) -> Result<(), TopError> {
    // The first snapshot is read before the terminal is taken over, because ssh may ask for a
    // password.
    let first = source.next()?.ok_or_else(|| TopError::ended(run))?;
    let ending = Arc::new(AtomicBool::new(false));
    let by_signal = Arc::clone(&ending);
    // This fails if another handler is installed. Then that handler ends the program.
    let _ = ctrlc::set_handler(move || by_signal.store(true, Ordering::Relaxed));
    let snapshots = followed(source);
    let mut terminal = ratatui::try_init().map_err(|error| TopError::terminal(&error))?;
    let mut view = View::default();
    view.take(first);
    let result = turns(&mut terminal, &mut view, &snapshots, &ending);
    ratatui::restore();
    result
}

/// Receives snapshots from a separate thread, so that a slow file system or host does not delay
/// keys.
fn followed(mut source: Source) -> Receiver<Next> {
    let (to, from) = mpsc::channel();
    thread::spawn(move || {
        loop {
            let next = source.next();
            let is_last = !matches!(next, Ok(Some(_)));
            if to.send(next).is_err() || is_last {
                return;
            }
        }
    });
    from
}

fn turns(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    snapshots: &Receiver<Next>,
    ending: &AtomicBool,
) -> Result<(), TopError> {
    let failed = |error| TopError::terminal(&error);
    let mut changed = true;
    while !ending.load(Ordering::Relaxed) {
        if changed {
            terminal.draw(|frame| draw(frame, view)).map_err(failed)?;
            changed = false;
        }
        if event::poll(KEY_WAIT).map_err(failed)? {
            match event::read().map_err(failed)? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    if !handle_key(view, key) {
                        return Ok(());
                    }
                    changed = true;
                }
                Event::Resize(..) => changed = true,
                _ => {}
            }
        }
        changed |= taken(view, snapshots)?;
    }
    Ok(())
}

/// Passes new snapshots to the view, and returns whether the view changed. Fails if the thread that
/// reads snapshots stopped unexpectedly.
fn taken(view: &mut View, snapshots: &Receiver<Next>) -> Result<bool, TopError> {
    let mut any = false;
    loop {
        let why = match snapshots.try_recv() {
            Ok(Ok(Some(snapshot))) => {
                view.take(snapshot);
                any = true;
                continue;
            }
            Ok(Ok(None)) => "the connection ended".to_owned(),
            Ok(Err(error)) => error.why,
            Err(TryRecvError::Empty) => return Ok(any),
            Err(TryRecvError::Disconnected) if view.is_over => return Ok(any),
            Err(TryRecvError::Disconnected) => return Err(TopError::reader()),
        };
        // That no more snapshots come is an error only if the run was still in progress.
        view.ended = (view.now.state == RunState::Running).then_some(why);
        (view.is_over, any) = (true, true);
    }
}

/// Handles a key. Returns false if the key ends the program.
pub(super) fn handle_key(view: &mut View, key: KeyEvent) -> bool {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('q') => return false,
        KeyCode::Char('c') if is_control => return false,
        KeyCode::Esc if view.help => view.help = false,
        KeyCode::Char('?') => view.help = !view.help,
        KeyCode::Char('m') => view.next_metric(),
        KeyCode::Char('s') => view.next_order(),
        KeyCode::Up | KeyCode::Char('k') => view.move_by(-1),
        KeyCode::Down | KeyCode::Char('j') => view.move_by(1),
        KeyCode::PageUp => view.move_by(-PAGE),
        KeyCode::PageDown => view.move_by(PAGE),
        KeyCode::Home => view.move_by(isize::MIN),
        KeyCode::End => view.move_by(isize::MAX),
        _ => {}
    }
    true
}

#[cfg(test)]
mod tests;
