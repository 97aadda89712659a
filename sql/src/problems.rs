//! Collects, while a query runs, messages about parts of runs that could not be read. They are
//! printed after the result.

use std::sync::{Arc, Mutex, PoisonError};

use tprof_ui::errors::print_stderr;

/// Largest number of problems to list.
const NAMED: usize = 5;

/// Problems so far; all clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Problems(Arc<Mutex<Vec<String>>>);

impl Problems {
    /// Adds a problem, in a sentence, unless it is already there.
    pub fn add(&self, problem: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&problem) {
            all.push(problem);
        }
    }

    /// Prints the problems and forgets them.
    pub fn print(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if all.is_empty() {
            return;
        }
        let mut text = String::new();
        for problem in all.iter().take(NAMED) {
            text += &format!("not read: {}\n", problem.replace('\n', " "));
        }
        if let more @ 1.. = all.len().saturating_sub(NAMED) {
            text += &format!("not read: {more} more problems\n");
        }
        print_stderr(&text);
    }
}
