//! DataLoadBound: the device is idle while the host waits for its next batch. DataWait judges jobs
//! without device work.

use tprof_facts::units::duration;
use tprof_metrics::host::RankHost;
use tprof_rank::base::intervals::Cover;
use tprof_rank::base::sort_rows::SortRows;
use tprof_rank::samples::Part;
use tprof_rank::{HostSpan, SpanPurpose};
use tprof_trace::model::SpanKind;

use super::file_part::{READS_EXPLAIN, is_explained};
use crate::absent::SearchTarget;
use crate::rule::{Rule, RuleAbout};
use crate::scene::Scene;
use crate::verdict::Verdict;
use crate::words::{time, times, top};

/// Kinds of spans in which data may be loaded.
const KINDS: [SpanKind; 5] =
    [SpanKind::Annotation, SpanKind::Nvtx, SpanKind::Operator, SpanKind::Python, SpanKind::Other];
const ADVICE: &str = "Load ahead, in other processes: DataLoader(num_workers=…, \
    prefetch_factor=…, persistent_workers=True, pin_memory=True); make decoding and collating \
    cheaper; copy with non_blocking=True.";

const RANGE: SearchTarget = SearchTarget::of_main_threads("range with the name of a data loader");
const SAMPLE: SearchTarget = SearchTarget::of_main_threads("CPU sample in PyTorch's DataLoader");

/// The rule that judges loading of data by the main threads while the device is idle.
pub(super) struct DataLoadBound;

impl Rule for DataLoadBound {
    fn about(&self) -> RuleAbout {
        RuleAbout {
            name: "DataLoadBound",
            found_if: "at least 1 % of the window is late while a main thread loads data, unless \
                 SmallReads, ReadTwice or SlowStorage explains half of it",
            gain: "min(time in these ranges or samples, late time); an estimate if by samples",
            needs: "ranges or samples of loading, where there is late time",
            remedy: "load in workers, prefetch, pin memory",
        }
    }

    fn judge(&self, scene: &Scene<'_>) -> Verdict {
        match judge_loading(scene) {
            Verdict::Found(found) if found.iter().all(|one| is_explained(scene, one.bound_ns)) => {
                Verdict::no_problem(READS_EXPLAIN)
            }
            verdict => verdict,
        }
    }
}

fn judge_loading(scene: &Scene<'_>) -> Verdict {
    let spans = spans(scene);
    let idle = scene.late.length();
    // PyTorch records its own ranges even if the job was sampled, so check for samples first.
    if !scene.has_device() && scene.host().is_some() {
        return Verdict::nothing_to_judge("the job used no device: see DataWait");
    }
    if spans.is_empty() {
        return match scene.sampled_loading().is_empty() {
            false => judge_samples(scene),
            true if scene.share(idle) < 0.01 => {
                Verdict::no_problem("the device hardly waits for the host")
            }
            true => Verdict::nothing_recorded(
                format!(
                    "{}; {}",
                    scene.none(&RANGE, scene.has_spans(&KINDS, SpanPurpose::DataLoad)),
                    scene.none(&SAMPLE, scene.sampled_loading().is_recorded),
                ),
                "a range around the wait for the next batch: PyTorch's DataLoader has one; \
                     else torch.profiler.record_function or an NVTX range named data_load",
            ),
        };
    }
    let loading = cover_of(scene, &spans);
    let direct = scene.late.intersection(&loading);
    if scene.share(direct.length()) < 0.01 {
        return Verdict::no_problem(format!(
            "loading takes {} {}; the device waits for {} of it",
            duration(scene.per_step(loading.length())),
            scene.per_step_word(),
            duration(scene.per_step(direct.length())),
        ));
    }
    let measure = direct.measure();
    let mut names: Vec<(String, u64)> = Vec::new();
    for span in &spans {
        let name = scene.rank.name(span.name);
        let length = measure.within(span.interval());
        match names.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += length,
            None => names.push((name.to_owned(), length)),
        }
    }
    names.sort_rows_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    let lost = time(scene, direct.length());
    let idle_or_busy = if scene.has_device() { "The device is idle" } else { "The host is busy" };
    let seen = format!(
        "{idle_or_busy} for {lost} while a main thread loads data ({}, {} of host time): {}.",
        times(scene, spans.len(), "ranges"),
        duration(scene.per_step(loading.length())),
        top(scene, &names, 2),
    );
    let places = spans.iter().map(|span| scene.span_place(span));
    let waits = places.filter(|place| measure.within(place.interval) > 0);
    Verdict::Found(vec![
        scene
            .finding("the job waits for the next batch")
            .local()
            .seen(seen)
            .advice(ADVICE)
            // Data that is ready in time saves at most the time that the host spends loading,
            // and at most the time in which the device waits for the host.
            .bound(loading.length().min(idle))
            .at(waits),
    ])
}

/// Judges by CPU samples in which a main thread has PyTorch's DataLoader on its stack.
fn judge_samples(scene: &Scene<'_>) -> Verdict {
    let sampled = scene.sampled_loading();
    let loading = sampled.cover().intersection(&scene.window);
    let direct = scene.late.intersection(&loading);
    if scene.share(direct.length()) < 0.01 {
        return Verdict::no_problem(format!(
            "PyTorch's DataLoader takes {} {}, by CPU samples; the device waits for {} of it",
            duration(scene.per_step(loading.length())),
            scene.per_step_word(),
            duration(scene.per_step(direct.length())),
        ));
    }
    let within = |part: Cover| part.intersection(&scene.window).length();
    // If the driving thread is known, use the same wait as `report host`, so that the numbers
    // agree.
    let waits = |host: &RankHost| {
        let data = host.ledger.parts.get(&Part::Data).copied().unwrap_or_default();
        data.ns - data.running_ns
    };
    let waiting = scene.host().map(waits).filter(|ns| *ns > 0);
    let waiting = waiting.unwrap_or_else(|| within(sampled.waiting()));
    let starting = within(sampled.starting());
    let idle_or_busy = match scene.has_device() {
        true => format!("The device is idle for {} while a", time(scene, direct.length())),
        false => "A".to_owned(),
    };
    let mut seen = format!(
        "{idle_or_busy} main thread is in PyTorch's DataLoader for {}, estimated from {}",
        time(scene, loading.length()),
        times(scene, sampled.len(), "waits and samples"),
    );
    if waiting > 0 {
        seen.push_str(&format!(": it waits for {} of that", duration(scene.per_step(waiting))));
    }
    if starting > 0 {
        seen.push_str(&format!(
            ", and starts the loader for {}",
            duration(scene.per_step(starting))
        ));
    }
    let (whose, most) = match sampled.workers.is_empty() {
        true => ("No worker was sampled: loading runs in", &sampled.own),
        false => ("The workers run in", &sampled.workers),
    };
    if !most.is_empty() {
        seen.push_str(&format!(". {whose} {}", top(scene, most, 2)));
    }
    seen.push('.');
    let measure = direct.measure();
    let waits = sampled.places().filter(|place| measure.within(place.interval) > 0);
    Verdict::Found(vec![
        scene
            .finding("the job waits for the next batch")
            .local()
            .seen(seen)
            .advice(ADVICE)
            .bound(loading.length().min(scene.late.length()))
            .at(waits),
    ])
}

fn cover_of(scene: &Scene<'_>, spans: &[&HostSpan]) -> Cover {
    Cover::of(spans.iter().map(|span| span.interval())).intersection(&scene.window)
}

fn spans<'s>(scene: &'s Scene<'_>) -> Vec<&'s HostSpan> {
    let mut spans = scene.spans_stated(&KINDS, SpanPurpose::DataLoad);
    spans.retain(|span| scene.window.touches(span.interval()));
    spans
}
