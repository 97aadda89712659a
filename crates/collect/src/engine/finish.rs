//! Finishes targets whose processes have ended, and requests names for the addresses in their
//! stacks.

use super::main_loop::Engine;
use super::workers::SymbolTask;
use crate::targets::code::Unresolved;
use crate::targets::target::Target;
use std::path::Path;
use tprof_os::proc;
use tprof_symbols::KERNEL;
use tprof_symbols::elf;
use tprof_trace::run::BlindSpot;

/// Longest time after the end of a process in which the collector waits to learn how it ended.
pub(super) const STATUS_NS: u64 = 1_000_000_000;
/// Longest time after the end of a process in which the collector waits for its mappings to be
/// read.
const MODULES_NS: u64 = 10_000_000_000;

impl Engine {
    /// Whether the sampler has delivered all samples that it took before this time.
    fn was_sampled(&self, time_ns: u64) -> bool {
        self.sampled_until_ns >= time_ns
    }

    /// Finishes the images whose processes have ended.
    pub(super) fn finish_ended_images(&mut self, now: u64) {
        let gone: Vec<u64> = self
            .targets
            .iter()
            .filter(|(_, t)| {
                let sampled = t.end.as_ref().is_none_or(|e| self.was_sampled(e.time_ns));
                let explained = sampled && t.status_is_known(&self.out.processes);
                let age = t.end_age(now);
                let read = t.modules.open == 0 || age > MODULES_NS;
                t.end.is_some() && read && (explained || age > STATUS_NS)
            })
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            let has_progressed = self.targets.get(&number).is_some_and(Target::has_progressed);
            self.finish_image(number, now);
            self.notice_failure(number, has_progressed);
        }
    }

    pub(super) fn finish_image(&mut self, number: u64, now: u64) {
        // Symbols need the mappings, which can only be read while the process lives. Addresses
        // without a mapping are reported as a loss.
        let Some(mut target) = self.targets.remove(&number) else { return };
        target.drain_all(&mut self.out, now);
        target.learn_modules(&mut self.out, u64::MAX);
        self.ask_symbols(&mut target);
        self.judge_allocators(&mut target);
        self.written_off += target.recorded_work(&self.out.clock);
        target.finish(&mut self.out, now, self.recording.always_on);
    }

    /// Reports the allocators of a target whose blocks tprof can't record, because they map memory
    /// themselves instead of calling `malloc`.
    pub(super) fn judge_allocators(&mut self, target: &mut Target) {
        for module in target.mapping_modules() {
            let Some(allocator) = self.allocators.of_module(&module) else { continue };
            let command = self.out.processes.process(target.number).map(|row| row.command.as_str());
            let program = proc::program_of(command.unwrap_or_default());
            let library = module.path.file_name().unwrap_or_default().to_string_lossy();
            self.out.processes.losses.add_blind(BlindSpot::new(
                format!("{} {program}", target.pid),
                "allocations",
                elf::own_allocator(&library, &allocator),
            ));
        }
    }

    /// Sends the addresses in a target that have no names yet to the symbol worker.
    pub(super) fn ask_symbols(&mut self, target: &mut Target) {
        let (target, places) = (target.symbol_target(), target.code.drain_unnamed());
        self.request_names(Unresolved { target, places });
    }

    pub(super) fn request_names(&mut self, Unresolved { target, places }: Unresolved) {
        let (kernel, user): (Vec<_>, Vec<_>) =
            places.into_iter().partition(|(_, module, _)| module.path == Path::new(KERNEL));
        let user = SymbolTask::User(Unresolved { target, places: user });
        let kernel = SymbolTask::Kernel(Unresolved { target, places: kernel });
        for task in [user, kernel] {
            if let SymbolTask::User(n) | SymbolTask::Kernel(n) = &task
                && !n.places.is_empty()
            {
                self.open.symbols += 1;
                let _ = self.parts.workers.symbols.send(task);
            }
        }
    }
}
