//! Describes which windows arrived, and which are missing.

use super::clients::{Clients, WindowState};
use super::import_window::ImportedWindow;
use super::paths::HOME;
use crate::terminal::quote;
use std::collections::BTreeMap;
use std::path::Path;
use tprof_collect::Stepping;
use tprof_trace::run::BlindSpot;

/// Name of the windows in the list of what was not recorded.
const WHAT: &str = "the window of PyTorch's profiler (--kineto)";

/// Results of all windows.
#[derive(Debug, Default)]
pub struct WindowsOutcome {
    /// Number of windows that arrived.
    windows: usize,
    /// Number of operators, ranges and Python functions in them.
    rows: u64,
    /// Processes without a window, and why.
    pub blind: Vec<BlindSpot>,
}

impl WindowsOutcome {
    /// Evaluates the windows when the job is over. `taken` has the result of each import, by pid.
    pub(super) fn of(
        clients: &Clients,
        taken: &BTreeMap<u32, Result<ImportedWindow, String>>,
        stepping: &Stepping,
    ) -> WindowsOutcome {
        let mut outcome = WindowsOutcome::default();
        if clients.all.is_empty() {
            let why = match stepping.is_any() {
                true => {
                    "its PyTorch asked no daemon: built without, or older than KINETO_IPC_SOCKET_DIR"
                }
                false => "no process ran operators of PyTorch",
            };
            outcome.add_blind_spot("the job".to_owned(), why.to_owned());
        }
        for (pid, client) in &clients.all {
            let process = match client.rank {
                Some(rank) => format!("{pid} (rank {rank})"),
                None => pid.to_string(),
            };
            let far = stepping.of(*pid);
            let has_stepped = far.is_some_and(|far| far.has_stepped);
            let why = match (&client.state, taken.get(pid)) {
                (WindowState::Came, Some(Ok(taken))) => {
                    outcome.windows += 1;
                    outcome.rows += taken.rows;
                    continue;
                }
                (WindowState::Came, Some(Err(why))) => format!("its trace cannot be read: {why}"),
                (WindowState::Came, None) => "its trace was not read to its end".to_owned(),
                (WindowState::Records, _) => "it ended before its window was over".to_owned(),
                // Workers and launchers make no steps, so they are not expected to have a window.
                (WindowState::Waits, _) if !has_stepped && clients.all.len() > 1 => continue,
                (WindowState::Waits, _) if has_stepped => {
                    "it ended before it asked again, which it does each second".to_owned()
                }
                (WindowState::Waits, _) if far.is_some() => "it made no step".to_owned(),
                (WindowState::Waits, _) => "it ran no operators".to_owned(),
            };
            outcome.add_blind_spot(process, why);
        }
        if outcome.windows == 0 && outcome.blind.is_empty() {
            outcome.add_blind_spot("the job".to_owned(), "no process made a step".to_owned());
        }
        outcome
    }

    fn add_blind_spot(&mut self, process: String, why: String) {
        self.blind.push(BlindSpot::new(process, WHAT, why));
    }

    /// Returns a line for the closing message; `None` if no window arrived.
    pub fn line(&self, run: &Path) -> Option<String> {
        let windows = match self.windows {
            0 => return None,
            1 => "1 process".to_owned(),
            many => format!("{many} processes"),
        };
        let rows = tprof_facts::units::count(self.rows);
        let home = quote::word(quote::nearby(&run.join(HOME)).as_os_str());
        Some(format!(
            "a window of PyTorch's profiler in {windows}, {rows} rows: tprof report {home}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kineto::clients::Client;

    fn client(rank: Option<u32>, state: WindowState) -> Client {
        Client { rank, is_worker: false, state }
    }

    fn whys(outcome: &WindowsOutcome) -> Vec<(&str, &str)> {
        outcome.blind.iter().map(|b| (b.process.as_str(), b.why.as_str())).collect()
    }

    #[test]
    fn a_job_without_pytorch_and_a_pytorch_without_daemon_have_different_reasons() {
        let stepping = Stepping::default();
        let none = WindowsOutcome::of(&Clients::default(), &BTreeMap::new(), &stepping);
        assert_eq!(whys(&none), [("the job", "no process ran operators of PyTorch")]);
        stepping.note(7, false);
        let none = WindowsOutcome::of(&Clients::default(), &BTreeMap::new(), &stepping);
        assert!(whys(&none)[0].1.starts_with("its PyTorch asked no daemon"), "{none:?}");
        assert_eq!(none.line(Path::new("/r")), None);
    }

    #[test]
    fn each_process_with_steps_has_a_window_or_a_reason() {
        let stepping = Stepping::default();
        for pid in [2, 3, 4, 5] {
            stepping.note(pid, true);
        }
        let mut clients = Clients::default();
        clients.all.insert(1, client(None, WindowState::Waits));
        clients.all.insert(2, client(Some(0), WindowState::Came));
        clients.all.insert(3, client(Some(1), WindowState::Came));
        clients.all.insert(4, client(Some(2), WindowState::Records));
        clients.all.insert(5, client(Some(3), WindowState::Waits));
        let taken =
            BTreeMap::from([(2, Ok(ImportedWindow { rows: 9 })), (3, Err("cut".to_owned()))]);
        let outcome = WindowsOutcome::of(&clients, &taken, &stepping);
        assert_eq!(
            whys(&outcome),
            [
                ("3 (rank 1)", "its trace cannot be read: cut"),
                ("4 (rank 2)", "it ended before its window was over"),
                ("5 (rank 3)", "it ended before it asked again, which it does each second"),
            ]
        );
        let line = outcome.line(Path::new("/r")).unwrap();
        assert!(line.contains("in 1 process, 9 rows: tprof report /r/kineto"), "{line}");
    }
}
