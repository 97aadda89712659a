//! Handles `tprof ctl step`, which marks a training step at the same moment in the files of all
//! ranks.
//!
//! In each rank, the step is marked for one process only, because the others (workers of a data
//! loader, a shell around the job) take no part in the training. The process is chosen when the
//! first step is marked: of the processes that weren't forked from another live process of the
//! rank, the one that has used most CPU time. The steps stay with this process as long as it lives.

use super::inbox::Reply;
use super::main_loop::Engine;
use crate::output::files::FileOwner;
use crate::targets::target::Target;
use tprof_os::sys;
use tprof_trace::model::MarkKind;

impl Engine {
    /// Marks the beginning of a step. Step numbers must rise, because otherwise reports would
    /// replace them by numbers of their own.
    pub(super) fn step(&mut self, number: Option<u64>) -> Reply {
        let reply = Reply::new;
        let next = self.steps.last.map_or(Some(0), |last| last.checked_add(1));
        let Some(number) = number.or(next) else {
            return reply(false, "there is no number after the last step".to_owned());
        };
        if let Some(last) = self.steps.last.filter(|last| number <= *last) {
            return reply(false, format!("step {last} is marked already: numbers rise"));
        }
        let time_ns = sys::monotonic_ns();
        let marked = self.mark_step(&format!("step {number}"), time_ns);
        if marked == 0 {
            return reply(false, "no process of a rank is recorded at this moment".to_owned());
        }
        self.steps.last = Some(number);
        let ranks = if marked == 1 { "rank" } else { "ranks" };
        reply(true, format!("step {number} begins in {marked} {ranks}"))
    }

    /// Marks the step in each file that has a live process, and returns the number of such files.
    fn mark_step(&mut self, name: &str, time_ns: u64) -> usize {
        let mut marked = 0;
        for file in 0..self.out.files.open.len() {
            let Some(process) = self.process_of_steps(file) else { continue };
            let Some(open) = self.out.files.open.get_mut(file) else { continue };
            open.writer.mark_named((Some(process), time_ns), MarkKind::Step, name);
            marked += 1;
        }
        marked
    }

    /// Returns the process for which steps are marked in a file, by its index in the file; `None`
    /// for a launcher's file.
    fn process_of_steps(&mut self, file: usize) -> Option<u32> {
        if self.out.files.open.get(file)?.owner == FileOwner::Launcher {
            return None;
        }
        let known = self.steps.of_file.get(&file).and_then(|number| self.targets.get(number));
        if let Some(target) = known.filter(|target| target.end.is_none()) {
            return Some(target.hooks.index);
        }
        let live = |target: &&Target| target.file == file && target.end.is_none();
        let is_live = |number| self.targets.get(&number).as_ref().is_some_and(live);
        let own = self.targets.values().filter(live);
        let own = own.filter(|target| !target.forked_from.is_some_and(is_live));
        let chosen = own.max_by_key(|target| sys::cpu_ns_of(target.pid))?;
        let (number, index) = (chosen.number, chosen.hooks.index);
        self.steps.of_file.insert(file, number);
        Some(index)
    }
}
