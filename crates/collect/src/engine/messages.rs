//! Handles the messages that other threads send to the engine.

use super::inbox::Event;
use super::main_loop::Engine;
use super::workers::{Answer, MappingsRead};
use crate::nvml::NvmlMessage;
use crate::output::common_rows;
use crate::targets::attached::Attached;
use crate::targets::attribution::Destination;
use crate::targets::placing::PlacedIn;
use crate::targets::target::{End, Target};
use std::sync::atomic::Ordering::*;
use tprof_os::sys;
use tprof_sampler::cpu::SamplerEvent;
use tprof_trace::run::BlindSpot;

/// Name and reason of a loss: readings of devices that arrive when no file is open.
pub(super) const READINGS: &str = "readings of devices";
pub(super) const NO_FILE: &str = "no process was recorded with a file to hold them";

impl Engine {
    pub(super) fn has_messages(&mut self) -> bool {
        let before = (self.messages, self.open.modules, self.open.symbols);
        self.take_messages();
        before != (self.messages, self.open.modules, self.open.symbols)
    }

    pub(super) fn take_messages(&mut self) {
        self.take_events();
        self.take_answers();
        self.out.processes.settle();
    }

    fn take_events(&mut self) {
        self.sampled_until_ns = self.parts.sampler.as_ref().map_or(u64::MAX, |s| s.until_ns());
        while let Ok(event) = self.parts.events.try_recv() {
            self.messages += 1;
            match event {
                Event::Attached(attached) => self.attached(*attached),
                Event::RegionJoined { image, region, agent } => {
                    if let Some(target) = self.targets.get_mut(&image) {
                        target.joined(region, agent);
                        target.switch(self.parts.session.page().off.load(Relaxed));
                    }
                }
                Event::Unanswered(late) => {
                    self.out.processes.unanswered(late, self.parts.config.redact)
                }
                Event::Refused { pid, version } => self.out.processes.refused(pid, version),
                Event::Answered { pid, agent } => self.out.processes.answered(pid, agent),
                Event::Ended { image, time_ns, status, pidfd, exec } => {
                    self.ended(image, End { time_ns, status, pidfd, exec })
                }
                Event::Control(request, reply) => self.control(request, reply),
                Event::Machine(message) | Event::Device(NvmlMessage::Machine(message)) => {
                    self.machine.take(message, &mut self.out.processes.losses);
                }
                Event::Device(message) => {
                    let recording = self.parts.session.page().off.load(Relaxed) == 0;
                    if !self.devices.take(message, recording) {
                        self.out.processes.losses.lose(READINGS, NO_FILE, 1);
                    }
                }
                Event::GpuMetrics(message) => {
                    let recording =
                        self.recording.ends_on || self.parts.session.page().off.load(Relaxed) == 0;
                    if let Some(metrics) = &mut self.gpu_metrics {
                        metrics.take(message, recording);
                    }
                }
                Event::Sizes(round) => self.take_sizes(round),
                Event::RootStarted(pid) => self.out.processes.root = Some(pid),
                Event::Sampler(SamplerEvent::RateChanged(rate, time_ns)) => {
                    self.samples_thinned(rate, time_ns);
                }
                Event::Sampler(mut event) => {
                    let recording =
                        self.recording.ends_on || self.parts.session.page().off.load(Relaxed) == 0;
                    let Engine { targets, out, attribution, recording: state, .. } = self;
                    if let SamplerEvent::Samples(samples) = &mut event
                        && !recording
                    {
                        samples.retain_mut(|sample| sample.end_by(state.off_since_ns));
                    }
                    attribution.take(event, &mut Destination { targets, out });
                }
                Event::RootEnded(pid, status) => {
                    self.out.processes.reaped(pid, status, sys::monotonic_ns());
                    self.out.processes.root_ended = true;
                    self.out.processes.tree_cpu_ns = sys::children_cpu_ns();
                }
                Event::AllAccepted(turn) => self.ending.all_accepted = Some(turn),
                Event::Hung(report) => self.hung(&report),
                Event::WatchSteps(to) => _ = to.send(self.watched_steps()),
                Event::SlowStep(report) => self.was_slow(&report),
                Event::Follow => self.ending.follows = true,
                Event::AskedToEnd(signal) => {
                    self.parts.info.asked_to_end = Some((signal, sys::monotonic_ns()));
                    // `run.json` is written at once, because the next signal may be SIGKILL.
                    self.write_info_now();
                }
                Event::AddBlindSpot(blind) => self.out.processes.losses.add_blind(blind),
                Event::AddBlindSpotsAtEnd(judge) => self.ending.blind_spot_finders.push(judge),
                Event::StopWaiting => self.ending.finish_by_ns = Some(0),
                Event::Finish(wait) => {
                    // From here on the engine sleeps only briefly, because the rest of the run
                    // takes less time than its longest sleep.
                    self.idle = 0;
                    let by = sys::monotonic_ns() + wait.as_nanos() as u64;
                    self.ending.finish_by_ns =
                        Some(self.ending.finish_by_ns.map_or(by, |old| old.min(by)));
                    self.parts.session.eager.store(true, Release);
                    if let Some(sampler) = &self.parts.sampler {
                        let _ = sampler.deliver_now();
                    }
                }
            }
        }
    }

    fn take_answers(&mut self) {
        while let Ok(answer) = self.parts.answers.try_recv() {
            match answer {
                Answer::Modules(MappingsRead { image, read_ns, modules, had_ended }) => {
                    if let Some(target) = self.answered(image) {
                        target.code.was_late |= had_ended;
                        target.code.take_modules(read_ns, modules);
                    }
                }
                Answer::SameModules(image) => _ = self.answered(image),
                Answer::Python(image, interpreter) => {
                    self.messages += 1;
                    if let Some(target) = self.targets.get_mut(&image) {
                        target.code.interprets(interpreter);
                    }
                }
                Answer::CacheWritten => {
                    self.open.writing_cache = self.open.writing_cache.saturating_sub(1);
                    self.messages += 1;
                }
                Answer::NoPython(process, why) => {
                    let what = "Python frames in stacks of allocations".to_owned();
                    self.out.processes.losses.add_blind(BlindSpot::new(process, what, why));
                }
                Answer::Symbols(file, symbols) => {
                    self.open.symbols = self.open.symbols.saturating_sub(1);
                    self.messages += 1;
                    common_rows::write_symbols(
                        &mut self.out.files,
                        file,
                        symbols,
                        self.parts.config.redact,
                    );
                }
            }
        }
    }

    /// Counts a question about an image's mappings as answered, and returns the image's target.
    fn answered(&mut self, image: u64) -> Option<&mut Target> {
        self.open.modules = self.open.modules.saturating_sub(1);
        self.messages += 1;
        let target = self.targets.get_mut(&image)?;
        target.modules.open = target.modules.open.saturating_sub(1);
        Some(target)
    }

    fn attached(&mut self, attached: Attached) {
        let now = sys::monotonic_ns();
        // An on-demand collector launched no job, so its sampler learns only from attaching
        // processes what to sample.
        match &self.parts.sampler {
            Some(sampler) if self.parts.linger.is_some() => sampler.watch_attached(attached.pid),
            Some(sampler) if sampler.polls() => {
                self.parts.session.eager.store(true, Release);
                sampler.poll_attached(attached.pid);
            }
            Some(_) | None => {}
        }
        let placed_in = PlacedIn {
            targets: &self.targets,
            out: &mut self.out,
            config: &self.parts.config,
            recording: self.parts.session.page().off.load(Relaxed) == 0,
            allocators: &mut self.allocators,
        };
        if let Some(mut target) = Target::place(attached, placed_in, now) {
            if let Some(schedule) = self.recording.steps {
                target.schedule(schedule, self.recording.by(), &mut self.out, now);
            } else if self.recording.counted_ns.is_some() {
                target.schedule(self.counting(), self.recording.by(), &mut self.out, now);
            }
            // Recording may have been switched since the server answered the process.
            target.switch(self.parts.session.page().off.load(Relaxed));
            target.notice_steps(self.recording.counted_ns.is_some());
            self.targets.insert(target.number, target);
        }
    }

    fn ended(&mut self, number: u64, end: End) {
        if let Some(target) = self.targets.get_mut(&number) {
            target.end = Some(end);
            if let Some(sampler) =
                self.parts.sampler.as_ref().filter(|_| self.parts.session.eager.load(Acquire))
            {
                let _ = sampler.deliver_now();
            }
            // From here on a restarted rank gets a file of its own, because this file has one live
            // process fewer.
            if let Some(open) = self.out.files.open.get_mut(target.file) {
                open.live = open.live.saturating_sub(1);
            }
        }
    }
}
