//! Tells how the counters of devices were sampled (`--gpu-metrics`): the table, and a sentence for
//! each thing that is missing.

use std::collections::BTreeMap;

use tprof_document::{Cell, Column, Table, Unit};
use tprof_facts::units::duration;

use super::device::DeviceSamples;
use super::samples::HostSamples;

const NOT_SAMPLED: &str = "the GPUs' counters were not sampled (--gpu-metrics)";
const NO_SAMPLE: &str = "it was not sampled";

/// Makes the table and the sentences.
pub(super) fn sampling(hosts: &BTreeMap<&str, HostSamples<'_>>) -> (Table, Vec<String>) {
    let columns = vec![
        Column::data("host", Unit::Text),
        Column::new("gpu", "GPU", Unit::Id),
        Column::new("interval_ns", "every", Unit::Duration),
        Column::new("sampled_ns", "sampled", Unit::Duration),
        Column::new("lost_ns", "lost", Unit::Duration),
        Column::new("overflows", "buffer full", Unit::Count),
        Column::data("unusable_samples", Unit::Count),
        Column::new("clock_width_ns", "clock within", Unit::Duration),
        Column::new("buffer_bytes", "buffer", Unit::Bytes),
        Column::data("cupti", Unit::Count),
        Column::new("chip", "chip", Unit::Name),
    ];
    let mut table = Table::new("sampling", "How the GPUs' counters were sampled", columns)
        .about(
            "by CUPTI's PM sampling, outside the job; lost: time between two samples without one",
        )
        .empty(NOT_SAMPLED);
    let mut notes = Vec::new();
    for (host, read) in hosts {
        for said in &read.metrics {
            if let Some(why) = said["ended"].as_str() {
                notes.push(format!("{host}: the sampling of GPUs' counters ended early: {why}"));
            }
            if said["devices"].as_array().is_some_and(Vec::is_empty) {
                notes.push(format!(
                    "{host}: the GPUs' counters were not sampled: no process was known to use a GPU"
                ));
            }
        }
        for facts in read.devices() {
            let device = DeviceSamples { host: read, facts };
            let Some(metrics) = device.metrics() else { continue };
            let gpu = device.index();
            if let Some(why) = metrics.why_not() {
                notes.push(format!("{host}: the counters of GPU {gpu} were not sampled: {why}"));
            }
            let span = metrics.number("since_ns").zip(metrics.number("until_ns"));
            let lost_ns = metrics.number("lost_ns").unwrap_or(0);
            let overflows = metrics.number("overflows").unwrap_or(0);
            if lost_ns > 0 || overflows > 0 {
                notes.push(format!(
                    "{host}: samples of GPU {gpu}'s counters are missing for {} (its buffer was \
                     full {overflows} times)",
                    duration(lost_ns)
                ));
            }
            let mut left_out: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for (name, why) in metrics.missing() {
                left_out.entry(why).or_default().push(name.strip_prefix("gpu_").unwrap_or(name));
            }
            for (why, names) in left_out {
                notes.push(format!(
                    "{host}: not among the samples of GPU {gpu}: {}: {why}",
                    names.join(", ")
                ));
            }
            if metrics.text("chip").is_none() {
                continue;
            }
            let number = |key: &str| Cell::known(metrics.number(key), NO_SAMPLE);
            table.row(vec![
                (*host).into(),
                gpu.into(),
                metrics.interval_ns.into(),
                Cell::known(
                    span.map(|(since, until)| (until - since).saturating_sub(lost_ns)),
                    NO_SAMPLE,
                ),
                Cell::known(span.map(|_| lost_ns), NO_SAMPLE),
                number("overflows"),
                number("unusable"),
                Cell::known(metrics.number("clock_width_ns").filter(|_| span.is_some()), NO_SAMPLE),
                number("buffer_bytes"),
                number("cupti"),
                Cell::known(metrics.text("chip"), NO_SAMPLE),
            ]);
        }
    }
    notes.sort();
    notes.dedup();
    (table, notes)
}
