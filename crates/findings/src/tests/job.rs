//! Builds jobs with one process, thread and device for the tests of rules.

use tprof_document::RankContext;
use tprof_facts::Clock;
use tprof_fixture::Fixture;
use tprof_rank::{Needs, RankTrace};
use tprof_trace::TraceFile;
use tprof_trace::model::{
    CopyKind, Device, Kernel, MemoryCopy, MemoryKind, NameId, Process, Property, Span, SpanKind,
    Thread,
};

use super::super::outcome::{Outcome, RankFindings};
use super::super::rules::RULES;
use super::super::scene::Scene;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
/// Number of multiprocessors of the job's device.
pub const PROCESSORS: u32 = 100;

/// A job under construction. Times are nanoseconds since the job began.
pub struct Job {
    pub fixture: Fixture,
    correlation: u64,
}

impl Job {
    /// Creates a job of `steps` steps of this length, one after the other.
    pub fn new(steps: u64, step_ns: u64) -> Job {
        let mut job = Job { fixture: Fixture::new(), correlation: 0 };
        let process = job.process();
        job.fixture.writer.process(&process);
        job.fixture.writer.thread(&Thread { thread: 0, process: 0, tid: 4712, start_ns: 0 });
        for step in 0..steps {
            job.range(step * step_ns, step_ns, &format!("ProfilerStep#{step}"));
        }
        job
    }

    /// Returns the process of the job.
    pub fn process(&mut self) -> Process {
        Process {
            process: 0,
            pid: 4711,
            parent: 1,
            rank: Some(0),
            command: self.fixture.name("train.py"),
            exe: NameId(0),
            start_ns: 0,
            memory: tprof_trace::model::MemoryRecording::Off,
        }
    }

    /// Adds a property of the whole file.
    pub fn fact(&mut self, key: &str, value: &str) {
        let (key, value) = (self.fixture.name(key), self.fixture.name(value));
        self.fixture.writer.property(Property { key, value });
    }

    /// Adds a device with [`PROCESSORS`] and this compute capability.
    pub fn device(mut self, compute_major: u32) -> Job {
        let name = self.fixture.name("NVIDIA H200");
        self.fixture.writer.device(&Device {
            name,
            processors: Some(PROCESSORS),
            compute_major: Some(compute_major),
            ..Device::default()
        });
        self
    }

    /// Adds a range as the program would name it.
    pub fn range(&mut self, start_ns: u64, duration_ns: u64, name: &str) {
        let row = Span { start_ns, duration_ns, kind: SpanKind::Annotation, ..Span::default() };
        self.fixture.span(row, name);
    }

    /// Adds a call that starts no work.
    pub fn call(&mut self, start_ns: u64, duration_ns: u64, name: &str) {
        self.correlation += 1;
        self.fixture.call(0, start_ns, duration_ns, name, self.correlation);
    }

    /// Adds a kernel and the call that launched it; the call takes a microsecond.
    pub fn kernel(&mut self, called_ns: u64, start_ns: u64, end_ns: u64, name: &str) {
        self.kernel_of(called_ns, Kernel { start_ns, ..Kernel::default() }, end_ns, name);
    }

    /// Adds a kernel with the properties of `row`, and the call that launched it.
    pub fn kernel_of(&mut self, called_ns: u64, row: Kernel, end_ns: u64, name: &str) {
        self.call(called_ns, US, "cudaLaunchKernel");
        let row = Kernel {
            duration_ns: end_ns - row.start_ns,
            correlation: Some(self.correlation),
            ..row
        };
        self.fixture.kernel(row, name);
    }

    /// Adds a kernel that keeps the device busy. Its launch lies a millisecond before its start.
    pub fn busy(&mut self, start_ns: u64, end_ns: u64) {
        self.kernel(start_ns.saturating_sub(MS), start_ns, end_ns, "busy");
    }

    /// Adds a copy and the call that made it; both last equally long.
    pub fn copy(
        &mut self,
        start_ns: u64,
        duration_ns: u64,
        kind: CopyKind,
        host: MemoryKind,
        call: &str,
    ) {
        self.call(start_ns, duration_ns, call);
        let (from, to) = match kind {
            CopyKind::HostToDevice => (host, MemoryKind::Device),
            _ => (MemoryKind::Device, host),
        };
        let correlation = Some(self.correlation);
        let row = MemoryCopy {
            start_ns,
            duration_ns,
            kind,
            from,
            to,
            correlation,
            ..MemoryCopy::default()
        };
        self.fixture.copy(row, "");
    }

    /// Returns the verdict of one rule.
    pub fn ask(self, rule: &str) -> Outcome {
        ask(&self.fixture.finish(), rule)
    }

    /// Returns the bound of a rule's only finding, for the whole window; `None` if the rule finds
    /// nothing.
    pub fn bound(self, rule: &str) -> Option<u64> {
        let outcome = self.ask(rule);
        assert!(outcome.found.len() < 2, "{outcome:?}");
        outcome.found.first().map(|(finding, _)| finding.bound_ns)
    }
}

/// Returns a rule's verdict on a file.
pub fn ask(file: &TraceFile, rule: &str) -> Outcome {
    let mut all = judged(file, "rank 0").outcomes.into_iter();
    all.find(|outcome| outcome.rule == rule).expect("no such rule")
}

/// Returns the verdicts of all rules on a file.
pub fn judged(file: &TraceFile, label: &str) -> RankFindings {
    let rank = RankTrace::load(file, Needs::ALL);
    let scene = Scene::of(&rank, Clock::default());
    let at = RankContext {
        rank: Some(0),
        label: label.to_owned(),
        file: String::new(),
        clock: Clock::default(),
        machine: Default::default(),
    };
    RankFindings::of(&scene, &at, RULES)
}
