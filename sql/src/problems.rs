//! What could not be read, gathered while a query runs and printed after its result.

use std::sync::{Arc, Mutex, PoisonError};

use crate::terminal::errors::print_stderr;

/// Problems that are named one by one.
const NAMED: usize = 5;

/// Problems so far; all copies are the same list.
#[derive(Clone, Debug, Default)]
pub struct Problems(Arc<Mutex<Vec<String>>>);

impl Problems {
    /// Adds one, in a sentence, if it is not there yet.
    pub fn add(&self, problem: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains(&problem) {
            all.push(problem);
        }
    }

    /// Prints and forgets them.
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
