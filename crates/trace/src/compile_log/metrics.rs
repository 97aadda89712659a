//! Reads the metrics of a compilation: the event `compilation_metrics` of PyTorch 2.4 to 2.15.

use super::json::FirstTexts;
use super::log::{CompilePhases, CompiledFrame};
use super::texts::short;
use serde::{Deserialize, Deserializer};

/// Longest duration of a compilation that is accepted. With it, sums over all stored rows stay far
/// below 2^64 ns.
const MAX_US: u64 = 24 * 3600 * 1_000_000;
/// Times since 1970 that are accepted: the years 2001 to 2286.
const POSSIBLE_UNIX_US: std::ops::Range<u64> = 1_000_000_000_000_000..10_000_000_000_000_000;

/// The fields that this reader uses. Each version of PyTorch writes some of them, and many others.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metrics {
    co_name: Option<String>,
    co_filename: Option<String>,
    co_firstlineno: Option<u32>,
    guard_count: Option<u64>,
    start_time: Option<f64>,
    start_time_us: Option<u64>,
    end_time_us: Option<u64>,
    #[serde(deserialize_with = "duration")]
    duration_us: Option<u64>,
    #[serde(deserialize_with = "duration")]
    dynamo_cumulative_compile_time_us: Option<u64>,
    #[serde(deserialize_with = "duration")]
    backward_cumulative_compile_time_us: Option<u64>,
    entire_frame_compile_time_s: Option<f64>,
    backend_compile_time_s: Option<f64>,
    inductor_compile_time_s: Option<f64>,
    #[serde(deserialize_with = "duration")]
    aot_autograd_cumulative_compile_time_us: Option<u64>,
    #[serde(deserialize_with = "duration")]
    inductor_cumulative_compile_time_us: Option<u64>,
    #[serde(deserialize_with = "duration")]
    triton_compile_time_us: Option<u64>,
    #[serde(deserialize_with = "duration")]
    runtime_cudagraphify_time_us: Option<u64>,
    fail_type: Option<String>,
    fail_reason: Option<String>,
    restart_reasons: Option<FirstTexts>,
    recompile_reason: Option<String>,
    #[serde(deserialize_with = "present")]
    cudagraph_skip_reason: Option<Option<String>>,
    #[serde(deserialize_with = "duration")]
    structured_logging_overhead_us: Option<u64>,
    structured_logging_overhead_s: Option<f64>,
    is_forward: Option<bool>,
    is_runtime: Option<bool>,
}

impl Metrics {
    /// Whether this version of PyTorch would log the reason for skipped CUDA graphs here.
    pub(super) fn states_cuda_graphs(&self) -> bool {
        self.cudagraph_skip_reason.is_some()
    }

    /// Returns when the compilation began, microseconds since 1970.
    pub(super) fn start_unix_us(&self) -> Option<u64> {
        self.start_time_us
            .or_else(|| self.start_time.and_then(micros))
            .filter(|us| POSSIBLE_UNIX_US.contains(us))
    }

    /// Returns the duration of the compilation, microseconds. The field that contains it depends on
    /// the version of PyTorch.
    pub(super) fn total_us(&self, is_backward: bool) -> Option<u64> {
        let seconds = || self.entire_frame_compile_time_s.and_then(micros);
        let between = || self.end_time_us?.checked_sub(self.start_time_us?);
        let outermost = match is_backward {
            true => self.backward_cumulative_compile_time_us,
            false => self.dynamo_cumulative_compile_time_us,
        };
        let found = self.duration_us.or_else(seconds).or_else(between).or(outermost);
        found.filter(|us| *us <= MAX_US)
    }

    /// Whether the figures belong to a backward graph.
    pub(super) fn is_backward(&self, event: &str) -> bool {
        self.is_forward == Some(false) || event.contains("bwd") || event.contains("backward")
    }

    /// Whether the metrics belong to a run of compiled code, which isn't a compilation.
    pub(super) fn is_of_run(&self, event: &str) -> bool {
        self.is_runtime == Some(true) || event.ends_with("_runtime")
    }

    /// Returns the number of restart reasons that weren't stored because there were too many.
    pub(super) fn reasons_left_out(&self) -> u64 {
        self.restart_reasons.as_ref().map_or(0, |reasons| reasons.more)
    }

    /// Adds the time of a run that records CUDA graphs to the compilation's frame.
    pub(super) fn add_run(&self, frame: &mut CompiledFrame) {
        if let Some(us) = self.runtime_cudagraphify_time_us {
            let sum = frame.phases.cuda_graphs_us.get_or_insert(0);
            *sum = sum.saturating_add(us);
        }
        take(&mut frame.cuda_graphs_skipped, &self.cudagraph_skip_reason.clone().flatten());
    }

    /// Adds the figures of a compilation to its frame.
    pub(super) fn add_to(self, frame: &mut CompiledFrame) {
        let is_backward = frame.is_backward;
        let seconds = |s: Option<f64>| s.and_then(micros).filter(|us| *us <= MAX_US);
        let total = self.total_us(is_backward);
        let backend = self.aot_autograd_cumulative_compile_time_us;
        let backend = backend.or_else(|| seconds(self.backend_compile_time_s));
        let inductor = self.inductor_cumulative_compile_time_us;
        let inductor = inductor.or_else(|| seconds(self.inductor_compile_time_s));
        let kernels = self.triton_compile_time_us;
        // Each time includes the one after it, so subtract that one. A graph from the cache has no
        // Inductor time.
        let without = |of: Option<u64>, inner: &[Option<u64>]| {
            Some(of?.saturating_sub(inner.iter().flatten().next().copied().unwrap_or(0)))
        };
        let phases = CompilePhases {
            dynamo_us: if is_backward {
                None
            } else {
                without(total, &[backend, inductor, kernels])
            },
            aot_us: without(if is_backward { total } else { backend }, &[inductor, kernels]),
            inductor_us: without(inductor, &[kernels]),
            kernels_us: kernels,
            cuda_graphs_us: self.runtime_cudagraphify_time_us,
        };
        frame.start_unix_us = self.start_unix_us().or(frame.start_unix_us);
        frame.is_ended = true;
        frame.total_us = total;
        frame.phases = phases;
        take(&mut frame.function, &self.co_name);
        take(&mut frame.file, &self.co_filename);
        frame.line = self.co_firstlineno.or(frame.line);
        frame.guards = self.guard_count;
        let words = [self.fail_type, self.fail_reason].into_iter().flatten();
        let failure = words.map(|text| short(&text)).collect::<Vec<_>>().join(": ");
        frame.failure = (!failure.is_empty()).then_some(failure);
        let first_line = |text: String| short(text.lines().next().unwrap_or_default());
        frame.restart_reasons =
            self.restart_reasons.unwrap_or_default().texts.into_iter().map(first_line).collect();
        frame.recompile_reason = self.recompile_reason.map(|text| short(&text));
        take(&mut frame.cuda_graphs_skipped, &self.cudagraph_skip_reason.clone().flatten());
        let logging = self.structured_logging_overhead_us;
        frame.logging_us = logging.or_else(|| seconds(self.structured_logging_overhead_s));
    }
}

/// Deserializes an optional field so that `null` differs from a missing field.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(value).map(Some)
}

/// Reads microseconds; `None` for anything that is not a duration.
fn duration<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<u64>::deserialize(value)?.filter(|us| *us <= MAX_US))
}

fn take(kept: &mut Option<String>, given: &Option<String>) {
    if let Some(text) = given.as_deref().filter(|text| !text.is_empty()) {
        *kept = Some(short(text));
    }
}

/// Converts seconds to microseconds; `None` for anything that is not a time.
fn micros(seconds: f64) -> Option<u64> {
    (seconds.is_finite() && (0.0..1e13).contains(&seconds)).then(|| (seconds * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_to_the_total_duration() {
        let metrics = Metrics {
            duration_us: Some(100),
            aot_autograd_cumulative_compile_time_us: Some(80),
            inductor_cumulative_compile_time_us: Some(50),
            triton_compile_time_us: Some(20),
            ..Metrics::default()
        };
        let mut frame = CompiledFrame::default();
        metrics.add_to(&mut frame);
        let CompilePhases { dynamo_us, aot_us, inductor_us, kernels_us, .. } = frame.phases;
        assert_eq!([dynamo_us, aot_us, inductor_us, kernels_us], [20, 30, 30, 20].map(Some));
        assert_eq!(frame.total_us, Some(100));
    }

    #[test]
    fn seconds_of_older_versions_are_read_and_nonsense_is_none() {
        let old = Metrics {
            entire_frame_compile_time_s: Some(1.5),
            backend_compile_time_s: Some(f64::NAN),
            start_time: Some(1.7e9),
            ..Metrics::default()
        };
        assert_eq!(old.start_unix_us(), Some(1_700_000_000_000_000));
        let mut frame = CompiledFrame::default();
        old.add_to(&mut frame);
        assert_eq!((frame.total_us, frame.phases.dynamo_us), (Some(1_500_000), Some(1_500_000)));
        assert_eq!(frame.phases.aot_us, None);
    }
}
